//! Plays operations on a real tunnel in the lab and compares it with the model after each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::config::{LinkConfig, TunnelConfig};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::event::Event;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{LinkState, Tunnel, TunnelStats};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Keepalive, Profile, SchedulerKind, Scheduling};

use crate::lab::{End, Lab, LabLink, PROXY, Towards};
use crate::loss::Loss;
use crate::model::{Breach, CALL, Disturbance, Model, hold};
use crate::netem::{Conditions, Counters, Cut, Marking};
use crate::operation::{Injection, Load, Mood, Operation, Rebinding, draw};
use crate::pair::{conditions, link_config, tunnels};

/// Longest that a healed network needs until all links are up again and nothing is under way: the
/// longest timeout is 60 s (RFC 6298), and a link that fell is probed every 500 ms.
const HEALING: Duration = Duration::from_secs(90);

/// Datagrams of each direction that somebody on the way still has.
const OBSERVED: usize = 64;

/// An end that can be looked into.
pub trait Watched: End {
    /// The state of its tunnel.
    fn stats(&self) -> TunnelStats;
    /// What happened.
    fn poll_event(&mut self) -> Option<Event>;
    /// What it sends is scheduled so from now on.
    fn set_scheduling(&mut self, now: Instant, scheduling: Scheduling);
}

/// A client whose links can be changed.
pub trait Linked: Watched {
    /// Opens a link; `None`: not now.
    fn add_link(&mut self, now: Instant, config: &LinkConfig) -> Option<LinkId>;
    /// Takes one out.
    fn remove_link(&mut self, now: Instant, link: LinkId, sink: &mut impl PacketSink);
    /// Others sent and received so many bytes beside it in a second.
    fn count_others(&mut self, link: LinkId, bytes: u64);
}

impl Watched for Tunnel {
    fn stats(&self) -> TunnelStats {
        Self::stats(self)
    }
    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }
    fn set_scheduling(&mut self, now: Instant, scheduling: Scheduling) {
        Self::set_scheduling(self, now, scheduling);
    }
}

impl Linked for Tunnel {
    fn add_link(&mut self, now: Instant, config: &LinkConfig) -> Option<LinkId> {
        Self::add_link(self, now, config).ok()
    }
    fn remove_link(&mut self, now: Instant, link: LinkId, sink: &mut impl PacketSink) {
        Self::remove_link(self, now, link, sink);
    }
    fn count_others(&mut self, link: LinkId, bytes: u64) {
        self.on_others(link, bytes, Duration::from_secs(1));
        self.tell_others(link, bytes, Duration::from_secs(1));
    }
}

/// One link of the lab.
struct Line {
    path: Path,
    /// What it was like at first.
    base: Conditions,
    /// The client's link on it.
    link: Option<LinkId>,
    /// When its outages end.
    outages: [Option<Instant>; 2],
}

/// What happened in a run, so that a test can see that it was not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each names what it counts")]
pub struct Happened {
    pub sent: u64,
    pub delivered: u64,
    pub lost_datagrams: u64,
    pub resequenced: u64,
    pub late: u64,
    pub joined: u64,
    pub bundles: u64,
    pub by_proof: u64,
    pub by_deadline: u64,
    pub joins: u64,
    pub leaves: u64,
    pub falls: u64,
    pub moves: u64,
    pub rekeys: u64,
    pub injected: u64,
    pub nonces: u64,
    pub virtual_ms: u64,
}

impl Happened {
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.lost_datagrams += other.lost_datagrams;
        self.resequenced += other.resequenced;
        self.late += other.late;
        self.joined += other.joined;
        self.bundles += other.bundles;
        self.by_proof += other.by_proof;
        self.by_deadline += other.by_deadline;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.falls += other.falls;
        self.moves += other.moves;
        self.rekeys += other.rekeys;
        self.injected += other.injected;
        self.nonces += other.nonces;
        self.virtual_ms += other.virtual_ms;
    }
}

/// Operations, and the tunnel and network that they begin with.
#[derive(Clone, Debug)]
pub struct Script {
    /// Decides the network's chances and the content of the traffic.
    pub seed: u64,
    /// Links of the lab.
    pub links: usize,
    /// Between two rekeys.
    pub rekey_after: Duration,
    /// What happens.
    pub operations: Vec<Operation>,
}

impl Script {
    /// The script that follows from a seed.
    #[must_use]
    pub fn draw(seed: u64, mood: Mood, operations: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let seconds = [1, 2, 5, 120][rng.random_range(0..4)];
        Self {
            seed,
            links: rng.random_range(1..=4),
            rekey_after: Duration::from_secs(seconds),
            operations: draw(&mut rng, mood, operations),
        }
    }

