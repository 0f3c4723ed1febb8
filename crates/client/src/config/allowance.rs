//! `allowance` of a `[[link]]`: an amount for each month, alone or with the day on which it begins again.

use std::fmt;

use ropewalk_control::api::AllowanceStatus;
use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{DataSize, Parsed, Text as _, figures};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// How much a link may carry in a month, both ways, with IP and UDP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes; never zero.
    pub bytes: u64,
    /// The day of the month on which it begins again, 1 to 31; in a shorter month its last.
    pub reset_day: u8,
    /// Whether the link is not used any more when it is used up.
    pub stop: bool,
}

impl Allowance {
    /// Of this many bytes the share, in percent, rounded down.
    #[must_use]
    pub fn used_percent(&self, bytes: u64) -> u64 {
        AllowanceStatus::percent(bytes, self.bytes)
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, day) = (figures::exact_size(self.bytes), self.reset_day);
        let stop = if self.stop { ", then not used" } else { "" };
        write!(f, "{all} a month from day {day}{stop}")
    }
}

/// As it stands in the file.
#[derive(Debug)]
pub(super) struct Written {
    bytes: u64,
    reset_day: Option<Spanned<i64>>,
    stop: bool,
}

/// With all that can be said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    bytes: Parsed<DataSize>,
    reset_day: Option<Spanned<i64>>,
    #[serde(default)]
    stop: bool,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WrittenVisitor;

        impl<'de> Visitor<'de> for WrittenVisitor {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount for each month, such as \"50 GB\", or { bytes = \"50 GB\", reset_day = 15, stop = true }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Written, E> {
                let DataSize(bytes) = DataSize::from_text(text).map_err(E::custom)?;
                Ok(Written { bytes, reset_day: None, stop: false })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                let Table { bytes: Parsed(DataSize(bytes)), reset_day, stop } = table;
                Ok(Written { bytes, reset_day, stop })
            }
        }

        deserializer.deserialize_any(WrittenVisitor)
    }
}

impl Written {
    /// What it means.
    pub(super) fn resolve(&self, source: &Source) -> Result<Allowance, ConfigError> {
        let reset_day = match &self.reset_day {
            None => 1,
            Some(day) => match u8::try_from(*day.get_ref()) {
                Ok(day @ 1..=31) => day,
                _ => {
                    let message = format!("{} is no day of a month: write 1 to 31", day.get_ref());
                    return Err(source.error(day.span(), &message));
                }
            },
        };
        Ok(Allowance { bytes: self.bytes, reset_day, stop: self.stop })
    }
}
