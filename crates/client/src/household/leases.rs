//! Which addresses are lent to whom, as `dnsmasq` keeps it: a line for each, with the time until when, the hardware address,
//! the address, the name (or `*`), and what else the device says of itself.

use std::net::Ipv4Addr;

use ropewalk_settings::{DeviceSelector, MacAddress, Text as _};
use serde::{Deserialize, Serialize};

use super::text::MAX_LEASES;

/// One address that is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The interface behind which the device is.
    pub interface: String,
    /// Its hardware address.
    pub mac: MacAddress,
    /// What it was lent.
    pub address: Ipv4Addr,
    /// How it calls itself, in small letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What the file of an interface says; of more lines than there can be, the first. Lines of another kind are passed over.
#[must_use]
pub fn read(interface: &str, text: &str) -> Vec<Lease> {
    text.lines().filter_map(|line| lease(interface, line)).take(MAX_LEASES).collect()
}

fn lease(interface: &str, line: &str) -> Option<Lease> {
    let mut words = line.split(' ');
    let _until: u64 = words.next()?.parse().ok()?;
    let mac = MacAddress::from_text(words.next()?).ok()?;
    let address = words.next()?.parse().ok()?;
    // A device may call itself whatever it likes; what could not be written in a config is no name.
    let name = match DeviceSelector::from_text(words.next()?) {
        Ok(DeviceSelector::Name(name)) => Some(name),
        Ok(_) | Err(_) => None,
    };
    Some(Lease { interface: interface.to_owned(), mac, address, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_a_device_and_perhaps_a_name() {
        let text = "\
1795000000 52:54:00:12:34:56 192.168.77.20 Kids-Tablet 01:52:54:00:12:34:56
1795000000 52:54:00:12:34:57 192.168.77.21 * *
duid 00:01:00:01:2d:00:00:00:52:54:00:12:34:56
1795000000 11259375 2001:db8::20 tv 00:01
1795000000 52:54:00:12:34:58 192.168.77.22 the<b>tv *
not a lease
";
        let leases = read("lan0", text);
        let told: Vec<_> = leases
            .iter()
            .map(|lease| {
                format!("{} {} {}", lease.mac, lease.address, lease.name.as_deref().unwrap_or("-"))
            })
            .collect();
        assert_eq!(
            told,
            [
                "52:54:00:12:34:56 192.168.77.20 kids-tablet",
                "52:54:00:12:34:57 192.168.77.21 -",
                "52:54:00:12:34:58 192.168.77.22 -",
            ]
        );
        assert!(leases.iter().all(|lease| lease.interface == "lan0"));
    }

    #[test]
    fn no_more_are_read_than_can_be_lent() {
        let line =
            |n: usize| format!("1 52:54:00:00:{:02x}:{:02x} 10.0.0.1 * *\n", n / 256, n % 256);
        let text: String = (0..2000).map(line).collect();
        assert_eq!(read("lan0", &text).len(), MAX_LEASES);
    }
}
