//! Datagrams with any source address, from a raw socket: what an attacker on the way can send.

use std::io;
use std::net::SocketAddrV4;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::LabError;
use crate::namespace::Namespace;

const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
/// `IPPROTO_RAW`: the IP header is ours, and nothing is received (raw(7)).
const RAW: i32 = 255;
const UDP: u8 = 17;

/// A raw socket in a namespace. Routes decide where a datagram goes, nothing checks where it says
/// it comes from.
#[derive(Debug)]
pub struct Injector {
    socket: Socket,
}

impl Injector {
    /// Opens one.
    ///
    /// # Errors
    /// When the user may not, or the namespace cannot be entered.
    pub fn open(namespace: &Namespace) -> Result<Self, LabError> {
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)));
        let what = format!("a raw socket in {}", namespace.name());
        Ok(Self { socket: namespace.run(raw)?.map_err(LabError::io(what))? })
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// As the system says: no route, too large, no room in a queue.
    pub fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
        let packet = packet(from, to, payload)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too long for UDP"))?;
        self.socket.send_to(&packet, &to.into()).map(|_| ())
    }
}

/// Length, identification and checksum of the IP header are the kernel's to fill in; the UDP checksum
/// is left out, as IPv4 allows (RFC 768).
fn packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER + payload.len()).ok()?;
    let mut packet = Vec::with_capacity(IP_HEADER + UDP_HEADER + payload.len());
    packet.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    Some(packet)
}
