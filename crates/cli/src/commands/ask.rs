//! Asks a daemon: the one at a given socket, else the client's, else the proxy's.

use std::path::Path;

use ropewalk_control::api::{Request, Response, StatusReport};
use ropewalk_control::client::{ClientError, call_blocking};
use ropewalk_control::config::Scheduling;
use ropewalk_control::{CLIENT_SOCKET, PROXY_SOCKET};

use crate::exit::Failure;

/// How things are.
pub(crate) fn status(socket: Option<&Path>) -> Result<StatusReport, Failure> {
    match call(socket, &Request::Status)? {
        Response::Status(report) => Ok(*report),
        other => Err(unasked(&other)),
    }
}

/// How the daemon sends; with `change`, from now on.
pub(crate) fn scheduling(
    socket: Option<&Path>,
    change: Option<Scheduling>,
) -> Result<Scheduling, Failure> {
    let request = match change {
        None => Request::Scheduling,
        Some(change) => Request::SetScheduling(Box::new(change)),
    };
    match call(socket, &request)? {
        Response::Scheduling(scheduling) => Ok(*scheduling),
        other => Err(unasked(&other)),
    }
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

fn unasked(answer: &Response) -> Failure {
    Failure::Failed(anyhow::anyhow!("the daemon answered something else: {answer:?}"))
}
