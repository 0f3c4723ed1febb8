//! Weighted rounds: in each a link carries packets, or bytes, in proportion to its weight (NATALIE, He and Brassil
//! 2007 §II; BATCP, Amezcua Valdovinos et al. 2017 §3.5). The weights come from the scheduler that uses them.
//!
//! The papers send a link's whole share of a round in one block. Here the turns of a round are interleaved
//! (stride scheduling, Waldspurger 1995): the same shares, and the least reordering that they allow. Each
//! link has a *pass*, which a packet on it moves on by its cost over the link's weight; the next packet goes
//! where the pass is least. A change of any weight starts a new round: all passes are equal again.

use arrayvec::ArrayVec;
use ropewalk_settings::{Count, WhenFull};

use super::per_link::PerLink;
use super::{LinkFacts, LinkShare, LinkView, PacketMeta, Pick};
use crate::config::MAX_LINKS;
use crate::units::LinkId;

/// The most packets that a link without room is owed: what it is given first when it has room again. About
/// a window of a home link, so that one closed for long does not get all packets for long.
const MOST_CREDIT: f64 = 64.0;

/// Passes are brought back to zero beyond this, long before a double would lose a small step.
const FAR: f64 = 1e9;

/// Where a link stands in the round.
#[derive(Clone, Copy, Debug)]
struct Turn {
    id: LinkId,
    weight: f64,
    pass: f64,
}

/// Weight of a link that was never weighed: that of one of which nothing was told.
const UNWEIGHED: f64 = 1.0;

/// Weighted round-robin.
#[derive(Clone, Debug, Default)]
pub struct Weighted {
    count: Count,
    when_full: WhenFull,
    weights: PerLink<f64>,
    /// Whether the weights may be others than those of the turns.
    reweighed: bool,
    /// In the order of the links' ids.
    turns: ArrayVec<Turn, MAX_LINKS>,
}

impl Weighted {
    /// A first round is about to begin.
    #[must_use]
    pub fn new(count: Count, when_full: WhenFull) -> Self {
        Self { count, when_full, ..Self::default() }
    }

    /// The weights of the links that carry packets now, in their order: finite, not negative; 0: no packets. The others
    /// keep theirs.
    pub fn refresh(&mut self, links: &[LinkFacts], weights: impl IntoIterator<Item = f64>) {
        self.weights.refresh(links, weights);
        self.reweighed = true;
    }

    /// What it makes of a link: its weight.
    #[must_use]
    pub fn share(&self, link: LinkId) -> LinkShare {
        LinkShare { weight: Some(self.weight(link)), ..LinkShare::default() }
    }

    fn weight(&self, link: LinkId) -> f64 {
        self.weights.of(link).unwrap_or(UNWEIGHED)
    }

    /// The link whose turn it is.
    pub fn pick(&mut self, links: &[LinkView]) -> Pick {
        self.follow(links);
        match self.turn(links) {
            None => Pick::Blocked,
            Some(index) if links[index].room > 0 => Pick::Send(index),
            Some(index) => Pick::Wait(index),
        }
    }

