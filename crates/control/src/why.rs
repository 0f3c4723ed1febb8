//! What limits each link now, and what the bundle loses against the sum of its links.
//!
//! One idea: the *limiting factor*, the first of these that is so:
//!
//! | the link | factor |
//! | --- | --- |
//! | is switched off, used up, down, or was not taken yet | [`Factor::Disabled`], [`Factor::Allowance`], [`Factor::Down`], [`Factor::Joining`] |
//! | is not to carry what this end sends | [`Factor::Direction`], [`Factor::Weight`], [`Factor::Resting`] |
//! | carried nothing, while others did | [`Factor::Turn`] |
//! | had nothing to carry for most of the time | [`Factor::Demand`] |
//! | was held back for most of the rest | [`Factor::Window`] (or what keeps the window small: [`Factor::Queue`], [`Factor::Loss`]), [`Factor::Pace`], [`Factor::Cap`], [`Factor::Turn`] |
//! | the same, and its controller models it | what that says: [`Factor::Starting`], [`Factor::Rate`], [`Factor::Others`], [`Factor::Loss`], [`Factor::Queue`], [`Factor::Silence`] |
//!
//! An end knows why it does not send more; of what it receives it knows only what it sees ([`Factor::Sender`]).
//!
//! Pure: the judgement on two status documents of one daemon, some time apart.

mod bundle;
mod link;
mod model;
mod one_flow;
mod others;
mod redundant;
mod repair;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api::{
    FlowsReport, LinkState, LinkStatus, Role, StatusReport, TunnelState, TunnelStatus,
};
use link::Way;

/// What limits the links of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyReport {
    /// Client or proxy.
    pub role: Role,
    /// Seconds that were looked at.
    pub over_s: f64,
    /// Its tunnels, in the order of the status.
    pub tunnels: Vec<TunnelWhy>,
}

/// One tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelWhy {
    /// The other end.
    pub peer: String,
    /// Whether packets pass.
    pub state: TunnelState,
    /// Why it is in this state, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its links.
    pub links: Vec<LinkWhy>,
    /// The bundle, client to proxy.
    pub up: BundleWhy,
    /// The bundle, proxy to client.
    pub down: BundleWhy,
    /// Where one flow goes over one link while another is idle: which, and why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_flow: Option<String>,
    /// What sending again what was lost costs and saves, for people; absent where nothing was sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
    /// That packets which were to go over two links at once went over one, and what helps, for people; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<String>,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkWhy {
    /// Its name.
    pub name: String,
    /// Client to proxy.
    pub up: Verdict,
    /// Proxy to client.
    pub down: Verdict,
    /// What this end's congestion controller found in the direction in which it sends, for people; absent where it
    /// models no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// That its datagrams do not go by UDP, and why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<String>,
}

/// What limits a link in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// For programs.
    pub factor: Factor,
    /// Bits per second of UDP payload that it carried.
    pub rate_bps: f64,
    /// What it could carry, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub could_bps: Option<f64>,
    /// For people.
    pub why: String,
}

/// All links of one direction together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BundleWhy {
    /// Bits per second of packets.
    pub packets_bps: f64,
    /// The same of UDP payload on all links.
    pub links_bps: f64,
    /// What the links could carry together; of those of which it is not known, what they do carry.
    pub could_bps: f64,
    /// What of `links_bps` was lost on the way, where this end sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_bps: Option<f64>,
    /// For people.
    pub why: String,
}

/// What limits a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// It is switched off.
    Disabled,
    /// Its allowance of the month is used up.
    Allowance,
    /// It does not work.
    Down,
    /// The proxy has not answered on it yet.
    Joining,
    /// It is for the other direction.
    Direction,
    /// The scheduler gives it no share.
    Weight,
    /// It is kept back, and the others suffice.
    Resting,
    /// There is not more to carry.
    Demand,
    /// Its congestion window is full.
    Window,
    /// The same, and the queue on its path: the path carries no more.
    Queue,
    /// Losses: they keep its window small, or came beyond a rate.
    Loss,
    /// The rate of its path, as its model found it.
    Rate,
    /// Its model still looks for the rate.
    Starting,
    /// Others use the same link, of which its model keeps a fair part.
    Others,
    /// What was sent is not confirmed.
    Silence,
    /// The pace of what it was told to carry, or of what others leave of it.
    Pace,
    /// The most that its owner lets it carry.
    Cap,
    /// The scheduler's choice: packets go over other links, or wait for them.
    Turn,
    /// It is slower than its partners: what came on them waits for it.
    Order,
    /// Only the end that sends knows.
    Sender,
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disabled => "disabled",
            Self::Allowance => "allowance",
            Self::Down => "down",
            Self::Joining => "joining",
            Self::Direction => "direction",
            Self::Weight => "weight",
            Self::Resting => "resting",
            Self::Demand => "no demand",
            Self::Window => "window",
            Self::Queue => "queue",
            Self::Loss => "loss",
            Self::Rate => "rate",
            Self::Starting => "starting",
            Self::Others => "others",
            Self::Silence => "silence",
            Self::Pace => "pace",
            Self::Cap => "cap",
            Self::Turn => "scheduler",
            Self::Order => "order",
            Self::Sender => "sender",
        })
    }
}

