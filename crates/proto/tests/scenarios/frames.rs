//! What a peer that breaks the rules says with authority.

use ropewalk_netlab::inner::{Inner, number_of};
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::pair::forger;
use ropewalk_proto::config::{Keepalive, TunnelConfig};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{Frame, PacketFrame, emit};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, Sealed, TAG_LEN};

use super::settled;

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
fn a_datagram_carries_one_packet_and_what_follows_a_second_is_not_obeyed() {
    for departed in [false, true] {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(10.0, 20)]);
        if departed {
            lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
        }
        let packets = [0, 1].map(|number| Inner::plain(Towards::Client, number, 100).packet());
        let frame = |global: u32| {
            let packet = &packets[global as usize];
            Frame::Packet(PacketFrame { global, previous_on_link: 0, previous_of_flow: 0, packet })
        };
        let two = datagram(&[frame(0), frame(1)], 2);
        let path = Path { socket: SocketId(0), local: None, remote: PROXY };
        lab.inject(Towards::Client, path, &two);
        let came: Vec<_> =
            lab.delivered(Towards::Client).iter().map(|came| number_of(&came.packet)).collect();
        assert_eq!(came, [Some(0)], "departed: {departed}");
        let drops = lab.client.stats().drops;
        assert_eq!(drops.get(DropReason::FrameMalformed), 1, "departed: {departed}");
    }
}
