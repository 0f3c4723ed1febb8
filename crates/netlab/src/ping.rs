//! ICMP echo at a fixed interval, with the spread of the round trips: what a person beside a
//! download feels.
//!
//! It uses the kernel's ping sockets (no raw socket, no `ping` program): the kernel gives the
//! identifier and the checksum. The topology's namespaces allow them
//! (`net.ipv4.ping_group_range`).

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::LabError;
use crate::namespace::Namespace;
use crate::stats::Percentiles;

/// ICMP header of an echo: type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;
const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;
const REPLY_V4: u8 = 0;
const REPLY_V6: u8 = 129;

/// What to ping, and how.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Whom.
    pub target: IpAddr,
    /// Out of which interface, or as routed.
    pub interface: Option<String>,
    /// How many echoes; at most 65,536, the room of the sequence number.
    pub count: u32,
    /// From one echo to the next.
    pub interval: Duration,
    /// Payload of an echo in bytes.
    pub size: usize,
    /// How long to wait for the answers to the last ones.
    pub patience: Duration,
}

impl Ping {
    /// `count` echoes of 56 bytes, 100 ms apart; waits 2 s for the last answers.
    #[must_use]
    pub const fn new(target: IpAddr, count: u32) -> Self {
        Self {
            target,
            interface: None,
            count,
            interval: Duration::from_millis(100),
            size: 56,
            patience: Duration::from_secs(2),
        }
    }

    /// Pings out of `namespace` and waits for the end.
    ///
    /// # Errors
    /// When no ping socket can be made there. An echo that the kernel cannot send is a lost one.
    pub fn run(&self, namespace: &Namespace) -> Result<Pinged, LabError> {
        namespace.run(|| self.run_here())?
    }

    /// Pings out of the namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Ping::run`].
    pub fn run_here(&self) -> Result<Pinged, LabError> {
        self.echoes_here().map(|echoes| Pinged::of(&echoes))
    }

    /// Pings out of `namespace` and tells each echo by itself, for what happens in between.
    ///
    /// # Errors
    /// As [`Ping::run`].
    pub fn echoes(&self, namespace: &Namespace) -> Result<Vec<Echo>, LabError> {
        namespace.run(|| self.echoes_here())?
    }

    /// The same out of the namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Ping::run`].
    pub fn echoes_here(&self) -> Result<Vec<Echo>, LabError> {
        let failed = || LabError::io(format!("pinging {}", self.target));
        let mut socket = self.socket().map_err(failed())?;
        let target = SocketAddr::new(self.target, 0).into();
        let echo = if self.target.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
        let mut packet = vec![0; HEADER + self.size];
        packet[0] = echo;
        let count = self.count.min(u32::from(u16::MAX) + 1) as usize;
        let mut sent: Vec<Instant> = Vec::with_capacity(count);
        let mut times: Vec<Option<Duration>> = vec![None; count];
        let mut buffer = vec![0; HEADER + self.size + 1];
        let started = Instant::now();
        let mut answered = 0;
        while answered < count {
            let now = Instant::now();
            let due = if sent.len() < count {
                started + self.interval * u32::try_from(sent.len()).unwrap_or(u32::MAX)
            } else {
                sent.last().copied().unwrap_or(started) + self.patience
            };
            if due <= now {
                let Ok(number) = u16::try_from(sent.len()) else { break };
                if sent.len() == count {
                    break;
                }
                packet[6..HEADER].copy_from_slice(&number.to_be_bytes());
                sent.push(Instant::now());
                // Unreachable now may be reachable for the next.
                let _ = socket.send_to(&packet, &target);
                continue;
            }
            // Never zero, which would mean for ever.
            let wait = (due - now).max(Duration::from_micros(100));
            socket.set_read_timeout(Some(wait)).map_err(failed())?;
            // A timeout, or an ICMP error for an echo that counts as lost anyway.
            let Ok(length) = socket.read(&mut buffer) else { continue };
            let arrived = Instant::now();
            let Some(number) = reply_number(&buffer[..length]).map(usize::from) else { continue };
            let (Some(sent), Some(time)) = (sent.get(number), times.get_mut(number)) else {
                continue;
            };
            if time.replace(time.unwrap_or(arrived - *sent)).is_none() {
                answered += 1;
            }
        }
        Ok(sent.into_iter().zip(times).map(|(sent, rtt)| Echo { sent, rtt }).collect())
    }

    fn socket(&self) -> io::Result<Socket> {
        let (domain, protocol) = match self.target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        Ok(socket)
    }
}

/// One echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// When it was sent.
    pub sent: Instant,
    /// When its answer came after that; `None` where none came.
    pub rtt: Option<Duration>,
}

impl Echo {
    /// When the answer came, if one did.
    #[must_use]
    pub fn answered(&self) -> Option<Instant> {
        self.rtt.map(|rtt| self.sent + rtt)
    }
}

/// The outcome of a series of echoes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Pinged {
    /// Echoes sent.
    pub sent: usize,
    /// Echoes without an answer.
    pub lost: usize,
    /// Round-trip times of those answered.
    pub rtt: Percentiles,
}

impl Pinged {
    fn of(echoes: &[Echo]) -> Self {
        let times: Vec<Duration> = echoes.iter().filter_map(|echo| echo.rtt).collect();
        let lost = echoes.len() - times.len();
        Self { sent: echoes.len(), lost, rtt: Percentiles::of(times) }
    }
}

fn reply_number(packet: &[u8]) -> Option<u16> {
    let [REPLY_V4 | REPLY_V6, 0, _, _, _, _, high, low, ..] = *packet else { return None };
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_echo_reply_has_a_number() {
        for (packet, number) in [
            (&[0, 0, 0, 0, 0, 0, 1, 2][..], Some(0x102)),
            (&[129, 0, 0, 0, 0, 0, 0, 7, 9], Some(7)),
            (&[8, 0, 0, 0, 0, 0, 1, 2], None),
            (&[0, 1, 0, 0, 0, 0, 1, 2], None),
            (&[0, 0, 0], None),
            (&[], None),
        ] {
            assert_eq!(reply_number(packet), number, "{packet:?}");
        }
    }
}
