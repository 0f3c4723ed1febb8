//! How one end of a tunnel sends and receives. Both directions are the same machine, so each end has the same settings
//! for what it sends (scheduler, controller, queue) and for what it receives (resequencer).

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;
use crate::{Profile, Resequencer, Scheduling};

/// What the section `[tunnel]` means ([`crate::TunnelSection`]).
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelSettings {
    /// Which link takes the next packet, and what decides it.
    pub scheduling: Scheduling,
    /// How many datagrams may be in flight on a link.
    pub controller: ControllerKind,
    /// Which order the other end restores of what this end sends.
    pub order: Order,
    /// Who acknowledges what a sender of TCP has sent.
    pub acknowledge: Acknowledge,
    /// What happens to a packet when no link has room.
    pub when_closed: WhenClosed,
    /// How long a packet may wait for a link, 1 to 100 ms. With [`WhenClosed::Drop`] it bounds what a turn of the loop
    /// has read and not sent yet.
    pub queue: Duration,
    /// Age of the keys at which new ones are agreed, 1 s to 1 h.
    pub rekey_after: Duration,
    /// Whether a packet's congestion mark is copied to its datagram (RFC 6040 §4.1, normal mode); if not, no datagram is
    /// ECN-capable (compatibility mode), for paths that drop those.
    pub ecn: bool,
    /// Which cipher is offered.
    pub cipher: Cipher,
    /// How packets are put back in order.
    pub resequencer: Resequencer,
    /// What is left to the kernel.
    pub offload: Offload,
}

impl TunnelSettings {
    /// Less is [`WhenClosed::Drop`]; more only adds delay that the sender's TCP takes for path (bufferbloat).
    pub const QUEUE: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_millis(100);

    /// More than one handshake a second is only load; forward secrecy should not be older than an hour.
    pub const REKEY_AFTER: RangeInclusive<Duration> =
        Duration::from_secs(1)..=Duration::from_secs(3600);
}

impl TunnelSettings {
    /// Those of a profile.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        Self {
            scheduling: Scheduling { redundant: profile.redundant(), ..profile.scheduler().into() },
            controller: profile.controller(),
            order: profile.order(),
            acknowledge: profile.acknowledge(),
            ..Self::default()
        }
    }
}

impl Default for TunnelSettings {
    fn default() -> Self {
        Self {
            scheduling: Scheduling::default(),
            controller: ControllerKind::default(),
            order: Order::default(),
            acknowledge: Acknowledge::default(),
            when_closed: WhenClosed::default(),
            queue: *Self::QUEUE.end(),
            // WireGuard's interval: a stolen key opens at most two minutes of traffic.
            rekey_after: Duration::from_secs(120),
            ecn: true,
            cipher: Cipher::default(),
            resequencer: Resequencer::default(),
            offload: Offload::default(),
        }
    }
}

/// How many datagrams may be in flight on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControllerKind {
    /// A model of the path: its rate, its shortest delay, its queue.
    #[default]
    Model,
    /// TCP-like congestion control (RFC 4341).
    Ccid2,
    /// Always this many: a baseline, and for links of known rate.
    Fixed(u32),
}

impl ControllerKind {
    /// Least and largest window of [`Self::Fixed`], datagrams: the core remembers so many of a link in flight.
    pub const WINDOW: RangeInclusive<u32> = 1..=1 << 15;

    /// The window of [`Self::Fixed`] where none is said: 64 datagrams of 1,400 bytes are 90 kB, which is 14 Mbit/s at a
    /// round-trip time of 50 ms: a home link, and what the experiments with fixed windows run.
    pub const DEFAULT_WINDOW: u32 = 64;
}

impl fmt::Display for ControllerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ccid2 => f.write_str("ccid2"),
            Self::Model => f.write_str("model"),
            Self::Fixed(window) => write!(f, "fixed ({window})"),
        }
    }
}

/// What happens to a packet when no link has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenClosed {
    /// It waits, at most as long as the queue's bound.
    #[default]
    Queue,
    /// It is dropped (Evensen et al. 2011, Algorithm 1, lines 5 to 8).
    Drop,
}

/// Which order of packets the receiver restores. The sender chooses, for he knows whether lost packets are sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order within each flow: a packet waits for the one before it of its own flow. What is lost is sent again.
    #[default]
    Flow,
    /// One order of all packets: each waits for all before it (Evensen et al.).
    Global,
}

/// Who acknowledges what a sender of TCP has sent, where the scheduler is `arrival`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acknowledge {
    /// The end of the tunnel that takes it over, which keeps it until the receiver has it (RFC 3135 §3.1.2).
    #[default]
    Local,
    /// The receiver alone.
    EndToEnd,
}

/// Which cipher is offered for the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305.
    #[default]
    Auto,
    /// Always AES-256-GCM.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// Always ChaCha20-Poly1305.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

/// Work that the kernel can do for many packets at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Packets of a flow cross the TUN joined (TSO, USO).
    pub tun: Switch,
    /// Datagrams are sent in trains (`UDP_SEGMENT`).
    pub udp_gso: Switch,
    /// Datagrams are received in trains (`UDP_GRO`).
    pub udp_gro: Switch,
}

/// Whether an offload is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Where it works.
    #[default]
    Auto,
    /// Always: the daemon does not start where it does not work.
    On,
    /// Never.
    Off,
}

shown_as_written!(WhenClosed, Order, Acknowledge, Cipher, Switch);
