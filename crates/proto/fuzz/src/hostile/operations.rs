//! What the attacker does, one kind of operation after the other.

use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::crypto::rekey::RekeyInitiator;
use ropewalk_proto::link::received::{Range, Ranges, Report};
use ropewalk_proto::time::Duration;
use ropewalk_proto::units::LinkId;
use ropewalk_proto::wire::frame::{Frame, emit, emit_report};
use ropewalk_proto::wire::header::Kind;

use super::contents::{frames, tcp, written};
use super::ends::identity;
use super::{Attack, FRAMES};
use crate::input::Input;

impl Attack {
    pub(super) fn act(
        &mut self,
        operation: u8,
        link: LinkId,
        burst: u64,
        place: u8,
        input: &mut Input<'_>,
    ) {
        match operation {
            FRAMES | 4..=6 => {
                let body = frames(input, self);
                for _ in 0..burst.min(64) {
                    self.say(link, Kind::Frames, place, &body);
                }
            }
            1..=3 => self.packets(input, link, burst, place),
            7 => {
                let body = input.piece().to_vec();
                let kind = [Kind::Frames, Kind::Data, Kind::FlowFrames, Kind::FlowData];
                self.say(link, kind[usize::from(place % 4)], place, &body);
            }
            8 => self.report(link, place & 1 == 0, input),
            9 => self.join(LinkId(input.byte()), place),
            10 => self.rekey(link, place),
            11 => {
                let jump = 1_u64 << (input.byte() % 22);
                self.numbers[usize::from(link.0)] += jump;
            }
            12 => self.pass(Duration::from_micros(u64::from(input.byte()).pow(3))),
            13 => self.segments(input, burst, link, place),
            14 => {
                self.pass(Duration::from_millis(u64::from(place)));
                self.answer();
                for link in 0..2 {
                    self.report(LinkId(link), true, input);
                }
            }
            _ => self.packets_of_the_tun(input, burst),
        }
    }

    /// Packets with numbers that step or jump.
    fn packets(&mut self, input: &mut Input<'_>, link: LinkId, burst: u64, place: u8) {
        let (step, len) = (u64::from(input.byte()), 56 + usize::from(input.byte()) * 5);
        let kind = if place & 1 == 0 { Kind::Data } else { Kind::FlowData };
        let mut packet = Inner::plain(self.towards, self.global, len);
        for number in 0..burst {
            packet.number = self.global;
            packet.flow = if step & 128 == 0 { 80 } else { number as u16 };
            let bytes = packet.packet();
            self.say(link, kind, place & 0xf0, &bytes);
            self.global += step & 15;
        }
        self.global += step << 4 & 0xf00;
    }

    /// Packets that the victim is to send.
    fn packets_of_the_tun(&mut self, input: &mut Input<'_>, burst: u64) {
        let away = self.towards.opposite();
        let (flows, len) = (u64::from(input.byte()), 56 + usize::from(input.byte()) * 5);
        for number in 0..burst {
            let mut packet = Inner::plain(away, number, len);
            packet.flow = (number % (flows + 1)) as u16;
            self.read(&packet.packet());
        }
    }

    /// TCP of many connections, of which the victim may take over the acknowledgements.
    fn segments(&mut self, input: &mut Input<'_>, burst: u64, link: LinkId, place: u8) {
        let (away, towards) = (self.towards.opposite(), self.towards);
        for _ in 0..burst {
            self.flow = self.flow.wrapping_add(1);
            let (near, far) = (1000 + u32::from(self.flow), 5000);
            // Opened by the peer's side, then data from the victim's TUN that the peer never confirms.
            self.say(link, Kind::FlowData, place & 0xf0, &tcp(towards, self.flow, 2, far, 0, 0));
            self.read(&tcp(away, self.flow, 18, near, far + 1, 0));
            let ack = tcp(towards, self.flow, 16, far + 1, near + 1, 0);
            self.say(link, Kind::FlowData, place & 0xf0, &ack);
            let mut seq = near + 1;
            for _ in 0..input.byte() % 8 {
                self.read(&tcp(away, self.flow, 16, seq, far + 1, 1200));
                seq += 1200;
            }
        }
    }

    pub(super) fn report(&mut self, link: LinkId, honest: bool, input: &mut Input<'_>) {
        let heard = self.heard[usize::from(link.0)];
        let mut ranges = Ranges::new();
        if honest {
            ranges.push(Range { first: 0, last: heard });
        } else {
            let mut last = heard.saturating_sub(u64::from(input.byte()));
            // More than 32 travel as a bitmap.
            for _ in 0..=input.byte() % 80 {
                let first = last.saturating_sub(u64::from(input.byte()));
                ranges.push(Range { first, last });
                last = first.saturating_sub(2 + u64::from(input.byte()));
                if first < 2 {
                    break;
                }
            }
        }
        let delay_us = u32::from(input.byte()) << (input.byte() % 25);
        let report = Report { link, delay_us, ce_count: input.byte().into(), ranges };
        let body = written(|writer| emit_report(writer, &report).is_ok());
        self.say(link, Kind::Frames, 0, &body);
    }

    pub(super) fn join(&mut self, link: LinkId, place: u8) {
        let body = written(|writer| emit(writer, &Frame::Join { name: b"wan" }).is_ok());
        self.say(link, Kind::Frames, place, &body);
    }

    /// Begins a rekey, as the client; asks for one, as the proxy.
    fn rekey(&mut self, link: LinkId, place: u8) {
        if self.towards == Towards::Client {
            let body = written(|writer| emit(writer, &Frame::RekeyRequest).is_ok());
            return self.say(link, Kind::Frames, place, &body);
        }
        if place & 1 == 0 || self.initiator.is_none() {
            let identity = identity(&self.credentials);
            let context = &self.credentials.context;
            self.initiator = Some(RekeyInitiator::start(&identity, context, &mut self.rng));
        }
        let message = self.initiator.as_ref().map(|rekey| rekey.message().to_vec());
        let message = message.unwrap_or_default();
        let body = written(|writer| emit(writer, &Frame::RekeyFirst(&message)).is_ok());
        self.say(link, Kind::Frames, place, &body);
    }
}
