//! What only a proxy has.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What only a proxy has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Other UDP ports of that address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_ports: Vec<u16>,
    /// The address pools.
    pub pools: Vec<PoolStatus>,
    /// Interfaces to the Internet.
    pub uplinks: Vec<String>,
    /// First messages and what became of them.
    pub handshakes: HandshakeCounters,
    /// The kernel's table of connections, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<ConntrackStatus>,
    /// What its firewall has turned away of what clients sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_away: Option<TurnedAwayStatus>,
}

/// Addresses of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The prefix.
    pub prefix: ipnet::IpNet,
    /// The proxy's own address in it.
    pub gateway: IpAddr,
    /// Addresses leased.
    pub leased: u64,
    /// Addresses that can be leased in all.
    pub size: u128,
}

/// First messages a proxy received, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeCounters {
    /// Sessions that came of one.
    pub completed: u64,
    /// Not authentic: another proxy key, or damaged.
    pub unauthentic: u64,
    /// A key that is no peer's.
    pub unknown_key: u64,
    /// A timestamp not newer than the last one.
    pub replayed: u64,
    /// Another version of the protocol.
    pub other_version: u64,
    /// More than the limit a second.
    pub rate_limited: u64,
    /// Answered with a cookie and not read, while there were too many.
    #[serde(default)]
    pub no_cookie: u64,
    /// The same, with a cookie that did not count.
    #[serde(default)]
    pub wrong_cookie: u64,
    /// With a right cookie while there were too many; they are also counted by what became of them.
    #[serde(default)]
    pub with_cookie: u64,
    /// With a right cookie, more than the limit of an address.
    #[serde(default)]
    pub address_limited: u64,
}

/// The kernel's table of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackStatus {
    /// Entries in use.
    pub count: u64,
    /// Entries possible.
    pub limit: u64,
}

/// What a proxy's firewall has turned away of what clients sent, since the proxy's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedAwayStatus {
    /// Packets to what is closed to clients.
    pub refused: u64,
    /// Connections, beyond the number or the rate that one client may have; each attempt counts.
    pub bounded: u64,
}
