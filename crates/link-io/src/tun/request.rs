//! What the ioctls of a TUN are asked with.

/// `struct ifreq` of linux/if.h with flags in its union.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct InterfaceRequest {
    /// The interface's name, behind which all bytes are zero.
    pub(super) name: [u8; 16],
    /// `IFF_TUN` and others of linux/if_tun.h.
    pub(super) flags: i16,
    /// The rest of the union.
    pub(super) rest: [u8; 22],
}
