//! One end of a tunnel with one connection, and the packets that pass there.

use std::net::IpAddr;

use crate::packet::buffer::PacketBuffer;
use crate::packet::checksum::Checksum;
use crate::packet::transport::Transport;
use crate::packet::{FiveTuple, Packet, PacketView, protocol};
use crate::queue::Label;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::tunnel::local_ack::connection::{From, FromNear};
use crate::tunnel::local_ack::segment::{Answer, Range, Segment, Times, flag};
use crate::tunnel::local_ack::{Backlog, LocalAcks};

pub(super) const NEAR: u32 = u32::MAX - 999;
pub(super) const FAR: u32 = 70_000;
pub(super) const BACKLOG: Backlog = Backlog {
    share: Some(1_000_000),
    needed: 0,
    unused: false,
    waiting: 0,
    room: 8 << 20,
    in_flight: 0,
    flows: 1,
    round_trip: Duration::from_millis(40),
    least_round_trip: Duration::from_millis(40),
};

/// From the server.
fn ends() -> FiveTuple {
    let [source, destination] = [[192, 0, 2, 80], [10, 77, 0, 2]].map(IpAddr::from);
    FiveTuple { source, destination, protocol: Some(protocol::TCP), ports: Some((443, 40_000)) }
}

/// A packet with these bytes behind its header.
pub(super) fn packet(
    from: From,
    flags: u8,
    (seq, ack): (u32, u32),
    sacks: &[Range],
    payload: &[u8],
) -> Vec<u8> {
    let times = Some(match from {
        From::Near => Times { value: seq / 2, echo: 7 },
        From::Far => Times { value: ack.wrapping_add(1 << 20), echo: 9 },
    });
    let ends = if from == From::Near { ends() } else { ends().reversed() };
    let sacks = sacks.iter().copied().collect();
    let answer = Answer { ends, seq, ack, window: 1000, flags: 0, times, sacks };
    let mut packet = Vec::new();
    answer.write(&mut packet);
    packet.extend(payload);
    let options: &[u8] =
        if flags & flag::SYN != 0 { &[4, 2, 3, 3, 7, 1, 1, 1, 1, 1, 1, 1] } else { &[] };
    let at = packet.len() - payload.len();
    packet.splice(at..at, options.iter().copied());
    packet[32] += u8::try_from(options.len() / 4).unwrap() << 4;
    let total = u16::try_from(packet.len()).unwrap().to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    packet[33] = flags;
    packet[10..12].fill(0);
    let checksum = !crate::packet::checksum::fold(crate::packet::checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    complete(&mut packet);
    packet
}

pub(super) fn complete(packet: &mut [u8]) {
    let at = read(packet).at;
    let partial = at.partial(packet).to_be_bytes();
    packet[36..38].copy_from_slice(&partial);
    at.complete(packet);
}

pub(super) fn read(packet: &[u8]) -> Segment {
    Segment::read(&PacketView::parse(packet).expect("a packet")).expect("TCP")
}

/// What comes out at the near end.
#[derive(Default)]
pub(super) struct Tun(Vec<Vec<u8>>);

impl PacketSink for Tun {
    fn deliver(&mut self, packet: Packet<'_>) {
        assert!(
            Transport::of(&PacketView::parse(packet.bytes).unwrap())
                .unwrap()
                .is_right(packet.bytes)
        );
        self.0.push(packet.bytes.to_vec());
    }
}

/// One end of a tunnel, with the connection open: the near end's next byte is `NEAR + 1`.
pub(super) struct Story {
    pub(super) acks: LocalAcks,
    pub(super) now: Instant,
    pub(super) waiting: usize,
    pub(super) backlog: Backlog,
    pub(super) again: Vec<Segment>,
}

impl Story {
    pub(super) fn begin() -> Self {
        let mut story = Self {
            acks: LocalAcks::new(true),
            now: Instant::from_millis(1000),
            waiting: 0,
            backlog: BACKLOG,
            again: Vec::new(),
        };
        story.opens(&[]);
        story
    }

    /// The handshake passes. `extra`: options of the far end's SYN.
    pub(super) fn opens(&mut self, extra: &[u8]) {
        let mut asks = packet(From::Far, flag::SYN, (FAR, 0), &[], &[]);
        if !extra.is_empty() {
            let at = asks.len() - extra.len();
            asks[at..].copy_from_slice(extra);
            complete(&mut asks);
        }
        assert!(self.far(&asks).is_some());
        let answers = packet(From::Near, flag::SYN | flag::ACK, (NEAR, FAR + 1), &[], &[]);
        assert_eq!(self.near(&answers), FromNear::Pass);
        let agrees = packet(From::Far, flag::ACK, (FAR + 1, NEAR + 1), &[], &[]);
        assert!(self.far(&agrees).is_some());
    }

    pub(super) fn gives(&mut self, from: From, packet: &[u8]) {
        match from {
            From::Near => drop(self.near(packet)),
            From::Far => drop(self.far(packet)),
        }
    }

    pub(super) fn near(&mut self, packet: &[u8]) -> FromNear {
        let mut label = Label::of(&PacketView::parse(packet).unwrap(), Checksum::Whole);
        self.acks.on_near(self.now, &packet.into(), &mut label, true)
    }

    pub(super) fn far(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        self.acks.on_far(self.now, Packet::whole(packet)).map(|packet| packet.bytes.to_vec())
    }

    /// The near end sends `len` bytes from this place of its stream on.
    pub(super) fn sends(&mut self, place: u32, len: usize) -> FromNear {
        let numbers = (NEAR.wrapping_add(1 + place), FAR + 1);
        self.near(&packet(From::Near, flag::ACK, numbers, &[], &vec![place.to_be_bytes()[3]; len]))
    }

    /// The far end has all up to this place.
    pub(super) fn confirms(&mut self, place: u32, ranges: &[(u32, u32)]) -> Option<Vec<u8>> {
        let number = |place: u32| NEAR.wrapping_add(1 + place);
        let ranges: Vec<_> = ranges.iter().map(|(a, b)| (number(*a), number(*b))).collect();
        self.far(&packet(From::Far, flag::ACK, (FAR + 1, number(place)), &ranges, &[]))
    }

    /// The driver's next turn, so much later: what the near end hears.
    pub(super) fn after(&mut self, ms: u64) -> Vec<Segment> {
        self.now += Duration::from_millis(ms);
        let mut tun = Tun::default();
        let Self { acks, now, waiting, backlog, again, .. } = self;
        let backlog = Backlog { waiting: *waiting, ..*backlog };
        if acks.poll_timeout(*waiting).is_some_and(|at| at <= *now) {
            let send = |packet: PacketBuffer, _: Label| {
                let segment = read(&packet);
                assert!(segment.at.is_right(&packet));
                again.push(segment);
            };
            acks.handle_timeout(*now, backlog, |_| *waiting, &mut tun, send);
        }
        assert!(acks.poll_timeout(*waiting).is_none_or(|at| at > *now), "it would spin");
        tun.0.iter().map(|packet| read(packet)).collect()
    }

    /// What of the stream the near end was told to have arrived, from each acknowledgement.
    pub(super) fn told(&mut self, ms: u64) -> Vec<u32> {
        self.after(ms).iter().map(|segment| place(segment.ack)).collect()
    }
}

pub(super) fn place(number: u32) -> u32 {
    number.wrapping_sub(NEAR + 1)
}
