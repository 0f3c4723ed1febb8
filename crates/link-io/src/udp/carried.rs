//! A socket that is none of the kernel's: something else carries its datagrams, where the network lets no UDP through.
//!
//! To the core it is a socket like the others: datagrams go to an address and come from one, in any order or not at
//! all. What its carrier cannot take now it drops, as a network does, so a lane of such a socket is never blocked.

use super::batch::{LANE_DATAGRAMS, Lane};
use super::{ReceivedDatagram, SocketCounters};
use crate::clock::Clock;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use std::fmt;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// Datagrams taken from a carrier in one turn: as many as one train of the kernel's sockets has.
const BATCH: usize = LANE_DATAGRAMS;

/// Carries datagrams to remote addresses and back. Nothing of it waits.
pub trait Carrier: fmt::Debug + Send {
    /// Takes a datagram for this address. Returns whether it was taken; if not, it is lost.
    fn send(&mut self, now: Instant, remote: SocketAddr, datagram: &[u8]) -> bool;

    /// The next datagram that came, and from where.
    fn try_recv(&mut self) -> Option<(SocketAddr, Vec<u8>)>;

    /// Ready when there is one.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// What keeps it from carrying, for people; `None`: nothing that is known.
    fn trouble(&self) -> Option<String>;
}

/// One such socket.
#[derive(Debug)]
pub(super) struct CarriedSocket {
    pub(super) id: SocketId,
    pub(super) counters: SocketCounters,
    carrier: Box<dyn Carrier>,
}

impl CarriedSocket {
    pub(super) fn new(id: SocketId, carrier: Box<dyn Carrier>) -> Self {
        Self { id, counters: SocketCounters::default(), carrier }
    }

    /// Sends what waits in `lane`. Returns the number of datagrams that left the lane: all of them.
    pub(super) fn send_lane(&mut self, now: Instant, lane: &mut Lane, path: Path) -> usize {
        let Self { counters, carrier, .. } = self;
        let mut done = 0;
        while let Some(train) = lane.next_train(LANE_DATAGRAMS) {
            for datagram in lane.contents(&train).chunks(train.segment.max(1)) {
                if carrier.send(now, path.remote, datagram) {
                    counters.datagrams_out += 1;
                    counters.bytes_out += datagram.len() as u64;
                } else {
                    counters.errors_out += 1;
                }
            }
            done += train.datagrams;
            lane.pop(train.datagrams);
        }
        done
    }

    /// Hands out what came, at most one batch. Returns whether there may be more.
    pub(super) fn receive(
        &mut self,
        clock: &Clock,
        handle: &mut impl FnMut(Instant, ReceivedDatagram, &mut [u8]),
    ) -> bool {
        for _ in 0..BATCH {
            let Some((remote, mut datagram)) = self.carrier.try_recv() else { return false };
            self.counters.datagrams_in += 1;
            self.counters.bytes_in += datagram.len() as u64;
            let now = clock.now();
            let path = Path { socket: self.id, local: None, remote };
            // A stream has no marks of single datagrams.
            let arrival = ReceivedDatagram { path, ecn: Ecn::NotEct, at: now };
            handle(now, arrival, &mut datagram);
        }
        true
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.carrier.poll_ready(cx)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.carrier.trouble()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::Sockets;
    use ropewalk_proto::sink::TransmitSink as _;
    use std::collections::VecDeque;

    /// Gives back what it is sent, but for what is longer than three bytes.
    #[derive(Debug, Default)]
    struct Echo(VecDeque<(SocketAddr, Vec<u8>)>);

    impl Carrier for Echo {
        fn send(&mut self, _now: Instant, remote: SocketAddr, datagram: &[u8]) -> bool {
            let fits = datagram.len() <= 3;
            if fits {
                self.0.push_back((remote, datagram.to_vec()));
            }
            fits
        }

        fn try_recv(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
            self.0.pop_front()
        }

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
            if self.0.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        }

        fn trouble(&self) -> Option<String> {
            Some("three bytes are its most".to_owned())
        }
    }

    fn put(sockets: &mut Sockets, path: Path, datagram: &[u8]) {
        sockets.out().reserve(path, Ecn::NotEct, datagram.len()).unwrap().copy_from_slice(datagram);
        sockets.out().commit(datagram.len());
    }

    #[test]
    fn its_datagrams_go_and_come_by_its_carrier_and_what_that_refuses_is_lost_and_counted() {
        let mut sockets = Sockets::new(Clock::start());
        let id = sockets.open_carried(Box::<Echo>::default()).unwrap();
        let remote = "192.0.2.1:51900".parse().unwrap();
        let path = Path { socket: id, local: None, remote };
        for datagram in [&b"one"[..], b"two", b"three", b"is"] {
            put(&mut sockets, path, datagram);
        }
        assert_eq!(sockets.flush(|path, error| panic!("{path:?}: {error:?}")), 4);
        let mut came = Vec::new();
        let more = sockets.recv_batch(|_, arrival, datagram| {
            assert_eq!((arrival.path, arrival.ecn), (path, Ecn::NotEct));
            came.push(datagram.to_vec());
        });
        assert!(!more);
        assert_eq!(came, [&b"one"[..], b"two", b"is"]);
        let counters = sockets.counters(id).unwrap();
        assert_eq!((counters.datagrams_out, counters.errors_out), (3, 1));
        assert_eq!((counters.datagrams_in, counters.bytes_in), (3, 8));
        assert_eq!(sockets.carrier_trouble(id).as_deref(), Some("three bytes are its most"));
        assert!(sockets.close(id) && !sockets.close(id));
        assert_eq!((sockets.counters(id), sockets.carrier_trouble(id)), (None, None));
    }

    #[test]
    fn a_turn_takes_no_more_than_a_batch_of_it() {
        let mut sockets = Sockets::new(Clock::start());
        let remote: SocketAddr = "192.0.2.1:51900".parse().unwrap();
        let waiting = (0..=BATCH).map(|_| (remote, vec![1])).collect();
        sockets.open_carried(Box::new(Echo(waiting))).unwrap();
        let mut came = 0;
        assert!(sockets.recv_batch(|_, _, _| came += 1));
        assert_eq!(came, BATCH);
        assert!(!sockets.recv_batch(|_, _, _| came += 1));
        assert_eq!(came, BATCH + 1);
    }
}
