//! Links with a monthly allowance: what they carried since its day, as their provider counts.
//!
//! Counted are datagrams with IP and UDP headers, both ways (the core's ledger). A count goes on over restarts
//! ([`counters`](crate::counters)). Days are those of the machine's time zone, as a bill has them; the calendar is an
//! argument, so that a test runs through months.
//!
//! | at | happens |
//! | --- | --- |
//! | 80 % | a warning |
//! | 100 % | a warning; with `stop` the link is not used until the allowance begins again |
//! | its day | the count is zero again |

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use ropewalk_control::api::AllowanceStatus;
use ropewalk_proto::time::Duration;
use serde::{Deserialize, Serialize};

use crate::config::Allowance;

/// Most links of which a count is kept: names that come and go would fill the file.
const MAX_COUNTS: usize = 256;

/// The clock may have been wrong: a count from further ahead than this is one of today.
const AHEAD_DAYS: i32 = 1;

/// A day before this program was written is that of a clock that is not set yet: nothing follows from it.
const EARLIEST: Date = date(2026, 1, 1);

/// The day in the machine's time zone; `unix` is the time since 1970.
pub(crate) fn today(unix: Duration) -> Date {
    let seconds = i64::try_from(unix.as_secs()).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    time.to_zoned(TimeZone::system()).date()
}

/// From which day to before which one an allowance runs that holds this day.
pub(crate) fn period(today: Date, reset_day: u8) -> (Date, Date) {
    let reset = |month: Date| {
        let day = i8::try_from(reset_day).unwrap_or(i8::MAX).min(month.days_in_month());
        month.with().day(day).build().unwrap_or(month)
    };
    let first = today.first_of_month();
    let next = |month: Date| month.last_of_month().tomorrow().unwrap_or(Date::MAX);
    let before = |month: Date| month.yesterday().unwrap_or(Date::MIN).first_of_month();
    match reset(first) {
        begun if begun <= today => (begun, reset(next(first))),
        coming => (reset(before(first)), coming),
    }
}

/// What a link carried of its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// Since this day.
    pub(crate) since: Date,
    /// Bytes, both ways.
    pub(crate) bytes: u64,
}

/// The counts of all links, by name: what survives a restart.
pub(crate) type Counts = BTreeMap<String, Count>;

/// How much of an allowance is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Little.
    Nearly,
    /// Nothing.
    UsedUp,
}

/// One link.
#[derive(Clone, Debug)]
struct Meter {
    allowance: Allowance,
    /// The ledger's bytes when last looked at.
    seen: u64,
}

/// The allowances of all links that ever had one.
#[derive(Debug, Default)]
pub(crate) struct Allowances {
    counts: Counts,
    meters: BTreeMap<String, Meter>,
    today: Date,
}

impl Allowances {
    /// Goes on with what was counted before.
    pub(crate) fn new(counts: Counts) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Whether there is any.
    pub(crate) fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    /// A link has this allowance. Returns whether that is news.
    pub(crate) fn set(&mut self, link: &str, allowance: Allowance) -> bool {
        let seen = self.meters.get(link).map_or(0, |meter| meter.seen);
        let before = self.meters.insert(link.to_owned(), Meter { allowance, seen });
        before.is_none_or(|before| before.allowance != allowance)
    }

    /// Counts what the links carried since the last time; `carried` are a link's bytes since the daemon's start. Returns
    /// the links whose allowance began again.
    pub(crate) fn count(&mut self, today: Date, carried: impl Fn(&str) -> u64) -> Vec<String> {
        self.today = today;
        let mut renewed = Vec::new();
        for (name, meter) in &mut self.meters {
            let (start, _) = period(today, meter.allowance.reset_day);
            let count = self.counts.entry(name.clone()).or_insert(Count { since: start, bytes: 0 });
            let total = carried(name);
            let more = total.saturating_sub(meter.seen);
            meter.seen = total;
            if start > count.since {
                // What came in the last moment of the old one is not worth a look at the second hand.
                *count = Count { since: start, bytes: 0 };
                renewed.push(name.clone());
            } else if today >= EARLIEST
                && count.since > today.saturating_add(Span::new().days(AHEAD_DAYS))
            {
                count.since = start;
            }
            count.bytes = count.bytes.saturating_add(more);
        }
        self.forget();
        renewed
    }

