//! What the tunnel shows of itself: plain values, taken when somebody asks.

use arrayvec::ArrayString;
use ropewalk_settings::{Bitrate, LinkPolicy, Usage};

use super::egress::{Bundled, RecentFlows, Redundancy, Repairs};
use super::link::{Duty, Filler, Limits, Link, LinkState, Traffic};
use super::links::{Ledger, Metered};
use super::local_ack::LocallyAcknowledged;
use super::outages::Outages;
use super::recent::Recent;
use super::routing::{FlowCounts, FlowTables};
use super::{Side, Tunnel};
use crate::congestion::PathModel;
use crate::error::DropCounters;
use crate::link::receiver::ReceiverStats;
use crate::link::sender::SenderStats;
use crate::link::sensing::Sensed;
use crate::path::Path;
use crate::reseq;
use crate::sched::LinkShare;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;

/// One link.
#[derive(Clone, Debug)]
pub struct LinkStats {
    /// Its id.
    pub id: LinkId,
    /// Its name.
    pub name: ArrayString<MAX_NAME>,
    /// Its state.
    pub state: LinkState,
    /// Since when.
    pub since: Instant,
    /// Its path.
    pub path: Path,
    /// The sending side.
    pub sender: SenderStats,
    /// What its controller believes of the path, in the direction in which this end sends; `None`: it models none.
    pub model: Option<PathModel>,
    /// The receiving side.
    pub receiver: ReceiverStats,
    /// What is sensed of it in the direction in which this end sends.
    pub sensed: Sensed,
    /// Variation of the one-way delay of what comes in.
    pub delay_variation: Option<Duration>,
    /// Path MTU of what goes out, IP level, bytes.
    pub path_mtu: u16,
    /// How often the path was found to swallow what it had carried before.
    pub black_holes: u64,
    /// Keepalive interval in force.
    pub keepalive: Option<Duration>,
    /// Whether a longer one is still looked for.
    pub keepalive_searching: bool,
    /// Whether a person lets this end send packets on it.
    pub carries: bool,
    /// What its owner says of it; a proxy knows of bounds and rates only those of its own direction.
    pub policy: LinkPolicy,
    /// When it carries packets: what its owner says, or this end if that is stricter.
    pub usage: Usage,
    /// Most that the client sends on it, if that is known and bounded.
    pub max_up: Option<Bitrate>,
    /// The same of the proxy.
    pub max_down: Option<Bitrate>,
    /// What it does for the packets that this end sends.
    pub duty: Duty,
    /// How long each thing kept it from carrying more of them.
    pub limits: Limits,
    /// For how long packets that had come waited for one that came on it.
    pub waited_for: Duration,
    /// What the scheduler makes of it.
    pub share: LinkShare,
    /// Datagrams sent.
    pub sent: Traffic,
    /// Datagrams received.
    pub received: Traffic,
    /// How much lately: bytes sent, and received.
    pub recent: Recent,
    /// Both with IP and UDP headers.
    pub on_wire: Metered,
    /// What of both was test data.
    pub filler: Filler,
}

/// The flows that an end sends.
#[derive(Clone, Debug)]
pub enum Flows {
    /// The scheduler keeps each on one link: its tables.
    Routed(FlowTables),
    /// Packets of a flow may take any link: what each did lately.
    Recent(Box<RecentFlows>),
}

/// The tunnel.
#[derive(Clone, Debug)]
pub struct TunnelStats {
    /// Its links.
    pub links: Vec<LinkStats>,
    /// The key epoch: how often keys were replaced.
    pub epoch: u32,
    /// Largest inner packet.
    pub inner_mtu: Option<u16>,
    /// Packets waiting for a link, and their bytes.
    pub queued: (usize, usize),
    /// Bytes of memory kept for packets to come.
    pub spare_bytes: usize,
    /// Packets taken from the TUN.
    pub accepted: Traffic,
    /// Packets handed to the TUN.
    pub delivered: Traffic,
    /// How much lately: bytes accepted, and delivered.
    pub recent: Recent,
    /// Of these, packets that came in two parts, because they fit no link whole.
    pub joined: u64,
    /// Whether this end leaves checksums to be completed by the other.
    pub leaves_checksums: bool,
    /// Packets sent that shared their datagram with others, and those datagrams.
    pub bundled: Bundled,
    /// What was sent again of what was lost; `None`: nothing is.
    pub repairs: Option<Repairs>,
    /// What was sent over two links at once; `None`: nothing is.
    pub redundancy: Option<Redundancy>,
    /// Links that carried nothing for a while.
    pub outages: Outages,
    /// What senders of TCP were told before the other end had it.
    pub local_acks: LocallyAcknowledged,
    /// How full the table of flow routing is; `None`: another scheduler decides.
    pub flows: Option<FlowCounts>,
    /// What its links carried, those that left too.
    pub ledger: Ledger,
    /// The resequencer.
    pub reseq: reseq::Stats,
    /// What was dropped and why.
    pub drops: DropCounters,
}

