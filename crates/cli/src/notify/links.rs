//! What became of the links: which are lost, which are back, which come and go, and whether any works.
//!
//! A link is lost when it worked and has not for some seconds; it is back when it works again for some seconds. One that was lost three
//! times within ten minutes comes and goes: that is told once, and nothing more of it until it has been the same for ten minutes. While
//! no link works, that alone is told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ropewalk_control::api::{KillSwitch, LinkState, LinkStatus, StatusReport, TunnelState};

use super::conditions::is_wanted_so;
use super::note::{Note, Topic, Urgency};

/// How long something must not work to be told: a handover between two access points of a Wi-Fi takes less.
const LOST_FOR: Duration = Duration::from_secs(8);

/// How long it must work again.
const BACK_FOR: Duration = Duration::from_secs(5);

/// A link that is lost [`MANY`] times within this time comes and goes, until it stays the same for as long.
const RESTLESS: Duration = Duration::from_secs(600);

/// How often is often.
const MANY: usize = 3;

/// Links of which a story is kept: some times as many as a client may have, for names come and go.
const MOST_STORIES: usize = 256;

/// What a person was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    /// Nothing, or that it is not to work.
    #[default]
    Nothing,
    /// Nothing is wrong.
    Works,
    /// It is lost.
    Lost,
}

/// Something that works or does not, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    works: bool,
    since: Duration,
    told: Told,
}

impl State {
    /// `age`: for how long it has been as it is.
    fn note(&mut self, now: Duration, works: bool, age: Duration) {
        if self.works != works {
            (self.works, self.since) = (works, now.saturating_sub(age));
        }
    }

    /// Whether it has been as it is for as long as it takes to be told.
    fn is_settled(&self, now: Duration) -> bool {
        let least = if self.works { BACK_FOR } else { LOST_FOR };
        now.saturating_sub(self.since) >= least
    }

    /// What is news now, which counts as told from then on.
    fn news(&mut self, now: Duration) -> Option<News> {
        if !self.is_settled(now) {
            return None;
        }
        let (told, news) = match (self.works, self.told) {
            (true, Told::Lost) => (Told::Works, Some(News::Back)),
            (true, Told::Nothing | Told::Works) => (Told::Works, None),
            (false, Told::Works) => (Told::Lost, Some(News::Lost)),
            (false, Told::Nothing | Told::Lost) => return None,
        };
        self.told = told;
        news
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Lost,
    Back,
}

/// One link.
#[derive(Debug, Default)]
struct Story {
    state: State,
    /// When it was lost lately.
    losses: VecDeque<Duration>,
    is_restless: bool,
    /// Why it does not work, as the client said last.
    reason: String,
}

/// All links, and the tunnel over them.
#[derive(Debug, Default)]
pub(super) struct Links {
    tunnel: State,
    stories: BTreeMap<String, Story>,
}

/// What there is to say of links, by their names.
#[derive(Debug, Default)]
struct Changes {
    lost: Vec<String>,
    back: Vec<String>,
    restless: Vec<String>,
}

impl Links {
    /// Notes what a document says; `passed` since the one before.
    pub(super) fn note(&mut self, now: Duration, passed: Duration, report: &StatusReport) {
        let Some(tunnel) = report.tunnels.first() else { return };
        // At the look before it was otherwise.
        let age = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default().min(passed);
        self.tunnel.note(now, tunnel.state == TunnelState::Up, age(tunnel.state_age_s));
        for link in &tunnel.links {
            if self.stories.len() >= MOST_STORIES && !self.stories.contains_key(&link.name) {
                continue;
            }
            let story = self.stories.entry(link.name.clone()).or_default();
            story.state.note(now, works(link), age(link.state_age_s));
            story.reason = link.reason.clone().unwrap_or_default();
            if is_wanted_so(link) {
                story.state.told = Told::Nothing;
            }
        }
        let gone = |name: &String| !tunnel.links.iter().any(|link| link.name == *name);
        for (_, story) in self.stories.iter_mut().filter(|(name, _)| gone(name)) {
            story.state.note(now, false, Duration::ZERO);
            "its interface is gone".clone_into(&mut story.reason);
        }
        // What was told of them is told of no more.
        let is_old = |story: &Story| now.saturating_sub(story.state.since) > RESTLESS;
        self.stories.retain(|name, story| !gone(name) || !is_old(story));
    }

    /// Whether the tunnel works.
    pub(super) const fn works(&self) -> bool {
        self.tunnel.works
    }

    /// What a person is to be told of it now, if anything is.
    pub(super) fn tell(&mut self, now: Duration, report: &StatusReport) -> Option<Note> {
        match self.tunnel.news(now) {
            Some(News::Lost) => Some(self.all_lost(report)),
            Some(News::Back) => Some(self.connected(now)),
            // Of single links nothing is told while none works, and before it is certain that one does.
            None if !self.tunnel.works || self.tunnel.told != Told::Works => None,
            None => self.changes(now).note(self),
        }
    }

