//! How much of a proxy its clients may use up with speed tests (`[speed_test]` of `proxy.toml`).

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::figures;
use crate::text::in_range;

/// What clients may have of the proxy for `ropewalk speedtest`. It bounds the whole proxy by `at_once`, and each client by the
/// rest: a thousand clients that test one after the other never send more than so many tests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedTests {
    /// Whether clients may test at all.
    pub enabled: bool,
    /// Most tests at a time.
    pub at_once: u16,
    /// Most time that one client may test in an hour.
    pub time: Duration,
    /// Most bytes of test data of one client in an hour, both ways, with IP and UDP headers.
    pub data: u64,
}

impl SpeedTests {
    /// Tests at a time: none is `enabled = false`, and more would measure each other.
    pub const AT_ONCE: RangeInclusive<u16> = 1..=64;

    /// Time of a client in an hour.
    pub const TIME: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(3600);

    /// Whether a client may be given so much time.
    ///
    /// # Errors
    /// The range, for people.
    pub fn check_time(time: Duration) -> Result<(), String> {
        in_range(time, &Self::TIME)
    }
}

impl Default for SpeedTests {
    /// Two at a time, for two clients rarely test in the same minute; six tests of three links in an hour; and as much data as
    /// they need at 100 Mbit/s.
    fn default() -> Self {
        Self { enabled: true, at_once: 2, time: Duration::from_secs(600), data: 5_000_000_000 }
    }
}

impl fmt::Display for SpeedTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { enabled, at_once, time, data } = *self;
        if !enabled {
            return f.write_str("none are served");
        }
        let (time, data) = (humantime::format_duration(time), figures::exact_size(data));
        write!(f, "{at_once} at a time; each client {time} and {data} in an hour")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_their_ranges_and_can_be_read() {
        let tests = SpeedTests::default();
        assert!(SpeedTests::AT_ONCE.contains(&tests.at_once));
        assert_eq!(SpeedTests::check_time(tests.time), Ok(()));
        assert_eq!(tests.to_string(), "2 at a time; each client 10m and 5 GB in an hour");
        assert_eq!(SpeedTests { enabled: false, ..tests }.to_string(), "none are served");
    }

    #[test]
    fn a_time_outside_the_range_is_told_with_it() {
        let error = SpeedTests::check_time(Duration::from_secs(7200)).unwrap_err();
        assert_eq!(error, "2h is outside 10s to 1h");
    }
}
