//! When a link goes over TLS in place of UDP.

use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;

/// The TCP port at which a proxy takes links over TLS where nothing else is said: that of HTTPS, which a network that
/// lets anything out lets out.
pub const DEFAULT_TLS_PORT: u16 = 443;

/// When a client's links go over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsUse {
    /// Each link while UDP is not answered on it.
    #[default]
    Auto,
    /// No link.
    Never,
    /// Every link, and UDP is not tried.
    Always,
}

shown_as_written!(TlsUse);