    /// The settings of both ends: with every second seed those of the papers.
    #[must_use]
    pub fn config(&self) -> TunnelConfig {
        let profile = if self.seed.is_multiple_of(2) { Profile::Default } else { Profile::Paper };
        TunnelConfig { rekey_after: self.rekey_after, ..TunnelConfig::of(profile) }
    }

    /// Plays it on two bare tunnels. A panic is a breach, too.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn play(&self) -> Result<Happened, Breach> {
        let run = || {
            let config = self.config();
            Play::new(self, tunnels(&config, &config, self.seed)).run()
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Breach(format!("panicked: {}", text.unwrap_or("without a word"))))
        })
    }

    /// A shorter script that breaks the same rule: operations are taken out in ever smaller runs, as
    /// long as what is left fails.
    #[must_use]
    pub fn shrunk(mut self) -> Self {
        let Err(breach) = self.play() else { return self };
        let mut run = self.operations.len() / 2;
        while run > 0 {
            let mut at = 0;
            while at < self.operations.len() {
                let mut shorter = self.clone();
                let end = (at + run).min(shorter.operations.len());
                shorter.operations.drain(at..end);
                if shorter.play().is_err_and(|other| other.rule() == breach.rule()) {
                    self = shorter;
                } else {
                    at += run;
                }
            }
            run /= 2;
        }
        self
    }
}

/// A script under way.
pub struct Play<'a, C, P> {
    script: &'a Script,
    /// The tunnel and its network.
    pub lab: Lab<C, P>,
    model: Model,
    config: TunnelConfig,
    rng: SmallRng,
    lines: Vec<Line>,
    loads: [Option<(Load, Instant)>; 2],
    observed: [Vec<(usize, Vec<u8>)>; 2],
    disturbed: [Disturbance; 2],
    happened: Happened,
}

impl<'a, C: Linked, P: Watched> Play<'a, C, P> {
    /// Sets the stage: the links exist and are joined.
    #[must_use]
    pub fn new(script: &'a Script, mut lab: Lab<C, P>) -> Self {
        lab.record = true;
        let mut rng = SmallRng::seed_from_u64(script.seed ^ 0x5eed);
        let mut lines = Vec::new();
        for _ in 0..script.links {
            let base = Conditions {
                mtu: 1500,
                ..conditions(
                    rng.random_range(1.0..30.0),
                    [2, 10, 50, 150, 300][rng.random_range(0..5)],
                    [20, 100, 500][rng.random_range(0..3)],
                )
            };
            let path = lab.add_link(base.clone(), base.clone(), rng.random());
            lines.push(Line { path, base, link: None, outages: [None; 2] });
        }
        let mut play = Self {
            config: script.config(),
            script,
            lab,
            model: Model::default(),
            rng,
            lines,
            loads: [None; 2],
            observed: [Vec::new(), Vec::new()],
            disturbed: [Disturbance::default(); 2],
            happened: Happened::default(),
        };
        (0..script.links).for_each(|line| play.join(line));
        play
    }

    /// Plays everything, heals the network, and looks at what is left.
    ///
    /// # Errors
    /// The rule that was broken, and when.
    pub fn run(mut self) -> Result<Happened, Breach> {
        for (number, operation) in self.script.operations.iter().enumerate() {
            self.apply(operation)
                .and_then(|()| self.check())
                .map_err(|breach| self.located(&breach, &format!("{number}: {operation:?}")))?;
        }
        self.heal().map_err(|breach| self.located(&breach, "healing"))?;
        let (downs, ups) = (self.model.of_proxy.count(), self.model.of_client.count());
        self.happened.nonces = (downs.0 + ups.0) as u64;
        self.happened.rekeys = u64::from(ups.1 - 1);
        self.happened.sent = self.model.down.sent() + self.model.up.sent();
        self.happened.delivered = self.model.down.delivered() + self.model.up.delivered();
        self.happened.lost_datagrams = self.disturbed.iter().map(|d| d.lost).sum();
        self.happened.virtual_ms = self.lab.now.as_micros() / 1000;
        for stats in [self.lab.client.stats(), self.lab.proxy.stats()] {
            self.happened.resequenced += stats.reseq.resequenced;
            self.happened.late += stats.reseq.late;
            self.happened.joined += stats.joined;
            self.happened.bundles += stats.bundled.datagrams;
            self.happened.by_proof += stats.reseq.skipped_by_proof;
            self.happened.by_deadline += stats.reseq.skipped_by_deadline;
        }
        Ok(self.happened)
    }