    /// The packet went on `link`, or into its queue.
    pub fn on_sent(&mut self, packet: &PacketMeta, link: LinkId) {
        let Some(at) = self.turns.iter().position(|turn| turn.id == link) else { return };
        let cost = match self.count {
            Count::Packets => 1.0,
            #[expect(
                clippy::cast_precision_loss,
                reason = "a packet has far fewer than 2^52 bytes"
            )]
            Count::Bytes => packet.len as f64,
        };
        if self.turns[at].weight > 0.0 {
            self.advance(at, cost);
        }
    }

    /// Follows links that came or went; other weights start a new round.
    fn follow(&mut self, links: &[LinkView]) {
        let same = |(turn, link): (&Turn, &LinkView)| turn.id == link.id;
        let are_same = self.turns.len() == links.len() && self.turns.iter().zip(links).all(same);
        if are_same && !self.reweighed {
            return;
        }
        if !are_same {
            self.turns = self.turns_of(links);
        }
        self.begin_if_reweighed();
    }

    /// A turn for each link. One that came stands where the first of the others is.
    fn turns_of(&self, links: &[LinkView]) -> ArrayVec<Turn, MAX_LINKS> {
        let front = self.turns.iter().map(|turn| turn.pass).reduce(f64::min).unwrap_or(0.0);
        let turn = |link: &LinkView| {
            let known = self.turns.iter().find(|turn| turn.id == link.id).copied();
            known.unwrap_or(Turn { id: link.id, weight: self.weight(link.id), pass: front })
        };
        links.iter().take(MAX_LINKS).map(turn).collect()
    }

    /// A new round, if a weight is another.
    fn begin_if_reweighed(&mut self) {
        self.reweighed = false;
        if self.turns.iter().all(|turn| turn.weight == self.weight(turn.id)) {
            return;
        }
        for at in 0..self.turns.len() {
            let weight = self.weight(self.turns[at].id);
            (self.turns[at].weight, self.turns[at].pass) = (weight, 0.0);
        }
    }

    /// The link whose turn it is, of those that may carry the packet.
    fn turn(&self, links: &[LinkView]) -> Option<usize> {
        let may = |link: &LinkView| self.when_full == WhenFull::Wait || link.room > 0;
        let turns = self.turns.iter().zip(links).enumerate();
        let willing = turns.filter(|(_, (turn, link))| turn.weight > 0.0 && may(link));
        let least = willing.min_by(|(_, (a, _)), (_, (b, _))| a.pass.total_cmp(&b.pass));
        least.map(|(index, _)| index)
    }

    /// A link carried a packet of this cost: its pass moves on, and no other stays too far behind.
    fn advance(&mut self, at: usize, cost: f64) {
        let front = self.turns[at].pass;
        self.turns[at].pass += cost / self.turns[at].weight;
        let back = if front > FAR { front } else { 0.0 };
        for turn in &mut self.turns {
            let oldest = front - MOST_CREDIT * cost / turn.weight;
            turn.pass = turn.pass.max(oldest) - back;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link: id, room, weight.
    type Link = (u8, u32, f64);

    /// The links with their weights as of now.
    fn weighed(scheduler: &mut Weighted, links: &[Link]) -> Vec<LinkView> {
        let facts: Vec<_> = links.iter().map(|(id, ..)| LinkFacts::unknown(LinkId(*id))).collect();
        scheduler.refresh(&facts, links.iter().map(|(.., weight)| *weight));
        links.iter().map(|&(id, room, _)| LinkView::of_room(LinkId(id), room)).collect()
    }

    /// Sends packets of these lengths and says by link how many packets and bytes it carried.
    fn carried(scheduler: &mut Weighted, links: &[Link], lens: &[usize]) -> Vec<(u32, usize)> {
        let links = weighed(scheduler, links);
        let mut carried = vec![(0, 0); links.len()];
        for len in lens {
            let (Pick::Send(index) | Pick::Wait(index)) = scheduler.pick(&links) else { continue };
            scheduler.on_sent(&PacketMeta::of_len(*len), links[index].id);
            carried[index].0 += 1;
            carried[index].1 += len;
        }
        carried
    }

    fn order(scheduler: &mut Weighted, links: &[Link], count: usize) -> Vec<usize> {
        let links = weighed(scheduler, links);
        let mut order = Vec::new();
        for _ in 0..count {
            if let Pick::Send(index) = scheduler.pick(&links) {
                scheduler.on_sent(&PacketMeta::of_len(1400), links[index].id);
                order.push(index);
            }
        }
        order
    }

    #[test]
    fn packets_are_shared_in_proportion_to_the_weights_and_interleaved() {
        let mut scheduler = Weighted::default();
        let two = [(0, 9, 2.0), (1, 9, 1.0)];
        assert_eq!(order(&mut scheduler, &two, 6), [0, 1, 0, 0, 1, 0]);
        let table: [(&[f64], &[u32]); 4] = [
            (&[1.0, 1.0], &[500, 500]),
            (&[80.0, 20.0], &[800, 200]),
            (&[0.7, 0.2, 0.1], &[700, 200, 100]),
            (&[1.0, 0.0], &[1000, 0]),
        ];
        for (weights, expected) in table {
            let all: Vec<_> = (0..).zip(weights).map(|(id, weight)| (id, 9, *weight)).collect();
            let counts = carried(&mut Weighted::default(), &all, &[1400; 1000]);
            for (count, expected) in counts.iter().zip(expected) {
                assert!(count.0.abs_diff(*expected) <= 1, "{weights:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn bytes_are_shared_where_long_and_short_packets_take_turns() {
        let two = [(0, 9, 1.0), (1, 9, 1.0)];
        let lens: Vec<usize> = [1400, 60].into_iter().cycle().take(1000).collect();
        let by_packets = carried(&mut Weighted::new(Count::Packets, WhenFull::Pass), &two, &lens);
        assert_eq!(by_packets, [(500, 700_000), (500, 30_000)]);
        let by_bytes = carried(&mut Weighted::new(Count::Bytes, WhenFull::Pass), &two, &lens);
        assert!(by_bytes[0].1.abs_diff(by_bytes[1].1) <= 1400, "{by_bytes:?}");
    }

    #[test]
    fn a_full_link_passes_its_turn_and_gets_it_back_later() {
        let mut scheduler = Weighted::default();
        let (open, closed) = ([(0, 9, 1.0), (1, 9, 1.0)], [(0, 0, 1.0), (1, 9, 1.0)]);
        assert_eq!(order(&mut scheduler, &closed, 10), [1; 10]);
        let after = order(&mut scheduler, &open, 12);
        assert_eq!(after[..10], [0; 10], "ten turns are owed");
        assert_eq!(after[10..], [0, 1], "{after:?}");
    }

    #[test]
    fn a_link_closed_for_long_is_owed_a_window_and_no_more() {
        let mut scheduler = Weighted::default();
        let (open, closed) = ([(0, 9, 1.0), (1, 9, 1.0)], [(0, 0, 1.0), (1, 9, 1.0)]);
        assert_eq!(order(&mut scheduler, &closed, 5000).len(), 5000);
        let after = order(&mut scheduler, &open, 200);
        let owed = after.iter().take_while(|index| **index == 0).count();
        assert!((60..=70).contains(&owed), "{owed} turns in a row");
    }

    #[test]
    fn where_the_paper_waits_a_packet_waits_for_the_link_whose_turn_it_is() {
        let mut scheduler = Weighted::new(Count::Packets, WhenFull::Wait);
        let links = weighed(&mut scheduler, &[(0, 0, 1.0), (1, 9, 1.0)]);
        let mut picks = Vec::new();
        for _ in 0..4 {
            let pick = scheduler.pick(&links);
            assert_eq!(pick, scheduler.pick(&links), "asked again");
            let (Pick::Send(index) | Pick::Wait(index)) = pick else { continue };
            scheduler.on_sent(&PacketMeta::of_len(1400), links[index].id);
            picks.push(pick);
        }
        assert_eq!(picks, [Pick::Wait(0), Pick::Send(1), Pick::Wait(0), Pick::Send(1)]);
    }

    #[test]
    fn another_weight_starts_a_new_round() {
        let mut scheduler = Weighted::default();
        let before = [(0, 0, 1.0), (1, 9, 1.0)];
        assert_eq!(order(&mut scheduler, &before, 20).len(), 20);
        let after = [(0, 9, 1.0), (1, 9, 3.0)];
        assert_eq!(order(&mut scheduler, &after, 4), [0, 1, 1, 1], "nothing is owed from before");
    }

    #[test]
    fn links_that_come_and_go_neither_owe_nor_are_owed() {
        let mut scheduler = Weighted::default();
        let all = [(0, 9, 1.0), (1, 9, 1.0), (2, 9, 1.0)];
        let without = [(0, 9, 1.0), (2, 9, 1.0)];
        assert_eq!(order(&mut scheduler, &without, 100).len(), 100);
        let after = order(&mut scheduler, &all, 30);
        let of = |link| after.iter().filter(|index| **index == link).count();
        assert_eq!([of(0), of(1), of(2)], [10, 10, 10]);
        assert_eq!(order(&mut scheduler, &[], 3), [0; 0]);
    }

    #[test]
    fn shares_hold_after_more_packets_than_a_double_counts_exactly() {
        let mut scheduler = Weighted::default();
        let two = [(0, 9, 1e-3), (1, 9, 3e-3)];
        let views = weighed(&mut scheduler, &two);
        scheduler.follow(&views);
        for turn in &mut scheduler.turns {
            turn.pass = 2e9;
        }
        let counts = carried(&mut scheduler, &two, &[1400; 4000]);
        assert!(counts[0].0.abs_diff(1000) <= 1, "{counts:?}");
        assert!(scheduler.turns.iter().all(|turn| turn.pass < FAR));
    }
}
