//! Chaos: a real deployment in use, to which upheavals happen at random moments, and after each of which all must be well again.
//!
//! A client with three links behind NAT, a proxy that it knows by name, and a server beyond. All the time a download runs whose
//! every byte is checked, and a call. Each round does one upheaval or several at once ([`Kind`]), takes back what lasts (an
//! interface comes up, a link is no longer cut), and then nothing is done for [`CALM`]. In this calm
//!
//! - packets of the download and of the call come again and go on, and a connection that the upheaval may not end has not ended;
//! - both hosts have just the interfaces, addresses, routes, rules, firewall tables and settings that they had before;
//! - both daemons run, have no more in memory than after the warm-up and some, and wrote neither a panic nor an error.
//!
//! At the end both are stopped, and nothing of them is left. The same seed draws the same upheavals.

mod calm;
mod daemon;
mod disk;
mod field;
mod load;
mod outcome;
mod upheaval;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use ropewalk_settings::Bitrate;

use self::calm::Calm;
pub use self::daemon::Memory;
use self::field::Field;
pub use self::load::Carried as LoadCarried;
use self::load::Load;
use self::outcome::Round;
pub use self::outcome::{Outcome, Row};
pub use self::upheaval::{CALM, Kind};
use self::upheaval::{Deck, Upheaval};
use crate::access::Access;
use crate::demo::QUEUE;
use crate::error::LabError;
use crate::prove::crash::is_documented;
use crate::prove::snapshot::Snapshot;
use crate::stage::Progress;
use crate::topology::TopologyConfig;

/// The links: Mbit/s, and milliseconds there and back.
const LINKS: [(u32, u64); 3] = [(10, 20), (6, 40), (3, 70)];

/// How long a start may take.
const STARTS: Duration = Duration::from_secs(30);
/// The load runs so long before anything is measured or done.
const WARM_UP: Duration = Duration::from_secs(10);
/// How often a calm is looked at.
const POLL: Duration = Duration::from_millis(100);
/// Bytes that show that a download goes on.
const GOES_ON: u64 = 32 << 10;
/// Packets of the call that show the same.
const CALLS_ON: u64 = 5;
/// Characters that are told of a difference.
const LINE: usize = 240;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Draws the upheavals.
    pub seed: u64,
    /// For how long.
    pub length: Duration,
    /// Which kinds.
    pub kinds: Vec<Kind>,
    /// How many times as long as on a machine that does nothing else it may take until all is as before.
    pub slack: u32,
}

/// Runs it with this `ropewalk`.
///
/// # Errors
/// When the network cannot be built, or an upheaval cannot be done. What goes wrong with the daemons is told by the outcome.
pub fn run(
    program: &Path,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Outcome, LabError> {
    let links = LINKS.map(|(mbps, rtt_ms)| {
        let rtt = Duration::from_millis(rtt_ms);
        Access::symmetric(Bitrate::from_mbps(mbps.into()), rtt, QUEUE).into()
    });
    let mut field = Field::build(program, &TopologyConfig::new(links.into()))?;
    let untouched = field.look()?;
    field.start_both()?;
    // Until the warm-up is over.
    let usual = untouched.clone();
    let run = Run { field, options, progress, untouched, usual };
    run.play()
}

struct Run<'a> {
    field: Field,
    options: &'a Options,
    progress: &'a dyn Progress,
    /// Both hosts before the first start.
    untouched: [Snapshot; 2],
    /// Both hosts while all is well.
    usual: [Snapshot; 2],
}

