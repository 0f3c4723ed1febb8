//! Flows stay on the proxy where they began, for behind another one they would have another public address.
//!
//! When a client moves on purpose it keeps both sessions for a while. First it learns for [`LEARNING`] which flows there
//! are: all that is seen is the old session's. From then on a flow that begins is the new one's. What begins is told by
//! the first packet: of TCP a SYN; any other packet of an unknown connection belongs to one that was silent while it was
//! learnt, and stays. Other protocols show no beginning; a NAT has forgotten them after such a silence, so they move.
//!
//! A flow has both directions; where the first packet comes down a session, the answers go up the same.

use std::collections::BTreeMap;

use crate::packet::{FlowKey, PacketView, protocol};
use crate::time::{Duration, Instant};

/// How long is learnt: as long as a NAT keeps a flow of UDP of which it saw one direction (Linux: 30 s).
pub const LEARNING: Duration = Duration::from_secs(30);

/// The old session is closed after this at the latest.
pub const LONGEST: Duration = Duration::from_secs(600);

/// A flow without a connection is over after so long a silence.
const SILENCE: Duration = Duration::from_secs(30);

/// A connection is over so long after its last packet behind a FIN, or a RST.
const LINGER: Duration = Duration::from_secs(5);

/// Flows known at a time; beyond that, those that begin are not noted, and count as the old session's while it lives.
const MAX_FLOWS: usize = 1 << 16;

const FIN: u8 = 1;
const SYN: u8 = 1 << 1;
const RST: u8 = 1 << 2;
const ACK: u8 = 1 << 4;

/// Which of the two sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Session {
    /// The one that is left.
    Old,
    /// The one that took its place.
    New,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    session: Session,
    last: Instant,
    is_tcp: bool,
    ends: bool,
}

/// The flows of a client that moves.
#[derive(Debug)]
pub struct Pins {
    began: Instant,
    flows: BTreeMap<FlowKey, Flow>,
}

impl Pins {
    /// The client has a session at another proxy now.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { began: now, flows: BTreeMap::new() }
    }

    /// The session on which this packet goes up.
    pub fn up(&mut self, now: Instant, packet: &PacketView<'_>) -> Session {
        let flags = flags(packet);
        let session = if now < self.began + LEARNING || flags.is_some_and(|flags| flags & SYN == 0)
        {
            Session::Old
        } else {
            Session::New
        };
        self.note(now, packet.flow_key(), flags, session)
    }

    /// This packet came down that session.
    pub fn down(&mut self, now: Instant, packet: &PacketView<'_>, session: Session) {
        let key = packet.five_tuple().reversed().key();
        self.note(now, key, flags(packet), session);
    }

    fn note(&mut self, now: Instant, key: FlowKey, flags: Option<u8>, session: Session) -> Session {
        let is_full = self.flows.len() >= MAX_FLOWS;
        let flow = match self.flows.get_mut(&key) {
            Some(flow) => flow,
            None if is_full => return Session::Old,
            None => {
                let flow = Flow { session, last: now, is_tcp: flags.is_some(), ends: false };
                self.flows.entry(key).or_insert(flow)
            }
        };
        let begins = flags.is_some_and(|flags| flags & (SYN | ACK) == SYN);
        if begins && flow.ends {
            // The ports are used again.
            (flow.session, flow.ends) = (session, false);
        }
        flow.last = now;
        flow.ends |= flags.is_some_and(|flags| flags & (FIN | RST) > 0);
        flow.session
    }

    /// Whether the old session has done its duty: what began there is over, or has had its time.
    #[must_use]
    pub fn are_over(&self, now: Instant) -> bool {
        self.over_at() <= now
    }

    /// When that will be, if nothing more comes.
    #[must_use]
    pub fn over_at(&self) -> Instant {
        let latest = self.began + LONGEST;
        let old = self.flows.values().filter(|flow| flow.session == Session::Old);
        let ends = old.map(|flow| match (flow.is_tcp, flow.ends) {
            (true, false) => latest,
            (true, true) => flow.last + LINGER,
            (false, _) => flow.last + SILENCE,
        });
        let learnt = self.began + LEARNING + SILENCE;
        ends.max().map_or(learnt, |last| last.max(learnt)).min(latest)
    }

    /// How many flows the old session has.
    #[must_use]
    pub fn on_old(&self) -> usize {
        self.flows.values().filter(|flow| flow.session == Session::Old).count()
    }
}

