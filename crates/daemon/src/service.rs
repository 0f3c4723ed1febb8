//! The frame of a daemon: its runtime, the signals that end it, its supervisor.

use std::future::poll_fn;
use std::io::IsTerminal as _;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_control::config::ConfigError;
use ropewalk_control::server;
use sd_notify::NotifyState;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::reload::{self, Reloader};

/// The runtime of a daemon: one thread, so that no packet crosses a lock.
///
/// # Errors
/// The system has no more descriptors to give.
pub fn runtime() -> anyhow::Result<Runtime> {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start the runtime")
}

/// Bytes that nobody can predict.
///
/// # Errors
/// The system has none.
pub fn seed() -> anyhow::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the system has no randomness to give")?;
    Ok(seed)
}

/// How long a daemon that ends waits for a supervisor that does not read.
const SUPERVISOR_TIME: Duration = Duration::from_secs(1);

/// Tells the supervisor that this daemon ends. One that does not read holds nothing up for long; the thread that still waits
/// for it then ends with the process, where the runtime is shut down in the background.
pub async fn tell_stopping() {
    let told = tokio::task::spawn_blocking(|| notify(&[NotifyState::Stopping]));
    drop(tokio::time::timeout(SUPERVISOR_TIME, told).await);
}

/// Tells the supervisor, and waits until it takes that. Where there is none, nobody is told.
pub(crate) fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the supervisor was not told");
    }
}

/// Carries what is asked at the control socket into the loop, as `wrap` makes its commands.
pub async fn forward<C>(
    mut requests: mpsc::Receiver<server::Command>,
    commands: mpsc::Sender<C>,
    wrap: impl Fn(server::Command) -> C,
) {
    while let Some(request) = requests.recv().await {
        if commands.send(wrap(request)).await.is_err() {
            return;
        }
    }
}

/// The signals that ask for a clean end.
#[derive(Debug)]
pub struct StopSignals(Vec<Signal>);

impl StopSignals {
    /// From now on none of them kills the process.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn listen(kinds: &[SignalKind]) -> anyhow::Result<Self> {
        let listen = |kind: &SignalKind| signal(*kind).context("cannot listen to signals");
        Ok(Self(kinds.iter().map(listen).collect::<anyhow::Result<_>>()?))
    }

    /// Sends `stop` into the loop when the first of them comes.
    pub async fn forward<C>(mut self, commands: mpsc::Sender<C>, stop: C) {
        poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        tracing::info!("told to stop");
        // An error means that the loop is over already.
        drop(commands.send(stop).await);
    }
}

/// What a daemon hears from outside.
pub struct ServiceInputs<T> {
    /// The signals that end it.
    pub stop: StopSignals,
    /// Reads its config again.
    pub reload: Reloader<T>,
    /// Where to ask for that.
    pub reloader: mpsc::Sender<server::Command>,
}

impl<T: Send + 'static> ServiceInputs<T> {
    /// Open from now on. A hangup is the end of the daemon's terminal; where it has none, somebody's wish that the
    /// config, `file`, be read again.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn open(file: &Path, load: fn(&Path) -> Result<T, ConfigError>) -> anyhow::Result<Self> {
        let at_terminal = std::io::stdin().is_terminal();
        let mut ends = vec![SignalKind::terminate(), SignalKind::interrupt()];
        ends.extend(at_terminal.then_some(SignalKind::hangup()));
        let stop = StopSignals::listen(&ends)?;
        let (reloader, asked) = mpsc::channel(reload::WAITING);
        let reload = Reloader::new(file, load, !at_terminal, asked)?;
        Ok(Self { stop, reload, reloader })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::process::{Signal as Posix, getpid, kill_process};

    #[test]
    fn any_of_the_signals_asks_for_the_end_once() {
        runtime().unwrap().block_on(async {
            let kinds = [SignalKind::user_defined1(), SignalKind::user_defined2()];
            let stop = StopSignals::listen(&kinds).unwrap();
            let (commands, mut queue) = mpsc::channel(1);
            let task = tokio::spawn(stop.forward(commands, "stop"));
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(queue.try_recv().is_err(), "nothing came yet");
            kill_process(getpid(), Posix::USR2).unwrap();
            assert_eq!(queue.recv().await, Some("stop"));
            task.await.unwrap();
            assert_eq!(queue.recv().await, None);
        });
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed().unwrap(), seed().unwrap());
    }
}
