//! The links between clients and proxy: what passes, when it arrives, and from which address.

use std::net::SocketAddr;

use rand::Rng;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Duration;

use super::World;

/// Where the proxy listens.
pub(crate) const LISTEN: ([u8; 4], u16) = ([203, 0, 113, 1], 4242);
/// Nobody listens here.
pub(crate) const NOWHERE: ([u8; 4], u16) = ([203, 0, 113, 99], 4242);
/// Nor here.
pub(crate) const NOWHERE_V6: ([u16; 8], u16) = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x99], 4242);

/// One link of one client.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) delay: Duration,
    /// Of a thousand datagrams, in each direction.
    pub(crate) loss: u32,
    pub(crate) up: bool,
    /// Whether datagrams of the client pass, if any do.
    pub(crate) upstream: bool,
    /// Whether datagrams of the proxy pass, if any do.
    pub(crate) downstream: bool,
    /// The port of the NAT in front of the client.
    pub(crate) nat_port: u16,
    /// Datagrams upstream that are lost before any passes.
    pub(crate) lose_first: u32,
}

impl Wire {
    pub(crate) const fn new(delay: Duration) -> Self {
        Self {
            delay,
            loss: 0,
            up: true,
            upstream: true,
            downstream: true,
            nat_port: 5000,
            lose_first: 0,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Proxy,
    Client(usize),
}

impl World {
    /// Puts a datagram on the way as if a link had carried it.
    pub(crate) fn inject(&mut self, to: To, path: Path, datagram: Vec<u8>) {
        self.sequence += 1;
        self.flights.insert((self.now, self.sequence), (to, path, datagram));
    }

    pub(super) fn carry_up(&mut self, client: usize, path: Path, datagram: Vec<u8>) {
        let link = usize::from(path.socket.0);
        let seen = self.seen_as(client, link);
        if let Some(record) = &mut self.record {
            record.push((To::Proxy, seen, datagram.clone()));
        }
        let wire = &mut self.clients[client].wires[link];
        if wire.lose_first > 0 {
            wire.lose_first -= 1;
            return;
        }
        let wire = *wire;
        if wire.upstream && path.remote == LISTEN.into() && self.passes(wire) {
            self.fly(wire.delay, To::Proxy, seen, datagram);
        }
    }

    pub(super) fn carry_down(&mut self, path: Path, datagram: Vec<u8>) {
        let SocketAddr::V4(remote) = path.remote else { panic!("{path:?}") };
        let [_, high, low, link] = remote.ip().octets();
        let (client, link) = (usize::from(u16::from_be_bytes([high, low])), usize::from(link));
        let to = Path {
            socket: SocketId(u16::try_from(link).unwrap()),
            local: None,
            remote: LISTEN.into(),
        };
        if let Some(record) = &mut self.record {
            record.push((To::Client(client), to, datagram.clone()));
        }
        let Some(wire) = self.clients.get(client).and_then(|end| end.wires.get(link)) else {
            return;
        };
        let wire = *wire;
        if wire.downstream && remote.port() == wire.nat_port && self.passes(wire) {
            self.fly(wire.delay, To::Client(client), to, datagram);
        }
    }

    fn passes(&mut self, wire: Wire) -> bool {
        wire.up && self.rng.random_range(0..1000) >= wire.loss
    }

    fn fly(&mut self, delay: Duration, to: To, path: Path, datagram: Vec<u8>) {
        self.sequence += 1;
        self.flights.insert((self.now + delay, self.sequence), (to, path, datagram));
    }

    /// How the proxy sees a link of a client.
    pub(crate) fn seen_as(&self, client: usize, link: usize) -> Path {
        let [high, low] = u16::try_from(client).unwrap().to_be_bytes();
        let port = self.clients[client].wires.get(link).map_or(1, |wire| wire.nat_port);
        let ip = [100, high, low, u8::try_from(link).unwrap()];
        Path { socket: SocketId(0), local: None, remote: (ip, port).into() }
    }
}
