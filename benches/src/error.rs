//! What ends the program before its checks, as stable exit codes.

use std::fmt;
use std::process::ExitCode;

/// Something is wrong with what the user gave: a name, a file, an option.
#[derive(Debug)]
pub struct BadInput(pub String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// How the program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything that had to hold did.
    Held = 0,
    /// A check failed.
    Failed = 1,
    /// Bad input, as for a bad option.
    BadInput = 2,
    /// It cannot run here: privilege, a tool, the machine.
    CannotRun = 3,
}

impl Outcome {
    /// What an error that ended the program means.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        if error.chain().any(<dyn std::error::Error>::is::<BadInput>) {
            Self::BadInput
        } else {
            Self::CannotRun
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}
