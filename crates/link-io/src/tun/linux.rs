//! The kernel's TUN on Linux, one packet per system call.
//!
//! Opened without packet information and without `IFF_VNET_HDR`, so that what is read and written
//! is exactly one IP packet. Addresses and routes are not set here.

use super::{Drained, MAX_PACKET, Tun, TunControl, TunCounters, TunError};
use ropewalk_proto::sink::PacketSink;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tun_rs::{AsyncDevice, DeviceBuilder, DeviceImpl};

/// Packets that wait in the interface for us; the kernel's 500 overflow within one slow-start burst
/// of a single download.
const TX_QUEUE_LEN: u32 = 1000;

/// The longest interface name (IFNAMSIZ without the final zero), in bytes.
const MAX_NAME: usize = 15;

/// What to open.
#[derive(Clone, Debug)]
pub struct TunOptions {
    /// Name of the interface; a persistent TUN of this name that nobody uses is taken over.
    pub name: String,
    /// MTU in bytes of inner packet.
    pub mtu: u16,
}

/// A TUN interface of the kernel. It goes away with this value, unless somebody made it persistent.
pub struct LinuxTun {
    name: String,
    index: u32,
    device: Arc<AsyncDevice>,
    buffer: Box<[u8]>,
    packets_in: u64,
    sink: LinuxSink,
}

impl LinuxTun {
    /// Creates the interface (or takes an unused persistent one), sets its MTU and queue length and
    /// brings it up. Must be called inside the runtime.
    ///
    /// # Errors
    /// [`TunError`], each of which says what to do.
    pub fn open(options: &TunOptions) -> Result<Self, TunError> {
        let name = &options.name;
        check_name(name)?;
        let device = builder(options).build_async().map_err(|error| open_error(name, error))?;
        lengthen_queue(&device);
        Self::from_device(device)
    }

    /// Uses a TUN that somebody else opened (Android, a container runtime) and configured. It must
    /// have been opened with `IFF_NO_PI` and without `IFF_VNET_HDR`. Must be called inside the
    /// runtime.
    ///
    /// # Errors
    /// When the descriptor is no TUN.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, TunError> {
        #[expect(unsafe_code, reason = "tun-rs takes an inherited descriptor only as a number")]
        // SAFETY: the number comes from an OwnedFd that is given up here: it is open, nobody else
        // closes it, and the device owns it from now on. tun-rs asks the kernel (TUNGETIFF) whether
        // it is a TUN, before anything else is done with it.
        let device = unsafe { AsyncDevice::from_fd(fd.into_raw_fd()) };
        Self::from_device(device.map_err(|source| TunError::Io {
            name: "(inherited)".to_owned(),
            action: "using the inherited descriptor",
            source,
        })?)
    }

    /// Names what the kernel calls the device and wraps it.
    pub(super) fn from_device(device: AsyncDevice) -> Result<Self, TunError> {
        let failed =
            |action| move |source| TunError::Io { name: "(new)".to_owned(), action, source };
        let name = device.name().map_err(failed("reading its name"))?;
        let index = device.if_index().map_err(failed("reading its index"))?;
        let device = Arc::new(device);
        let sink =
            LinuxSink { device: Arc::clone(&device), packets_out: 0, dropped_out: 0, gone: false };
        let buffer = vec![0; MAX_PACKET].into_boxed_slice();
        Ok(Self { name, index, device, buffer, packets_in: 0, sink })
    }

    /// The error for an interface that was deleted.
    fn gone(&self) -> TunError {
        TunError::Gone { name: self.name.clone() }
    }
}

impl TunControl for LinuxTun {
    fn name(&self) -> &str {
        &self.name
    }

    fn index(&self) -> u32 {
        self.index
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), TunError> {
        self.device.set_mtu(mtu).map_err(|source| TunError::Io {
            name: self.name.clone(),
            action: "setting its MTU",
            source,
        })
    }

    fn counters(&self) -> TunCounters {
        TunCounters {
            packets_in: self.packets_in,
            packets_out: self.sink.packets_out,
            dropped_out: self.sink.dropped_out,
        }
    }
}

impl Tun for LinuxTun {
    type Sink = LinuxSink;

