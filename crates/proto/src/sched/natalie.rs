//! NATALIE (He and Brassil 2007): weighted rounds ([`Weighted`]). The weights are told, or follow what others
//! leave of each link (`auto_weights.rs`); then it also sends no faster than that, so that the others keep what they have.

mod auto_weights;

use auto_weights::AutoWeights;
use ropewalk_settings::{Bitrate, NatalieSettings, Weights};

use super::facts::carrying;
use super::per_link::PerLink;
use super::{LinkFacts, LinkShare, LinkView, PacketMeta, Pick, Scheduler, Weighted};
use crate::time::Instant;
use crate::units::LinkId;

/// Weighted rounds by told or automatic weights.
#[derive(Clone, Debug)]
pub struct Natalie {
    weights: Weights,
    auto: AutoWeights,
    rounds: Weighted,
    /// What others leave of the links; empty with told weights.
    paces: PerLink<Option<Bitrate>>,
}

impl Natalie {
    /// A first round is about to begin.
    #[must_use]
    pub fn new(settings: &NatalieSettings) -> Self {
        Self {
            weights: settings.weights,
            auto: AutoWeights::default(),
            rounds: Weighted::new(settings.count, settings.when_full),
            paces: PerLink::default(),
        }
    }
}

impl Scheduler for Natalie {
    fn pick(&mut self, _now: Instant, _packet: &PacketMeta, links: &[LinkView]) -> Pick {
        self.rounds.pick(links)
    }

    fn on_sent(&mut self, _now: Instant, packet: &PacketMeta, link: LinkId) {
        self.rounds.on_sent(packet, link);
    }

    fn refresh(&mut self, links: &[LinkFacts]) {
        let carrying = carrying(links);
        match self.weights {
            Weights::Told => {
                self.rounds.refresh(links, carrying.iter().map(|link| link.weight_told));
            }
            Weights::Auto => {
                self.rounds.refresh(links, self.auto.weigh(&carrying));
                self.paces.refresh(links, carrying.iter().map(|link| link.yielding_rate));
            }
        }
    }

    fn pace(&self, link: LinkId) -> Option<Bitrate> {
        self.paces.of(link).flatten()
    }

    fn share(&self, link: LinkId) -> LinkShare {
        self.rounds.share(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two links: of the first 4 Mbit/s are left and weight 1 was told, of the second 8 and weight 3.
    fn pair() -> [LinkFacts; 2] {
        [(0, 1.0, 4), (1, 3.0, 8)].map(|(id, weight_told, mbit)| LinkFacts {
            weight_told,
            capacity: Some(Bitrate::from_bps(mbit * 1_000_000)),
            yielding_rate: Some(Bitrate::from_bps(mbit * 1_000_000)),
            ..LinkFacts::unknown(LinkId(id))
        })
    }

    #[test]
    fn weights_are_told_or_follow_what_is_left_and_only_the_latter_yield_to_others() {
        let left = |mbit: u64| Some(Bitrate::from_bps(mbit * 1_000_000));
        let table = [
            (Weights::Told, [1.0, 3.0], [None, None]),
            (Weights::Auto, [4e6, 8e6], [left(4), left(8)]),
        ];
        for (weights, shares, paces) in table {
            let mut natalie =
                Natalie::new(&NatalieSettings { weights, ..NatalieSettings::default() });
            let ids = [LinkId(0), LinkId(1)];
            assert_eq!(ids.map(|id| natalie.share(id).weight), [Some(1.0); 2], "before a look");
            natalie.refresh(&pair());
            assert_eq!(ids.map(|id| natalie.share(id).weight), shares.map(Some), "{weights:?}");
            assert_eq!(ids.map(|id| natalie.pace(id)), paces, "{weights:?}");
        }
    }
}
