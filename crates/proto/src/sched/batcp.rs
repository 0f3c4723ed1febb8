//! BATCP: weighted rounds ([`Weighted`]), in which each link carries as many packets as its load says
//! (Amezcua Valdovinos et al. 2017 §3.5).
//!
//! ```text
//! relation = w_throughput ln(1 / throughput) + w_cost ln(cost)        (1)
//! if any is negative: relation += 2 |min(relation)|                   (2)
//! index = relation / max(relation)                                    (3)
//! load = ceil(index / min(index))                                     (4)
//! ```
//!
//! Throughput is in kB/s, cost in any one unit by the gigabyte. The paper says of the index that the link with the
//! lowest performs best, and of the load that it is how many segments go on a link: read literally, (4) sends
//! the more the worse a link is. Its prose, and its results, say the opposite, so [`Formula::Prose`] is
//! `ceil(max(index) / index)`; [`Formula::Literal`] is kept to show what the other does.
//!
//! Three things the paper leaves open are decided here, so that every input has finite, positive loads:
//! logarithms have a floor ([`LEAST_THROUGHPUT`], [`LEAST_COST`]: a free link is allowed), an index of zero
//! counts as [`LEAST_INDEX`], and a ratio within [`TOLERANCE`] above a whole number is that number: else two
//! equal links, measured 1 % apart, would be loaded 2 to 1.

use arrayvec::ArrayVec;
use ropewalk_settings::{BatcpSettings, Count, Formula};

use super::facts::carrying;
use super::{LinkFacts, LinkShare, LinkView, PacketMeta, Pick, Scheduler, Weighted};
use crate::config::MAX_LINKS;
use crate::link::sensing::as_f64;
use crate::time::Instant;
use crate::units::LinkId;

/// Least throughput under the logarithm, kB/s: a link that carries one small packet a second.
pub(super) const LEAST_THROUGHPUT: f64 = 0.1;

/// Least cost under the logarithm, in the unit of the costs: a free link is as if a gigabyte cost a hundredth.
pub(super) const LEAST_COST: f64 = 0.01;

/// Least index: no link gets more than a thousand times the packets of another.
pub(super) const LEAST_INDEX: f64 = 1e-3;

/// By how much a ratio may exceed a whole number and still count as it.
pub(super) const TOLERANCE: f64 = 0.05;

/// Costs and weights beyond it are as good as it.
const MOST: f64 = 1e12;

/// Weighted rounds by throughput and cost.
#[derive(Clone, Debug)]
pub struct Batcp {
    formula: Formula,
    rounds: Weighted,
}

impl Batcp {
    /// A first round is about to begin.
    #[must_use]
    pub fn new(settings: &BatcpSettings) -> Self {
        let rounds = Weighted::new(Count::Packets, settings.when_full);
        Self { formula: settings.formula, rounds }
    }
}

impl Scheduler for Batcp {
    fn pick(&mut self, _now: Instant, _packet: &PacketMeta, links: &[LinkView]) -> Pick {
        self.rounds.pick(links)
    }

    fn on_sent(&mut self, _now: Instant, packet: &PacketMeta, link: LinkId) {
        self.rounds.on_sent(packet, link);
    }

    fn refresh(&mut self, links: &[LinkFacts]) {
        self.rounds.refresh(links, loads(&carrying(links), self.formula));
    }

    fn share(&self, link: LinkId) -> LinkShare {
        self.rounds.share(link)
    }
}

/// Equations (1) to (4): for each link the packets of a round, at least 1 and at most 1,000.
#[must_use]
pub(super) fn loads(links: &[LinkFacts], formula: Formula) -> ArrayVec<f64, MAX_LINKS> {
    let mut values: ArrayVec<f64, MAX_LINKS> = links.iter().take(MAX_LINKS).map(relation).collect();
    let (least, _) = extremes(&values);
    if least < 0.0 {
        values.iter_mut().for_each(|value| *value += 2.0 * least.abs());
    }
    let (_, most) = extremes(&values);
    let scale = if most > 0.0 { most } else { 1.0 };
    values.iter_mut().for_each(|value| *value = (*value / scale).max(LEAST_INDEX));
    let (least, most) = extremes(&values);
    let load = |index: &f64| match formula {
        Formula::Prose => most / index,
        Formula::Literal => index / least,
    };
    values.iter().map(|index| (load(index) - TOLERANCE).ceil().max(1.0)).collect()
}

/// Equation (1). A link that was not measured yet has the throughput that was told.
fn relation(link: &LinkFacts) -> f64 {
    let told = || link.rate_told.map(|rate| as_f64(rate) / 8e3);
    let throughput = link.throughput.or_else(told).unwrap_or(0.0);
    let throughput = floored(throughput, LEAST_THROUGHPUT);
    let cost = floored(link.cost, LEAST_COST);
    let weights = link.importance;
    weights.throughput() * (1.0 / throughput).ln() + weights.cost() * cost.ln()
}

