//! A UDP stream at a rate that one core can still make: packets leave in small bursts, and only counts are kept.
//!
//! [`ropewalk_netlab::traffic`] sends each packet at its time and looks into each that comes, for streams of some
//! thousand packets a second; here a generator must not be what is measured.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use ropewalk_netlab::namespace::Namespace;

/// From one burst to the next: 20 packets at 100,000 a second, a small part of any queue on the way.
const BURST: Duration = Duration::from_micros(200);
/// Bytes that the receiver's socket holds, so that it drops nothing while it waits for a core.
const BUFFER: usize = 16 << 20;
/// Silence that ends the counting: what comes later was held up for longer than anybody waits.
const QUIET: Duration = Duration::from_millis(200);
/// UDP and IPv4 headers.
pub const HEADERS: usize = 28;

/// What to send.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stream {
    /// IP packets, bytes each.
    pub size: usize,
    /// Packets a second.
    pub rate: f64,
    /// For how long.
    pub length: Duration,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// Packets that the sender's kernel took.
    pub sent: u64,
    /// Packets that the receiver got.
    pub received: u64,
}

/// A socket at each end, with the client's known at the far end (and to any NAT between).
#[derive(Debug)]
pub struct Ends {
    near: UdpSocket,
    far: UdpSocket,
}

/// Which way a stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the client.
    Up,
    /// To the client.
    Down,
}

impl Way {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Up, Self::Down];

    /// As in names of values.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl Ends {
    /// Opens both: the far one at `target` in `far`, the near one as the routes of `near` say.
    ///
    /// # Errors
    /// When they do not reach each other.
    pub fn open(near: &Namespace, far: &Namespace, target: Ipv4Addr) -> Result<Self> {
        let (far, at) = far.run(|| -> io::Result<_> {
            let socket = roomy(UdpSocket::bind((target, 0))?);
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            let at = socket.local_addr()?;
            Ok((socket, at))
        })??;
        let near = near.run(|| -> io::Result<_> {
            let socket = roomy(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?);
            socket.connect(at)?;
            // Twice: the first may find no way yet.
            (0..2).try_for_each(|_| socket.send(b"hello").map(drop))?;
            Ok(socket)
        })??;
        let from: SocketAddr =
            far.recv_from(&mut [0; 16]).context("no packet through the tunnel within 5 s")?.1;
        far.connect(from)?;
        Ok(Self { near, far })
    }

    /// Sends one way, and counts.
    ///
    /// # Errors
    /// When a socket fails.
    pub fn run(&self, way: Way, stream: Stream) -> Result<Counted> {
        let (from, to) = match way {
            Way::Up => (&self.near, &self.far),
            Way::Down => (&self.far, &self.near),
        };
        drain(to)?;
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(to, stream.size, &ended));
            let sent = send(from, stream);
            ended.store(true, Ordering::Release);
            let received =
                receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(Counted { sent, received })
        })
    }
}

/// With as much room for what comes as we may ask for.
fn roomy(socket: UdpSocket) -> UdpSocket {
    // Without the right to it the kernel's default stands, for all contenders alike.
    let _ = setsockopt(&socket, RcvBufForce, &BUFFER);
    socket
}

fn send(socket: &UdpSocket, stream: Stream) -> u64 {
    let payload = vec![0x5a; stream.size.saturating_sub(HEADERS)];
    let started = Instant::now();
    let (mut tried, mut sent) = (0_u64, 0);
    loop {
        let elapsed = started.elapsed();
        if elapsed >= stream.length {
            return sent;
        }
        #[expect(clippy::cast_sign_loss, reason = "neither rate nor time is negative")]
        let due = (stream.rate * elapsed.as_secs_f64()) as u64;
        // What a blocked socket could not send in its time is not made up for in one burst.
        tried = tried.max(due.saturating_sub(1024));
        while tried < due {
            tried += 1;
            sent += u64::from(socket.send(&payload).is_ok());
        }
        thread::sleep(BURST.saturating_sub(started.elapsed().saturating_sub(elapsed)));
    }
}

fn receive(socket: &UdpSocket, size: usize, ended: &AtomicBool) -> io::Result<u64> {
    socket.set_read_timeout(Some(QUIET))?;
    let mut buffer = [0; 2048];
    let mut received = 0;
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => received += u64::from(len + HEADERS == size),
            Err(error) if is_timeout(&error) => {
                if ended.load(Ordering::Acquire) {
                    return Ok(received);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// What an earlier stream left.
fn drain(socket: &UdpSocket) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(1)))?;
    while socket.recv(&mut [0; 2048]).is_ok() {}
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_over_loopback_comes_and_is_counted_by_size() {
        let bind = || roomy(UdpSocket::bind("127.0.0.1:0").unwrap());
        let ends = Ends { near: bind(), far: bind() };
        ends.near.connect(ends.far.local_addr().unwrap()).unwrap();
        ends.far.connect(ends.near.local_addr().unwrap()).unwrap();
        let stream = Stream { size: 160, rate: 5_000.0, length: Duration::from_millis(200) };
        for way in Way::ALL {
            let counted = ends.run(way, stream).unwrap();
            // A busy machine may make fewer, never more.
            assert!((1..=1000).contains(&counted.sent), "{counted:?}");
            assert_eq!(counted.received, counted.sent, "{way:?}");
        }
    }
}
