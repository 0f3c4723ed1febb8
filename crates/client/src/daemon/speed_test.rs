//! Speed tests: who asks for one, and what a test asks of the core.

use ropewalk_control::api::{ApiError, ErrorCode, Response, SpeedTestWish};
use ropewalk_proto::client::{ClientStats, LinkKey};
use ropewalk_proto::fleet::FleetClient;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{LinkState, SpeedAnswer, SpeedError, SpeedPhase};
use ropewalk_proto::units::SessionIndex;
use ropewalk_settings::nearest;

use super::Daemon;
use super::budget::Budget;
use crate::links::{Link, Links};
use crate::speed_test::{Candidate, Engine, Reading, SpeedTest};

impl Daemon {
    /// Begins a test, unless one goes on.
    pub(super) fn start_speed_test(
        &mut self,
        now: Instant,
        wish: &SpeedTestWish,
    ) -> Result<Response, ApiError> {
        wish.check().map_err(|why| ApiError::new(ErrorCode::BadRequest, why))?;
        if self.speed_tests.running().is_some() {
            let message = "a speed test goes on already: try again when it is over";
            return Err(ApiError::new(ErrorCode::Busy, message));
        }
        self.know_links(&wish.links).map_err(|why| ApiError::new(ErrorCode::NotFound, why))?;
        let id = self.speed_tests.next_id();
        let (candidates, proxy) = (self.candidates(&wish.links), self.peer(now));
        let core = &mut Core::new(&mut self.client, &self.links, &self.budget);
        let test = SpeedTest::begin(now, id, wish, proxy, &candidates, core)
            .map_err(|why| ApiError::new(ErrorCode::Failed, why))?;
        self.speed_tests.begin(now, test);
        tracing::info!(id, "a test of how fast the links are begins");
        self.show_speed_test(now, id)
    }

    /// How far it is.
    pub(super) fn show_speed_test(&mut self, now: Instant, id: u64) -> Result<Response, ApiError> {
        let test = self.speed_tests.of(now, id).ok_or_else(|| no_test(id))?;
        Ok(Response::SpeedTest(Box::new(test.report(now))))
    }

    /// It ends, if it goes on.
    pub(super) fn end_speed_test(&mut self, now: Instant, id: u64) -> Result<Response, ApiError> {
        let Self { speed_tests, client, links, budget, .. } = self;
        if let Some(test) = speed_tests.running().filter(|test| test.id() == id) {
            test.stop(&mut Core::new(client, links, budget), "it was stopped".to_owned());
            tracing::info!(id, "the test of the links was stopped");
        }
        self.show_speed_test(now, id)
    }

    /// Does what is due in a test.
    pub(super) fn tick_speed_test(&mut self, now: Instant) {
        let Self { speed_tests, client, links, budget, .. } = self;
        let Some(test) = speed_tests.running() else { return };
        if test.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        test.tick(now, &mut Core::new(client, links, budget));
        if !test.goes_on() {
            tracing::info!(id = test.id(), "the test of the links is over");
        }
    }

    /// Whether there are links of these names.
    fn know_links(&self, wanted: &[String]) -> Result<(), String> {
        let names = || self.links.iter().map(|link| link.decision.name.as_str());
        let Some(unknown) = wanted.iter().find(|name| names().all(|known| known != *name)) else {
            return Ok(());
        };
        let help = match nearest(unknown, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        Err(format!("there is no link `{}`: {help}", unknown.escape_debug()))
    }

    /// The links that could be tested, of these names or all, in the order of the status.
    fn candidates(&self, names: &[String]) -> Vec<Candidate> {
        let stats = self.client.stats();
        let wanted = |link: &&Link| names.is_empty() || names.contains(&link.decision.name);
        let links = self.links.iter().filter(wanted);
        let mut found: Vec<_> = links.map(|link| self.candidate(link, &stats)).collect();
        // Those without an id keep their place behind the others.
        found.sort_by_key(|(id, _)| *id);
        found.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// A link, and its place in the status.
    fn candidate(&self, link: &Link, stats: &ClientStats) -> (u16, Candidate) {
        let decision = &link.decision;
        let name = decision.name.clone();
        let way = link.in_use(stats);
        let core = way.and_then(|way| way.core);
        let key = match (link.obstacle(), way, core.map(|core| core.state)) {
            (Some(obstacle), ..) => Err(obstacle.to_string()),
            (None, Some(way), Some(LinkState::Up)) => Ok(way.key),
            (None, Some(_), _) => Err("it is down".to_owned()),
            (None, None, _) => Err(link.trouble.clone().unwrap_or_else(|| "it is down".to_owned())),
        };
        let allowance = decision.allowance.map(|allowance| {
            let left = self.budget.left(&name, stats.ledger.of(&name).bytes());
            (allowance.bytes, left.unwrap_or(0))
        });
        let candidate = Candidate {
            name,
            key,
            direction: decision.policy.direction,
            usage: decision.policy.usage,
            costs: decision.metered || decision.policy.cost.is_some(),
            allowance,
        };
        (core.map_or(u16::MAX, |core| u16::from(core.id.0)), candidate)
    }
}

fn no_test(id: u64) -> ApiError {
    let message = format!("there is no speed test {id}, or another one followed it");
    ApiError::new(ErrorCode::NotFound, message)
}

/// The core as a test sees it, at one moment.
struct Core<'a> {
    client: &'a mut FleetClient,
    links: &'a Links,
    budget: &'a Budget,
    stats: ClientStats,
}

impl<'a> Core<'a> {
    fn new(client: &'a mut FleetClient, links: &'a Links, budget: &'a Budget) -> Self {
        let stats = client.stats();
        Self { client, links, budget, stats }
    }
}

impl Engine for Core<'_> {
    fn session(&self) -> Option<SessionIndex> {
        self.stats.session.as_ref().map(|session| session.index)
    }

    fn reading(&self, link: LinkKey) -> Option<Reading> {
        let known = self.stats.links.iter().find(|known| known.key == link)?;
        known.link.as_ref().map(Reading::of)
    }

    fn left(&self, link: &str) -> Option<u64> {
        let known = self.links.iter().find(|known| known.decision.name == link)?;
        known.decision.allowance?;
        self.budget.left(link, self.stats.ledger.of(link).bytes())
    }

    fn begin(&mut self, now: Instant, phase: &SpeedPhase<LinkKey>) -> Result<(), SpeedError> {
        self.client.begin_speed_phase(now, phase)
    }

    fn answer(&self) -> Option<SpeedAnswer> {
        self.client.speed_answer()
    }

    fn answered_at(&self) -> Option<Instant> {
        self.client.speed_answered_at()
    }

    fn trip(&self, link: LinkKey, percent: u8) -> Option<Duration> {
        self.client.speed_trips(link)?.percentile(percent)
    }

    fn forget_trips(&mut self) {
        self.client.forget_speed_trips();
    }

    fn end(&mut self) {
        self.client.end_speed_test();
    }
}
