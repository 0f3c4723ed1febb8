//! Events that repeat: a link that comes and goes every few seconds must not push out what happened last week.
//!
//! Of one kind and link [`MOST`] are kept in an hour. The others are counted, and told with the next one that is kept.

use std::collections::BTreeMap;

use ropewalk_control::api::EventKind;

/// Events of one kind and link in an hour: the story of a train ride, and with two kinds of one link 240 of a day.
const MOST: u32 = 5;

/// Seconds.
const HOUR: u64 = 3600;

/// Kinds and links that are counted: more than a client has at a time.
const MOST_NAMES: usize = 512;

/// Counts them.
#[derive(Debug, Default)]
pub(super) struct Damper(BTreeMap<(EventKind, String), Counted>);

#[derive(Clone, Copy, Debug)]
struct Counted {
    since: u64,
    kept: u32,
    left_out: u32,
}

impl Damper {
    /// Whether an event at this second is kept; if so, how many like it were left out since the last one.
    pub(super) fn admit(&mut self, at: u64, kind: EventKind, link: Option<&str>) -> Option<u32> {
        if self.0.len() >= MOST_NAMES {
            // Names that come and go. At worst some events more are kept.
            self.0.retain(|_, counted| counted.since.abs_diff(at) < HOUR);
            if self.0.len() >= MOST_NAMES {
                self.0.clear();
            }
        }
        let key = (kind, link.unwrap_or_default().to_owned());
        let counted = self.0.entry(key).or_insert(Counted { since: at, kept: 0, left_out: 0 });
        // The clock may have been set back, too.
        if counted.since.abs_diff(at) >= HOUR {
            (counted.since, counted.kept) = (at, 0);
        }
        if counted.kept == MOST {
            counted.left_out += 1;
            return None;
        }
        counted.kept += 1;
        Some(std::mem::take(&mut counted.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_link_that_flaps_a_few_events_an_hour_are_kept_and_the_rest_is_counted() {
        let mut damper = Damper::default();
        // Down and up every four seconds, for a day.
        let (mut kept, mut told) = (0, 0);
        for second in (0..86_400).step_by(4) {
            for kind in [EventKind::LinkDown, EventKind::LinkUp] {
                if let Some(left_out) = damper.admit(second, kind, Some("wwan0")) {
                    kept += 1;
                    told += left_out;
                }
            }
        }
        assert_eq!(kept, 2 * 24 * MOST);
        assert_eq!(told, 2 * 23 * (900 - MOST), "those of the last hour wait for the next one");
        let other = damper.admit(86_400, EventKind::LinkDown, Some("wlan0"));
        assert_eq!(other, Some(0), "another link is another story");
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up_and_names_are_bounded() {
        let mut damper = Damper::default();
        for _ in 0..9 {
            damper.admit(100_000, EventKind::LinkUp, None);
        }
        assert_eq!(damper.admit(100_000, EventKind::LinkUp, None), None);
        assert_eq!(damper.admit(50_000, EventKind::LinkUp, None), Some(5));
        for n in 0..5000 {
            assert!(damper.admit(50_000, EventKind::LinkUp, Some(&n.to_string())).is_some());
        }
        assert!(damper.0.len() <= MOST_NAMES);
    }
}
