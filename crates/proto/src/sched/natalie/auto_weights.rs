//! NATALIE's automatic weights: each link's share of a round from what it can carry now (He and Brassil 2007 §V), bent by
//! the paper's guidelines where links lose packets (§IV-B).
//!
//! ```text
//! weight = available bandwidth            guideline 1: in proportion to the bandwidth
//!        = min(capacity - what others send, what a full link delivers)
//! ```
//!
//! *Guideline 2*: as the disparity of the impairments increases, overweight the link of the highest bandwidth:
//! between two thresholds a link's weight falls from all to none as its loss exceeds the best link's. *Guideline 3*: as
//! it grows large, all packets go to the link of the highest bandwidth: at the upper threshold a link has no
//! weight. The thresholds are those of the paper's figures 5 and 6, which depend on the bandwidth. What decides here is
//! the fastest link's: one stream goes over all, and the larger its window is the less loss it bears; and a lossy
//! link's own rate is hard to know, for its window is small.
//!
//! | fastest link of | in proportion up to | one link beyond | from |
//! | --- | --- | --- | --- |
//! | 1 Mbit/s | a loss of 0.1 | 0.1 | Fig. 5 (a), 6 (a), (c) |
//! | 10 Mbit/s | 0.01 | 0.04 | Fig. 5 (c), 6 (b), (d) |
//!
//! Between the figures' points 0.01 and 0.04 the change is put into their geometric mean, from 0.015 to 0.025: what is
//! sensed swings around what is so, and a link on either point is meant to be on its side.
//!
//! A link that was left out comes back when its loss is below [`HYSTERESIS`] of the threshold, so that one near
//! it does not flap. Delay, the guidelines' other impairment, does no harm behind a resequencer and has no threshold.

use arrayvec::ArrayVec;

use crate::config::MAX_LINKS;
use crate::link::sensing::as_f64;
use crate::sched::LinkFacts;
use crate::units::LinkId;

/// Between the paper's 1 and 10 Mbit/s in the geometric mean, bit/s: which of its figures the links are like.
const FAST: f64 = 3.16e6;

/// Losses where all links are slow and where one is fast: in proportion up to the first, not at all from the second.
const SLOW_LOSS: (f64, f64) = (0.1, 0.1);
const FAST_LOSS: (f64, f64) = (0.015, 0.025);

/// A link left out is taken in again below this share of the upper threshold.
const HYSTERESIS: f64 = 0.7;

/// Least share of its capacity that a link is given while others seem to fill it, so that its state stays known: a
/// packet in a hundred.
const LEAST_SHARE: f64 = 0.01;

/// Auto-weighting over time.
#[derive(Clone, Debug, Default)]
pub(super) struct AutoWeights {
    /// Links without a weight for their loss.
    left_out: ArrayVec<LinkId, MAX_LINKS>,
}

impl AutoWeights {
    /// The weights of links that carry packets, in their order. A link of unknown capacity has the mean of the known ones, so that
    /// it is tried; if none is known all are equal.
    pub(super) fn weigh(&mut self, links: &[LinkFacts]) -> ArrayVec<f64, MAX_LINKS> {
        let links = &links[..links.len().min(MAX_LINKS)];
        let known: ArrayVec<f64, MAX_LINKS> = links.iter().filter_map(bandwidth).collect();
        #[expect(clippy::cast_precision_loss, reason = "at most sixteen links")]
        let mean =
            if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let weight = |link: &LinkFacts| bandwidth(link).unwrap_or(mean);
        let least_loss = links.iter().map(|link| link.loss).reduce(f64::min).unwrap_or(0.0);
        let fast =
            links.iter().any(|link| link.capacity.is_some_and(|capacity| as_f64(capacity) > FAST));
        let thresholds = if fast { FAST_LOSS } else { SLOW_LOSS };
        let mut weights: ArrayVec<f64, MAX_LINKS> = links
            .iter()
            .map(|link| weight(link) * self.factor(link, least_loss, thresholds))
            .collect();
        // All may be left out only by mistake: then the highest bandwidth, as guideline 3 has it.
        if weights.iter().all(|weight| *weight <= 0.0)
            && let Some(best) = best(links, weight)
        {
            weights[best] = weight(&links[best]);
        }
        self.left_out.retain(|id| links.iter().any(|link| link.id == *id));
        weights
    }

    /// What guidelines 2 and 3 leave of a link's weight, 0 to 1.
    fn factor(&mut self, link: &LinkFacts, least_loss: f64, (mild, severe): (f64, f64)) -> f64 {
        let was_out = self.left_out.contains(&link.id);
        // A burst leaves no link out; one that was left out sends little and has to show that it is well.
        let loss = if was_out { link.loss } else { link.loss.min(link.lasting_loss) };
        let disparity = loss - least_loss;
        let out = disparity >= if was_out { severe * HYSTERESIS } else { severe };
        if out != was_out {
            self.left_out.retain(|id| *id != link.id);
            if out {
                // One entry a link, of as many as there may be.
                let _ = self.left_out.try_push(link.id);
            }
        }
        match out {
            true => 0.0,
            false if disparity <= mild => 1.0,
            false => (severe - disparity) / (severe - mild),
        }
    }
}

/// A link's weight in bit/s, but for what its losses take of that; `None`: unknown, or nothing.
fn bandwidth(link: &LinkFacts) -> Option<f64> {
    let least = LEAST_SHARE * link.capacity.map_or(0.0, as_f64);
    let available = as_f64(link.available.or(link.capacity)?).max(least);
    (available > 0.0).then_some(available)
}

