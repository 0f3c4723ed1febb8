//! The end of a tunnel (PROTOCOL §5.5; Amezcua Valdovinos et al. 2017 §3.2 and §3.3).
//!
//! | this end | does |
//! | --- | --- |
//! | stops | takes no more packets, sends those that wait, says `Close` on every link, waits for the peer's |
//! | hears that the peer stops | receives until `Close` came on every link that is up, then says it too |
//! | resets | says `Close` at once and is gone |
//!
//! What was sent before `Close` on a slower link comes after it on a faster one: so each end goes on receiving
//! until it came on all of them. Every step is bounded: a dead peer holds nobody up.

use arrayvec::ArrayVec;

use super::Tunnel;
use crate::config::MAX_LINKS;
use crate::event::Event;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant, earliest};
use crate::units::LinkId;
use crate::wire::frame::CloseReason;

/// The longest that an end which stops takes: a person waits for it.
const LONGEST: Duration = Duration::from_secs(1);
/// For so long packets that wait are sent; the rest is for the peer's answer.
const DRAIN: Duration = Duration::from_millis(500);
/// `Close` is said again after this time without an answer: it may have been lost.
const REPEAT: Duration = Duration::from_millis(250);
/// `Close` is awaited on the other links for so long after it came on one: as long as a packet is (§8).
const LINGER: Duration = Duration::from_millis(500);
const _: () = assert!(DRAIN.as_millis() < LONGEST.as_millis());

/// How often each link says goodbye: one loss must not leave the peer guessing.
pub(super) const FAREWELLS: usize = 2;

/// Where the end stands; of neither as long as the tunnel goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    own: Option<Own>,
    peer: Option<Peer>,
}

/// This end's own.
#[derive(Clone, Copy, Debug)]
struct Own {
    reason: CloseReason,
    manner: Manner,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// It stops, and is gone then at the latest.
    Orderly { until: Instant },
    /// The peer has stopped.
    Answer,
    /// At once, whatever the peer does.
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// What waits is sent, until then at the latest.
    Draining(Instant),
    /// `Close` goes out; so often it has.
    Saying(usize),
    /// The peer's is awaited; this end's is said again then.
    Waiting(Instant),
    Over,
}

/// The peer said that it stops.
#[derive(Clone, Debug)]
struct Peer {
    /// On these links.
    links: ArrayVec<LinkId, MAX_LINKS>,
    /// The others are not waited for any longer then.
    until: Instant,
    /// Nothing more is waited for.
    done: bool,
}

impl Ending {
    /// Whether packets from the TUN are taken.
    pub(super) const fn takes_packets(&self) -> bool {
        self.own.is_none()
    }

    /// Whether the packets that wait are the last, and sent whatever their age.
    pub(super) const fn drains(&self) -> bool {
        matches!(self.own, Some(Own { step: Step::Draining(_), .. }))
    }

    /// Whether packets are sent.
    pub(super) const fn sends_packets(&self) -> bool {
        self.own.is_none() || self.drains()
    }

    /// Whether reports and the like are sent: as long as packets may come.
    pub(super) fn receives(&self) -> bool {
        self.own.is_none_or(|own| {
            matches!(own.manner, Manner::Orderly { .. }) && own.step != Step::Over
        })
    }

    /// What is to be said, and how often it was.
    pub(super) const fn words(&self) -> Option<(CloseReason, usize)> {
        match self.own {
            Some(Own { reason, step: Step::Saying(said), .. }) => Some((reason, said)),
            _ => None,
        }
    }

    /// It was said once more on one link.
    pub(super) const fn on_said(&mut self) {
        if let Some(Own { step: Step::Saying(said), .. }) = &mut self.own {
            *said += 1;
        }
    }

    /// When the next step is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let step = self.own.and_then(|own| match own.step {
            Step::Draining(at) | Step::Waiting(at) => Some(at),
            Step::Saying(_) | Step::Over => None,
        });
        let end = self.own.and_then(|own| match own.manner {
            Manner::Orderly { until } if own.step != Step::Over => Some(until),
            _ => None,
        });
        let peer = self.peer.as_ref().filter(|peer| !peer.done).map(|peer| peer.until);
        earliest(earliest(step, end), peer)
    }

    fn is_over(&self) -> bool {
        self.own.is_some_and(|own| own.step == Step::Over)
    }
}

