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
    let in_fleet = report.proxy.as_ref().is_some_and(|proxy| proxy.registry.is_some());
    let (what, all) = if in_fleet {
        ("no session here since the proxy's start with a peer", "`ropewalk peer list`")
    } else {
        ("no peer", "`ropewalk status`")
    };
    let names = names.iter().map(String::as_str);
    let help = match ropewalk_settings::nearest(peer, names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("{all} lists them"),
    };
    Err(Failure::Usage(format!("there is {what} `{}`: {help}", peer.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_client_of_a_fleet_that_was_never_here_is_not_called_unknown() {
        let report = |registry: serde_json::Value| {
            let listen = "203.0.113.7:51900";
            let handshakes = json!(ropewalk_control::api::HandshakeCounters::default());
            let proxy = json!({ "listen": listen, "pools": [], "uplinks": [], "handshakes": handshakes, "registry": registry });
            let daemon =
                json!({ "role": "proxy", "program_version": "1", "pid": 1, "uptime_s": 1.0 });
            let report = json!({ "version": 1, "daemon": daemon, "tunnels": [], "proxy": proxy });
            serde_json::from_value::<StatusReport>(report).expect("a status")
        };
        let fleet = json!(ropewalk_control::api::RegistryStatus::default());
        for (registry, expected) in [
            (json!(null), "there is no peer `van`: `ropewalk status` lists them"),
            (
                fleet,
                "there is no session here since the proxy's start with a peer `van`: `ropewalk peer list` lists them",
            ),
        ] {
            let Err(Failure::Usage(told)) = select(&mut report(registry), "van") else {
                panic!("nobody is called so")
            };
            assert_eq!(told, expected);
        }
    }
}
