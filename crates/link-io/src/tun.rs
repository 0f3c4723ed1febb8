//! Inner packets: the trait behind which the kernel's TUN, or a test, stands.
//!
//! A TUN is read and written in batches: [`Tun::read_batch`] hands out each packet where it was read,
//! together with the writing side, so that an answer (an ICMP message, say) can go straight back.
//! Written packets may stay in a batch until [`Tun::flush`]. An implementation that reads and writes
//! super packets (`IFF_VNET_HDR`) splits and joins them inside these same calls.

pub mod channel;
pub mod inherited;
#[cfg(target_os = "linux")]
pub mod linux;
#[cfg(target_os = "linux")]
pub mod offload;
#[cfg(target_os = "linux")]
pub mod queues;
mod request;

pub use channel::{ChannelEnd, ChannelTun};
pub use inherited::InheritedTun;
#[cfg(target_os = "linux")]
pub use linux::{LinuxTun, TunOptions};
#[cfg(target_os = "linux")]
pub use queues::TunQueue;

use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::sink::PacketSink;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

/// The largest inner packet: the largest IP packet.
pub const MAX_PACKET: usize = 65_535;

/// What of a TUN is set while it runs.
pub trait TunControl {
    /// The interface's name.
    fn name(&self) -> &str;

    /// The interface's index, for routes and rules; changes only with the interface.
    fn index(&self) -> u32;

    /// Sets the MTU in bytes of inner packet.
    ///
    /// # Errors
    /// When the interface is gone or refuses the value.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), TunError>;

    /// What passed, and what was dropped.
    fn counters(&self) -> TunCounters;

    /// Which offload is in use.
    fn offload(&self) -> TunOffload;

    /// Writes one packet, as [`Tun::sink`] does: for what does not come from a socket of this TUN's loop.
    fn deliver(&mut self, packet: &[u8]);

    /// Whether packets are to come by this queue of a TUN that has several. Who has no use for them leaves them to the other
    /// queues; what he writes meanwhile is dropped and counted. The last that is attached stays so. That a queue cannot be
    /// attached again, the next [`Tun::flush`] says.
    fn set_attached(&mut self, _attached: bool) {}

    /// Goes on with this TUN, which somebody else opened, in place of the one before, which is closed; `None`: with none,
    /// until another comes. Only an [`InheritedTun`] takes one. Must be called inside the runtime.
    ///
    /// # Errors
    /// The runtime cannot wait for it, and there is none from now on; or this TUN is no inherited one, and stays.
    fn replace(&mut self, _fd: Option<OwnedFd>) -> Result<(), TunError> {
        let (name, action) = (self.name().to_owned(), "replacing it by another");
        Err(TunError::Io { name, action, source: io::ErrorKind::Unsupported.into() })
    }

    /// Whether there is an interface at present. An inherited one may be yet to come, or gone.
    fn is_open(&self) -> bool {
        true
    }
}

/// A source and sink of inner packets.
pub trait Tun: TunControl {
    /// The writing side.
    type Sink: PacketSink;

    /// Reads at most `limit` packets and calls `handle` with each, the state of its checksum, and the writing side. The
    /// bytes are borrowed for the call and may be changed in place. A checksum is partial only where
    /// [`Transport::of`](ropewalk_proto::packet::transport::Transport::of) finds it.
    ///
    /// # Errors
    /// [`TunError::Gone`] when the interface is no more.
    fn read_batch(
        &mut self,
        limit: usize,
        handle: impl FnMut(&mut [u8], Checksum, &mut Self::Sink),
    ) -> Result<Drained, TunError>;

    /// The writing side.
    fn sink(&mut self) -> &mut Self::Sink;

    /// Writes what the sink still holds.
    ///
    /// # Errors
    /// [`TunError::Gone`] when the interface is no more. A single packet that the kernel refuses is
    /// counted, never an error.
    fn flush(&mut self) -> Result<(), TunError>;

    /// Makes an interface again that is gone. Its counters go on; addresses and routes are to be set again, and its index is
    /// another one.
    ///
    /// # Errors
    /// When it cannot be made. [`TunError::Gone`] if it is not ours to make.
    fn reopen(&mut self) -> Result<(), TunError> {
        Err(TunError::Gone { name: self.name().to_owned() })
    }

