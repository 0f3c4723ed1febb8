use ropewalk_settings::Text;

use super::*;
use crate::packet::PacketView;
use crate::packet::checksum::Checksum;
use crate::packet::tests::{UDP_V4, UDP_V6, v4, v6};
use crate::time::Duration;

/// A call's packet from 192.168.0.1:5000 to 192.168.0.199:53 with this DSCP.
fn over_v4(dscp: u8) -> Vec<u8> {
    let mut packet = v4(UDP_V4, 100);
    packet[1] = dscp << 2 | 0b01;
    packet
}

/// The same from [2001:db8::1]:5000 to [2001:db8::2]:53.
fn over_v6(dscp: u8) -> Vec<u8> {
    let mut packet = v6(UDP_V6, 100);
    packet[0] = 0x60 | dscp >> 2;
    packet[1] = dscp << 6 | 0b01 << 4;
    packet
}

/// A fragment over IPv4: the first, or a later one.
fn fragment(is_first: bool) -> Vec<u8> {
    let mut packet = over_v4(0);
    packet[6..8].copy_from_slice(if is_first { &[0x20, 0] } else { &[0, 9] });
    packet
}

/// What is marked, or these ports, or these networks.
#[derive(Clone, Copy, Debug)]
enum Which {
    Marked,
    Ports(&'static [&'static str]),
    Addresses(&'static [&'static str]),
    Nothing,
}

impl Which {
    fn settings(self) -> Redundant {
        let off = Redundant::off();
        match self {
            Self::Marked => Redundant { marked: true, ..off },
            Self::Ports(ports) => Redundant { ports: all(ports), ..off },
            Self::Addresses(addresses) => Redundant { addresses: all(addresses), ..off },
            Self::Nothing => off,
        }
    }
}

fn all<T: Text>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| T::from_text(text).expect("valid")).collect()
}

#[test]
fn a_packet_goes_over_two_links_by_its_mark_its_ports_or_its_addresses() {
    use Which::{Addresses, Marked, Nothing, Ports};
    let table = [
        (Marked, over_v4(46), true),
        (Marked, over_v4(40), true),
        (Marked, over_v4(48), true),
        (Marked, over_v4(39), false),
        (Marked, over_v4(0), false),
        (Marked, over_v6(46), true),
        (Marked, over_v6(40), true),
        (Marked, over_v6(39), false),
        (Marked, over_v6(0), false),
        (Nothing, over_v4(46), false),
        (Nothing, over_v6(63), false),
        (Ports(&["53"]), over_v4(0), true),
        (Ports(&["53"]), over_v6(0), true),
        (Ports(&["7", "4000-5000"]), over_v4(0), true),
        (Ports(&["7", "4000-5000"]), over_v6(0), true),
        (Ports(&["54", "5001-65535"]), over_v4(0), false),
        (Ports(&["54", "5001-65535"]), over_v6(0), false),
        (Addresses(&["192.168.0.1"]), over_v4(0), true),
        (Addresses(&["192.168.0.1"]), over_v6(0), false),
        (Addresses(&["2001:db8::2", "192.168.0.192/26"]), over_v4(0), true),
        (Addresses(&["2001:db8::2", "192.168.0.192/26"]), over_v6(0), true),
        (Addresses(&["192.168.1.0/24", "2001:db9::/32"]), over_v4(0), false),
        (Addresses(&["192.168.1.0/24", "2001:db9::/32"]), over_v6(0), false),
        // Fragments show no ports.
        (Ports(&["53"]), fragment(true), false),
        (Ports(&["53"]), fragment(false), false),
        (Addresses(&["192.168.0.1"]), fragment(true), true),
        (Addresses(&["192.168.0.199"]), fragment(false), true),
    ];
    for (which, packet, is_meant) in table {
        let view = PacketView::parse(&packet).expect("a packet");
        let copies = Copies::new(Instant::ZERO, which.settings());
        let label = Label::of(&view, Checksum::Whole);
        assert_eq!(copies.means(&label), is_meant, "{which:?}: {view:?}");
    }
}

#[test]
fn a_budget_allows_what_it_saved_up_and_then_its_rate() {
    let settings = Redundant { budget: Bitrate::from_kbps(1000), ..Redundant::off() };
    let start = Instant::from_millis(500);
    let mut budget = Budget { used_until: start };
    let (mut now, mut spent) = (start, 0);
    while now < start + Duration::from_secs(10) {
        while budget.left(now, &settings) >= 300 {
            budget.spend(now, 300, settings.budget);
            spent += 300;
        }
        if now == start {
            assert_eq!(spent, 12_300, "100 ms at once");
        }
        now += Duration::from_millis(1);
    }
    assert!((1_250_000..=1_262_500).contains(&spent), "{spent} bytes in 10 s");
    // A pause saves up no more than the burst.
    now += Duration::from_secs(3600);
    assert_eq!(budget.left(now, &settings), 12_500);
}

#[test]
fn the_least_budget_pays_for_a_full_packet_now_and_then_and_another_budget_holds_at_once() {
    let least = Redundant { budget: *Redundant::BUDGET.start(), ..Redundant::off() };
    let (mut budget, now) = (Budget { used_until: Instant::ZERO }, Instant::from_millis(9000));
    budget.spend(now, 1500, least.budget);
    assert_eq!(budget.left(now, &least), 1500);
    budget.spend(now, 1500, least.budget);
    assert_eq!(budget.left(now, &least), 0);
    assert_eq!(budget.left(now + Duration::from_millis(1200), &least), 1500);
    let more = Redundant { budget: Bitrate::from_text("1 Mbit/s").expect("a rate"), ..least };
    assert_eq!(budget.left(now, &more), 0, "what was spent stays spent");
}

#[test]
fn no_more_than_so_many_packets_of_one_turn_wait_for_their_copy() {
    let mut copies = Copies::new(Instant::ZERO, Redundant::default());
    (0..MOST_WANTED as u64 + 3).for_each(|global| copies.want(global));
    assert_eq!((copies.wanted.len(), copies.redundancy.no_room), (MOST_WANTED, 3));
}
