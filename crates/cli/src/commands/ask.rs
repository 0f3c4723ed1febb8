//! Asks a daemon: the one at a given socket, else the client's, else the proxy's; for a peer the proxy's.

use std::path::Path;

use ropewalk_control::api::{
    FlowsReport, ForwardsReport, HistoryQuery, HistoryReport, LinkChange, LinkSettings,
    ProxiesReport, ReloadReport, Request, Response, RoutesChange, RoutesReport, SpeedTestReport,
    StatusReport,
};
use ropewalk_control::client::{ClientError, call_blocking};
use ropewalk_control::{CLIENT_SOCKET, PROXY_SOCKET};
use ropewalk_settings::Scheduling;

use crate::exit::Failure;

/// How things are.
pub(crate) fn status(socket: Option<&Path>) -> Result<StatusReport, Failure> {
    match call(socket, &Request::Status)? {
        Response::Status(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// How the daemon sends, to all or to one peer; with `change`, from now on.
pub(crate) fn scheduling(
    socket: Option<&Path>,
    peer: Option<&str>,
    change: Option<Scheduling>,
) -> Result<Scheduling, Failure> {
    let peer = peer.map(str::to_owned);
    let request = match change {
        None => Request::Scheduling { peer },
        Some(change) => Request::SetScheduling { peer, scheduling: Box::new(change) },
    };
    match call(socket, &request)? {
        Response::Scheduling(scheduling) => Ok(*scheduling),
        other => Err(unasked(&other)),
    }
}

/// Which flow is on which link, at most so many.
pub(crate) fn flows(
    socket: Option<&Path>,
    peer: Option<&str>,
    limit: usize,
) -> Result<FlowsReport, Failure> {
    match call(socket, &Request::Flows { peer: peer.map(str::to_owned), limit })? {
        Response::Flows(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// The ports that the proxy at this socket leads to its clients.
pub(crate) fn forwards(socket: &Path) -> Result<ForwardsReport, Failure> {
    match call(Some(socket), &Request::Forwards)? {
        Response::Forwards(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// What the daemon remembers.
pub(crate) fn history(
    socket: Option<&Path>,
    query: HistoryQuery,
) -> Result<HistoryReport, Failure> {
    match call(socket, &Request::History(query))? {
        Response::History(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// Changes a link of the client at this socket; returns what holds for it then.
pub(crate) fn change_link(socket: &Path, change: LinkChange) -> Result<LinkSettings, Failure> {
    match call(Some(socket), &Request::ChangeLink(change))? {
        Response::Link(settings) => Ok(*settings),
        other => Err(unasked(&other)),
    }
}

/// The proxies that the client at this socket knows; with `name`, after those of that name were chosen.
pub(crate) fn proxies(socket: &Path, name: Option<&str>) -> Result<ProxiesReport, Failure> {
    let request = match name {
        None => Request::Proxies,
        Some(name) => Request::UseProxy { name: name.to_owned() },
    };
    match call(Some(socket), &request)? {
        Response::Proxies(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// What goes through the tunnel of the client at this socket, and what around it; with `change`, from now on.
pub(crate) fn routes(socket: &Path, change: Option<RoutesChange>) -> Result<RoutesReport, Failure> {
    match call(Some(socket), &change.map_or(Request::Routes, Request::ChangeRoutes))? {
        Response::Routes(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// A speed test of the client at this socket, as it is after this request about it.
pub(crate) fn speed_test(socket: &Path, request: &Request) -> Result<SpeedTestReport, Failure> {
    match call(Some(socket), request)? {
        Response::SpeedTest(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// Has the daemon read its config again.
pub(crate) fn reload(socket: Option<&Path>) -> Result<ReloadReport, Failure> {
    match call(socket, &Request::Reload)? {
        Response::Reloaded(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// Where to ask about a peer: at the proxy's socket, if no other is said.
pub(crate) fn socket_for<'a>(socket: Option<&'a Path>, peer: Option<&str>) -> Option<&'a Path> {
    socket.or_else(|| peer.map(|_| Path::new(PROXY_SOCKET)))
}

fn call(socket: Option<&Path>, request: &Request) -> Result<Response, Failure> {
    if let Some(socket) = socket {
        return Ok(call_blocking(socket, request)?);
    }
    match call_blocking(Path::new(CLIENT_SOCKET), request) {
        Err(ClientError::NotRunning { .. }) => {}
        answer => return Ok(answer?),
    }
    match call_blocking(Path::new(PROXY_SOCKET), request) {
        Err(ClientError::NotRunning { .. }) => Err(Failure::NoDaemon(format!(
            "no daemon answers at {CLIENT_SOCKET} or {PROXY_SOCKET}: is it running? (start it with \
             `ropewalk client --config FILE` or `ropewalk proxy --config FILE`; if its [control] \
             socket is another one, say --socket)"
        ))),
        answer => Ok(answer?),
    }
}

pub(crate) fn unasked(answer: &Response) -> Failure {
    Failure::Failed(anyhow::anyhow!("the daemon answered something else: {answer:?}"))
}
