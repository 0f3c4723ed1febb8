//! For how long a daemon remembers what it carried.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// `[history]` of the config files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistorySection {
    /// For how many days.
    pub days: HistoryDays,
}

/// For how many days a daemon remembers rates, used data and events. Zero is off: nothing is remembered, and what was kept is
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryDays(u8);

impl HistoryDays {
    /// The longest month. The file has room for no more; for years there is Prometheus.
    pub const MOST: u8 = 31;

    /// Nothing is remembered.
    pub const OFF: Self = Self(0);

    /// So many days, as far as that is possible.
    #[must_use]
    pub const fn at_most(days: u8) -> Self {
        if days < Self::MOST { Self(days) } else { Self(Self::MOST) }
    }

    /// How many.
    #[must_use]
    pub const fn days(self) -> u8 {
        self.0
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub const fn is_off(self) -> bool {
        self.0 == 0
    }
}

impl Default for HistoryDays {
    /// A month, as allowances have it: what was used since its first day is always there.
    fn default() -> Self {
        Self(30)
    }
}

impl fmt::Display for HistoryDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.pad("off"),
            1 => f.pad("1 day"),
            days => write!(f, "{days} days"),
        }
    }
}

impl<'de> Deserialize<'de> for HistoryDays {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DaysVisitor;

        impl Visitor<'_> for DaysVisitor {
            type Value = HistoryDays;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number of days from 0 (off) to {}", HistoryDays::MOST)
            }

            fn visit_i64<E: Error>(self, days: i64) -> Result<HistoryDays, E> {
                match u8::try_from(days) {
                    Ok(days) if days <= HistoryDays::MOST => Ok(HistoryDays(days)),
                    _ => Err(E::custom(format!(
                        "{days} is no number of days from 0 (off) to {}",
                        HistoryDays::MOST
                    ))),
                }
            }
        }

        deserializer.deserialize_any(DaysVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HistoryDays, String> {
        let section: Result<HistorySection, _> = toml::from_str(text);
        section.map(|section| section.days).map_err(|error| error.to_string())
    }

    #[test]
    fn a_month_is_remembered_unless_another_number_of_days_is_written() {
        assert_eq!(read(""), Ok(HistoryDays::default()));
        let days = [read("days = 0"), read("days = 1"), read("days = 31")].map(Result::unwrap);
        assert_eq!(days.map(|days| days.to_string()), ["off", "1 day", "31 days"]);
        assert_eq!(days.map(HistoryDays::is_off), [true, false, false]);
        assert_eq!([7, 31, 200].map(|days| HistoryDays::at_most(days).days()), [7, 31, 31]);
    }

    #[test]
    fn what_is_no_number_of_days_is_told_with_what_is() {
        for (text, expected) in [
            ("days = 32", "32 is no number of days from 0 (off) to 31"),
            ("days = -1", "-1 is no number of days"),
            ("days = \"30\"", "a number of days from 0 (off) to 31"),
            ("days = 1.5", "a number of days from 0 (off) to 31"),
            ("day = 3", "unknown field `day`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
