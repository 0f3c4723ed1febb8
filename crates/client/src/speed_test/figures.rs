//! What a link carried between two readings of its counters.

use ropewalk_control::api::{Speed, SpeedWay};
use ropewalk_proto::time::Duration;
use ropewalk_proto::tunnel::{Filler, LinkState, LinkStats, Traffic};
use ropewalk_proto::units::LinkId;
use ropewalk_proto::wire::header::OVERHEAD;

/// A datagram of test data where none arrived to tell: the longest that most links carry, with IP and UDP headers.
const LONGEST: u64 = 1500;

/// The counters of a link at a moment; bytes are those of UDP payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    /// Another id is another link, whose counters began again.
    pub(super) id: LinkId,
    pub(super) is_up: bool,
    /// Bytes of IP and UDP headers in front of a datagram.
    pub(super) header: u64,
    pub(super) sent: Traffic,
    pub(super) received: Traffic,
    /// What of both was test data.
    pub(super) filler: Filler,
    /// What the other end said has arrived.
    pub(super) confirmed: Traffic,
    /// Datagrams that did not.
    pub(super) lost: u64,
    /// Datagrams that came.
    pub(super) came: u64,
    /// Datagrams that were sent by when the newest of them was.
    pub(super) numbered: u64,
}

impl Reading {
    /// As the core has them.
    pub(crate) fn of(link: &LinkStats) -> Self {
        let (sender, receiver) = (&link.sender, &link.receiver);
        Self {
            id: link.id,
            is_up: link.state == LinkState::Up,
            header: u64::from(link.path.header_len()),
            sent: link.sent,
            received: link.received,
            filler: link.filler,
            confirmed: Traffic { datagrams: sender.confirmed, bytes: sender.confirmed_bytes },
            lost: sender.lost,
            came: receiver.datagrams,
            numbered: receiver.next,
        }
    }
}

/// A link between two readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    before: Reading,
    after: Reading,
}

impl Span {
    /// `None`: it is not the same link any more, or does not answer.
    pub(super) fn between(before: Option<Reading>, after: Option<Reading>) -> Option<Self> {
        Self::of_link(before, after).filter(|span| span.after.is_up)
    }

    /// `None`: it is not the same link any more.
    pub(super) fn of_link(before: Option<Reading>, after: Option<Reading>) -> Option<Self> {
        let (before, after) = before.zip(after)?;
        (before.id == after.id).then_some(Self { before, after })
    }

    fn more(&self, of: impl Fn(&Reading) -> Traffic) -> Traffic {
        let (before, after) = (of(&self.before), of(&self.after));
        Traffic {
            datagrams: after.datagrams.saturating_sub(before.datagrams),
            bytes: after.bytes.saturating_sub(before.bytes),
        }
    }

    /// Bytes with IP and UDP headers.
    fn on_wire(&self, traffic: Traffic) -> u64 {
        traffic.bytes.saturating_add(traffic.datagrams.saturating_mul(self.after.header))
    }

    /// Test data this way, bytes with IP and UDP headers.
    pub(super) fn test_bytes(&self, way: SpeedWay) -> u64 {
        self.on_wire(self.more(|reading| match way {
            SpeedWay::Down => reading.filler.received,
            SpeedWay::Up => reading.filler.sent,
        }))
    }

    /// The same with what was sent and did not arrive, for it may have been carried. Of what is lost on the way down it is not known
    /// what it was: it counts as test data.
    pub(super) fn used(&self, way: SpeedWay) -> u64 {
        let known = self.test_bytes(way);
        let missing = match way {
            SpeedWay::Down => self.missing(),
            SpeedWay::Up => 0,
        };
        let arrived = self.more(|reading| reading.filler.received);
        let each = self.on_wire(arrived).div_ceil(arrived.datagrams.max(1));
        let each = if each == 0 { LONGEST } else { each };
        known.saturating_add(missing.saturating_mul(each))
    }

    /// Datagrams that were sent on the way down, and did not come.
    fn missing(&self) -> u64 {
        let (before, after) = (&self.before, &self.after);
        let sent = after.numbered.saturating_sub(before.numbered);
        sent.saturating_sub(after.came.saturating_sub(before.came))
    }

    /// All that the link carried, both ways, as its provider counts.
    pub(super) fn all_bytes(&self) -> u64 {
        let (sent, received) =
            (self.more(|reading| reading.sent), self.more(|reading| reading.received));
        self.on_wire(sent).saturating_add(self.on_wire(received))
    }

    /// What arrived this way.
    fn arrived(&self, way: SpeedWay) -> Traffic {
        self.more(|reading| match way {
            SpeedWay::Down => reading.received,
            SpeedWay::Up => reading.confirmed,
        })
    }

    /// The same in bytes of packets.
    pub(super) fn carried(&self, way: SpeedWay) -> u64 {
        inner(self.arrived(way))
    }

