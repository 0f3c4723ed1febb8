//! The resequencer against a small virtual network and a reference model, seed after seed.
//!
//! A sender stripes packets over two to four links with random delays, loss and outages; datagrams
//! without data are lost like any other; links idle, join, leave, fall and rise. (A rekey changes
//! nothing here: numbers go on.) The model knows what is under way. Checked after every event:
//!
//! - a packet in flight on a link that is waited for is never skipped by proof;
//! - nothing is delivered twice, nothing altered, everything that arrived is delivered;
//! - the order is kept unless a packet was late, which only a deadline, a full buffer or a link that is
//!   not waited for can make it;
//! - memory is bounded, and no timer spins.
//!
//! `NETLAB_SEED=n` reruns one seed, which a failure prints.

#![expect(clippy::print_stdout, reason = "a failing seed is printed to be run again")]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::link::reordering::Tolerance;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::reseq::{Config, Evidence, EvidenceKind, Resequencer, Stats};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::Resequencer as Settings;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 10_000;

/// Datagrams sent per seed: enough for every kind of event, little enough for 10,000 seeds.
const DATAGRAMS: u32 = 250;

/// A time that does not come.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

#[test]
fn what_is_in_flight_is_never_skipped_by_proof() {
    run_all("links in order", |_| Tolerance::default());
}

#[test]
fn what_a_link_reorders_within_its_tolerance_is_never_skipped_by_proof() {
    run_all("links that reorder", |rng| Tolerance {
        distance: rng.random_range(0..12),
        lateness: Duration::from_micros(rng.random_range(0..3) * rng.random_range(100..20_000)),
    });
}

