//! What the config files of both daemons have in common.
//!
//! A config file is read in two steps, *parse, don't validate*: serde reads the raw file, with unknown
//! keys denied, and the daemon's own `Config::parse` turns it into a value whose every field is valid,
//! so that nothing later has to check it again. Every error of both steps is a [`ConfigError`] with
//! file, line, column and a caret under the place, and names the nearest valid name for a typo.
//! A secret is never shown by an error. No input panics, and a file is bounded
//! ([`source::MAX_FILE_BYTES`]).

use std::path::Path;

pub mod error;
pub mod pattern;
pub mod scheduler;
pub mod source;
pub mod tunnel;
pub mod value;
mod words;

pub use error::ConfigError;
pub use pattern::NamePattern;
pub use scheduler::{Scheduler, Scheduling};
pub use source::{KeyFiles, Source};
pub use tunnel::{
    Cipher, ControlConfig, Controller, OffloadConfig, Release, ResequencerConfig, Switch,
    TunnelConfig, WhenClosed,
};
pub use value::{HostPort, InterfaceName, Keepalive, Mtu};

/// The UDP port of a proxy where nothing else is said.
///
/// It stands in the dynamic range of RFC 6335 (49152 to 65535), in which no service can be registered,
/// and is not WireGuard's 51820, so that both can run on one host.
pub const DEFAULT_PORT: u16 = 51900;

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
