//! Which device has carried what, and at which rate: from what the kernel counted by address, and from who was lent which.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ropewalk_control::api::{DeviceLimitStatus, DeviceStatus, DeviceTraffic};
use ropewalk_link_io::nft::{Count, Element};
use ropewalk_settings::{Bitrate, DeviceLimit, DeviceSelector, MacAddress, Text as _};

use super::table::{DOWN_V4, DOWN_V6, Sets, UP_V4, UP_V6};
use crate::household::leases::Lease;

/// Devices that are shown: more than a household has.
pub const MAX_SHOWN: usize = 256;

/// A rate is over this time at least: with less, one packet would make it.
const LEAST_TIME: Duration = Duration::from_millis(900);

/// A rate over a longer time than this is not one of now.
const MOST_TIME: Duration = Duration::from_secs(20);

/// By what a device is known: its hardware address, or where that is not seen its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Mac(MacAddress),
    Address(IpAddr),
}

/// What is known of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    name: Option<String>,
    interface: Option<String>,
    addresses: BTreeSet<IpAddr>,
    down: Count,
    up: Count,
}

/// Remembers the last look, for the rates.
#[derive(Debug, Default)]
pub struct Book {
    /// When it was looked, and the bytes of each device then, down and up.
    before: Option<(Instant, BTreeMap<Key, [u64; 2]>)>,
    /// The rates that were found last, bit/s, and over which time.
    rates: BTreeMap<Key, [f64; 2]>,
    over: Option<Duration>,
}

/// The devices, and what there is to say of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Those with the most traffic first.
    pub devices: Vec<DeviceStatus>,
    /// How many more there are.
    pub left_out: usize,
    /// Over which time the rates are.
    pub over: Option<Duration>,
}

impl Book {
    /// The devices as these sets and leases have them now.
    pub fn look(
        &mut self,
        now: Instant,
        sets: &Sets,
        leases: &[Lease],
        limits: &[DeviceLimit],
    ) -> Shown {
        let known = known(sets, leases);
        self.note(now, &known);
        let mut devices: Vec<(Key, Known)> = known.into_iter().collect();
        let bytes = |known: &Known| known.down.bytes.saturating_add(known.up.bytes);
        devices.sort_by_key(|(_, known)| std::cmp::Reverse(bytes(known)));
        let left_out = devices.len().saturating_sub(MAX_SHOWN);
        devices.truncate(MAX_SHOWN);
        let show = |(key, known): (Key, Known)| self.show(key, known, limits);
        Shown { devices: devices.into_iter().map(show).collect(), left_out, over: self.over }
    }

    /// Finds the rates since the last look, if that was some time ago.
    fn note(&mut self, now: Instant, known: &BTreeMap<Key, Known>) {
        let bytes = |known: &Known| [known.down.bytes, known.up.bytes];
        let elapsed = self.before.as_ref().map(|(at, _)| now.saturating_duration_since(*at));
        match (elapsed, &self.before) {
            (Some(elapsed), _) if elapsed < LEAST_TIME => return,
            (Some(elapsed), Some((_, before))) if elapsed <= MOST_TIME => {
                let rate = |key: &Key, known: &Known| {
                    // Of a device that was not there nothing was counted.
                    let before = before.get(key).copied().unwrap_or_default();
                    let now = bytes(known);
                    [0, 1].map(|way| rate(now[way].saturating_sub(before[way]), elapsed))
                };
                self.rates = known.iter().map(|(key, one)| (*key, rate(key, one))).collect();
                self.over = Some(elapsed);
            }
            _ => {
                self.rates.clear();
                self.over = None;
            }
        }
        self.before = Some((now, known.iter().map(|(key, one)| (*key, bytes(one))).collect()));
    }

    fn show(&self, key: Key, known: Known, limits: &[DeviceLimit]) -> DeviceStatus {
        let rates = self.rates.get(&key);
        let traffic = |count: Count, way: usize| DeviceTraffic {
            rate_bps: rates.map(|rates| rates[way]),
            packets: count.packets,
            bytes: count.bytes,
        };
        let mac = match key {
            Key::Mac(mac) => Some(mac),
            Key::Address(_) => None,
        };
        // Of several that mean it the last one counts, as in the firewall table.
        let limit = limits.iter().rev().find(|limit| means(limit, mac, &known));
        DeviceStatus {
            mac,
            down: traffic(known.down, 0),
            up: traffic(known.up, 1),
            limit: limit.map(status_of),
            name: known.name,
            interface: known.interface,
            addresses: known.addresses.into_iter().collect(),
        }
    }
}

