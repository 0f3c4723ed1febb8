//! Numbers of a scenario file: whether they make sense, and in our units.

use std::time::Duration;

use ropewalk_settings::Bitrate;

use super::{ScenarioError, invalid};
use crate::profile::bitrate;

/// The longest time that a scenario may name, in seconds: a day. Longer is a slip of the pen.
const MAX_SECONDS: f64 = 86_400.0;

pub(super) fn seconds(place: &str, name: &str, value: f64) -> Result<Duration, ScenarioError> {
    if (0.0..=MAX_SECONDS).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(invalid(place, &format!("{name} must be between 0 and a day, not {value}")))
}

pub(super) fn milliseconds(place: &str, name: &str, value: f64) -> Result<Duration, ScenarioError> {
    seconds(place, name, value / 1e3)
        .map_err(|_| invalid(place, &format!("{name} must be between 0 and a day, not {value}")))
}

pub(super) fn positive_rate(place: &str, mbit: f64) -> Result<Bitrate, ScenarioError> {
    // A kilobit to a terabit per second.
    if (0.001..=1e6).contains(&mbit) {
        return Ok(bitrate(mbit));
    }
    Err(invalid(place, &format!("rate_mbit must be between 0.001 and 1000000, not {mbit}")))
}

pub(super) fn share(place: &str, name: &str, value: f64) -> Result<f64, ScenarioError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(invalid(place, &format!("{name} must be between 0 and 1, not {value}")))
}

/// What others send; none at all is legal.
pub(super) fn background(place: &str, mbit: f64) -> Result<Bitrate, ScenarioError> {
    if mbit == 0.0 {
        return Ok(Bitrate::default());
    }
    positive_rate(place, mbit)
        .map_err(|_| invalid(place, &format!("background_mbit cannot be {mbit}")))
}