    fn located(&self, breach: &Breach, place: &str) -> Breach {
        Breach(format!("{breach} (at {:?}, operation {place})", self.lab.now))
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), Breach> {
        match *operation {
            Operation::Wait(time) => return self.pass(time),
            Operation::Traffic(towards, load) => {
                self.loads[index(towards)] = load.map(|load| (load, self.lab.now));
            }
            Operation::Loss(link, towards, share) => {
                self.change(link, towards, |now| now.loss = Loss::Bernoulli(share));
            }
            Operation::Delay { link, towards, ms, jitter_ms, reorder } => {
                self.disturbed[index(towards)].reordered |= reorder;
                self.change(link, towards, |now| {
                    now.delay = Duration::from_millis(ms.into());
                    now.jitter = Duration::from_millis(jitter_ms.into());
                    now.keep_order = !reorder;
                });
            }
            Operation::Rate(link, towards, kbit) => self.change(link, towards, |now| {
                now.rate = conditions(f64::from(kbit) / 1e3, 0, 0).rate;
            }),
            Operation::Mark(link, towards, probability) => self.change(link, towards, |now| {
                now.marking = Marking { probability, ..Marking::default() };
            }),
            Operation::Mtu(link, towards, mtu) => {
                self.change(link, towards, |now| now.mtu = mtu.into());
            }
            Operation::Outage(link, towards, length) => self.cut(link, towards, length),
            Operation::Heal(link) => self.fix(usize::from(link) % self.lines.len()),
            Operation::Join(link) => self.join(usize::from(link) % self.lines.len()),
            Operation::Leave(link) => self.leave(usize::from(link) % self.lines.len()),
            Operation::Rebind(link, what) => self.rebind(link, what),
            Operation::Schedule(towards, which) => self.schedule(towards, which),
            Operation::Others(link, kbit) => self.others(link, kbit),
            Operation::Inject(towards, what, which) => self.inject(towards, what, which),
        }
        self.collect()
    }

    /// Packets that wait for one link are overtaken by others before they have a number: here none does.
    fn schedule(&mut self, towards: Towards, which: u8) {
        let in_order = SchedulerKind::ALL.into_iter().filter(|kind| *kind != SchedulerKind::Safire);
        let mut in_order: Vec<_> = in_order.collect();
        let scheduler = in_order.swap_remove(usize::from(which) % in_order.len());
        let now = self.lab.now;
        match towards {
            Towards::Client => self.lab.proxy.set_scheduling(now, scheduler.into()),
            Towards::Proxy => self.lab.client.set_scheduling(now, scheduler.into()),
        }
    }

    fn line(&self, link: u8) -> usize {
        usize::from(link) % self.lines.len()
    }

    fn change(&mut self, link: u8, towards: Towards, change: impl FnOnce(&mut Conditions)) {
        let line = self.line(link);
        let now = self.lab.now;
        let link = &mut self.lab.links[line];
        let direction = match towards {
            Towards::Client => &mut link.down,
            Towards::Proxy => &mut link.up,
        };
        let mut conditions = direction.conditions().clone();
        change(&mut conditions);
        direction.handle_change(now, conditions);
    }

    fn cut(&mut self, link: u8, towards: Option<Towards>, length: Duration) {
        let line = self.line(link);
        let until = self.lab.now + length;
        let (ways, cut) = match towards {
            None => (vec![Towards::Client, Towards::Proxy], Cut::Everything),
            Some(one) => (vec![one], Cut::Arrivals),
        };
        for way in ways {
            self.change(link, way, |now| now.cut = Some(cut));
            let end = &mut self.lines[line].outages[index(way)];
            *end = Some(end.map_or(until, |other| other.max(until)));
        }
    }

    fn fix(&mut self, line: usize) {
        let (now, base) = (self.lab.now, self.lines[line].base.clone());
        let link = &mut self.lab.links[line];
        // A link without jitter keeps its order whatever is said; what still is under way may be overtaken.
        link.down.handle_change(now, base.clone());
        link.up.handle_change(now, base);
        self.lines[line].outages = [None; 2];
    }

    fn join(&mut self, line: usize) {
        if self.lines[line].link.is_some() {
            return;
        }
        let config =
            link_config(&format!("wan{line}"), self.lines[line].path, Keepalive::default());
        let link = self.lab.with_client(|client, now, _| client.add_link(now, &config));
        self.lines[line].link = link;
        self.happened.joins += u64::from(link.is_some());
    }

