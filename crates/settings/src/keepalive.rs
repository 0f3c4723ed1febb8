//! How NATs are kept open.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::text::{Text, by_text, in_range};

/// How often an idle link sends something, so that the NATs on its way keep it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepalive {
    /// This long after the last datagram.
    Every(Duration),
    /// As seldom as the NAT allows (PROTOCOL §9).
    Auto,
    /// Never: the proxy may lose an idle link.
    Off,
}

impl Keepalive {
    /// Shorter would be traffic, not a keepalive; longer keeps no NAT open (RFC 4787 REQ-5 recommends 5 minutes or more
    /// as the NAT's timeout).
    pub const RANGE: RangeInclusive<Duration> =
        Duration::from_millis(500)..=Duration::from_secs(600);
}

impl Default for Keepalive {
    /// Half of the shortest UDP timeout that is common among NATs (30 s, the default of Linux's conntrack for a flow
    /// without reply): one lost keepalive does no harm. So has RFC 8445 §11.
    fn default() -> Self {
        Self::Every(Duration::from_secs(15))
    }
}

impl fmt::Display for Keepalive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(interval) => write!(f, "{}", humantime::format_duration(*interval)),
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl Text for Keepalive {
    const EXPECTED: &'static str = "a duration such as \"15s\", or \"auto\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match Duration::from_text(text) {
                Err(_) => Err(format!("`{text}` is not {}", Self::EXPECTED)),
                Ok(interval) => in_range(interval, &Self::RANGE).map(|()| Self::Every(interval)),
            },
        }
    }
}

by_text!(Keepalive);
