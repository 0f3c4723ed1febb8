//! What an examination finds: how bad it is, what was found on what, and what fixes it.

use std::path::Path;

use serde::Serialize;

use super::fix::{Change, Fix};
use super::quoting;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing needs to be done.
    Note,
    /// It works, and not as well as it could; or it will not for long.
    Warn,
    /// It does not work.
    Fail,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind, which stays the same over versions: the check, a point, what it found.
    pub id: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What it is about: a link, a file, or what the check looks at.
    pub subject: String,
    /// One sentence of what was found.
    pub found: String,
    /// What fixes it, in words; empty where the commands say all.
    pub advice: String,
    /// The commands that fix it, in their order.
    pub commands: Vec<String>,
    /// Whether the commands are for the other end.
    pub at_proxy: bool,
    /// What `ropewalk doctor --fix` does about it, if it can.
    pub fix: Option<Fix>,
}

impl Finding {
    /// As it should be.
    pub fn ok(id: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.into(), found.into());
        let (advice, commands) = (String::new(), Vec::new());
        Self { id, level: Level::Ok, subject, found, advice, commands, at_proxy: false, fix: None }
    }

    /// Worth knowing.
    pub fn note(id: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::ok(id, subject, found) }
    }

    /// Not as good as it could be; fixed by this command.
    pub fn warn(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warn, ..Self::ok(id, subject, found) }.or(command)
    }

    /// It does not work; fixed by this command.
    pub fn fail(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self { level: Level::Fail, ..Self::ok(id, subject, found) }.or(command)
    }

    /// Not as good as it could be; what fixes it follows.
    pub(crate) fn warning(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warn, ..Self::ok(id, subject, found) }
    }

    /// It does not work; what fixes it follows.
    pub(crate) fn failure(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { level: Level::Fail, ..Self::ok(id, subject, found) }
    }

    /// Another command, behind those before.
    pub fn or(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// What is to be done, in words.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Fixed by this change of a config file, which `doctor --fix` makes.
    pub(crate) fn edit(mut self, file: &Path, change: Change) -> Self {
        if self.advice.is_empty() {
            self.advice = format!("{change} (or with sudoedit):");
        }
        let config = quoting::file(file);
        self.commands.insert(0, format!("sudo ropewalk doctor --fix --config {config}"));
        self.fix = Some(Fix::Edit { file: file.to_owned(), change });
        self
    }

    /// All its commands together fix it, and need nothing else: `doctor --fix` runs them.
    pub(crate) fn automatic(mut self) -> Self {
        self.fix = Some(Fix::Run { commands: self.commands.clone() });
        self
    }

    /// What `doctor --fix` does about it.
    pub(crate) fn fixed_by(mut self, fix: Fix) -> Self {
        self.fix = Some(fix);
        self
    }

    /// The commands are for the proxy's machine.
    pub fn at_proxy(mut self) -> Self {
        self.at_proxy = true;
        self
    }
}