    /// Ready when [`Tun::read_batch`] may have something to say (a packet, or that it is gone).
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Whether a source was read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Drained {
    /// Nothing is left; readiness will tell of more.
    Yes,
    /// The limit was reached: there may be more.
    No,
}

/// Packets through a TUN, seen from us: in = read from it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TunCounters {
    /// Packets read.
    pub packets_in: u64,
    /// What was read and is no packet, by the kernel's own header before it.
    pub dropped_in: u64,
    /// System calls that read something.
    pub calls_in: u64,
    /// Packets written.
    pub packets_out: u64,
    /// Packets that the kernel did not take: the interface is down, its queue is full, or what we
    /// wrote was no IP packet.
    pub dropped_out: u64,
    /// System calls that wrote them.
    pub calls_out: u64,
}

impl TunCounters {
    /// What was dropped, by reason.
    #[must_use]
    pub const fn drops(&self) -> [(&'static str, u64); 2] {
        [("tun_malformed", self.dropped_in), ("tun_refused", self.dropped_out)]
    }
}

/// Which of a TUN's offloads are in use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TunOffload {
    /// Super packets are read (TSO, and USO where the kernel has it).
    pub reads: bool,
    /// Packets are joined before they are written.
    pub writes: bool,
}

impl TunOffload {
    /// Whether the kernel completes partial checksums of what is written.
    #[must_use]
    pub const fn completes_checksums(self) -> bool {
        // The header before each packet that says so is the same as that before a super packet.
        self.reads
    }

    /// What both of two TUNs use.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { reads: self.reads && other.reads, writes: self.writes && other.writes }
    }
}

/// Why there is no TUN.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// Another process holds the interface.
    #[error(
        "TUN interface {name} is in use by another process; stop that one, or configure another name"
    )]
    Taken {
        /// The name asked for.
        name: String,
    },
    /// The interface was made for a single reader.
    #[error("TUN interface {name} was made with one queue (without `multi_queue`)")]
    OneQueue {
        /// The name asked for.
        name: String,
    },
    /// The name belongs to something that is no TUN of ours.
    #[error(
        "{name} is no usable TUN interface (an interface of another kind has this name, or the name is not valid); configure another name"
    )]
    Name {
        /// The name asked for.
        name: String,
    },
    /// We may not open a TUN.
    #[error(
        "opening TUN interface {name} needs the capability CAP_NET_ADMIN (run as root, or grant it)"
    )]
    Privilege {
        /// The name asked for.
        name: String,
    },
    /// We may not open the device from which every TUN is made.
    #[error(
        "/dev/net/tun is closed to this user: run as root, or open it with `chmod 666 /dev/net/tun` (in a container: --device /dev/net/tun)"
    )]
    Device,
    /// The kernel offers no TUN.
    #[error(
        "/dev/net/tun cannot be opened: load the kernel module `tun` or pass the device into the container ({source})"
    )]
    Unsupported {
        /// What opening it said.
        source: io::Error,
    },
    /// Offload was demanded, and the kernel has none that works.
    #[error(
        "TUN interface {name}: tun_offload is \"on\", but this kernel does not exchange joined packets over a TUN ({why}); set it to \"auto\" to go without, or use a newer kernel"
    )]
    Offload {
        /// Its name.
        name: String,
        /// What trying it said.
        why: String,
    },
    /// What somebody else opened cannot be used.
    #[error("the descriptor is no TUN that can be used: {why}")]
    NoTun {
        /// What is wrong with it.
        why: String,
    },
    /// The interface disappeared while it was in use.
    #[error("TUN interface {name} is gone: somebody deleted it")]
    Gone {
        /// Its name.
        name: String,
    },
    /// Anything else.
    #[error("TUN interface {name}: {action} failed: {source}")]
    Io {
        /// Its name.
        name: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl TunError {
    /// Whether the machine has no room for it at present: no descriptors or memory, which others may give back.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        Errno::from_io_error(source).is_some_and(is_shortage)
    }
}

/// Whether there are no descriptors or is no memory at present.
fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
}

/// Whether the kernel says that the interface behind the descriptor was deleted. (`EIO` is not this:
/// it means that the interface is down.)
fn is_gone(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::BADFD | Errno::NODEV | Errno::NXIO))
}
