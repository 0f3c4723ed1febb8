//! `ropewalk status`: ask a daemon, show the table or the document.

use anyhow::Context as _;
use ropewalk_control::api::StatusReport;

use super::ask;
use crate::args::Status;
use crate::exit::{Failure, print};
use crate::render;

/// Asks the daemon and prints what it says.
pub(crate) fn run(status: &Status) -> Result<(), Failure> {
    let mut report = ask::status(status.daemon.socket.as_deref())?;
    if let Some(peer) = &status.peer {
        select(&mut report, peer)?;
    }
    if status.json {
        let mut json =
            serde_json::to_string_pretty(&report).context("cannot write the status as JSON")?;
        json.push('\n');
        return print(&json);
    }
    print(&render::status(&report, status.peer.is_some(), render::columns()))
}

/// Keeps only the tunnel to this peer.
pub(crate) fn select(report: &mut StatusReport, peer: &str) -> Result<(), Failure> {
    let names: Vec<String> = report.tunnels.iter().map(|tunnel| tunnel.peer.clone()).collect();
    report.tunnels.retain(|tunnel| tunnel.peer == peer);
    if !report.tunnels.is_empty() {
        return Ok(());
    }
    let names = names.iter().map(String::as_str);
    let help = match ropewalk_settings::nearest(peer, names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "`ropewalk status` lists them".to_owned(),
    };
    Err(Failure::Usage(format!("there is no peer `{}`: {help}", peer.escape_debug())))
}
