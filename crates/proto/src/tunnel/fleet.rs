//! What the two ends say of a fleet, over the best link, until the other has confirmed it: the proxy which proxies there are, the client
//! that it moves to another one.

use std::sync::Arc;

use super::control::{CONTROL_ROOM, frames};
use super::session::Made;
use super::{Side, Tunnel};
use crate::error::DropReason;
use crate::event::Event;
use crate::fleet::{FleetList, Gathering, Progress, Telling};
use crate::link::carried::Carried;
use crate::link::sent::Settled;
use crate::sink::TransmitSink;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::{FleetFrame, Frame, emit};

/// An honest client says that it moves once for each move, and again what was lost.
const MOVING_PAUSE: Duration = Duration::from_secs(10);

/// What is said of the fleet.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// On its way to the client.
    pub(super) telling: Telling,
    /// On its way from the proxy.
    gathering: Gathering,
    /// That the client moves, on its way to the proxy.
    moving: Option<Progress>,
    /// When the proxy last heard that.
    heard_moving: Option<Instant>,
}

impl Fleet {
    /// The fate of a datagram is known.
    pub(super) fn on_fate(&mut self, link: LinkId, settled: &Settled) {
        self.telling.on_fate(link, settled.number, settled.arrived());
        if let Some(moving) = &mut self.moving {
            moving.on_fate(link, settled.number, settled.arrived());
        }
    }
}

impl Tunnel {
    /// The client is to know these proxies (proxy only).
    pub fn set_fleet(&mut self, list: Arc<FleetList>) {
        debug_assert_eq!(self.side, Side::Proxy, "a client tells nobody of proxies");
        self.fleet.telling.set(list, CONTROL_ROOM);
    }

    /// The proxy is to know that this client moves to another one, and keeps the session for the flows that began in it (client only).
    pub fn tell_moving(&mut self) {
        debug_assert_eq!(self.side, Side::Client, "a proxy does not move");
        self.fleet.moving = Some(Progress::Due);
    }

    /// Whether the proxy has confirmed that, or it was not said (client only).
    pub(crate) fn has_told_moving(&self) -> bool {
        self.fleet.moving.is_none_or(|moving| moving == Progress::Confirmed)
    }

    /// Whether the client has just said that it moves, so that not everybody need have heard it (proxy only).
    pub(crate) fn begins_to_move(&self, now: Instant) -> bool {
        self.fleet.heard_moving.is_some_and(|heard| now < heard + MOVING_PAUSE)
    }

    /// Sends what is due. `false`: the batch is full.
    pub(super) fn send_fleet(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        self.send_list(now, out) && self.send_moving(now, out)
    }

    fn send_moving(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        let Some(moving) = &mut self.fleet.moving else { return true };
        moving.forget(|id| self.links.position(id).is_ok());
        if *moving != Progress::Due {
            return true;
        }
        let Some(best) = self.links.best(None) else { return true };
        let link = &mut self.links[best];
        let datagram = frames(link.path(), self.egress.next_global());
        let (id, number) = (link.id, link.sender.next_number());
        let made = self.session.send(now, link, &datagram, out, |writer, _| {
            emit(writer, &Frame::Moving).map(|()| Carried::default())
        });
        if made == Made::Sent {
            *moving = Progress::UnderWay(id, number);
        }
        made != Made::Full
    }

    fn send_list(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        while self.fleet.telling.is_due() {
            let Some(best) = self.links.best(None) else { return true };
            let links = &self.links;
            let next = self.fleet.telling.next(|id| links.position(id).is_ok());
            let Some(part) = next else { return true };
            let mut buffer = [0; CONTROL_ROOM];
            let Some(frame) = self.fleet.telling.frame(part, &mut buffer) else { return true };
            let datagram = frames(self.links[best].path(), self.egress.next_global());
            let link = &mut self.links[best];
            let (id, number) = (link.id, link.sender.next_number());
            let made = self.session.send(now, link, &datagram, out, |writer, _| {
                emit(writer, &Frame::Fleet(frame)).map(|()| Carried::default())
            });
            match made {
                Made::Sent => self.fleet.telling.on_told(part, id, number),
                Made::Full => return false,
                Made::Refused => return true,
            }
        }
        true
    }

    /// The client moves. Its owner is told once in a while, however often that is said.
    pub(super) fn on_moving(&mut self, now: Instant) {
        if self.begins_to_move(now) {
            return;
        }
        self.fleet.heard_moving = Some(now);
        self.outbox.tell(Event::Moving);
    }

    /// The proxy told of the fleet.
    pub(super) fn on_fleet(&mut self, frame: &FleetFrame<'_>) {
        match self.fleet.gathering.take(frame) {
            Ok(Some(list)) => self.outbox.tell(Event::Fleet(list)),
            Ok(None) => {}
            Err(_) => self.session.drops.count(DropReason::FrameMalformed),
        }
    }
}