    /// Of too many counts the oldest of links without allowance go.
    fn forget(&mut self) {
        while self.counts.len() > MAX_COUNTS {
            let idle = self.counts.iter().filter(|(name, _)| !self.meters.contains_key(*name));
            let Some((oldest, _)) = idle.min_by_key(|(_, count)| count.since) else { return };
            let oldest = oldest.clone();
            self.counts.remove(&oldest);
        }
    }

    /// What is to survive.
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The allowance of a link, what it carried, and the day on which it begins again.
    pub(crate) fn of(&self, link: &str) -> Option<(Allowance, Count, Date)> {
        let (meter, count) = (self.meters.get(link)?, self.counts.get(link)?);
        let (_, end) = period(self.today, meter.allowance.reset_day);
        Some((meter.allowance, *count, end))
    }

    /// The bytes that are left of the allowance of a link that has carried so much since the daemon's start.
    pub(crate) fn left(&self, link: &str, carried: u64) -> Option<u64> {
        let (meter, count) = (self.meters.get(link)?, self.counts.get(link)?);
        let used = count.bytes.saturating_add(carried.saturating_sub(meter.seen));
        Some(meter.allowance.bytes.saturating_sub(used))
    }

    /// The links that must not be used, and from which day on they may.
    pub(crate) fn stopped(&self) -> BTreeMap<String, Date> {
        let names: BTreeSet<&String> = self.meters.keys().collect();
        let over = names.into_iter().filter_map(|name| {
            let (allowance, count, end) = self.of(name)?;
            (allowance.stop && count.bytes >= allowance.bytes).then(|| (name.clone(), end))
        });
        over.collect()
    }

