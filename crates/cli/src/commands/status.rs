//! `ropewalk status`: ask a daemon, show the table or the document.

use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::api::{Request, Response, StatusReport};
use ropewalk_control::client::{ClientError, call_blocking};
use ropewalk_control::{CLIENT_SOCKET, PROXY_SOCKET};

use crate::args::Status;
use crate::exit::{Failure, print};
use crate::render;

/// Asks the daemon and prints what it says.
pub(crate) fn run(status: &Status) -> Result<(), Failure> {
    let mut report = match &status.socket {
        Some(socket) => ask(socket)?,
        None => ask_any()?,
    };
    if let Some(peer) = &status.peer {
        select(&mut report, peer)?;
    }
    if status.json {
        let mut json =
            serde_json::to_string_pretty(&report).context("cannot write the status as JSON")?;
        json.push('\n');
        return print(&json);
    }
    print(&render::status(&report, status.peer.is_some()))
}

/// The client's daemon, else the proxy's.
fn ask_any() -> Result<StatusReport, Failure> {
    match ask(Path::new(CLIENT_SOCKET)) {
        Err(ClientError::NotRunning { .. }) => {}
        answer => return Ok(answer?),
    }
    match ask(Path::new(PROXY_SOCKET)) {
        Err(ClientError::NotRunning { .. }) => Err(Failure::NoDaemon(format!(
            "no daemon answers at {CLIENT_SOCKET} or {PROXY_SOCKET}: is it running? (start it with \
             `ropewalk client --config FILE` or `ropewalk proxy --config FILE`; if its [control] \
             socket is another one, say --socket)"
        ))),
        answer => Ok(answer?),
    }
}

fn ask(socket: &Path) -> Result<StatusReport, ClientError> {
    let Response::Status(report) = call_blocking(socket, Request::Status)?;
    Ok(*report)
}

/// Keeps only the tunnel to this peer.
fn select(report: &mut StatusReport, peer: &str) -> Result<(), Failure> {
    let names: Vec<String> = report.tunnels.iter().map(|tunnel| tunnel.peer.clone()).collect();
    report.tunnels.retain(|tunnel| tunnel.peer == peer);
    if !report.tunnels.is_empty() {
        return Ok(());
    }
    let names = names.iter().map(String::as_str);
    let help = match ropewalk_control::config::error::nearest(peer, names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "`ropewalk status` lists them".to_owned(),
    };
    Err(Failure::Usage(format!("there is no peer `{}`: {help}", peer.escape_debug())))
}
