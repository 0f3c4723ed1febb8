//! One link of a tunnel: its state, what passes, what its scheduler senses and makes of it.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::ModelStatus;
use crate::api::LimitTimes;
use ropewalk_settings::LinkTerms;

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
    /// On a client, while nothing else comes through: the page to which its network leads who asks for one. It wants a sign-in
    /// first, perhaps there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// How long it has been in this state.
    pub state_age_s: f64,
    /// This end of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// The other end of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// Whether its datagrams go over TLS, because UDP is not answered or the config says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_tls: bool,
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
    /// What is said of it for the direction in which this end sends: the client's `[[link]]`, on a proxy with what
    /// `[tunnel.link.NAME]` of its own config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<LinkTerms>,
    /// What the scheduler of this end makes of it; absent where it asks for nothing but room, and before the first
    /// packets went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareStatus>,
    /// What this end senses of it, in the direction in which it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensed: Option<SensedStatus>,
    /// What this end's congestion controller believes of it, in the direction in which this end sends; absent where it
    /// models no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelStatus>,
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
    /// The day on which it begins again.
    pub until: String,
    /// Whether the link is not used any more when it is used up.
    pub stop: bool,
}

impl AllowanceStatus {
    /// The share at which a person is warned, in percent: enough is left to act on it.
    pub const WARN_PERCENT: u64 = 80;

    /// So many bytes of an allowance of `all`, in percent, rounded down.
    #[must_use]
    pub fn percent(used: u64, all: u64) -> u64 {
        let percent = u128::from(used) * 100 / u128::from(all.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// How much of it is used, in percent, rounded down.
    #[must_use]
    pub fn used_percent(&self) -> u64 {
        Self::percent(self.used, self.bytes)
    }
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
