//! `inbound` in `client.toml`: what may begin connections to this machine out of the tunnel.

use std::fmt;

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{OneOrMany, PortRange, Text};
use toml::Spanned;

/// Most ports, or ranges of them: each is an element of the firewall's table.
const MAX_PORTS: usize = 64;

/// What may begin connections to this machine out of the tunnel. What this machine itself begins is answered in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inbound {
    /// What the proxy lets through: nothing, unless its config says so, and what its own host begins.
    #[default]
    Proxy,
    /// Nothing.
    Nothing,
    /// What is for these ports.
    Ports {
        /// Of TCP.
        tcp: Vec<PortRange>,
        /// Of UDP.
        udp: Vec<PortRange>,
    },
}

impl fmt::Display for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy => f.pad("proxy"),
            Self::Nothing => f.pad("none"),
            Self::Ports { tcp, udp } => {
                let tcp = tcp.iter().map(|ports| format!("{ports}/tcp"));
                let udp = udp.iter().map(|ports| format!("{ports}/udp"));
                f.pad(&tcp.chain(udp).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// One word of `inbound` as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Proxy,
    None,
    Tcp(PortRange),
    Udp(PortRange),
}

impl Text for Word {
    const EXPECTED: &'static str =
        "\"proxy\", \"none\", or ports such as [\"443/tcp\", \"5000-5010/udp\"]";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        match text {
            "proxy" => Ok(Self::Proxy),
            "none" => Ok(Self::None),
            _ => match text.split_once('/') {
                Some((ports, "tcp")) => PortRange::from_text(ports).map(Self::Tcp),
                Some((ports, "udp")) => PortRange::from_text(ports).map(Self::Udp),
                _ => Err(wrong()),
            },
        }
    }
}

/// What `inbound` means.
pub(super) fn resolve(
    source: &Source,
    words: Option<&Spanned<OneOrMany<Word>>>,
) -> Result<Inbound, ConfigError> {
    let Some(words) = words else { return Ok(Inbound::default()) };
    let wrong = |message: &str| Err(source.error(words.span(), message));
    match words.get_ref().0.as_slice() {
        [Word::Proxy] => Ok(Inbound::Proxy),
        [] | [Word::None] => Ok(Inbound::Nothing),
        many if many.len() > MAX_PORTS => {
            wrong(&format!("{} ports; at most {MAX_PORTS} are possible", many.len()))
        }
        many => {
            let (mut tcp, mut udp) = (Vec::new(), Vec::new());
            for word in many {
                match word {
                    Word::Proxy | Word::None => {
                        return wrong("\"proxy\" and \"none\" stand alone");
                    }
                    Word::Tcp(ports) => tcp.push(*ports),
                    Word::Udp(ports) => udp.push(*ports),
                }
            }
            match twice(&tcp).or_else(|| twice(&udp)) {
                Some(ports) => wrong(&format!("{ports} has a port that stands here twice")),
                None => Ok(Inbound::Ports { tcp, udp }),
            }
        }
    }
}

/// Ports of which another entry has some, too: a set of the firewall holds each once.
fn twice(ports: &[PortRange]) -> Option<PortRange> {
    let is_there =
        |(at, one): &(usize, &PortRange)| ports[..*at].iter().any(|other| other.overlaps(**one));
    ports.iter().enumerate().find(is_there).map(|(_, ports)| *ports)
}
