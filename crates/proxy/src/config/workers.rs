//! `workers`: how many threads carry packets.

use std::fmt;

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_proto::endpoint::Share;
use toml::Spanned;

/// How many threads carry packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One for each core that the process may use.
    #[default]
    Auto,
    /// So many.
    Count(u16),
}

impl Workers {
    /// How many that are on this machine.
    #[must_use]
    pub fn count(self) -> u16 {
        match self {
            Self::Count(count) => count,
            Self::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                u16::try_from(cores).unwrap_or(u16::MAX).min(Share::MAX_PARTS)
            }
        }
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

/// What the file says.
pub(super) fn resolve(
    source: &Source,
    workers: Option<&Spanned<toml::Value>>,
) -> Result<Workers, ConfigError> {
    let Some(workers) = workers else { return Ok(Workers::Auto) };
    let most = Share::MAX_PARTS;
    match workers.get_ref() {
        toml::Value::String(word) if word == "auto" => return Ok(Workers::Auto),
        toml::Value::Integer(count) => {
            if let Some(count) =
                u16::try_from(*count).ok().filter(|count| (1..=most).contains(count))
            {
                return Ok(Workers::Count(count));
            }
        }
        _ => {}
    }
    let message = format!("workers is \"auto\" (one for each core) or a number from 1 to {most}");
    Err(source.error(workers.span(), &message))
}