impl Run<'_> {
    fn play(mut self) -> Result<Outcome, LabError> {
        self.wait_up()?;
        let load = Load::begin(self.field.client(), self.field.server(), self.options.seed)?;
        self.progress
            .say(&format!("everything is up; {} s with the load alone", WARM_UP.as_secs()));
        thread::sleep(WARM_UP);
        let carried = load.carried();
        if carried.bytes < GOES_ON || carried.call_returned < CALLS_ON {
            return Err(LabError::Unsupported(format!("the load does not run: {carried:?}")));
        }
        self.usual = self.field.look()?;
        for daemon in self.field.daemons() {
            daemon.memory.warm_kib = daemon.weigh().unwrap_or(0);
        }

        let wans = self.field.wans();
        let rng = StdRng::seed_from_u64(self.options.seed);
        let mut deck = Deck::new(rng, self.options.kinds.clone(), wans);
        let begun = Instant::now();
        let mut rounds = Vec::new();
        while begun.elapsed() < self.options.length {
            thread::sleep(deck.pause());
            let drawn = deck.draw();
            let round = self.round(&drawn, &load)?;
            self.tell(begun.elapsed(), rounds.len() + 1, &round);
            rounds.push(round);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let carried = load.carried();
        drop(load);
        let mut outcome = Outcome::of(self.options.seed, seconds, &rounds);
        outcome.load = carried;
        let [client, proxy] = self.field.daemons();
        (outcome.client, outcome.proxy) = (client.memory, proxy.memory);
        outcome.faults.extend(self.end()?);
        Ok(outcome)
    }

    fn tell(&self, at: Duration, number: usize, round: &Round) {
        let names: Vec<_> = round.kinds.iter().map(|kind| kind.name()).collect();
        let seconds = |time: Option<Duration>| {
            time.map_or("not".to_owned(), |time| format!("after {:.2} s", time.as_secs_f64()))
        };
        self.progress.say(&format!(
            "{:6.1} s  {number:>4}  {}: packets again {}, whole again {}",
            at.as_secs_f64(),
            names.join(" + "),
            seconds(round.packets),
            seconds(round.whole)
        ));
        for fault in &round.faults {
            self.progress.say(&format!("FAULT: {fault}"));
        }
    }

    fn wait_up(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        while self.field.links_up() < usize::from(self.field.wans()) {
            if let Some(ended) = self.field.supervise()?.pop() {
                return Err(LabError::Unsupported(ended));
            }
            if begun.elapsed() > STARTS {
                return Err(LabError::TooLate {
                    what: "all links up".into(),
                    seconds: STARTS.as_secs_f64(),
                    detail: String::new(),
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Does what was drawn all at once, and looks at the calm behind it.
    fn round(&mut self, drawn: &[Upheaval], load: &Load) -> Result<Round, LabError> {
        let kinds: Vec<_> = drawn.iter().map(|upheaval| upheaval.kind).collect();
        let before = load.carried();
        let begun = Instant::now();
        // A daemon that stands still in the middle of a file keeps its disk from becoming read-only.
        let mut order: Vec<_> = drawn.iter().collect();
        order.sort_by_key(|upheaval| upheaval.kind.pauses());
        for upheaval in order {
            self.field.begin(upheaval)?;
        }
        let mut faults = Vec::new();
        // Each ends when it is its time.
        let mut lasting: Vec<_> = drawn.iter().collect();
        lasting.sort_by_key(|upheaval| upheaval.lasts);
        for upheaval in lasting {
            while begun.elapsed() < upheaval.lasts {
                faults.extend(self.field.supervise()?);
                thread::sleep(POLL.min(upheaval.lasts.saturating_sub(begun.elapsed())));
            }
            self.field.end(upheaval)?;
        }
        let mut round = Round { kinds, faults, ..Round::default() };
        let usual = &self.usual;
        let calm = Calm::begin(&mut self.field, load, usual, &round.kinds, self.options.slack);
        calm.watch(&before, &mut round)?;
        round.faults = in_words(&round.kinds, std::mem::take(&mut round.faults));
        Ok(round)
    }

    /// Stops both, and looks at what is left.
    fn end(&mut self) -> Result<Vec<String>, LabError> {
        self.progress.say("both are stopped");
        let mut faults = Vec::new();
        for daemon in self.field.daemons() {
            if let Err(error) = daemon.stop() {
                faults.push(error.to_string());
            }
            faults.extend(daemon.complaints());
        }
        let left = since(&self.field.look()?, &self.untouched);
        let undocumented =
            left.iter().filter(|line| !is_documented(line.strip_prefix("proxy: ").unwrap_or(line)));
        faults.extend(
            undocumented.map(|line| format!("left after the end: {}", shortened(line, LINE))),
        );
        self.field.purge()?;
        let left = since(&self.field.look()?, &self.untouched);
        faults.extend(
            left.iter().map(|line| format!("left after --purge: {}", shortened(line, LINE))),
        );
        let [client, proxy] = self.field.files();
        let known = ["counters.json", "history.ring", "leases.json", "peers.json"];
        let odd = client.iter().chain(&proxy).filter(|name| !known.contains(&name.as_str()));
        faults.extend(odd.map(|name| format!("a file was left: {name}")));
        Ok(faults)
    }
}

fn since(now: &[Snapshot; 2], before: &[Snapshot; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for ((who, now), before) in ["client", "proxy"].into_iter().zip(now).zip(before) {
        lines.extend(now.since(before).into_iter().map(|line| format!("{who}: {line}")));
    }
    lines
}

fn in_words(kinds: &[Kind], faults: Vec<String>) -> Vec<String> {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    faults.into_iter().map(|fault| format!("{}: {fault}", names.join(" + "))).collect()
}

fn shortened(line: &str, length: usize) -> String {
    line.chars().take(length).collect()
}
