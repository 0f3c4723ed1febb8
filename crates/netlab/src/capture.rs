//! What passes on a wire: every frame of an Ethernet interface, seen through a packet socket as
//! `tcpdump` would.
//!
//! A capture hands each frame to a closure with a state of its own, on a thread of its own, so that
//! a test keeps what it is about (a count, the addresses, the few datagrams it wants to replay) and
//! not gigabytes of frames.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{LinkAddr, bind, recvfrom, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::emulator::{ETHERNET_HEADER, MAX_FRAME};
use crate::error::LabError;
use crate::namespace::Namespace;

/// `ETH_P_ALL`: every protocol, in both directions (packet(7)).
const EVERY_PROTOCOL: u16 = 0x0003;
/// `PACKET_OUTGOING`: the frame leaves by the interface.
const OUTGOING: u8 = 4;
/// Room wished for what comes while the closure is busy: about a second at 100 Mbit/s.
const BUFFER: usize = 16 << 20;
/// How long the end of a capture may take: the thread looks for it this often.
const PATIENCE: Duration = Duration::from_millis(20);

/// One frame, as it passed the interface.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was read; at most some milliseconds after it passed.
    pub at: Instant,
    /// Whether it left by the interface (otherwise it came in).
    pub outgoing: bool,
    /// From the Ethernet header on.
    pub bytes: &'a [u8],
}

/// A UDP datagram in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp<'a> {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// What follows the UDP header.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The IP packet in it, if there is one: source, destination, protocol of what follows, and that.
    /// IPv6 extension headers count as what follows.
    #[must_use]
    pub fn ip(&self) -> Option<(IpAddr, IpAddr, u8, &'a [u8])> {
        let packet = self.bytes.get(ETHERNET_HEADER..)?;
        match (self.bytes.get(12..14)?, packet.first()? >> 4) {
            ([0x08, 0x00], 4) => {
                let header = usize::from(packet[0] & 0xf) * 4;
                let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
                let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
                let destination: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
                let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
                let content = packet.get(header..total.min(packet.len()))?;
                Some((source.into(), destination.into(), packet[9], content))
            }
            ([0x86, 0xdd], 6) => {
                let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
                let destination: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
                let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
                Some((source.into(), destination.into(), packet[6], packet.get(40..)?))
            }
            _ => None,
        }
    }

    /// The UDP datagram in it, if there is a whole one.
    #[must_use]
    pub fn udp(&self) -> Option<Udp<'a>> {
        const UDP: u8 = 17;
        let (source, destination, protocol, content) = self.ip()?;
        let header: &[u8; 8] = content.first_chunk().filter(|_| protocol == UDP)?;
        let [from_high, from_low, to_high, to_low, long_high, long_low, ..] = *header;
        let length = usize::from(u16::from_be_bytes([long_high, long_low]));
        Some(Udp {
            from: SocketAddr::new(source, u16::from_be_bytes([from_high, from_low])),
            to: SocketAddr::new(destination, u16::from_be_bytes([to_high, to_low])),
            payload: content.get(8..length)?,
        })
    }
}