    /// What a person should know now, by link.
    pub(crate) fn warnings(&self) -> BTreeMap<String, (Line, String)> {
        let warning = |name: &String| {
            let (allowance, count, end) = self.of(name)?;
            let percent = allowance.used_percent(count.bytes);
            let (line, text) = match percent {
                100.. if allowance.stop => (
                    Line::UsedUp,
                    format!("link {name} has used up its allowance: it is not used until {end}"),
                ),
                100.. => (
                    Line::UsedUp,
                    format!(
                        "link {name} has used {percent} % of its allowance until {end}, and is still used"
                    ),
                ),
                AllowanceStatus::WARN_PERCENT.. => (
                    Line::Nearly,
                    format!("link {name} has used {percent} % of its allowance until {end}"),
                ),
                _ => return None,
            };
            Some((name.clone(), (line, text)))
        };
        self.meters.keys().filter_map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn allowance(reset_day: u8, stop: bool) -> Allowance {
        Allowance { bytes: 10 * GB, reset_day, stop }
    }

    #[test]
    fn an_allowance_begins_on_its_day_and_in_short_months_on_the_last() {
        let table = [
            (date(2026, 11, 21), 1, date(2026, 11, 1), date(2026, 12, 1)),
            (date(2026, 11, 1), 1, date(2026, 11, 1), date(2026, 12, 1)),
            (date(2026, 11, 21), 22, date(2026, 10, 22), date(2026, 11, 22)),
            (date(2026, 1, 3), 15, date(2025, 12, 15), date(2026, 1, 15)),
            (date(2026, 2, 27), 31, date(2026, 1, 31), date(2026, 2, 28)),
            (date(2026, 2, 28), 31, date(2026, 2, 28), date(2026, 3, 31)),
            (date(2026, 3, 30), 31, date(2026, 2, 28), date(2026, 3, 31)),
            (date(2028, 2, 29), 30, date(2028, 2, 29), date(2028, 3, 30)),
            (date(2026, 12, 31), 31, date(2026, 12, 31), date(2027, 1, 31)),
        ];
        for (today, day, start, end) in table {
            assert_eq!(period(today, day), (start, end), "{today}, day {day}");
        }
    }

    #[test]
    fn a_year_of_days_is_warned_of_at_80_and_100_percent_once_in_each_month() {
        let mut allowances = Allowances::default();
        allowances.set("lte", allowance(31, true));
        let (mut day, mut carried) = (date(2026, 1, 31), 0);
        let (mut renewed, mut crossed, mut line) = (0, Vec::new(), None);
        while day < date(2027, 1, 31) {
            if !allowances.stopped().contains_key("lte") {
                // The link carries nothing while it is stopped.
                carried += GB / 2;
            }
            renewed += allowances.count(day, |_| carried).len();
            let now = allowances.warnings().get("lte").map(|(line, _)| *line);
            if now != line {
                crossed.extend(now);
                line = now;
            }
            day = day.tomorrow().unwrap();
        }
        assert_eq!((renewed, crossed.len()), (11, 24));
        assert!(crossed.chunks(2).all(|month| month == [Line::Nearly, Line::UsedUp]));
        assert_eq!(carried, 12 * 10 * GB);
    }

    #[test]
    fn a_count_goes_on_after_a_restart_and_counts_nothing_twice() {
        let today = date(2026, 11, 21);
        let mut first = Allowances::default();
        first.set("lte", allowance(1, false));
        first.count(today, |_| 3 * GB);
        first.count(today, |_| 4 * GB);
        let mut second = Allowances::new(first.counts().clone());
        second.set("lte", allowance(1, false));
        second.count(today, |_| 0);
        assert!(second.warnings().is_empty());
        second.count(today, |_| 4 * GB);
        assert_eq!(second.of("lte").unwrap().1.bytes, 8 * GB);
        let warning = |allowances: &Allowances| allowances.warnings()["lte"].clone();
        let expected = "link lte has used 80 % of its allowance until 2026-12-01";
        assert_eq!(warning(&second), (Line::Nearly, expected.to_owned()));
        second.count(today, |_| 7 * GB);
        assert!(second.stopped().is_empty(), "only if so set");
        assert!(warning(&second).1.contains("110 %"), "{:?}", warning(&second));
    }

    #[test]
    fn what_is_left_is_known_between_two_counts() {
        let mut allowances = Allowances::default();
        allowances.set("lte", allowance(1, true));
        assert_eq!(allowances.left("lte", 0), None, "nothing was counted");
        allowances.count(date(2026, 11, 21), |_| 4 * GB);
        assert_eq!(allowances.left("lte", 4 * GB), Some(6 * GB));
        assert_eq!(allowances.left("lte", 9 * GB), Some(GB));
        assert_eq!(allowances.left("lte", 11 * GB), Some(0));
        assert_eq!(allowances.left("wlan", 0), None);
    }

    #[test]
    fn a_clock_that_is_wrong_for_a_while_costs_no_count() {
        let mut allowances = Allowances::default();
        allowances.set("lte", allowance(1, true));
        allowances.count(date(2026, 11, 21), |_| 5 * GB);
        // A machine whose clock is set late after its start.
        allowances.count(date(1970, 1, 1), |_| 6 * GB);
        allowances.count(date(2026, 11, 21), |_| 7 * GB);
        assert_eq!(allowances.of("lte").unwrap().1.bytes, 7 * GB);
        // One that was far ahead counts on, and begins again in its time.
        allowances.count(date(2099, 1, 1), |_| 8 * GB);
        allowances.count(date(2026, 11, 22), |_| 9 * GB);
        let (_, count, end) = allowances.of("lte").unwrap();
        assert_eq!((count.since, end), (date(2026, 11, 1), date(2026, 12, 1)));
        allowances.count(date(2026, 12, 1), |_| 9 * GB);
        assert_eq!(allowances.of("lte").unwrap().1.bytes, 0);
    }

    #[test]
    fn names_without_end_are_forgotten_and_those_with_an_allowance_are_not() {
        let old = Count { since: date(2020, 1, 1), bytes: 1 };
        let counts = (0..1000).map(|n| (format!("usb{n}"), old)).collect();
        let mut allowances = Allowances::new(counts);
        allowances.set("usb7", allowance(1, true));
        allowances.count(date(2026, 11, 21), |_| 0);
        assert_eq!(allowances.counts().len(), MAX_COUNTS);
        assert!(allowances.counts().contains_key("usb7"));
    }
}
