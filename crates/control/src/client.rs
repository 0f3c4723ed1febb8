//! The tools' side of the control socket: connect, ask, and say what to do when it fails.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use nix::unistd::{Gid, Group};
use tokio::net::UnixStream;

use crate::api::{ApiError, Request, Response, STATUS_VERSION, StatusReport};
use crate::query;

/// How much longer one request may take in all than until the daemon itself gives up.
const CALL_TIME: Duration = Duration::from_secs(3);

/// Bytes of the longest answer: the status of 65,000 peers is about as much.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Why a daemon could not be asked, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at this socket.
    #[error(
        "no daemon answers at {}: is it running? (start it with `ropewalk client --config FILE` or \
         `ropewalk proxy --config FILE`; if its [control] socket is another one, say --socket)",
        socket.display()
    )]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// The user may not open the socket.
    #[error("no permission for {}: use sudo{}", socket.display(), membership(group.as_deref()))]
    Permission {
        /// The socket.
        socket: PathBuf,
        /// The group that may open it, if a user can become a member of it.
        group: Option<String>,
    },
    /// The daemon refused.
    #[error("the daemon refused: {0}")]
    Refused(ApiError),
    /// The daemon speaks another version.
    #[error(
        "the daemon's status has version {found}, this program knows {STATUS_VERSION}: use the \
         `ropewalk` of the same version, or restart the daemon"
    )]
    Version {
        /// What the daemon speaks.
        found: u64,
    },
    /// It took too long.
    #[error("the daemon at {} did not answer within {} s", socket.display(), time.as_secs())]
    Timeout {
        /// The socket.
        socket: PathBuf,
        /// How long.
        time: Duration,
    },
    /// What answers is no daemon of ours, or the connection broke.
    #[error("the answer from {} is not understood: {what}", socket.display())]
    Protocol {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// Asks the daemon at this socket, from outside any runtime.
///
/// # Errors
/// See [`ClientError`].
pub fn call_blocking(socket: &Path, request: &Request) -> Result<Response, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| protocol(socket, &error))?;
    runtime.block_on(call(socket, request))
}

/// Asks the daemon at this socket.
///
/// # Errors
/// See [`ClientError`].
pub async fn call(socket: &Path, request: &Request) -> Result<Response, ClientError> {
    let time = request.answer_time() + CALL_TIME;
    match tokio::time::timeout(time, exchange(socket, request)).await {
        Ok(answer) => answer,
        Err(_) => Err(ClientError::Timeout { socket: socket.to_path_buf(), time }),
    }
}

