//! A UDP stream at a constant rate, counted by the application that receives it ([`crate::tally`]).
//!
//! The stream may start from either side. Behind a NAT the receiver says hello first
//! ([`UdpReceiver::hello_to`]) and the sender answers there ([`UdpSender::to`] = `None`).
//!
//! Packet: magic (4 bytes), kind (4: data, end, hello), sequence number (8), send time (8, nanoseconds
//! of CLOCK_MONOTONIC, which all namespaces of a machine share), padding; big endian. An end packet
//! carries the number of data packets sent in place of a sequence number.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::tally::{Tally, UdpReceived};

/// Tells our packets from anything else that arrives.
const MAGIC: u32 = 0x7277_7564;
/// Magic, kind, sequence number, send time.
const HEADER: usize = 24;
/// The end is said this often, [`END_SPACING`] apart, since any packet may be lost.
const ENDS: u32 = 20;
const END_SPACING: Duration = Duration::from_millis(20);
/// A hello is repeated until the stream comes.
const HELLO_SPACING: Duration = Duration::from_millis(100);
/// The largest UDP payload over IPv4.
const MAX_SIZE: usize = 65_507;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Data = 0,
    End = 1,
    Hello = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packet {
    kind: Kind,
    number: u64,
    sent_ns: u64,
}

impl Packet {
    fn emit(self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_be_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..HEADER].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (sent, _) = rest.split_first_chunk()?;
        if u32::from_be_bytes(*magic) != MAGIC {
            return None;
        }
        let kind = match u32::from_be_bytes(*kind) {
            0 => Kind::Data,
            1 => Kind::End,
            2 => Kind::Hello,
            _ => return None,
        };
        Some(Self { kind, number: u64::from_be_bytes(*number), sent_ns: u64::from_be_bytes(*sent) })
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct UdpSender {
    /// Where to; `None` answers to where a hello comes from.
    pub to: Option<SocketAddr>,
    /// Goodput to send, in bits per second of UDP payload.
    pub bits_per_second: u64,
    /// UDP payload of every packet, in bytes: 24 to 65,507.
    pub size: usize,
    /// For how long.
    pub duration: Duration,
}

/// What a sender did.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct UdpSent {
    /// Data packets sent.
    pub packets: u64,
    /// Data packets the kernel refused to take (as on an interface that is down).
    pub refused: u64,
    /// How late the worst packet was against the constant rate, in milliseconds. High values say
    /// that the machine was too busy for the measurement.
    pub lateness_ms: f64,
}

impl UdpSender {
    /// Sends through `socket` until the duration is over.
    ///
    /// # Errors
    /// When the size or rate cannot be, when no hello comes in time, or the socket fails.
    pub fn run(&self, socket: &UdpSocket) -> Result<UdpSent, LabError> {
        if !(HEADER..=MAX_SIZE).contains(&self.size) || self.bits_per_second == 0 {
            return Err(LabError::Unsupported(format!(
                "a UDP stream of {} bit/s in packets of {} bytes",
                self.bits_per_second, self.size
            )));
        }
        let to = match self.to {
            Some(to) => to,
            None => wait_for_hello(socket)?,
        };
        let mut buffer = vec![0; self.size];
        let bits = self.size as u64 * 8;
        let started = now_ns();
        let end = started + nanos(self.duration);
        let (mut sent, mut refused, mut lateness) = (0, 0, 0);
        for number in 0.. {
            let due = started + scale(number, bits * 1_000_000_000, self.bits_per_second);
            if due >= end {
                break;
            }
            let now = now_ns();
            if due > now {
                thread::sleep(Duration::from_nanos(due - now));
            }
            let now = now_ns();
            lateness = lateness.max(now.saturating_sub(due));
            Packet { kind: Kind::Data, number, sent_ns: now }.emit(&mut buffer);
            match socket.send_to(&buffer, to) {
                Ok(_) => sent += 1,
                // The link under test may be cut; the stream goes on.
                Err(_) => refused += 1,
            }
        }
        for _ in 0..ENDS {
            thread::sleep(END_SPACING);
            let end = Packet { kind: Kind::End, number: sent + refused, sent_ns: now_ns() };
            end.emit(&mut buffer);
            // Repeated, so that one that fails is no harm.
            let _ = socket.send_to(&buffer[..HEADER], to);
        }
        Ok(UdpSent { packets: sent, refused, lateness_ms: ns_to_ms(lateness) })
    }
}