/// Also what is no number is the floor.
fn floored(value: f64, least: f64) -> f64 {
    if value >= least { value.min(MOST) } else { least }
}

fn extremes(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
    (least, values.iter().copied().reduce(f64::max).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_settings::{Cost, Direction, Importance, LinkTerms, Terms, Usage};

    use super::*;

    fn link(throughput: f64, cost: f64, weights: (f64, f64)) -> LinkFacts {
        let importance = Importance::new(weights.0, weights.1).expect("shares of one");
        let throughput = Some(throughput);
        LinkFacts { throughput, cost, importance, ..LinkFacts::unknown(LinkId(0)) }
    }

    const FAST_ONLY: (f64, f64) = (1.0, 0.0);

    #[test]
    fn the_equations_give_what_they_give_by_hand() {
        // ln(1/80) = -4.382, ln(1/40) = -3.689; + 8.764: 4.382, 5.075; index 0.863, 1.
        let pair = [link(80.0, 1.0, FAST_ONLY), link(40.0, 1.0, FAST_ONLY)];
        assert_eq!(loads(&pair, Formula::Prose)[..], [2.0, 1.0]);
        assert_eq!(
            loads(&pair, Formula::Literal)[..],
            [1.0, 2.0],
            "as printed, the slow link gets more"
        );
        // Throughput 0.9, cost 0.1 on WLAN; the reverse on LTE, as in the paper's example, at 10 the gigabyte:
        // 0.9 ln(1/500) + 0.1 ln(0.01) = -6.054; 0.1 ln(1/500) + 0.9 ln(10) = 1.451; + 12.107: 6.054, 13.558.
        let preferred = [link(500.0, 0.0, (0.9, 0.1)), link(500.0, 10.0, (0.1, 0.9))];
        assert_eq!(loads(&preferred, Formula::Prose)[..], [3.0, 1.0]);
    }

    #[test]
    fn equal_links_are_loaded_equally_though_measured_a_little_apart() {
        for throughputs in [[78.0, 78.0], [77.67, 79.16], [1.0, 1.0], [0.0, 0.0]] {
            let pair = throughputs.map(|throughput| link(throughput, 1.0, FAST_ONLY));
            for formula in [Formula::Prose, Formula::Literal] {
                assert_eq!(loads(&pair, formula)[..], [1.0, 1.0], "{throughputs:?}");
            }
        }
    }

    #[test]
    fn what_is_said_of_the_use_and_the_price_of_links_loads_them() {
        let price = |amount| Some(Cost { amount, unit: "EUR".to_owned() });
        let used = |usage, cost| LinkTerms { usage: Some(usage), cost, ..LinkTerms::default() };
        let first =
            LinkTerms { importance: Importance::new(0.9, 0.1).ok(), ..LinkTerms::default() };
        let table = [
            (first.clone(), used(Usage::WhenNeeded, None), true),
            (first.clone(), used(Usage::Backup, price(2.0)), true),
            (LinkTerms::default(), used(Usage::WhenNeeded, None), true),
            (used(Usage::Always, None), LinkTerms::default(), false),
            (used(Usage::Always, price(1.0)), used(Usage::Always, price(9.0)), true),
        ];
        for (a, b, more) in table {
            let links = [&a, &b].map(|told| {
                let Terms { cost, importance, .. } = Terms::new(told, Direction::Up);
                let throughput = Some(500.0);
                LinkFacts { throughput, cost, importance, ..LinkFacts::unknown(LinkId(0)) }
            });
            let loads = loads(&links, Formula::Prose);
            assert_eq!(loads[0] > loads[1], more, "{a:?} beside {b:?}: {loads:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_in_every_load_is_finite_and_positive(
            links in proptest::collection::vec((any::<f64>(), any::<f64>(), 0.0..=1.0f64), 0..=MAX_LINKS),
        ) {
            let links: Vec<_> = links
                .into_iter()
                .map(|(throughput, cost, share)| link(throughput, cost, (share, 1.0 - share)))
                .collect();
            for formula in [Formula::Prose, Formula::Literal] {
                let loads = loads(&links, formula);
                prop_assert_eq!(loads.len(), links.len());
                prop_assert!(loads.iter().all(|load| (1.0..=1000.0).contains(load)), "{:?}", loads);
            }
        }

        #[test]
        fn of_two_links_that_differ_in_one_thing_the_better_never_gets_less(
            throughput in 0.0..1e6f64, more in 0.0..1e6f64, cost in 0.0..100.0f64, share in 0.0..=1.0f64,
        ) {
            let weights = (share, 1.0 - share);
            let faster = loads(
                &[link(throughput + more, cost, weights), link(throughput, cost, weights)],
                Formula::Prose,
            );
            prop_assert!(faster[0] >= faster[1]);
            let cheaper = loads(
                &[link(throughput, cost, weights), link(throughput, cost + more, weights)],
                Formula::Prose,
            );
            prop_assert!(cheaper[0] >= cheaper[1]);
        }
    }
}
