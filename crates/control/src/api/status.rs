//! The one status document, of both roles.
//!
//! Units stand in the names: `_s` seconds, `_ms` milliseconds, `_bps` bits per second. *Up* is always
//! client to proxy and *down* proxy to client, on both ends. Totals count from the start of the
//! tunnel's session table (they survive a rekey), rates are over about the last second, and the loss
//! called recent is over about the last thousand datagrams. A field whose value is not known yet is
//! absent, never zero.

mod link;
mod model;
mod outage;
mod proxy;
mod sandbox;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use ropewalk_settings::PublicKey;

use super::history::HistoryStatus;
use super::proxies::ProxiesReport;
use super::routes::RuleStatus;

pub use link::{
    AllowanceStatus, BackupDuty, DatagramTraffic, LinkState, LinkStatus, SensedStatus, ShareStatus,
};
pub use model::{ModelLimit, ModelStatus};
pub use outage::{OutageCause, OutageStatus, OutagesStatus, StallCounts, StallsStatus};
pub use proxy::{
    ConntrackStatus, HandshakeCounters, PoolStatus, ProxyStatus, RegistryStatus, TlsStatus,
    TurnedAwayStatus,
};
pub use sandbox::{SandboxState, SandboxStatus};

/// The version of the document. It grows when a field changes its meaning or goes; new fields may
/// come at any time.
pub const STATUS_VERSION: u32 = 1;

/// The one status document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// The daemon itself.
    pub daemon: DaemonStatus,
    /// The client's one tunnel; on a proxy one for each configured client, in the order of the file, and in a fleet one for each client
    /// that had a session here since the start.
    pub tunnels: Vec<TunnelStatus>,
    /// Dropped before they could be ascribed to a tunnel, by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// What only a proxy has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyStatus>,
    /// On a client: the entries of `routes` and `exclude` that are no prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStatus>,
    /// On a client that knows more than one: its proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxies: Option<Box<ProxiesReport>>,
}

/// The daemon that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Client or proxy.
    pub role: Role,
    /// Version of the program.
    pub program_version: String,
    /// Its process id.
    pub pid: u32,
    /// Since its start.
    pub uptime_s: f64,
    /// What the user should know and do: rp_filter, nearly full tables, a kernel that lacks something.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What is left to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<OffloadStatus>,
    /// On a client: whether packets can leave outside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_switch: Option<KillSwitch>,
    /// What it gave up at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxStatus>,
    /// Whether it remembers what it carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryStatus>,
}

/// The state of a client's kill switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KillSwitch {
    /// Nothing leaves outside the tunnel.
    On,
    /// The config has none.
    Off,
    /// It should be on and could not be set as it should be; a warning says why.
    Failed,
}

impl fmt::Display for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::On => "on: nothing leaves outside the tunnel",
            Self::Off => "off: before the first session, and while no client runs, packets leave beside the tunnel",
            Self::Failed => "failed: packets may leave outside the tunnel",
        })
    }
}

/// Work that the kernel does for many packets at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadStatus {
    /// Packets of a flow cross the TUN joined.
    pub tun: OffloadState,
    /// Datagrams are sent in trains.
    pub udp_gso: OffloadState,
    /// Datagrams are received in trains.
    pub udp_gro: OffloadState,
}

/// Whether an offload is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadState {
    /// It is.
    On,
    /// The config forbids it.
    Off,
    /// The kernel takes nothing joined, and hands out what is.
    ReadsOnly,
    /// The kernel does not offer it, or refused it a moment ago.
    Unavailable,
}

impl fmt::Display for OffloadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::ReadsOnly => "on for reading only",
            Self::Unavailable => "unavailable",
        })
    }
}

/// Which end of the tunnel a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Starts the tunnel and owns the links.
    Client,
    /// Answers, and forwards to the Internet.
    Proxy,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
        })
    }
}

/// The whole bond between one client and the proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// The other end: on a client the configured address of the proxy, on a proxy the peer's name.
    pub peer: String,
    /// The public key of the other end.
    pub peer_public_key: PublicKey,
    /// Whether packets pass.
    pub state: TunnelState,
    /// Why it is in this state, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// On a client without a session: what came of asking for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TunnelTrouble>,
    /// How long it has been in this state.
    pub state_age_s: f64,
    /// The client's IPv4 address inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_v4: Option<Ipv4Addr>,
    /// The client's IPv6 address inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_v6: Option<Ipv6Addr>,
    /// Longest packet in bytes that fits through the links in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_mtu: Option<u16>,
    /// The session in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// How this end sends.
    pub policy: PolicyStatus,
    /// Client to proxy, inner packets.
    pub up: PacketTraffic,
    /// Proxy to client, inner packets.
    pub down: PacketTraffic,
    /// Packets that wait for a link at this end.
    pub queue: QueueStatus,
    /// What this end receives, being put in order.
    pub resequencer: ResequencerStatus,
    /// What this end sent again of what was lost, if it does so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairs: Option<RepairStatus>,
    /// What this end sent over two links at once, if it does so. What the receiver drops of it is in
    /// [`ResequencerStatus::duplicate`] of the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<RedundancyStatus>,
    /// Links that carried nothing for a while, as this end knew it.
    #[serde(default)]
    pub outages: OutagesStatus,
    /// What senders of TCP at this end were told before the other end had it.
    #[serde(default)]
    pub local_acks: LocalAckStatus,
    /// The links, in the order of their ids.
    pub links: Vec<LinkStatus>,
    /// The flow table of this end, where the scheduler is `safire`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowTableStatus>,
    /// What the links cost, where a price is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spending: Option<SpendingStatus>,
    /// Dropped in this tunnel at this end, by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
}

