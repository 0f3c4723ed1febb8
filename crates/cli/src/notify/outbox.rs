//! What waits to be shown: the newest of each topic. No topic comes again within some seconds, and not many come in a minute, so that
//! what changes quickly is told once, as it is at the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::note::{Act, Topic};

/// Between two notifications of one topic.
const GAP: Duration = Duration::from_secs(20);

/// Notifications of all topics within [`SPAN`].
const MOST: usize = 6;

/// In which so many are counted.
const SPAN: Duration = Duration::from_secs(60);

/// Waiting, and remembers what it let out.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: BTreeMap<Topic, Act>,
    /// When each topic was shown last.
    shown: BTreeMap<Topic, Duration>,
    /// When anything was shown, within [`SPAN`].
    times: VecDeque<Duration>,
    on_screen: BTreeSet<Topic>,
}

impl Outbox {
    /// Puts it in the place of what waits of its topic. To take away what nobody was shown takes nothing but that.
    pub(super) fn post(&mut self, act: Act) {
        let topic = act.topic().clone();
        match act {
            Act::Withdraw(_) if !self.on_screen.contains(&topic) => {
                self.waiting.remove(&topic);
            }
            act => {
                self.waiting.insert(topic, act);
            }
        }
    }

    /// What may be shown now, the most urgent topics first; the rest waits.
    pub(super) fn take(&mut self, now: Duration) -> Vec<Act> {
        while self.times.front().is_some_and(|time| now.saturating_sub(*time) >= SPAN) {
            self.times.pop_front();
        }
        self.shown.retain(|_, time| now.saturating_sub(*time) < GAP);
        let mut out = Vec::new();
        for (topic, act) in std::mem::take(&mut self.waiting) {
            match &act {
                Act::Withdraw(_) => {
                    self.on_screen.remove(&topic);
                    out.push(act);
                }
                Act::Show(_) if self.shown.contains_key(&topic) || self.times.len() >= MOST => {
                    self.waiting.insert(topic, act);
                }
                Act::Show(_) => {
                    self.times.push_back(now);
                    self.shown.insert(topic.clone(), now);
                    self.on_screen.insert(topic);
                    out.push(act);
                }
            }
        }
        out
    }

    /// It could not be shown: it waits again, unless something newer of its topic does.
    pub(super) fn put_back(&mut self, act: Act) {
        let topic = act.topic().clone();
        self.shown.remove(&topic);
        self.times.pop_back();
        match act {
            // Whoever showed it is gone, and it with him.
            Act::Withdraw(_) => {}
            act => {
                self.on_screen.remove(&topic);
                self.waiting.entry(topic).or_insert(act);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::note::{Note, Urgency};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn show(topic: Topic, summary: &str) -> Act {
        Act::Show(Note::new(topic, Urgency::Normal, summary, ""))
    }

    #[test]
    fn what_changes_quickly_is_told_once_as_it_is_at_the_end() {
        let mut outbox = Outbox::default();
        outbox.post(show(Topic::Links, "one"));
        assert_eq!(outbox.take(SECOND), [show(Topic::Links, "one")]);
        for (at, summary) in [(2, "two"), (9, "three"), (15, "four")] {
            outbox.post(show(Topic::Links, summary));
            assert!(outbox.take(SECOND * at).is_empty());
        }
        assert_eq!(outbox.take(SECOND + GAP), [show(Topic::Links, "four")]);
        assert!(outbox.take(SECOND * 99).is_empty());
    }

    #[test]
    fn a_storm_of_topics_is_spread_over_minutes_with_the_urgent_ones_first() {
        let mut outbox = Outbox::default();
        for number in 10..30 {
            outbox.post(show(Topic::Allowance(format!("link{number}")), "used up"));
        }
        outbox.post(show(Topic::KillSwitch, "failed"));
        let first = outbox.take(SECOND);
        assert_eq!((first.len(), first[0].topic()), (MOST, &Topic::KillSwitch));
        assert!(outbox.take(SECOND * 30).is_empty());
        assert_eq!(outbox.take(SECOND + SPAN).len(), MOST);
    }

    #[test]
    fn what_is_over_before_it_was_shown_is_never_shown() {
        let mut outbox = Outbox::default();
        let topic = || Topic::SignIn("wlan".to_owned());
        outbox.post(show(topic(), "sign in"));
        outbox.post(Act::Withdraw(topic()));
        assert!(outbox.take(SECOND).is_empty());
        outbox.post(show(topic(), "sign in"));
        assert_eq!(outbox.take(SECOND).len(), 1);
        outbox.post(Act::Withdraw(topic()));
        // At once, whatever else was shown.
        assert_eq!(outbox.take(SECOND * 2), [Act::Withdraw(topic())]);
    }

    #[test]
    fn what_nobody_could_show_is_tried_again_unless_there_is_news() {
        let mut outbox = Outbox::default();
        outbox.post(show(Topic::Links, "one"));
        for _ in 0..3 * MOST {
            for act in outbox.take(SECOND) {
                outbox.put_back(act);
            }
        }
        assert_eq!(outbox.take(SECOND * 2), [show(Topic::Links, "one")]);
        outbox.post(show(Topic::Links, "two"));
        outbox.put_back(show(Topic::Links, "one"));
        assert_eq!(outbox.take(SECOND * 3), [show(Topic::Links, "two")]);
    }
}
