//! What a peer that breaks the rules says with authority.

use ropewalk_netlab::inner::{Inner, number_of};
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::pair::forger;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{Frame, PacketFrame, emit};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, Sealed, TAG_LEN};
use ropewalk_settings::Keepalive;

use super::{s, settled};

/// A datagram to the client of [`settled`], far above the numbers in use.
fn datagram(frames: &[Frame<'_>], next_global: u32) -> Vec<u8> {
    let (link, number) = (LinkId(0), 5000);
    let clear =
        Clear { kind: Kind::Frames, phase: 0, link, receiver: SessionIndex::new(9), number }
            .to_bytes();
    let mut body = [0; 1400];
    let mut writer = Writer::new(&mut body);
    let sealed =
        Sealed { send_time: 0, global: next_global, previous_on_link: 0, previous_of_flow: 0 };
    sealed.emit(&mut writer).expect("room");
    frames.iter().for_each(|frame| emit(&mut writer, frame).expect("room"));
    let len = writer.len();
    let mut datagram = clear.to_vec();
    datagram.extend_from_slice(&body[..len]);
    datagram.resize(CLEAR_LEN + len + TAG_LEN, 0);
    forger(Towards::Client)
        .seal(link, number.into(), &clear, &mut datagram[CLEAR_LEN..])
        .expect("a number used once");
    datagram
}

#[test]
fn the_packets_of_a_datagram_are_taken_in_their_order_up_to_one_that_goes_back() {
    type Case<'a> = (&'a str, &'a [u32], &'a [u64], u64);
    let table: [Case<'_>; 5] = [
        ("rising", &[0, 1, 2], &[0, 1, 2], 0),
        ("with others' between them", &[0, 2], &[0, 2], 0),
        ("the same again", &[0, 1, 1, 2], &[0, 1], 1),
        ("back", &[1, 0, 2], &[1], 1),
        ("half of the numbers ahead", &[0, 1 << 23, 1], &[0], 1),
    ];
    for (case, globals, expected, malformed) in table {
        for removed in [false, true] {
            let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(10.0, 20)]);
            if removed {
                lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
            }
            let packets: Vec<_> = globals
                .iter()
                .map(|global| Inner::plain(Towards::Client, u64::from(*global), 100).packet())
                .collect();
            let frames: Vec<_> = globals
                .iter()
                .zip(&packets)
                .map(|(global, packet)| {
                    let (previous_on_link, previous_of_flow) = (0, 0);
                    let global = *global;
                    Frame::Packet(PacketFrame {
                        global,
                        previous_on_link,
                        previous_of_flow,
                        packet,
                    })
                })
                .collect();
            let path = Path { socket: SocketId(0), local: None, remote: PROXY };
            lab.inject(Towards::Client, path, &datagram(&frames, 3));
            let end = lab.now + s(1);
            lab.run_until(end);
            let came: Vec<_> = lab
                .delivered(Towards::Client)
                .iter()
                .filter_map(|came| number_of(&came.packet))
                .collect();
            assert_eq!(came, expected, "{case}, removed: {removed}");
            let drops = lab.client.stats().drops;
            let counted = drops.get(DropReason::FrameMalformed);
            assert_eq!(counted, malformed, "{case}, removed: {removed}");
        }
    }
}
