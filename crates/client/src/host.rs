//! What the client asks of the host's network, whatever the operating system.
//!
//! The daemon describes what it wants as one value ([`Desired`]); a [`HostNetwork`] makes it so, changes only what
//! differs, and takes everything back at the end. Links come and go, so `apply` is called again after every change that
//! [`link-io`'s events](ropewalk_link_io::netlink::Events) report, and now and then without one: another program may
//! have removed something.

use ropewalk_settings::NamePattern;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::Inbound;

#[cfg(target_os = "linux")]
pub mod linux;

/// The host's network, as far as a client changes it.
pub trait HostNetwork {
    /// The candidates for links as they are now: which interfaces the choice names, and the way out of each. With them
    /// what it leaves out although it may be a link.
    fn candidates(
        &self,
        choice: &Choice,
        tun: &str,
    ) -> impl Future<Output = anyhow::Result<(Vec<Candidate>, Vec<LeftOut>)>>;

    /// The names of all interfaces, to be told to somebody who asked for one that is not there.
    fn names(&self) -> impl Future<Output = anyhow::Result<Vec<String>>>;

    /// Makes the host's network as desired, changing only what differs. What concerns one link only (it vanished in
    /// between) is told in the outcome; the rest is done all the same.
    fn apply(&mut self, desired: &Desired) -> impl Future<Output = anyhow::Result<Outcome>>;

    /// Takes everything back that this client, or a crashed one before it, has changed.
    fn remove(&mut self) -> impl Future<Output = anyhow::Result<()>>;
}

/// Which interfaces are to be links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Every interface with a default route of its own that is no tunnel.
    Auto {
        /// If there are any: only what one of these means, tunnels among it.
        include: Vec<NamePattern>,
        /// What one of these means is no link.
        exclude: Vec<NamePattern>,
        /// What the user says of some. One whose routers are named is a link without a default route too.
        named: Vec<Listed>,
    },
    /// Those that are named, and no others.
    List {
        /// What one of these means is no link.
        exclude: Vec<NamePattern>,
        /// The links.
        named: Vec<Listed>,
    },
}

impl Choice {
    /// Exactly these interfaces.
    #[must_use]
    pub const fn list(named: Vec<Listed>) -> Self {
        Self::List { exclude: Vec::new(), named }
    }

    /// What the user says of this interface: under its own name, else under the first pattern that means it.
    #[must_use]
    pub fn named(&self, interface: &str) -> Option<&Listed> {
        let (Self::Auto { named, .. } | Self::List { named, .. }) = self;
        let exact = named.iter().find(|listed| listed.name.as_str() == interface);
        exact.or_else(|| named.iter().find(|listed| listed.name.matches(interface)))
    }
}

/// Interfaces of which the user says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name, or a pattern of names.
    pub name: NamePattern,
    /// Their routers, where the system's routing tables name none: at most one IPv4 and one IPv6 address.
    pub gateways: Vec<IpAddr>,
    /// Whether they are to be links at all.
    pub enabled: bool,
}

/// An interface that is, or could be, a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The way out of it, or why there is none.
    pub state: Result<Ways, NoWay>,
}

/// A TUN or TAP with a default route that `auto` leaves out: perhaps a modem's, and so a way to the Internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub interface: String,
    /// What `include_interfaces` would be with it, others of its kind, and all that is a link now.
    pub include: Vec<String>,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interface, include) = (&self.interface, quoted(&self.include));
        write!(
            f,
            "{interface} has a default route and is no link, because links = \"auto\" takes no TUN or TAP by itself: if it \
             leads to the Internet, write include_interfaces = [{include}]"
        )
    }
}

/// Names as they stand in a list of the config.
#[must_use]
pub fn quoted(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

/// The ways out of one interface; at least one is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ways {
    /// The system's number of the interface.
    pub index: u32,
    /// The largest IP packet that the interface carries, bytes.
    pub mtu: u32,
    /// For IPv4.
    pub v4: Option<Way>,
    /// For IPv6.
    pub v6: Option<Way>,
}

impl Ways {
    /// The way for a destination's family.
    #[must_use]
    pub fn to(&self, destination: IpAddr) -> Option<&Way> {
        if destination.is_ipv4() { self.v4.as_ref() } else { self.v6.as_ref() }
    }
}

