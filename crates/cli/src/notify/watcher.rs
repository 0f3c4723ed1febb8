//! What follows from one look at the client after the other. Nothing here asks what time it is.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk_control::api::StatusReport;

use super::conditions;
use super::links::Links;
use super::note::{Act, Note, Topic, Urgency};
use super::outbox::Outbox;

/// At the start, and when the machine has slept, links may take so long until they work.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

/// How long a client that was there may not answer: a restart takes some seconds, an upgrade more.
const AWAY_FOR: Duration = Duration::from_secs(30);

/// Between two looks there may be this much more than there should be, on a busy machine.
const LATE: Duration = Duration::from_secs(10);

/// Looks at documents, and says what is to be shown.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// Between two looks with more time than this nobody knows what happened: the machine slept, or the client was away.
    gap: Duration,
    links: Links,
    outbox: Outbox,
    /// The conditions that were told, each as it was.
    told: BTreeMap<Topic, u8>,
    /// When the client answered last.
    answered: Option<Duration>,
    settling: Option<Settling>,
    /// How often the client had moved to another proxy.
    moves: Option<u64>,
    /// Since when the client, which was there, does not answer.
    away_since: Option<Duration>,
}

/// Until when nothing is told of links.
#[derive(Clone, Copy, Debug)]
struct Settling {
    until: Duration,
    /// It is over when the tunnel works.
    ends_early: bool,
}

impl Watcher {
    /// One that looks so often.
    pub(crate) fn new(every: Duration) -> Self {
        Self {
            gap: every * 3 + LATE,
            links: Links::default(),
            outbox: Outbox::default(),
            told: BTreeMap::new(),
            answered: None,
            settling: None,
            moves: None,
            away_since: None,
        }
    }

    /// What is to be done on the screen after this look; `seen` is what the client said, if it answered. `now` goes on while the
    /// machine sleeps.
    pub(crate) fn look(&mut self, now: Duration, seen: Option<&StatusReport>) -> Vec<Act> {
        match seen {
            Some(report) => self.note(now, report),
            None => self.miss(now),
        }
        self.outbox.take(now)
    }

    /// It could not be shown, and is tried again.
    pub(crate) fn put_back(&mut self, act: Act) {
        self.outbox.put_back(act);
    }

    fn note(&mut self, now: Duration, report: &StatusReport) {
        self.away_since = None;
        if self.told.remove(&Topic::Client).is_some() {
            self.outbox.post(Act::Withdraw(Topic::Client));
        }
        let passed = self.answered.replace(now).map(|before| now.saturating_sub(before));
        if passed.is_none_or(|passed| passed > self.gap) {
            // What is seen first after a sleep is as it was before it.
            let ends_early = passed.is_none();
            self.settling = Some(Settling { until: now + SETTLES_WITHIN, ends_early });
        }
        self.links.note(now, passed.unwrap_or_default(), report);
        self.settle(now);
        if self.settling.is_none()
            && let Some(note) = self.links.tell(now, report)
        {
            self.outbox.post(Act::Show(note));
        }
        self.note_conditions(report);
        self.note_proxy(report);
    }

    fn settle(&mut self, now: Duration) {
        let Some(Settling { until, ends_early }) = self.settling else { return };
        if now >= until {
            self.links.expect();
            self.settling = None;
        } else if ends_early && self.links.works() {
            self.settling = None;
        }
    }

    fn note_conditions(&mut self, report: &StatusReport) {
        let holding = conditions::of(report);
        let holds = |topic: &Topic| holding.iter().any(|one| one.note.topic == *topic);
        let over: Vec<Topic> = self.told.keys().filter(|topic| !holds(topic)).cloned().collect();
        for topic in over {
            self.told.remove(&topic);
            self.outbox.post(Act::Withdraw(topic));
        }
        for condition in holding {
            let topic = condition.note.topic.clone();
            if self.told.insert(topic, condition.level) != Some(condition.level) {
                self.outbox.post(Act::Show(condition.note));
            }
        }
    }

    fn note_proxy(&mut self, report: &StatusReport) {
        let Some(known) = &report.proxies else { return };
        let before = self.moves.replace(known.moves);
        if before.is_none_or(|before| known.moves <= before) {
            return;
        }
        let in_use = known.proxies.iter().find(|proxy| proxy.in_use);
        let id = in_use.and_then(|proxy| proxy.id.clone()).unwrap_or_default();
        let region = in_use.and_then(|proxy| proxy.region.as_ref());
        let place = region.filter(|region| !region.is_empty());
        let place = place.map_or_else(String::new, |region| format!(" ({region})"));
        let body = format!("{id}{place}: {}.", known.why);
        let body = body.trim_start_matches(": ");
        let summary = "Ropewalk uses another proxy";
        self.outbox.post(Act::Show(Note::new(Topic::Proxy, Urgency::Low, summary, body)));
    }

    fn miss(&mut self, now: Duration) {
        if self.answered.is_none() {
            // One that was never there may not be set up.
            return;
        }
        let since = *self.away_since.get_or_insert(now);
        if now.saturating_sub(since) < AWAY_FOR || self.told.contains_key(&Topic::Client) {
            return;
        }
        self.told.insert(Topic::Client, 0);
        let body = "Packets may leave outside the tunnel. See `systemctl status ropewalk-client`.";
        let summary = "Ropewalk does not answer";
        self.outbox.post(Act::Show(Note::new(Topic::Client, Urgency::Normal, summary, body)));
    }
}
