//! One TUN with a queue for each worker (`IFF_MULTI_QUEUE`).
//!
//! The kernel keeps a flow on the queue to which its last packet was *written*: so the worker that has a
//! client's session also reads what comes back. A flow that begins on our side comes by any queue.

use super::linux::{Framing, build_best, check_name, lengthen_queue};
use super::{LinuxTun, TunError, TunOffload, TunOptions};
use crate::offload::Switch;
use std::io;
use tun_rs::{AsyncDevice, DeviceBuilder, SyncDevice};

/// One queue of a TUN, that waits for the thread that is to drive it. The interface goes away with the last one.
pub struct TunQueue {
    device: SyncDevice,
    framing: Framing,
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
        let all = std::iter::once(first).chain(others);
        Ok(all.map(|device| Self { device, framing }).collect())
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
        LinuxTun::from_device(device, self.framing)
    }
}

/// Whether the interface can be opened, but not with several queues.
fn has_one_queue(options: &TunOptions) -> bool {
    let plain = TunOptions { offload: Switch::Off, ..options.clone() };
    build_best(&plain, DeviceBuilder::build_sync).is_ok()
}
