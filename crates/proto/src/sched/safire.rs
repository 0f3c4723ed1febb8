//! SAFIRE's flow routing: a flow is put on one link and stays there (Mark and Zhang 2007 §II).
//!
//! A new flow goes where it can expect most: to the link with the largest `alpha / (N + 1)`, where `N` is the
//! number of the link's active flows and `alpha` what TCP can reach on it,
//!
//! ```text
//! alpha = min(C, k MSS / (RTT sqrt(loss)))                            (1)
//! ```
//!
//! from the link's capacity, round-trip time and loss as they are sensed. Where loss or the round-trip time is zero or
//! unknown, `alpha = C`. Where `C` is unknown the link is explored: it comes before every known one, those with
//! fewer flows first. Ties go to the first link.
//!
//! Where a flow may go depends on its destination: of the routes that match, that of the longest prefix names
//! the links allowed; without a match all are. A flow moves at once when its link is no longer among those that
//! carry packets, and never otherwise: when its link is full, its packets wait for it.

mod flows;
mod routes;

use std::net::IpAddr;

use arrayvec::ArrayVec;
use ropewalk_settings::{Bitrate, SafireSettings};

pub use flows::{CAPACITY, Flow, FlowTable, Life};
use routes::Routes;

use super::facts::carrying;
use super::per_link::PerLink;
use super::{LinkFacts, LinkShare, LinkView, PacketMeta, Pick, Scheduler};
use crate::config::MAX_LINKS;
use crate::link::sensing::as_f64;
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// Segment size that equation (1) reckons with, bytes.
const MSS: f64 = 1400.0;

/// What a new flow finds on a link.
#[derive(Clone, Copy, Debug)]
struct Prospect {
    /// What it can reach there, bit/s; `None`: unknown.
    alpha: Option<f64>,
    /// The routes that allow the link, by their bits ([`Routes::allowing`]).
    routes: u64,
}

/// Of a link that was never looked at: it is explored, for every destination.
const UNKNOWN: Prospect = Prospect { alpha: None, routes: u64::MAX };

/// Flow routing.
#[derive(Clone, Debug)]
pub struct Safire {
    k: f64,
    routes: Routes,
    flows: FlowTable,
    prospects: PerLink<Prospect>,
}

impl Safire {
    /// No flows yet.
    #[must_use]
    pub fn new(now: Instant, settings: &SafireSettings) -> Self {
        Self {
            k: settings.k,
            routes: Routes::new(&settings.routes),
            flows: FlowTable::new(now),
            prospects: PerLink::default(),
        }
    }

    /// The flow table.
    #[must_use]
    pub fn flows(&self) -> &FlowTable {
        &self.flows
    }

    /// Equation (1), in bit/s; `None`: the capacity is unknown. `loss` is from 0 to 1.
    #[must_use]
    pub fn alpha(
        &self,
        capacity: Option<Bitrate>,
        rtt: Option<Duration>,
        loss: f64,
    ) -> Option<f64> {
        let capacity = as_f64(capacity?);
        let rtt = rtt.map(|rtt| rtt.as_secs_f64()).filter(|rtt| *rtt > 0.0 && loss > 0.0);
        let bound = rtt.map(|rtt| self.k * 8.0 * MSS / (rtt * loss.sqrt()));
        Some(bound.map_or(capacity, |bound| bound.min(capacity)))
    }

    fn prospect(&self, link: LinkId) -> Prospect {
        self.prospects.of(link).unwrap_or(UNKNOWN)
    }

    /// Where a new flow to `destination` can expect most.
    fn choose(&self, destination: IpAddr, links: &[LinkView]) -> Option<usize> {
        let route = self.routes.bit(destination);
        let mut best: Option<(usize, f64)> = None;
        for (index, link) in links.iter().enumerate() {
            let prospect = self.prospect(link.id);
            if route.is_some_and(|bit| prospect.routes & bit == 0) {
                continue;
            }
            let flows = f64::from(self.flows.on(link.id));
            // Beyond every rate there is, and fewer flows first.
            let alpha = prospect.alpha.unwrap_or(f64::MAX);
            let expected = alpha / (flows + 1.0);
            if best.is_none_or(|(_, most)| expected > most) {
                best = Some((index, expected));
            }
        }
        best.map(|(index, _)| index)
    }
}