    fn leave(&mut self, line: usize) {
        if let Some(link) = self.lines[line].link.take() {
            self.lab.with_client(|client, now, sink| client.remove_link(now, link, sink));
            self.happened.leaves += 1;
            self.interrupted();
        }
    }

    /// The client counts what others do, and tells the proxy.
    fn others(&mut self, link: u8, kbit: u32) {
        let line = self.line(link);
        let Some(id) = self.lines[line].link else { return };
        self.lab.client.count_others(id, u64::from(kbit) * 125);
    }

    fn interrupted(&mut self) {
        self.disturbed.iter_mut().for_each(|direction| direction.interrupted = true);
    }

    fn rebind(&mut self, link: u8, what: Rebinding) {
        let line = self.line(link);
        let outer = &mut self.lab.links[line].outer;
        match what {
            Rebinding::Port => outer.set_port(outer.port().wrapping_add(1).max(1024)),
            Rebinding::Address => {
                // One of 250 addresses that only this link has.
                let turn = self.happened.moves % 250;
                let last = u8::try_from(turn).unwrap_or(0);
                let third = u8::try_from(line).unwrap_or(0) + 101;
                outer.set_ip([198, 51, third, last].into());
            }
        }
        self.happened.moves += 1;
    }

    fn inject(&mut self, towards: Towards, what: Injection, which: u16) {
        let from = match what {
            Injection::Reflected => towards.opposite(),
            _ => towards,
        };
        let seen = &self.observed[index(from)];
        let Some((line, mut datagram)) = seen.get(usize::from(which) % seen.len().max(1)).cloned()
        else {
            return;
        };
        match what {
            Injection::Copy | Injection::CopyFromElsewhere => {
                // The copy may come before the original.
                self.disturbed[index(towards)].reordered = true;
            }
            Injection::Reflected => {}
            Injection::Flipped => {
                let bit = self.rng.random_range(0..datagram.len() * 8);
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            Injection::Truncated => {
                let len = self.rng.random_range(0..datagram.len());
                datagram.truncate(len);
            }
            Injection::Garbage => {
                datagram.resize(self.rng.random_range(0..1500), 0);
                self.rng.fill(&mut datagram[..]);
            }
        }
        let stranger = ([203, 0, 113, 9], which).into();
        let path = match towards {
            Towards::Client => Path { remote: PROXY, ..self.lines[line].path },
            Towards::Proxy if what == Injection::CopyFromElsewhere => {
                Path { socket: SocketId(0), local: None, remote: stranger }
            }
            Towards::Proxy => {
                Path { socket: SocketId(0), local: None, remote: self.lab.links[line].outer }
            }
        };
        self.disturbed[index(towards)].injected = true;
        self.happened.injected += 1;
        self.lab.inject(towards, path, &datagram);
    }

    /// Lets time pass, with traffic.
    fn pass(&mut self, time: Duration) -> Result<(), Breach> {
        let end = self.lab.now + time;
        loop {
            let due = self.loads.iter().flatten().map(|(_, at)| *at);
            let back = self.lines.iter().flat_map(|line| line.outages).flatten();
            let next = due.chain(back).min().filter(|at| *at <= end);
            self.lab.run_until(next.unwrap_or(end).max(self.lab.now));
            self.collect()?;
            if next.is_none() {
                return Ok(());
            }
            self.end_outages();
            self.send();
        }
    }

    fn end_outages(&mut self) {
        let now = self.lab.now;
        for line in 0..self.lines.len() {
            for way in [Towards::Client, Towards::Proxy] {
                if self.lines[line].outages[index(way)].take_if(|at| *at <= now).is_some() {
                    let link = u8::try_from(line).unwrap_or(0);
                    self.change(link, way, |now| now.cut = None);
                }
            }
        }
    }

    fn send(&mut self) {
        for towards in [Towards::Client, Towards::Proxy] {
            let Some((load, at)) = &mut self.loads[index(towards)] else { continue };
            if *at > self.lab.now {
                continue;
            }
            *at = self.lab.now + load.gap * u32::try_from(load.burst).unwrap_or(1);
            let mut burst = Vec::new();
            let v6 = self.rng.random_bool(0.2);
            // What comes in bursts has order.
            let flow = if load.burst == 1 { CALL } else { self.rng.random_range(80..84) };
            for _ in 0..load.burst {
                let len = self.rng.random_range(load.len.0..=load.len.1);
                let ecn = if self.rng.random() { load.ecn } else { Ecn::NotEct };
                burst.push(self.model.towards(towards).next(flow, len, ecn, v6));
            }
            self.lab.send_all(towards.opposite(), &burst);
        }
    }

    /// Looks at all that came out, on the wire and at the ends.
    fn collect(&mut self) -> Result<(), Breach> {
        for (towards, line, datagram) in std::mem::take(&mut self.lab.recorded) {
            self.model.note(towards, &datagram)?;
            let seen = &mut self.observed[index(towards)];
            if seen.len() == OBSERVED {
                seen.remove(0);
            }
            seen.push((line, datagram));
        }
        for end in [Towards::Client, Towards::Proxy] {
            for delivered in self.lab.delivered(end) {
                self.model.take(end, delivered.at, &delivered.packet)?;
            }
        }
        while let Some(event) = self.lab.client.poll_event().or_else(|| self.lab.proxy.poll_event())
        {
            if let Event::LinkDown(..) = event {
                self.happened.falls += 1;
                self.interrupted();
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Breach> {
        self.count_losses();
        let (client, proxy) = (self.lab.client.stats(), self.lab.proxy.stats());
        let [down, up] = &self.disturbed;
        self.model.check(Towards::Client, &proxy, &client, &self.config, down)?;
        self.model.check(Towards::Proxy, &client, &proxy, &self.config, up)
    }

    fn count_losses(&mut self) {
        let lost = |counters: Counters| {
            counters.lost
                + counters.queue_full
                + counters.too_big
                + counters.cut
                + counters.overflow
        };
        let links = &self.lab.links;
        let unmapped: u64 = links.iter().map(|link: &LabLink| link.unmapped).sum();
        let down: u64 = links.iter().map(|link| lost(link.down.counters())).sum();
        self.disturbed[0].lost = down + unmapped + self.lab.unroutable;
        self.disturbed[1].lost = links.iter().map(|link| lost(link.up.counters())).sum();
    }

    /// The network is as at first, traffic ends: the tunnel comes to rest and then works as if nothing had
    /// happened.
    fn heal(&mut self) -> Result<(), Breach> {
        (0..self.lines.len()).for_each(|line| self.fix(line));
        self.loads = [None; 2];
        if self.lines.iter().all(|line| line.link.is_none()) {
            // All link ids may be used up; a rekey needs a link.
            self.join(0);
            hold(self.lines[0].link.is_some(), || "no link can be joined any more".to_owned())?;
        }
        self.pass(HEALING)?;
        self.check()?;
        let (client, proxy) = (self.lab.client.stats(), self.lab.proxy.stats());
        let [down, up] = &self.disturbed;
        self.model.check_rest(Towards::Client, &proxy, &client, down)?;
        self.model.check_rest(Towards::Proxy, &client, &proxy, up)?;
        for (end, stats) in [("client", &client), ("proxy", &proxy)] {
            let links: Vec<_> = stats.links.iter().map(|link| (link.id, link.state)).collect();
            let wanted: Vec<_> = self.lines.iter().filter_map(|line| line.link).collect();
            // The proxy may not have heard of a link's end; then it is not up there, and makes room when another needs it.
            let right = wanted.iter().all(|id| links.contains(&(*id, LinkState::Up)))
                && links.iter().all(|(id, state)| {
                    wanted.contains(id) || (end == "proxy" && *state != LinkState::Up)
                });
            hold(right, || format!("links of the {end}: {links:?}, wanted {wanted:?}"))?;
        }
        self.fresh_packets()
    }

    /// Fresh packets come through, all of them and in order: one a round trip, which a window of one lets
    /// pass.
    fn fresh_packets(&mut self) -> Result<(), Breach> {
        const FRESH: u64 = 12;
        let before =
            |direction: &crate::model::Direction| (direction.delivered(), direction.disorder());
        let befores = [before(&self.model.down), before(&self.model.up)];
        for _ in 0..FRESH {
            for towards in [Towards::Client, Towards::Proxy] {
                let packet = self.model.towards(towards).next(80, 600, Ecn::NotEct, false);
                self.lab.send(towards.opposite(), &packet);
            }
            self.pass(Duration::from_millis(400))?;
        }
        self.pass(Duration::from_secs(1))?;
        for (direction, before) in [&self.model.down, &self.model.up].into_iter().zip(befores) {
            let came = direction.delivered() - before.0;
            let disorder = direction.disorder() - before.1;
            hold(came == FRESH && disorder == 0, || {
                format!("after healing {came} of {FRESH} packets came, {disorder} out of order")
            })?;
        }
        self.check()
    }
}

const fn index(towards: Towards) -> usize {
    match towards {
        Towards::Client => 0,
        Towards::Proxy => 1,
    }
}
