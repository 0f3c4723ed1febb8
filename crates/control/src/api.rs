//! What tools and daemons say to each other: one request, one status document for both roles.
//!
//! Units stand in the names: `_s` seconds, `_ms` milliseconds, `_bps` bits per second. *Up* is always
//! client to proxy and *down* proxy to client, on both ends. Totals count from the start of the
//! tunnel's session table (they survive a rekey), rates are over about the last second, and the loss
//! called recent is over about the last thousand datagrams. A field whose value is not known yet is
//! absent, never zero.

mod flows;
mod limits;
mod links;
mod peers;
mod reload;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::config::Scheduling;
use crate::config::scheduler::LinkTerms;
use crate::keys::PublicKey;

pub use flows::{FlowStatus, FlowsReport, PathStatus};
pub use limits::LimitTimes;
pub use links::{LinkChange, LinkSettings};
pub use peers::{
    InviteWish, Invited, OpenInvitation, PeerOrigin, PeerStatus, PeersReport, RemovedPeer,
};
pub use reload::{KeyChange, ReloadReport};

/// The version of the document. It grows when a field changes its meaning or goes; new fields may
/// come at any time.
pub const STATUS_VERSION: u32 = 1;

/// What may be asked of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `GET /v1/status`: how things are.
    Status,
    /// `GET /v1/scheduling`: how this end sends; with `?peer=NAME` (on a proxy) to this client.
    Scheduling {
        /// Its name; `None`: all that have no settings of their own.
        peer: Option<String>,
    },
    /// `PUT /v1/scheduling`: how this end sends from now on, until the daemon ends; with `?peer=NAME` (on a
    /// proxy) to this client only. It is checked before it comes here.
    SetScheduling {
        /// Its name; `None`: all, also those that had settings of their own.
        peer: Option<String>,
        /// The scheduler, its settings, and what is said of links.
        scheduling: Box<Scheduling>,
    },
    /// `GET /v1/flows`: which flow is on which link, where the scheduler is `safire`; with `?peer=NAME` (on a
    /// proxy) towards this client, with `?limit=N` at most so many flows.
    Flows {
        /// Its name; `None`: the only one that there is.
        peer: Option<String>,
        /// Most flows of the answer, at most [`MAX_FLOWS`].
        limit: usize,
    },
    /// `PUT /v1/links`: on a client, another setting of one link from now on.
    ChangeLink(LinkChange),
    /// `POST /v1/reload`: the config is read again, and what can be is made so.
    Reload,
    /// `GET /v1/peers`: who may connect to this proxy, and who is invited.
    Peers,
    /// `POST /v1/peers`: invite a client.
    Invite(InviteWish),
    /// `DELETE /v1/peers?name=NAME`: a client, or its invitation, is out from now on.
    RemovePeer {
        /// Its name.
        name: String,
    },
}

/// Most flows of one answer: a page of some hundred kilobytes, made in about a millisecond.
pub const MAX_FLOWS: usize = 4096;

/// Flows of an answer where nothing is said.
pub const DEFAULT_FLOWS: usize = 1000;

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<StatusReport>),
    /// To [`Request::Scheduling`], and to [`Request::SetScheduling`] what is in force now.
    Scheduling(Box<Scheduling>),
    /// To [`Request::Flows`].
    Flows(Box<FlowsReport>),
    /// To [`Request::ChangeLink`]: what holds for the link now.
    Link(Box<LinkSettings>),
    /// To [`Request::Reload`].
    Reloaded(Box<ReloadReport>),
    /// To [`Request::Peers`].
    Peers(Box<PeersReport>),
    /// To [`Request::Invite`].
    Invited(Box<Invited>),
    /// To [`Request::RemovePeer`].
    Removed(Box<RemovedPeer>),
}

/// Why a daemon does not answer a request as asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The kind, for programs.
    pub code: ErrorCode,
    /// What is wrong and what to do, for people.
    pub message: String,
}

/// The kinds of [`ApiError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The caller may not talk to this daemon.
    Forbidden,
    /// There is nothing at this path, or no peer of this name.
    NotFound,
    /// The request is too long or not understood.
    BadRequest,
    /// It was tried and did not work: a full disk, say.
    Failed,
    /// The daemon is busy, starting or stopping, and did not answer in time.
    Busy,
}

/// The one status document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// The daemon itself.
    pub daemon: DaemonStatus,
    /// The client's one tunnel; on a proxy one for each configured client, in the order of the file.
    pub tunnels: Vec<TunnelStatus>,
    /// Dropped before they could be ascribed to a tunnel, by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// What only a proxy has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyStatus>,
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

/// Datagrams of one direction of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramTraffic {
    /// Bits per second of UDP payload.
    pub rate_bps: f64,
    /// Datagrams in all.
    pub datagrams: u64,
    /// Their bytes of UDP payload.
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

