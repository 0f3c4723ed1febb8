//! What the core tells its driver.

use std::net::IpAddr;

use crate::path::Path;
use crate::units::LinkId;
use crate::wire::frame::CloseReason;

/// Something the user, the log, or the host's network wants to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A link carries packets.
    LinkUp(LinkId),
    /// A link carries none.
    LinkDown(LinkId, DownReason),
    /// A link's peer has another address.
    PathMoved(LinkId, Path),
    /// The largest inner packet changed; bytes.
    InnerMtu(u16),
    /// Fresh keys are in use; the epoch.
    Rekeyed(u32),
    /// The peer ended the session.
    Closed(CloseReason),
}

/// Why a link carries nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// Nothing is confirmed any more.
    NoAnswer,
    /// The peer took it out.
    Left,
    /// This end took it out.
    Removed,
}

/// What the proxy assigned to the client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InnerAddresses {
    /// The client's addresses.
    pub own: Vec<IpAddr>,
    /// The proxy's.
    pub peer: Vec<IpAddr>,
}