    /// The tunnel did not work when it was looked at first, and it does not yet: that is told, too.
    pub(super) fn expect(&mut self) {
        if self.tunnel.told == Told::Nothing {
            self.tunnel.told = Told::Works;
        }
    }

    fn all_lost(&self, report: &StatusReport) -> Note {
        let tunnel = report.tunnels.first();
        let state = tunnel.map(|tunnel| tunnel.state);
        let summary = match state {
            Some(TunnelState::Idle | TunnelState::Stalled) => "All links are lost",
            _ => "Ropewalk is not connected",
        };
        let reason = tunnel.and_then(|tunnel| tunnel.reason.as_deref()).unwrap_or_default();
        let locked = match report.daemon.kill_switch {
            Some(KillSwitch::On) => "Nothing leaves outside the tunnel.",
            _ => "",
        };
        let body = format!("{} {locked}", sentence(reason));
        Note::new(Topic::Links, Urgency::Normal, summary, &body)
    }

    fn connected(&mut self, now: Duration) -> Note {
        // One note says how all of them are.
        for story in self.stories.values_mut() {
            story.state.news(now);
        }
        let body = match self.working() {
            none if none.is_empty() => String::new(),
            some => format!("{}.", and(&some, "carries packets", "carry packets")),
        };
        Note::new(Topic::Links, Urgency::Low, "Connected again", &body)
    }

    fn changes(&mut self, now: Duration) -> Changes {
        let mut changes = Changes::default();
        for (name, story) in &mut self.stories {
            let since = story.state.since;
            if story.is_restless && now.saturating_sub(since) >= RESTLESS {
                story.is_restless = false;
                story.losses.clear();
                // It was last told that it comes and goes.
                story.state.told = Told::Works;
            }
            while story.losses.front().is_some_and(|loss| now.saturating_sub(*loss) >= RESTLESS) {
                story.losses.pop_front();
            }
            let news = story.state.news(now);
            if news == Some(News::Lost) {
                story.losses.push_back(now);
            }
            match news {
                None => {}
                Some(_) if story.is_restless => {}
                Some(News::Lost) if story.losses.len() >= MANY => {
                    story.is_restless = true;
                    changes.restless.push(name.clone());
                }
                Some(News::Lost) => changes.lost.push(name.clone()),
                Some(News::Back) => changes.back.push(name.clone()),
            }
        }
        changes
    }

    /// Why a link is lost.
    fn reason(&self, name: &str) -> &str {
        self.stories.get(name).map_or("", |story| story.reason.as_str())
    }

    /// The names of those that work.
    fn working(&self) -> Vec<&str> {
        let working = self.stories.iter().filter(|(_, story)| story.state.works);
        working.map(|(name, _)| name.as_str()).collect()
    }
}

impl Changes {
    fn note(&self, links: &Links) -> Option<Note> {
        let Self { lost, back, restless } = self;
        let some = |names: &[String], one: &str, several: &str| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            (!names.is_empty()).then(|| and(&names, one, several))
        };
        let parts = [
            some(lost, "is lost", "are lost"),
            some(restless, "comes and goes", "come and go"),
            some(back, "is back", "are back"),
        ];
        let summary = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if summary.is_empty() {
            return None;
        }
        let mut body: Vec<String> = match &lost[..] {
            [one] => vec![sentence(links.reason(one))],
            several => {
                let why = |name: &String| format!("{name}: {}.", links.reason(name));
                several.iter().map(why).collect()
            }
        };
        if !restless.is_empty() {
            body.push(format!("Lost {MANY} times in ten minutes. You hear of it when it rests."));
        }
        let working = links.working();
        let all_well = lost.is_empty() && restless.is_empty();
        if !all_well && !working.is_empty() {
            body.push(format!("{}.", and(&working, "carries on", "carry on")));
        }
        let urgency = match all_well {
            true => Urgency::Low,
            false => Urgency::Normal,
        };
        Some(Note::new(Topic::Links, urgency, &summary, &body.join(" ")))
    }
}

/// Whether packets pass on a link.
fn works(link: &LinkStatus) -> bool {
    matches!(link.state, LinkState::Up | LinkState::Suspect)
}

/// The names of the links that work.
pub(super) fn working(links: &[LinkStatus]) -> Vec<&str> {
    links.iter().filter(|link| works(link)).map(|link| link.name.as_str()).collect()
}

/// Names in a row, and what is said of them: of one, or of several.
pub(super) fn and(names: &[&str], one: &str, several: &str) -> String {
    /// More are counted.
    const MOST: usize = 3;

    match names {
        [] => String::new(),
        [name] => format!("{name} {one}"),
        [begin @ .., last] if names.len() <= MOST => {
            format!("{} and {last} {several}", begin.join(", "))
        }
        names => {
            let (first, rest) = names.split_at(MOST - 1);
            format!("{} and {} others {several}", first.join(", "), rest.len())
        }
    }
}

/// A reason, with a capital and a full stop; nothing stays nothing.
fn sentence(reason: &str) -> String {
    let mut letters = reason.trim_end_matches('.').chars();
    match letters.next() {
        None => String::new(),
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
    }
}