/// The flags of a TCP segment that shows them.
fn flags(packet: &PacketView<'_>) -> Option<u8> {
    (packet.protocol() == protocol::TCP).then(|| packet.transport().get(13).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: u8 = 80;
    const CLIENT: u8 = 2;

    fn packet(protocol: u8, port: u8, up: bool, flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[3], packet[9]) = (0x45, 40, protocol);
        packet[12..16].copy_from_slice(&[10, 0, 0, if up { CLIENT } else { SERVER }]);
        packet[16..20].copy_from_slice(&[10, 0, 0, if up { SERVER } else { CLIENT }]);
        (packet[if up { 21 } else { 23 }], packet[if up { 23 } else { 21 }]) = (port, 80);
        (packet[32], packet[33]) = (0x50, flags);
        packet
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn up(pins: &mut Pins, seconds: u64, protocol: u8, port: u8, flags: u8) -> Session {
        let packet = packet(protocol, port, true, flags);
        pins.up(at(seconds), &PacketView::parse(&packet).unwrap())
    }

    use Session::{New, Old};
    use protocol::{TCP, UDP};

    #[test]
    fn a_flow_stays_where_it_began_and_one_that_begins_later_goes_to_the_new_proxy() {
        let mut pins = Pins::new(at(0));
        let story = [
            (1, UDP, 1, 0, Old, "a call that was there"),
            (2, TCP, 2, ACK, Old, "a download that was there"),
            (29, TCP, 3, SYN, Old, "one that begins while it is learnt"),
            (31, UDP, 1, 0, Old, "the call"),
            (31, UDP, 4, 0, New, "a call that begins"),
            (31, TCP, 5, SYN, New, "a download that begins"),
            (32, TCP, 5, ACK, New, "the same"),
            (40, TCP, 6, ACK, Old, "a shell that was silent while it was learnt"),
            (500, TCP, 2, ACK, Old, "the first download, after a long silence"),
        ];
        for (seconds, protocol, port, flags, expected, what) in story {
            assert_eq!(up(&mut pins, seconds, protocol, port, flags), expected, "{what}");
        }
    }

    #[test]
    fn answers_go_up_the_session_on_which_the_question_came_down() {
        for (session, protocol) in [(Old, UDP), (New, UDP), (Old, TCP), (New, TCP)] {
            let mut pins = Pins::new(at(0));
            let question = packet(protocol, 7, false, SYN);
            pins.down(at(40), &PacketView::parse(&question).unwrap(), session);
            assert_eq!(up(&mut pins, 41, protocol, 7, SYN | ACK), session, "{protocol}");
        }
    }

    #[test]
    fn the_old_session_ends_with_its_last_flow_or_after_ten_minutes() {
        let mut pins = Pins::new(at(0));
        assert_eq!(pins.over_at(), at(60), "nothing was there");
        up(&mut pins, 50, UDP, 4, 0);
        assert_eq!(pins.over_at(), at(60), "what is the new one's does not hold it");
        up(&mut pins, 20, UDP, 1, 0);
        up(&mut pins, 100, UDP, 1, 0);
        assert_eq!((pins.over_at(), pins.on_old()), (at(130), 1));
        up(&mut pins, 101, TCP, 2, ACK);
        assert_eq!(pins.over_at(), at(600));
        up(&mut pins, 200, TCP, 2, FIN | ACK);
        assert_eq!(pins.over_at(), at(205));
        assert!(!pins.are_over(at(204)) && pins.are_over(at(205)));
        // The same ports again.
        assert_eq!(up(&mut pins, 204, TCP, 2, SYN), New);
        assert_eq!(pins.over_at(), at(130));
    }

    #[test]
    fn more_flows_than_are_noted_stay_on_the_old_session() {
        let mut pins = Pins::new(at(0));
        for key in 0..MAX_FLOWS as u64 {
            pins.note(at(0), FlowKey(key), None, Old);
        }
        assert_eq!(pins.note(at(40), FlowKey(u64::MAX), None, New), Old);
        assert_eq!(pins.flows.len(), MAX_FLOWS);
    }
}
