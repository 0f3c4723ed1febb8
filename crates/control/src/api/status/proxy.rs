//! What only a proxy has.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::forwards::ForwardStatus;

/// What only a proxy has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Other UDP ports of that address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_ports: Vec<u16>,
    /// Links over TLS, where it takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
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
    /// Its ports that lead to clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwards: Vec<ForwardStatus>,
    /// The registry that it shares with other proxies, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryStatus>,
}

/// Connections over TLS, which carry links of clients where UDP is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsStatus {
    /// The TCP address at which they are taken.
    pub listen: SocketAddr,
    /// At present, of clients.
    pub clients: u64,
    /// At present, of which it is not known yet.
    pub strangers: u64,
    /// Refused, for there were too many.
    pub refused: u64,
    /// Ended before they had shown that they are a client's.
    pub unproven: u64,
}

/// A registry that several proxies share, as one of them sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryStatus {
    /// The fleet's name.
    pub fleet: String,
    /// This proxy's id in it.
    pub id: String,
    /// The members of etcd.
    pub endpoints: Vec<String>,
    /// It was read once since the proxy's start.
    pub begun: bool,
    /// How long it has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_s: Option<u64>,
    /// Why, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_why: Option<String>,
    /// How old the copy on this proxy's disk is from which clients are served, as the registry was not read since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_age_s: Option<u64>,
    /// This proxy takes no new sessions.
    pub draining: bool,
    /// Clients of the fleet.
    pub clients: u64,
    /// Proxies that run.
    pub proxies: u64,
    /// Sessions with all of them.
    pub sessions: u64,
    /// The revision up to which this is so.
    pub revision: i64,
    /// Keys below the prefix that are not Ropewalk's or damaged, and why; the first few.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub foreign: std::collections::BTreeMap<String, String>,
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
    /// Connections, its own or forwarded to it, beyond the number or the rate that one client may have; each attempt counts.
    pub bounded: u64,
}