/// The way out of an interface in one address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The address that the link's socket is bound to.
    pub source: IpAddr,
    /// All usable addresses of the interface (bounded), `source` among them.
    pub addresses: Vec<IpNet>,
    /// The router, or none on a point-to-point link.
    pub gateway: Option<IpAddr>,
}

/// Why an interface cannot be a link now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWay {
    /// There is no interface of this name (now).
    Missing,
    /// Its name holds characters that firewall rules cannot hold.
    Name,
    /// It is switched off.
    Down,
    /// No cable, no radio.
    NoCarrier,
    /// It has no usable address (yet).
    NoAddress,
    /// Nothing says where its packets would go.
    NoGateway,
    /// It could be one, and the config means it no more.
    NotMeant,
}

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "no such interface",
            Self::Name => "name not usable in firewall rules",
            Self::Down => "interface is down",
            Self::NoCarrier => "no carrier",
            Self::NoAddress => "no address",
            Self::NoGateway => "no gateway",
            Self::NotMeant => "the config means it no more",
        })
    }
}

/// What the client wants of the host's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The TUN, once it exists and the proxy has given inner addresses. Without it nothing is routed into the tunnel.
    pub tun: Option<TunDesired>,
    /// The links that have a way out.
    pub links: Vec<LinkDesired>,
    /// Every address and port of the proxy: datagrams that come from there belong to the link they come by.
    pub proxy: Vec<SocketAddr>,
    /// The TCP port at which it takes links over TLS, where they may go so.
    pub tls_port: Option<u16>,
    /// The prefixes that are routed through the tunnel; [`everything`] by default.
    pub routed: Vec<IpNet>,
    /// Prefixes within these that take the host's own way all the same.
    pub excluded: Vec<IpNet>,
    /// Name servers that take it too, for the time of a look-up.
    pub asked: Vec<IpAddr>,
    /// Interfaces whose hosts use the tunnel too.
    pub shared: Vec<String>,
    /// Addresses that some of them are to have, each with its network's prefix.
    pub addresses: Vec<(String, IpNet)>,
    /// The IPv6 networks of their hosts that the proxy routes here, so that these keep their addresses.
    pub prefix: Option<Ipv6Net>,
    /// How much some of their hosts may have.
    #[cfg(target_os = "linux")]
    pub limited: Vec<crate::devices::Limited>,
    /// What may begin connections to this machine out of the tunnel.
    pub inbound: Inbound,
    /// What goes through the tunnel or around it whatever the prefixes say; those around it first.
    #[cfg(target_os = "linux")]
    pub rules: Vec<crate::split::Rule>,
    /// The tunnel's name servers: whoever asks them is led there.
    pub name_servers: Vec<IpAddr>,
    /// Where this machine's questions for names are answered, while domains are chosen.
    pub forwarder: Option<SocketAddr>,
}

/// All of IPv4 and IPv6.
#[must_use]
pub fn everything() -> Vec<IpNet> {
    vec![Ipv4Net::default().into(), Ipv6Net::default().into()]
}

/// The TUN as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunDesired {
    /// Its name.
    pub name: String,
    /// The inner addresses that the proxy handed out. A family without one is unreachable through the tunnel.
    pub inner: Vec<IpAddr>,
    /// Largest inner packet, bytes.
    pub mtu: u32,
}

/// A link as the host's network sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDesired {
    /// The interface's name.
    pub name: String,
    /// A small number that stays with the link as long as the client runs: it gives the routing table and the mark.
    pub slot: u16,
    /// The ways out.
    pub ways: Ways,
}

/// What `apply` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether anything had to be changed.
    pub changed: bool,
    /// What could not be done, each with its reason.
    pub problems: Vec<Problem>,
    /// Whether the kill switch could not be set as it should be.
    pub unlocked: bool,
    /// What the user should know of the host's network, for a person to read.
    pub warnings: Vec<String>,
    /// What became of each rule.
    #[cfg(target_os = "linux")]
    pub rules: Vec<crate::split::RuleState>,
}

/// The kill switch could not be set as it should be: why. What else failed stands behind it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kill switch: {0}")]
pub struct Unlocked(pub String);

/// A part of the desired state that could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The link it concerns, if it concerns one only.
    pub link: Option<String>,
    /// What failed and what helps, for a person to read.
    pub what: String,
}
