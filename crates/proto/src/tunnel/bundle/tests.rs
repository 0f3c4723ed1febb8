use proptest::prelude::*;

use super::*;
use crate::time::Duration;
use crate::wire::cursor::Writer;

/// Packets with these numbers, as they stand in a datagram.
fn framed(globals: &[u32]) -> Vec<u8> {
    let mut bytes = [0; 2000];
    let mut writer = Writer::new(&mut bytes);
    for global in globals {
        let frame = PacketFrame {
            global: *global,
            previous_on_link: 0,
            previous_of_flow: 0,
            packet: &[7; 20],
        };
        emit(&mut writer, &Frame::Packet(frame)).expect("there is room");
    }
    let len = writer.len();
    bytes[..len].to_vec()
}

fn numbers(globals: &[u32], next: u64) -> Vec<u64> {
    packets(&framed(globals), next).map(|(global, _)| global).collect()
}

#[test]
fn the_numbers_of_a_datagram_rise_over_the_wrap_of_their_low_bits_and_end_where_they_do_not() {
    const WRAP: u64 = 1 << 24;
    let table: [(&[u32], u64, &[u64]); 7] = [
        (&[5], 5, &[5]),
        (&[5, 6, 9], 5, &[5, 6, 9]),
        (&[0xff_fffe, 0xff_ffff, 1], WRAP - 4, &[WRAP - 2, WRAP - 1, WRAP + 1]),
        (&[5, 5, 6], 5, &[5]),
        (&[5, 7, 6, 8], 5, &[5, 7]),
        // Half of the number space ahead is behind.
        (&[5, 5 + (1 << 23), 6], 5, &[5]),
        (&[], 5, &[]),
    ];
    for (globals, next, expected) in table {
        assert_eq!(numbers(globals, next), expected, "{globals:?}");
    }
}

#[test]
fn behind_what_cannot_be_read_there_is_no_packet() {
    let mut bytes = framed(&[1, 2]);
    bytes.extend([0x3f, 0, 0]);
    bytes.extend(framed(&[3]));
    assert_eq!(packets(&bytes, 0).count(), 2);
}

#[test]
fn a_paced_link_opens_for_as_many_as_would_have_gone_one_by_one() {
    let now = Instant::from_millis(1000);
    for (mbit, window, expected) in [(1, 64, 2), (10, 64, 12), (100, 64, 64), (1000, 9, 9)] {
        let rate = Bitrate::from_mbps(mbit);
        let mut outlook = Outlook { room: window, pace: Some(rate), pacer: Pacer::default() };
        let mut went = 0;
        while outlook.room > 0 {
            outlook.on_sent(now, 220);
            went += 1;
        }
        // One by one, with 2 ms of the rate ahead.
        let mut pacer = Pacer::default();
        let mut alone = 0;
        while alone < window && pacer.is_open(now, rate) {
            pacer.on_sent(now, 220, rate);
            alone += 1;
        }
        assert_eq!((went, alone), (expected, expected), "{mbit} Mbit/s");
    }
    let mut open = Outlook { room: 3, pace: None, pacer: Pacer::default() };
    open.on_sent(now + Duration::from_secs(1), 220);
    assert_eq!(open.room, 2);
}

proptest! {
    #[test]
    fn whatever_a_datagram_says_its_numbers_rise(globals in proptest::collection::vec(0..1_u32 << 24, 0..60), next in 0..1_u64 << 62) {
        let numbers = numbers(&globals, next);
        prop_assert!(numbers.is_sorted_by(|one, other| one < other), "{:?}", numbers);
        prop_assert!(numbers.iter().zip(&globals).all(|(wide, low)| wide % (1 << 24) == u64::from(*low)));
    }
}