/// A limit as it is told.
#[must_use]
pub fn status_of(limit: &DeviceLimit) -> DeviceLimitStatus {
    DeviceLimitStatus {
        device: Some(limit.device.clone()),
        down_bps: limit.down.map(Bitrate::as_bps),
        up_bps: limit.up.map(Bitrate::as_bps),
    }
}

fn means(limit: &DeviceLimit, mac: Option<MacAddress>, known: &Known) -> bool {
    match &limit.device {
        DeviceSelector::Mac(meant) => mac == Some(*meant),
        DeviceSelector::Address(meant) => known.addresses.contains(meant),
        DeviceSelector::Name(meant) => known.name.as_ref() == Some(meant),
    }
}

/// Bits per second.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn rate(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 * 8.0 / elapsed.as_secs_f64()
}

/// All devices: those that were lent an address, and those that something was forwarded to or from.
fn known(sets: &Sets, leases: &[Lease]) -> BTreeMap<Key, Known> {
    let of = |name: &str| sets.get(name).into_iter().flatten();
    let up: Vec<(MacAddress, IpAddr, Count)> =
        of(UP_V4).chain(of(UP_V6)).filter_map(sender).collect();
    // Whose an address is: his whom it was lent to, else his who sent the most from it.
    let mut owners: BTreeMap<IpAddr, (u64, MacAddress)> = BTreeMap::new();
    for (mac, address, count) in &up {
        let owner = owners.entry(*address).or_insert((count.packets, *mac));
        *owner = (*owner).max((count.packets, *mac));
    }
    for lease in leases {
        owners.insert(lease.address.into(), (u64::MAX, lease.mac));
    }
    let mut all: BTreeMap<Key, Known> = BTreeMap::new();
    for lease in leases {
        let known = all.entry(Key::Mac(lease.mac)).or_default();
        known.name = lease.name.clone().or(known.name.take());
        known.interface = Some(lease.interface.clone());
        known.addresses.insert(lease.address.into());
    }
    for (mac, address, count) in up {
        let known = all.entry(Key::Mac(mac)).or_default();
        known.addresses.insert(address);
        add(&mut known.up, count);
    }
    for (address, count) in of(DOWN_V4).chain(of(DOWN_V6)).filter_map(receiver) {
        let key = match owners.get(&address) {
            Some((_, mac)) => Key::Mac(*mac),
            None => Key::Address(address),
        };
        let known = all.entry(key).or_default();
        known.addresses.insert(address);
        add(&mut known.down, count);
    }
    all
}

fn add(all: &mut Count, more: Count) {
    all.packets = all.packets.saturating_add(more.packets);
    all.bytes = all.bytes.saturating_add(more.bytes);
}

/// Who sent, from which address, and how much.
fn sender(element: &Element) -> Option<(MacAddress, IpAddr, Count)> {
    let [mac, address] = element.parts.as_slice() else { return None };
    Some((MacAddress::from_text(mac).ok()?, address.parse().ok()?, element.count?))
}

