//! Ports of this host that lead to clients: what comes of `[[forward]]`.
//!
//! | file | what it has |
//! | --- | --- |
//! | [`book`] | to which client each leads now, and what is shown of it |
//! | [`rules`] | the rules of the firewall for them |
//! | [`connections`] | which open connections end, or begin again, when they change |
//! | [`conflicts`] | what else on this host wants their ports |
//!
//! The destination of a packet to such a port becomes the client's inner address; its source stays as it is, so the client sees who
//! it is. The client's answers leave it from its inner address, which its own rules lead into the tunnel whatever else they
//! say.

pub mod book;
pub mod conflicts;
#[cfg(target_os = "linux")]
pub mod connections;
#[cfg(target_os = "linux")]
pub mod rules;

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use ropewalk_settings::PortRange;

use crate::allow::Transport;

/// What names the ports of a forward of one protocol: that, and the first of them. No other forward has them.
pub type Key = (Transport, u16);

/// Ports of one protocol that lead to a client now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Whose ports.
    pub transport: Transport,
    /// The ports of this host.
    pub ports: PortRange,
    /// Who may come in; empty: everybody.
    pub from: Vec<IpNet>,
    /// The client's inner addresses: at most one of each family.
    pub to: Vec<IpAddr>,
    /// Where the first port leads there; of several each leads to its own number.
    pub to_port: u16,
}

impl Forwarded {
    /// What names it.
    #[must_use]
    pub const fn key(&self) -> Key {
        (self.transport, self.ports.first())
    }

    /// The ports of the client that it leads to.
    #[must_use]
    pub fn to_ports(&self) -> PortRange {
        let own = PortRange::new(self.to_port, self.to_port).filter(|_| self.ports.is_one());
        own.unwrap_or(self.ports)
    }

    /// Whether it leads who comes from `source` to `port` of this host to this place.
    #[must_use]
    pub fn leads(&self, source: IpAddr, port: u16, to: SocketAddr) -> bool {
        let wanted = if self.ports.is_one() { self.to_port } else { port };
        self.takes(source, port) && self.to.contains(&to.ip()) && to.port() == wanted
    }

    /// Whether it leads who comes from `source` to `port` of this host anywhere.
    #[must_use]
    pub fn takes(&self, source: IpAddr, port: u16) -> bool {
        let is_of_family = |to: &IpAddr| to.is_ipv4() == source.is_ipv4();
        let may_come = self.from.is_empty() || self.from.iter().any(|net| net.contains(&source));
        self.ports.contains(port) && self.to.iter().any(is_of_family) && may_come
    }
}

/// Ports, by protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Of TCP.
    pub tcp: Vec<PortRange>,
    /// Of UDP.
    pub udp: Vec<PortRange>,
}

impl Ports {
    /// Those of one protocol.
    #[must_use]
    pub fn of(&self, transport: Transport) -> &[PortRange] {
        match transport {
            Transport::Tcp => &self.tcp,
            Transport::Udp => &self.udp,
        }
    }

    /// Adds some.
    pub fn add(&mut self, transport: Transport, ports: PortRange) {
        match transport {
            Transport::Tcp => self.tcp.push(ports),
            Transport::Udp => self.udp.push(ports),
        }
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn have(&self, transport: Transport, port: u16) -> bool {
        self.of(transport).iter().any(|ports| ports.contains(port))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tcp.is_empty() && self.udp.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Transport, PortRange)> {
        let tcp = self.tcp.iter().map(|ports| (Transport::Tcp, *ports));
        tcp.chain(self.udp.iter().map(|ports| (Transport::Udp, *ports)))
    }
}

/// What is to be forwarded now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwards {
    /// Ports that lead to clients.
    pub active: Vec<Forwarded>,
    /// Ports whose client this proxy has not known since its start. Their connections of before stay as they are: their client
    /// may be known again as soon as the registry answers.
    pub awaited: Ports,
}

impl Forwards {
    /// All ports of both.
    #[must_use]
    pub fn ports(&self) -> Ports {
        let mut ports = self.awaited.clone();
        self.active.iter().for_each(|one| ports.add(one.transport, one.ports));
        ports
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::host::{Desired, Ipv6};

    /// A forward, written `tcp 8443 10.77.0.5,fd77::5 443`, for everybody.
    pub(crate) fn forwarded(text: &str) -> Forwarded {
        use ropewalk_settings::Text as _;
        let words: Vec<&str> = text.split(' ').collect();
        let [transport, ports, to, to_port] = words[..] else { panic!("{text}") };
        Forwarded {
            transport: if transport == "tcp" { Transport::Tcp } else { Transport::Udp },
            ports: PortRange::from_text(ports).unwrap(),
            from: Vec::new(),
            to: to.split(',').map(|address| address.parse().unwrap()).collect(),
            to_port: to_port.parse().unwrap(),
        }
    }

    /// What a proxy wants of its host that has these forwards and those that wait.
    pub(crate) fn desired(active: &[&str], awaited: Ports) -> Desired {
        Desired {
            tun: "rope0".into(),
            mtu: 1440,
            own: ["10.77.0.1", "fd77::1"].map(|address| address.parse().unwrap()).into(),
            inner: ["10.77.0.0/16", "fd77::/64"].map(|net| net.parse().unwrap()).into(),
            ipv6: Ipv6::Nat66,
            no_nat: Vec::new(),
            ports: vec![51900],
            allow: Vec::new(),
            inbound: Vec::new(),
            name_servers: Vec::new(),
            client_connections: 4096,
            client_connection_rate: 500,
            uplinks: Vec::new(),
            client_to_client: false,
            forwards: Forwards {
                active: active.iter().map(|text| forwarded(text)).collect(),
                awaited,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::forwarded;
    use super::*;

    #[test]
    fn a_port_alone_leads_to_another_number_and_several_keep_theirs() {
        let one = forwarded("tcp 8443 10.77.0.5,fd77::5 443");
        let several = forwarded("udp 5000-5010 10.77.0.5 5000");
        let any = |text: &str| text.parse::<IpAddr>().unwrap();
        for (forward, source, port, to, expected) in [
            (&one, "198.51.100.7", 8443, "10.77.0.5:443", true),
            (&one, "198.51.100.7", 8443, "10.77.0.5:8443", false),
            (&one, "198.51.100.7", 8443, "10.77.0.6:443", false),
            (&one, "198.51.100.7", 8444, "10.77.0.5:443", false),
            (&one, "2001:db8::7", 8443, "[fd77::5]:443", true),
            (&several, "198.51.100.7", 5003, "10.77.0.5:5003", true),
            (&several, "198.51.100.7", 5003, "10.77.0.5:5000", false),
            (&several, "2001:db8::7", 5003, "[fd77::5]:5003", false),
        ] {
            let leads = forward.leads(any(source), port, to.parse().unwrap());
            assert_eq!(leads, expected, "{forward:?} {source} {port} {to}");
        }
        assert_eq!(one.to_ports().to_string(), "443");
        assert_eq!(several.to_ports().to_string(), "5000-5010");
    }

    #[test]
    fn who_is_not_among_the_sources_is_not_led() {
        let nets = ["198.51.100.0/24", "2001:db8::/32"].map(|net| net.parse().unwrap());
        let forward = Forwarded { from: nets.into(), ..forwarded("tcp 22 10.77.0.5,fd77::5 22") };
        let takes = |source: &str| forward.takes(source.parse().unwrap(), 22);
        assert!(takes("198.51.100.7") && takes("2001:db8::1"));
        assert!(!takes("203.0.113.7") && !takes("2001:db9::1"));
    }
}
