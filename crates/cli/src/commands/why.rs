//! `ropewalk why`: look at a daemon twice, and say what limited its links in between.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_control::api::{FlowsReport, Role, StatusReport, TunnelState};
use ropewalk_control::why::judge;

use super::{ask, status};
use crate::args::Why;
use crate::exit::{Failure, print};
use crate::render;

/// For how long flows are counted at most.
const COUNTED: Duration = Duration::from_secs(4);

/// Tunnels whose flows are asked for: a proxy may have a thousand.
const MOST_TUNNELS: usize = 16;

/// Flows of each: those that a sentence could be about.
const MOST_FLOWS: usize = 20;

/// Asks the daemon twice and prints the judgement.
pub(crate) fn run(why: &Why) -> Result<(), Failure> {
    let socket = ask::socket_for(why.daemon.socket.as_deref(), why.peer.as_deref());
    let look = || -> Result<_, Failure> {
        let mut report = ask::status(socket)?;
        if let Some(peer) = &why.peer {
            status::select(&mut report, peer)?;
        }
        Ok(report)
    };
    let earlier = look()?;
    // A daemon counts what flows send for some seconds after it was asked.
    let counted = why.over.min(COUNTED);
    thread::sleep(why.over.saturating_sub(counted));
    flows(socket, &earlier);
    thread::sleep(counted);
    let report = judge(&earlier, &look()?, &flows(socket, &earlier));
    if why.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&render::why(&report, render::columns()))
}

/// What the flows of the tunnels do. Where that is not known, less is said.
fn flows(socket: Option<&Path>, report: &StatusReport) -> Vec<FlowsReport> {
    let up = report.tunnels.iter().filter(|tunnel| tunnel.state == TunnelState::Up);
    let of = |peer: &str| {
        let peer = (report.daemon.role == Role::Proxy).then_some(peer);
        ask::flows(socket, peer, MOST_FLOWS).ok()
    };
    up.take(MOST_TUNNELS).filter_map(|tunnel| of(&tunnel.peer)).collect()
}
