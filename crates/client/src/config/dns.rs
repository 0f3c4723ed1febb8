//! `dns` in `client.toml`: where names are looked up while the tunnel is up.

use std::fmt;
use std::net::IpAddr;

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{OneOrMany, Text, is_name_server};
use toml::Spanned;

/// Resolvers ask no more servers than this (`resolv.conf(5)`).
const MAX_SERVERS: usize = 3;

/// Where names are looked up while the tunnel is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dns {
    /// At the servers that the proxy hands out, if it does; else as without the tunnel.
    #[default]
    Proxy,
    /// As without the tunnel.
    Untouched,
    /// At these.
    Servers(Vec<IpAddr>),
}

impl fmt::Display for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy => f.pad("proxy"),
            Self::Untouched => f.pad("none"),
            Self::Servers(servers) => {
                let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
                f.pad(&servers.join(", "))
            }
        }
    }
}

/// One word of `dns` as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Proxy,
    None,
    Server(IpAddr),
}

impl Text for Word {
    const EXPECTED: &'static str =
        "\"proxy\", \"none\", or addresses of name servers, such as [\"9.9.9.9\"]";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "proxy" => Ok(Self::Proxy),
            "none" => Ok(Self::None),
            _ => match text.parse() {
                Ok(address) if is_name_server(address) => Ok(Self::Server(address)),
                Ok(_) => Err(format!("{text} is no address that can be asked through the tunnel")),
                Err(_) => Err(format!("`{text}` is not {}", Self::EXPECTED)),
            },
        }
    }
}

/// What `dns` means.
pub(super) fn resolve(
    source: &Source,
    words: Option<&Spanned<OneOrMany<Word>>>,
) -> Result<Dns, ConfigError> {
    let Some(words) = words else { return Ok(Dns::default()) };
    let wrong = |message: &str| Err(source.error(words.span(), message));
    match words.get_ref().0.as_slice() {
        [Word::Proxy] => Ok(Dns::Proxy),
        [] | [Word::None] => Ok(Dns::Untouched),
        many if many.len() > MAX_SERVERS => {
            wrong(&format!("{} name servers; at most {MAX_SERVERS} are asked", many.len()))
        }
        many => {
            let server = |word: &Word| match word {
                Word::Server(address) => Some(*address),
                Word::Proxy | Word::None => None,
            };
            match many.iter().map(server).collect() {
                Some(servers) => Ok(Dns::Servers(servers)),
                None => wrong("\"proxy\" and \"none\" stand alone"),
            }
        }
    }
}
