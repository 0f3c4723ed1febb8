//! Outer datagrams: the sockets of a daemon, read and written in batches.
//!
//! Nothing that a network does to a socket is fatal: what the kernel refuses is counted, and reported
//! to the role as (path, error), so that it can mark a link down; nothing is logged per datagram.

mod batch;
mod carried;
mod prepared;
mod receive;
mod socket;
#[cfg(target_os = "linux")]
mod steering;

pub use batch::{LANE_BYTES, LANE_DATAGRAMS, LANES, OutBatch};
pub use carried::Carrier;
pub use prepared::{Prepare, source_towards};
pub use receive::ReceivedDatagram;
pub use socket::{
    Bound, ClientSocket, OffloadInUse, ProxySocket, RECV_BUFFER, SEND_BUFFER, SocketCounters,
};
#[cfg(target_os = "linux")]
pub use steering::open_group;

use crate::clock::Clock;
use crate::offload::UdpOffload;
use carried::CarriedSocket;
use receive::Arena;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use rustix::io::Errno;
use socket::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

/// Sockets at a time. A client has one or two for each interface.
const MAX_SOCKETS: usize = 64;

/// The sockets, what waits to be sent on them, and the buffers they are read into.
#[derive(Debug)]
pub struct Sockets {
    clock: Clock,
    sockets: Vec<Socket>,
    /// Those whose datagrams something else than the kernel carries.
    carried: Vec<CarriedSocket>,
    next_id: u16,
    offload: UdpOffload,
    out: OutBatch,
    arena: Arena,
}

