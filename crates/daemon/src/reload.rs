//! Reading the config again, beside the loop, which never waits for a disk.
//!
//! A hangup signal asks for it, or somebody at the control socket. The loop gets what was read and decides what of it it
//! can make so; a config with an error reaches nobody's settings.

use std::fmt::Display;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use humantime::format_duration;
use ropewalk_control::api::{ApiError, ErrorCode, ReloadReport, Response};
use ropewalk_control::config::{ConfigError, ControlConfig};
use ropewalk_control::server;
use ropewalk_settings::{LinkTerms, Offload, Resequencer, Scheduling, TunnelSettings};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::sandbox;

/// Whoever asks while so many wait is told to try again.
pub(crate) const WAITING: usize = 4;

/// A config that was read again.
#[derive(Debug)]
pub struct Loaded<T> {
    /// What it says, or what is wrong with it.
    pub config: Result<Box<T>, ConfigError>,
    /// Who asked at the control socket; a signal has nobody to be answered.
    pub asker: Option<server::Command>,
}

/// The task.
pub struct Reloader<T> {
    file: PathBuf,
    load: fn(&Path) -> Result<T, ConfigError>,
    hangups: Option<Signal>,
    asked: mpsc::Receiver<server::Command>,
}

impl<T: Send + 'static> Reloader<T> {
    /// Reads this file by `load` whenever somebody asks. `hangups`: a hangup asks, too; else it is left to others.
    ///
    /// # Errors
    /// The system refuses a handler of signals.
    pub fn new(
        file: &Path,
        load: fn(&Path) -> Result<T, ConfigError>,
        hangups: bool,
        asked: mpsc::Receiver<server::Command>,
    ) -> anyhow::Result<Self> {
        let listen = || signal(SignalKind::hangup()).context("cannot listen to signals");
        let hangups = hangups.then(listen).transpose()?;
        Ok(Self { file: file.to_owned(), load, hangups, asked })
    }

    /// Runs until the loop is gone.
    pub async fn run<C>(mut self, commands: mpsc::Sender<C>, wrap: impl Fn(Loaded<T>) -> C) {
        let file = Arc::new(self.file);
        loop {
            let hangup = poll_fn(|context| match &mut self.hangups {
                Some(hangups) => hangups.poll_recv(context),
                None => std::task::Poll::Pending,
            });
            let asker = tokio::select! {
                Some(()) = hangup => None,
                asked = self.asked.recv() => match asked {
                    Some(asker) => Some(asker),
                    None => return,
                },
            };
            let (file, load) = (Arc::clone(&file), self.load);
            // A panic there would have been printed; there is nothing to tell the loop.
            let Ok(config) = tokio::task::spawn_blocking(move || load(&file)).await else { return };
            let loaded = Loaded { config: config.map(Box::new), asker };
            if commands.send(wrap(loaded)).await.is_err() {
                return;
            }
        }
    }
}

/// Passes somebody's wish for a reload on; one too many is answered at once.
pub fn ask(reloader: &mpsc::Sender<server::Command>, asked: server::Command) {
    if let Err(mpsc::error::TrySendError::Full(asked) | mpsc::error::TrySendError::Closed(asked)) =
        reloader.try_send(asked)
    {
        asked.answer(Err(is_busy()));
    }
}

/// A config is being read already.
#[must_use]
pub fn is_busy() -> ApiError {
    ApiError::new(ErrorCode::Busy, "the config is being read already; try again")
}

impl<T> Loaded<T> {
    /// Has `apply` make so what it can, logs what came of it, and answers who asked.
    pub fn settle(self, file: &Path, apply: impl FnOnce(T) -> ReloadReport) {
        let answer = match self.config {
            Ok(config) => {
                let mut report = apply(*config);
                report.file = file.display().to_string();
                log(&report);
                Ok(Response::Reloaded(Box::new(report)))
            }
            Err(error) => {
                let error = match error.is_permission() && sandbox::closes_files() {
                    true => error.with_help(CLOSED),
                    false => error,
                };
                tracing::warn!("the config is not taken over, and nothing is changed: {error}");
                Err(ApiError::new(ErrorCode::BadRequest, error.to_string()))
            }
        };
        if let Some(asker) = self.asker {
            asker.answer(answer);
        }
    }
}

/// What else may be behind a file that cannot be read.
const CLOSED: &str = "while it runs, a daemon is closed to files outside its config's folder that were not named at its start: \
     restart it, or put the file there";

fn log(report: &ReloadReport) {
    if report.changes.is_empty() {
        return tracing::info!("the config was read again: nothing is changed");
    }
    for change in &report.changes {
        let (key, before, after) = (&change.key, &change.before, &change.after);
        if change.applied {
            tracing::info!("config: {key} is {after} now (was {before})");
        } else {
            tracing::warn!("config: {key} stays {before} until a restart ({after} in the file)");
        }
    }
}

