//! What stands in a scenario file. Every unit is part of the name; a name that does not belong
//! there is an error with line and column.

use std::path::PathBuf;
use std::time::Duration;

use ropewalk_settings::{Direction, Keepalive};
use serde::Deserialize;

use crate::generate::Kind;
use crate::profile::Profile;

/// The whole file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// A short name, for tables and files of results.
    pub name: String,
    /// What it shows, for people.
    #[serde(default)]
    pub description: String,
    /// What decides losses and jitter; 1 if absent.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// How long it runs; until all traffic has ended if absent.
    pub duration_s: Option<f64>,
    /// `[[links]]`
    pub links: Vec<LinkSection>,
    /// `[[traffic]]`
    #[serde(default)]
    pub traffic: Vec<TrafficSection>,
    /// `[tunnel]`
    #[serde(default)]
    pub tunnel: TunnelSection,
    /// `[[checks]]`
    #[serde(default)]
    pub checks: Vec<Check>,
}

fn first_seed() -> u64 {
    1
}

/// One link. Later lines of this list win over earlier ones: `profile`, `rtt_ms`, `both`, then `up`
/// or `down`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSection {
    /// Its name, once in the file.
    pub name: String,
    /// A kind of link to begin with; a perfect cable if absent.
    pub profile: Option<Profile>,
    /// Which way the tunnel sends packets on it; both if absent. Reports and the like go both ways.
    pub direction: Option<Direction>,
    /// Half of it is the delay of each direction.
    pub rtt_ms: Option<f64>,
    /// For both directions.
    pub both: Option<SettingsSection>,
    /// From the client.
    pub up: Option<SettingsSection>,
    /// To the client.
    pub down: Option<SettingsSection>,
    /// After how long without a packet its NAT forgets a UDP flow.
    pub nat_udp_timeout_s: Option<f64>,
    /// Whether others that send on it do so behind the bottleneck, as another host does: then no counter of the client's
    /// interface knows of them. On the kernel it is always so; they are counted if absent.
    pub others_unseen: Option<bool>,
    /// When it is cut.
    #[serde(default)]
    pub outages: Vec<OutageSection>,
    /// When it becomes otherwise.
    #[serde(default)]
    pub changes: Vec<ChangeSection>,
}

impl LinkSection {
    /// The same link with what `other` says in place of what this one says of it.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let settings =
            |ours: &Option<SettingsSection>, theirs: &Option<SettingsSection>| match (ours, theirs)
            {
                (Some(ours), Some(theirs)) => Some(ours.with(theirs)),
                (ours, theirs) => theirs.clone().or_else(|| ours.clone()),
            };
        Self {
            name: other.name.clone(),
            profile: other.profile.or(self.profile),
            direction: other.direction.or(self.direction),
            rtt_ms: other.rtt_ms.or(self.rtt_ms),
            both: settings(&self.both, &other.both),
            up: settings(&self.up, &other.up),
            down: settings(&self.down, &other.down),
            nat_udp_timeout_s: other.nat_udp_timeout_s.or(self.nat_udp_timeout_s),
            others_unseen: other.others_unseen.or(self.others_unseen),
            outages: if other.outages.is_empty() { &self.outages } else { &other.outages }.clone(),
            changes: if other.changes.is_empty() { &self.changes } else { &other.changes }.clone(),
        }
    }
}

impl SettingsSection {
    /// These settings with what `other` says in place of what these say of it.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        // Ways to say the rate exclude each other: the later one wins over all.
        let paced = if other.paces() { other } else { self };
        Self {
            rate_mbit: paced.rate_mbit,
            trace: paced.trace.clone(),
            recorded: paced.recorded.clone(),
            generated: paced.generated,
            delay_ms: other.delay_ms.or(self.delay_ms),
            jitter_ms: other.jitter_ms.or(self.jitter_ms),
            reorder: other.reorder.or(self.reorder),
            loss: other.loss.or(self.loss),
            queue_ms: other.queue_ms.or(self.queue_ms),
            queue_packets: other.queue_packets.or(self.queue_packets),
            mtu: other.mtu.or(self.mtu),
            mark_above_ms: other.mark_above_ms.or(self.mark_above_ms),
            mark_probability: other.mark_probability.or(self.mark_probability),
            background_mbit: other.background_mbit.or(self.background_mbit),
            policer: other.policer.or(self.policer),
        }
    }

    /// Whether they say how fast the link is.
    fn paces(&self) -> bool {
        let Self { rate_mbit, trace, recorded, generated, .. } = self;
        rate_mbit.is_some() || trace.is_some() || recorded.is_some() || generated.is_some()
    }
}

