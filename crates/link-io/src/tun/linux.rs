//! The kernel's TUN on Linux.
//!
//! Opened without packet information, and with `IFF_VNET_HDR` where the kernel offers it: then a system call reads a
//! super packet, which is parted where it lies, or writes one (`sink.rs`). Without it what is read and written is exactly
//! one IP packet. Addresses and routes are not set here.

mod probe;
mod sink;

pub(super) use sink::Framing;
pub use sink::LinuxSink;

use super::offload::header::{self, Header};
use super::offload::split::Split;
use super::queues::Attachment;
use super::{
    Drained, MAX_PACKET, Tun, TunControl, TunCounters, TunError, TunOffload, is_gone, is_shortage,
};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::packet::transport::TransportKind;
use ropewalk_proto::sink::PacketSink as _;
use ropewalk_settings::Switch;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Deref;
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
    /// Whether super packets are exchanged with the kernel.
    pub offload: Switch,
}

/// A TUN interface of the kernel. It goes away with this value, unless somebody made it persistent.
pub struct LinuxTun {
    name: String,
    index: u32,
    device: Arc<AsyncDevice>,
    /// Room for a header, and the packet behind it: the kernel parts what is longer (`gso_max_size`, which no TUN exceeds).
    buffer: Box<[u8]>,
    /// Whether the kernel puts a header before each packet.
    has_headers: bool,
    /// What of the packet in `buffer` was not handed out yet.
    split: Split,
    /// Bytes of that packet.
    len: usize,
    packets_in: u64,
    dropped_in: u64,
    calls_in: u64,
    sink: LinuxSink,
    attachment: Attachment,
    /// Why the queue could not be attached again.
    unattached: Option<Errno>,
    /// How it was made.
    origin: Origin,
}

/// How an interface was made, to make it again when somebody deleted it.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) options: TunOptions,
    /// With queues for several workers. The first of them makes the interface, the others join.
    pub(super) several: bool,
}

impl Origin {
    fn open(&self) -> Result<(AsyncDevice, Framing), TunError> {
        let several = self.several;
        let opened =
            build_best(&self.options, |builder| builder.multi_queue(several).build_async())?;
        lengthen_queue(&opened.0);
        Ok(opened)
    }
}

impl LinuxTun {
    /// Creates the interface (or takes an unused persistent one), sets its MTU and queue length and
    /// brings it up. Must be called inside the runtime.
    ///
    /// # Errors
    /// [`TunError`], each of which says what to do.
    pub fn open(options: &TunOptions) -> Result<Self, TunError> {
        check_name(&options.name)?;
        let origin = Origin { options: options.clone(), several: false };
        let (device, framing) = origin.open()?;
        Self::from_device(device, framing, Attachment::of_one(), origin)
    }

    /// Names what the kernel calls the device and wraps it.
    pub(super) fn from_device(
        device: AsyncDevice,
        framing: Framing,
        attachment: Attachment,
        origin: Origin,
    ) -> Result<Self, TunError> {
        let failed =
            |action| move |source| TunError::Io { name: "(new)".to_owned(), action, source };
        let name = device.name().map_err(failed("reading its name"))?;
        let index = device.if_index().map_err(failed("reading its index"))?;
        let device = Arc::new(device);
        let sink = LinuxSink::new(Arc::clone(&device), framing);
        let buffer = vec![0; header::LEN + MAX_PACKET].into_boxed_slice();
        let has_headers = framing != Framing::Plain;
        let (split, len) = (Split::EMPTY, 0);
        let (packets_in, dropped_in, calls_in) = (0, 0, 0);
        Ok(Self {
            name,
            index,
            device,
            buffer,
            has_headers,
            split,
            len,
            packets_in,
            dropped_in,
            calls_in,
            sink,
            attachment,
            unattached: None,
            origin,
        })
    }