async fn exchange(socket: &Path, request: &Request) -> Result<Response, ClientError> {
    let stream = UnixStream::connect(socket).await.map_err(|error| connecting(socket, &error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| protocol(socket, &error))?;
    let driver = tokio::spawn(connection);
    let read = reader(request);
    let request = wire(request).map_err(|error| protocol(socket, &error))?;
    let answer = sender.send_request(request).await.map_err(|error| protocol(socket, &error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES)
        .collect()
        .await
        .map_err(|error| protocol(socket, &error))?
        .to_bytes();
    driver.abort();
    if status.is_success() {
        return read(socket, &body);
    }
    match serde_json::from_slice(&body) {
        Ok(refused) => Err(ClientError::Refused(refused)),
        Err(_) => Err(protocol(socket, &format!("HTTP status {status}"))),
    }
}

/// The request as HTTP has it.
fn wire(request: &Request) -> Result<hyper::Request<Full<Bytes>>, String> {
    let (method, path, body) = match request {
        Request::Status => (Method::GET, "/v1/status".to_owned(), Vec::new()),
        Request::Scheduling { peer } => (Method::GET, scheduling_of(peer), Vec::new()),
        Request::SetScheduling { peer, scheduling } => {
            let body = serde_json::to_vec(scheduling).map_err(|error| error.to_string())?;
            (Method::PUT, scheduling_of(peer), body)
        }
        Request::Flows { peer, limit } => {
            let values = [("peer", peer.clone()), ("limit", Some(limit.to_string()))];
            (Method::GET, query::written("/v1/flows", &values), Vec::new())
        }
        Request::Forwards => (Method::GET, "/v1/forwards".to_owned(), Vec::new()),
        Request::History(query) => (Method::GET, query.written(), Vec::new()),
        Request::ChangeLink(change) => {
            let body = serde_json::to_vec(change).map_err(|error| error.to_string())?;
            (Method::PUT, "/v1/links".to_owned(), body)
        }
        Request::Routes => (Method::GET, "/v1/routes".to_owned(), Vec::new()),
        Request::ChangeRoutes(change) => {
            let body = serde_json::to_vec(change).map_err(|error| error.to_string())?;
            (Method::PUT, "/v1/routes".to_owned(), body)
        }
        Request::Proxies => (Method::GET, "/v1/proxies".to_owned(), Vec::new()),
        Request::UseProxy { name } => {
            let path = query::written("/v1/proxies", &[("use", Some(name.clone()))]);
            (Method::PUT, path, Vec::new())
        }
        Request::StartSpeedTest(wish) => {
            let body = serde_json::to_vec(wish).map_err(|error| error.to_string())?;
            (Method::POST, "/v1/speedtest".to_owned(), body)
        }
        Request::SpeedTest { id } => (Method::GET, speed_test(*id), Vec::new()),
        Request::EndSpeedTest { id } => (Method::DELETE, speed_test(*id), Vec::new()),
        Request::Reload => (Method::POST, "/v1/reload".to_owned(), Vec::new()),
        Request::Peers => (Method::GET, "/v1/peers".to_owned(), Vec::new()),
        Request::Invite(wish) => {
            let body = serde_json::to_vec(wish).map_err(|error| error.to_string())?;
            (Method::POST, "/v1/peers".to_owned(), body)
        }
        Request::RemovePeer { name } => {
            let path = query::written("/v1/peers", &[("name", Some(name.clone()))]);
            (Method::DELETE, path, Vec::new())
        }
        Request::EnablePeer { name, enabled } => {
            let values = [("name", Some(name.clone())), ("enabled", Some(enabled.to_string()))];
            (Method::PUT, query::written("/v1/peers", &values), Vec::new())
        }
    };
    let request = hyper::Request::builder().method(method).uri(path).header(HOST, "ropewalk");
    request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())
}

fn scheduling_of(peer: &Option<String>) -> String {
    query::written("/v1/scheduling", &[("peer", peer.clone())])
}

fn speed_test(id: u64) -> String {
    query::written("/v1/speedtest", &[("id", Some(id.to_string()))])
}

type Reader = fn(&Path, &[u8]) -> Result<Response, ClientError>;

/// What reads the answer.
const fn reader(request: &Request) -> Reader {
    match request {
        Request::Status => report,
        Request::Scheduling { .. } | Request::SetScheduling { .. } => {
            |socket, body| Ok(Response::Scheduling(document(socket, body)?))
        }
        Request::Flows { .. } => |socket, body| Ok(Response::Flows(document(socket, body)?)),
        Request::Forwards => |socket, body| Ok(Response::Forwards(document(socket, body)?)),
        Request::History(_) => |socket, body| Ok(Response::History(document(socket, body)?)),
        Request::ChangeLink(_) => |socket, body| Ok(Response::Link(document(socket, body)?)),
        Request::Routes | Request::ChangeRoutes(_) => {
            |socket, body| Ok(Response::Routes(document(socket, body)?))
        }
        Request::Proxies | Request::UseProxy { .. } => {
            |socket, body| Ok(Response::Proxies(document(socket, body)?))
        }
        Request::StartSpeedTest(_) | Request::SpeedTest { .. } | Request::EndSpeedTest { .. } => {
            |socket, body| Ok(Response::SpeedTest(document(socket, body)?))
        }
        Request::Reload => |socket, body| Ok(Response::Reloaded(document(socket, body)?)),
        Request::Peers => |socket, body| Ok(Response::Peers(document(socket, body)?)),
        Request::Invite(_) => |socket, body| Ok(Response::Invited(document(socket, body)?)),
        Request::RemovePeer { .. } => |socket, body| Ok(Response::Removed(document(socket, body)?)),
        Request::EnablePeer { .. } => |socket, body| Ok(Response::Enabled(document(socket, body)?)),
    }
}

fn document<T: serde::de::DeserializeOwned>(
    socket: &Path,
    body: &[u8],
) -> Result<Box<T>, ClientError> {
    serde_json::from_slice(body).map(Box::new).map_err(|error| protocol(socket, &error))
}

/// Reads the document; the version first, since another one may have other fields.
fn report(socket: &Path, body: &[u8]) -> Result<Response, ClientError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u64,
    }

    let versioned: Versioned =
        serde_json::from_slice(body).map_err(|error| protocol(socket, &error))?;
    if versioned.version != u64::from(STATUS_VERSION) {
        return Err(ClientError::Version { found: versioned.version });
    }
    let report: StatusReport =
        serde_json::from_slice(body).map_err(|error| protocol(socket, &error))?;
    Ok(Response::Status(Box::new(report)))
}

fn connecting(socket: &Path, error: &io::Error) -> ClientError {
    let name = socket.to_path_buf();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ClientError::NotRunning { socket: name }
        }
        io::ErrorKind::PermissionDenied => {
            ClientError::Permission { group: group_of(socket), socket: name }
        }
        _ => protocol(socket, error),
    }
}

/// The group whose members may open a socket: never root's, which is for no user to join.
fn group_of(file: &Path) -> Option<String> {
    let metadata = std::fs::metadata(file).ok()?;
    let may_open = metadata.mode() & 0o020 != 0 && metadata.gid() != 0;
    let group =
        may_open.then(|| Group::from_gid(Gid::from_raw(metadata.gid())).ok().flatten())??;
    Some(group.name)
}

/// What helps beside sudo.
fn membership(group: Option<&str>) -> String {
    match group {
        Some(group) => format!(", or become a member of the group `{group}`"),
        None => {
            " (or name a group in [control] of the daemon's config, whose members may then ask it)"
                .to_owned()
        }
    }
}

fn protocol(socket: &Path, what: &dyn std::fmt::Display) -> ClientError {
    ClientError::Protocol { socket: socket.to_path_buf(), what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A file that this group may, or may not, write.
    fn file(group: Option<u32>, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        if let Some(group) = group {
            std::os::unix::fs::chown(file.path(), None, Some(group)).unwrap();
        }
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn nobody_is_told_to_become_a_member_of_the_group_of_root() {
        let refused = |file: &Path| {
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            connecting(file, &error).to_string()
        };
        let own = nix::unistd::getegid().as_raw();
        let mut cases = vec![(file(None, 0o600), false), (file(None, 0o660), own != 0)];
        if nix::unistd::geteuid().is_root() {
            cases.extend([(file(Some(0), 0o660), false), (file(Some(1), 0o660), true)]);
        }
        for (file, can_join) in cases {
            let told = refused(file.path());
            assert!(told.contains(": use sudo"), "{told}");
            assert_eq!(told.contains("become a member of the group"), can_join, "{told}");
            assert!(!told.contains("`root`"), "{told}");
        }
    }
}
