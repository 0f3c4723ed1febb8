//! SAFIRE's flow routing: a flow is put on one link and stays there (seed 002 §II).
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

use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_settings::SafireSettings;

pub use flows::{CAPACITY, Flow, FlowTable, Life};

use super::{LinkView, PacketMeta, Pick, Scheduler};
use crate::time::Instant;
use crate::units::LinkId;

/// Segment size that equation (1) reckons with, bytes.
const MSS: f64 = 1400.0;

/// Equation (1), in bit/s; `None`: the capacity is unknown. `rtt` in seconds, `loss` from 0 to 1.
#[must_use]
pub fn alpha(capacity: Option<f64>, rtt: Option<f64>, loss: f64, k: f64) -> Option<f64> {
    let bound =
        rtt.filter(|rtt| *rtt > 0.0 && loss > 0.0).map(|rtt| k * 8.0 * MSS / (rtt * loss.sqrt()));
    capacity.map(|capacity| bound.map_or(capacity, |bound| bound.min(capacity)))
}

/// The destination prefixes that have links of their own; [`LinkView::routes`] says by its bits which routes
/// allow a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Routes {
    /// With their number, the longest prefix first.
    prefixes: Vec<(IpNet, u32)>,
}

impl Routes {
    /// Routes to these prefixes, numbered in this order; those beyond [`SafireSettings::MAX_ROUTES`] are ignored.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        let mut prefixes: Vec<_> =
            prefixes.into_iter().take(SafireSettings::MAX_ROUTES).zip(0..).collect();
        // Stable: of two equal prefixes the first counts.
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        Self { prefixes }
    }

    /// The bit of the route to `destination`, if there is one.
    fn bit(&self, destination: IpAddr) -> Option<u64> {
        let route = self.prefixes.iter().find(|(prefix, _)| prefix.contains(&destination));
        route.map(|(_, number)| 1 << number)
    }
}

/// Flow routing.
#[derive(Clone, Debug)]
pub struct Safire {
    routes: Routes,
    flows: FlowTable,
}

impl Safire {
    /// No flows yet.
    #[must_use]
    pub fn new(now: Instant, routes: Routes) -> Self {
        Self { routes, flows: FlowTable::new(now) }
    }

    /// The flow table.
    #[must_use]
    pub fn flows(&self) -> &FlowTable {
        &self.flows
    }

