//! How the devices behind a client look.

use comfy_table::CellAlignment;
use ropewalk_control::api::{DeviceStatus, DevicesReport, LanStatus};
use ropewalk_settings::figures::{megabits, size};

use super::{Page, clean};

/// What is said of each shared interface, and a table of the devices.
pub(crate) fn devices(report: &DevicesReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    for lan in &report.lans {
        page.line(0, &of_lan(lan));
    }
    if report.devices.is_empty() {
        let what = match report.lans.is_empty() {
            true => "Nothing is shared: [share] in the client's config names no interface.",
            false => "No device has asked for an address or sent anything yet.",
        };
        page.line(0, what);
        return page.text;
    }
    page.gap();
    let header = ["device", "address", "down", "most", "up", "most", "down in all", "up in all"];
    let mut table = page.new_table(&header, 2);
    for column in table.column_iter_mut().take(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for device in &report.devices {
        let limit = device.limit.as_ref();
        table.add_row([
            named(device),
            address(device),
            now(device.down.rate_bps),
            most(limit.and_then(|limit| limit.down_bps)),
            now(device.up.rate_bps),
            most(limit.and_then(|limit| limit.up_bps)),
            size(device.down.bytes),
            size(device.up.bytes),
        ]);
    }
    page.table(&table);
    page.gap();
    let over = match report.rates_over_s {
        Some(over) => format!("Rates in Mbit/s over the last {over:.1} s"),
        None => "Rates are not known yet".to_owned(),
    };
    page.line(0, &format!("{over}; down is to the device, up from it."));
    if report.left_out > 0 {
        page.line(0, &format!("{} more with less traffic", report.left_out));
    }
    page.text
}

fn of_lan(lan: &LanStatus) -> String {
    let LanStatus { interface, dhcp, trouble, address, prefix, leases } = lan;
    let mut text = format!("{}: addresses handed out: {dhcp}", clean(interface));
    if let Some(trouble) = trouble {
        text += &format!(" ({trouble})");
    }
    if let Some(address) = address {
        text += &format!(", {leases} lent, this machine is {address}");
    }
    if let Some(prefix) = prefix {
        text += &format!(", IPv6 {prefix}");
    }
    text
}

/// Its name, or else its hardware address.
fn named(device: &DeviceStatus) -> String {
    let mac = || device.mac.map_or_else(|| "-".to_owned(), |mac| mac.to_string());
    device.name.as_deref().map_or_else(mac, clean)
}

/// The first of its addresses, and how many more it has.
fn address(device: &DeviceStatus) -> String {
    match device.addresses.as_slice() {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [first, more @ ..] => format!("{first} +{}", more.len()),
    }
}

fn now(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), megabits)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn most(rate: Option<u64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| megabits(rate as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::{DeviceLimitStatus, DeviceTraffic, DhcpState};
    use ropewalk_settings::MacAddress;

    #[test]
    fn each_device_has_a_row_and_each_interface_a_sentence() {
        let lan = LanStatus {
            interface: "lan0".to_owned(),
            dhcp: DhcpState::On,
            trouble: None,
            address: Some("192.168.77.1/24".parse().unwrap()),
            prefix: Some("2001:db8:7::/64".parse().unwrap()),
            leases: 2,
        };
        let broken = LanStatus {
            interface: "lan1".to_owned(),
            dhcp: DhcpState::Failed,
            trouble: Some("port 67 is taken there".to_owned()),
            address: None,
            prefix: None,
            leases: 0,
        };
        let traffic = |rate_bps: f64, bytes: u64| DeviceTraffic {
            rate_bps: Some(rate_bps),
            packets: bytes / 1000,
            bytes,
        };
        let tv = DeviceStatus {
            name: Some("t\u{1b}v".to_owned()),
            addresses: vec![[192, 168, 77, 20].into(), "2001:db8:7::20".parse().unwrap()],
            down: traffic(4.9e6, 700_000_000),
            up: traffic(1e5, 9_000_000),
            limit: Some(DeviceLimitStatus {
                device: None,
                down_bps: Some(5_000_000),
                up_bps: None,
            }),
            ..DeviceStatus::default()
        };
        let unnamed = DeviceStatus {
            mac: Some(MacAddress([0x52, 0x54, 0, 0, 0, 1])),
            addresses: vec![[192, 168, 77, 21].into()],
            ..DeviceStatus::default()
        };
        let report = DevicesReport {
            lans: vec![lan, broken],
            devices: vec![tv, unnamed],
            left_out: 1,
            rates_over_s: Some(1.0),
        };
        let text = devices(&report, 100);
        for expected in [
            "lan0: addresses handed out: on, 2 lent, this machine is 192.168.77.1/24, IPv6 2001:db8:7::/64\n",
            "lan1: addresses handed out: failed (port 67 is taken there)\n",
            "192.168.77.20 +1",
            "52:54:00:00:00:01",
            "700 MB",
            "Rates in Mbit/s over the last 1.0 s; down is to the device, up from it.\n",
            "1 more with less traffic\n",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        let row = text.lines().find(|line| line.contains("+1")).unwrap();
        let numbers: Vec<&str> = row.split_whitespace().skip(3).take(4).collect();
        assert_eq!(numbers, ["4.90", "5.00", "0.10", "-"]);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn where_there_is_nobody_it_is_said_why() {
        let text = devices(&DevicesReport::default(), 80);
        assert_eq!(text, "Nothing is shared: [share] in the client's config names no interface.\n");
    }
}
