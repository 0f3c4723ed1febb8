//! The order within flows against a small virtual network, seed after seed.
//!
//! A sender numbers the packets of two to five flows and stripes them over two to four links with random delays and jitter.
//! Some are lost, and some of these sent again, under their old numbers, on any link; some come twice. Some get their number and
//! leave later, so that others overtake them at the sender, as `arrival` has it. Checked:
//!
//! - nothing is delivered twice, nothing altered, and everything that arrived is delivered;
//! - within a flow the order holds, unless a deadline passed;
//! - a packet whose own flow lost nothing and was not overtaken is delivered when it arrives, whatever the others wait for;
//! - nothing is given up before those that wait for it have had the patience that `docs/RESEQUENCER.md` promises: so nothing that is
//!   under way and comes within it;
//! - without loss, with less jitter than patience, and if those that are overtaken leave within the time of a repair, nothing is
//!   given up;
//! - what waits is released within a second, and no timer spins.
//!
//! `NETLAB_SEED=n` reruns one seed, which a failure prints.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::packet::{Packet, protocol};
use ropewalk_proto::reseq::{Config, Evidence, EvidenceKind, GRANULARITY, Resequencer, Stats};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::LinkId;
use std::collections::BTreeMap;

const SEEDS: u64 = 10_000;

/// Packets sent per seed: enough for every kind of event, little enough for 10,000 seeds.
const PACKETS: u64 = 200;

/// The longest that anything waits.
const MOST: Duration = Duration::from_secs(1);

/// A packet that others overtake leaves by so much later at most.
const MOST_LATE: Duration = Duration::from_millis(150);

/// What is not TCP is delivered in bursts with pauses: all that may wait at once is gone after so long.
const PAUSES: Duration = Duration::from_millis(40);