/// The judgement on what happened between two documents of one daemon. Of a daemon that was restarted in between, and of
/// links that came in between, what happened since. `flows`: what is known of the flows of each tunnel in about that time.
#[must_use]
pub fn judge(earlier: &StatusReport, later: &StatusReport, flows: &[FlowsReport]) -> WhyReport {
    let same = earlier.daemon.pid == later.daemon.pid;
    let passed = later.daemon.uptime_s - if same { earlier.daemon.uptime_s } else { 0.0 };
    let before = |tunnel: &TunnelStatus| {
        let known = earlier.tunnels.iter().filter(|_| same);
        known.into_iter().find(|before| before.peer == tunnel.peer)
    };
    let tunnels = later.tunnels.iter().map(|tunnel| {
        let span =
            Span { role: later.daemon.role, seconds: passed, before: before(tunnel), tunnel };
        span.judge(flows.iter().find(|flows| flows.peer == tunnel.peer))
    });
    WhyReport { role: later.daemon.role, over_s: passed, tunnels: tunnels.collect() }
}

/// One tunnel over the time looked at.
#[derive(Clone, Copy)]
struct Span<'a> {
    role: Role,
    seconds: f64,
    before: Option<&'a TunnelStatus>,
    tunnel: &'a TunnelStatus,
}

impl<'a> Span<'a> {
    fn judge(self, flows: Option<&FlowsReport>) -> TunnelWhy {
        let verdicts: Vec<_> = self
            .tunnel
            .links
            .iter()
            .map(|link| [Way::Up, Way::Down].map(|way| link::verdict(&self, link, way)))
            .collect();
        let of = |way: usize| -> Vec<(&LinkStatus, &Verdict)> {
            let verdicts = verdicts.iter().map(|both| &both[way]);
            self.tunnel.links.iter().zip(verdicts).collect()
        };
        let (up, down) =
            (bundle::judge(&self, Way::Up, &of(0)), bundle::judge(&self, Way::Down, &of(1)));
        let sent = if self.sends(Way::Up) { (Way::Up, of(0)) } else { (Way::Down, of(1)) };
        let one_flow = flows.and_then(|flows| one_flow::judge(&self, sent.0, &sent.1, flows));
        let links = self.tunnel.links.iter().zip(verdicts);
        TunnelWhy {
            peer: self.tunnel.peer.clone(),
            state: self.tunnel.state,
            reason: self.tunnel.reason.clone(),
            links: links.map(|(link, [up, down])| self.of_link(link, up, down)).collect(),
            up,
            down,
            one_flow,
            repair: repair::judge(&self),
            redundancy: redundant::judge(&self),
        }
    }

    fn of_link(&self, link: &LinkStatus, up: Verdict, down: Verdict) -> LinkWhy {
        let way = if self.sends(Way::Up) { "up" } else { "down" };
        let model = link.model.as_ref();
        let model = model.map(|model| format!("model of the way {way}: {}", model.figures()));
        // The reason of a link that is not up stands in its verdicts.
        let is_up = link.over_tls && link.state == LinkState::Up;
        let carried = link.reason.clone().filter(|_| is_up);
        LinkWhy { name: link.name.clone(), up, down, model, carried }
    }

    /// Whether this end sends this way.
    const fn sends(&self, way: Way) -> bool {
        matches!((self.role, way), (Role::Client, Way::Up) | (Role::Proxy, Way::Down))
    }

    /// The same link at the beginning; one that joined again began at zero.
    fn before(&self, link: &LinkStatus) -> Option<&'a LinkStatus> {
        let mut links = self.before?.links.iter();
        links.find(|before| before.name == link.name && before.id == link.id)
    }

    /// Bits per second of what grew by so many bytes.
    fn rate(&self, before: Option<u64>, after: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "the bytes of some seconds are below 2^53")]
        let bytes = after.saturating_sub(before.unwrap_or(0)) as f64;
        if self.seconds > 0.0 { bytes * 8.0 / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
