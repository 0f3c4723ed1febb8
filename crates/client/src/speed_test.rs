//! A speed test of this client: step after step, each of which fills links with test data while the proxy grants it.
//!
//! | step | finds |
//! | --- | --- |
//! | nothing is sent, for a moment | the round trip of each idle link |
//! | each link alone, down and up | what it carries, its round trip meanwhile, what it loses |
//! | all together, down and up | the same of the bundle |
//!
//! The first part of a step is not counted: there the links' controllers look for the rate. Between two steps queues become empty.
//!
//! It goes on while somebody asks how far it is. It ends with the session, when the proxy refuses it, and never uses more of an
//! allowance than [`plan`] says. Pure: what it asks of the core goes through [`Engine`], and time is an argument.

mod figures;
mod known;
mod phase;
mod plan;

use ropewalk_control::api::{
    LinkSpeed, Speed, SpeedPhaseProgress, SpeedTestReport, SpeedTestState, SpeedTestWish, SpeedWay,
    SumSpeed,
};
use ropewalk_control::speed::sentences;
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::MAX_LINKS;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{SPEED_LIFETIME, SpeedAnswer, SpeedError, SpeedPhase};
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::frame::{SpeedLoad, SpeedRefusal};

pub(crate) use figures::Reading;
pub(crate) use known::KnownTests;
use phase::{Part, Phase, Progress};
pub(crate) use plan::Candidate;
use plan::{LinkPlan, Step, of_step};

/// How often the links are looked at. A step that its data cuts short is measured so finely.
const TICK: Duration = Duration::from_millis(50);

/// How long the round trips of idle links are measured: some 15 of them.
const REST: Duration = Duration::from_millis(1500);

/// How long queues have to become empty.
const PAUSE: Duration = Duration::from_millis(500);

/// A step that is looked at late goes on for so long at most.
const LATE: Duration = Duration::from_millis(300);

/// A proxy that has said nothing for so long does not answer: by then it was asked fifteen times.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// What is said of such a proxy, and of one that stops answering.
const NO_ANSWER: &str = "the proxy does not answer";

/// Whoever waits for a test asks for its figures several times a second. A test that nobody has asked for in this time ends, and
/// the figures of an ended test are kept for as long when another one begins.
const PATIENCE: Duration = Duration::from_secs(3);

/// The figures of a step that the proxy ended count from this time on.
const WORTH_COUNTING: Duration = Duration::from_secs(1);

/// An allowance must have room for so many times what its link carried between the last two looks: what is under way when a step ends,
/// comes.
const LOOKS_AHEAD: u64 = 8;

/// What a test needs of the core and of those who count allowances.
pub(crate) trait Engine {
    /// By which the present session is known; `None`: there is none.
    fn session(&self) -> Option<SessionIndex>;

    /// The counters of a link of that session.
    fn reading(&self, link: LinkKey) -> Option<Reading>;

    /// The bytes that are left of the allowance of the link of this name, where it has one.
    fn left(&self, link: &str) -> Option<u64>;

    /// Begins a phase, in place of the one before.
    fn begin(&mut self, now: Instant, phase: &SpeedPhase<LinkKey>) -> Result<(), SpeedError>;

    /// What the proxy said to it.
    fn answer(&self) -> Option<SpeedAnswer>;

    /// When it last said something to it.
    fn answered_at(&self) -> Option<Instant>;

    /// The round trip on a link that so many percent did not exceed.
    fn trip(&self, link: LinkKey, percent: u8) -> Option<Duration>;

    /// The round trips so far do not count.
    fn forget_trips(&mut self);

    /// The test is over.
    fn end(&mut self);
}

/// Whether a step's figures count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Whole,
    /// Its data was used up.
    CutShort,
    Dropped,
}

/// A test that goes on, or was the last.
#[derive(Debug)]
pub(crate) struct SpeedTest {
    seconds: u16,
    /// What was found so far.
    report: SpeedTestReport,
    /// Its links, in the same order.
    links: Vec<Result<LinkPlan, String>>,
    /// The bytes that it may still use on all links; `None`: nobody bounds them.
    left: Option<u64>,
    steps: Vec<Step>,
    /// The step that goes on, or comes after a pause.
    at: usize,
    /// `None`: the test is over.
    phase: Option<Phase>,
    /// The step before the pause that goes on: what was under way at its end comes meanwhile.
    settling: Option<Phase>,
    session: Option<SessionIndex>,
    /// When somebody last asked for it.
    asked: Instant,
    tick_at: Instant,
}