/// One link of a tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its id in the session; absent while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u8>,
    /// Its name: of the config file, else that of the interface; on a proxy as the client told it.
    pub name: String,
    /// The client's interface; absent on a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Whether it carries packets.
    pub state: LinkState,
    /// Why it is in this state, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long it has been in this state.
    pub state_age_s: f64,
    /// This end of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// The other end of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// Smoothed round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srtt_ms: Option<f64>,
    /// The shortest round-trip time that was measured on its present path: without queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// Its mean deviation (RFC 6298).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rttvar_ms: Option<f64>,
    /// Mean deviation of the one-way delay towards this end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owd_variation_ms: Option<f64>,
    /// Share of recent datagrams sent from this end that were lost, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_recent: Option<f64>,
    /// The same over all datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_total: Option<f64>,
    /// Largest datagram known to pass, in bytes with IP and UDP headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u16>,
    /// How often datagrams of a size that had passed were found to pass no more, without a word from
    /// the path.
    #[serde(default)]
    pub black_holes: u64,
    /// Congestion window of this end, in datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd: Option<u32>,
    /// Datagrams of this end sent and not yet confirmed or lost.
    pub in_flight: u32,
    /// Interval of keepalives in force; absent where they are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_s: Option<f64>,
    /// Whether `auto` still looks for a longer one.
    #[serde(default)]
    pub keepalive_searching: bool,
    /// Client to proxy.
    pub up: DatagramTraffic,
    /// Proxy to client.
    pub down: DatagramTraffic,
    /// Whether it is kept back, and what it does now for what this end sends; absent for a link that is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupDuty>,
    /// How much it may carry in a month, on a client whose config says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowance: Option<AllowanceStatus>,
    /// Most that the client sends on it, where that is bounded; on a proxy absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_up_bps: Option<f64>,
    /// Most that the proxy sends on it, where that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_down_bps: Option<f64>,
    /// What kept it from carrying more of what this end sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitTimes>,
    /// For how long packets that had come to this end waited for one that came on it.
    #[serde(default)]
    pub waited_for_s: f64,
    /// What is said of it at this end: `[tunnel.link.NAME]`, or `ropewalk set link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<LinkTerms>,
    /// What the scheduler of this end makes of it; absent where it asks for nothing but room, and before the first
    /// packets went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareStatus>,
    /// What this end senses of it, in the direction in which it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensed: Option<SensedStatus>,
}

/// A link's monthly allowance: bytes both ways, with IP and UDP headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowanceStatus {
    /// How much it is.
    pub bytes: u64,
    /// How much of it is used.
    pub used: u64,
    /// The first day of the count, such as `2026-11-01`.
    pub since: String,
    /// The day on which it begins anew.
    pub until: String,
    /// Whether the link is not used any more when it is used up.
    pub stop: bool,
}

/// What a backup does for the packets that an end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupDuty {
    /// Nothing: the others suffice.
    Rests,
    /// It takes what finds no room on the others.
    Helps,
    /// It carries them: the others have failed.
    Carries,
}

impl fmt::Display for BackupDuty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rests => "rests: the other links suffice",
            Self::Helps => "helps: the other links are full",
            Self::Carries => "carries: no other link does",
        })
    }
}

/// What an end senses of a link, always in the direction in which it sends: a client upstream, a proxy
/// downstream; the round-trip time belongs to both. `raw` is the newest measurement, the same name without it what is
/// made of it and those before (`docs/SCHEDULING.md` says how).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SensedStatus {
    /// What the link carries at most, if a person said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_told_bps: Option<f64>,
    /// What it carries at most, as last measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_raw_bps: Option<f64>,
    /// The largest of the last 5 to 10 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bps: Option<f64>,
    /// Of the capacity (told, else measured) what others leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_raw_bps: Option<f64>,
    /// The same of the filtered values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bps: Option<f64>,
    /// What others send on its interface, over the last interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_raw_bps: Option<f64>,
    /// The same, half of it from each interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_bps: Option<f64>,
    /// What the link delivers for this tunnel, as last measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_raw_kbytes_s: Option<f64>,
    /// The same through `batcp`'s Kalman filter, in its unit of 1000 bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_kbytes_s: Option<f64>,
    /// Round-trip time without the receiver's delay, the newest sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_raw_ms: Option<f64>,
    /// The same, smoothed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Share of recent datagrams lost, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_recent: Option<f64>,
    /// The same over all datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_total: Option<f64>,
}

/// What a scheduler makes of a link, for what this end sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// `natalie` and `batcp`: its share of a round among the links that are up, 0 to 1, of packets (`natalie` with
    /// `count = "bytes"`: of bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// `natalie`: its weight. Where weights are told, as told; else what others leave of it, in bits per second, bent
    /// by its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// `batcp`: packets of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// `safire`: active flows on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// `safire`: what one TCP flow can expect of it, alpha.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha_bps: Option<f64>,
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

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// Switched off by the config file.
    Disabled,
    /// Not usable: no interface, no address, no gateway, or nothing comes back.
    Down,
    /// Asked to join; no answer yet.
    Joining,
    /// In use.
    Up,
    /// Reports fail to come; in use only where no other link has room.
    Suspect,
}

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
}

/// The kernel's table of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackStatus {
    /// Entries in use.
    pub count: u64,
    /// Entries possible.
    pub limit: u64,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
        })
    }
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

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disabled => "disabled",
            Self::Down => "down",
            Self::Joining => "joining",
            Self::Up => "up",
            Self::Suspect => "suspect",
        })
    }
}

impl ApiError {
    /// An error of this kind.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
