//! `ropewalk flows`: which links carry each flow, and what it waits for.

use std::thread;

use anyhow::Context as _;

use super::ask;
use crate::args::Flows;
use crate::exit::{Failure, print};
use crate::render;

/// Asks the daemon and prints what it says.
pub(crate) fn run(flows: &Flows) -> Result<(), Failure> {
    let peer = flows.peer.as_deref();
    let socket = ask::socket_for(flows.daemon.socket.as_deref(), peer);
    let mut report = ask::flows(socket, peer, usize::from(flows.top))?;
    // Bytes are counted from the first question on.
    if report.recent_over_s.is_some() {
        thread::sleep(flows.over);
        report = ask::flows(socket, peer, usize::from(flows.top))?;
    }
    if flows.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&render::flows(&report, render::columns()))
}