#[test]
fn every_flow_is_in_order_and_waits_for_no_other() {
    let wanted: Option<u64> = std::env::var("NETLAB_SEED").ok().and_then(|s| s.parse().ok());
    let seeds = wanted.map_or(0..SEEDS, |seed| seed..seed + 1);
    let (mut sum, mut overtaken) = (Stats::default(), Overtaken::default());
    for seed in seeds {
        match std::panic::catch_unwind(|| World::new(seed).run()) {
            Ok((stats, of_seed)) => {
                overtaken.awaited += of_seed.awaited;
                overtaken.given_up += of_seed.given_up;
                sum.in_order += stats.in_order;
                sum.resequenced += stats.resequenced;
                sum.late += stats.late;
                sum.duplicates += stats.duplicates;
                sum.skipped_by_deadline += stats.skipped_by_deadline;
            }
            Err(panic) => {
                println!("failed with NETLAB_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{sum:?}, {overtaken:?}");
    if wanted.is_none() {
        // The test would be empty if these did not happen.
        for (what, count) in [
            ("in order", sum.in_order),
            ("resequenced", sum.resequenced),
            ("late", sum.late),
            ("duplicates", sum.duplicates),
            ("by deadline", sum.skipped_by_deadline),
            ("overtaken, and awaited until they came", overtaken.awaited),
            ("overtaken, and given up", overtaken.given_up),
        ] {
            assert!(count > 1_000, "{what}: only {count}");
        }
    }
}

struct Link {
    delay: Duration,
    jitter_us: u64,
    next_local: u64,
    /// How long the last that came took, µs, by clocks that differ.
    latest_us: Option<i64>,
}

/// What became of packets that left late.
#[derive(Default, Debug)]
struct Overtaken {
    /// Others of their flow waited for them when they came.
    awaited: u64,
    given_up: u64,
}

/// A packet that was sent.
struct Sent {
    flow: usize,
    /// The packets before and behind it of its flow.
    before: Option<u64>,
    behind: Option<u64>,
    /// Others may have overtaken it at the sender.
    is_late: bool,
    /// When it came first, if it did, and until when it waits for others, at least.
    came: Option<Instant>,
    patient_until: Option<Instant>,
    /// When it was delivered, and as which of all.
    delivered: Option<(Instant, usize)>,
}

/// What is on its way: when it was sent, the link and the number there, the packet.
struct UnderWay {
    sent: Instant,
    link: usize,
    local: u64,
    global: u64,
}

struct World {
    rng: SmallRng,
    now: Instant,
    links: Vec<Link>,
    /// Whether packets are lost, sent again, or come twice.
    disturbed: bool,
    /// Whether some leave late.
    overtakes: bool,
    /// What it takes to send a packet again, as the receiver was told.
    repair_time: Duration,
    /// The newest packet of each flow.
    flows: Vec<Option<u64>>,
    packets: Vec<Sent>,
    under_way: BTreeMap<(Instant, u64), UnderWay>,
    planned: u64,
    delivered: usize,
    /// Numbers for which something waited in vain, and until when at least.
    given_up: BTreeMap<u64, Instant>,
    overtaken: Overtaken,
    reseq: Resequencer,
}

/// What was delivered in one step.
#[derive(Default)]
struct Out(Vec<u64>);

impl PacketSink for Out {
    fn deliver(&mut self, packet: Packet<'_>) {
        let global =
            u64::from_be_bytes(packet.bytes[10..18].try_into().expect("a number stands there"));
        assert_eq!(packet.bytes, contents(global, packet.bytes[9] == protocol::TCP), "altered");
        self.0.push(global);
    }
}

/// Where a number's packet is among all that were sent.
fn place(global: u64) -> usize {
    usize::try_from(global).expect("few")
}

/// Every other flow is TCP.
fn is_tcp(flow: usize) -> bool {
    flow.is_multiple_of(2)
}

/// A packet whose length and bytes follow from its number, and its protocol from its flow.
fn contents(global: u64, is_tcp: bool) -> Vec<u8> {
    let protocol = if is_tcp { protocol::TCP } else { protocol::UDP };
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 0, protocol];
    bytes.extend_from_slice(&global.to_be_bytes());
    let length = bytes.len() + usize::try_from(global % 37).expect("small");
    bytes.resize(length, u8::try_from(global % 251).expect("small"));
    bytes
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut reseq = Resequencer::new(Config::default(), 0);
        let links = (0..rng.random_range(2..=4_u8)).map(|id| {
            reseq.link_added(LinkId(id), 0);
            Link {
                delay: Duration::from_micros(rng.random_range(500..80_000)),
                // Less than what is granted before anything is known of a link, and added to every deadline.
                jitter_us: rng.random_range(1..5_000),
                next_local: 0,
                latest_us: None,
            }
        });
        let links = links.collect();
        let repair_time = Duration::from_millis([0, 30, 2_000][rng.random_range(0..3)]);
        reseq.set_repair_time(repair_time);
        let (disturbed, flows) = (rng.random_bool(0.7), vec![None; rng.random_range(2..=5)]);
        let overtakes = rng.random_bool(0.5);
        Self {
            rng,
            now: Instant::from_millis(1),
            links,
            disturbed,
            overtakes,
            repair_time,
            flows,
            packets: Vec::new(),
            under_way: BTreeMap::new(),
            planned: 0,
            delivered: 0,
            given_up: BTreeMap::new(),
            overtaken: Overtaken::default(),
            reseq,
        }
    }

    fn run(mut self) -> (Stats, Overtaken) {
        for _ in 0..PACKETS {
            self.now += Duration::from_micros(self.rng.random_range(0..4_000));
            self.receive_until(self.now);
            self.send();
        }
        self.receive_until(Instant::from_nanos(u64::MAX));
        let stats = self.reseq.stats();
        self.check(&stats);
        (stats, self.overtaken)
    }

    fn send(&mut self) {
        let flow = self.rng.random_range(0..self.flows.len());
        let global = self.packets.len() as u64;
        let before = self.flows[flow].replace(global);
        if let Some(before) = before {
            self.packets[place(before)].behind = Some(global);
        }
        let late = self.lateness();
        self.packets.push(Sent {
            flow,
            before,
            behind: None,
            is_late: late > Duration::ZERO,
            came: None,
            patient_until: None,
            delivered: None,
        });
        let lost = self.disturbed && self.rng.random_bool(0.05);
        if !lost {
            self.put(global, self.now + late);
        }
        // Sent again: what was lost, or taken for lost.
        if self.disturbed && self.rng.random_bool(if lost { 0.6 } else { 0.03 }) {
            let later = Duration::from_micros(self.rng.random_range(1_000..200_000));
            self.put(global, self.now + later);
        }
    }

    /// By how much later than its number says a packet leaves. Where nothing else disturbs it is less than a repair takes: so long
    /// everybody waits for what is overtaken.
    fn lateness(&mut self) -> Duration {
        if !self.overtakes || !self.rng.random_bool(0.1) {
            return Duration::ZERO;
        }
        let most = if self.disturbed { MOST_LATE } else { MOST_LATE.min(self.repair_time) };
        let most_us = u64::try_from(most.as_micros()).expect("short");
        Duration::from_micros(self.rng.random_range(0..most_us.max(1)))
    }

    fn put(&mut self, global: u64, sent: Instant) {
        let place = self.rng.random_range(0..self.links.len());
        let link = &mut self.links[place];
        let jitter = Duration::from_micros(self.rng.random_range(0..link.jitter_us));
        let (at, local) = (sent + link.delay + jitter, link.next_local);
        link.next_local += 1;
        self.under_way.insert((at, self.planned), UnderWay { sent, link: place, local, global });
        self.planned += 1;
    }

    fn receive_until(&mut self, end: Instant) {
        loop {
            let next = self.under_way.keys().next().copied().filter(|(at, _)| *at <= end);
            let due = self.reseq.poll_timeout().filter(|due| *due <= end);
            let mut out = Out::default();
            match (next, due) {
                (None, None) => return,
                (Some(key), due) if due.is_none_or(|due| key.0 <= due) => {
                    self.arrive(key, &mut out);
                    self.note(key.0, &out, false);
                }
                (_, Some(due)) => {
                    self.reseq.handle_timeout(due, &mut out);
                    let spins = self.reseq.poll_timeout().is_some_and(|next| next <= due);
                    assert!(!spins, "a timer that spins");
                    self.note(due, &out, true);
                }
                (Some(_), None) => unreachable!("taken by the guard above"),
            }
        }
    }

    fn arrive(&mut self, key: (Instant, u64), out: &mut Out) {
        let UnderWay { sent, link, local, global } =
            self.under_way.remove(&key).expect("the caller has seen it");
        let now = key.0;
        let Sent { flow, before, behind, is_late, came, .. } = self.packets[place(global)];
        if is_late && came.is_none() && behind.is_some_and(|behind| self.waits(behind)) {
            self.overtaken.awaited += 1;
        }
        let bytes = contents(global, is_tcp(flow));
        let sent_us = i64::try_from(sent.as_micros()).expect("short") - 77_000_000;
        let arrival = Evidence {
            link: LinkId(u8::try_from(link).expect("few")),
            local,
            sent_us,
            global,
            kind: EvidenceKind::FlowData { prev_of_flow: before },
        };
        self.reseq.offer(now, &arrival, Packet::whole(&bytes), out);
        let delay_us = i64::try_from(now.as_micros()).expect("short") - sent_us;
        self.links[link].latest_us = Some(delay_us);
        if came.is_none() {
            let patient_until = Some(now + self.patience(delay_us));
            let packet = &mut self.packets[place(global)];
            (packet.came, packet.patient_until) = (Some(now), patient_until);
        }
    }

    /// How long a packet that took so long waits for others, as the documents say: by so much the slowest link is slower, with four
    /// variations of its delay, 5 ms, and what a repair takes. At least: of a link's delay only the latest is looked at.
    fn patience(&self, delay_us: i64) -> Duration {
        let worst_us = (0..).zip(&self.links).filter_map(|(id, link)| {
            let variation = self.reseq.delay_variation(LinkId(id))?;
            let variation_us = i64::try_from(variation.as_micros()).expect("short");
            Some(link.latest_us? + 4 * variation_us)
        });
        let spread_us = worst_us.max().map_or(0, |worst_us| (worst_us - delay_us).max(0));
        let spread = Duration::from_micros(spread_us.unsigned_abs()) + GRANULARITY;
        let most = Config::default().settings.max_wait;
        (spread.min(most) + self.repair_time).min(MOST)
    }

    /// Whether a packet has come and was not delivered.
    fn waits(&self, global: u64) -> bool {
        let packet = &self.packets[place(global)];
        packet.came.is_some() && packet.delivered.is_none()
    }

    /// Until when this packet and those that wait in a row behind it are patient: the first whose patience ends speaks for all.
    fn patient_until(&self, global: u64) -> Instant {
        let first = &self.packets[place(global)];
        let mut until = first.patient_until.expect("it has come");
        let mut behind = first.behind;
        while let Some(next) = behind.filter(|next| self.waits(*next)) {
            let packet = &self.packets[place(next)];
            until = until.min(packet.patient_until.expect("it has come"));
            behind = packet.behind;
        }
        until
    }

    /// These were delivered, because of a deadline or an arrival.
    fn note(&mut self, now: Instant, out: &Out, timed_out: bool) {
        for global in &out.0 {
            let packet = &mut self.packets[place(*global)];
            assert!(packet.came.is_some(), "{global} from nowhere");
            let delivered = (now, self.delivered);
            assert!(packet.delivered.replace(delivered).is_none(), "{global} twice");
            self.delivered += 1;
            let Some(before) = packet.before else { continue };
            let skips = self.packets[place(before)].delivered.is_none();
            // One that was given up itself waits for nothing.
            let is_known = [*global, before].iter().any(|one| self.given_up.contains_key(one));
            if skips && !is_known {
                assert!(timed_out, "{global} did not wait for {before}");
                let until = self.patient_until(*global);
                assert!(now >= until, "{before} was given up at {now:?}, before {until:?}");
                self.given_up.insert(before, until);
                self.overtaken.given_up += u64::from(self.packets[place(before)].is_late);
            }
        }
    }

    fn check(&self, stats: &Stats) {
        assert_eq!((stats.held, stats.held_bytes, stats.too_old), (0, 0, 0));
        let lossless = self.packets.iter().all(|packet| packet.came.is_some());
        if !self.disturbed {
            assert!(lossless);
            assert_eq!((stats.skipped_by_deadline, stats.late), (0, 0), "nothing was late");
        }
        // By flow: what came of it so far, and when the last of that was to be delivered.
        let mut complete = vec![Some(Instant::ZERO); self.flows.len()];
        for (global, packet) in self.packets.iter().enumerate() {
            assert_eq!(packet.came.is_some(), packet.delivered.is_some(), "{global}");
            let Some((came, (delivered, _))) = packet.came.zip(packet.delivered) else {
                complete[packet.flow] = None;
                continue;
            };
            let pauses = if is_tcp(packet.flow) { Duration::ZERO } else { PAUSES };
            let longest = MOST + pauses;
            assert!(
                delivered >= came && delivered.since(came) <= longest,
                "{global} waited too long"
            );
            // While the flow is complete a packet goes when it and all before it have come; it may go sooner, if a
            // deadline passed.
            complete[packet.flow] = complete[packet.flow].map(|before| before.max(came));
            if let Some(at) = complete[packet.flow] {
                assert!(delivered <= at + pauses, "{global} waited for another flow");
            }
        }
        assert_eq!(stats.skipped_by_deadline, self.given_up.len() as u64);
        for (number, until) in &self.given_up {
            let in_time = self.packets[place(*number)].came.is_some_and(|came| came <= *until);
            assert!(!in_time, "{number} was under way and came in time");
        }
        // From the end: the first that was delivered of those behind, by flow. A packet behind that is out of order: it, or one
        // behind it, was given up.
        let mut first = vec![usize::MAX; self.flows.len()];
        let mut gave_up = vec![false; self.flows.len()];
        for (global, packet) in self.packets.iter().enumerate().rev() {
            gave_up[packet.flow] |= self.given_up.contains_key(&(global as u64));
            if let Some((_, place)) = packet.delivered {
                let in_order = place < first[packet.flow];
                assert!(in_order || gave_up[packet.flow], "{global} is out of order");
                first[packet.flow] = first[packet.flow].min(place);
            }
        }
    }
}
