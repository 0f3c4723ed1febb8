//! Ports of a proxy that lead to its clients.

use std::fmt;
use std::net::IpAddr;

use ropewalk_settings::{Network, PortRange};
use serde::{Deserialize, Serialize};

/// Every `[[forward]]` of a proxy, in the order of its config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardsReport {
    /// The forwards.
    pub forwards: Vec<ForwardStatus>,
}

/// One `[[forward]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardStatus {
    /// Whose ports.
    pub protocol: ForwardProtocol,
    /// The port at the proxy, or several in a row.
    pub port: PortRange,
    /// The client's name.
    pub to: String,
    /// Where the first port leads there; of several each leads to its own number.
    pub to_port: u16,
    /// Who may come in; empty: everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Network>,
    /// How it is.
    pub state: ForwardState,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The addresses of the client that it leads to, at most one of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<IpAddr>,
    /// What the owner should know: a program of the proxy's host that listens there, say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What was carried.
    #[serde(default)]
    pub traffic: ForwardTraffic,
}

/// What a forward has carried since the proxy's start, or since it is in the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardTraffic {
    /// Connections that began; of UDP, flows.
    pub connections: u64,
    /// Packets to the client.
    pub down_packets: u64,
    /// Their bytes, with the headers of IP.
    pub down_bytes: u64,
    /// Packets from the client.
    pub up_packets: u64,
    /// Their bytes.
    pub up_bytes: u64,
}

impl ForwardTraffic {
    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            connections: self.connections.saturating_add(other.connections),
            down_packets: self.down_packets.saturating_add(other.down_packets),
            down_bytes: self.down_bytes.saturating_add(other.down_bytes),
            up_packets: self.up_packets.saturating_add(other.up_packets),
            up_bytes: self.up_bytes.saturating_add(other.up_bytes),
        }
    }
}

/// Of which protocol ports are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// TCP and UDP.
    Both,
}

impl ForwardProtocol {
    /// As people say it.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Both => "TCP and UDP",
        }
    }
}

impl fmt::Display for ForwardProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Both => "both",
        })
    }
}

/// How it is with a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardState {
    /// It leads to a client that is connected to this proxy.
    Active,
    /// It leads to a client that is not connected to this proxy at present.
    Away,
    /// No client has that name yet.
    Waiting,
    /// It leads nowhere, and waiting does not help.
    Refused,
}

impl fmt::Display for ForwardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Active => "active",
            Self::Away => "away",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
        })
    }
}
