//! One UDP socket: how it is opened, and how a train leaves it.
//!
//! A socket never fragments and does not follow the kernel's path MTU (`IP_PMTUDISC_PROBE`): the
//! core searches the MTU itself. Received datagrams carry their ECN mark and, on a socket bound to
//! one address, the kernel's arrival time. A socket bound to no address asks for the address each
//! datagram came to instead: quinn-udp's buffer for control messages (96 bytes) does not hold both
//! beside the ECN mark and the size of a coalesced train, and the mark, which comes last, would be
//! cut off.
//!
//! Segmentation offload is used until the kernel refuses it (`EIO`, or `EINVAL` before Linux 6.14
//! for a segment longer than the MTU). The train is then sent datagram by datagram, so nothing is
//! lost, and offload is tried again later: quinn-udp would leave it off for the socket's life.

use super::{OpenError, SendError, SendErrorKind};
use crate::offload::UdpOffload;
use crate::udp::batch::{Lane, Train};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{Transmit, UdpSocketState};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_settings::Switch;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force, socket_recv_buffer_size,
};
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as StdUdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Once;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Receive buffer in bytes: 40 ms at 800 Mbit/s, longer than the loop is ever away. The usual default
/// of 212 kB overflows with the first coalesced trains.
pub const RECV_BUFFER: usize = 4 << 20;

/// Send buffer in bytes: a batch's longest trains without waiting. What the path can carry is the
/// congestion window's business, so this need not be small.
pub const SEND_BUFFER: usize = 1 << 20;

/// First wait before offload that failed is tried again; doubled at each further failure.
const OFFLOAD_RETRY: Duration = Duration::from_secs(1);

/// Longest such wait.
const OFFLOAD_RETRY_MAX: Duration = Duration::from_secs(1024);

/// A socket of the client: one physical interface.
#[derive(Clone, Debug)]
pub struct ClientSocket {
    /// The interface that every datagram leaves and comes by (`SO_BINDTODEVICE`).
    pub interface: String,
    /// Our address on it; the port is the kernel's choice.
    pub source: IpAddr,
    /// Firewall mark for the rules that choose a routing table.
    pub mark: Option<u32>,
}

/// The socket of the proxy.
#[derive(Clone, Debug)]
pub struct ProxySocket {
    /// `None`: every address, IPv4 and IPv6 (IPv4 only where the host has no IPv6).
    pub address: Option<IpAddr>,
    /// UDP port; 0 leaves the choice to the kernel.
    pub port: u16,
}

/// What went through a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SocketCounters {
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Bytes of UDP payload received.
    pub bytes_in: u64,
    /// Errors of receiving.
    pub errors_in: u64,
    /// Datagrams that the kernel took.
    pub datagrams_out: u64,
    /// Bytes of UDP payload that the kernel took.
    pub bytes_out: u64,
    /// System calls that sent them.
    pub calls_out: u64,
    /// Datagrams that the kernel refused.
    pub errors_out: u64,
    /// How often a train was refused and sent datagram by datagram.
    pub trains_split: u64,
}

/// One open socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) id: SocketId,
    pub(super) io: UdpSocket,
    pub(super) state: UdpSocketState,
    pub(super) local: SocketAddr,
    pub(super) counters: SocketCounters,
    /// Writability is awaited.
    pub(super) blocked: bool,
    offload: Offload,
}

/// A socket that has its address, and waits for the thread that is to drive it. What comes meanwhile waits in it.
#[derive(Debug)]
pub struct Bound {
    raw: RawSocket,
    address: SocketAddr,
}

impl Bound {
    /// Opens the socket of the proxy.
    pub(super) fn proxy(options: &ProxySocket) -> Result<Self, OpenError> {
        let open = |address| Self::new(create(address)?, (address, options.port).into());
        match options.address {
            Some(address) => open(address),
            None => open(Ipv6Addr::UNSPECIFIED.into()).or_else(|error| {
                if error.lacks_ipv6() { open(Ipv4Addr::UNSPECIFIED.into()) } else { Err(error) }
            }),
        }
    }

    /// Opens another one at an address that several of ours share.
    pub(super) fn shared(address: SocketAddr) -> Result<Self, OpenError> {
        let raw = create(address.ip())?;
        raw.set_reuse_port(true).map_err(|source| OpenError::NoSteering { source })?;
        Self::new(raw, address)
    }