impl Sockets {
    /// No socket yet; each will have the offloads that work.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let (offload, out, arena) = (UdpOffload::default(), OutBatch::new(), Arena::new());
        let (sockets, carried) = (Vec::new(), Vec::new());
        Self { clock, sockets, carried, next_id: 0, offload, out, arena }
    }

    /// No socket yet; each will have these offloads. What the kernel lacks of them is said here, once.
    ///
    /// # Errors
    /// [`OpenError::Offload`], where the kernel lacks one that must be on.
    pub fn with_offload(clock: Clock, offload: UdpOffload) -> Result<Self, OpenError> {
        socket::check_offload(offload)?;
        Ok(Self { offload, ..Self::new(clock) })
    }

    /// No socket yet; each will have the same offloads as here: for another thread.
    #[must_use]
    pub fn alike(&self) -> Self {
        Self { offload: self.offload, ..Self::new(self.clock) }
    }

    /// Opens a socket on one physical interface. Must be called inside the runtime.
    ///
    /// # Errors
    /// [`OpenError`]; no other socket is affected.
    pub fn open_client(&mut self, options: &ClientSocket) -> Result<SocketId, OpenError> {
        let offload = self.offload;
        self.open(|id| Socket::client(id, options, offload))
    }

    /// Opens the socket that clients send to. Must be called inside the runtime.
    ///
    /// # Errors
    /// [`OpenError`]; no other socket is affected.
    pub fn open_proxy(&mut self, options: &ProxySocket) -> Result<SocketId, OpenError> {
        let offload = self.offload;
        self.open(|id| Socket::new(id, Bound::proxy(options)?, offload))
    }

    /// Takes a socket that was opened before. Must be called inside the runtime.
    ///
    /// # Errors
    /// [`OpenError`]; no other socket is affected.
    pub fn adopt(&mut self, bound: Bound) -> Result<SocketId, OpenError> {
        let offload = self.offload;
        self.open(|id| Socket::new(id, bound, offload))
    }

    /// Takes a socket whose datagrams `carrier` carries.
    ///
    /// # Errors
    /// [`OpenError::TooMany`].
    pub fn open_carried(&mut self, carrier: Box<dyn Carrier>) -> Result<SocketId, OpenError> {
        let id = self.fresh_id()?;
        self.carried.push(CarriedSocket::new(id, carrier));
        self.next_id = id.0.wrapping_add(1);
        Ok(id)
    }

    fn open(
        &mut self,
        open: impl FnOnce(SocketId) -> Result<Socket, OpenError>,
    ) -> Result<SocketId, OpenError> {
        let id = self.fresh_id()?;
        self.sockets.push(open(id)?);
        self.next_id = id.0.wrapping_add(1);
        Ok(id)
    }

    /// A fresh number: a path that still names a closed socket must not name another one.
    fn fresh_id(&self) -> Result<SocketId, OpenError> {
        if self.sockets.len() + self.carried.len() >= MAX_SOCKETS {
            return Err(OpenError::TooMany { limit: MAX_SOCKETS });
        }
        let mut id = SocketId(self.next_id);
        while self.get(id).is_some() || self.get_carried(id).is_some() {
            id = SocketId(id.0.wrapping_add(1));
        }
        Ok(id)
    }

    /// Closes a socket and forgets what waits for it. Returns whether it was open.
    pub fn close(&mut self, id: SocketId) -> bool {
        self.out.discard(id);
        let before = self.sockets.len() + self.carried.len();
        self.sockets.retain(|socket| socket.id != id);
        self.carried.retain(|socket| socket.id != id);
        self.sockets.len() + self.carried.len() < before
    }

    /// The address and port a socket is bound to; the address is unspecified on one that is bound to
    /// all of them. One whose datagrams something else carries has none.
    #[must_use]
    pub fn local_addr(&self, id: SocketId) -> Option<SocketAddr> {
        self.get(id).map(|socket| socket.local)
    }

    /// What went through a socket.
    #[must_use]
    pub fn counters(&self, id: SocketId) -> Option<SocketCounters> {
        let carried = || self.get_carried(id).map(|socket| socket.counters);
        self.get(id).map(|socket| socket.counters).or_else(carried)
    }

    /// What keeps the carrier of a socket from carrying, for people; the kernel's sockets have none.
    #[must_use]
    pub fn carrier_trouble(&self, id: SocketId) -> Option<String> {
        self.get_carried(id)?.trouble()
    }

    /// Which offloads every open socket uses at present.
    #[must_use]
    pub fn offload(&self) -> OffloadInUse {
        let in_use: Vec<_> = self.sockets.iter().map(Socket::offload_in_use).collect();
        OffloadInUse {
            gso: in_use.iter().all(|socket| socket.gso),
            gro: in_use.iter().all(|socket| socket.gro),
        }
    }

    /// Receives at most one batch from each socket and calls `handle` with the present time, how the
    /// datagram came, and the datagram (borrowed for the call, to be changed in place at will).
    /// Returns whether some socket may hold more.
    pub fn recv_batch(
        &mut self,
        mut handle: impl FnMut(Instant, ReceivedDatagram, &mut [u8]),
    ) -> bool {
        let Self { sockets, carried, arena, clock, .. } = self;
        let mut more = false;
        for socket in sockets {
            more |= arena.receive(clock, socket, &mut handle);
        }
        for socket in carried {
            more |= socket.receive(clock, &mut handle);
        }
        more
    }

    /// Where the core puts what is to be sent.
    pub fn out(&mut self) -> &mut OutBatch {
        &mut self.out
    }

    /// Sends what the batch holds, and reports what the kernel refused. What a socket cannot take at
    /// present stays in the batch. Returns the number of datagrams that left the batch.
    pub fn flush(&mut self, mut on_error: impl FnMut(Path, SendError)) -> usize {
        let Self { sockets, carried, out, clock, .. } = self;
        let now = clock.now();
        let mut done = 0;
        for lane in out.lanes_mut() {
            let Some(path) = lane.path() else { continue };
            if let Some(socket) = sockets.iter_mut().find(|socket| socket.id == path.socket) {
                done += socket.send_lane(now, lane, path, &mut on_error);
                continue;
            }
            if let Some(socket) = carried.iter_mut().find(|socket| socket.id == path.socket) {
                done += socket.send_lane(now, lane, path);
                continue;
            }
            while let Some(train) = lane.next_train(LANE_DATAGRAMS) {
                let (kind, datagrams) = (SendErrorKind::Closed, train.datagrams);
                on_error(path, SendError { kind, datagrams, longest: train.segment });
                done += datagrams;
                lane.pop(datagrams);
            }
        }
        done
    }

    /// Ready when a socket can be read, or when one that was full can be written again.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = false;
        for socket in &self.sockets {
            ready |= socket.io.poll_recv_ready(cx).is_ready();
            ready |= socket.blocked && socket.io.poll_send_ready(cx).is_ready();
        }
        for socket in &mut self.carried {
            ready |= socket.poll_ready(cx).is_ready();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn get(&self, id: SocketId) -> Option<&Socket> {
        self.sockets.iter().find(|socket| socket.id == id)
    }

    fn get_carried(&self, id: SocketId) -> Option<&CarriedSocket> {
        self.carried.iter().find(|socket| socket.id == id)
    }
}

/// Datagrams of one path that the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendError {
    /// Why.
    pub kind: SendErrorKind,
    /// How many.
    pub datagrams: usize,
    /// Bytes of UDP payload of the longest of them.
    pub longest: usize,
}