/// To which address was sent, and how much.
fn receiver(element: &Element) -> Option<(IpAddr, Count)> {
    let [address] = element.parts.as_slice() else { return None };
    Some((address.parse().ok()?, element.count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TV: &str = "52:54:00:00:00:01";
    const PHONE: &str = "52:54:00:00:00:02";

    fn mac(text: &str) -> MacAddress {
        MacAddress::from_text(text).unwrap()
    }

    fn element(parts: &[&str], packets: u64) -> Element {
        Element {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            count: Some(Count { packets, bytes: packets * 1000 }),
        }
    }

    fn sets(list: &[(&str, &[&str], u64)]) -> Sets {
        let mut sets = Sets::new();
        for (set, parts, packets) in list {
            sets.entry((*set).to_owned()).or_default().push(element(parts, *packets));
        }
        sets
    }

    fn lease(device: &str, last: u8, name: Option<&str>) -> Lease {
        Lease {
            interface: "lan0".into(),
            mac: mac(device),
            address: [192, 168, 77, last].into(),
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_device_is_one_whatever_addresses_it_has() {
        let sets = sets(&[
            (UP_V4, &[TV, "192.168.77.20"], 3),
            (UP_V6, &[TV, "2001:db8::20"], 2),
            (UP_V4, &[PHONE, "192.168.77.21"], 1),
            // Somebody who says that he is the TV.
            (UP_V4, &[PHONE, "192.168.77.20"], 9),
            (DOWN_V4, &["192.168.77.20"], 30),
            (DOWN_V6, &["2001:db8::20"], 20),
            (DOWN_V4, &["192.168.77.99"], 1),
        ]);
        let leases = [lease(TV, 20, Some("tv")), lease("52:54:00:00:00:03", 22, None)];
        let shown = Book::default().look(Instant::now(), &sets, &leases, &[]);
        let told: Vec<_> = shown
            .devices
            .iter()
            .map(|one| {
                let name = one.name.as_deref().unwrap_or("-");
                (name, one.mac, one.addresses.len(), one.down.packets, one.up.packets)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("tv", Some(mac(TV)), 2, 50, 5),
                ("-", Some(mac(PHONE)), 2, 0, 10),
                ("-", None, 1, 1, 0),
                ("-", Some(mac("52:54:00:00:00:03")), 1, 0, 0),
            ]
        );
        assert_eq!((shown.left_out, shown.over), (0, None));
        assert!(shown.devices.iter().all(|one| one.down.rate_bps.is_none()));
    }

    #[test]
    fn rates_are_over_a_second_and_stay_for_whoever_asks_sooner() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut book = Book::default();
        let mut look = |ms, packets| {
            let sets = sets(&[(DOWN_V4, &["192.168.77.20"], packets)]);
            let shown = book.look(at(ms), &sets, &[lease(TV, 20, None)], &[]);
            (shown.devices[0].down.rate_bps, shown.over.map(|over| over.as_millis()))
        };
        assert_eq!(look(0, 0), (None, None));
        assert_eq!(look(500, 10), (None, None), "too soon");
        assert_eq!(look(1000, 125), (Some(1e6), Some(1000)));
        assert_eq!(look(1200, 200), (Some(1e6), Some(1000)), "still the same");
        assert_eq!(look(3000, 375), (Some(1e6), Some(2000)));
        assert_eq!(look(60_000, 375), (None, None), "too long ago");
        // A counter that began again has carried nothing, and not less than nothing.
        assert_eq!(look(61_000, 0), (Some(0.0), Some(1000)));
    }

    #[test]
    fn the_last_limit_that_means_a_device_is_told() {
        let limit = |device: &str, mbit| DeviceLimit {
            device: DeviceSelector::from_text(device).unwrap(),
            down: Some(Bitrate::from_mbps(mbit)),
            up: None,
        };
        let limits = [limit("tv", 1), limit(TV, 2), limit("192.168.77.21", 3)];
        let leases = [lease(TV, 20, Some("tv")), lease(PHONE, 21, Some("phone"))];
        let shown = Book::default().look(Instant::now(), &Sets::new(), &leases, &limits);
        let told: Vec<_> = shown
            .devices
            .iter()
            .map(|one| one.limit.as_ref().and_then(|limit| limit.down_bps))
            .collect();
        assert_eq!(told, [Some(2_000_000), Some(3_000_000)]);
    }

    #[test]
    fn more_devices_than_are_shown_are_counted() {
        let leases: Vec<Lease> = (0..300_u16)
            .map(|n| {
                let [high, low] = n.to_be_bytes();
                Lease { mac: MacAddress([2, 0, 0, 0, high, low]), ..lease(TV, 20, None) }
            })
            .collect();
        let shown = Book::default().look(Instant::now(), &Sets::new(), &leases, &[]);
        assert_eq!((shown.devices.len(), shown.left_out), (MAX_SHOWN, 44));
    }
}
