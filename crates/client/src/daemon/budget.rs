//! The allowances while the client runs: when they are counted, who is told, and where the counts go.

use std::collections::BTreeMap;

use jiff::civil::Date;
use ropewalk_control::api::EventKind;
use ropewalk_proto::time::{Duration, Instant};
use tokio::sync::watch;

use crate::allowance::{Allowances, Counts, Line};
use crate::config::Allowance;

/// How often allowances are counted while packets go: a link that must stop carries at most a second too much.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// And while none go: an allowance that begins again is noticed so late.
const CALENDAR_INTERVAL: Duration = Duration::from_secs(60);

/// What the links may still carry.
#[derive(Debug)]
pub(super) struct Budget {
    allowances: Allowances,
    /// When they are counted next.
    due: Instant,
    /// What there is to be warned of, by link, since the last count.
    warnings: BTreeMap<String, (Line, String)>,
    /// Links that may carry no more, until when.
    stopped: BTreeMap<String, Date>,
    /// Where the counts go to survive.
    kept: watch::Sender<Counts>,
    /// Why they may not.
    trouble: Option<String>,
    /// What happened since somebody asked.
    news: Vec<News>,
}

/// Something that happened to an allowance.
#[derive(Debug)]
pub(super) struct News {
    pub(super) kind: EventKind,
    pub(super) link: String,
    pub(super) text: String,
}

impl Budget {
    /// Goes on with what is kept; `trouble` is why that is not known.
    pub(super) fn new(now: Instant, kept: watch::Sender<Counts>, trouble: Option<String>) -> Self {
        let allowances = Allowances::new(kept.borrow().clone());
        let (warnings, stopped) = (BTreeMap::new(), BTreeMap::new());
        Self { allowances, due: now, warnings, stopped, kept, trouble, news: Vec::new() }
    }

    /// The links have these allowances. What was used up before is known at once; `carried` are a link's bytes
    /// since the start of the client.
    pub(super) fn set<'a>(
        &mut self,
        now: Instant,
        today: Date,
        links: impl Iterator<Item = (&'a str, Allowance)>,
        carried: impl Fn(&str) -> u64,
    ) {
        let mut is_new = false;
        for (link, allowance) in links {
            is_new |= self.allowances.set(link, allowance);
        }
        if is_new {
            self.allowances.count(today, carried);
            self.stopped = self.allowances.stopped();
            self.due = now;
        }
    }

