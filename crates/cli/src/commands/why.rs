//! `ropewalk why`: look at a daemon twice, and say what limited its links in between.

use std::thread;

use anyhow::Context as _;
use ropewalk_control::why::judge;

use super::{ask, status};
use crate::args::Why;
use crate::exit::{Failure, print};
use crate::render;

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
    thread::sleep(why.over);
    let report = judge(&earlier, &look()?);
    if why.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&render::why(&report))
}
