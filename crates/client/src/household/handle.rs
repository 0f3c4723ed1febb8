//! The client's end: starts the helper, tells it what is to be served, and hears how it is.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ropewalk_settings::Sandbox;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lan::Lan;
use super::words::{self, Report, Wish};
use super::{HELPER, NO_SANDBOX, folder};

/// How long the helper may take to end: as long as it gives its servers, and a moment.
const END_TIME: Duration = Duration::from_secs(4);

/// How often it is looked whether it has.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A helper that was started, before there is a runtime to talk to it.
#[derive(Debug)]
pub(crate) struct Started {
    client: std::os::unix::net::UnixStream,
    child: Child,
}

/// Starts the helper, by this same program. To be called before the sandbox is entered.
///
/// # Errors
/// The system refuses.
pub(crate) fn start(sandbox: Sandbox) -> anyhow::Result<Started> {
    let start = || -> io::Result<Started> {
        let (client, helper) = std::os::unix::net::UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(HELPER).arg(folder()?);
        if !sandbox.0 {
            command.arg(NO_SANDBOX);
        }
        // Its log is the client's.
        let child = command.stdin(Stdio::from(OwnedFd::from(helper))).spawn()?;
        Ok(Started { client, child })
    };
    start().context("cannot start the helper that runs dnsmasq")
}

/// The hold on a helper.
#[derive(Debug)]
pub(crate) struct Household {
    to: Option<OwnedWriteHalf>,
    reports: watch::Receiver<Report>,
    reader: JoinHandle<()>,
    child: Child,
    /// What it was told last.
    told: Vec<Lan>,
    /// Whether it was heard of its end.
    is_gone: bool,
}

/// What is wrong where it has ended.
const GONE: &str = "the helper that runs dnsmasq has ended, and addresses may not be handed out any more: restart the \
                    client";

impl Household {
    /// From now on it can be talked to.
    ///
    /// # Errors
    /// There is no runtime, or the system refuses.
    pub(crate) fn open(Started { client, child }: Started) -> io::Result<Self> {
        client.set_nonblocking(true)?;
        let (from, to) = UnixStream::from_std(client)?.into_split();
        let (tell, reports) = watch::channel(Report::default());
        let reader = tokio::spawn(listen(from, tell));
        Ok(Self { to: Some(to), reports, reader, child, told: Vec::new(), is_gone: false })
    }

    /// Has this served from now on. What is served so already is left alone.
    pub(crate) async fn set(&mut self, lans: Vec<Lan>) {
        if self.told == lans {
            return;
        }
        self.told.clone_from(&lans);
        if let Some(to) = &mut self.to
            && let Err(error) = words::write(to, &Wish { lans }).await
        {
            tracing::debug!(%error, "the helper that runs dnsmasq hears nothing any more");
        }
    }

    /// How it is, as far as it is known.
    pub(crate) fn report(&self) -> Report {
        self.reports.borrow().clone()
    }

    /// Waits until that changes.
    pub(crate) async fn news(&mut self) {
        if self.is_gone {
            return std::future::pending().await;
        }
        self.is_gone = self.reports.changed().await.is_err();
    }

    /// What is wrong, for people: what is to be served and is not.
    pub(crate) fn problems(&self) -> Vec<String> {
        if self.is_gone && !self.told.is_empty() {
            return vec![GONE.to_owned()];
        }
        let report = self.reports.borrow();
        let is_wanted = |name: &str| self.told.iter().any(|lan| lan.interface == name);
        let silent = report.lans.iter().filter(|lan| !lan.runs && is_wanted(&lan.interface));
        let problem = |interface: &str, why: Option<&str>| {
            let why = why.unwrap_or("dnsmasq does not run");
            format!("no addresses are handed out on {interface}: {why}")
        };
        silent.map(|lan| problem(&lan.interface, lan.trouble.as_deref())).collect()
    }

    /// Ends the helper and all that it serves, and waits for it.
    pub(crate) async fn end(mut self) {
        self.reader.abort();
        // Both halves of the connection: its end is what ends the helper.
        drop(self.to.take());
        let _ = (&mut self.reader).await;
        let until = Instant::now() + END_TIME;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                tracing::warn!("the helper that runs dnsmasq has not ended in time");
                return;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// Hears what the helper says, until it ends.
async fn listen(from: OwnedReadHalf, tell: watch::Sender<Report>) {
    let mut from = BufReader::new(from);
    loop {
        match words::read(&mut from).await {
            Ok(Some(report)) => {
                tell.send_replace(report);
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the helper that runs dnsmasq is not understood");
                return;
            }
        }
    }
}
