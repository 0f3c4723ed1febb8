//! `ropewalk devices`: the devices behind a client in a table, and limits of them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_client::config::save_limit;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{DeviceLimitChange, DeviceLimitSettings, DevicesReport};
use ropewalk_settings::{Bitrate, DeviceLimit, DeviceSelector};

use super::{ask, saving};
use crate::args::{Devices, DevicesWhat, Saving};
use crate::exit::{Failure, print};
use crate::render;

/// How long the client counts before it is asked for rates: it needs most of a second.
const COUNT_TIME: Duration = Duration::from_secs(1);

/// Rates over a longer time than this, in seconds, are not taken for those of now.
const LONG: f64 = 3.0;

/// Shows them, or limits one at once, on the running client.
pub(crate) fn run(devices: &Devices) -> Result<(), Failure> {
    // Only a client shares its tunnel.
    let socket = devices.daemon.socket.as_deref().unwrap_or(Path::new(CLIENT_SOCKET));
    let Some(DevicesWhat::Limit { device, down, up }) = &devices.what else {
        if devices.saving.save {
            return Err(Failure::Usage("--save goes with a limit of a device".to_owned()));
        }
        let report = counted(socket)?;
        if devices.json {
            let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
            return print(&(json + "\n"));
        }
        return print(&render::devices(&report, render::columns()));
    };
    let change = DeviceLimitChange { device: device.clone(), down: down.clone(), up: up.clone() };
    let settings = ask::limit_device(socket, change)?;
    let limit = limit_of(device, &settings);
    saving::save(&devices.saving, &settings.file, |file| save_limit(file, &limit))?;
    if devices.json {
        let json = serde_json::to_string_pretty(&settings).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&said(&limit, settings.is_known, &devices.saving))
}

/// The devices, with their rates: the client is asked a second time where it has none of now yet.
fn counted(socket: &Path) -> Result<DevicesReport, Failure> {
    let report = ask::devices(socket)?;
    if report.devices.is_empty() || report.rates_over_s.is_some_and(|over| over <= LONG) {
        return Ok(report);
    }
    std::thread::sleep(COUNT_TIME);
    ask::devices(socket)
}

/// What holds for the device: without a rate where there is no limit.
fn limit_of(device: &DeviceSelector, settings: &DeviceLimitSettings) -> DeviceLimit {
    let rate = |bps: Option<u64>| bps.map(Bitrate::from_bps);
    let (down, up) = match &settings.limit {
        Some(limit) => (rate(limit.down_bps), rate(limit.up_bps)),
        None => (None, None),
    };
    DeviceLimit { device: device.clone(), down, up }
}

/// What holds for the device, and until when.
fn said(limit: &DeviceLimit, is_known: bool, saving: &Saving) -> String {
    let is_none = limit.down.is_none() && limit.up.is_none();
    let what = match is_none {
        true => format!("{}: no limit any more", limit.device),
        false => limit.to_string(),
    };
    let unknown = match is_known || is_none {
        true => "",
        false => "No such device has been seen so far: it holds as soon as one is.\n",
    };
    format!("{what}\n{unknown}{}\n", saving::until(saving))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::DeviceLimitStatus;
    use ropewalk_settings::Text as _;

    #[test]
    fn it_is_said_what_holds_for_whom_and_until_when() {
        let device = DeviceSelector::from_text("tv").unwrap();
        let limited = DeviceLimitSettings {
            limit: Some(DeviceLimitStatus {
                device: Some(device.clone()),
                down_bps: Some(5_000_000),
                up_bps: None,
            }),
            ..DeviceLimitSettings::default()
        };
        let limit = limit_of(&device, &limited);
        let saving = |save| Saving { save, config: "/etc/ropewalk/client/client.toml".into() };
        let text = said(&limit, false, &saving(false));
        assert!(text.starts_with("tv at most 5 Mbit/s down\nNo such device"), "{text}");
        assert!(text.ends_with("with --save it stays.\n"), "{text}");
        assert_eq!(
            said(&limit, true, &saving(true)),
            "tv at most 5 Mbit/s down\nThis is saved in /etc/ropewalk/client/client.toml.\n"
        );
        let none = limit_of(&device, &DeviceLimitSettings::default());
        assert!(
            said(&none, false, &saving(false)).starts_with("tv: no limit any more\nThis holds")
        );
    }
}