fn best(links: &[LinkFacts], weight: impl Fn(&LinkFacts) -> f64) -> Option<usize> {
    let by_weight =
        |a: &(usize, &LinkFacts), b: &(usize, &LinkFacts)| weight(a.1).total_cmp(&weight(b.1));
    links.iter().enumerate().max_by(by_weight).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Bitrate;

    fn mbit(rate: f64) -> Bitrate {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small, positive"
        )]
        Bitrate::from_bps((rate * 1e6).round() as u64)
    }

    /// Capacity and others in Mbit/s, loss.
    fn links(of: &[(Option<f64>, f64, f64)]) -> Vec<LinkFacts> {
        let facts = |(id, &(capacity, others, loss)): (u8, &(Option<f64>, f64, f64))| LinkFacts {
            capacity: capacity.map(mbit),
            available: capacity.map(|capacity| mbit((capacity - others).max(0.0))),
            loss,
            lasting_loss: loss,
            ..LinkFacts::unknown(LinkId(id))
        };
        (0..).zip(of).map(facts).collect()
    }

    /// The weights as shares of 100.
    fn shares(of: &[(Option<f64>, f64, f64)]) -> Vec<i64> {
        let weights = AutoWeights::default().weigh(&links(of));
        let sum: f64 = weights.iter().sum();
        #[expect(clippy::cast_possible_truncation, reason = "0 to 100")]
        weights.iter().map(|weight| (100.0 * weight / sum).round() as i64).collect()
    }

    #[test]
    fn a_link_weighs_what_others_leave_of_it() {
        assert_eq!(shares(&[(Some(10.0), 0.0, 0.0), (Some(10.0), 0.0, 0.0)]), [50, 50]);
        assert_eq!(shares(&[(Some(8.0), 0.0, 0.0), (Some(2.0), 0.0, 0.0)]), [80, 20]);
        assert_eq!(shares(&[(Some(10.0), 4.0, 0.0), (Some(10.0), 8.0, 0.0)]), [75, 25]);
        assert_eq!(shares(&[(Some(10.0), 12.0, 0.0), (Some(10.0), 0.0, 0.0)]), [1, 99]);
        assert_eq!(
            shares(&[(None, 0.0, 0.0), (Some(9.0), 0.0, 0.0)]),
            [50, 50],
            "an unknown one is tried"
        );
        assert_eq!(shares(&[(None, 0.0, 0.0), (None, 0.0, 0.0), (None, 3.0, 0.0)]), [33, 33, 33]);
        assert!(AutoWeights::default().weigh(&[]).is_empty());
    }

    #[test]
    fn loss_bends_the_weights_as_the_papers_figures_say() {
        let pair = |mbit, loss| [(Some(mbit), 0.0, 0.0), (Some(mbit), 0.0, loss)];
        let table = [
            (1.0, 0.05, [50, 50]),
            (1.0, 0.1, [100, 0]),
            (10.0, 0.01, [50, 50]),
            (10.0, 0.02, [67, 33]),
            (10.0, 0.04, [100, 0]),
        ];
        for (mbit, loss, expected) in table {
            assert_eq!(shares(&pair(mbit, loss)), expected, "{mbit} Mbit/s, loss {loss}");
        }
        let slow_and_fast = [(Some(10.0), 0.0, 0.0), (Some(0.9), 0.0, 0.05)];
        assert_eq!(shares(&slow_and_fast), [100, 0], "the fastest link decides");
        let both = [(Some(10.0), 0.0, 0.2), (Some(10.0), 0.0, 0.2)];
        assert_eq!(shares(&both), [50, 50], "there is no disparity between equals");
    }

    #[test]
    fn a_link_near_the_threshold_does_not_flap() {
        let mut auto = AutoWeights::default();
        let mut used =
            |loss| auto.weigh(&links(&[(Some(1.0), 0.0, 0.0), (Some(1.0), 0.0, loss)]))[1] > 0.0;
        let seen = [0.09, 0.1, 0.09, 0.08, 0.071, 0.069, 0.09, 0.11].map(&mut used);
        assert_eq!(seen, [true, false, false, false, false, true, true, false]);
    }

    #[test]
    fn a_burst_of_losses_leaves_no_link_out() {
        let mut auto = AutoWeights::default();
        let mut pair = links(&[(Some(10.0), 0.0, 0.0), (Some(10.0), 0.0, 0.2)]);
        pair[1].lasting_loss = 0.0;
        assert_eq!(auto.weigh(&pair)[..], [10e6, 10e6]);
        pair[1].lasting_loss = 0.2;
        assert_eq!(auto.weigh(&pair)[..], [10e6, 0.0]);
        pair[1].lasting_loss = 0.0;
        assert_eq!(auto.weigh(&pair)[..], [10e6, 0.0], "it has to show that it is well");
        pair[1].loss = 0.0;
        assert_eq!(auto.weigh(&pair)[..], [10e6, 10e6]);
    }

    #[test]
    fn some_link_always_has_a_weight() {
        let mut auto = AutoWeights::default();
        let all_lossy = links(&[(Some(10.0), 0.0, 0.5), (Some(20.0), 0.0, 0.9)]);
        assert!(auto.weigh(&all_lossy)[0] > 0.0);
        let swapped = links(&[(Some(10.0), 0.0, 0.9), (Some(20.0), 0.0, 0.5)]);
        assert!(auto.weigh(&swapped).iter().any(|weight| *weight > 0.0));
        let full = links(&[(Some(0.0), 0.0, 0.0), (Some(0.0), 9.0, 0.0)]);
        assert!(auto.weigh(&full).iter().any(|weight| *weight > 0.0));
    }
}
