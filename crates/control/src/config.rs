//! What the config files of both daemons have in common.
//!
//! A config file is read in two steps, *parse, don't validate*: serde reads the raw file, with unknown
//! keys denied, and the daemon's own `Config::parse` turns it into a value whose every field is valid,
//! so that nothing later has to check it again. Every error of both steps is a [`ConfigError`] with
//! file, line, column and a caret under the place, and names the nearest valid name for a typo.
//! A secret is never shown by an error. No input panics, and a file is bounded
//! ([`source::MAX_FILE_BYTES`]).

use std::path::Path;

mod control;
pub mod error;
pub mod source;

pub use control::{ControlConfig, ControlFile};
pub use error::ConfigError;
pub use source::{KeyFiles, Source, absolute};

/// A config file, resolved: what both daemons' `Config` can.
pub trait ConfigFile: Sized {
    /// The names of the keys that stand at the top of this daemon's file only, by which it is told from
    /// that of the other.
    const TOP_KEYS: &'static [&'static str];

    /// Resolves a file whose text is at hand.
    ///
    /// # Errors
    /// Whatever is wrong first, with its place.
    fn parse(source: &Source) -> Result<Self, ConfigError>;

    /// Reads and resolves a file, with the key files it names.
    ///
    /// # Errors
    /// Whatever is wrong first, with its place.
    fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(&Source::read(file)?)
    }
}