/// A running capture with its state; dropped, it ends.
#[derive(Debug)]
pub struct Capture<T> {
    state: Arc<Mutex<T>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Capture<T> {
    /// Captures on `interface` of `namespace` from now on; `take` gets the state and each frame.
    ///
    /// # Errors
    /// When there is no such interface, or the user may not capture.
    pub fn start(
        namespace: &Namespace,
        interface: &str,
        state: T,
        mut take: impl FnMut(&mut T, &Frame<'_>) + Send + 'static,
    ) -> Result<Self, LabError> {
        let what = || LabError::io(format!("capturing on {interface} of {}", namespace.name()));
        let socket = namespace.run(|| open(interface))?.map_err(what())?;
        let state = Arc::new(Mutex::new(state));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopping) = (Arc::clone(&state), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name(format!("capture {interface}"))
            .spawn(move || {
                let mut buffer = vec![0; MAX_FRAME];
                // What came before the request to stop is seen: the loop ends at the first silence
                // after it, or where there is none, when the frames are younger than it.
                let mut ending: Option<Instant> = None;
                loop {
                    if stopping.load(Ordering::Relaxed) {
                        let since = *ending.get_or_insert_with(Instant::now);
                        if since.elapsed() > 5 * PATIENCE {
                            return;
                        }
                    }
                    match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
                        Ok((length, from)) => {
                            let outgoing = from.is_some_and(|from| from.pkttype() == OUTGOING);
                            let bytes = &buffer[..length];
                            let frame = Frame { at: Instant::now(), outgoing, bytes };
                            take(&mut lock(&shared), &frame);
                        }
                        // A timeout, or the interface went down: more may come.
                        Err(_) if ending.is_some() => return,
                        Err(_) => {}
                    }
                }
            })
            .map_err(LabError::io("starting a thread"))?;
        Ok(Self { state, stop, thread: Some(thread) })
    }

    /// Looks at the state, or changes it, while the capture goes on.
    pub fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        look(&mut lock(&self.state))
    }
}

impl<T> Drop for Capture<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the closure was reported already.
            let _ = thread.join();
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a test counts is as good after a panic elsewhere.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A packet socket on one interface of the calling thread's namespace.
fn open(interface: &str) -> io::Result<Socket> {
    let protocol = Protocol::from(i32::from(EVERY_PROTOCOL.to_be()));
    // Until it is bound it hears nothing: protocol 0 would be silent, but could not be bound without
    // `unsafe`. What comes of other interfaces in between is thrown away below.
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    if setsockopt(&socket, RcvBufForce, &BUFFER).is_err() {
        // Root of a user namespace gets what everybody may have.
        socket.set_recv_buffer_size(BUFFER)?;
    }
    let address = nix::ifaddrs::getifaddrs()?
        .filter(|found| found.interface_name == interface)
        .find_map(|found| found.address?.as_link_addr().copied())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such interface"))?;
    bind(socket.as_raw_fd(), &address)?;
    let mut early = [0; 1];
    socket.set_nonblocking(true)?;
    while recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut early).is_ok() {}
    socket.set_nonblocking(false)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Frame<'_> {
        Frame { at: Instant::now(), outgoing: false, bytes }
    }

    fn ethernet(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &kind, packet].concat()
    }

    #[test]
    fn a_datagram_is_found_behind_either_header_and_without_the_padding() {
        let mut v4 = vec![0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        v4.extend([0x12, 0x34, 0, 53, 0, 11, 0, 0, 7, 8, 9]);
        let mut padded = v4.clone();
        padded.resize(46, 0);
        let mut v6 = vec![0x60, 0, 0, 0, 0, 11, 17, 64];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend([0x12, 0x34, 0, 53, 0, 11, 0, 0, 7, 8, 9]);
        for (kind, packet, from) in [
            ([8, 0], &v4, "192.0.2.1:4660"),
            ([8, 0], &padded, "192.0.2.1:4660"),
            ([0x86, 0xdd], &v6, "[::1]:4660"),
        ] {
            let bytes = ethernet(kind, packet);
            let udp = frame(&bytes).udp().unwrap();
            assert_eq!((udp.from, udp.to.port()), (from.parse().unwrap(), 53));
            assert_eq!(udp.payload, [7, 8, 9]);
        }
    }

    #[test]
    fn what_is_no_whole_datagram_is_none() {
        let v4 = [0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        let mut tcp = v4;
        tcp[9] = 6;
        for bytes in [
            ethernet([8, 6], &v4),
            ethernet([8, 0], &v4),
            ethernet([8, 0], &[&tcp[..], &[0; 8]].concat()),
            ethernet([8, 0], &[0x4f]),
            ethernet([8, 0], &[]),
            vec![1, 2],
        ] {
            assert_eq!(frame(&bytes).udp(), None, "{bytes:?}");
        }
    }
}
