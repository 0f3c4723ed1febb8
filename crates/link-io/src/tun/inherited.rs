//! A TUN that somebody else opened and configured: Android's `VpnService`, say.
//!
//! It may come after the loop began, be replaced while it runs, and be taken away. Without one nothing is read, and what is
//! written is dropped and counted. A TUN that fails is given up and does not end the loop: [`TunControl::is_open`] says so. That it was deleted
//! shows when the next packet is written to it.
//!
//! Packets pass one by one, since a super packet needs `IFF_VNET_HDR`, which is the opener's to set. Nothing but `read`
//! and `write` is needed: a program on Android may use no ioctl of a TUN, or just the one that tells what it is.

use super::request::InterfaceRequest;
use super::{Drained, MAX_PACKET, Tun, TunControl, TunCounters, TunError, TunOffload, is_gone};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::sink::PacketSink;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::ioctl;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The name of a TUN that does not tell its own.
const NAME: &str = "(inherited)";

/// The place of a TUN that somebody else opens; see [`TunControl::replace`].
#[derive(Debug)]
pub struct InheritedTun {
    name: String,
    buffer: Box<[u8]>,
    packets_in: u64,
    calls_in: u64,
    sink: InheritedSink,
}

/// The writing side.
#[derive(Debug)]
pub struct InheritedSink {
    device: Option<AsyncFd<OwnedFd>>,
    is_attached: bool,
    packets_out: u64,
    dropped_out: u64,
    calls_out: u64,
}

impl InheritedTun {
    /// Without a TUN.
    #[must_use]
    pub fn new() -> Self {
        let sink = InheritedSink {
            device: None,
            is_attached: true,
            packets_out: 0,
            dropped_out: 0,
            calls_out: 0,
        };
        let buffer = vec![0; MAX_PACKET].into_boxed_slice();
        Self { name: NAME.to_owned(), buffer, packets_in: 0, calls_in: 0, sink }
    }
}

impl Default for InheritedTun {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of the interface behind a descriptor; nothing where the system lets nobody ask.
///
/// # Errors
/// [`TunError::NoTun`]: it is none, or gives something else than packets as they are (a TAP, or a TUN that was opened
/// with `IFF_VNET_HDR`). That it was opened without `IFF_NO_PI` cannot be told: the kernel answers with that bit, too,
/// where no filter is attached (`IFF_NOFILTER`).
pub fn check(fd: BorrowedFd<'_>) -> Result<Option<String>, TunError> {
    let no_tun = |why: String| Err(TunError::NoTun { why });
    match question(fd) {
        Ok(InterfaceRequest { name, flags, .. }) => match wrong(flags) {
            Some(why) => no_tun(why.to_owned()),
            None => {
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                Ok(Some(String::from_utf8_lossy(name).into_owned()))
            }
        },
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(errno) => no_tun(errno.to_string()),
    }
}

/// What keeps a TUN with these flags from being used.
fn wrong(flags: i16) -> Option<&'static str> {
    // As in linux/if_tun.h.
    const IFF_TUN: i16 = 0x0001;
    const IFF_VNET_HDR: i16 = 0x4000;
    if flags & IFF_TUN == 0 {
        Some("it is a TAP, which carries frames and not packets")
    } else if flags & IFF_VNET_HDR != 0 {
        Some("it was opened with IFF_VNET_HDR")
    } else {
        None
    }
}

/// `TUNGETIFF`: the name and flags of the interface.
fn question(fd: BorrowedFd<'_>) -> Result<InterfaceRequest, Errno> {
    const TUNGETIFF: ioctl::Opcode = ioctl::opcode::read::<std::ffi::c_uint>(b'T', 210);
    #[expect(unsafe_code, reason = "rustix knows no ioctl of a TUN")]
    // SAFETY: this number is a TUN's alone, and the kernel writes a `struct ifreq` for it, which `InterfaceRequest` is.
    unsafe {
        ioctl::ioctl(fd, ioctl::Getter::<TUNGETIFF, InterfaceRequest>::new())
    }
}

/// Tells the kernel to hand out no super packets. It is the interface's property and stays with a persistent one,
/// whoever used it before; without headers, super packets could not be told from packets.
fn forget_offload(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    /// `TUNSETOFFLOAD`; its argument is the number itself.
    const TUNSETOFFLOAD: ioctl::Opcode = ioctl::opcode::write::<std::ffi::c_uint>(b'T', 208);
    #[expect(unsafe_code, reason = "rustix knows no ioctl of a TUN")]
    // SAFETY: this ioctl takes a number, not a pointer, and only a TUN knows it.
    unsafe {
        ioctl::ioctl(fd, ioctl::IntegerSetter::<TUNSETOFFLOAD>::new_usize(0))
    }
}