impl SpeedTest {
    /// A test of these links begins.
    ///
    /// # Errors
    /// Why it cannot, for people.
    pub(crate) fn begin(
        now: Instant,
        id: u64,
        wish: &SpeedTestWish,
        proxy: String,
        candidates: &[Candidate],
        engine: &mut impl Engine,
    ) -> Result<Self, String> {
        let links: Vec<_> = candidates.iter().map(|one| plan::link(wish, one)).collect();
        let of_link = |(one, plan): (&Candidate, &Result<LinkPlan, String>)| LinkSpeed {
            name: one.name.clone(),
            skipped: plan.as_ref().err().cloned(),
            ..LinkSpeed::default()
        };
        let report = SpeedTestReport {
            id,
            proxy,
            links: candidates.iter().zip(&links).map(of_link).collect(),
            ..SpeedTestReport::default()
        };
        if links.iter().all(Result::is_err) {
            return Err(no_link(&report.links));
        }
        let mut test = Self {
            seconds: wish.seconds,
            report,
            steps: plan::steps(wish, &links),
            links,
            left: wish.max_bytes,
            at: 0,
            phase: None,
            settling: None,
            session: engine.session(),
            asked: now,
            tick_at: now + TICK,
        };
        test.enter(now, engine, Step::Rest);
        match test.report.trouble.take() {
            Some(trouble) => Err(trouble),
            None => Ok(test),
        }
    }

    /// Whether it goes on.
    pub(crate) const fn goes_on(&self) -> bool {
        self.phase.is_some()
    }

    /// By which it is asked for.
    pub(crate) const fn id(&self) -> u64 {
        self.report.id
    }

    /// How far it is; somebody asks, so it goes on.
    pub(crate) fn report(&mut self, now: Instant) -> SpeedTestReport {
        self.asked = now;
        let phase = self.phase.as_ref().map(|phase| self.progress(now, phase));
        SpeedTestReport { phase, ..self.report.clone() }
    }

    /// It ends before its time.
    pub(crate) fn stop(&mut self, engine: &mut impl Engine, why: String) {
        self.close(engine, Ending::Dropped);
        self.report.trouble = Some(why);
        self.end(engine, SpeedTestState::Stopped);
    }

