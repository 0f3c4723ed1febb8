//! A path: the local socket and remote address a link uses at present.

use std::net::{IpAddr, SocketAddr};

/// Which of the driver's sockets; the core only compares it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketId(pub u16);

/// Where datagrams of a link go to and come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// The driver's socket.
    pub socket: SocketId,
    /// Our address, where the socket has several (a proxy answers from the address it was asked on).
    pub local: Option<IpAddr>,
    /// The peer, or the NAT in front of it.
    pub remote: SocketAddr,
}

impl Path {
    /// Bytes of IP and UDP headers in front of a datagram: 28 over IPv4, 48 over IPv6.
    #[must_use]
    #[inline]
    pub fn header_len(&self) -> u16 {
        if self.is_ipv4() { 28 } else { 48 }
    }

    /// Whether the outer packets are IPv4 (an IPv4-mapped IPv6 address counts as IPv4).
    #[must_use]
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        match self.remote.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
        }
    }
}
