//! When the `dnsmasq` of an interface is started, ended, and started again: pure, with the time as an argument.
//!
//! One that ends by itself is started again after a pause, which doubles with each end that follows soon, up to a minute. What
//! is to be served otherwise is served at once, by another one.

use std::time::{Duration, Instant};

use super::lan::Lan;
use super::words::LanReport;

/// The first pause after an end, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// One that ran for so long does not fail at its start: its end is a new story.
const LONG: Duration = Duration::from_secs(60);

/// One that lives for so long has its ports: what it lacks it says within some milliseconds.
const SETTLED: Duration = Duration::from_millis(500);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Start one that serves this.
    Start(Lan),
    /// End the one that runs.
    End,
}

/// One interface's `dnsmasq`.
#[derive(Clone, Debug)]
pub struct Supervised {
    interface: String,
    /// What is to be served; `None`: nothing any more.
    wanted: Option<Lan>,
    state: State,
    /// Ends that followed each other soon.
    failures: u32,
    /// Why it ended last, or could not be started.
    trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// None runs, and none is to be started before this moment.
    Rests(Option<Instant>),
    /// One that serves this runs since then.
    Runs(Lan, Instant),
    /// It was told to end.
    Ends,
}

impl Supervised {
    /// Nothing is served yet.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            wanted: None,
            state: State::Rests(None),
            failures: 0,
            trouble: None,
        }
    }

    /// From now on this is to be served.
    pub fn want(&mut self, lan: Option<Lan>) {
        if self.wanted == lan {
            return;
        }
        self.wanted = lan;
        // What hindered the one before need not hinder this.
        self.failures = 0;
        self.trouble = None;
        if let State::Rests(pause) = &mut self.state {
            *pause = None;
        }
    }

    /// What is to be done now. Whoever carries it out says so ([`note_start`](Self::note_start), [`note_end`](Self::note_end)).
    pub fn step(&mut self, now: Instant) -> Step {
        match (&self.state, &self.wanted) {
            (State::Rests(Some(until)), Some(_)) if now < *until => Step::Rest,
            (State::Rests(_), Some(lan)) => Step::Start(lan.clone()),
            (State::Runs(served, _), wanted) if Some(served) != wanted.as_ref() => {
                self.state = State::Ends;
                Step::End
            }
            (State::Rests(_) | State::Runs(..) | State::Ends, _) => Step::Rest,
        }
    }

    /// It was started to serve this, or could not be, for the reason given.
    pub fn note_start(&mut self, now: Instant, lan: Lan, started: Result<(), String>) {
        match started {
            Ok(()) => self.state = State::Runs(lan, now),
            Err(why) => self.fail(now, why),
        }
    }

    /// It has ended. `why` is what it said, or how it ended.
    pub fn note_end(&mut self, now: Instant, why: String) {
        match &self.state {
            // As it was told to.
            State::Ends => self.state = State::Rests(None),
            State::Runs(_, since) => {
                if now.saturating_duration_since(*since) >= LONG {
                    self.failures = 0;
                }
                self.fail(now, why);
            }
            State::Rests(_) => {}
        }
    }

    fn fail(&mut self, now: Instant, why: String) {
        let doublings = self.failures.min(6);
        self.failures += 1;
        self.trouble = Some(why);
        self.state = State::Rests(Some(now + (PAUSE.0 * 2_u32.pow(doublings)).min(PAUSE.1)));
    }

    /// When [`step`](Self::step) or [`report`](Self::report) may say something else although nothing happened.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Rests(until) if self.wanted.is_some() => Some(until.unwrap_or(now)),
            State::Runs(_, since) => Some(*since + SETTLED).filter(|at| *at > now),
            State::Rests(_) | State::Ends => None,
        }
    }

    /// Whether nothing is served, nor to be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.wanted.is_none() && matches!(self.state, State::Rests(_))
    }

    /// How it is; `None` while it is not known whether one that was started stays, and of what is not to be served.
    #[must_use]
    pub fn report(&self, now: Instant) -> Option<LanReport> {
        self.wanted.as_ref()?;
        let runs = match &self.state {
            State::Rests(None) | State::Ends => return None,
            State::Runs(_, since) if now < *since + SETTLED => return None,
            State::Rests(Some(_)) => false,
            State::Runs(..) => true,
        };
        let trouble = self.trouble.clone().filter(|_| !runs);
        Some(LanReport { interface: self.interface.clone(), runs, trouble })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::household::lan::testing;

    fn lan(lease_s: u32) -> Lan {
        Lan { lease_s, ..testing::lan() }
    }

    /// One that was just started.
    fn started(now: Instant) -> Supervised {
        let mut one = Supervised::new("lan0");
        one.want(Some(lan(600)));
        let Step::Start(lan) = one.step(now) else { panic!("it is to be started") };
        one.note_start(now, lan, Ok(()));
        one
    }

    #[test]
    fn one_that_stays_for_a_moment_runs_and_one_that_ends_says_why() {
        let now = Instant::now();
        let mut one = started(now);
        assert_eq!((one.step(now), one.report(now)), (Step::Rest, None));
        assert_eq!(one.poll_timeout(now), Some(now + SETTLED));
        let report = one.report(now + SETTLED).unwrap();
        assert!(report.runs && report.trouble.is_none());
        assert_eq!(one.poll_timeout(now + SETTLED), None);
        one.note_end(now + SETTLED, "killed".into());
        let report = one.report(now + SETTLED).unwrap();
        assert_eq!((report.runs, report.trouble.as_deref()), (false, Some("killed")));
    }

    #[test]
    fn the_pause_doubles_up_to_a_minute_and_begins_again_after_a_long_life() {
        let mut now = Instant::now();
        let mut one = started(now);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            one.note_end(now, "ended".into());
            let until = one.poll_timeout(now).unwrap();
            assert_eq!(one.step(until - Duration::from_millis(1)), Step::Rest);
            pauses.push((until - now).as_secs());
            now = until;
            let Step::Start(lan) = one.step(now) else { panic!("it is to be started again") };
            one.note_start(now, lan, Ok(()));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        now += LONG;
        one.note_end(now, "ended".into());
        assert_eq!(one.poll_timeout(now), Some(now + PAUSE.0));
    }

    #[test]
    fn what_is_wanted_otherwise_is_served_at_once_when_the_old_one_has_ended() {
        let now = Instant::now();
        let mut one = started(now);
        one.want(Some(lan(700)));
        assert_eq!(one.step(now), Step::End);
        assert_eq!(one.step(now), Step::Rest, "it ends");
        one.note_end(now, "told to".into());
        assert_eq!(one.report(now), None);
        assert_eq!(one.step(now), Step::Start(lan(700)));
        one.note_start(now, lan(700), Err("no dnsmasq".into()));
        assert_eq!(one.report(now).unwrap().trouble.as_deref(), Some("no dnsmasq"));
        assert_eq!(one.step(now), Step::Rest, "that would fail again");
        one.want(Some(lan(800)));
        assert_eq!(one.step(now), Step::Start(lan(800)), "this may not");
    }

    #[test]
    fn what_is_wanted_no_more_ends_and_is_over() {
        let now = Instant::now();
        let mut one = started(now);
        assert!(!one.is_over());
        one.want(None);
        assert_eq!((one.step(now), one.is_over()), (Step::End, false));
        one.note_end(now, "told to".into());
        assert!(one.is_over());
        assert_eq!((one.step(now), one.poll_timeout(now)), (Step::Rest, None));
        assert_eq!(one.report(now), None);
    }
}
