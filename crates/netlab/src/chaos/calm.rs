//! The calm behind an upheaval: how soon packets come again, how soon everything is as before, and whether it stays so.

use std::thread;
use std::time::{Duration, Instant};

use super::field::Field;
use super::load::{Carried, Load};
use super::outcome::Round;
use super::upheaval::{CALM, Kind};
use super::{CALLS_ON, GOES_ON, LINE, POLL, shortened, since};
use crate::error::LabError;
use crate::prove::snapshot::Snapshot;

/// A connection that the upheaval may have ended is begun again when it stands still for so long while the links are up.
const STANDS_STILL: Duration = Duration::from_secs(1);
/// What a daemon may have in memory beyond what it had after the warm-up: as much as a session may keep of packets to come,
/// and of packets that wait for their order (docs/SECURITY.md, section 5).
const MORE_MEMORY_KIB: u64 = 32 << 10;
/// How many differences are told.
const TOLD: usize = 6;

/// A calm that is under way.
pub(super) struct Calm<'a> {
    field: &'a mut Field,
    load: &'a Load,
    /// Both hosts while all is well.
    usual: &'a [Snapshot; 2],
    /// Whether connections may have ended.
    may_end: bool,
    /// Within which time everything is to be as before.
    bound: Duration,
    begun: Instant,
    /// What had come when the present connection was first asked for bytes.
    from: Carried,
    /// When a byte came last, and how many had come then.
    moved: (Instant, u64),
    /// How many bytes had come when everything was as before.
    at_whole: u64,
    differences: Vec<String>,
}

impl<'a> Calm<'a> {
    /// Begins. All times may be `slack` times as long as on a machine that does nothing else.
    pub(super) fn begin(
        field: &'a mut Field,
        load: &'a Load,
        usual: &'a [Snapshot; 2],
        kinds: &[Kind],
        slack: u32,
    ) -> Self {
        let (begun, from) = (Instant::now(), load.carried());
        Self {
            field,
            load,
            usual,
            may_end: kinds.iter().any(|kind| kind.may_end_connections()),
            bound: kinds.iter().map(|kind| kind.bound()).max().unwrap_or(CALM) * slack,
            begun,
            moved: (begun, from.bytes),
            from,
            at_whole: 0,
            differences: Vec::new(),
        }
    }

    /// Waits until the calm is over, and notes in `round` what was seen. `before`: what the load had carried before the upheaval.
    pub(super) fn watch(mut self, before: &Carried, round: &mut Round) -> Result<(), LabError> {
        let mut goes_on = false;
        while self.is_awaited(round, goes_on) {
            round.faults.extend(self.field.supervise()?);
            self.look(round)?;
            goes_on = round.whole.is_some() && self.load.carried().bytes - self.at_whole >= GOES_ON;
            thread::sleep(POLL);
        }
        round.faults.extend(self.faults(round, goes_on)?);
        round.faults.extend(self.load_faults(before));
        round.faults.extend(self.daemons_faults());
        Ok(())
    }

    /// Whether there is something to be waited for: the end of the calm, or until the bound what is missing.
    fn is_awaited(&self, round: &Round, goes_on: bool) -> bool {
        let elapsed = self.begun.elapsed();
        match round.whole {
            Some(_) if goes_on => elapsed < CALM,
            // A download goes on within the time in which it would after any upheaval.
            Some(whole) => elapsed < self.bound.max(whole + CALM),
            None => elapsed < self.bound,
        }
    }

    fn look(&mut self, round: &mut Round) -> Result<(), LabError> {
        let now = self.load.carried();
        if now.bytes > self.moved.1 {
            self.moved = (Instant::now(), now.bytes);
        }
        let up = self.field.links_up();
        if self.may_end && self.moved.0.elapsed() > STANDS_STILL && up > 0 {
            // What came of a connection that has ended since does not count.
            self.load.begin_again();
            (self.moved.0, self.from) = (Instant::now(), now);
            (round.packets, round.whole) = (None, None);
            return Ok(());
        }
        let calls = now.call_returned - self.from.call_returned >= CALLS_ON;
        if round.packets.is_none() && calls && now.bytes - self.from.bytes >= GOES_ON {
            round.packets = Some(self.begun.elapsed());
        }
        if round.packets.is_some() && round.whole.is_none() {
            self.differences = match up == usize::from(self.field.wans()) {
                true => since(&self.field.look()?, self.usual),
                false => vec![format!("{up} links up")],
            };
            if self.differences.is_empty() {
                round.whole = Some(self.begun.elapsed());
                self.at_whole = self.load.carried().bytes;
            }
        }
        Ok(())
    }

    /// What is not as it must be of packets, and of both hosts.
    fn faults(&self, round: &Round, goes_on: bool) -> Result<Option<String>, LabError> {
        let bound = self.bound.as_secs();
        let now = self.load.carried();
        let Some(whole) = round.whole else {
            if round.packets.is_none() {
                let bytes = now.bytes - self.from.bytes;
                let calls = now.call_returned - self.from.call_returned;
                return Ok(Some(format!(
                    "within {bound} s {bytes} bytes of the download and {calls} packets of the call came"
                )));
            }
            let told: Vec<_> =
                self.differences.iter().take(TOLD).map(|line| shortened(line, LINE)).collect();
            return Ok(Some(format!(
                "{} differences are left after {bound} s: {}",
                self.differences.len(),
                told.join(" | ")
            )));
        };
        if whole > self.bound {
            let late = whole.as_secs_f64();
            return Ok(Some(format!("it was as before after {late:.1} s, not within {bound} s")));
        }
        if !goes_on {
            let bytes = now.bytes - self.at_whole;
            return Ok(Some(format!(
                "the download stood still: {bytes} bytes since everything was as before"
            )));
        }
        // What was whole stays so.
        let differences = since(&self.field.look()?, self.usual);
        Ok(differences
            .first()
            .map(|line| format!("it did not stay as before: {}", shortened(line, LINE))))
    }

    fn load_faults(&self, before: &Carried) -> Vec<String> {
        let now = self.load.carried();
        let mut faults = Vec::new();
        if now.altered > before.altered {
            faults.push("bytes came that were not sent".to_owned());
        }
        if !self.may_end && now.broken > before.broken {
            faults.push(format!("a connection ended: {}", now.last_end));
        }
        faults
    }

    fn daemons_faults(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for daemon in self.field.daemons() {
            faults.extend(daemon.complaints());
            let most = daemon.memory.warm_kib + MORE_MEMORY_KIB;
            if let Some(kib) = daemon.weigh().filter(|kib| *kib > most) {
                faults
                    .push(format!("the {} has {kib} KiB in memory, more than {most}", daemon.role));
            }
        }
        faults
    }
}