    /// Where a new flow to `destination` can expect most.
    fn choose(&self, destination: IpAddr, links: &[LinkView]) -> Option<usize> {
        let route = self.routes.bit(destination);
        let allowed = |link: &LinkView| route.is_none_or(|bit| link.routes & bit != 0);
        let mut best: Option<(usize, f64)> = None;
        for (index, link) in links.iter().enumerate().filter(|(_, link)| allowed(link)) {
            let flows = f64::from(self.flows.on(link.id));
            // Beyond every rate there is, and fewer flows first.
            let alpha = link.alpha.unwrap_or(f64::MAX);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{FiveTuple, FlowKey};
    use crate::time::Duration;

    /// A link: id, room, alpha in Mbit/s.
    fn links(of: &[(u8, u32, Option<f64>)]) -> Vec<LinkView> {
        let view = |&(id, room, alpha): &(u8, u32, Option<f64>)| {
            let alpha = alpha.map(|mbit| mbit * 1e6);
            LinkView { alpha, ..LinkView::new(LinkId(id), room) }
        };
        of.iter().map(view).collect()
    }

    fn packet(flow: u64) -> PacketMeta {
        PacketMeta { flow: FlowKey(flow), ..PacketMeta::of_len(1400) }
    }

    fn towards(destination: &str) -> FiveTuple {
        let destination = destination.parse().expect("an address");
        FiveTuple { destination, ..FiveTuple::UNKNOWN }
    }

    /// Which link each of the first `count` flows goes to.
    fn placed(links: &[LinkView], count: u64) -> Vec<usize> {
        let mut safire = Safire::new(Instant::ZERO, Routes::default());
        let mut place = |flow| match safire.pick(Instant::ZERO, &packet(flow), links) {
            Pick::Send(index) | Pick::Wait(index) => {
                safire.on_sent(Instant::ZERO, &packet(flow), links[index].id);
                index
            }
            Pick::Blocked => usize::MAX,
        };
        (0..count).map(&mut place).collect()
    }

    #[test]
    fn a_flow_expects_the_capacity_or_what_loss_leaves_of_it() {
        let table = [
            (Some(10e6), Some(0.1), 0.0, Some(10e6)),
            (Some(10e6), Some(0.0), 0.1, Some(10e6)),
            (Some(10e6), None, 0.1, Some(10e6)),
            // 1400 B / (100 ms x 0.1) = 140 kB/s.
            (Some(10e6), Some(0.1), 0.01, Some(1.12e6)),
            (Some(1e6), Some(0.1), 0.01, Some(1e6)),
            (None, Some(0.1), 0.01, None),
        ];
        for (capacity, rtt, loss, expected) in table {
            let alpha = alpha(capacity, rtt, loss, 1.0);
            let close = match (alpha, expected) {
                (Some(a), Some(b)) => (a - b).abs() < 1.0,
                (a, b) => a == b,
            };
            assert!(close, "{capacity:?} {rtt:?} {loss}: {alpha:?}");
        }
    }

    #[test]
    fn flows_spread_by_what_each_can_expect() {
        let equal = links(&[(0, 9, Some(1.0)), (1, 9, Some(1.0)), (2, 9, Some(1.0))]);
        assert_eq!(placed(&equal, 6), [0, 1, 2, 0, 1, 2]);
        let unequal = links(&[(0, 9, Some(1.0)), (1, 9, Some(2.0))]);
        assert_eq!(placed(&unequal, 6), [1, 0, 1, 1, 0, 1]);
        let unknown = links(&[(0, 9, Some(100.0)), (1, 9, None), (2, 9, None)]);
        assert_eq!(placed(&unknown, 4), [1, 2, 1, 2], "explored first");
        assert_eq!(placed(&[], 1), [usize::MAX]);
    }

    #[test]
    fn a_flow_stays_on_its_link_waits_for_it_and_leaves_it_only_when_it_dies() {
        let mut safire = Safire::new(Instant::ZERO, Routes::default());
        let both = links(&[(0, 9, Some(1.0)), (1, 9, Some(9.0))]);
        assert_eq!(safire.pick(Instant::ZERO, &packet(1), &both), Pick::Send(1));
        safire.on_sent(Instant::ZERO, &packet(1), LinkId(1));
        let worse = links(&[(0, 9, Some(9.0)), (1, 0, Some(1.0))]);
        assert_eq!(safire.pick(Instant::ZERO, &packet(1), &worse), Pick::Wait(1));
        let without = links(&[(0, 9, Some(9.0))]);
        assert_eq!(safire.pick(Instant::ZERO, &packet(1), &without), Pick::Send(0));
        safire.on_sent(Instant::ZERO, &packet(1), LinkId(0));
        assert_eq!((safire.flows.on(LinkId(0)), safire.flows.on(LinkId(1))), (1, 0));
        assert_eq!(
            safire.pick(Instant::ZERO, &packet(1), &both),
            Pick::Send(0),
            "and does not go back"
        );
        let later = Instant::ZERO + Duration::from_secs(60);
        assert_eq!(safire.pick(later, &packet(1), &both), Pick::Send(1), "a new flow by then");
    }

    #[test]
    fn the_longest_prefix_says_which_links_a_flow_may_take() {
        let net = |text: &str| text.parse::<IpNet>().expect("a prefix");
        let routes = Routes::new([net("10.0.0.0/8"), net("10.1.0.0/16"), net("2001:db8::/32")]);
        let mut views = links(&[(0, 9, Some(9.0)), (1, 9, Some(5.0)), (2, 9, Some(1.0))]);
        (views[0].routes, views[1].routes, views[2].routes) = (0b000, 0b001, 0b110);
        let mut safire = Safire::new(Instant::ZERO, routes);
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