impl Scheduler for Safire {
    fn pick(&mut self, now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick {
        self.flows.decay(now);
        let of = |id: LinkId| links.iter().position(|link| link.id == id);
        let own = self.flows.link(packet.flow).and_then(of);
        match own.or_else(|| self.choose(packet.tuple.destination, links)) {
            None => Pick::Blocked,
            Some(index) if links[index].room > 0 => Pick::Send(index),
            Some(index) => Pick::Wait(index),
        }
    }

    fn on_sent(&mut self, _now: Instant, packet: &PacketMeta, link: LinkId) {
        self.flows.note(packet, link);
    }

    fn refresh(&mut self, links: &[LinkFacts]) {
        let prospect = |link: &LinkFacts| Prospect {
            alpha: self.alpha(link.capacity, link.srtt, link.loss),
            routes: self.routes.allowing(&link.name),
        };
        let prospects: ArrayVec<_, MAX_LINKS> = carrying(links).iter().map(prospect).collect();
        self.prospects.refresh(links, prospects);
    }

    fn share(&self, link: LinkId) -> LinkShare {
        let (alpha, flows) = (self.prospect(link).alpha, self.flows.on(link));
        LinkShare { weight: None, alpha, flows: Some(flows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{FiveTuple, FlowKey};
    use ipnet::IpNet;
    use ropewalk_settings::shortened;
    use std::collections::BTreeMap;

    /// A link: id, room, and the capacity in Mbit/s, which is its alpha.
    type Link = (u8, u32, Option<u64>);

    fn flow_routing(routes: &[(&str, &[&str])]) -> Safire {
        let route = |(prefix, links): &(&str, &[&str])| {
            let prefix: IpNet = prefix.parse().expect("a prefix");
            (prefix, links.iter().map(|link| (*link).to_owned()).collect())
        };
        let routes: BTreeMap<_, _> = routes.iter().map(route).collect();
        Safire::new(Instant::ZERO, &SafireSettings { routes, ..SafireSettings::default() })
    }

    /// The links as the scheduler has just been told of them.
    fn told(safire: &mut Safire, links: &[Link]) -> Vec<LinkView> {
        let facts = |&(id, _, mbit): &Link| LinkFacts {
            name: shortened(&format!("link{id}")),
            capacity: mbit.map(|mbit| Bitrate::from_bps(mbit * 1_000_000)),
            ..LinkFacts::unknown(LinkId(id))
        };
        safire.refresh(&links.iter().map(facts).collect::<Vec<_>>());
        links.iter().map(|&(id, room, _)| LinkView::of_room(LinkId(id), room)).collect()
    }

    fn packet(flow: u64) -> PacketMeta {
        PacketMeta { flow: FlowKey(flow), ..PacketMeta::of_len(1400) }
    }

    fn towards(destination: &str) -> FiveTuple {
        let destination = destination.parse().expect("an address");
        FiveTuple { destination, ..FiveTuple::UNKNOWN }
    }

    /// Which link each of the first `count` flows goes to.
    fn placed(links: &[Link], count: u64) -> Vec<usize> {
        let mut safire = flow_routing(&[]);
        let links = told(&mut safire, links);
        let mut place = |flow| match safire.pick(Instant::ZERO, &packet(flow), &links) {
            Pick::Send(index) | Pick::Wait(index) => {
                safire.on_sent(Instant::ZERO, &packet(flow), links[index].id);
                index
            }
            Pick::Blocked | Pick::SendBehind(..) => usize::MAX,
        };
        (0..count).map(&mut place).collect()
    }

    #[test]
    fn a_flow_expects_the_capacity_or_what_loss_leaves_of_it() {
        let table = [
            (Some(10_000), Some(100), 0.0, Some(10e6)),
            (Some(10_000), Some(0), 0.1, Some(10e6)),
            (Some(10_000), None, 0.1, Some(10e6)),
            // 1400 B / (100 ms x 0.1) = 140 kB/s.
            (Some(10_000), Some(100), 0.01, Some(1.12e6)),
            (Some(1_000), Some(100), 0.01, Some(1e6)),
            (None, Some(100), 0.01, None),
        ];
        let safire = flow_routing(&[]);
        for (kbps, ms, loss, expected) in table {
            let (capacity, rtt) = (kbps.map(Bitrate::from_kbps), ms.map(Duration::from_millis));
            let alpha = safire.alpha(capacity, rtt, loss);
            let close = match (alpha, expected) {
                (Some(a), Some(b)) => (a - b).abs() < 1.0,
                (a, b) => a == b,
            };
            assert!(close, "{kbps:?} kbit/s, {ms:?} ms, {loss}: {alpha:?}");
        }
    }

    #[test]
    fn flows_spread_by_what_each_can_expect() {
        let equal = [(0, 9, Some(1)), (1, 9, Some(1)), (2, 9, Some(1))];
        assert_eq!(placed(&equal, 6), [0, 1, 2, 0, 1, 2]);
        let unequal = [(0, 9, Some(1)), (1, 9, Some(2))];
        assert_eq!(placed(&unequal, 6), [1, 0, 1, 1, 0, 1]);
        let unknown = [(0, 9, Some(100)), (1, 9, None), (2, 9, None)];
        assert_eq!(placed(&unknown, 4), [1, 2, 1, 2], "explored first");
        assert_eq!(placed(&[], 1), [usize::MAX]);
    }

    #[test]
    fn a_flow_stays_on_its_link_waits_for_it_and_leaves_it_only_when_it_dies() {
        let mut safire = flow_routing(&[]);
        let both = told(&mut safire, &[(0, 9, Some(1)), (1, 9, Some(9))]);
        assert_eq!(safire.pick(Instant::ZERO, &packet(1), &both), Pick::Send(1));
        safire.on_sent(Instant::ZERO, &packet(1), LinkId(1));
        let worse = told(&mut safire, &[(0, 9, Some(9)), (1, 0, Some(1))]);
        assert_eq!(safire.pick(Instant::ZERO, &packet(1), &worse), Pick::Wait(1));
        let without = told(&mut safire, &[(0, 9, Some(9))]);
        assert_eq!(safire.pick(Instant::ZERO, &packet(1), &without), Pick::Send(0));
        safire.on_sent(Instant::ZERO, &packet(1), LinkId(0));
        assert_eq!((safire.flows.on(LinkId(0)), safire.flows.on(LinkId(1))), (1, 0));
        let again = told(&mut safire, &[(0, 9, Some(1)), (1, 9, Some(9))]);
        assert_eq!(
            safire.pick(Instant::ZERO, &packet(1), &again),
            Pick::Send(0),
            "and does not go back"
        );
        let later = Instant::ZERO + Duration::from_secs(60);
        assert_eq!(safire.pick(later, &packet(1), &again), Pick::Send(1), "a new flow by then");
    }

    #[test]
    fn the_longest_prefix_says_which_links_a_flow_may_take() {
        let mut safire = flow_routing(&[
            ("10.0.0.0/8", &["link1"]),
            ("10.1.0.0/16", &["link2"]),
            ("2001:db8::/32", &["link2"]),
        ]);
        let views = told(&mut safire, &[(0, 9, Some(9)), (1, 9, Some(5)), (2, 9, Some(1))]);
        let table = [("10.2.3.4", 1), ("10.1.3.4", 2), ("2001:db8::1", 2)];
        for (destination, expected) in table {
            let to = PacketMeta { tuple: towards(destination), ..packet(5) };
            assert_eq!(
                safire.pick(Instant::ZERO, &to, &views),
                Pick::Send(expected),
                "{destination}"
            );
        }
        let elsewhere = PacketMeta { tuple: towards("8.8.8.8"), ..packet(5) };
        assert_eq!(safire.pick(Instant::ZERO, &elsewhere, &views), Pick::Send(0));
        let nowhere = PacketMeta { tuple: towards("10.2.3.4"), ..packet(6) };
        assert_eq!(safire.pick(Instant::ZERO, &nowhere, &views[..1]), Pick::Blocked);
    }
}
