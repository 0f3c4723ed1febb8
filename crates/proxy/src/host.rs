//! What the proxy asks of the host's network, whatever the operating system.
//!
//! The daemon describes what it wants as one value ([`Desired`]); a [`HostNetwork`] makes it so and changes only what
//! differs. There are two ends: [`HostNetwork::stop`] leaves standing what protects inner packets and open connections until
//! the next start, [`HostNetwork::purge`] takes everything back.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_control::api::ForwardTraffic;

use crate::allow::Allowed;
use crate::forward::{Forwards, Key};

#[cfg(target_os = "linux")]
pub mod linux;
#[cfg(target_os = "linux")]
pub mod switched;
#[cfg(target_os = "linux")]
mod totals;

/// The host's network, as far as a proxy changes it.
pub trait HostNetwork {
    /// Whether IPv6 packets of clients could leave: some interface other than the TUN has a default route for IPv6. Where
    /// it is false, no inner IPv6 addresses are handed out.
    fn has_ipv6_uplink(&self, tun: &str) -> impl Future<Output = anyhow::Result<bool>>;

    /// The names of the interfaces other than the TUN that have a default route.
    fn uplinks(&self, tun: &str) -> impl Future<Output = anyhow::Result<Vec<String>>>;

    /// Makes the host's network as desired, changing only what differs. To be called at the start, after the TUN is
    /// open, and after changes of routes or addresses.
    fn apply(&mut self, desired: &Desired) -> impl Future<Output = anyhow::Result<Outcome>>;

    /// Routes a client's inner address, or the network behind it, into the TUN, for packets of at most `mtu` bytes; called again
    /// when the inner MTU of that client changes. Needs an `apply` before.
    fn set_client(&mut self, inner: IpNet, mtu: u32) -> impl Future<Output = anyhow::Result<()>>;

    /// Takes that route back: what it led to is unreachable then.
    fn remove_client(&mut self, inner: IpNet) -> impl Future<Output = anyhow::Result<()>>;

    /// What the firewall has counted since this proxy started.
    fn counts(&mut self) -> impl Future<Output = anyhow::Result<Counts>>;

    /// The end of the daemon: settings go back to what they were; the guard routes stay, and so does the bare ability to
    /// translate addresses, without which the kernel would answer packets of open connections with resets.
    fn stop(&mut self) -> impl Future<Output = anyhow::Result<()>>;

    /// Takes back everything that this proxy, or a crashed one before it, has changed.
    fn purge(&mut self) -> impl Future<Output = anyhow::Result<()>>;
}

/// What the proxy wants of the host's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The name of the TUN.
    pub tun: String,
    /// The TUN's MTU: at least the largest inner MTU of a client, bytes.
    pub mtu: u32,
    /// The proxy's own inner addresses.
    pub own: Vec<IpAddr>,
    /// The prefixes that clients' inner addresses come from, and the networks behind clients.
    pub inner: Vec<IpNet>,
    /// The latter alone: their hosts keep their addresses.
    pub behind: Vec<IpNet>,
    /// What happens to clients' IPv6 packets.
    pub ipv6: Ipv6,
    /// Destinations, and parts of the inner prefixes, for which source addresses are kept.
    pub no_nat: Vec<IpNet>,
    /// The UDP ports of the tunnel.
    pub ports: Vec<u16>,
    /// What clients may reach although it is not the Internet.
    pub allow: Vec<Allowed>,
    /// Whose hosts may begin connections to clients.
    pub inbound: Vec<IpNet>,
    /// The name servers that clients are told.
    pub name_servers: Vec<IpAddr>,
    /// Most connections of one inner address at a time.
    pub client_connections: u32,
    /// Most that it may begin in a second.
    pub client_connection_rate: u32,
    /// The interfaces to translate addresses on; with none named, every one but the TUN.
    pub uplinks: Vec<String>,
    /// Whether clients may reach each other.
    pub client_to_client: bool,
    /// Ports of this host that lead to clients.
    pub forwards: Forwards,
}

impl Desired {
    /// Whether all of a network's addresses are inner ones.
    #[must_use]
    pub fn is_inner(&self, net: &IpNet) -> bool {
        self.inner.iter().any(|inner| inner.contains(net))
    }
}

/// How clients' IPv6 packets reach the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// Not at all: the host has no IPv6 uplink.
    None,
    /// With the host's own address as the source (NAT66); inner addresses are unique local (RFC 4193).
    Nat66,
    /// With their own addresses: the inner prefix is routed to this host.
    Routed,
}

/// What the firewall has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What it has turned away.
    pub turned_away: TurnedAway,
    /// What each forward that leads to a client has carried.
    pub forwards: BTreeMap<Key, ForwardTraffic>,
}

/// What the firewall has turned away of what clients sent, and of what was forwarded to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnedAway {
    /// Packets to what is closed to clients.
    pub refused: u64,
    /// Connections, beyond the number or the rate that one client may have; each attempt counts.
    pub bounded: u64,
}

/// What `apply` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether anything had to be changed.
    pub changed: bool,
    /// What works against the proxy on this host, each with what helps, for a person to read.
    pub warnings: Vec<String>,
}
