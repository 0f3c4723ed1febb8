//! The devices behind shared interfaces: what each has carried, and how much it may have.
//!
//! The kernel counts what is forwarded to and from each address, in sets of a firewall table of its own, and learns there which
//! hardware address sends from which. So a device is known by its hardware address, whatever addresses it takes, and by its name
//! where it was lent an address.
//!
//! ```text
//!  a packet that is forwarded ──▶ its sender, or receiver, is counted ──▶ has it a limit? ──▶ its priority is the number of
//!                                                                                            a lane (link-io's `Lane`)
//! ```
//!
//! A limit is no filter: what comes too fast waits in a lane of the interface that it leaves by, the shared one for what comes to
//! the device, the TUN for what it sends. Where it is dropped instead, a sender far away that has its packets acknowledged by the
//! tunnel's end would send most of them over the links in vain.
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`table`] | the firewall table: as text, and in the kernel |
//! | [`book`] | which device has carried what, and at which rate |
//! | `change` | a limit that is changed while the client runs |

pub mod book;
pub(crate) mod change;
pub mod table;

use std::net::IpAddr;

use ropewalk_link_io::netlink::Lane;
use ropewalk_settings::{Bitrate, DeviceLimit, DeviceSelector, MacAddress};

use crate::household::leases::Lease;

/// A limit, and what it means now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The number of its lanes, from 1 on.
    pub number: u16,
    /// The hardware addresses that it means.
    pub macs: Vec<MacAddress>,
    /// The addresses that it names.
    pub addresses: Vec<IpAddr>,
    /// The most that comes to it.
    pub down: Option<Bitrate>,
    /// The most that it sends through the tunnel.
    pub up: Option<Bitrate>,
}

/// What the limits of the config mean, with the names that these leases give.
#[must_use]
pub fn limited(limits: &[DeviceLimit], leases: &[Lease]) -> Vec<Limited> {
    let meaning = |(limit, number): (&DeviceLimit, u16)| {
        let (macs, addresses) = match &limit.device {
            DeviceSelector::Mac(mac) => (vec![*mac], Vec::new()),
            DeviceSelector::Address(address) => (Vec::new(), vec![*address]),
            DeviceSelector::Name(name) => (macs_of(name, leases), Vec::new()),
        };
        Limited { number, macs, addresses, down: limit.down, up: limit.up }
    };
    limits.iter().zip(1..).map(meaning).collect()
}

/// The hardware addresses of the devices that call themselves so: usually one.
fn macs_of(name: &str, leases: &[Lease]) -> Vec<MacAddress> {
    let named = leases.iter().filter(|lease| lease.name.as_deref() == Some(name));
    let mut macs: Vec<MacAddress> = named.map(|lease| lease.mac).collect();
    macs.sort_unstable();
    macs.dedup();
    macs
}

/// The lanes before the shared interfaces.
#[must_use]
pub fn lanes_down(limited: &[Limited]) -> Vec<Lane> {
    lanes(limited, |limit| limit.down)
}

/// The lanes before the TUN.
#[must_use]
pub fn lanes_up(limited: &[Limited]) -> Vec<Lane> {
    lanes(limited, |limit| limit.up)
}

fn lanes(limited: &[Limited], rate: impl Fn(&Limited) -> Option<Bitrate>) -> Vec<Lane> {
    let lane = |limit: &Limited| Some(Lane { number: limit.number, rate: rate(limit)? });
    limited.iter().filter_map(lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Text as _;

    fn lease(mac: u8, name: Option<&str>) -> Lease {
        Lease {
            interface: "lan0".into(),
            mac: MacAddress([0x52, 0x54, 0, 0, 0, mac]),
            address: [192, 168, 77, mac].into(),
            name: name.map(str::to_owned),
        }
    }

    fn limit(device: &str, down: Option<u64>, up: Option<u64>) -> DeviceLimit {
        DeviceLimit {
            device: DeviceSelector::from_text(device).unwrap(),
            down: down.map(Bitrate::from_mbps),
            up: up.map(Bitrate::from_mbps),
        }
    }

    #[test]
    fn a_name_means_who_was_lent_an_address_under_it_and_each_limit_has_lanes_of_its_own() {
        let limits = [
            limit("TV", Some(5), None),
            limit("52:54:00:00:00:09", None, Some(1)),
            limit("192.168.77.7", Some(2), Some(1)),
            limit("nobody", Some(1), None),
        ];
        let leases = [
            lease(21, Some("tv")),
            lease(20, Some("tv")),
            lease(21, Some("tv")),
            lease(22, None),
            lease(23, Some("tv2")),
        ];
        let meant = limited(&limits, &leases);
        let mac = |last| MacAddress([0x52, 0x54, 0, 0, 0, last]);
        assert_eq!(meant[0].macs, [mac(20), mac(21)]);
        assert_eq!(meant[1].macs, [mac(9)]);
        assert_eq!(meant[2].addresses, [IpAddr::from([192, 168, 77, 7])]);
        assert!(meant[3].macs.is_empty() && meant[3].addresses.is_empty());
        let numbers = |lanes: Vec<Lane>| lanes.iter().map(|lane| lane.number).collect::<Vec<_>>();
        assert_eq!(numbers(lanes_down(&meant)), [1, 3, 4]);
        assert_eq!(numbers(lanes_up(&meant)), [2, 3]);
    }
}