    /// The address and port that it is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Binds.
    pub(super) fn new(raw: RawSocket, address: SocketAddr) -> Result<Self, OpenError> {
        raw.bind(&address.into()).map_err(|source| match errno(&source) {
            Some(Errno::ADDRINUSE) => OpenError::InUse { address },
            Some(Errno::ADDRNOTAVAIL) => OpenError::NotOurs { address: address.ip() },
            Some(Errno::ACCESS) => {
                privilege("binding to a port below 1024", "CAP_NET_BIND_SERVICE")
            }
            _ => io_error("binding", source),
        })?;
        enlarge_buffers(&raw);
        let bound = raw.local_addr().map_err(|source| io_error("reading its address", source))?;
        let address = bound.as_socket().unwrap_or(address);
        Ok(Self { raw, address })
    }
}

/// For whoever drives it without [`Sockets`](super::Sockets). It does not block.
impl From<Bound> for StdUdpSocket {
    fn from(bound: Bound) -> Self {
        bound.raw.into()
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

/// Which offloads a socket uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffloadInUse {
    /// Trains are sent.
    pub gso: bool,
    /// Trains are received.
    pub gro: bool,
}

impl OffloadInUse {
    /// What both of two sockets use.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { gso: self.gso && other.gso, gro: self.gro && other.gro }
    }
}

/// Whether segmentation offload may be tried.
#[derive(Debug)]
struct Offload {
    wish: UdpOffload,
    /// It failed; then it is tried again.
    retry_at: Option<Instant>,
    wait: Duration,
}

impl Socket {
    /// Opens a socket of the client.
    pub(super) fn client(
        id: SocketId,
        options: &ClientSocket,
        offload: UdpOffload,
    ) -> Result<Self, OpenError> {
        let ClientSocket { interface, source, mark } = options;
        let raw = create(*source)?;
        raw.bind_device(Some(interface.as_bytes())).map_err(|source| match errno(&source) {
            Some(Errno::NODEV) => OpenError::NoInterface { interface: interface.clone() },
            Some(Errno::PERM) => privilege("binding a socket to an interface", "CAP_NET_RAW"),
            _ => io_error("binding to the interface", source),
        })?;
        if let Some(mark) = mark {
            raw.set_mark(*mark).map_err(|source| match errno(&source) {
                Some(Errno::PERM) => privilege("marking a socket", "CAP_NET_ADMIN"),
                _ => io_error("marking the socket", source),
            })?;
        }
        Self::new(id, Bound::new(raw, SocketAddr::new(*source, 0))?, offload)
    }

    /// Configures, and hands it to the runtime.
    pub(super) fn new(id: SocketId, bound: Bound, wish: UdpOffload) -> Result<Self, OpenError> {
        let Bound { raw, address } = bound;
        let state = configure(&raw, address.ip().is_unspecified(), wish)
            .map_err(|source| io_error("setting socket options", source))?;
        if state.may_fragment() {
            tracing::warn!(%address, "this kernel may fragment datagrams: the path MTU cannot be found");
        }
        let io = UdpSocket::from_std(raw.into())
            .map_err(|source| io_error("registering with the runtime", source))?;
        let local = io.local_addr().map_err(|source| io_error("reading its address", source))?;
        let offload = Offload { wish, retry_at: None, wait: OFFLOAD_RETRY };
        let counters = SocketCounters::default();
        Ok(Self { id, io, state, local, counters, blocked: false, offload })
    }

    /// Whether datagrams come to several addresses of ours.
    pub(super) fn is_wildcard(&self) -> bool {
        self.local.ip().is_unspecified()
    }

    /// Which offloads are in use.
    pub(super) fn offload_in_use(&self) -> OffloadInUse {
        OffloadInUse {
            gso: self.longest_train() > 1,
            gro: self.offload.wish.gro != Switch::Off && self.state.gro_segments() > 1,
        }
    }

    /// Datagrams in the longest train.
    fn longest_train(&self) -> usize {
        if self.offload.wish.gso == Switch::Off { 1 } else { self.state.max_gso_segments() }
    }

