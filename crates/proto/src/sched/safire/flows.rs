//! The flow table: which link each active flow is on, and how many flows each link has (seed 002 §II-A).
//!
//! The paper sets an activity counter to a predefined value when a flow begins, adds one for each packet, and
//! is silent about what ends it. Here:
//!
//! | what | the counter |
//! | --- | --- |
//! | first packet | [`START`] |
//! | each further packet | one more, at most [`MOST`] |
//! | every [`DECAY`] | halved; at zero the flow is over and its entry is free |
//! | FIN or RST seen | stays, but the flow no longer counts among its link's: what it still sends is little |
//! | SYN seen on it | a new flow with old ports: it counts again |
//!
//! So a flow of one packet is remembered for 4 s of silence and a busy one for 7; then nothing of it is
//! under way, and it may begin anew on another link.
//!
//! The table is set-associative: a flow's key names a set of [`WAYS`] entries. In a full set the entry with the least
//! activity gives way, which is counted. Memory is taken by the set, when it is first used.

use crate::packet::{FlowKey, Fragment, PacketView, protocol};
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// Counter of a new flow.
const START: u8 = 8;

/// The counter's bound.
const MOST: u8 = 64;

/// Between two halvings.
const DECAY: Duration = Duration::from_secs(1);

/// Entries that share a set.
const WAYS: usize = 8;

/// Sets: 32,768 flows, about what the NAT of a home router holds.
const SETS: usize = 4096;

/// A flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its key.
    pub key: FlowKey,
    /// Its link.
    pub link: LinkId,
    /// Its activity counter: 0 is an entry without a flow.
    pub activity: u8,
    /// Whether it counts among its link's active flows: not after FIN or RST.
    pub counted: bool,
}

const EMPTY: Flow = Flow { key: FlowKey(0), link: LinkId(0), activity: 0, counted: false };

/// What a TCP segment says of its flow's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Life {
    /// Nothing; also every packet that is not TCP.
    #[default]
    Goes,
    /// SYN.
    Begins,
    /// FIN or RST.
    Ends,
}

impl Life {
    /// Bits of the flags in a TCP header (RFC 9293 §3.1).
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;

    /// What a packet says. A fragment says nothing: its flow has no ports.
    #[must_use]
    pub fn of(packet: &PacketView<'_>) -> Self {
        let whole = packet.protocol() == protocol::TCP && packet.fragment() == Fragment::Whole;
        match packet.transport().get(13).filter(|_| whole) {
            Some(flags) if flags & (Self::FIN | Self::RST) != 0 => Self::Ends,
            Some(flags) if flags & Self::SYN != 0 => Self::Begins,
            _ => Self::Goes,
        }
    }
}

/// The table.
#[derive(Clone, Debug)]
pub struct FlowTable {
    sets: Vec<Option<Box<[Flow; WAYS]>>>,
    /// Active flows that count, by link id.
    counted: Box<[u32; 256]>,
    decayed: Instant,
    /// Flows that gave way to others while active.
    pub displaced: u64,
}

impl FlowTable {
    /// No flows.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let sets = std::iter::repeat_with(|| None).take(SETS).collect();
        Self { sets, counted: Box::new([0; 256]), decayed: now, displaced: 0 }
    }

    /// The link of an active flow.
    #[must_use]
    pub fn link(&self, key: FlowKey) -> Option<LinkId> {
        let set = self.sets[place(key)].as_ref()?;
        set.iter().find(|flow| flow.activity > 0 && flow.key == key).map(|flow| flow.link)
    }

    /// Active flows that count on a link.
    #[must_use]
    pub fn on(&self, link: LinkId) -> u32 {
        self.counted[usize::from(link.0)]
    }

    /// A packet of the flow went on `link`.
    pub fn note(&mut self, key: FlowKey, link: LinkId, life: Life) {
        let set = self.sets[place(key)].get_or_insert_with(|| Box::new([EMPTY; WAYS]));
        let known = set.iter().position(|flow| flow.activity > 0 && flow.key == key);
        let way = known.unwrap_or_else(|| least_active(set));
        let before = set[way];
        let (activity, counted) = match known {
            Some(_) => (before.activity.saturating_add(1).min(MOST), before.counted),
            None => (START, true),
        };
        let counted = match life {
            Life::Goes => counted,
            Life::Begins => true,
            Life::Ends => false,
        };
        set[way] = Flow { key, link, activity, counted };
        self.displaced += u64::from(known.is_none() && before.activity > 0);
        self.uncount(before);
        self.counted[usize::from(link.0)] += u32::from(counted);
    }

    /// Halves the counters if it is time.
    pub fn decay(&mut self, now: Instant) {
        let periods = now.since(self.decayed).as_secs() / DECAY.as_secs();
        if periods == 0 {
            return;
        }
        self.decayed += DECAY * u32::try_from(periods).unwrap_or(u32::MAX);
        let shift = u32::try_from(periods).unwrap_or(u32::MAX);
        for at in 0..self.sets.len() {
            let Some(set) = &mut self.sets[at] else { continue };
            let mut ended = [EMPTY; WAYS];
            for (flow, ended) in set.iter_mut().zip(&mut ended) {
                let activity = flow.activity.checked_shr(shift).unwrap_or(0);
                if activity == 0 {
                    *ended = std::mem::replace(flow, EMPTY);
                }
                flow.activity = activity;
            }
            if set.iter().all(|flow| flow.activity == 0) {
                self.sets[at] = None;
            }
            ended.into_iter().for_each(|flow| self.uncount(flow));
        }
    }

    /// The active flows.
    pub fn iter(&self) -> impl Iterator<Item = &Flow> {
        let flows = self.sets.iter().flatten().flat_map(|set| set.iter());
        flows.filter(|flow| flow.activity > 0)
    }

    fn uncount(&mut self, flow: Flow) {
        let counts = flow.activity > 0 && flow.counted;
        let count = &mut self.counted[usize::from(flow.link.0)];
        *count = count.saturating_sub(u32::from(counts));
    }
}