/// Whether packets pass through a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunnelState {
    /// No session, and none is being made.
    Idle,
    /// A handshake is under way.
    Connecting,
    /// A session and at least one link that is up.
    Up,
    /// A session, but no link is up.
    Stalled,
    /// Ended by one of the ends.
    Closed,
}

impl fmt::Display for TunnelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Up => "up",
            Self::Stalled => "stalled",
            Self::Closed => "closed",
        })
    }
}

/// Why a client has no session, for programs; [`TunnelStatus::reason`] says it for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunnelTrouble {
    /// Nothing that counts came back.
    NoAnswer,
    /// The proxy knows this client, and refuses it.
    Refused,
    /// The proxy speaks other versions of the protocol: one of the ends needs an update.
    OtherVersions,
    /// What the proxy answers does not decrypt.
    NotAuthentic,
    /// The proxy ended the session.
    Closed,
}

/// Keys and state the two ends share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// `aes-256-gcm` or `chacha20-poly1305`.
    pub cipher: String,
    /// Since the handshake that made the session.
    pub age_s: f64,
    /// Since the keys in use were agreed.
    pub key_age_s: f64,
    /// Rekeys of this session.
    pub rekeys: u64,
    /// Whether this end leaves the TCP and UDP checksums of what it sends to be completed by the other.
    #[serde(default)]
    pub leaves_checksums: bool,
}

/// How an end sends, by the names of the config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Which link takes the next packet.
    pub scheduler: String,
    /// The scheduler's settings in words; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// On a proxy: whether this client is sent to by settings of its own (`ropewalk set --peer`).
    #[serde(default)]
    pub own: bool,
    /// How many datagrams may be in flight on a link.
    pub controller: String,
    /// Which order the other end restores; absent where the daemon is older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Which packets go over two links at once, and how much the copies may cost; absent where none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundant: Option<String>,
    /// What happens to a packet when no link has room.
    pub when_closed: String,
}

/// Inner packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketTraffic {
    /// Bits per second of inner packets.
    pub rate_bps: f64,
    /// Packets in all.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// Packets that wait for a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Packets waiting.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What puts packets back in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResequencerStatus {
    /// Packets held at present.
    pub held: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Delivered in order.
    pub in_order: u64,
    /// Delivered as they came, where the config has nothing put in order.
    #[serde(default)]
    pub as_they_came: u64,
    /// Came after the wait for them had ended; delivered at once, out of order.
    pub late: u64,
    /// Came a second time; dropped.
    pub duplicate: u64,
    /// Numbers passed over because they were proven lost.
    pub skipped_by_proof: u64,
    /// Numbers passed over because the deadline for them passed.
    pub skipped_by_deadline: u64,
    /// Packets released because the buffer was full.
    pub released_by_full_buffer: u64,
    /// Median wait of packets that were held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_p50_ms: Option<f64>,
    /// 99th percentile of that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_p99_ms: Option<f64>,
}

/// Packets that were lost on a link and sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairStatus {
    /// Packets sent again; one that was lost twice counts twice.
    pub sent_again: u64,
    /// Their bytes.
    #[serde(default)]
    pub sent_again_bytes: u64,
    /// Packets that were lost and too old to be sent again.
    pub given_up: u64,
    /// Packets kept until they are confirmed.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// Packets that were sent over two links at once, and those that should have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedundancyStatus {
    /// Packets sent a second time.
    pub packets: u64,
    /// What that cost, bytes at IP level.
    pub bytes: u64,
    /// Packets that went once because the budget was used up.
    pub over_budget: u64,
    /// What their copies would have cost, bytes at IP level.
    pub over_budget_bytes: u64,
    /// Packets that went once because no other link had room.
    pub no_room: u64,
}

/// Connections of TCP whose senders this end acknowledges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAckStatus {
    /// How many there are.
    pub connections: u64,
    /// Segments acknowledged before the other end had them.
    pub segments: u64,
    /// Segments sent again because the receiver missed them, or to ask whether it does.
    pub sent_again: u64,
    /// Connections that were reset because the receiver never had what was acknowledged.
    pub lost: u64,
    /// Bytes kept until the receivers have them.
    pub kept_bytes: u64,
}

/// How full the flow table of an end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowTableStatus {
    /// Active flows in it.
    pub active: u64,
    /// How many it holds at most.
    pub capacity: u64,
    /// Flows that were given up while active because the table was full, since this scheduler was chosen.
    pub given_up: u64,
}

/// What the links of a tunnel cost since the daemon's start, as this end counts: bytes of its links sent and received,
/// with IP and UDP headers, at the prices that are told now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpendingStatus {
    /// Of all amounts and prices.
    pub unit: String,
    /// All links together.
    pub amount: f64,
    /// Each link with a price, by name, also one that left.
    pub links: Vec<LinkSpending>,
}

/// What one link cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSpending {
    /// Its name.
    pub link: String,
    /// Price of a gigabyte, 10^9 bytes.
    pub price_per_gb: f64,
    /// Bytes sent and received.
    pub bytes: u64,
    /// What they cost.
    pub amount: f64,
}
