//! What can go wrong while an emulated network is built, used or taken down.

use std::io;
use std::path::PathBuf;

use crate::privilege::Missing;

/// A failure of the laboratory itself, not of what is tested in it. Every variant ends the
/// scenario.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A system tool ended with an error.
    #[error("`{command}` failed: {reason}")]
    Tool {
        /// The program and its arguments.
        command: String,
        /// Its standard error, or how it ended.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted, on which object.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The machine or the user lacks something.
    #[error("{0}")]
    Missing(Missing),
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds:.1} s{detail}")]
    TooLate {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: f64,
        /// The end of the log of the process waited for, or nothing.
        detail: String,
    },
    /// A process ended by itself.
    #[error("{name} ended early ({status}); the end of its log {log}:\n{tail}")]
    EndedEarly {
        /// Which process.
        name: String,
        /// Its exit status.
        status: String,
        /// The file with all it wrote.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// The caller asked for something that the address plan or the link cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// A measurement gave something that cannot be read.
    #[error("{what}: cannot read `{text}`")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// The text itself.
        text: String,
    },
}

impl LabError {
    /// Makes the adapter for `map_err` that says what was attempted.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