    /// Sends what waits in `lane` until it is empty or the socket takes no more, and reports what
    /// the kernel refused. Returns the number of datagrams that left the lane.
    pub(super) fn send_lane(
        &mut self,
        now: Instant,
        lane: &mut Lane,
        path: Path,
        on_error: &mut impl FnMut(Path, SendError),
    ) -> usize {
        self.retry_offload(now);
        let mut done = 0;
        while let Some(train) = lane.next_train(self.longest_train()) {
            let handled = self.send_train(now, path, lane.contents(&train), &train, on_error);
            done += handled;
            lane.pop(handled);
            if handled < train.datagrams {
                lane.blocked = true;
                break;
            }
        }
        done
    }

    /// Sends one train, whole or, where the kernel refuses that, datagram by datagram. Returns how
    /// many of its datagrams are done with, sent or refused; the others must wait.
    fn send_train(
        &mut self,
        now: Instant,
        path: Path,
        contents: &[u8],
        train: &Train,
        on_error: &mut impl FnMut(Path, SendError),
    ) -> usize {
        let all = train.datagrams;
        let Some(destination) = self.reachable(path.remote) else {
            self.refused(path, train.segment, all, Errno::AFNOSUPPORT, on_error);
            return all;
        };
        let transmit = Transmit {
            destination,
            ecn: train.ecn,
            contents,
            segment_size: (all > 1).then_some(train.segment),
            src_ip: path.local,
        };
        match self.send(&transmit) {
            Ok(()) => {
                self.count_out(contents.len(), all);
                if all > 1 {
                    self.offload.wait = OFFLOAD_RETRY;
                }
                all
            }
            Err(Errno::AGAIN) => 0,
            Err(errno) => {
                if self.offload.note_error(now, errno, all) {
                    return self.send_split(path, &transmit, train.segment, on_error);
                }
                self.refused(path, train.segment, all, errno, on_error);
                all
            }
        }
    }

    /// Sends a train's datagrams one by one. Returns how many are done with.
    fn send_split(
        &mut self,
        path: Path,
        train: &Transmit<'_>,
        segment: usize,
        on_error: &mut impl FnMut(Path, SendError),
    ) -> usize {
        self.counters.trains_split += 1;
        let mut done = 0;
        for contents in train.contents.chunks(segment) {
            match self.send(&Transmit { contents, segment_size: None, ..train.clone() }) {
                Ok(()) => self.count_out(contents.len(), 1),
                Err(Errno::AGAIN) => break,
                Err(errno) => self.refused(path, contents.len(), 1, errno, on_error),
            }
            done += 1;
        }
        done
    }

    /// One system call, none while the socket is known to be full (`AGAIN`).
    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), Errno> {
        let Self { io, state, blocked, .. } = self;
        let mut result = Err(io::ErrorKind::WouldBlock.into());
        if !*blocked {
            result = state.try_send((&*io).into(), transmit);
        }
        if would_block(&result) {
            // Again through the runtime, so that it learns that the socket is full and wakes us.
            result = io.try_io(Interest::WRITABLE, || state.try_send((&*io).into(), transmit));
            *blocked = would_block(&result);
        }
        result.map_err(|error| match error.kind() {
            // The runtime's own has no number.
            io::ErrorKind::WouldBlock => Errno::AGAIN,
            _ => errno(&error).unwrap_or(Errno::IO),
        })
    }

    /// The destination as this socket must be told, if it can reach it at all.
    fn reachable(&self, remote: SocketAddr) -> Option<SocketAddr> {
        match (self.local, remote) {
            (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_)) => {
                Some(remote)
            }
            (SocketAddr::V6(_), SocketAddr::V4(remote)) if self.is_wildcard() => {
                Some(SocketAddrV6::new(remote.ip().to_ipv6_mapped(), remote.port(), 0, 0).into())
            }
            (SocketAddr::V6(_), SocketAddr::V4(_)) | (SocketAddr::V4(_), SocketAddr::V6(_)) => None,
        }
    }

    fn count_out(&mut self, bytes: usize, datagrams: usize) {
        self.counters.calls_out += 1;
        self.counters.datagrams_out += datagrams as u64;
        self.counters.bytes_out += bytes as u64;
    }

    fn refused(
        &mut self,
        path: Path,
        longest: usize,
        datagrams: usize,
        errno: Errno,
        on_error: &mut impl FnMut(Path, SendError),
    ) {
        self.counters.errors_out += datagrams as u64;
        let kind = SendErrorKind::from_errno(errno);
        on_error(path, SendError { kind, datagrams, longest });
    }

    fn retry_offload(&mut self, now: Instant) {
        if self.offload.retry_at.is_some_and(|at| at <= now) {
            let raw = socket2::SockRef::from(&self.io);
            match configure(&raw, self.is_wildcard(), self.offload.wish) {
                Ok(state) => (self.state, self.offload.retry_at) = (state, None),
                Err(_) => self.offload.retry_at = Some(now + self.offload.wait),
            }
        }
    }
}

