//! One end of a connection: the handshake, and between sender, receiver and the numbers on the wire.

use std::collections::VecDeque;
use std::time::Duration;

use ropewalk_proto::time::{Instant, earliest};

use super::clock;
use super::receiver::{Data, Receiver};
use super::segment::{HEADERS, Segment, SynOptions};
use super::sender::{Ack, Sender};
use crate::lab::Towards;

/// The number of a SYN. The first bytes' wrap around, as those of any connection may.
const FIRST_NUMBER: u32 = 0xffff_8000;
/// By how many bits windows are shifted: what Linux takes for its largest buffer.
const SCALE: u8 = 10;
/// Headers without options, in bytes.
const PLAIN_HEADERS: u16 = 40;
/// A SYN is sent again after this time, and after twice of it.
const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// How far the handshake is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing was sent.
    Closed,
    /// A SYN went out then, after so many others.
    Asked { at: Instant, tries: u32 },
    /// The peer's SYN was answered then.
    Answered { at: Instant },
    /// Data may flow.
    Established,
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    flow: u16,
    /// Which way its packets go.
    towards: Towards,
    mtu: u16,
    phase: Phase,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    out: VecDeque<Vec<u8>>,
}

impl Endpoint {
    /// An end whose packets go towards `towards` and have up to `mtu` bytes.
    pub(crate) fn new(flow: u16, towards: Towards, mtu: u16) -> Self {
        Self {
            flow,
            towards,
            mtu,
            phase: Phase::Closed,
            sender: Sender::new(payload(mtu), 0),
            receiver: Receiver::new(payload(mtu)),
            out: VecDeque::new(),
        }
    }

    /// Asks for a connection.
    pub(crate) fn connect(&mut self, now: Instant) {
        self.ask(now, 1);
    }

    /// Whether data may flow.
    pub(crate) fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// The application has this many more bytes.
    pub(crate) fn write(&mut self, now: Instant, bytes: u64) {
        self.sender.write(now, bytes);
        self.flush(now);
    }

    /// A packet came.
    pub(crate) fn handle_segment(&mut self, now: Instant, segment: &Segment, payload: &[u8]) {
        if let Some(options) = segment.syn {
            self.handle_syn(now, segment, options);
        } else {
            if let Phase::Answered { at } = self.phase {
                self.establish(now, now.since(at));
            }
            if self.is_established() {
                self.handle_established(now, segment, payload);
            }
        }
        self.flush(now);
    }

    fn handle_syn(&mut self, now: Instant, segment: &Segment, options: SynOptions) {
        let mtu = self.mtu.min(options.mss.saturating_add(PLAIN_HEADERS));
        match self.phase {
            Phase::Closed | Phase::Answered { .. } if segment.ack.is_none() => {
                self.agree(segment, mtu);
                self.phase = Phase::Answered { at: now };
                self.push_syn(now, Some(number(0)));
            }
            Phase::Asked { at, tries } if segment.ack.is_some() => {
                self.agree(segment, mtu);
                // A repeated question makes the time ambiguous.
                let rtt = if tries == 1 { now.since(at) } else { SYN_TIMEOUT };
                self.establish(now, rtt);
                self.receiver.want_report();
            }
            _ => {}
        }
    }

    fn agree(&mut self, segment: &Segment, mtu: u16) {
        self.sender = Sender::new(payload(mtu), segment.window.into());
        self.receiver = Receiver::new(payload(mtu));
        self.receiver.shook_hands(segment.time);
    }

    fn establish(&mut self, now: Instant, rtt: Duration) {
        self.phase = Phase::Established;
        self.sender.shook_hands(now, rtt);
    }

    fn handle_established(&mut self, now: Instant, segment: &Segment, payload: &[u8]) {
        let Some(seq) = offset(segment.seq, self.receiver.came()) else { return };
        let near = self.sender.acknowledged();
        if payload.is_empty() {
            self.receiver.note_time(seq, segment.time);
        }
        if let Some(number) = segment.ack.and_then(|ack| offset(ack, near)) {
            let sacks = segment.sacks.iter();
            let sacks =
                sacks.filter_map(|(start, end)| Some(offset(*start, near)?..offset(*end, near)?));
            let ack = Ack {
                number,
                window: u64::from(segment.window) << SCALE,
                echo: segment.echo,
                sacks: sacks.collect(),
                with_data: !payload.is_empty(),
            };
            self.sender.handle_ack(now, &ack);
        }
        let data = Data { offset: seq, payload, time: segment.time, echo: segment.echo };
        self.receiver.handle_data(now, &data, self.sender.rtt().smoothed());
    }