/// The entry that gives way: a free one, else that with the least activity.
fn least_active(set: &[Flow; WAYS]) -> usize {
    let ways = set.iter().enumerate();
    ways.min_by_key(|(_, flow)| flow.activity).map_or(0, |(way, _)| way)
}

fn place(key: FlowKey) -> usize {
    usize::try_from(key.0 % SETS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_flow_is_remembered_for_seconds_of_silence_and_longer_if_it_was_busy() {
        let mut table = FlowTable::new(Instant::ZERO);
        let (short, busy) = (FlowKey(1), FlowKey(2));
        table.note(short, LinkId(0), Life::Goes);
        (0..1000).for_each(|_| table.note(busy, LinkId(1), Life::Goes));
        let mut over = [None; 2];
        for second in 1..=10 {
            table.decay(Instant::ZERO + SECOND * second);
            for (over, key) in over.iter_mut().zip([short, busy]) {
                if table.link(key).is_none() {
                    over.get_or_insert(second);
                }
            }
        }
        assert_eq!(over, [Some(4), Some(7)]);
        assert_eq!((table.on(LinkId(0)), table.on(LinkId(1)), table.iter().count()), (0, 0, 0));
        assert!(table.sets.iter().all(Option::is_none), "memory is given back");
    }

    #[test]
    fn a_flow_that_ended_keeps_its_link_and_no_longer_counts_until_its_ports_are_used_again() {
        let mut table = FlowTable::new(Instant::ZERO);
        for (life, count) in [
            (Life::Begins, 1),
            (Life::Goes, 1),
            (Life::Ends, 0),
            (Life::Goes, 0),
            (Life::Begins, 1),
        ] {
            table.note(FlowKey(9), LinkId(3), life);
            assert_eq!((table.link(FlowKey(9)), table.on(LinkId(3))), (Some(LinkId(3)), count));
        }
    }

    #[test]
    fn a_hundred_thousand_flows_are_held_within_bounds_and_the_least_active_go_first() {
        let mut table = FlowTable::new(Instant::ZERO);
        let busy: Vec<_> = (0..100u64).map(|n| FlowKey(n * 7919)).collect();
        for _ in 0..50 {
            busy.iter().for_each(|key| table.note(*key, LinkId(0), Life::Goes));
        }
        for n in 1..=100_000u64 {
            table.note(FlowKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)), LinkId(1), Life::Goes);
        }
        let held = table.iter().count();
        assert!(held <= SETS * WAYS, "{held}");
        assert_eq!(held as u64 + table.displaced, 100_100);
        assert!(busy.iter().all(|key| table.link(*key) == Some(LinkId(0))));
        assert_eq!(table.on(LinkId(1)) as usize, held - 100);
    }

    proptest! {
        #[test]
        fn the_count_of_each_link_is_always_that_of_its_flows(
            steps in proptest::collection::vec((0..40u64, 0..4u8, 0..3u8, 0..900u64), 1..400),
        ) {
            let mut table = FlowTable::new(Instant::ZERO);
            let mut now = Instant::ZERO;
            for (key, link, life, millis) in steps {
                let life = [Life::Goes, Life::Begins, Life::Ends][usize::from(life)];
                // Many keys in few sets, so that flows displace each other.
                table.note(FlowKey(key / 20 + key % 20 * SETS as u64), LinkId(link), life);
                now += Duration::from_millis(millis);
                table.decay(now);
                for link in 0..4 {
                    let own = table.iter().filter(|flow| flow.link == LinkId(link) && flow.counted);
                    prop_assert_eq!(table.on(LinkId(link)) as usize, own.count());
                }
            }
        }
    }
}