impl Tunnel {
    /// Stops in order, within a second: what waits goes out, then `Close` on every link, with the next calls of
    /// [`poll_transmit`](Self::poll_transmit) and [`handle_timeout`](Self::handle_timeout); the peer's is waited
    /// for.
    pub fn close(&mut self, now: Instant) {
        let manner = Manner::Orderly { until: now + LONGEST };
        let step = Step::Draining(now + DRAIN);
        self.ending.own.get_or_insert(Own { reason: CloseReason::Shutdown, manner, step });
    }

    /// Stops at once: `Close` is said with the next [`poll_transmit`](Self::poll_transmit), and nothing else.
    pub fn reset(&mut self, reason: CloseReason) {
        if !self.is_closed() {
            let step = Step::Saying(0);
            self.ending.own = Some(Own { reason, manner: Manner::Reset, step });
        }
    }

    /// Whether it has ended: nothing is left to say or to hear.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ending.is_over()
    }

    /// Begins to say `Close` when nothing waits any more, or can leave.
    pub(super) fn end_drain(&mut self, now: Instant) {
        // Senders of TCP rely on what the peer has not confirmed.
        let relied_on = self.ingress.local_acks.kept_bytes() > 0;
        let goes_on = (self.egress.has_waiting() || relied_on) && self.links.any_up();
        if let Some(own) = &mut self.ending.own
            && let Step::Draining(until) = own.step
            && (!goes_on || until <= now)
        {
            own.step = Step::Saying(0);
        }
    }

    /// `Close` was said on every link.
    pub(super) fn on_close_said(&mut self, now: Instant) {
        let answers =
            self.links.any_up() && !self.ending.peer.as_ref().is_some_and(|peer| peer.done);
        let Some(own) = &mut self.ending.own else { return };
        own.step = match own.manner {
            Manner::Orderly { .. } if answers => Step::Waiting(now + REPEAT),
            _ => Step::Over,
        };
        if own.manner == Manner::Answer {
            self.outbox.tell(Event::Closed(own.reason));
        }
    }

    /// `Close` came on link `at`.
    pub(super) fn on_close(
        &mut self,
        now: Instant,
        at: usize,
        reason: CloseReason,
        sink: &mut impl PacketSink,
    ) {
        if reason != CloseReason::Shutdown {
            return self.outbox.tell(Event::Closed(reason));
        }
        let id = self.links[at].id;
        let new = || Peer { links: ArrayVec::new(), until: now + LINGER, done: false };
        let peer = self.ending.peer.get_or_insert_with(new);
        if !peer.links.contains(&id) {
            let _ = peer.links.try_push(id);
        }
        self.follow(now, sink);
    }

    /// Does what is due.
    pub(super) fn close_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        if let Some(own) = &mut self.ending.own {
            match (own.manner, own.step) {
                (Manner::Orderly { until }, _) if until <= now => own.step = Step::Over,
                (_, Step::Waiting(again)) if again <= now => own.step = Step::Saying(0),
                _ => {}
            }
            if !matches!(own.step, Step::Draining(_)) {
                self.ingress.local_acks.abandon(sink);
            }
        }
        self.follow(now, sink);
    }

    /// Ends as well when the peer has stopped on every link that is up, or has had its time.
    fn follow(&mut self, now: Instant, sink: &mut impl PacketSink) {
        let Some(peer) = self.ending.peer.as_mut().filter(|peer| !peer.done) else { return };
        let mut up = self.links.iter().filter(|link| link.life.is_up());
        peer.done = peer.until <= now || up.all(|link| peer.links.contains(&link.id));
        if !peer.done {
            return;
        }
        match &mut self.ending.own {
            Some(own) if matches!(own.step, Step::Waiting(_)) => own.step = Step::Over,
            Some(_) => {}
            None => {
                let (reason, manner) = (CloseReason::Shutdown, Manner::Answer);
                self.ending.own = Some(Own { reason, manner, step: Step::Saying(0) });
            }
        }
        // What is missing will not come.
        for link in self.links.ids() {
            self.ingress.link_left(now, link, None, &mut self.session.drops, sink);
        }
        self.ingress.finish(now, &mut self.session.drops, sink);
    }
}
