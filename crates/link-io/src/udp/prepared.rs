//! Sockets that somebody else binds to a network before they are used, where a program may not do so itself: an app on
//! Android has `Network.bindSocket` and `VpnService.protect` for it.

use super::OpenError;
use super::socket::{Bound, create, io_error};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Does to a socket what must be done before it is used.
pub type Prepare<'a> = dyn FnMut(BorrowedFd<'_>) -> io::Result<()> + 'a;

impl Bound {
    /// Opens a socket at this address of ours, on the network to which `prepare` binds it; the port is the kernel's choice.
    ///
    /// # Errors
    /// [`OpenError::Network`], if `prepare` fails; or another one.
    pub fn prepared(source: IpAddr, prepare: &mut Prepare<'_>) -> Result<Self, OpenError> {
        let raw = create(source)?;
        prepare(raw.as_fd()).map_err(|source| OpenError::Network { source })?;
        Self::new(raw, SocketAddr::new(source, 0))
    }
}

/// Our address on the network to which `prepare` binds a socket, as the kernel would choose it for datagrams to `remote`.
/// Nothing is sent.
///
/// # Errors
/// [`OpenError::Network`], if `prepare` fails; [`OpenError::NoWay`], if that network leads nowhere in this address family.
pub fn source_towards(remote: SocketAddr, prepare: &mut Prepare<'_>) -> Result<IpAddr, OpenError> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let raw = create(any)?;
    prepare(raw.as_fd()).map_err(|source| OpenError::Network { source })?;
    raw.connect(&remote.into()).map_err(|source| OpenError::NoWay { remote, source })?;
    let local = raw.local_addr().map_err(|source| io_error("reading its address", source))?;
    let local = local.as_socket().map(|local| local.ip().to_canonical());
    local.ok_or_else(|| io_error("reading its address", io::ErrorKind::Unsupported.into()))
}
