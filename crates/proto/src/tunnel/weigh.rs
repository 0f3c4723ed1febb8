//! What the scheduler is told of each link beyond its room: weights, what a flow can expect, and which
//! destinations may use it. Looked at again every [`INTERVAL`] while packets go, from what was told and
//! sensed.

use arrayvec::ArrayVec;

use ropewalk_settings::{Bitrate, SafireSettings, SchedulerKind, Scheduling, Weights, shortened};

use super::Tunnel;
use super::egress::Egress;
use super::link::Link;
use super::links::LinkSet;
use crate::config::MAX_LINKS;
use crate::link::sensing::as_f64;
use crate::sched::natalie::{self, AutoWeights};
use crate::sched::safire::alpha;
use crate::sched::{AnyScheduler, LinkView, batcp};
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// NATALIE follows cross-traffic within a second, of which its measurements take some; and a tenth of a second
/// is many packets.
const INTERVAL: Duration = Duration::from_millis(100);

/// What the scheduler is told of a link beyond its room.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Share {
    pub(super) weight: f64,
    pub(super) alpha: Option<f64>,
    pub(super) routes: u64,
    /// How fast to send, where the scheduler yields to others.
    pub(super) pace: Option<Bitrate>,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1.0, alpha: None, routes: u64::MAX, pace: None }
    }
}

impl Share {
    pub(super) const fn view(&self, id: LinkId, room: u32) -> LinkView {
        LinkView { id, room, weight: self.weight, alpha: self.alpha, routes: self.routes }
    }
}

/// What the scheduler makes of a link, as far as it asks for it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkShare {
    /// Its share beside the others' in a weighted round; `None`: nothing was weighed yet.
    pub weight: Option<f64>,
    /// What flow routing expects one TCP flow to reach on it, bit/s; `None`: unknown.
    pub alpha: Option<f64>,
    /// Active flows that flow routing has on it.
    pub flows: Option<u32>,
}

/// When the links were last looked at, and what is remembered from then.
#[derive(Clone, Debug, Default)]
pub(super) struct Weigher {
    due: Instant,
    auto: AutoWeights,
}

impl Tunnel {
    /// Another scheduler, or other settings, from now on, and what a person says of links. Nothing is lost by it: packets
    /// that waited for one link are scheduled again. The same settings again change nothing: flows stay on their links.
    pub fn set_scheduling(&mut self, now: Instant, scheduling: Scheduling) {
        if !self.config.scheduling.schedules_like(&scheduling) {
            self.egress.free_waiting();
            self.egress.scheduler = AnyScheduler::new(now, &scheduling);
            self.egress.weigher = Weigher::default();
            self.links.iter_mut().for_each(|link| link.share = Share::default());
        }
        self.config.scheduling = scheduling;
        for at in 0..self.links.len() {
            self.apply_terms(at);
        }
        self.egress.weigher.due = Instant::ZERO;
    }

    /// The driver counted what others sent on a link's interface since its last count, over `interval`.
    pub fn on_others(&mut self, link: LinkId, bytes: u64, interval: Duration) {
        if let Ok(at) = self.links.position(link) {
            self.links[at].sensing.on_others(Bitrate::from_bytes_in(bytes, interval));
        }
    }

    /// The same of what others received there: the peer, who sends on the link, is told with the next datagram of
    /// frames.
    pub fn tell_others(&mut self, link: LinkId, bytes: u64, interval: Duration) {
        if let Ok(at) = self.links.position(link) {
            self.links[at].tell_others(Bitrate::from_bytes_in(bytes, interval));
        }
    }

    /// A link has its terms.
    pub(super) fn apply_terms(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.set_terms(self.config.terms_of(&link.name));
        self.egress.weigher.due = Instant::ZERO;
    }

    /// What the scheduler made of the link when it last looked.
    pub(super) fn share_of(&self, link: &Link) -> LinkShare {
        let weighed = self.egress.weigher.due > Instant::ZERO;
        match &self.egress.scheduler {
            AnyScheduler::FreeWindow(_) | AnyScheduler::RoundRobin(_) => LinkShare::default(),
            AnyScheduler::Weighted(_) => {
                LinkShare { weight: weighed.then_some(link.share.weight), ..LinkShare::default() }
            }
            AnyScheduler::Safire(safire) => LinkShare {
                weight: None,
                alpha: link.share.alpha,
                flows: Some(safire.flows().on(link.id)),
            },
        }
    }
}

impl Egress {
    /// Looks at the links again if it is time.
    pub(super) fn weigh(&mut self, now: Instant, scheduling: &Scheduling, links: &mut LinkSet) {
        if now < self.weigher.due || !self.has_next() {
            return;
        }
        self.weigher.due = now + INTERVAL;
        let mut links: ArrayVec<&mut Link, MAX_LINKS> =
            links.iter_mut().filter(|link| link.carries(now)).collect();
        let weights: ArrayVec<f64, MAX_LINKS> = match scheduling.scheduler {
            SchedulerKind::FreeWindow | SchedulerKind::RoundRobin => return,
            SchedulerKind::Natalie => match scheduling.natalie.weights {
                Weights::Told => links.iter().map(|link| link.agreed.terms.weight).collect(),
                Weights::Auto => {
                    for link in &mut links {
                        link.share.pace = link.sensing.yielding_rate();
                    }
                    let standing: ArrayVec<_, MAX_LINKS> =
                        links.iter().map(|l| bandwidth(l)).collect();
                    self.weigher.auto.weigh(&standing)
                }
            },
            SchedulerKind::Batcp => {
                let standing: ArrayVec<_, MAX_LINKS> = links.iter().map(|l| standing(l)).collect();
                batcp::loads(&standing, scheduling.batcp.formula)
            }
            SchedulerKind::Safire => {
                let config = &scheduling.safire;
                for link in links {
                    link.share.alpha = expected(link, config.k);
                    link.share.routes = routes(&link.name, config);
                }
                return;
            }
        };
        for (link, weight) in links.iter_mut().zip(weights) {
            link.share.weight = weight;
        }
    }
}

fn bandwidth(link: &Link) -> natalie::Standing {
    natalie::Standing {
        id: link.id,
        capacity: link.sensing.capacity().map(as_f64),
        available: link.sensing.available().map(as_f64),
        loss: link.sender.loss_ratio(),
        lasting_loss: link.sensing.lasting_loss(),
    }
}

fn standing(link: &Link) -> batcp::Standing {
    let told = || link.agreed.terms.rate.map(|rate| as_f64(rate) / 8e3);
    batcp::Standing {
        throughput: link.sensing.throughput().or_else(told).unwrap_or(0.0),
        cost: link.agreed.terms.cost,
        weights: link.agreed.terms.importance,
    }
}

/// What one TCP flow can reach on it, bit/s.
pub(super) fn expected(link: &Link, k: f64) -> Option<f64> {
    let rtt = link.sender.rtt().srtt().map(|rtt| rtt.as_secs_f64());
    alpha(link.sensing.capacity().map(as_f64), rtt, link.sender.loss_ratio(), k)
}

/// The bits of the routes that allow the link.
fn routes(link: &str, config: &SafireSettings) -> u64 {
    let routes = config.routes.values().take(SafireSettings::MAX_ROUTES).enumerate();
    let allowing =
        routes.filter(|(_, links)| links.iter().any(|name| shortened(name).as_str() == link));
    allowing.fold(0, |bits, (number, _)| bits | 1 << number)
}
