//! The flow table: which link each active flow is on, and how many flows each link has (Mark and Zhang 2007 §II-A).
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
//! under way, and it may begin again on another link.
//!
//! The table is set-associative: a flow's key names a set of [`WAYS`] entries. In a full set the entry with the least
//! activity gives way, of several that which was silent for longest, and is counted. Memory is taken by the set,
//! when it is first used: at most about 2 MB.

use crate::packet::{FiveTuple, FlowKey, Fragment, PacketView, protocol};
use crate::sched::PacketMeta;
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

/// Flows that the table holds at most.
pub const CAPACITY: usize = SETS * WAYS;

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
    /// The table's count of packets at its last one, modulo 2^32: which of two was silent for longer.
    used: u32,
}

const EMPTY: Flow = Flow { key: FlowKey(0), link: LinkId(0), activity: 0, counted: false, used: 0 };

/// Flows that share a place. Their names are apart: only people look at them.
#[derive(Clone, Copy, Debug)]
struct Set {
    flows: [Flow; WAYS],
    tuples: [FiveTuple; WAYS],
}

const EMPTY_SET: Set = Set { flows: [EMPTY; WAYS], tuples: [FiveTuple::UNKNOWN; WAYS] };

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
    sets: Vec<Option<Box<Set>>>,
    /// Active flows that count, by link id.
    counted: Box<[u32; 256]>,
    decayed: Instant,
    /// Active flows, counted or not.
    held: usize,
    /// Packets so far, modulo 2^32.
    packets: u32,
    /// Flows that gave way to others while active.
    pub displaced: u64,
}

impl FlowTable {
    /// No flows.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let sets = std::iter::repeat_with(|| None).take(SETS).collect();
        let counted = Box::new([0; 256]);
        Self { sets, counted, decayed: now, held: 0, packets: 0, displaced: 0 }
    }

    /// The link of an active flow.
    #[must_use]
    pub fn link(&self, key: FlowKey) -> Option<LinkId> {
        let set = self.sets[place(key)].as_ref()?;
        set.flows.iter().find(|flow| flow.activity > 0 && flow.key == key).map(|flow| flow.link)
    }

    /// Active flows that count on a link.
    #[must_use]
    pub fn on(&self, link: LinkId) -> u32 {
        self.counted[usize::from(link.0)]
    }

    /// A packet of a flow went on `link`.
    pub fn note(&mut self, packet: &PacketMeta, link: LinkId) {
        let (key, used) = (packet.flow, self.packets);
        self.packets = used.wrapping_add(1);
        let set = self.sets[place(key)].get_or_insert_with(|| Box::new(EMPTY_SET));
        let known = set.flows.iter().position(|flow| flow.activity > 0 && flow.key == key);
        let way = known.unwrap_or_else(|| least_active(&set.flows, used));
        let before = set.flows[way];
        let (activity, counted) = match known {
            Some(_) => (before.activity.saturating_add(1).min(MOST), before.counted),
            None => (START, true),
        };
        let counted = match packet.life {
            Life::Goes => counted,
            Life::Begins => true,
            Life::Ends => false,
        };
        set.flows[way] = Flow { key, link, activity, counted, used };
        if known.is_none() {
            set.tuples[way] = packet.tuple;
            self.displaced += u64::from(before.activity > 0);
            self.held += usize::from(before.activity == 0);
        }
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
            for (flow, ended) in set.flows.iter_mut().zip(&mut ended) {
                let activity = flow.activity.checked_shr(shift).unwrap_or(0);
                if activity == 0 {
                    *ended = std::mem::replace(flow, EMPTY);
                }
                flow.activity = activity;
            }
            if set.flows.iter().all(|flow| flow.activity == 0) {
                self.sets[at] = None;
            }
            for flow in ended {
                self.held -= usize::from(flow.activity > 0);
                self.uncount(flow);
            }
        }
    }

    /// Active flows, those that no longer count among their link's too.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// The active flows, with what people know them by.
    pub fn iter(&self) -> impl Iterator<Item = (&Flow, &FiveTuple)> {
        let sets = self.sets.iter().flatten();
        let flows = sets.flat_map(|set| set.flows.iter().zip(&set.tuples));
        flows.filter(|(flow, _)| flow.activity > 0)
    }

    /// The most active flows, at most so many: of equal ones first those that sent last.
    #[must_use]
    pub fn most_active(&self, most: usize) -> Vec<(Flow, FiveTuple)> {
        let order = |(flow, _): &(&Flow, &FiveTuple)| {
            (std::cmp::Reverse(flow.activity), self.packets.wrapping_sub(flow.used))
        };
        let mut flows: Vec<_> = self.iter().collect();
        if most < flows.len() {
            flows.select_nth_unstable_by_key(most, order);
            flows.truncate(most);
        }
        flows.sort_unstable_by_key(order);
        flows.into_iter().map(|(flow, tuple)| (*flow, *tuple)).collect()
    }

    fn uncount(&mut self, flow: Flow) {
        let counts = flow.activity > 0 && flow.counted;
        let count = &mut self.counted[usize::from(flow.link.0)];
        *count = count.saturating_sub(u32::from(counts));
    }
}

