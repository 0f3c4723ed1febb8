//! One end of an emulated link: a TAP device in some network namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::error::LabError;
use crate::tool;

/// Frames that the kernel keeps for the emulator while it is busy. The usual 1,000 are 12 ms at
/// 1 Gbit/s, too few for a thread that may be stopped for longer.
const KERNEL_QUEUE: u32 = 10_000;

/// Where a link ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The file of the network namespace, such as `/run/netns/NAME`; `None` is the caller's own.
    pub namespace: Option<PathBuf>,
    /// The name of the interface, at most 15 bytes. It is made, set up, and gone with the emulator.
    pub name: String,
    /// The hardware address; random if `None`. A known one lets the other end have a permanent
    /// neighbour entry, so that a long cut stays silent instead of ending in "no route to host".
    pub mac: Option<[u8; 6]>,
    /// The MTU of the interface (what its host may send), in bytes; 1500 if `None`.
    pub mtu: Option<u16>,
}

impl Port {
    /// A port with a random hardware address and an MTU of 1500.
    #[must_use]
    pub fn new(namespace: Option<PathBuf>, name: impl Into<String>) -> Self {
        Self { namespace, name: name.into(), mac: None, mtu: None }
    }

    /// Makes the device.
    pub(crate) fn open(&self) -> Result<SyncDevice, LabError> {
        self.inside(|| {
            let device = self.build().map_err(LabError::io(self.describe("making")))?;
            // The system call for this asks for the machine's administrator; netlink (through `ip`)
            // is content with the namespace's.
            let length = KERNEL_QUEUE.to_string();
            tool::run("ip", &["link", "set", "dev", &self.name, "txqueuelen", &length])?;
            Ok(device)
        })
    }

    fn build(&self) -> io::Result<SyncDevice> {
        let mut builder =
            DeviceBuilder::new().name(&self.name).layer(Layer::L2).mtu(self.mtu.unwrap_or(1500));
        if let Some(mac) = self.mac {
            builder = builder.mac_addr(mac);
        }
        // Without `offload` the kernel segments and completes checksums before a frame comes here.
        let device = builder.build_sync()?;
        device.set_nonblocking(true)?;
        Ok(device)
    }

    fn describe(&self, doing: &str) -> String {
        format!("{doing} the TAP device {}", self.name)
    }

    /// How many frames the kernel has thrown away because the emulator did not read them in time.
    pub(crate) fn kernel_drops(&self) -> Result<u64, LabError> {
        // The file of the thread shows its own namespace; /sys would show that of whoever mounted it.
        let table = self.inside(|| {
            fs::read_to_string("/proc/thread-self/net/dev")
                .map_err(LabError::io(self.describe("reading the counters of")))
        })?;
        transmit_drops(&table, &self.name).ok_or_else(|| LabError::Malformed {
            what: "the kernel's interface counters",
            text: table.lines().find(|line| line.contains(&self.name)).unwrap_or("").to_owned(),
        })
    }

    /// Runs `work` in the namespace, on a thread of its own: entering one is for the life of a thread.
    fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        let Some(namespace) = &self.namespace else { return work() };
        let entered =
            || enter(namespace).map_err(LabError::io(format!("entering {}", namespace.display())));
        thread::scope(|scope| {
            let outcome = scope.spawn(|| entered().and_then(|()| work())).join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn enter(namespace: &Path) -> io::Result<()> {
    let file = File::open(namespace)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// The column "transmit drop" of `/proc/net/dev`: the twelfth number behind the name.
fn transmit_drops(table: &str, name: &str) -> Option<u64> {
    let numbers =
        table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    numbers.split_ascii_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_counter_is_found_by_the_whole_name() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n\
             tap10: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n  \
             tap1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(transmit_drops(table, "tap1"), Some(12));
        assert_eq!(transmit_drops(table, "tap10"), Some(99));
        assert_eq!(transmit_drops(table, "tap"), None);
        assert_eq!(transmit_drops("tap1: 1 2", "tap1"), None);
    }
}
