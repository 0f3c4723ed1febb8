//! Whether work is left to the kernel that it can do for many packets at once.

/// A wish about one offload.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Switch {
    /// Used where it works; the daemon goes without it where it does not.
    #[default]
    Auto,
    /// Used; it is an error if it does not work.
    On,
    /// Not used.
    Off,
}

/// The wishes about datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UdpOffload {
    /// Sent in trains (`UDP_SEGMENT`).
    pub gso: Switch,
    /// Received in trains (`UDP_GRO`).
    pub gro: Switch,
}