impl Offload {
    /// The kernel refused so many datagrams that were sent as one. Returns whether they are to be sent one by one.
    ///
    /// quinn-udp has switched offload (and the ECN mark on IPv4) off after `EINVAL` or `EIO`: plans to start again. A single
    /// datagram's error says nothing about offload and does not lengthen the wait.
    fn note_error(&mut self, now: Instant, errno: Errno, datagrams: usize) -> bool {
        static SAID: Once = Once::new();
        let is_train = datagrams > 1;
        let failed = matches!(errno, Errno::INVAL | Errno::IO);
        if failed && self.retry_at.is_none() {
            self.retry_at = Some(now + self.wait);
            if is_train {
                self.wait = (self.wait * 2).min(OFFLOAD_RETRY_MAX);
                SAID.call_once(|| {
                    tracing::warn!(
                        "the kernel refused a train of datagrams: they go one by one for a while, which is slower"
                    );
                });
            }
        }
        is_train && (failed || errno == Errno::MSGSIZE)
    }
}

/// A socket of the address's family; an IPv6 socket for a particular address is for IPv6 only.
pub(super) fn create(address: IpAddr) -> Result<RawSocket, OpenError> {
    let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let raw = RawSocket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))
        .map_err(|source| io_error("creating the socket", source))?;
    if address.is_ipv6() {
        raw.set_only_v6(!address.is_unspecified())
            .map_err(|source| io_error("choosing the address families", source))?;
    }
    Ok(raw)
}

/// The options of quinn-udp (see there), less those for which its control buffer has no room.
fn configure(raw: &RawSocket, wildcard: bool, wish: UdpOffload) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(raw.into())?;
    let is_ipv4 = raw.local_addr()?.is_ipv4();
    if wildcard {
        setsockopt(raw, sockopt::ReceiveTimestampns, &false)?;
    } else if is_ipv4 {
        setsockopt(raw, sockopt::Ipv4PacketInfo, &false)?;
    } else {
        setsockopt(raw, sockopt::Ipv6RecvPacketInfo, &false)?;
    }
    if wish.gro == Switch::Off && state.gro_segments() > 1 {
        setsockopt(raw, sockopt::UdpGroSegment, &false)?;
    }
    Ok(state)
}

/// Whether the kernel has the offloads that are wished for. What it lacks is said.
///
/// # Errors
/// [`OpenError::Offload`], or there is no UDP at all.
pub(super) fn check_offload(wish: UdpOffload) -> Result<(), OpenError> {
    // The address family makes no difference; a host may lack one of them.
    let raw =
        create(Ipv4Addr::UNSPECIFIED.into()).or_else(|_| create(Ipv6Addr::UNSPECIFIED.into()))?;
    let state = UdpSocketState::new((&raw).into())
        .map_err(|source| io_error("setting socket options", source))?;
    judge(wish, state.max_gso_segments() > 1, state.gro_segments() > 1)
}

fn judge(wish: UdpOffload, has_gso: bool, has_gro: bool) -> Result<(), OpenError> {
    let judged =
        [("udp_gso", "UDP_SEGMENT", wish.gso, has_gso), ("udp_gro", "UDP_GRO", wish.gro, has_gro)];
    for (key, option, wish, is_there) in judged {
        match wish {
            Switch::On if !is_there => return Err(OpenError::Offload { key, option }),
            Switch::Auto if !is_there => {
                tracing::warn!(
                    "this kernel has no {option}: datagrams pass one by one, which is slower"
                );
            }
            Switch::On | Switch::Auto | Switch::Off => {}
        }
    }
    Ok(())
}