/// Conditions of one direction; what is absent stays as it is.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsSection {
    /// At IP level; unlimited if never set.
    pub rate_mbit: Option<f64>,
    /// A mahimahi trace in place of a rate, from the scenario's folder.
    pub trace: Option<PathBuf>,
    /// One from the folder of recordings, where there is such a folder; its name without `.mm.gz`.
    pub recorded: Option<String>,
    /// One generated in place of a rate, for as long as the scenario lasts, from its seed and the link's
    /// name; beside `recorded` where there is no folder of recordings, from the name of the recording.
    pub generated: Option<Kind>,
    /// One way.
    pub delay_ms: Option<f64>,
    /// Standard deviation of the delay.
    pub jitter_ms: Option<f64>,
    /// Whether jitter may reorder packets; it may not if never set.
    pub reorder: Option<bool>,
    /// What is lost at random.
    pub loss: Option<LossSection>,
    /// The drop-tail queue, as time at the mean rate.
    pub queue_ms: Option<f64>,
    /// And in packets.
    pub queue_packets: Option<usize>,
    /// The largest IP packet that passes; larger ones vanish silently.
    pub mtu: Option<u32>,
    /// ECN-capable packets that waited longer are marked CE.
    pub mark_above_ms: Option<f64>,
    /// And at random with this probability.
    pub mark_probability: Option<f64>,
    /// What others send over the same queue, at IP level in packets of 1500 bytes; nothing if never set.
    pub background_mbit: Option<f64>,
    /// What drops packets behind queue and transmitter; nothing if never set.
    pub policer: Option<PolicerSection>,
}

/// A policer ([`crate::netem::Policer`]).
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerSection {
    /// What passes in the long run, at IP level.
    pub rate_mbit: f64,
    /// Its bucket: what the rate carries in this time passes at once.
    pub burst_ms: f64,
}

/// `loss = 0.01`, `loss = { mean = 0.02, burst = 4 }` or the four parameters of the chain.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum LossSection {
    /// Each packet on its own, with this probability.
    Share(f64),
    /// Bursts of this mean length in packets, and this share of packets lost in all.
    Bursts {
        /// 0 to below 1.
        mean: f64,
        /// At least 1.
        burst: f64,
    },
    /// A Gilbert-Elliott chain ([`crate::loss::GilbertElliott`]).
    Chain {
        /// Probability.
        good_to_bad: f64,
        /// Probability.
        bad_to_good: f64,
        /// Probability.
        loss_in_good: f64,
        /// Probability.
        loss_in_bad: f64,
    },
}

/// An outage, or several alike.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutageSection {
    /// Seconds since the beginning of the scenario.
    pub at_s: f64,
    /// How long.
    pub for_s: f64,
    /// Which direction; both if absent.
    #[serde(default)]
    pub direction: Direction,
    /// What is lost; everything if absent.
    #[serde(default)]
    pub lose: Lose,
    /// How the link goes; in silence if absent.
    #[serde(default)]
    pub kind: OutageKind,
    /// So many; one if absent.
    #[serde(default = "once")]
    pub times: u16,
    /// Seconds from the beginning of one to the beginning of the next.
    #[serde(default)]
    pub every_s: f64,
}

/// How a link goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutageKind {
    /// Nothing passes, and nobody is told.
    #[default]
    Silent,
    /// The client's interface is down, so that the client is told.
    InterfaceDown,
    /// The client's interface loses its address.
    AddressLost,
    /// The router has no way to the Internet any more, and says so with ICMP; what comes from there still passes.
    RouterGone,
    /// The NAT forgets its mappings at the beginning, and gives other ports from then on.
    NatForgets,
}

impl OutageKind {
    /// Whether the link itself carries nothing meanwhile.
    #[must_use]
    pub const fn cuts(self) -> bool {
        matches!(self, Self::Silent | Self::InterfaceDown | Self::AddressLost)
    }
}

/// What an outage takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lose {
    /// Also what waits or is under way.
    #[default]
    Everything,
    /// Only what arrives during it.
    Arrivals,
}

