//! Log lines on standard error, as text or JSON.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;
use crate::exit::Failure;

/// Starts logging with this level or filter.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::Usage(format!(
            "--log (or ROPEWALK_LOG) `{}`: {error}; write error, warn, info, debug or trace",
            filter.escape_debug()
        ))
    };
    // A lone word that is no level would be taken for the name of a module, and log nothing.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let word = filter.chars().all(char::is_alphanumeric);
    if word && !levels.iter().any(|level| level.eq_ignore_ascii_case(filter)) {
        return Err(wrong(&"this is no level"));
    }
    let filter = EnvFilter::try_new(filter).map_err(|error| wrong(&error))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|error| Failure::Failed(anyhow::anyhow!("cannot start logging: {error}")))
}