/// The entry that gives way: a free one, else that with the least activity, else that which was silent for longest.
fn least_active(flows: &[Flow; WAYS], packets: u32) -> usize {
    let silent = |flow: &Flow| packets.wrapping_sub(flow.used);
    let ways = flows.iter().enumerate();
    ways.min_by_key(|(_, flow)| (flow.activity, std::cmp::Reverse(silent(flow))))
        .map_or(0, |(way, _)| way)
}

fn place(key: FlowKey) -> usize {
    usize::try_from(key.0 % SETS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn note(table: &mut FlowTable, flow: FlowKey, link: LinkId, life: Life) {
        table.note(&PacketMeta { flow, life, ..PacketMeta::of_len(1400) }, link);
    }

    fn scattered(n: u64) -> FlowKey {
        FlowKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn a_flow_is_remembered_for_seconds_of_silence_and_longer_if_it_was_busy() {
        let mut table = FlowTable::new(Instant::ZERO);
        let (short, busy) = (FlowKey(1), FlowKey(2));
        note(&mut table, short, LinkId(0), Life::Goes);
        (0..1000).for_each(|_| note(&mut table, busy, LinkId(1), Life::Goes));
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
            note(&mut table, FlowKey(9), LinkId(3), life);
            assert_eq!((table.link(FlowKey(9)), table.on(LinkId(3))), (Some(LinkId(3)), count));
        }
    }

    #[test]
    fn a_hundred_thousand_flows_are_held_within_bounds_and_the_least_active_go_first() {
        let mut table = FlowTable::new(Instant::ZERO);
        let busy: Vec<_> = (0..100u64).map(|n| FlowKey(n * 7919)).collect();
        for _ in 0..50 {
            busy.iter().for_each(|key| note(&mut table, *key, LinkId(0), Life::Goes));
        }
        for n in 1..=100_000u64 {
            note(&mut table, scattered(n), LinkId(1), Life::Goes);
        }
        let held = table.iter().count();
        assert_eq!(held, table.held());
        assert!(held <= CAPACITY, "{held}");
        assert_eq!(held as u64 + table.displaced, 100_100);
        assert!(busy.iter().all(|key| table.link(*key) == Some(LinkId(0))));
        assert_eq!(table.on(LinkId(1)) as usize, held - 100);
    }

    #[test]
    fn of_flows_equally_active_the_longest_silent_go_first() {
        let mut table = FlowTable::new(Instant::ZERO);
        // The count of packets wraps on the way.
        table.packets = u32::MAX - 50_000;
        for n in 0..100_000 {
            note(&mut table, scattered(n), LinkId(1), Life::Goes);
        }
        let mut newer = vec![0; SETS];
        for n in (0..100_000).rev() {
            let newer = &mut newer[place(scattered(n))];
            assert_eq!(table.link(scattered(n)).is_some(), *newer < WAYS, "flow {n}");
            *newer += 1;
        }
    }

    #[test]
    fn the_most_active_flows_are_told_of_first_and_no_more_than_asked_for() {
        let mut table = FlowTable::new(Instant::ZERO);
        for n in 1..=20 {
            (0..=n % 4).for_each(|_| note(&mut table, FlowKey(n), LinkId(0), Life::Goes));
        }
        let keys = |most| {
            let flows = table.most_active(most);
            flows.iter().map(|(flow, _)| flow.key.0).collect::<Vec<_>>()
        };
        assert_eq!(keys(7), [19, 15, 11, 7, 3, 18, 14]);
        assert_eq!(keys(0), [0; 0]);
        assert_eq!(keys(usize::MAX).len(), 20);
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
                let key = FlowKey(key / 20 + key % 20 * SETS as u64);
                note(&mut table, key, LinkId(link), life);
                now += Duration::from_millis(millis);
                table.decay(now);
                for link in 0..4 {
                    let own = |flow: &Flow| flow.link == LinkId(link) && flow.counted;
                    let own = table.iter().filter(|(flow, _)| own(flow));
                    prop_assert_eq!(table.on(LinkId(link)) as usize, own.count());
                }
                prop_assert_eq!(table.held(), table.iter().count());
            }
        }
    }
}
