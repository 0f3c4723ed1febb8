//! A limit of one device, changed by hand while the client runs: pure, over what the config says.

use ropewalk_control::api::DeviceLimitChange;
use ropewalk_settings::{Bitrate, DeviceLimit, DeviceSelector, Text as _};

use crate::config::MAX_LIMITS;

/// The word for what is not said.
pub(crate) const OFF: &str = "off";

/// The limits with this change. Which limit it changes is known by how the limit names the device.
///
/// # Errors
/// What is wrong with the change, and what to write.
pub(crate) fn changed(
    limits: &[DeviceLimit],
    change: &DeviceLimitChange,
) -> Result<Vec<DeviceLimit>, String> {
    let mut limits = limits.to_vec();
    let at = limits.iter().position(|limit| limit.device == change.device);
    let mut limit = match at {
        Some(at) => limits[at].clone(),
        None => DeviceLimit { device: change.device.clone(), down: None, up: None },
    };
    for (name, said, rate) in
        [("down", &change.down, &mut limit.down), ("up", &change.up, &mut limit.up)]
    {
        match said.as_deref() {
            None => {}
            Some(OFF) => *rate = None,
            Some(text) => {
                let read = Bitrate::from_text(text);
                *rate = Some(read.map_err(|error| format!("{name}: {error}, or off"))?);
            }
        }
    }
    let is_none = limit.down.is_none() && limit.up.is_none();
    match at {
        Some(at) if is_none => {
            limits.remove(at);
            return Ok(limits);
        }
        None if is_none => return Err(nothing_to_take(&limits, &change.device)),
        _ => limit.check()?,
    }
    match at {
        Some(at) => limits[at] = limit,
        None if limits.len() >= MAX_LIMITS => {
            return Err(format!("more than {MAX_LIMITS} devices with a limit"));
        }
        None => limits.push(limit),
    }
    Ok(limits)
}

fn nothing_to_take(limits: &[DeviceLimit], device: &DeviceSelector) -> String {
    let known: Vec<String> = limits.iter().map(|limit| limit.device.to_string()).collect();
    match known.as_slice() {
        [] => format!("there is no limit of `{device}`, nor of any other device"),
        known => format!("there is no limit of `{device}`: there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(device: &str, down: Option<&str>, up: Option<&str>) -> DeviceLimitChange {
        DeviceLimitChange {
            device: DeviceSelector::from_text(device).unwrap(),
            down: down.map(str::to_owned),
            up: up.map(str::to_owned),
        }
    }

    fn told(limits: &[DeviceLimit]) -> Vec<String> {
        limits.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_not_said_stays_and_a_limit_without_a_rate_goes() {
        let limits = changed(&[], &change("TV", Some("5Mbit/s"), None)).unwrap();
        assert_eq!(told(&limits), ["tv at most 5 Mbit/s down"]);
        let limits = changed(&limits, &change("tv", None, Some("1 Mbit/s"))).unwrap();
        assert_eq!(told(&limits), ["tv at most 5 Mbit/s down, 1 Mbit/s up"]);
        let limits = changed(&limits, &change("192.168.77.20", Some("2 Mbit/s"), None)).unwrap();
        let limits = changed(&limits, &change("tv", Some("off"), None)).unwrap();
        assert_eq!(
            told(&limits),
            ["tv at most 1 Mbit/s up", "192.168.77.20 at most 2 Mbit/s down"]
        );
        let limits = changed(&limits, &change("tv", None, Some("off"))).unwrap();
        assert_eq!(told(&limits), ["192.168.77.20 at most 2 Mbit/s down"]);
    }

    #[test]
    fn a_mistake_is_told_with_what_to_write() {
        let known = changed(&[], &change("tv", Some("5 Mbit/s"), None)).unwrap();
        for (change, expected) in [
            (change("tv", Some("5"), None), "down: `5` is not a rate with its unit"),
            (change("tv", None, Some("5 MB/s")), "up: `5 MB/s` is bytes"),
            (change("tv", Some("1 kbit/s"), None), "down = 1 kbit/s is outside 100 kbit/s"),
            (change("radio", Some("off"), None), "there is no limit of `radio`: there are tv"),
            (change("radio", None, None), "there is no limit of `radio`"),
        ] {
            let error = changed(&known, &change).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let one = |n| change(&format!("device{n}"), Some("5 Mbit/s"), None);
        let many = (0..MAX_LIMITS).fold(Vec::new(), |limits, n| changed(&limits, &one(n)).unwrap());
        assert!(changed(&many, &one(MAX_LIMITS)).unwrap_err().contains("more than 64"));
        assert!(changed(&many, &one(0)).is_ok());
    }
}
