//! The daemon's side of the control socket: HTTP and JSON, on a thread of its own.
//!
//! A request becomes a [`Command`] in a bounded channel; the daemon's loop takes it when it can and
//! [answers](Command::answer). The packet's way never waits for this thread, and a daemon that does not
//! answer in time is reported as busy. Connections, their number in all and for each user, their headers, their bodies
//! and their time are bounded (`places`).
//!
//! Where it is asked for, a page for people and the numbers for Prometheus are served on a port of the loopback
//! interface too.
//!
//! Who may ask is checked twice: the file has mode 0660 and belongs to the configured group, and each
//! connection's credentials are checked by [`Access`]. The socket is bound under another name and
//! renamed when its mode is right, so that it is never open too wide and replaces the file of a dead
//! daemon at once; a file behind which a daemon answers is refused.

mod access;
mod http;
mod places;
mod recent;
mod socket;
mod web;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::api::{ApiError, Request, Response};
use crate::config::ControlConfig;

pub use access::{Access, AccessError};
pub use socket::BindError;

/// Requests that may wait for the daemon's loop; more are answered as busy.
const WAITING_COMMANDS: usize = 24;

/// How a control server is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of the socket.
    pub socket: PathBuf,
    /// Who may use it.
    pub access: Access,
    /// Where on the loopback interface the page and the numbers for Prometheus are served too.
    pub web: Option<SocketAddr>,
}

impl Options {
    /// What `[control]` of a config file says.
    ///
    /// # Errors
    /// The group does not exist or cannot be looked up.
    pub fn of_config(config: &ControlConfig) -> Result<Self, AccessError> {
        let access = Access::new(config.group.as_deref())?;
        Ok(Self { socket: config.socket.clone(), access, web: config.web })
    }
}

/// One request, with the place for its answer.
#[derive(Debug)]
pub struct Command {
    /// What is asked.
    pub request: Request,
    reply: oneshot::Sender<Result<Response, ApiError>>,
}

impl Command {
    /// A request of the daemon itself, and where its answer comes.
    #[must_use]
    pub fn new(request: Request) -> (Self, oneshot::Receiver<Result<Response, ApiError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { request, reply }, answer)
    }

    /// Answers; an asker who is gone is no error.
    pub fn answer(self, answer: Result<Response, ApiError>) {
        drop(self.reply.send(answer));
    }
}

/// A running control server; dropped, it ends and removes its socket.
#[derive(Debug)]
pub struct Server {
    web: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Where a connection puts what it asks.
#[derive(Clone)]
struct Connection {
    commands: mpsc::Sender<Command>,
    access: Arc<Access>,
    answer_time: fn(&Request) -> Duration,
}

impl Server {
    /// Binds the socket and serves it from a thread of its own. The daemon's loop receives the
    /// commands.
    ///
    /// # Errors
    /// The socket is another daemon's, or cannot be made, the address of the page is taken, or no thread can be
    /// started.
    pub fn start(options: Options) -> Result<(Self, mpsc::Receiver<Command>), BindError> {
        Self::start_with(options, Request::answer_time)
    }

    fn start_with(
        options: Options,
        answer_time: fn(&Request) -> Duration,
    ) -> Result<(Self, mpsc::Receiver<Command>), BindError> {
        let Options { socket, access, web } = options;
        let bound = socket::Bound::new(&socket, access.group_id())?;
        let web = web.map(web::Web::bind).transpose()?;
        let web_address = web.as_ref().map(|web| web.address);
        let failed = |source| BindError::Start { source };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (commands, receiver) = mpsc::channel(WAITING_COMMANDS);
        let (stop, stopped) = oneshot::channel();
        let connection = Connection { commands, access: Arc::new(access), answer_time };
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || runtime.block_on(http::serve(bound, web, connection, stopped)))
            .map_err(failed)?;
        if let Some(address) = web_address {
            tracing::info!(
                "the page is at http://{address}/, the numbers for Prometheus at http://{address}/metrics"
            );
        }
        Ok((Self { web: web_address, stop: Some(stop), thread: Some(thread) }, receiver))
    }

    /// Where the page is served, with the port that the system chose where none was asked for.
    #[must_use]
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was already printed; here there is nothing left to end.
            drop(thread.join());
        }
    }
}

impl Connection {
    /// Puts a request to the daemon and waits for the answer.
    async fn ask(&self, request: Request) -> Result<Response, ApiError> {
        let busy = |message: &str| Err(ApiError::new(crate::api::ErrorCode::Busy, message));
        let time = (self.answer_time)(&request);
        let (command, answer) = Command::new(request);
        match self.commands.try_send(command) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return busy("the daemon has too many requests waiting; try again");
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return busy("the daemon is stopping"),
        }
        match tokio::time::timeout(time, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => busy("the daemon is stopping"),
            Err(_) => busy("the daemon did not answer in time; try again"),
        }
    }
}

#[cfg(test)]
mod tests;
