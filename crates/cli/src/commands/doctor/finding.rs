//! What an examination finds: how bad it is, what was found on what, and what fixes it.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
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
pub(crate) struct Finding {
    /// Its kind, which stays the same over versions: the check, a point, what it found.
    pub(crate) id: &'static str,
    /// How bad it is.
    pub(crate) level: Level,
    /// What it is about: a link, a file, or what the check looks at.
    pub(crate) subject: String,
    /// One sentence of what was found.
    pub(crate) found: String,
    /// What fixes it, in words; empty where the commands say all.
    pub(crate) advice: String,
    /// The commands that fix it, in their order.
    pub(crate) commands: Vec<String>,
    /// Whether the commands are for the other end.
    pub(crate) at_proxy: bool,
}

impl Finding {
    /// As it should be.
    pub(crate) fn ok(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let (subject, found) = (subject.into(), found.into());
        let (advice, commands) = (String::new(), Vec::new());
        Self { id, level: Level::Ok, subject, found, advice, commands, at_proxy: false }
    }

    /// Worth knowing.
    pub(crate) fn note(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { level: Level::Note, ..Self::ok(id, subject, found) }
    }

    /// Not as good as it could be; fixed by this command.
    pub(crate) fn warn(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warn, ..Self::ok(id, subject, found) }.or(command)
    }

    /// It does not work; fixed by this command.
    pub(crate) fn fail(
        id: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self { level: Level::Fail, ..Self::ok(id, subject, found) }.or(command)
    }

    /// Another command, behind those before.
    pub(crate) fn or(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// What is to be done, in words.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// The commands are for the proxy's machine.
    pub(crate) fn at_proxy(mut self) -> Self {
        self.at_proxy = true;
        self
    }
}
