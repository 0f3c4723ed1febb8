//! Log lines on standard error, as text or JSON.

mod damper;

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::args::LogFormat;
use crate::exit::Failure;
use damper::Damper;

/// Starts logging with this level or filter. Lines that repeat are left out, unless the filter asks for more than `info`.
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
    // Somebody who looks for a fault wants all of it.
    let whole = filter.max_level_hint().is_none_or(|most| most > LevelFilter::INFO);
    let damper = (!whole).then(|| Damper::new(format));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let lines = match damper {
        Some(damper) => lines.with_filter(damper).boxed(),
        None => lines,
    };
    let started = tracing_subscriber::registry().with(filter).with(lines).try_init();
    started.map_err(|error| Failure::Failed(anyhow::anyhow!("cannot start logging: {error}")))
}
