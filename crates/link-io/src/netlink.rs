//! The kernel's network configuration over rtnetlink: interfaces, addresses, routes, rules, and news of them.
//!
//! The idea: everything that this program adds carries *its own protocol number* (`rtm_protocol` of a route,
//! `FRA_PROTOCOL` of a rule). So what a crashed run left behind is found by that number alone, without a file that
//! could be lost, and nothing that the user made is ever touched.
//!
//! The types here ([`Interface`], [`Route`], [`Rule`]) are plain values with equality, so that a caller can compute
//! "what is wanted minus what is there" as a set difference. Reading a route back gives the value that was added.
//!
//! Events ([`Events`]) say only *that* something changed, never what: the kernel drops messages when the reader is slow
//! (`ENOBUFS`), so whoever hears of a change reads the state again.

mod error;
mod event;
mod found;
mod interface;
mod lane;
mod route;
mod rule;

use rtnetlink::Handle;
use tokio::task::JoinHandle;

pub use self::error::NetlinkError;
pub use self::event::{Changes, Events};
pub use self::found::{FoundRoute, Hop};
pub use self::interface::{Address, AddressScope, Interface, Kind};
pub use self::lane::{Lane, Root};
pub use self::route::{Destination, Gateway, Route, Target};
pub use self::rule::{Rule, RuleAction};

/// The protocol number of routes and rules made by the client.
///
/// 114 (`'r'`) is used by no routing daemon known to iproute2's `rt_protos` or to FRR (which hold 186 to 199), so that
/// cleaning up by number hits nothing else.
pub const CLIENT_PROTOCOL: u8 = 114;

/// The protocol number of routes made by the proxy: another one than the client's, so that both can run on one machine.
pub const PROXY_PROTOCOL: u8 = 115;

/// The table that `ip route` shows by itself.
pub const MAIN_TABLE: u32 = 254;

/// The table that the kernel keeps itself, of the host's own addresses.
pub const LOCAL_TABLE: u32 = 255;

/// IPv4 or IPv6, where a route or rule exists once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which they are configured.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address or prefix.
    #[must_use]
    pub fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The prefix that holds every address.
    #[must_use]
    pub fn everything(self) -> ipnet::IpNet {
        match self {
            Self::V4 => ipnet::Ipv4Net::default().into(),
            Self::V6 => ipnet::Ipv6Net::default().into(),
        }
    }
}

/// A connection to the kernel for requests, in the network namespace of the thread that opened it.
///
/// Must be opened and used inside a tokio runtime: a small task there carries the messages.
#[derive(Debug)]
pub struct Netlink {
    handle: Handle,
    carrier: JoinHandle<()>,
}

impl Netlink {
    /// Opens the connection.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] if the kernel gives no socket.
    pub fn open() -> Result<Self, NetlinkError> {
        // The strict check lets the kernel filter dumps by protocol and table: on a router with a full Internet table
        // that is the difference between a handful and a million messages. Kernels before 4.20 lack it; every list
        // here is filtered a second time, so the plain connection gives the same answers.
        let (connection, handle, _unsolicited) = rtnetlink::new_connection_with_strict_check()
            .or_else(|_| rtnetlink::new_connection())
            .map_err(NetlinkError::Open)?;
        Ok(Self { handle, carrier: tokio::spawn(connection) })
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}