    /// Whether it is time to count.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due <= now
    }

    /// Counts what the links carried, warns, and keeps the counts. Returns whether other links may carry now.
    pub(super) fn count(
        &mut self,
        now: Instant,
        today: Date,
        carried: impl Fn(&str) -> u64,
    ) -> bool {
        self.due = now + COUNT_INTERVAL;
        if self.allowances.is_empty() {
            return false;
        }
        for link in self.allowances.count(today, carried) {
            tracing::info!(link, "a new month of the allowance begins");
            let (kind, text) = (EventKind::AllowanceRenewed, String::new());
            self.news.push(News { kind, link, text });
        }
        let before = std::mem::replace(&mut self.warnings, self.allowances.warnings());
        for (link, (line, text)) in &self.warnings {
            if before.get(link).is_none_or(|(before, _)| before != line) {
                tracing::warn!("{text}");
                let kind = match line {
                    Line::Nearly => EventKind::AllowanceNearly,
                    Line::UsedUp => EventKind::AllowanceUsed,
                };
                let (link, text) = (link.clone(), text.clone());
                self.news.push(News { kind, link, text });
            }
        }
        let counts = self.allowances.counts();
        self.kept.send_if_modified(|kept| {
            let changed = kept != counts;
            kept.clone_from(counts);
            changed
        });
        let stopped = self.allowances.stopped();
        let changed = stopped != self.stopped;
        self.stopped = stopped;
        changed
    }

    /// What happened to allowances since the last time.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// The counts were written, or this is why they could not be.
    pub(super) fn note_written(&mut self, trouble: Option<String>) {
        if let Some(trouble) = &trouble {
            tracing::warn!("{trouble}");
        }
        self.trouble = trouble;
    }

    /// Until when a link may carry no more.
    pub(super) fn stopped_until(&self, link: &str) -> Option<Date> {
        self.stopped.get(link).copied()
    }

    /// The bytes that are left of the allowance of a link that has carried so much since the daemon's start.
    pub(super) fn left(&self, link: &str, carried: u64) -> Option<u64> {
        self.allowances.left(link, carried)
    }

    /// What a person should know now.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &String> {
        self.warnings.values().map(|(_, text)| text).chain(&self.trouble)
    }

    /// The allowances and what was carried of them.
    pub(super) fn allowances(&self) -> &Allowances {
        &self.allowances
    }

    /// When it is time to count although nothing goes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.allowances.is_empty()).then(|| self.due + CALENDAR_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn budget(known: Counts) -> (Budget, watch::Receiver<Counts>) {
        let (kept, written) = watch::channel(known);
        (Budget::new(Instant::ZERO, kept, None), written)
    }

    fn allowance(stop: bool) -> Allowance {
        Allowance { bytes: 5 * GB, reset_day: 1, stop }
    }

    fn date() -> Date {
        jiff::civil::date(2026, 11, 22)
    }

    #[test]
    fn a_link_that_used_its_allowance_up_stops_until_it_begins_again() {
        let (mut budget, written) = budget(Counts::new());
        let links = [("lte", allowance(true)), ("wlan", allowance(false))];
        budget.set(Instant::ZERO, date(), links.into_iter(), |_| 0);
        assert!(!budget.count(Instant::ZERO, date(), |_| 4 * GB), "80 % only warns");
        assert_eq!(budget.warnings().count(), 2);
        assert!(budget.count(Instant::ZERO, date(), |_| 5 * GB));
        assert_eq!(budget.stopped_until("lte"), Some(jiff::civil::date(2026, 12, 1)));
        assert_eq!(budget.stopped_until("wlan"), None);
        assert!(!budget.count(Instant::ZERO, date(), |_| 5 * GB), "nothing changed");
        assert_eq!(written.borrow()["lte"].bytes, 5 * GB);
        assert!(budget.count(Instant::ZERO, jiff::civil::date(2026, 12, 1), |_| 5 * GB));
        assert_eq!((budget.stopped_until("lte"), budget.warnings().count()), (None, 0));
        let news: Vec<_> = budget.take_news().into_iter().map(|one| (one.kind, one.link)).collect();
        let of = |kind| ["lte", "wlan"].map(|link| (kind, link.to_owned()));
        let expected =
            [EventKind::AllowanceNearly, EventKind::AllowanceUsed, EventKind::AllowanceRenewed];
        assert_eq!(news, expected.map(of).concat());
        assert!(budget.take_news().is_empty(), "each is told once");
    }

    #[test]
    fn what_was_used_up_before_the_start_is_known_at_once() {
        let known = [("lte".to_owned(), crate::allowance::Count { since: date(), bytes: 9 * GB })];
        let (mut budget, _written) = budget(known.into());
        assert_eq!(budget.poll_timeout(), None, "nothing is to be counted");
        budget.set(Instant::ZERO, date(), [("lte", allowance(true))].into_iter(), |_| 0);
        assert!(budget.stopped_until("lte").is_some() && budget.is_due(Instant::ZERO));
        assert!(budget.poll_timeout().is_some());
    }

    #[test]
    fn a_full_disk_is_told_until_the_counts_are_written_again() {
        let (mut budget, _written) = budget(Counts::new());
        budget.note_written(Some("no space left".to_owned()));
        assert_eq!(budget.warnings().collect::<Vec<_>>(), ["no space left"]);
        budget.note_written(None);
        assert_eq!(budget.warnings().count(), 0);
    }
}