/// Why the kernel refused a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// Longer than the interface's MTU allows.
    TooBig,
    /// No route to the peer from this interface or address.
    Unreachable,
    /// The interface is down.
    InterfaceDown,
    /// The interface is gone.
    InterfaceGone,
    /// Our address is gone from the interface.
    AddressGone,
    /// A firewall of ours forbids it.
    Forbidden,
    /// The socket takes no more.
    Full,
    /// The socket is closed.
    Closed,
    /// Anything else: the error number of the system.
    Other(i32),
}

impl SendErrorKind {
    /// Whether it says that nothing can leave this way, whatever it is.
    #[must_use]
    pub const fn is_dead_end(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::InterfaceDown | Self::InterfaceGone | Self::AddressGone
        )
    }

    /// The name under which a client counts it. A proxy tells more of them apart.
    #[must_use]
    pub const fn counter(self) -> &'static str {
        match self {
            // A probe of the path MTU may be longer than the interface allows: that is its answer.
            Self::TooBig => "send_too_big",
            Self::Unreachable => "send_unreachable",
            Self::Forbidden => "send_forbidden",
            Self::Full => "send_full",
            Self::InterfaceDown
            | Self::InterfaceGone
            | Self::AddressGone
            | Self::Closed
            | Self::Other(_) => "send_failed",
        }
    }

    /// What the kernel says against sending, for people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::TooBig => "the interface's MTU is too small",
            Self::Unreachable => "no route to the proxy by this interface",
            Self::InterfaceDown => "the interface is down",
            Self::InterfaceGone => "the interface is gone",
            Self::AddressGone => "the interface has lost its address",
            Self::Forbidden => "a firewall on this machine forbids it",
            Self::Full => "the interface takes no more",
            Self::Closed | Self::Other(_) => "the kernel refuses to send",
        }
    }

    fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::MSGSIZE => Self::TooBig,
            Errno::NETUNREACH | Errno::HOSTUNREACH => Self::Unreachable,
            Errno::NETDOWN => Self::InterfaceDown,
            Errno::NODEV | Errno::NXIO => Self::InterfaceGone,
            // The kernel's word where a socket is bound to an IPv4 address that no interface has (ip_route_output_key).
            Errno::ADDRNOTAVAIL | Errno::INVAL => Self::AddressGone,
            Errno::PERM | Errno::ACCESS => Self::Forbidden,
            Errno::AGAIN | Errno::NOBUFS => Self::Full,
            other => Self::Other(other.raw_os_error()),
        }
    }
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No interface of this name.
    #[error("there is no network interface named {interface}")]
    NoInterface {
        /// The name.
        interface: String,
    },
    /// The address is none of ours.
    #[error("{address} is no address of this machine")]
    NotOurs {
        /// The address.
        address: IpAddr,
    },
    /// Somebody else has the port.
    #[error("UDP {address} is in use by another process; stop that one, or configure another port")]
    InUse {
        /// Address and port.
        address: SocketAddr,
    },
    /// We may not.
    #[error("{what} needs the capability {capability} (run as root, or grant it)")]
    Privilege {
        /// What was tried.
        what: &'static str,
        /// The capability's name.
        capability: &'static str,
    },
    /// Whoever is to bind the socket to its network did not.
    #[error("the socket was not bound to its network: {source}")]
    Network {
        /// What was said.
        source: io::Error,
    },
    /// The network that the socket is bound to leads nowhere.
    #[error("this network has no route to {remote}: {source}")]
    NoWay {
        /// Where to.
        remote: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not lead datagrams to one of several sockets.
    #[error(
        "this kernel does not lead datagrams by their content to one of several sockets: {source}"
    )]
    NoSteering {
        /// What the kernel said.
        source: io::Error,
    },
    /// An offload was demanded that the kernel does not have.
    #[error(
        "{key} is \"on\", but this kernel has no {option}; set it to \"auto\" to go without, or use a newer kernel"
    )]
    Offload {
        /// The key of the config.
        key: &'static str,
        /// The option of a socket.
        option: &'static str,
    },
    /// There are too many sockets.
    #[error("more than {limit} sockets")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// Anything else.
    #[error("UDP socket: {what} failed: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether the host has no IPv6 at all.
    fn lacks_ipv6(&self) -> bool {
        match self {
            Self::NotOurs { .. } => true,
            Self::Io { source, .. } => Errno::from_io_error(source) == Some(Errno::AFNOSUPPORT),
            _ => false,
        }
    }
}
