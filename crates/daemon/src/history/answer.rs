//! What is answered: of the steps that are kept, as few points as somebody can look at.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use ropewalk_control::api::{
    ApiError, DayUse, ErrorCode, HistoryQuery, LinkPast, LinkUse, Past, Used,
};
use ropewalk_settings::nearest;

use super::day;
use super::steps::{Cell, Moment, Series, Steps, add_to};

/// The points of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Points {
    /// The steps of which they are made.
    pub(super) steps: Steps,
    /// The first second of the first one.
    pub(super) from: u64,
    /// Seconds of each: a multiple of those steps.
    pub(super) step_s: u64,
    count: usize,
}

impl Points {
    /// Those up to `now`, seconds since 1970. The last one is not over yet.
    pub(super) fn of(query: &HistoryQuery, now: u64) -> Self {
        let steps = Steps::finest_for(query.since_s);
        let most = u64::from(query.points.max(1));
        let each = query.since_s.div_ceil(steps.seconds() * most).max(1);
        let step_s = steps.seconds() * each;
        let count = query.since_s.div_ceil(step_s).max(1);
        let last = now - now % step_s;
        let from = last.saturating_sub((count - 1) * step_s);
        Self { steps, from, step_s, count: usize::try_from(count).unwrap_or(1) }
    }

    /// The seconds that they span.
    pub(super) const fn time(&self) -> RangeInclusive<u64> {
        self.from..=self.from + self.step_s * self.count as u64 - 1
    }

    /// All together, and each link by name; with `link` only that one.
    ///
    /// # Errors
    /// Nothing is known of that link.
    pub(super) fn fill(
        &self,
        series: &Series,
        link: Option<&str>,
    ) -> Result<(Past, Vec<LinkPast>), ApiError> {
        let mut points = vec![Moment::new(); self.count];
        for (start, moment) in series {
            let place = start.checked_sub(self.from).map(|after| after / self.step_s);
            let place = place.and_then(|place| usize::try_from(place).ok());
            if let Some(point) = place.and_then(|place| points.get_mut(place)) {
                add_to(point, moment);
            }
        }
        let named = points.iter().flat_map(Moment::keys).filter(|name| !name.is_empty());
        let names: BTreeSet<&str> = named.map(String::as_str).collect();
        if let Some(link) = link.filter(|link| !names.contains(link)) {
            return Err(unknown(link, &names));
        }
        let shown = names.into_iter().filter(|name| link.is_none_or(|link| link == *name));
        let links = shown.map(|name| {
            let cells: Vec<_> = points.iter().map(|point| point.get(name)).collect();
            let each = |value: fn(&Cell) -> Option<f64>| {
                cells.iter().map(|cell| cell.and_then(value)).collect()
            };
            LinkPast {
                name: name.to_owned(),
                past: past(&cells),
                rtt_ms: each(|cell| cell.rtt_us.map(rtt_ms)),
                loss: each(|cell| cell.lost_ppm.map(|ppm| f64::from(ppm) / 1e6)),
            }
        });
        let links = links.collect();
        let all: Vec<_> = points.iter().map(|point| point.get("")).collect();
        Ok((past(&all), links))
    }
}

fn past(cells: &[Option<&Cell>]) -> Past {
    let sum = |bytes: fn(&Cell) -> u64| {
        cells.iter().flatten().fold(0_u64, |sum, cell| sum.saturating_add(bytes(cell)))
    };
    let rates = |bytes: fn(&Cell) -> u64| {
        cells.iter().map(|cell| cell.and_then(|cell| rate(bytes(cell), cell.covered_ms))).collect()
    };
    Past {
        down_bps: rates(|cell| cell.down),
        up_bps: rates(|cell| cell.up),
        down_bytes: sum(|cell| cell.down),
        up_bytes: sum(|cell| cell.up),
    }
}

/// Bits per second; of no time nothing is known.
fn rate(bytes: u64, covered_ms: u32) -> Option<u64> {
    let bits = u128::from(bytes) * 8000;
    let rate = bits.checked_div(covered_ms.into())?;
    u64::try_from(rate).ok()
}

/// To a tenth.
fn rtt_ms(rtt_us: u32) -> f64 {
    (f64::from(rtt_us) / 100.0).round() / 10.0
}

fn unknown(link: &str, names: &BTreeSet<&str>) -> ApiError {
    let help = match nearest(link, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => "no link carried anything in this time".to_owned(),
        None => format!("there are {}", names.iter().copied().collect::<Vec<_>>().join(", ")),
    };
    let message = format!("nothing is known of a link `{}`: {help}", link.escape_debug());
    ApiError::new(ErrorCode::NotFound, message)
}

