//! The receive arena: fixed buffers that a batch of datagrams is received into and handled in.
//!
//! The kernel may coalesce equal datagrams of one sender into one buffer (`UDP_GRO`); they are
//! handed out one by one, each still where it was received.

use super::socket::Socket;
use crate::clock::Clock;
use quinn_udp::{RecvMeta, UdpSocketState};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::Path;
use ropewalk_proto::time::Instant;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use tokio::io::Interest;

/// Buffers received into with one call. With coalescing up to 64 datagrams each, so that this also
/// bounds one socket's turn to about a millisecond of work.
const BUFFERS: usize = 16;

/// Bytes of a buffer: the longest coalesced train, and a little that keeps the buffers from falling
/// on the same lines of the processor's cache.
const BUFFER_BYTES: usize = 65_536 + 192;

/// A pending error of a socket is taken with the call that reports it; after so many in a row we wait
/// for news.
const MAX_ERRORS: usize = 4;

/// How a datagram came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedDatagram {
    /// By which socket, to which of our addresses, from whom. IPv4 addresses are always given as
    /// such, also on a socket for both families.
    pub path: Path,
    /// The mark of its IP header.
    pub ecn: Ecn,
    /// When the kernel received it, where the socket tells (never later than the `now` of the call),
    /// else when it was read.
    pub at: Instant,
}

/// The buffers.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: Box<[u8]>,
    meta: [RecvMeta; BUFFERS],
}

impl Arena {
    pub(super) fn new() -> Self {
        let bytes = vec![0; BUFFERS * BUFFER_BYTES].into_boxed_slice();
        Self { bytes, meta: [RecvMeta::default(); BUFFERS] }
    }

    /// Receives one batch from `socket`. Returns whether there may be more.
    pub(super) fn receive(
        &mut self,
        clock: &Clock,
        socket: &mut Socket,
        handle: &mut impl FnMut(Instant, ReceivedDatagram, &mut [u8]),
    ) -> bool {
        let mut errors = 0;
        let received = loop {
            match self.fill(socket) {
                Ok(received) => break received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {
                    socket.counters.errors_in += 1;
                    errors += 1;
                    if errors == MAX_ERRORS {
                        wait_for_news(socket);
                        return false;
                    }
                }
            }
        };
        if received < BUFFERS {
            // Less than asked for: the queue was empty. What came since is reported as news.
            wait_for_news(socket);
        }
        let sample = clock.sample();
        let wildcard = socket.is_wildcard();
        for (buffer, meta) in self.bytes.chunks_mut(BUFFER_BYTES).zip(&self.meta).take(received) {
            let arrival = ReceivedDatagram {
                path: Path {
                    socket: socket.id,
                    local: meta.dst_ip.filter(|_| wildcard).map(|ip| ip.to_canonical()),
                    remote: canonical(meta.addr),
                },
                ecn: Ecn::from_tos(meta.ecn.map_or(0, |ecn| ecn as u8)),
                at: sample.arrival(meta.timestamp),
            };
            let len = meta.len.min(buffer.len());
            socket.counters.bytes_in += len as u64;
            // An empty datagram has no stride.
            for datagram in buffer[..len].chunks_mut(meta.stride.max(1)) {
                socket.counters.datagrams_in += 1;
                handle(sample.now, arrival, datagram);
            }
        }
        received == BUFFERS
    }

    /// One system call.
    fn fill(&mut self, socket: &Socket) -> io::Result<usize> {
        let Self { bytes, meta } = self;
        let mut chunks = bytes.chunks_mut(BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; BUFFERS] = std::array::from_fn(|_| {
            IoSliceMut::new(chunks.next().expect("the arena has BUFFERS chunks"))
        });
        let (io, state): (_, &UdpSocketState) = (&socket.io, &socket.state);
        io.try_io(Interest::READABLE, || state.recv(io.into(), &mut slices, meta))
    }
}

/// Tells the runtime that the socket was read to its end, which saves the call that would find this
/// out. A datagram that comes after the reading is a new edge for epoll, so it is not missed.
fn wait_for_news(socket: &Socket) {
    let _: io::Result<()> =
        socket.io.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
}

/// The address without what varies between datagrams of one peer: IPv4 as IPv4, no flow label, and a
/// scope only where the address means nothing without it.
fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        (_, ip) => SocketAddr::new(ip, address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn one_peer_has_one_address() {
        let table = [
            ("192.0.2.1:5", "192.0.2.1:5"),
            ("[::ffff:192.0.2.1]:5", "192.0.2.1:5"),
            ("[2001:db8::1]:5", "[2001:db8::1]:5"),
            ("[2001:db8::1%3]:5", "[2001:db8::1]:5"),
            ("[fe80::1%3]:5", "[fe80::1%3]:5"),
        ];
        for (received, expected) in table {
            let received = received.parse().expect("an address");
            assert_eq!(canonical(received).to_string(), expected);
        }
    }
}