/// Conditions from some moment on.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSection {
    /// Seconds since the beginning of the scenario.
    pub at_s: f64,
    /// For both directions.
    pub both: Option<SettingsSection>,
    /// From the client.
    pub up: Option<SettingsSection>,
    /// To the client.
    pub down: Option<SettingsSection>,
}

/// What an application does.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficSection {
    /// Which application.
    pub kind: TrafficKind,
    /// Which way the data go; down if absent. A ping goes both ways whatever it says.
    #[serde(default = "downwards")]
    pub direction: Direction,
    /// As much as this; UDP needs it, others have no limit without.
    pub rate_mbit: Option<f64>,
    /// Over so many connections at once, as a download manager has (TCP and HTTP); 1 if absent.
    #[serde(default = "one_flow")]
    pub flows: u16,
    /// Ends after so many bytes of payload, of all connections together.
    pub bytes: Option<u64>,
    /// So often one after the other, each on new connections half a second after the one before has ended; 1 if
    /// absent. Downloads with `bytes` only.
    #[serde(default = "once")]
    pub times: u16,
    /// Or after this time; each of several by itself. An upload with `bytes` may take four times as long.
    pub duration_s: Option<f64>,
    /// What the sending end of TCP or HTTP uses; `cubic` if absent. All uploads of a scenario use the same.
    pub congestion: Option<String>,
    /// When it begins, since the beginning of the scenario.
    #[serde(default)]
    pub start_s: f64,
    /// Whether others send it, beside the tunnel over its first link; through the tunnel if absent. One that `tcp`
    /// sends downstream only.
    pub beside: Option<Beside>,
}

/// How others' traffic crosses the first link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// As it is.
    Bare,
    /// Through a second tunnel that is set like the first (in virtual time only).
    Tunnel,
}

/// As many connections as a download manager may be told to open.
pub const MAX_FLOWS: u16 = 64;

/// A packet of a call with its IP header, bytes.
pub const CALL_LEN: usize = 200;
/// What a call sends each way at IP level: 50 packets a second, Mbit/s.
pub const CALL_MBIT: f64 = 0.08;
/// From the end of a fetch to the beginning of the next.
pub const PAUSE: Duration = Duration::from_millis(500);

/// As many times as a transfer may be repeated.
pub const MAX_TIMES: u16 = 1000;

fn one_flow() -> u16 {
    1
}

fn once() -> u16 {
    1
}

impl TrafficSection {
    /// Whether it is TCP, and the client sends.
    #[must_use]
    pub fn is_upload(&self) -> bool {
        matches!(self.kind, TrafficKind::Tcp | TrafficKind::Http) && self.direction == Direction::Up
    }

    /// How much each of its connections carries.
    #[must_use]
    pub fn shares(&self) -> Vec<Option<u64>> {
        let flows = u64::from(self.flows);
        let share = |bytes: u64, flow| bytes / flows + u64::from(flow < bytes % flows);
        (0..flows).map(|flow| self.bytes.map(|bytes| share(bytes, flow))).collect()
    }
}

fn downwards() -> Direction {
    Direction::Down
}

/// An application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficKind {
    /// One stream, as fast as it can.
    Tcp,
    /// A stream of full packets at a constant rate.
    Udp,
    /// Echo requests.
    Ping,
    /// Voice: 50 packets of 200 bytes (with their IP header) a second, each way at once.
    Call,
    /// A download or upload of a file over HTTP.
    Http,
}

/// Settings of the tunnel, by the names and in the words of the configuration files, and what only the lab has; what is
/// absent is the default of the daemons.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelSection {
    /// `[tunnel]` of both ends.
    #[serde(flatten)]
    pub settings: ropewalk_settings::TunnelSection,
    /// The client's, of all links.
    #[serde(default)]
    pub keepalive: Keepalive,
    /// Whether both ends are told what each link carries: its mean rate at the beginning.
    #[serde(default)]
    pub rates_told: bool,
    /// Whether there is none: traffic then goes over the first link as it is, for comparison.
    #[serde(default)]
    pub absent: bool,
}

/// What must come out: a measured value within bounds.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The measured value, such as `tcp_percent_of_sum`.
    pub name: String,
    /// At least this.
    pub minimum: Option<f64>,
    /// At most this.
    pub maximum: Option<f64>,
}

impl Check {
    /// Whether a measured value is within the bounds. What is not a number is not.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        !value.is_nan()
            && self.minimum.is_none_or(|minimum| value >= minimum)
            && self.maximum.is_none_or(|maximum| value <= maximum)
    }
}