/// What was used on each day; with `link` of that one only.
pub(super) fn days(series: &Series, link: Option<&str>) -> Vec<DayUse> {
    let used = |cell: &Cell| Used { down_bytes: cell.down, up_bytes: cell.up };
    let days = series.iter().map(|(start, moment)| {
        let links = moment.iter().filter(|&(name, cell)| {
            let is_shown = !name.is_empty() && link.is_none_or(|link| link == name);
            is_shown && used(cell) != Used::default()
        });
        let links = links.map(|(name, cell)| LinkUse { name: name.clone(), used: used(cell) });
        DayUse {
            day: day::name(*start),
            all: moment.get("").map(used).unwrap_or_default(),
            links: links.collect(),
        }
    });
    days.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27 00:00:00 UTC.
    const MIDNIGHT: u64 = 1_795_737_600;

    fn query(since_s: u64, points: u16) -> HistoryQuery {
        HistoryQuery { since_s, points, ..HistoryQuery::default() }
    }

    fn cell(covered_ms: u32, down: u64) -> Cell {
        Cell { covered_ms, down, up: 0, rtt_us: Some(20_460), lost_ppm: Some(1500) }
    }

    fn series(cells: &[(u64, &str, Cell)]) -> Series {
        let mut series = Series::new();
        for (start, name, cell) in cells {
            series.entry(*start).or_default().insert((*name).to_owned(), *cell);
        }
        series
    }

    #[test]
    fn an_answer_has_no_more_points_than_were_asked_for_and_spans_the_time() {
        let now = MIDNIGHT + 12_345;
        for since_s in [60, 61, 3599, 3600, 3601, 86_400, 86_401, 7 * 86_400, 31 * 86_400] {
            for most in [1, 7, 60, 360, 400] {
                let points = Points::of(&query(since_s, most), now);
                let what = format!("{since_s} s in {most}: {points:?}");
                assert!((1..=usize::from(most)).contains(&points.count), "{what}");
                assert!(points.step_s.is_multiple_of(points.steps.seconds()), "{what}");
                assert!(points.from.is_multiple_of(points.step_s), "{what}");
                let time = points.time();
                assert!(time.contains(&now), "{what}");
                assert!(now - time.start() + points.step_s >= since_s, "{what}: too short");
            }
        }
        let whole = Points::of(&query(3600, 360), now);
        assert_eq!((whole.count, whole.step_s), (360, 10));
        // A clock that is not far from 1970 is no reason to panic.
        assert_eq!(Points::of(&query(86_400, 360), 5).from, 0);
    }

    #[test]
    fn points_are_rates_of_the_time_that_is_known_and_gaps_stay_gaps() {
        let now = MIDNIGHT + 59;
        let known = series(&[
            (MIDNIGHT, "", cell(10_000, 1000)),
            (MIDNIGHT, "wlan", cell(10_000, 500)),
            (MIDNIGHT + 10, "", cell(10_000, 3000)),
            // It joined within the step.
            (MIDNIGHT + 10, "lte", cell(5000, 2500)),
            // Probes of a link that is down.
            (MIDNIGHT + 20, "wlan", cell(0, 77)),
            (MIDNIGHT + 50, "", cell(10_000, 10)),
            // Not asked for.
            (MIDNIGHT - 10, "old", cell(10_000, 10)),
            (MIDNIGHT + 60, "", cell(10_000, 10)),
        ]);
        let (all, links) = Points::of(&query(60, 6), now).fill(&known, None).unwrap();
        assert_eq!(all.down_bps, [Some(800), Some(2400), None, None, None, Some(8)]);
        assert_eq!((all.down_bytes, all.up_bytes), (4010, 0));
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["lte", "wlan"]);
        assert_eq!(links[0].past.down_bps[1], Some(4000));
        assert_eq!(links[1].past.down_bps, [Some(400), None, None, None, None, None]);
        assert_eq!(links[1].past.down_bytes, 577, "probes are bytes, too");
        assert_eq!((links[0].rtt_ms[1], links[0].loss[1]), (Some(20.5), Some(0.0015)));
        assert_eq!(links[0].rtt_ms[0], None);

        let (all, links) = Points::of(&query(60, 3), now).fill(&known, Some("lte")).unwrap();
        assert_eq!(all.down_bps, [Some(1600), None, Some(8)]);
        assert_eq!(links.len(), 1);
        let of_its_time = [Some(4000), None, None];
        assert_eq!(links[0].past.down_bps, of_its_time);
    }

    #[test]
    fn a_link_of_which_nothing_is_known_is_told_with_those_that_there_are() {
        let points = Points::of(&query(60, 6), MIDNIGHT + 59);
        let some = series(&[(MIDNIGHT, "wlan0", cell(1, 1)), (MIDNIGHT, "wwan0", cell(1, 1))]);
        for (known, link, expected) in [
            (&some, "wlan1", "did you mean `wlan0`?"),
            (&some, "satellite", "there are wlan0, wwan0"),
            (&some, "", "nothing is known of a link ``"),
            (&Series::new(), "wlan0", "no link carried anything in this time"),
        ] {
            let error = points.fill(known, Some(link)).unwrap_err();
            assert_eq!(error.code, ErrorCode::NotFound);
            assert!(error.message.contains(expected), "{link}: {}", error.message);
        }
    }

    #[test]
    fn a_day_has_what_each_link_used() {
        let known = series(&[
            (MIDNIGHT, "", cell(0, 90)),
            (MIDNIGHT, "wlan", cell(0, 60)),
            (MIDNIGHT, "idle", cell(0, 0)),
            (MIDNIGHT + 86_400, "wlan", cell(0, 5)),
        ]);
        let found = days(&known, None);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].day.as_str(), found[0].all.bytes()), ("2026-11-27", 90));
        let used = Used { down_bytes: 60, up_bytes: 0 };
        assert_eq!(found[0].links, [LinkUse { name: "wlan".to_owned(), used }]);
        assert_eq!((found[1].day.as_str(), found[1].all.bytes()), ("2026-11-28", 0));
        assert_eq!(days(&known, Some("idle"))[0].links, []);
    }

    #[test]
    fn no_number_of_bytes_overflows() {
        let most = Cell { covered_ms: 1, down: u64::MAX, ..Cell::default() };
        let known = series(&[(MIDNIGHT, "", most), (MIDNIGHT + 10, "", most)]);
        let (all, _) = Points::of(&query(60, 6), MIDNIGHT + 59).fill(&known, None).unwrap();
        assert_eq!((all.down_bytes, all.down_bps[0]), (u64::MAX, None));
    }
}