/// What differs of `[tunnel]`: how this end sends can be changed while it runs, the rest is the sessions'.
pub fn compare_tunnel(report: &mut ReloadReport, before: &TunnelSettings, after: &TunnelSettings) {
    // Named one by one, so that a key that is added is not forgotten here.
    let TunnelSettings {
        scheduling,
        controller,
        order,
        acknowledge,
        when_closed: _,
        queue: _,
        rekey_after,
        ecn,
        cipher,
        resequencer,
        offload: Offload { tun, udp_gso, udp_gro },
    } = before;
    compare_scheduling(report, scheduling, &after.scheduling);
    report.compare("tunnel.controller", texts([controller, &after.controller]), false);
    report.compare("tunnel.order", texts([order, &after.order]), false);
    report.compare("tunnel.acknowledge", texts([acknowledge, &after.acknowledge]), false);
    let when_closed = [before, after].map(TunnelSettings::when_closed_in_words);
    report.compare("tunnel.when_closed", when_closed, false);
    report.compare(
        "tunnel.rekey_after",
        [rekey_after, &after.rekey_after].map(|time| format_duration(*time).to_string()),
        false,
    );
    report.compare("tunnel.ecn", texts([ecn, &after.ecn]), false);
    report.compare("tunnel.cipher", texts([cipher, &after.cipher]), false);
    report.compare(
        "tunnel.resequencer",
        [resequencer, &after.resequencer].map(Resequencer::in_words),
        false,
    );
    report.compare("tunnel.tun_offload", texts([tun, &after.offload.tun]), false);
    report.compare("tunnel.udp_gso", texts([udp_gso, &after.offload.udp_gso]), false);
    report.compare("tunnel.udp_gro", texts([udp_gro, &after.offload.udp_gro]), false);
}

fn compare_scheduling(report: &mut ReloadReport, before: &Scheduling, after: &Scheduling) {
    let words = |scheduling: &Scheduling| scheduling.in_words();
    report.compare("tunnel.scheduler", [words(before), words(after)], true);
    let names: std::collections::BTreeSet<_> =
        before.terms.keys().chain(after.terms.keys()).collect();
    for name in names {
        let of = |scheduling: &Scheduling| {
            let told = scheduling.terms.get(name).map(LinkTerms::in_words);
            told.filter(|told| !told.is_empty()).unwrap_or_else(|| "nothing said".to_owned())
        };
        report.compare(&format!("tunnel.link.{name}"), [of(before), of(after)], true);
    }
    let routes = [&before.safire.routes, &after.safire.routes];
    let routes = routes.map(|routes| {
        let one = |(net, links): (&_, &Vec<String>)| format!("{net} by {}", links.join(", "));
        list(&routes.iter().map(one).collect::<Vec<_>>())
    });
    report.compare("tunnel.safire.routes", routes, true);
    let redundant = [before, after].map(|scheduling| scheduling.redundant.in_words());
    report.compare("tunnel.redundant", redundant, true);
}

/// Two values as people write them.
#[must_use]
pub fn texts<T: Display>(values: [&T; 2]) -> [String; 2] {
    values.map(ToString::to_string)
}

/// Values as people write them, one beside the other.
#[must_use]
pub fn list<T: Display>(values: &[T]) -> String {
    let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}

/// Values that may be missing, as people write them.
#[must_use]
pub fn or<T: Display>(values: [Option<T>; 2], missing: &str) -> [String; 2] {
    values.map(|value| value.map_or_else(|| missing.to_owned(), |value| value.to_string()))
}

/// Two times.
#[must_use]
pub fn times(values: [Duration; 2]) -> [String; 2] {
    values.map(|time| format_duration(time).to_string())
}

/// Two files.
#[must_use]
pub fn files(values: [&PathBuf; 2]) -> [String; 2] {
    values.map(|file| file.display().to_string())
}

/// What differs of `[control]`.
pub fn compare_control(report: &mut ReloadReport, before: &ControlConfig, after: &ControlConfig) {
    let ControlConfig { socket, group, web } = before;
    report.compare("control.socket", files([socket, &after.socket]), false);
    report.compare("control.group", or([group.as_ref(), after.group.as_ref()], "none"), false);
    report.compare("control.web", or([*web, after.web], "none"), false);
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::SchedulerKind;

    use super::*;

    #[test]
    fn what_can_be_changed_is_told_apart_from_what_needs_a_restart() {
        let before = TunnelSettings::default();
        let mut after = before.clone();
        let mut report = ReloadReport::default();
        compare_tunnel(&mut report, &before, &after);
        assert_eq!(report.changes, []);
        after.scheduling.scheduler = SchedulerKind::Safire;
        after.scheduling.terms.insert("wlan0".to_owned(), Default::default());
        after.ecn = !before.ecn;
        compare_tunnel(&mut report, &before, &after);
        let found: Vec<_> = report
            .changes
            .iter()
            .map(|c| (c.key.as_str(), c.before.as_str(), c.after.as_str(), c.applied))
            .collect();
        assert_eq!(
            found,
            [
                ("tunnel.scheduler", "arrival", "safire (k 1, 0 routes)", true),
                ("tunnel.ecn", "true", "false", false),
            ]
        );
        assert_eq!(report.waiting().count(), 1);
    }
}