    /// Reads a packet, or a super packet, to be handed out. Counts and drops what makes no sense.
    fn read(&mut self) -> io::Result<()> {
        let start = if self.has_headers { 0 } else { header::LEN };
        let read = self.device.try_recv(&mut self.buffer[start..])?;
        self.calls_in += 1;
        (self.split, self.len) = (Split::EMPTY, (start + read).saturating_sub(header::LEN));
        let Some((head, packet)) = self.buffer.split_first_chunk_mut() else { return Ok(()) };
        let head = if self.has_headers { Header::read(head) } else { Ok(Header::default()) };
        let packet = &mut packet[..self.len];
        match head.ok().and_then(|head| Split::new(&head, packet, Checksum::Partial).ok()) {
            Some(split) => self.split = split,
            None => self.dropped_in += 1,
        }
        Ok(())
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
        let written = self.sink.counts();
        TunCounters {
            packets_in: self.packets_in,
            dropped_in: self.dropped_in,
            calls_in: self.calls_in,
            packets_out: written.packets,
            dropped_out: written.dropped,
            calls_out: written.calls,
        }
    }

    fn offload(&self) -> TunOffload {
        TunOffload { reads: self.has_headers, writes: self.sink.is_joining() }
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.sink.deliver(Packet::whole(packet));
    }

    fn set_attached(&mut self, attached: bool) {
        // What was read is handed out first; the next turn asks again.
        if attached || self.split.is_done() {
            self.unattached = self.attachment.set(&**self.device, attached).err();
            self.sink.set_attached(self.attachment.is_attached());
        }
    }
}

impl Tun for LinuxTun {
    type Sink = LinuxSink;

