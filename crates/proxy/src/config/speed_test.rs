//! `[speed_test]`: how much of this proxy its clients may use up with speed tests.

use std::time::Duration;

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{DataSize, Parsed, SpeedTests};
use serde::Deserialize;
use toml::Spanned;

/// The section as it stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SpeedTestFile {
    enabled: Option<bool>,
    at_once: Option<Spanned<i64>>,
    time: Option<Spanned<Parsed<Duration>>>,
    data: Option<Parsed<DataSize>>,
}

impl SpeedTestFile {
    /// What it means.
    pub(super) fn resolve(&self, source: &Source) -> Result<SpeedTests, ConfigError> {
        let defaults = SpeedTests::default();
        Ok(SpeedTests {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            at_once: self.at_once(source, defaults.at_once)?,
            time: self.time(source, defaults.time)?,
            data: self.data.map_or(defaults.data, |Parsed(DataSize(bytes))| bytes),
        })
    }

    fn at_once(&self, source: &Source, usual: u16) -> Result<u16, ConfigError> {
        let Some(number) = &self.at_once else { return Ok(usual) };
        let range = SpeedTests::AT_ONCE;
        let found = u16::try_from(*number.get_ref()).ok().filter(|found| range.contains(found));
        found.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            let message = format!("{} is outside {least} to {most} tests", number.get_ref());
            source
                .error(number.span(), &message)
                .with_help("to have no tests, write enabled = false")
        })
    }

    fn time(&self, source: &Source, usual: Duration) -> Result<Duration, ConfigError> {
        let Some(time) = &self.time else { return Ok(usual) };
        let Parsed(found) = *time.get_ref();
        let checked = SpeedTests::check_time(found);
        checked.map_err(|message| source.error(time.span(), &message))?;
        Ok(found)
    }
}