    /// When [`tick`](Self::tick) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.phase.as_ref().map(|phase| self.tick_at.min(phase.until))
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Instant, engine: &mut impl Engine) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        // A loop that stood still has yet to hear what came meanwhile.
        let on_time = now.since(self.tick_at) < TICK;
        self.tick_at = now + TICK;
        if now.since(self.asked) > PATIENCE {
            return self.stop(engine, "nobody asks for it any more".to_owned());
        }
        if engine.session() != self.session {
            return self.stop(engine, "the session with the proxy ended meanwhile".to_owned());
        }
        let Some(phase) = &mut self.phase else { return };
        let progress = phase.look(now, engine);
        let elapsed = phase.elapsed(now);
        // Without a grant nothing is sent, and a rate would be that of a link at rest.
        let granted = engine.answered_at().filter(|_| on_time && phase.step.way().is_some());
        let is_over = granted.is_some_and(|at| now.since(at) > SPEED_LIFETIME);
        match engine.answer() {
            Some(SpeedAnswer::Refused { why, wait }) => {
                if why == SpeedRefusal::UsedUp && elapsed >= WORTH_COUNTING {
                    self.close(engine, Ending::CutShort);
                }
                return self.stop(engine, refused(why, wait));
            }
            Some(SpeedAnswer::Granted) if is_over => {
                return self.stop(engine, NO_ANSWER.to_owned());
            }
            None if elapsed >= ANSWER_TIME => return self.stop(engine, NO_ANSWER.to_owned()),
            Some(SpeedAnswer::Granted) | None => {}
        }
        let short = self.short_of_allowance(engine);
        for at in &short {
            if let Some(Ok(plan)) = self.links.get_mut(*at) {
                plan.budget = Some(0);
            }
        }
        let ending = match progress {
            Progress::Over => Ending::Whole,
            Progress::UsedUp => Ending::CutShort,
            Progress::GoesOn if short.is_empty() => return,
            Progress::GoesOn => Ending::CutShort,
        };
        if let Some(step) = self.close(engine, ending) {
            self.go_on(now, engine, step);
        }
    }

    /// The links that are being filled, and whose allowance has little more room than others may need.
    fn short_of_allowance(&self, engine: &impl Engine) -> Vec<usize> {
        let Some(phase) = self.phase.as_ref().filter(|phase| phase.step.way().is_some()) else {
            return Vec::new();
        };
        let is_short = |(place, part): (usize, &Part)| {
            let plan = self.links.get(part.at)?.as_ref().ok()?;
            let left = engine.left(&self.report.links.get(part.at)?.name)?;
            let needed = plan.reserve.max(phase.lately(place).saturating_mul(LOOKS_AHEAD));
            (left < needed).then_some(part.at)
        };
        phase.parts.iter().enumerate().filter_map(is_short).collect()
    }

    /// The links of a step with the test data that each may carry in it, and what all may.
    fn parts(&self, step: Step) -> (Vec<Part>, u64) {
        let coming = self.steps.get(self.at..).unwrap_or_default();
        let Some(way) = step.way() else { return (self.all(), 0) };
        let fills = coming.iter().filter(|step| step.way().is_some()).count();
        let Some(all) = of_step(self.left, fills) else { return (Vec::new(), 0) };
        let filled = |(at, plan): (usize, &LinkPlan)| {
            let steps = coming.iter().filter(|step| step.fills(at, plan)).count();
            let most = of_step(plan.budget, steps)?;
            // What a link adds is compared with what it carried alone.
            let known = matches!(step, Step::Alone(..)) || self.alone(at, way).is_some();
            (step.fills(at, plan) && known).then_some(Part { at, key: plan.key, most })
        };
        let parts: Vec<Part> = self.tested().filter_map(filled).collect();
        match step {
            Step::Together(_) if parts.len() < 2 => (Vec::new(), 0),
            _ => (parts, all),
        }
    }

    /// All links that are tested, without test data.
    fn all(&self) -> Vec<Part> {
        self.tested().map(|(at, plan)| Part { at, key: plan.key, most: 0 }).collect()
    }

    fn tested(&self) -> impl Iterator<Item = (usize, &LinkPlan)> {
        let links = self.links.iter().enumerate();
        links.filter_map(|(at, link)| Some((at, link.as_ref().ok()?)))
    }

    fn alone(&self, at: usize, way: SpeedWay) -> Option<&Speed> {
        self.report.links.get(at)?.way(way)
    }

    /// Begins what comes after this step.
    fn go_on(&mut self, now: Instant, engine: &mut impl Engine, after: Step) {
        if after != Step::Pause {
            self.at += 1;
        }
        while let Some(step) = self.steps.get(self.at).copied() {
            if self.parts(step).0.is_empty() {
                self.at += 1;
                continue;
            }
            let next = if after.way().is_some() { Step::Pause } else { step };
            return self.enter(now, engine, next);
        }
        self.end(engine, SpeedTestState::Done);
    }

    fn enter(&mut self, now: Instant, engine: &mut impl Engine, step: Step) {
        let (parts, bytes) = self.parts(step);
        let time = match step {
            Step::Rest => REST,
            Step::Pause => PAUSE,
            Step::Alone(..) | Step::Together(_) => Duration::from_secs(u64::from(self.seconds)),
        };
        let wanted = SpeedPhase {
            links: parts.iter().map(|part| (part.key, part.most)).take(MAX_LINKS).collect(),
            bytes,
            load: match step.way() {
                None => SpeedLoad::Idle,
                Some(SpeedWay::Down) => SpeedLoad::Down,
                Some(SpeedWay::Up) => SpeedLoad::Up,
            },
            until: now + time + LATE,
        };
        match engine.begin(now, &wanted) {
            Ok(()) => self.phase = Some(Phase::begin(now, step, time, parts, bytes, engine)),
            Err(error) => self.stop(engine, error.to_string()),
        }
    }

    /// Notes what the step used, and what it found if that counts. Returns which it was.
    fn close(&mut self, engine: &impl Engine, ending: Ending) -> Option<Step> {
        let mut phase = self.phase.take()?;
        if let Some(mut before) = self.settling.take() {
            before.settle(engine);
            self.charge(&mut before);
        }
        self.charge(&mut phase);
        if ending != Ending::Dropped {
            self.note(&phase, ending == Ending::CutShort, engine);
        }
        let step = phase.step;
        self.settling = Some(phase).filter(|_| step.way().is_some());
        Some(step)
    }

    /// Counts what the links of a step carried for the test and was not counted yet.
    fn charge(&mut self, phase: &mut Phase) {
        let used = phase.take_used();
        for (part, bytes) in phase.parts.iter().zip(used) {
            self.report.test_bytes += bytes;
            if let Some(link) = self.report.links.get_mut(part.at) {
                link.test_bytes += bytes;
            }
            self.left = self.left.map(|left| left.saturating_sub(bytes));
            self.spend(part.at, bytes);
        }
    }

    /// A link has carried so much for the test.
    fn spend(&mut self, at: usize, bytes: u64) {
        if let Some(Ok(LinkPlan { budget: Some(budget), .. })) = self.links.get_mut(at) {
            *budget = budget.saturating_sub(bytes);
        }
    }

    fn note(&mut self, phase: &Phase, cut_short: bool, engine: &impl Engine) {
        let Some(way) = phase.step.way() else {
            for part in phase.parts.iter().filter(|_| phase.step == Step::Rest) {
                if let Some(link) = self.report.links.get_mut(part.at) {
                    let trip = engine.trip(part.key, 50);
                    link.idle_rtt_ms = trip.map(|trip| trip.as_secs_f64() * 1e3);
                }
            }
            return;
        };
        let speeds = phase.speeds(way, cut_short, engine);
        if matches!(phase.step, Step::Together(_)) {
            // Without one of them it is not the sum of all.
            let speeds: Result<Vec<Speed>, _> = speeds.into_iter().collect();
            let Ok(speeds) = speeds else { return };
            return self.note_sum(way, &phase.parts, speeds);
        }
        for (part, speed) in phase.parts.iter().zip(speeds) {
            let Some(link) = self.report.links.get_mut(part.at) else { continue };
            match (speed, way) {
                (Err(why), _) => link.skipped = Some(why.to_owned()),
                (Ok(speed), SpeedWay::Down) => link.down = Some(speed),
                (Ok(speed), SpeedWay::Up) => link.up = Some(speed),
            }
        }
    }

    fn note_sum(&mut self, way: SpeedWay, parts: &[Part], speeds: Vec<Speed>) {
        let alone = parts.iter().filter_map(|part| self.alone(part.at, way));
        let alone_bps: f64 = alone.map(|speed| speed.rate_bps).sum();
        let links = parts.iter().filter_map(|part| self.report.links.get(part.at));
        let names: Vec<String> = links.map(|link| link.name.clone()).collect();
        let sum = added(&speeds);
        let sum = SumSpeed { sum, alone_bps, by_link: names.into_iter().zip(speeds).collect() };
        let together = self.report.together.get_or_insert_default();
        match way {
            SpeedWay::Down => together.down = Some(sum),
            SpeedWay::Up => together.up = Some(sum),
        }
    }

    fn end(&mut self, engine: &mut impl Engine, state: SpeedTestState) {
        engine.end();
        self.settling = None;
        self.report.state = state;
        self.report.summary = sentences(&self.report);
    }

    fn progress(&self, now: Instant, phase: &Phase) -> SpeedPhaseProgress {
        let link = match phase.step {
            Step::Alone(at, _) => self.report.links.get(at).map(|link| link.name.clone()),
            Step::Rest | Step::Pause | Step::Together(_) => None,
        };
        SpeedPhaseProgress {
            number: self.at + 1,
            of: self.steps.len(),
            link,
            way: phase.step.way(),
            elapsed_s: phase.elapsed(now).min(phase.time()).as_secs_f64(),
            of_s: phase.time().as_secs_f64(),
            rate_bps: phase.rate(),
        }
    }
}

