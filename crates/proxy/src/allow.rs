//! What clients may reach beside the Internet: one entry of `allow`.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_settings::Text;

/// A network, or one port in it, that clients may reach although it is not the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whose addresses.
    pub net: IpNet,
    /// Only this port; `None`: all protocols.
    pub port: Option<Port>,
}

/// A port of a protocol, written `443/tcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its number, not 0.
    pub number: u16,
    /// Whose it is.
    pub transport: Transport,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Its name in lower case, as nft writes it, too.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Its name as people write it.
    #[must_use]
    pub const fn in_capitals(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// The number by which IP names it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl Text for Allowed {
    const EXPECTED: &'static str =
        "a network such as \"192.168.7.0/24\", or a port there such as \"10.0.0.5 443/tcp\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let (net, port) = match text.split_once(' ') {
            Some((net, port)) => (net, Some(port.trim_start())),
            None => (text, None),
        };
        let net = match net.parse::<IpAddr>() {
            Ok(address) => address.into(),
            Err(_) if net.contains('/') => IpNet::from_text(net)?,
            Err(_) => return Err(wrong()),
        };
        let Some(port) = port else { return Ok(Self { net, port: None }) };
        let (number, transport) = port.split_once('/').ok_or_else(wrong)?;
        let number = number.parse().ok().filter(|number| *number != 0).ok_or_else(wrong)?;
        let transport = match transport {
            "tcp" => Transport::Tcp,
            "udp" => Transport::Udp,
            _ => return Err(wrong()),
        };
        Ok(Self { net, port: Some(Port { number, transport }) })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.net.fmt(f),
            Some(Port { number, transport }) => {
                write!(f, "{} {number}/{}", self.net, transport.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_or_a_port_in_it_is_read_and_shown_alike() {
        for text in ["192.168.7.0/24", "10.0.0.5/32 443/tcp", "fd00:1::/64 53/udp", "fc00::/7"] {
            assert_eq!(Allowed::from_text(text).unwrap().to_string(), text);
        }
        assert_eq!(Allowed::from_text("10.0.0.5 443/tcp").unwrap().net.prefix_len(), 32);
    }

    #[test]
    fn what_is_no_network_or_no_port_is_refused_with_what_is_expected() {
        for text in [
            "",
            "lan",
            "10.0.0.5:443",
            "10.0.0.5 443",
            "10.0.0.5 0/tcp",
            "10.0.0.5 65536/tcp",
            "10.0.0.5 443/sctp",
            "10.0.0.5 443/tcp 80/tcp",
            "10.0.0.5/24",
        ] {
            assert!(Allowed::from_text(text).is_err(), "{text}");
        }
    }
}