    fn read_batch(
        &mut self,
        limit: usize,
        mut handle: impl FnMut(&mut [u8], Checksum, &mut Self::Sink),
    ) -> Result<Drained, TunError> {
        if !self.attachment.is_attached() {
            return Ok(Drained::Yes);
        }
        let mut handed = 0;
        while handed < limit {
            let packet = &mut self.buffer[header::LEN..header::LEN + self.len];
            if let Some((range, checksum)) = self.split.next(packet) {
                self.packets_in += 1;
                handed += 1;
                handle(&mut packet[range], checksum, &mut self.sink);
                continue;
            }
            match self.read() {
                Ok(()) => {}
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
        if let Some(errno) = self.unattached {
            // Of a queue that we detached ourselves it says so only when the interface went.
            if errno == Errno::INVAL || is_gone(Some(errno)) {
                return Err(self.gone());
            }
            let (name, action) = (self.name.clone(), "attaching a queue");
            return Err(TunError::Io { name, action, source: errno.into() });
        }
        if self.sink.flush() { Ok(()) } else { Err(self.gone()) }
    }

    fn reopen(&mut self) -> Result<(), TunError> {
        let (device, framing) = self.origin.open()?;
        let failed = |source| TunError::Io {
            name: self.name.clone(),
            action: "reading the index of the new interface",
            source,
        };
        self.index = device.if_index().map_err(failed)?;
        self.device = Arc::new(device);
        self.has_headers = framing != Framing::Plain;
        // What was read of the old one was handed out, or is of no use.
        (self.split, self.len, self.unattached) = (Split::EMPTY, 0, None);
        self.sink.reopen(Arc::clone(&self.device), framing);
        self.attachment.renew();
        Ok(())
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.split.is_done() {
            return Poll::Ready(());
        }
        // Nothing comes by it, but the kernel says that it is in error. What comes once it is attached is news.
        if !self.attachment.is_attached() {
            return Poll::Pending;
        }
        // An error shows itself again in the read.
        self.device.poll_readable(cx).map(|_| ())
    }
}

/// How a TUN is made, before it is said for which runtime and with how many queues.
fn builder(options: &TunOptions, offload: bool) -> DeviceBuilder {
    DeviceBuilder::new()
        .name(&options.name)
        .mtu(options.mtu)
        .packet_information(false)
        .offload(offload)
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

/// Creates or takes the interface, as `build` does, with the best offload that was not forbidden, and says once what is
/// missing.
pub(super) fn build_best<D: Deref<Target = DeviceImpl>>(
    options: &TunOptions,
    build: impl Fn(DeviceBuilder) -> io::Result<D>,
) -> Result<(D, Framing), TunError> {
    let name = &options.name;
    let build = |offload| build(builder(options, offload)).map_err(|error| open_error(name, error));
    if options.offload == Switch::Off {
        return Ok((build(false)?, Framing::Plain));
    }
    let missing = |why: String| {
        if options.offload == Switch::On {
            return Err(TunError::Offload { name: name.clone(), why });
        }
        tracing::warn!(
            tun = name,
            why,
            "no full TUN offload: packets pass one by one, which is slower; a newer kernel helps"
        );
        Ok(())
    };
    let device = match build(true) {
        Ok(device) => device,
        Err(error) if error.is_shortage() => return Err(error),
        Err(error) => {
            // Whatever else is wrong is wrong without offload too.
            let device = build(false)?;
            missing(error.to_string())?;
            return Ok((device, Framing::Plain));
        }
    };
    match probe(&device) {
        Ok(framing) => Ok((device, framing)),
        Err(errno) if is_shortage(errno) => Err(open_error(name, errno.into())),
        Err(errno) => {
            missing(format!("it refuses joined packets: {}", io::Error::from(errno)))?;
            Ok((device, Framing::Headers))
        }
    }
}

/// What of offload a device that was opened with it can do.
///
/// # Errors
/// It takes no joined packets.
fn probe(device: &DeviceImpl) -> Result<Framing, Errno> {
    probe::joined(device, TransportKind::Tcp)?;
    let udp = device.udp_gso() && probe::joined(device, TransportKind::Udp).is_ok();
    Ok(Framing::Joined { udp })
}

/// What a failed `open` means.
fn open_error(name: &str, source: io::Error) -> TunError {
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
    use crate::host::testing::Namespace;
    use std::cell::Cell;

    #[test]
    fn offload_that_was_demanded_and_is_missing_is_an_error_that_says_what_to_do() {
        let error = TunError::Offload { name: "rope0".to_owned(), why: "it says no".to_owned() };
        let said = error.to_string();
        for part in ["rope0", "tun_offload", "it says no", "\"auto\""] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_kernel_without_offload_or_that_refuses_joined_packets_is_found_out_at_the_start() {
        let Some(namespace) = Namespace::open() else { return };
        namespace.run(|| {
            let options = |offload| TunOptions { name: "rwprobe0".to_owned(), mtu: 1400, offload };
            let (auto, on, off) = (Switch::Auto, Switch::On, Switch::Off);
            // As the kernel is.
            for (offload, expected) in [(auto, true), (on, true), (off, false)] {
                let (_, framing) =
                    build_best(&options(offload), DeviceBuilder::build_sync).expect("a TUN");
                assert_eq!(matches!(framing, Framing::Joined { .. }), expected, "{offload:?}");
            }
            // It knows no headers: the first try fails.
            for (offload, tries, expected) in
                [(auto, 2, Some(Framing::Plain)), (on, 2, None), (off, 1, Some(Framing::Plain))]
            {
                let tried = Cell::new(0);
                let without = |builder: DeviceBuilder| {
                    tried.set(tried.get() + 1);
                    let is_lacking = offload != off && tried.get() == 1;
                    if is_lacking { Err(Errno::INVAL.into()) } else { builder.build_sync() }
                };
                let built = build_best(&options(offload), without);
                assert_eq!(
                    (built.map(|(_, framing)| framing).ok(), tried.get()),
                    (expected, tries),
                    "{offload:?}"
                );
            }
            // It takes nothing joined: what is written before the packet makes no sense to it.
            for (offload, expected) in
                [(auto, Some(Framing::Headers)), (on, None), (off, Some(Framing::Plain))]
            {
                let refusing = |builder: DeviceBuilder| builder.offload(false).build_sync();
                let built = build_best(&options(offload), refusing).map(|(_, framing)| framing);
                if let Err(error) = &built {
                    assert!(error.to_string().contains("tun_offload is \"on\""), "{error}");
                }
                assert_eq!(built.ok(), expected, "{offload:?}");
            }
        });
    }

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
