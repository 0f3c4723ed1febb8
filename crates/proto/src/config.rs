//! Every knob of the core: what a person may set ([`ropewalk_settings`]), and bounds that are the core's own.

use arrayvec::{ArrayString, ArrayVec};
use ropewalk_settings::{
    Acknowledge, ControllerKind, Direction, Keepalive, LinkPolicy, Order, Profile, SchedulerKind,
    Scheduling, Terms, TunnelSettings, Usage, WhenClosed,
};

use crate::path::Path;
use crate::queue::QueueLimits;
use crate::reseq;
use crate::time::Duration;
use crate::wire::frame::MAX_NAME;

/// Most links of one tunnel: more than any machine has, and a bound for every table by link.
pub const MAX_LINKS: usize = 16;

/// Most remote addresses tried for one link.
pub const MAX_PATHS: usize = 8;

/// How one end of a tunnel behaves. Both ends have their own: each governs its sending direction, and
/// its receiving resequencer.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// Which link carries a packet, and what this end says of links beside their owner.
    pub scheduling: Scheduling,
    /// Which way this end sends: some of what is said of a link is about one. A tunnel knows it by its side.
    pub sends: Direction,
    /// How each link's window is found.
    pub controller: ControllerKind,
    /// Which order the peer restores of what this end sends; [`Order::Global`] towards one that knows no other.
    pub order: Order,
    /// Who acknowledges what a sender of TCP has sent.
    pub acknowledge: Acknowledge,
    /// What happens to a packet when all windows are closed.
    pub when_closed: WhenClosed,
    /// Bounds of the queue for [`WhenClosed::Queue`].
    pub queue: QueueLimits,
    /// Whether a packet's congestion mark is copied to its datagram.
    pub ecn: bool,
    /// Whether small packets that leave at one moment for one link share a datagram (PROTOCOL §4).
    pub bundle: bool,
    /// Keys are replaced after this time if they were used. At least 1 s.
    pub rekey_after: Duration,
    /// The receiving side.
    pub reseq: reseq::Config,
    /// Largest outer IP packet tried by the path MTU search, in bytes.
    pub max_mtu: u16,
    /// Whether what this end delivers to completes partial checksums of TCP and UDP (a TUN with offload does), so that the
    /// peer may leave them.
    pub partial_checksums: bool,
}

impl TunnelConfig {
    /// The queue's bound, bytes: 8 MiB are 640 Mbit/s over 100 ms.
    const QUEUE_BYTES: usize = 8 << 20;

    /// What these settings mean to the end that `sends` this way.
    #[must_use]
    pub fn new(settings: &TunnelSettings, sends: Direction) -> Self {
        Self {
            scheduling: settings.scheduling.clone(),
            sends,
            controller: settings.controller,
            order: settings.order,
            acknowledge: settings.acknowledge,
            when_closed: settings.when_closed,
            queue: QueueLimits { time: settings.queue, bytes: Self::QUEUE_BYTES },
            ecn: settings.ecn,
            bundle: true,
            rekey_after: settings.rekey_after,
            reseq: reseq::Config { settings: settings.resequencer, ..reseq::Config::default() },
            // Ethernet. Larger paths are rare, and a probe of 9,000 bytes is dear on a slow link.
            max_mtu: 1500,
            partial_checksums: false,
        }
    }

    /// Whether this end acknowledges what it takes over of TCP, where the peer restores this order. Only a schedule that lets flows
    /// take turns keeps what others flood apart from what must not be dropped, and only within flows what is lost is sent again.
    #[must_use]
    pub fn acknowledges_locally(&self, order: Order) -> bool {
        self.scheduling.acknowledge(self.acknowledge) == Acknowledge::Local
            && self.scheduling.scheduler == SchedulerKind::Arrival
            && order == Order::Flow
    }

    /// By which controller the window of a link is kept: that of the profile in force, else the configured one.
    #[must_use]
    pub fn controller_in_force(&self) -> ControllerKind {
        self.scheduling.controller(self.controller)
    }

    /// Which order the peer restores of what this end sends, if it knows that of flows.
    #[must_use]
    pub fn order_towards(&self, orders_flows: bool) -> Order {
        if orders_flows { self.scheduling.order(self.order) } else { Order::Global }
    }

    /// What holds for the link of this name, of which the wire may carry only the beginning, and whose owner says this
    /// `policy` of it.
    #[must_use]
    pub fn terms_of(&self, link: &str, policy: &LinkPolicy) -> Terms {
        self.scheduling.terms_of(link, policy, self.sends)
    }

    /// How little a link is preferred where one is enough, as to ask for a session: a backup least, then one that is used
    /// when needed, with BATCP the others by how much their price matters, else all alike. Below the paper's tenth for a
    /// preferred link nothing is told apart, so that a link of which nothing is said is as good as the best.
    #[must_use]
    pub fn reluctance(&self, link: &str, policy: &LinkPolicy) -> f64 {
        let terms = self.terms_of(link, policy);
        match (terms.usage, self.scheduling.scheduler) {
            (Usage::Backup, _) => 3.0,
            (Usage::WhenNeeded, _) => 2.0,
            (Usage::Always, SchedulerKind::Batcp) => terms.importance.cost().max(0.1),
            (Usage::Always, _) => 0.0,
        }
    }
}

impl TunnelConfig {
    /// The client's, with nothing set but the profile.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        Self::new(&TunnelSettings::of(profile), Direction::Up)
    }
}

impl Default for TunnelConfig {
    /// The client's, with nothing set.
    fn default() -> Self {
        Self::new(&TunnelSettings::default(), Direction::Up)
    }
}

/// A link as the client wants it.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// For people: usually the interface's name.
    pub name: ArrayString<MAX_NAME>,
    /// Where the proxy may be reached over this interface, in order of preference; never empty.
    pub paths: ArrayVec<Path, MAX_PATHS>,
    /// How the NATs on this link are kept open.
    pub keepalive: Keepalive,
    /// Whether bytes cost money here: a dead metered link is probed less often.
    pub metered: bool,
    /// Largest outer IP packet, if the interface's own MTU is known.
    pub mtu: Option<u16>,
    /// What its owner says of it. The proxy is told, so that both directions obey.
    pub policy: LinkPolicy,
}
