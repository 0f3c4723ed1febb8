//! What carries packets between a client and a server in virtual time: a tunnel in the
//! [lab](crate::lab), or a bare link for comparison.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::time::{Instant, earliest};

use crate::lab::{Delivered, End, Lab, Towards};
use crate::netem::{Conditions, Netem};
use crate::tcp;

/// Carries packets between the client (at [`Towards::Client`]) and the server (at [`Towards::Proxy`]).
pub trait Network {
    /// The present.
    fn now(&self) -> Instant;
    /// Takes a packet from one end.
    fn send(&mut self, from: Towards, packet: &[u8]);
    /// What came out at one end since the last call.
    fn delivered(&mut self, at: Towards) -> Vec<Delivered>;
    /// The next moment at which something happens.
    fn next_event(&self) -> Option<Instant>;
    /// Runs until `end`, which is then the present.
    fn run_until(&mut self, end: Instant);
}

impl<C: End, P: End> Network for Lab<C, P> {
    fn now(&self) -> Instant {
        self.now
    }

    fn send(&mut self, from: Towards, packet: &[u8]) {
        Self::send(self, from, packet);
    }

    fn delivered(&mut self, at: Towards) -> Vec<Delivered> {
        Self::delivered(self, at)
    }

    fn next_event(&self) -> Option<Instant> {
        Self::next_event(self)
    }

    fn run_until(&mut self, end: Instant) {
        Self::run_until(self, end);
    }
}

/// One link without a tunnel.
pub struct Wire {
    /// The present.
    pub now: Instant,
    /// To the client.
    pub down: Netem<Vec<u8>>,
    /// From the client.
    pub up: Netem<Vec<u8>>,
    /// Connections from this number on are others'.
    pub others_from: u16,
    at_client: Vec<Delivered>,
    at_server: Vec<Delivered>,
}

impl Wire {
    /// A link with these conditions.
    #[must_use]
    pub fn new(down: Conditions, up: Conditions, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut netem = |conditions| {
            Netem::new(Instant::ZERO, conditions, SmallRng::seed_from_u64(rng.random()))
        };
        let (down, up) = (netem(down), netem(up));
        Self {
            now: Instant::ZERO,
            down,
            up,
            others_from: u16::MAX,
            at_client: Vec::new(),
            at_server: Vec::new(),
        }
    }

    fn collect(&mut self) {
        let now = self.now;
        for (netem, came) in
            [(&mut self.down, &mut self.at_client), (&mut self.up, &mut self.at_server)]
        {
            while let Some(delivery) = netem.poll_packet(now) {
                came.push(Delivered { at: delivery.due, packet: delivery.payload });
            }
        }
    }
}

impl Network for Wire {
    fn now(&self) -> Instant {
        self.now
    }

    fn send(&mut self, from: Towards, packet: &[u8]) {
        let netem = match from {
            Towards::Client => &mut self.up,
            Towards::Proxy => &mut self.down,
        };
        let ecn = packet.get(1).map_or(Ecn::NotEct, |tos| Ecn::from_tos(*tos));
        if tcp::read(packet).is_none_or(|(flow, _)| flow < self.others_from) {
            netem.handle_packet(self.now, packet.to_vec(), packet.len(), ecn);
        } else {
            netem.handle_foreign(self.now, packet.to_vec(), packet.len(), ecn);
        }
    }

    fn delivered(&mut self, at: Towards) -> Vec<Delivered> {
        match at {
            Towards::Client => std::mem::take(&mut self.at_client),
            Towards::Proxy => std::mem::take(&mut self.at_server),
        }
    }

    fn next_event(&self) -> Option<Instant> {
        earliest(self.down.poll_timeout(), self.up.poll_timeout())
    }

    fn run_until(&mut self, end: Instant) {
        self.now = self.now.max(end);
        self.collect();
    }
}