/// Asks for large buffers: beyond the system's limit where we may, else up to it. Said once if that
/// is too little.
fn enlarge_buffers(raw: &RawSocket) {
    static SAID: Once = Once::new();
    if set_socket_send_buffer_size_force(raw, SEND_BUFFER).is_err() {
        // A smaller buffer makes us wait more often, no more.
        let _ = raw.set_send_buffer_size(SEND_BUFFER);
    }
    if set_socket_recv_buffer_size_force(raw, RECV_BUFFER).is_err() {
        let _ = raw.set_recv_buffer_size(RECV_BUFFER);
    }
    // The kernel grants and shows twice what is asked, for its own overhead.
    let granted = socket_recv_buffer_size(raw).unwrap_or(0) / 2;
    if granted < RECV_BUFFER {
        SAID.call_once(|| {
            tracing::warn!(
                granted,
                wanted = RECV_BUFFER,
                "small UDP receive buffer, bursts may be lost: set net.core.rmem_max or grant CAP_NET_ADMIN"
            );
        });
    }
}

fn would_block(result: &io::Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// The error number of an I/O error.
fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

fn privilege(what: &'static str, capability: &'static str) -> OpenError {
    OpenError::Privilege { what, capability }
}

pub(super) fn io_error(what: &'static str, source: io::Error) -> OpenError {
    OpenError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_train_is_sent_datagram_by_datagram_and_trains_are_tried_again_later() {
        let second = OFFLOAD_RETRY;
        let table = [
            // EIO: an interface that computes no checksums, or a tunnel beneath; EINVAL: kernels that mean too long.
            (Errno::IO, 10, true, Some(second), 2 * second),
            (Errno::INVAL, 10, true, Some(second), 2 * second),
            (Errno::MSGSIZE, 10, true, None, second),
            (Errno::NETUNREACH, 10, false, None, second),
            (Errno::NOBUFS, 10, false, None, second),
            (Errno::IO, 1, false, Some(second), second),
            (Errno::INVAL, 1, false, Some(second), second),
            (Errno::MSGSIZE, 1, false, None, second),
        ];
        let now = Instant::from_millis(7);
        for (errno, datagrams, is_split, retry_after, wait) in table {
            let wish = UdpOffload::default();
            let mut offload = Offload { wish, retry_at: None, wait: second };
            let split = offload.note_error(now, errno, datagrams);
            let retry_at = retry_after.map(|after| now + after);
            assert_eq!(
                (split, offload.retry_at, offload.wait),
                (is_split, retry_at, wait),
                "{errno} for {datagrams}"
            );
        }
    }

    #[test]
    fn trains_that_are_refused_again_and_again_are_tried_ever_more_seldom() {
        let mut offload =
            Offload { wish: UdpOffload::default(), retry_at: None, wait: OFFLOAD_RETRY };
        let mut now = Instant::ZERO;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            // What is refused before the retry changes nothing.
            for _ in 0..2 {
                assert!(offload.note_error(now, Errno::IO, 10));
                assert_eq!(offload.retry_at, Some(now + Duration::from_secs(seconds)));
            }
            now = offload.retry_at.take().expect("planned");
        }
    }

    #[test]
    fn an_offload_that_was_demanded_and_is_missing_is_an_error_that_names_its_key() {
        let wish = |gso, gro| UdpOffload { gso, gro };
        let (auto, on, off) = (Switch::Auto, Switch::On, Switch::Off);
        for (wish, has_gso, has_gro, expected) in [
            (wish(on, on), true, true, None),
            (wish(auto, off), false, false, None),
            (wish(off, auto), true, false, None),
            (wish(on, auto), false, true, Some("udp_gso is \"on\"")),
            (wish(auto, on), false, false, Some("udp_gro is \"on\"")),
        ] {
            let said = judge(wish, has_gso, has_gro).err().map(|error| error.to_string());
            assert_eq!(said.is_some(), expected.is_some(), "{wish:?}: {said:?}");
            let begins = said.unwrap_or_default();
            assert!(begins.starts_with(expected.unwrap_or_default()), "{begins}");
        }
    }
}