    /// The figures but for the round trips, if it took so long.
    pub(super) fn speed(&self, way: SpeedWay, over: Duration) -> Speed {
        let arrived = self.arrived(way);
        let (all, test) = match way {
            SpeedWay::Down => (arrived, self.more(|reading| reading.filler.received)),
            SpeedWay::Up => {
                (self.more(|reading| reading.sent), self.more(|reading| reading.filler.sent))
            }
        };
        Speed {
            rate_bps: rate(inner(arrived), over),
            wire_bps: rate(self.on_wire(arrived), over),
            other_bps: rate(inner(all).saturating_sub(inner(test)), over),
            rtt_p50_ms: None,
            rtt_p95_ms: None,
            loss: self.loss(way),
            over_s: over.as_secs_f64(),
            cut_short: false,
        }
    }

    fn loss(&self, way: SpeedWay) -> Option<f64> {
        let (before, after) = (&self.before, &self.after);
        let (lost, sent) = match way {
            SpeedWay::Down => (self.missing(), after.numbered.saturating_sub(before.numbered)),
            SpeedWay::Up => {
                // What counted as lost before may have come in the meantime.
                let lost = after.lost.saturating_sub(before.lost);
                let arrived = self.more(|reading| reading.confirmed).datagrams;
                (lost, lost.saturating_add(arrived))
            }
        };
        (sent > 0).then(|| as_f64(lost) / as_f64(sent))
    }
}

/// Bytes of packets in datagrams: what is left without the tunnel's headers.
fn inner(traffic: Traffic) -> u64 {
    traffic.bytes.saturating_sub(traffic.datagrams.saturating_mul(OVERHEAD as u64))
}

/// Bits per second.
pub(super) fn rate(bytes: u64, over: Duration) -> f64 {
    let seconds = over.as_secs_f64();
    if seconds > 0.0 { as_f64(bytes) * 8.0 / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "what moves in a minute is below 2^53")]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A link that has carried nothing.
    pub(in crate::speed_test) fn fresh() -> Reading {
        Reading {
            id: LinkId(1),
            is_up: true,
            header: 28,
            sent: Traffic::default(),
            received: Traffic::default(),
            filler: Filler::default(),
            confirmed: Traffic::default(),
            lost: 0,
            came: 0,
            numbered: 0,
        }
    }

    /// So many datagrams of a full packet.
    fn full(datagrams: u64) -> Traffic {
        Traffic { datagrams, bytes: datagrams * 1432 }
    }

    #[test]
    fn a_rate_is_that_of_packets_and_beside_it_stands_what_a_provider_counts() {
        let down = Reading {
            received: full(1100),
            filler: Filler { received: full(1000), ..Filler::default() },
            came: 1100,
            numbered: 1111,
            ..fresh()
        };
        let span = Span::between(Some(fresh()), Some(down)).unwrap();
        let speed = span.speed(SpeedWay::Down, Duration::from_secs(2));
        assert_eq!(speed.rate_bps, 1100.0 * 1400.0 * 4.0);
        assert_eq!(speed.wire_bps, 1100.0 * 1460.0 * 4.0);
        assert_eq!(speed.other_bps, 100.0 * 1400.0 * 4.0);
        assert!((speed.loss.unwrap() - 0.0099).abs() < 1e-4, "{speed:?}");
        assert_eq!(span.test_bytes(SpeedWay::Down), 1_460_000);
        assert_eq!(span.used(SpeedWay::Down), 1_011 * 1460, "what was lost may have been carried");
        assert_eq!((span.carried(SpeedWay::Down), span.carried(SpeedWay::Up)), (1_540_000, 0));
        assert_eq!(span.all_bytes(), 1_606_000);
        assert_eq!(span.speed(SpeedWay::Up, Duration::from_secs(2)).loss, None);
    }

    #[test]
    fn what_goes_up_counts_when_it_has_arrived() {
        let up = Reading {
            sent: full(1000),
            filler: Filler { sent: full(600), ..Filler::default() },
            confirmed: full(720),
            lost: 80,
            ..fresh()
        };
        let before = Reading { lost: 90, ..fresh() };
        let span = |before| Span::between(Some(before), Some(up)).unwrap();
        let speed = span(fresh()).speed(SpeedWay::Up, Duration::from_secs(1));
        assert_eq!(speed.rate_bps, 720.0 * 1400.0 * 8.0);
        assert_eq!(speed.other_bps, 400.0 * 1400.0 * 8.0);
        assert_eq!(speed.loss, Some(0.1));
        let speed = span(before).speed(SpeedWay::Up, Duration::from_secs(1));
        assert_eq!(speed.loss, Some(0.0), "some came after all");
    }

    #[test]
    fn a_link_that_came_again_or_does_not_answer_has_no_figures() {
        let other = Reading { id: LinkId(2), ..fresh() };
        let silent = Reading { is_up: false, ..fresh() };
        for (before, after) in [(None, Some(fresh())), (Some(fresh()), None)] {
            assert!(Span::between(before, after).is_none());
        }
        assert!(Span::between(Some(fresh()), Some(other)).is_none());
        assert!(Span::between(Some(fresh()), Some(silent)).is_none());
        let lost = Reading { numbered: 3, ..silent };
        let span = Span::of_link(Some(fresh()), Some(lost)).unwrap();
        assert_eq!((span.used(SpeedWay::Down), span.used(SpeedWay::Up)), (4500, 0));
        assert_eq!(rate(1000, Duration::ZERO), 0.0);
    }
}
