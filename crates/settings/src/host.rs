//! Where the other end is.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::text::Text;

/// The UDP port of a proxy where nothing else is said.
///
/// It stands in the dynamic range of RFC 6335 (49152 to 65535), in which no service can be registered,
/// and is not WireGuard's 51820, so that both can run on one host.
pub const DEFAULT_PORT: u16 = 51900;

/// A name or address of a host, and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A DNS name, or an address without brackets.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

impl HostPort {
    /// The address, where the host is not a name.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }

    fn of_address(address: SocketAddr) -> Result<Self, String> {
        match unusable(address.ip()) {
            Some(why) => Err(format!("`{address}` cannot be sent to: {why}")),
            None => Ok(Self { host: address.ip().to_string(), port: address.port() }),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Text for HostPort {
    const EXPECTED: &'static str = "a host and a port, such as \"vps.example.org:51900\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        // An address alone, IPv6 with or without brackets: the default port.
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Self::of_address(SocketAddr::new(ip, DEFAULT_PORT));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(format!("`{text}`: port 0 is no port")),
                _ => Self::of_address(address),
            };
        }
        let (host, port) = match text.split_once(':') {
            None => (text, DEFAULT_PORT),
            Some((host, port)) => match port.parse() {
                Ok(0) | Err(_) => {
                    return Err(format!("`{text}`: the port must be 1 to 65535"));
                }
                Ok(port) => (host, port),
            },
        };
        if is_dns_name(host) { Ok(Self { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

/// Why an address cannot be that of the other end, on whatever link; `None` if it can.
#[must_use]
pub fn unusable(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let (link_local, broadcast) = match address {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), false),
    };
    if link_local {
        Some("a link-local address means another machine on each link")
    } else if address.is_unspecified() {
        Some("it is no machine's address")
    } else if address.is_multicast() || broadcast {
        Some("it means many machines")
    } else {
        None
    }
}

/// Whether a client could ask for names at this address through a tunnel: it is that of one other machine.
#[must_use]
pub fn is_name_server(address: IpAddr) -> bool {
    unusable(address).is_none() && !address.to_canonical().is_loopback()
}

/// RFC 1123 section 2.1 with underscores, which some resolvers' names have.
pub(crate) fn is_dns_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name of digits only is a mistyped address: 192.0.2 or 300.1.2.3.
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    host.len() <= 253 && !numeric && host.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        let cases = [
            ("vps.example.org:51900", Some("vps.example.org:51900")),
            ("vps.example.org", Some("vps.example.org:51900")),
            ("localhost:1", Some("localhost:1")),
            ("192.0.2.1:4000", Some("192.0.2.1:4000")),
            ("192.0.2.1", Some("192.0.2.1:51900")),
            ("[2001:db8::1]:4000", Some("[2001:db8::1]:4000")),
            ("[2001:db8::1]", Some("[2001:db8::1]:51900")),
            ("2001:db8::1", Some("[2001:db8::1]:51900")),
            ("", None),
            (":51900", None),
            ("vps:0", None),
            ("192.0.2.1:0", None),
            ("vps:65536", None),
            ("vps:port", None),
            ("192.0.2", None),
            ("300.1.2.3:51900", None),
            ("two words:1", None),
            ("-x.example:1", None),
            ("a..b:1", None),
            ("https://vps.example.org", None),
        ];
        for (text, expected) in cases {
            let read = HostPort::from_text(text).ok().map(|host| host.to_string());
            assert_eq!(read.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_address_that_no_datagram_can_be_sent_to_says_why() {
        let cases = [
            ("[fe80::1]:51900", "another machine on each link"),
            ("169.254.1.1:1", "another machine on each link"),
            ("[::ffff:169.254.1.1]:1", "another machine on each link"),
            ("0.0.0.0:51900", "no machine's address"),
            ("[::]", "no machine's address"),
            ("224.0.0.1:1", "many machines"),
            ("ff02::1", "many machines"),
            ("255.255.255.255", "many machines"),
        ];
        for (text, expected) in cases {
            let message = HostPort::from_text(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        for text in ["127.0.0.1:1", "[::1]:1", "192.168.1.1:1", "[fd00::1]:1"] {
            assert!(HostPort::from_text(text).is_ok(), "{text}");
        }
    }
}
