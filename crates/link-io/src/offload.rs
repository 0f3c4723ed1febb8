//! Whether work is left to the kernel that it can do for many packets at once.

use ropewalk_settings::Switch;

/// The wishes about datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UdpOffload {
    /// Sent in trains (`UDP_SEGMENT`).
    pub gso: Switch,
    /// Received in trains (`UDP_GRO`).
    pub gro: Switch,
}
