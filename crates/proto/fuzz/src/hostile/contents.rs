//! What the attacker's datagrams carry: frames, and segments of TCP.

use rand::Rng;
use ropewalk_netlab::inner::{CLIENT, SERVER};
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::packet::transport::Transport;
use ropewalk_proto::packet::{PacketView, checksum, protocol};
use ropewalk_proto::units::LinkId;
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{
    CloseReason, FleetFrame, Frame, Halt, PacketFrame, SpeedAnswerFrame, SpeedLoad,
    SpeedRequestFrame, emit,
};

use super::{Attack, FRAME_KINDS, LARGEST};
use crate::input::Input;

/// Frames as the input draws them.
pub(super) fn frames(input: &mut Input<'_>, attack: &Attack) -> Vec<u8> {
    let count = 1 + usize::from(input.byte() % 70);
    let noise = input.bytes(64).to_vec();
    written(|writer| {
        for _ in 0..count {
            let link = LinkId(input.byte() % 4);
            let word: u32 = input.random();
            let halt = Halt { link, next: word >> (input.byte() % 32) };
            let frame = match attack.only.unwrap_or_else(|| input.byte() % FRAME_KINDS) {
                0 => Frame::Ping,
                1 => Frame::Join { name: &noise[..noise.len().min(15)] },
                2 => Frame::JoinAck,
                3 => Frame::Leave(halt),
                4 => Frame::Down(halt),
                5 => Frame::PathChallenge(u64::from(word).to_be_bytes()),
                6 => Frame::PathResponse(u64::from(word).to_be_bytes()),
                7 => Frame::RekeyFirst(&noise),
                8 => Frame::RekeyResponse(&noise),
                9 => Frame::RekeyRequest,
                10 | 11 => Frame::EchoAfter { token: word, delay_ms: word >> (word & 31) },
                12 => Frame::Echo { token: word },
                13 => Frame::MtuHint(word as u16),
                14 => Frame::Others(word),
                15 => Frame::Resting,
                16 if word & 0xff == 0 => Frame::Close(CloseReason::Other(word as u8)),
                17 => {
                    // The policy frame, with any bytes.
                    let len = noise.len().min(40) as u8;
                    let raw = [0x42, 0, len];
                    if writer.bytes(&raw).and_then(|()| writer.bytes(&noise[..len.into()])).is_err()
                    {
                        break;
                    }
                    continue;
                }
                18 => {
                    // A part of a fleet's list, with any bytes.
                    let len = noise.len().min(60);
                    Frame::Fleet(FleetFrame::new(word & 3, 2, (word >> 8) as u8 & 1, &noise[..len]))
                }
                19 => Frame::Moving,
                20 => {
                    let loads = [SpeedLoad::Down, SpeedLoad::Up, SpeedLoad::Idle];
                    let load = loads.get((word & 3) as usize).copied();
                    let links = &noise[..noise.len().min(18) / 9 * 9];
                    let (phase, turn) = (word >> 2 & 0xff, (word >> 10) as u16);
                    let request = SpeedRequestFrame::new(phase, turn, load, links);
                    Frame::SpeedRequest(request.allowing((word >> 16) as u16, u64::MAX))
                }
                21 => Frame::SpeedAnswer(SpeedAnswerFrame {
                    phase: word & 3,
                    turn: 0,
                    refusal: None,
                    wait_s: word,
                }),
                22 => Frame::Filler((word & 0x1ff) as u16),
                _ => Frame::Packet(PacketFrame {
                    global: (attack.global as u32).wrapping_add(word & 0xfff),
                    previous_on_link: word as u8,
                    previous_of_flow: (word >> 8) as u8,
                    packet: &noise,
                }),
            };
            if emit(writer, &frame).is_err() {
                break;
            }
        }
        true
    })
}

/// What `write` wrote.
pub(super) fn written(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buffer = [0; LARGEST];
    let mut writer = Writer::new(&mut buffer);
    let len = if write(&mut writer) { writer.len() } else { 0 };
    buffer[..len].to_vec()
}

/// A TCP segment of one of many connections, with right checksums.
pub(super) fn tcp(
    towards: Towards,
    flow: u16,
    flags: u8,
    seq: u32,
    ack: u32,
    len: usize,
) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((40 + len as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol::TCP, 0, 0]);
    let (client, server): ([u8; 4], [u8; 4]) = (CLIENT.0.octets(), SERVER.0.octets());
    let is_client = towards == Towards::Proxy;
    let (source, target) = if is_client { (client, server) } else { (server, client) };
    packet.extend(source.into_iter().chain(target));
    let sum = !checksum::fold(checksum::sum(0, &packet));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let (mine, other) = if is_client { (flow, 443) } else { (443, flow) };
    packet.extend(mine.to_be_bytes().into_iter().chain(other.to_be_bytes()));
    packet.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
    packet.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.resize(40 + len, 0x55);
    let transport = Transport::of(&PacketView::parse(&packet).expect("a packet")).expect("TCP");
    let partial = transport.partial(&packet).to_be_bytes();
    packet[36..38].copy_from_slice(&partial);
    transport.complete(&mut packet);
    packet
}