/// The figures of several links as one.
fn added(links: &[Speed]) -> Speed {
    let sum = |value: fn(&Speed) -> f64| -> f64 { links.iter().map(value).sum() };
    let worst =
        |value: fn(&Speed) -> Option<f64>| links.iter().filter_map(value).max_by(f64::total_cmp);
    Speed {
        rate_bps: sum(|link| link.rate_bps),
        wire_bps: sum(|link| link.wire_bps),
        other_bps: sum(|link| link.other_bps),
        rtt_p50_ms: worst(|link| link.rtt_p50_ms),
        rtt_p95_ms: worst(|link| link.rtt_p95_ms),
        loss: worst(|link| link.loss),
        over_s: links.first().map_or(0.0, |link| link.over_s),
        cut_short: links.iter().any(|link| link.cut_short),
    }
}

/// Why none of these links is tested.
fn no_link(links: &[LinkSpeed]) -> String {
    let why = |link: &LinkSpeed| Some(format!("{}: {}", link.name, link.skipped.as_ref()?));
    let why: Vec<String> = links.iter().filter_map(why).collect();
    match why.is_empty() {
        true => "there is no link to test".to_owned(),
        false => format!("no link can be tested: {}", why.join("; ")),
    }
}

/// What the proxy said, for people.
fn refused(why: SpeedRefusal, wait: Option<Duration>) -> String {
    match wait.map(|wait| wait.as_secs()) {
        None => why.to_string(),
        Some(seconds @ ..120) => format!("{why}: try again in {seconds} s"),
        Some(seconds) => format!("{why}: try again in {} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests;