fn wait_for_hello(socket: &UdpSocket) -> Result<SocketAddr, LabError> {
    const WITHIN: Duration = Duration::from_secs(30);
    let failed = || LabError::io("waiting for a hello");
    let started = now_ns();
    let mut buffer = [0; HEADER];
    socket.set_read_timeout(Some(HELLO_SPACING)).map_err(failed())?;
    while now_ns() - started < nanos(WITHIN) {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                if Packet::parse(&buffer[..length]).is_some_and(|p| p.kind == Kind::Hello) {
                    return Ok(from);
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(failed()(error)),
        }
    }
    Err(LabError::TooLate {
        what: "a hello of the receiver".into(),
        seconds: WITHIN.as_secs_f64(),
        detail: String::new(),
    })
}

/// How a stream is received.
#[derive(Clone, Copy, Debug)]
pub struct UdpReceiver {
    /// Where to say hello until the stream comes, for a sender that waits for that.
    pub hello_to: Option<SocketAddr>,
    /// The stream is over when nothing has come for this long, or its end was said.
    pub quiet: Duration,
    /// The longest time in all.
    pub limit: Duration,
}

impl UdpReceiver {
    /// Receives through `socket` until the stream is over.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn run(&self, socket: &UdpSocket) -> Result<UdpReceived, LabError> {
        let failed = || LabError::io("receiving a UDP stream");
        let mut tally = Tally::default();
        let mut buffer = vec![0; MAX_SIZE];
        let mut hello = [0; HEADER];
        Packet { kind: Kind::Hello, number: 0, sent_ns: 0 }.emit(&mut hello);
        socket.set_read_timeout(Some(HELLO_SPACING)).map_err(failed())?;
        let started = now_ns();
        while now_ns() - started < nanos(self.limit) {
            let waiting = tally.last_ns().is_none();
            if let (true, Some(to)) = (waiting, self.hello_to) {
                // Repeated until the stream comes; the tunnel may not be up yet.
                let _ = socket.send_to(&hello, to);
            }
            match socket.recv_from(&mut buffer) {
                Ok((length, _)) => {
                    if handle(&mut tally, now_ns(), &buffer[..length]) == Some(Kind::End) {
                        break;
                    }
                }
                // A refusal (ICMP) of a hello is no end either.
                Err(error) if is_timeout(&error) || waiting => {}
                Err(error) => return Err(failed()(error)),
            }
            let quiet = tally.last_ns().is_some_and(|last| now_ns() - last > nanos(self.quiet));
            if quiet {
                break;
            }
        }
        Ok(tally.finish())
    }
}

/// Counts a packet of the stream; `None` if it is none.
fn handle(tally: &mut Tally, now_ns: u64, bytes: &[u8]) -> Option<Kind> {
    let packet = Packet::parse(bytes)?;
    match packet.kind {
        Kind::Data if packet.number < Tally::MAX_NUMBER => {
            tally.packet(now_ns, packet.number, packet.sent_ns, bytes.len() as u64);
        }
        Kind::End => tally.end(packet.number),
        Kind::Data | Kind::Hello => return None,
    }
    Some(packet.kind)
}

/// Nanoseconds of CLOCK_MONOTONIC, the same clock in every process and namespace.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a delay in a test is far below 2^52 ns")]
fn ns_to_ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// `value * times / by` without overflow in between.
fn scale(value: u64, times: u64, by: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(times) / u128::from(by)).unwrap_or(u64::MAX)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_packet_is_ignored() {
        let mut tally = Tally::default();
        for bytes in [&[][..], &[0; 10], &[0; 100], &MAGIC.to_be_bytes()] {
            assert_eq!(handle(&mut tally, 0, bytes), None);
        }
        let mut bytes = [0; HEADER];
        Packet { kind: Kind::Data, number: u64::MAX, sent_ns: 0 }.emit(&mut bytes);
        assert_eq!(handle(&mut tally, 0, &bytes), None);
        assert_eq!(tally.finish(), UdpReceived::default());
    }

    #[test]
    fn a_stream_over_loopback_arrives_whole() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSender {
            to: None,
            bits_per_second: 800_000,
            size: 1_000,
            duration: Duration::from_millis(500),
        };
        let receiver = UdpReceiver {
            hello_to: Some(far.local_addr().unwrap()),
            quiet: Duration::from_secs(10),
            limit: Duration::from_secs(30),
        };
        let (received, sent) = thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run(&far).unwrap());
            (receiver.run(&near).unwrap(), sending.join().unwrap())
        });
        assert_eq!(sent, UdpSent { packets: 50, refused: 0, lateness_ms: sent.lateness_ms });
        assert_eq!((received.sent, received.received, received.duplicates), (50, 50, 0));
    }
}