/// Hands a TUN to the runtime.
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // Not `FIONBIO`, which is an ioctl.
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    // Where this is refused nobody else may have asked for them either: that takes the same right.
    if let Err(error) = forget_offload(fd.as_fd()) {
        tracing::debug!(%error, "the offload of the TUN stays as it is");
    }
    #[expect(unsafe_code, reason = "tokio's safe constructor is deprecated")]
    // SAFETY: the AsyncFd owns the descriptor, so it stays open and the same for as long as it is registered.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

impl TunControl for InheritedTun {
    fn name(&self) -> &str {
        &self.name
    }

    /// None is known.
    fn index(&self) -> u32 {
        0
    }

    fn set_mtu(&mut self, _mtu: u16) -> Result<(), TunError> {
        let (name, action) = (self.name.clone(), "setting its MTU, which is its opener's,");
        Err(TunError::Io { name, action, source: io::ErrorKind::Unsupported.into() })
    }

    fn counters(&self) -> TunCounters {
        TunCounters {
            packets_in: self.packets_in,
            dropped_in: 0,
            calls_in: self.calls_in,
            packets_out: self.sink.packets_out,
            dropped_out: self.sink.dropped_out,
            calls_out: self.sink.calls_out,
        }
    }

    fn offload(&self) -> TunOffload {
        TunOffload::default()
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.sink.deliver(Packet::whole(packet));
    }

    fn set_attached(&mut self, attached: bool) {
        self.sink.is_attached = attached;
    }

    fn replace(&mut self, fd: Option<OwnedFd>) -> Result<(), TunError> {
        // The old one is closed first: two interfaces may have the same addresses.
        self.sink.device = None;
        let Some(fd) = fd else { return Ok(()) };
        let name = check(fd.as_fd())?.unwrap_or_else(|| NAME.to_owned());
        let action = "registering with the runtime";
        let device =
            register(fd).map_err(|source| TunError::Io { name: name.clone(), action, source })?;
        (self.name, self.sink.device) = (name, Some(device));
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.sink.device.is_some()
    }
}

impl Tun for InheritedTun {
    type Sink = InheritedSink;

    fn read_batch(
        &mut self,
        limit: usize,
        mut handle: impl FnMut(&mut [u8], Checksum, &mut Self::Sink),
    ) -> Result<Drained, TunError> {
        let Self { buffer, packets_in, calls_in, sink, .. } = self;
        for _ in 0..limit {
            let (Some(device), true) = (&sink.device, sink.is_attached) else {
                return Ok(Drained::Yes);
            };
            let came = device.try_io(Interest::READABLE, |fd| Ok(read(fd, &mut buffer[..])?));
            match came {
                Ok(length) if length > 0 => {
                    *packets_in += 1;
                    *calls_in += 1;
                    handle(&mut buffer[..length], Checksum::Whole, sink);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Drained::Yes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whatever it is, nothing comes by it any more.
                Ok(_) | Err(_) => sink.device = None,
            }
        }
        Ok(Drained::No)
    }

    fn sink(&mut self) -> &mut Self::Sink {
        &mut self.sink
    }

    fn flush(&mut self) -> Result<(), TunError> {
        Ok(())
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match (&self.sink.device, self.sink.is_attached) {
            // An error shows itself again in the read.
            (Some(device), true) => device.poll_read_ready(cx).map(drop),
            _ => Poll::Pending,
        }
    }
}

impl InheritedSink {
    /// Writes one packet. Returns whether the kernel took it.
    fn write(&mut self, packet: &[u8]) -> bool {
        let (Some(device), true) = (&self.device, self.is_attached) else { return false };
        // Straight to the kernel: a TUN is always writable.
        let written = retry_on_intr(|| write(device.get_ref(), packet));
        self.calls_out += 1;
        if is_gone(written.err()) {
            self.device = None;
        }
        written.is_ok()
    }
}

impl PacketSink for InheritedSink {
    fn deliver(&mut self, packet: Packet<'_>) {
        if packet.completed().is_some_and(|packet| self.write(&packet)) {
            self.packets_out += 1;
        } else {
            self.dropped_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_gives_something_else_than_packets_is_refused_with_the_reason() {
        let table = [
            (0x1001, None),
            // Persistent, with several queues.
            (0x1901, None),
            (0x1002, Some("TAP")),
            (0x5001, Some("IFF_VNET_HDR")),
        ];
        for (flags, expected) in table {
            let said = wrong(flags);
            assert_eq!(said.is_some(), expected.is_some(), "{flags:#x}: {said:?}");
            assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()), "{said:?}");
        }
    }

    #[test]
    fn without_a_tun_what_is_written_is_dropped_and_counted() {
        let mut tun = InheritedTun::new();
        assert!(!tun.is_open());
        tun.deliver(&[0x45; 20]);
        assert_eq!((tun.counters().dropped_out, tun.counters().calls_out), (1, 0));
        let drained = tun.read_batch(8, |_, _, _| panic!("there is nothing to read"));
        assert_eq!(drained.expect("no error"), Drained::Yes);
        tun.replace(None).expect("there is nothing to close");
    }
}