    /// A router says that packets are larger than `mtu`.
    pub(crate) fn handle_too_big(&mut self, now: Instant, mtu: u16) {
        self.mtu = self.mtu.min(mtu);
        self.sender.handle_mss(now, payload(mtu));
        self.flush(now);
    }

    /// When something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asked { at, tries } => Some(at + SYN_TIMEOUT * (1 << tries.min(6)) / 2),
            Phase::Closed | Phase::Answered { .. } => None,
            Phase::Established => {
                earliest(self.sender.poll_timeout(), self.receiver.poll_timeout())
            }
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        if let Phase::Asked { tries, .. } = self.phase {
            self.ask(now, tries + 1);
            return;
        }
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
        self.flush(now);
    }

    /// The next packet to send.
    pub(crate) fn poll_packet(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn ask(&mut self, now: Instant, tries: u32) {
        self.phase = Phase::Asked { at: now, tries };
        self.push_syn(now, None);
    }

    fn push_syn(&mut self, now: Instant, ack: Option<u32>) {
        let report = self.receiver.report();
        let segment = Segment {
            syn: Some(SynOptions { mss: self.mtu - PLAIN_HEADERS, scale: SCALE }),
            seq: FIRST_NUMBER,
            ack,
            window: u16::try_from(report.window).unwrap_or(u16::MAX),
            time: clock(now),
            echo: report.echo,
            ..Segment::default()
        };
        self.out.push_back(segment.packet(self.flow, self.towards, 0, 0));
    }

    /// Makes packets of what is to be sent, each with what there is to report.
    fn flush(&mut self, now: Instant) {
        while let Some(bytes) = self.sender.poll_transmit() {
            self.push(now, bytes.start, bytes.end - bytes.start);
        }
        if self.receiver.wants_report() {
            self.push(now, self.sender.sent(), 0);
        }
    }

    fn push(&mut self, now: Instant, at: u64, len: u64) {
        let report = self.receiver.report();
        let sacks = report.sacks.iter().map(|sack| (number(sack.start), number(sack.end)));
        let segment = Segment {
            syn: None,
            seq: number(at),
            ack: Some(number(report.number)),
            // Rounded up, so that a window never looks smaller than it is.
            window: u16::try_from(report.window.div_ceil(1 << SCALE)).unwrap_or(u16::MAX),
            time: clock(now),
            echo: report.echo,
            sacks: sacks.collect(),
        };
        let len = usize::try_from(len).unwrap_or(0);
        self.out.push_back(segment.packet(self.flow, self.towards, at, len));
    }
}

/// Payload of a packet of `mtu` bytes.
fn payload(mtu: u16) -> u64 {
    u64::from(mtu).saturating_sub(HEADERS as u64).max(1)
}

/// The number on the wire of a byte of the stream.
fn number(offset: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "numbers on the wire wrap around")]
    let low = offset as u32;
    FIRST_NUMBER.wrapping_add(1).wrapping_add(low)
}

/// The byte of the stream with this number that is nearest to `near`; `None` before the first.
fn offset(wire: u32, near: u64) -> Option<u64> {
    let distance = wire.wrapping_sub(number(near)).cast_signed();
    near.checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_the_wire_wrap_and_are_found_again() {
        for near in [0, 40_000, 1 << 32, (1 << 33) + 12_345] {
            for distance in [0, 1, 1_000_000] {
                assert_eq!(offset(number(near + distance), near), Some(near + distance));
                let below = near.checked_sub(distance);
                assert_eq!(below.and_then(|at| offset(number(at), near)), below);
            }
        }
        assert_eq!(offset(FIRST_NUMBER, 0), None);
    }
}
