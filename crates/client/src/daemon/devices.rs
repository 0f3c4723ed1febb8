//! The devices behind this machine, as they are asked for and limited while the client runs.

use std::time::Duration;

use ropewalk_control::api::{
    ApiError, DeviceLimitChange, DeviceLimitSettings, DevicesReport, ErrorCode, Response,
};
use ropewalk_control::server;
use ropewalk_settings::DeviceSelector;
use tokio::sync::oneshot;

use super::Daemon;
use crate::config::ShareConfig;
use crate::devices::book::status_of;
use crate::devices::change::changed;

/// How long an answer waits for what was counted: `nft` takes milliseconds, and with it the whole look of the task some tenths of
/// a second.
const COUNT_TIME: Duration = Duration::from_millis(1500);

/// What is said to who asks while others are being told.
const IS_BUSY: &str =
    "the devices are being counted, or this machine's network is being changed; try again";

impl Daemon {
    /// Answers who asked for the devices. They are known to the task that keeps the host's network, for which nobody here waits.
    pub(super) fn tell_devices(&self, asked: server::Command) {
        self.with_devices(asked, |report| match report {
            Some(report) => Ok(Response::Devices(Box::new(report))),
            None => Err(ApiError::new(ErrorCode::Busy, IS_BUSY)),
        });
    }

    /// Another limit of a device from now on; whether it means somebody is known to that task, too.
    pub(super) fn limit_device(&mut self, change: &DeviceLimitChange, asked: server::Command) {
        let share = &self.config.share;
        let refused = |message: String| Err(ApiError::new(ErrorCode::BadRequest, message));
        if share.interfaces.is_empty() {
            let message = "no interface is shared: there are no devices behind this machine";
            return asked.answer(refused(message.to_owned()));
        }
        let limits = match changed(&share.limits, change) {
            Ok(limits) => limits,
            Err(message) => return asked.answer(refused(message)),
        };
        // Names and hardware addresses of devices are nobody's business who reads the log.
        tracing::info!("told of a device's limit");
        let limit = limits.iter().find(|limit| limit.device == change.device).map(status_of);
        self.set_share(ShareConfig { limits, ..share.clone() });
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let settings = DeviceLimitSettings { file, limit, is_known: false };
        let device = change.device.clone();
        self.with_devices(asked, move |report| {
            // It holds, whether that is known or not.
            let is_known = report.is_some_and(|report| is_known(&report, &device));
            Ok(Response::DeviceLimit(Box::new(DeviceLimitSettings { is_known, ..settings })))
        });
    }

    /// Has this hold.
    pub(super) fn set_share(&mut self, share: ShareConfig) {
        if self.config.share == share {
            return;
        }
        self.config.share.clone_from(&share);
        self.wanted.send_modify(|wanted| wanted.share = Some(share));
    }

    fn with_devices(
        &self,
        asked: server::Command,
        answer: impl FnOnce(Option<DevicesReport>) -> Result<Response, ApiError> + Send + 'static,
    ) {
        let (asker, told) = oneshot::channel();
        // Full: others are being told already.
        if self.asking_devices.try_send(asker).is_err() {
            return asked.answer(answer(None));
        }
        tokio::spawn(async move {
            let report = tokio::time::timeout(COUNT_TIME, told).await;
            asked.answer(answer(report.ok().and_then(Result::ok)));
        });
    }
}

/// Whether a device is there that is named so.
fn is_known(report: &DevicesReport, device: &DeviceSelector) -> bool {
    report.devices.iter().any(|known| match device {
        DeviceSelector::Mac(mac) => known.mac == Some(*mac),
        DeviceSelector::Address(address) => known.addresses.contains(address),
        DeviceSelector::Name(name) => known.name.as_ref() == Some(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::DeviceStatus;
    use ropewalk_settings::{MacAddress, Text as _};

    #[test]
    fn a_device_is_known_by_each_of_its_names() {
        let device = DeviceStatus {
            name: Some("tv".to_owned()),
            mac: Some(MacAddress([0x52, 0x54, 0, 0, 0, 1])),
            addresses: vec![[192, 168, 77, 20].into()],
            ..DeviceStatus::default()
        };
        let report = DevicesReport { devices: vec![device], ..DevicesReport::default() };
        for (text, expected) in [
            ("TV", true),
            ("52:54:00:00:00:01", true),
            ("192.168.77.20", true),
            ("radio", false),
            ("52:54:00:00:00:02", false),
            ("192.168.77.21", false),
        ] {
            let device = DeviceSelector::from_text(text).unwrap();
            assert_eq!(is_known(&report, &device), expected, "{text}");
        }
    }
}