fn run_all(name: &str, tolerance: fn(&mut SmallRng) -> Tolerance) {
    let wanted: Option<u64> = std::env::var("NETLAB_SEED").ok().and_then(|s| s.parse().ok());
    let seeds = wanted.map_or(0..SEEDS, |seed| seed..seed + 1);
    let mut sum = Sum::default();
    for seed in seeds {
        let run = || {
            let mut rng = SmallRng::seed_from_u64(seed);
            let tolerance = tolerance(&mut rng);
            World::new(rng, tolerance).run()
        };
        match std::panic::catch_unwind(run) {
            Ok(stats) => sum.add(&stats),
            Err(panic) => {
                println!("{name}: failed with NETLAB_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{name}: {sum:?}");
    if wanted.is_none() {
        // The test would be empty if these did not happen.
        for (what, count) in [
            ("in order", sum.in_order),
            ("resequenced", sum.resequenced),
            ("late", sum.late),
            ("by proof", sum.by_proof),
            ("by deadline", sum.by_deadline),
            ("by full buffer", sum.by_full),
        ] {
            assert!(count > 1_000, "{what}: only {count}");
        }
    }
}

/// What happened in all seeds.
#[derive(Default, Debug)]
struct Sum {
    in_order: u64,
    resequenced: u64,
    late: u64,
    by_proof: u64,
    by_deadline: u64,
    by_full: u64,
}

impl Sum {
    fn add(&mut self, stats: &Stats) {
        self.in_order += stats.in_order;
        self.resequenced += stats.resequenced;
        self.late += stats.late;
        self.by_proof += stats.skipped_by_proof;
        self.by_deadline += stats.skipped_by_deadline;
        self.by_full += stats.skipped_by_full;
    }
}

/// What the sender knows of a link, and what the network does to it.
struct Link {
    id: LinkId,
    next_local: u64,
    last_data: Option<u64>,
    delay: Duration,
    jitter_us: u64,
    loss: f64,
    outage_until: Instant,
    reordering: Reordering,
    /// Carries no packets, only marks.
    idle: bool,
    /// Not yet left.
    sends: bool,
}

/// What happens to the receiver.
enum Happening {
    Datagram(Evidence),
    Leave(LinkId, Option<u64>),
}

/// The sender, the network and the receiver.
struct World {
    rng: SmallRng,
    tolerance: Tolerance,
    now: Instant,
    links: Vec<Link>,
    next_id: u8,
    next_global: u64,
    /// By time, then in the order of planning.
    happenings: BTreeMap<(Instant, u64), Happening>,
    planned: u64,
    config: Config,
    reseq: Resequencer,
    model: Model,
}

/// What may be delivered, and what must not be skipped.
#[derive(Default)]
struct Model {
    /// Packets in flight (not lost) by number, and the link they are on.
    in_flight: BTreeMap<u64, LinkId>,
    /// Links that are waited for, and until when.
    awaited: BTreeMap<LinkId, Instant>,
    delivered: BTreeSet<u64>,
    arrived: BTreeSet<u64>,
    /// The packet being offered: the only one that may be delivered out of order.
    in_hand: Option<u64>,
    highest: Option<u64>,
    disorder: u64,
}

impl PacketSink for Model {
    fn deliver(&mut self, packet: Packet<'_>) {
        let global =
            u64::from_be_bytes(packet.bytes[..8].try_into().expect("a number stands in front"));
        assert_eq!(packet.bytes, contents(global), "altered");
        assert!(self.delivered.insert(global), "{global} twice");
        assert!(self.arrived.contains(&global), "{global} from nowhere");
        if self.highest.is_some_and(|highest| global < highest) {
            assert_eq!(self.in_hand, Some(global), "only the packet in hand can be late");
            self.disorder += 1;
        }
        self.highest = self.highest.max(Some(global));
    }
}

/// A packet whose length and bytes follow from its number.
fn contents(global: u64) -> Vec<u8> {
    let mut bytes = global.to_be_bytes().to_vec();
    let length = 8 + usize::try_from(global % 37).expect("small");
    bytes.resize(length, u8::try_from(global % 251).expect("small"));
    bytes
}

impl World {
    fn new(mut rng: SmallRng, tolerance: Tolerance) -> Self {
        let config = Config {
            max_packets: [16, 64, 1024][rng.random_range(0..3)],
            settings: Settings {
                buffer: [1 << 10, 1 << 20][rng.random_range(0..2)],
                // The last: no deadline ever passes while something is in flight.
                max_wait: Duration::from_millis([30, 500, 1_000_000][rng.random_range(0..3)]),
                ..Settings::default()
            },
        };
        let mut world = Self {
            rng,
            tolerance,
            now: Instant::from_millis(1),
            links: Vec::new(),
            next_id: 0,
            next_global: 0,
            happenings: BTreeMap::new(),
            planned: 0,
            config,
            reseq: Resequencer::new(config, 0),
            model: Model::default(),
        };
        for _ in 0..world.rng.random_range(2..=4) {
            world.join();
        }
        world
    }

    fn run(mut self) -> Stats {
        for _ in 0..DATAGRAMS {
            self.now += Duration::from_micros(self.rng.random_range(0..4_000));
            self.receive_until(self.now);
            match self.rng.random_range(0..200) {
                0 => self.join(),
                1 => self.leave(),
                2 => self.fall(),
                3 => self.rise(),
                4 => self.outage(),
                5..=7 => self.toggle_idle(),
                8..=40 => self.send(false),
                _ => self.send(true),
            }
        }
        self.receive_until(NEVER);
        assert_eq!(
            self.model.delivered, self.model.arrived,
            "everything that arrived is delivered"
        );
        let stats = self.reseq.stats();
        assert!(self.model.disorder <= stats.late, "disorder without a late packet");
        assert_eq!((stats.held, stats.held_bytes, stats.too_old), (0, 0, 0));
        stats
    }

    /// Everything that happens to the receiver up to `end`, timeouts where they are due.
    fn receive_until(&mut self, end: Instant) {
        loop {
            let next = self.happenings.keys().next().copied().filter(|(at, _)| *at <= end);
            let due = self.reseq.poll_timeout().filter(|due| *due <= end);
            match (next, due) {
                (None, None) => return,
                (Some(key), due) if due.is_none_or(|due| key.0 <= due) => self.happen(key),
                (_, Some(due)) => self.time_out(due),
                (Some(_), None) => unreachable!("taken by the guard above"),
            }
        }
    }

    fn time_out(&mut self, at: Instant) {
        let before = self.reseq.stats();
        self.reseq.handle_timeout(at, &mut self.model);
        self.check(at, &before);
        assert!(self.reseq.poll_timeout().is_none_or(|next| next > at), "a timer that spins");
    }

    fn happen(&mut self, key: (Instant, u64)) {
        let before = self.reseq.stats();
        match self.happenings.remove(&key).expect("the caller has seen it") {
            Happening::Datagram(arrival) => {
                if let EvidenceKind::Data { .. } = arrival.kind {
                    self.model.in_flight.remove(&arrival.global);
                    self.model.arrived.insert(arrival.global);
                    self.model.in_hand = Some(arrival.global);
                }
                let times = if self.rng.random_bool(0.02) { 2 } else { 1 };
                for _ in 0..times {
                    self.reseq.offer(
                        key.0,
                        &arrival,
                        Packet::whole(&contents(arrival.global)),
                        &mut self.model,
                    );
                }
                self.model.in_hand = None;
            }
            Happening::Leave(id, end) => {
                match end {
                    Some(_) => self.model.awaited.insert(id, key.0 + self.config.settings.max_wait),
                    None => self.model.awaited.remove(&id),
                };
                self.reseq.link_left(key.0, id, end, &mut self.model);
            }
        }
        self.check(key.0, &before);
    }

    fn check(&mut self, now: Instant, before: &Stats) {
        let (after, expected) = (self.reseq.stats(), self.reseq.expected());
        let only_proof = after.skipped_by_proof > before.skipped_by_proof
            && after.skipped_by_deadline == before.skipped_by_deadline
            && after.skipped_by_full == before.skipped_by_full;
        for (global, link) in self.model.in_flight.range(..expected) {
            let awaited = self.model.awaited.get(link).is_some_and(|until| now < *until);
            assert!(!(only_proof && awaited), "{global} is in flight on {link} and was skipped");
        }
        // Skipped by now, for whatever reason: no longer looked at.
        self.model.in_flight.retain(|global, _| *global >= expected);
        assert!(
            after.held <= self.config.max_packets
                && after.held_bytes <= self.config.settings.buffer
        );
    }

    /// The receiver hears of a link before the sender uses it.
    fn join(&mut self) {
        if self.links.iter().filter(|link| link.sends).count() >= 4 {
            return;
        }
        let id = LinkId(self.next_id);
        self.next_id += 1;
        let first = self.reseq.next_unseen();
        self.reseq.link_added(id, first);
        self.reseq.set_tolerance(id, self.tolerance);
        self.model.awaited.insert(id, NEVER);
        self.links.push(Link {
            id,
            next_local: 0,
            last_data: None,
            delay: Duration::from_micros(self.rng.random_range(500..80_000)),
            jitter_us: self.rng.random_range(1..30_000),
            loss: [0.0, 0.02, 0.3][self.rng.random_range(0..3)],
            outage_until: Instant::ZERO,
            reordering: Reordering::new(self.tolerance),
            idle: self.rng.random_bool(0.2),
            sends: true,
        });
    }

    /// The sender stops using a link; the receiver hears of it, with or without the number of the
    /// last datagram, before or after what is under way.
    fn leave(&mut self) {
        let Some(index) = self.pick(|link| link.sends) else { return };
        let later = Duration::from_micros(self.rng.random_range(0..50_000));
        let link = &mut self.links[index];
        link.sends = false;
        let happening =
            Happening::Leave(link.id, self.rng.random_bool(0.5).then_some(link.next_local));
        self.plan(self.now + later, happening);
    }

    fn fall(&mut self) {
        let Some(index) = self.pick(|link| link.sends) else { return };
        let id = self.links[index].id;
        self.model.awaited.remove(&id);
        let before = self.reseq.stats();
        self.reseq.link_down(self.now, id, &mut self.model);
        self.check(self.now, &before);
    }

    fn rise(&mut self) {
        for link in self.links.iter().filter(|link| link.sends) {
            self.reseq.link_up(link.id);
            self.model.awaited.insert(link.id, NEVER);
        }
    }

    fn outage(&mut self) {
        let length = Duration::from_micros(self.rng.random_range(1_000..300_000));
        if let Some(index) = self.pick(|link| link.sends) {
            self.links[index].outage_until = self.now + length;
        }
    }

    fn toggle_idle(&mut self) {
        if let Some(index) = self.pick(|link| link.sends) {
            self.links[index].idle ^= true;
        }
    }

    /// Seals a datagram on some link: a packet, or a mark (idle links send only these).
    fn send(&mut self, data: bool) {
        let Some(index) = self.pick(|link| link.sends && !(data && link.idle)) else { return };
        let jitter = Duration::from_micros(self.rng.random_range(0..self.links[index].jitter_us));
        let named = self.rng.random_bool(0.95);
        let link = &mut self.links[index];
        let lost = self.rng.random_bool(link.loss) || link.outage_until > self.now;
        let (local, global) = (link.next_local, self.next_global);
        link.next_local += 1;
        let mut kind = EvidenceKind::Mark;
        if data {
            self.next_global += 1;
            // The wire holds one byte of distance, and sometimes has nothing to say.
            let previous = link.last_data.replace(global);
            kind =
                EvidenceKind::Data { prev_on_link: previous.filter(|p| named && global - p < 256) };
        }
        if lost {
            return;
        }
        let at = link.reordering.arrival(local, self.now + link.delay + jitter);
        let sent_us = i64::try_from(self.now.as_micros()).expect("short") - 77_000_000;
        let arrival = Evidence { link: link.id, local, sent_us, global, kind };
        if data {
            self.model.in_flight.insert(global, link.id);
        }
        self.plan(at, Happening::Datagram(arrival));
    }

    fn plan(&mut self, at: Instant, happening: Happening) {
        self.happenings.insert((at, self.planned), happening);
        self.planned += 1;
    }

    fn pick(&mut self, wanted: impl Fn(&Link) -> bool) -> Option<usize> {
        let found: Vec<usize> =
            (0..self.links.len()).filter(|index| wanted(&self.links[*index])).collect();
        (!found.is_empty()).then(|| found[self.rng.random_range(0..found.len())])
    }
}

/// Delays datagrams so that none is overtaken beyond the tolerance: one may arrive behind a number
/// more than `distance` above its own only within `lateness` after it was first overtaken.
struct Reordering {
    tolerance: Tolerance,
    /// What is under way: its number, its arrival, and when it is first overtaken.
    under_way: Vec<(u64, Instant, Instant)>,
}

impl Reordering {
    fn new(tolerance: Tolerance) -> Self {
        Self { tolerance, under_way: Vec::new() }
    }

    /// When the datagram `local`, the highest so far, arrives if it would like to at `wish`.
    fn arrival(&mut self, local: u64, wish: Instant) -> Instant {
        let mut at = wish;
        while let Some((_, arrives, _)) =
            self.under_way.iter().find(|(lower, arrives, overtaken)| {
                let beyond = local - lower > self.tolerance.distance;
                beyond
                    && at < *arrives
                    && arrives.since(at.min(*overtaken)) > self.tolerance.lateness
            })
        {
            at = *arrives;
        }
        for (_, arrives, overtaken) in &mut self.under_way {
            if at < *arrives {
                *overtaken = at.min(*overtaken);
            }
        }
        self.under_way.push((local, at, NEVER));
        if self.under_way.len() > 64 {
            // All that matters are the latest arrivals.
            self.under_way.sort_by_key(|(_, arrives, _)| *arrives);
            self.under_way.drain(..16);
        }
        at
    }
}
