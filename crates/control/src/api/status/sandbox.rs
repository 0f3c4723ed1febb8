//! What a daemon gave up at its start.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a daemon gave up at its start, so that a fault in it opens less of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// Files that it does not need (Landlock).
    pub files: SandboxState,
    /// System calls that it does not need (seccomp).
    pub system_calls: SandboxState,
}

/// Whether a part of the sandbox is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// It is.
    On,
    /// It is, and this kernel refuses less than newer ones.
    Partly,
    /// The config forbids it.
    Off,
    /// The kernel does not offer it, or refused it.
    Unavailable,
}

impl SandboxStatus {
    /// Whether all of it is on.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        [self.files, self.system_calls] == [SandboxState::On; 2]
    }
}

impl fmt::Display for SandboxStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, system_calls } = self;
        f.pad(&match files == system_calls {
            true => files.to_string(),
            false => format!("files {files}, system calls {system_calls}"),
        })
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::On => "on",
            Self::Partly => "on as far as this kernel can",
            Self::Off => "off",
            Self::Unavailable => "unavailable",
        })
    }
}
