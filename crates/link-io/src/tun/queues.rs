//! One TUN with a queue for each worker (`IFF_MULTI_QUEUE`).
//!
//! The kernel keeps a flow on the queue to which its last packet was *written*: so the worker that has a
//! client's session also reads what comes back. It forgets a flow to which nothing was written for three seconds; such a
//! flow, and one that begins on our side, comes by any queue that is attached.

use super::linux::{Framing, Origin, build_best, check_name, lengthen_queue};
use super::request::InterfaceRequest;
use super::{LinuxTun, TunError, TunOffload, TunOptions};
use ropewalk_settings::Switch;
use rustix::io::Errno;
use rustix::ioctl;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tun_rs::{AsyncDevice, DeviceBuilder, SyncDevice};

/// One queue of a TUN, that waits for the thread that is to drive it. The interface goes away with the last one.
pub struct TunQueue {
    device: SyncDevice,
    framing: Framing,
    attachment: Attachment,
    origin: Origin,
}

impl TunQueue {
    /// Opens an interface as [`LinuxTun::open`] does, with so many queues. Needs no runtime.
    ///
    /// # Errors
    /// [`TunError`]; [`TunError::OneQueue`] if there is a persistent TUN of this name that can have only one.
    pub fn open(options: &TunOptions, queues: u16) -> Result<Vec<Self>, TunError> {
        let name = &options.name;
        check_name(name)?;
        let several = queues > 1;
        let (first, framing) =
            match build_best(options, |builder| builder.multi_queue(several).build_sync()) {
                Ok(first) => first,
                Err(TunError::Name { .. }) if several && has_one_queue(options) => {
                    return Err(TunError::OneQueue { name: name.clone() });
                }
                Err(error) => return Err(error),
            };
        lengthen_queue(&first);
        let others = (1..queues).map(|_| first.try_clone());
        let others: Vec<_> = others.collect::<io::Result<_>>().map_err(|source| TunError::Io {
            name: name.clone(),
            action: "opening another queue",
            source,
        })?;
        let attached = Arc::new(AtomicU16::new(queues.max(1)));
        let all = std::iter::once(first).chain(others).map(|device| Self {
            device,
            framing,
            attachment: Attachment { is_attached: true, attached: Arc::clone(&attached) },
            origin: Origin { options: options.clone(), several },
        });
        Ok(all.collect())
    }

    /// Which offload it begins with.
    #[must_use]
    pub fn offload(&self) -> TunOffload {
        self.framing.offload()
    }

    /// Hands it to the runtime that this is called in.
    ///
    /// # Errors
    /// The runtime cannot wait for it.
    pub fn drive(self) -> Result<LinuxTun, TunError> {
        let device = AsyncDevice::new(self.device).map_err(|source| TunError::Io {
            name: "(new)".to_owned(),
            action: "registering with the runtime",
            source,
        })?;
        LinuxTun::from_device(device, self.framing, self.attachment, self.origin)
    }
}

/// Whether packets come by a queue.
#[derive(Debug)]
pub(super) struct Attachment {
    is_attached: bool,
    /// Queues of this TUN by which packets come.
    attached: Arc<AtomicU16>,
}

impl Attachment {
    /// That of the only queue.
    pub(super) fn of_one() -> Self {
        Self { is_attached: true, attached: Arc::new(AtomicU16::new(1)) }
    }

    /// Whether packets come by it.
    pub(super) const fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// The queue was opened again, and so is attached.
    pub(super) fn renew(&mut self) {
        if !std::mem::replace(&mut self.is_attached, true) {
            self.attached.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Attaches or detaches the queue `device`, unless it is so or the only one attached. A kernel that does not detach it
    /// leaves it as it is.
    ///
    /// # Errors
    /// It is not attached and cannot be.
    pub(super) fn set(&mut self, device: impl AsFd, attached: bool) -> Result<(), Errno> {
        if attached == self.is_attached {
            return Ok(());
        }
        if attached {
            attach(device, IFF_ATTACH_QUEUE)?;
            self.attached.fetch_add(1, Ordering::Relaxed);
        } else {
            // Two workers that detach at once: the one that finds no other queue left takes its step back.
            if self.attached.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.attached.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            if let Err(errno) = attach(device, IFF_DETACH_QUEUE) {
                tracing::debug!(%errno, "the queue stays attached");
                self.attached.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        }
        self.is_attached = attached;
        Ok(())
    }
}

// As in linux/if_tun.h.
const IFF_ATTACH_QUEUE: i16 = 0x0200;
const IFF_DETACH_QUEUE: i16 = 0x0400;

/// `TUNSETQUEUE`: of the request the kernel reads the flags alone.
fn attach(device: impl AsFd, flags: i16) -> Result<(), Errno> {
    const TUNSETQUEUE: ioctl::Opcode = ioctl::opcode::write::<std::ffi::c_int>(b'T', 217);
    let request = InterfaceRequest { name: [0; 16], flags, rest: [0; 22] };
    #[expect(unsafe_code, reason = "rustix knows no ioctl of a TUN")]
    // SAFETY: the descriptor is a TUN, and this ioctl reads a `struct ifreq`, which `InterfaceRequest` is.
    unsafe {
        ioctl::ioctl(device, ioctl::Setter::<TUNSETQUEUE, _>::new(request))
    }
}

/// Whether the interface can be opened, but not with several queues.
fn has_one_queue(options: &TunOptions) -> bool {
    let plain = TunOptions { offload: Switch::Off, ..options.clone() };
    build_best(&plain, DeviceBuilder::build_sync).is_ok()
}