    fn read_batch(
        &mut self,
        limit: usize,
        mut handle: impl FnMut(&mut [u8], &mut Self::Sink),
    ) -> Result<Drained, TunError> {
        for _ in 0..limit {
            match self.device.try_recv(&mut self.buffer) {
                Ok(len) => {
                    self.packets_in += 1;
                    handle(&mut self.buffer[..len], &mut self.sink);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Drained::Yes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_gone(Errno::from_io_error(&error)) => return Err(self.gone()),
                Err(source) => {
                    let name = self.name.clone();
                    return Err(TunError::Io { name, action: "reading", source });
                }
            }
        }
        Ok(Drained::No)
    }

    fn sink(&mut self) -> &mut Self::Sink {
        &mut self.sink
    }

    fn flush(&mut self) -> Result<(), TunError> {
        if self.sink.gone { Err(self.gone()) } else { Ok(()) }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // An error shows itself again in the read.
        self.device.poll_readable(cx).map(|_| ())
    }
}

/// The writing side: each packet is written at once, without a copy.
pub struct LinuxSink {
    device: Arc<AsyncDevice>,
    packets_out: u64,
    dropped_out: u64,
    gone: bool,
}

impl PacketSink for LinuxSink {
    fn deliver(&mut self, packet: &[u8]) {
        // Straight to the kernel: a TUN is always writable, and the runtime's idea of its readiness
        // would only be in the way (it starts as "not yet").
        match rustix::io::retry_on_intr(|| rustix::io::write(self.device.as_fd(), packet)) {
            Ok(_) => self.packets_out += 1,
            Err(errno) => {
                self.dropped_out += 1;
                self.gone |= is_gone(Some(errno));
            }
        }
    }
}

/// How a TUN is made, before it is said for which runtime and with how many queues.
pub(super) fn builder(options: &TunOptions) -> DeviceBuilder {
    DeviceBuilder::new()
        .name(&options.name)
        .mtu(options.mtu)
        .packet_information(false)
        .offload(false)
        .enable(true)
}

/// Refuses a name that no interface can have.
pub(super) fn check_name(name: &str) -> Result<(), TunError> {
    if name.is_empty() || name.len() > MAX_NAME || name.contains(['/', '%', '\0']) {
        return Err(TunError::Name { name: name.to_owned() });
    }
    Ok(())
}

/// Linux lets only the root of the machine do this, not that of a user namespace. It is no
/// reason not to run: the kernel's 500 are enough for what a container carries.
pub(super) fn lengthen_queue(device: &DeviceImpl) {
    if let Err(error) = device.set_tx_queue_len(TX_QUEUE_LEN) {
        tracing::debug!(%error, "the TUN keeps the kernel's queue length");
    }
}

/// Whether the kernel says that the interface behind the descriptor was deleted. (`EIO` is not this:
/// it means that the interface is down.)
fn is_gone(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::BADFD | Errno::NODEV | Errno::NXIO))
}

/// What a failed `open` means.
pub(super) fn open_error(name: &str, source: io::Error) -> TunError {
    let name = name.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => TunError::Taken { name },
        Some(Errno::INVAL | Errno::EXIST) => TunError::Name { name },
        Some(Errno::PERM | Errno::ACCESS) => {
            let device = File::options().read(true).write(true).open("/dev/net/tun");
            denied(name, device.map(drop))
        }
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => TunError::Unsupported { source },
        _ => TunError::Io { name, action: "opening", source },
    }
}

/// The right that is missing, if opening the device alone ends so.
fn denied(name: String, device: io::Result<()>) -> TunError {
    match device {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => TunError::Device,
        Ok(()) | Err(_) => TunError::Privilege { name },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_device_is_told_from_a_missing_capability() {
        for (errno, expected) in [
            (None, "CAP_NET_ADMIN"),
            (Some(Errno::PERM), "/dev/net/tun is closed"),
            (Some(Errno::ACCESS), "/dev/net/tun is closed"),
        ] {
            let device = errno.map_or(Ok(()), |errno| Err(errno.into()));
            let said = denied("rope0".to_owned(), device).to_string();
            assert!(said.contains(expected), "{errno:?}: {said}");
        }
    }
}
