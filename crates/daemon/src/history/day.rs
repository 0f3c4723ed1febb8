//! Days, as a bill has them: from midnight to midnight of this machine's time zone.
//!
//! A day is the second at which it would begin if its zone was UTC, so that it is the same day whatever the zone is later.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The day of a time, seconds since 1970, by the system's zone.
pub(super) fn of(unix: u64) -> u64 {
    in_zone(unix, TimeZone::system())
}

fn in_zone(unix: u64, zone: TimeZone) -> u64 {
    let date = timestamp(unix).to_zoned(zone).date();
    let begin = date.to_zoned(TimeZone::UTC).map(|midnight| midnight.timestamp().as_second());
    begin.ok().and_then(|second| u64::try_from(second).ok()).unwrap_or(unix - unix % 86_400)
}

/// Such as `2026-11-27`.
pub(super) fn name(day: u64) -> String {
    timestamp(day).to_zoned(TimeZone::UTC).date().to_string()
}

fn timestamp(unix: u64) -> Timestamp {
    let second = i64::try_from(unix).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;

    use super::*;

    /// 2026-11-27 00:00:00 UTC.
    const MIDNIGHT: u64 = 1_795_737_600;

    #[test]
    fn a_day_begins_at_midnight_where_the_machine_is() {
        let hours = |hours| Offset::from_hours(hours).unwrap().to_time_zone();
        let table = [
            (hours(0), MIDNIGHT, "2026-11-27"),
            (hours(0), MIDNIGHT - 1, "2026-11-26"),
            (hours(1), MIDNIGHT - 3600, "2026-11-27"),
            (hours(1), MIDNIGHT - 3601, "2026-11-26"),
            (hours(-5), MIDNIGHT + 5 * 3600 - 1, "2026-11-26"),
            (hours(-5), MIDNIGHT + 5 * 3600, "2026-11-27"),
            (TimeZone::UTC, 0, "1970-01-01"),
        ];
        for (zone, unix, expected) in table {
            let day = in_zone(unix, zone);
            assert_eq!((name(day).as_str(), day % 86_400), (expected, 0), "{unix}");
        }
    }

    #[test]
    fn no_number_panics() {
        for unix in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(of(unix) <= unix.max(86_400));
            assert!(!name(unix).is_empty());
        }
    }
}