impl LinkStats {
    /// Bits per second sent and received, in about the last second.
    #[must_use]
    pub fn rates(&self, now: Instant) -> [f64; 2] {
        self.recent.rates(now, [self.sent.bytes, self.received.bytes])
    }
}

impl TunnelStats {
    /// Bits per second of packets accepted and delivered, in about the last second.
    #[must_use]
    pub fn rates(&self, now: Instant) -> [f64; 2] {
        self.recent.rates(now, [self.accepted.bytes, self.delivered.bytes])
    }
}

impl Tunnel {
    /// Everything, as it is now.
    #[must_use]
    pub fn stats(&self) -> TunnelStats {
        TunnelStats {
            links: self.links.iter().map(|link| self.link_stats(link)).collect(),
            epoch: self.session.keys.newest_epoch(),
            inner_mtu: self.links.inner_mtu(),
            queued: self.egress.waiting_for_links(),
            spare_bytes: self.egress.spare_bytes() + self.ingress.spare_bytes(),
            accepted: self.egress.accepted(),
            delivered: self.ingress.delivered(),
            recent: self.recent,
            joined: self.ingress.joined(),
            leaves_checksums: self.peer_completes,
            bundled: self.egress.bundled(),
            repairs: self.egress.repairs(),
            redundancy: self.egress.redundancy(),
            outages: self.outages.clone(),
            local_acks: self.ingress.local_acks.counters(),
            flows: self.flow_counts(),
            ledger: self.links.ledger(),
            reseq: self.ingress.stats(),
            drops: self.session.drops.clone(),
        }
    }

    /// The busiest flows that this end sends, at most so many. Where they are not routed, bytes are counted by flow and link from
    /// now on, until nobody has asked for some seconds.
    #[must_use]
    pub fn flows(&mut self, now: Instant, most: usize) -> Flows {
        match self.flow_tables(most) {
            Some(tables) => Flows::Routed(tables),
            None => {
                let local_acks = &self.ingress.local_acks;
                Flows::Recent(Box::new(self.egress.recent_flows(
                    now,
                    &self.links,
                    local_acks,
                    most,
                )))
            }
        }
    }

    /// What was sent and received on a link, also if it left just now.
    pub(crate) fn traffic_of(&self, id: LinkId) -> Option<(Traffic, Traffic)> {
        self.links.traffic_of(id)
    }

    fn link_stats(&self, link: &Link) -> LinkStats {
        let sender = link.sender.stats();
        let order = self.ingress.order();
        let (policy, terms) = (&link.agreed.policy, &link.agreed.terms);
        let (max_up, max_down) = match self.side {
            Side::Client => (terms.max, policy.max_down),
            Side::Proxy => (policy.max_up, terms.max),
        };
        LinkStats {
            id: link.id,
            name: link.name,
            state: link.life.state(),
            since: link.life.since(),
            path: link.path(),
            sender,
            model: link.sender.path_model(),
            receiver: link.receiver.stats(),
            sensed: link.sensing.all(&sender),
            delay_variation: order.delay_variation(link.id),
            path_mtu: link.mtu.search.mtu(),
            black_holes: link.mtu.search.black_holes(),
            keepalive: link.keepalive.interval(),
            keepalive_searching: link.keepalive.is_searching(),
            carries: terms.carries,
            policy: policy.clone(),
            usage: link.agreed.usage(),
            max_up,
            max_down,
            duty: link.agreed.duty(),
            limits: link.counters.limits,
            waited_for: order.waited_for(link.id),
            share: self.share_of(link),
            sent: link.counters.sent,
            received: link.counters.received,
            recent: link.counters.recent,
            on_wire: link.counters.on_wire,
            filler: link.counters.filler,
        }
    }
}
