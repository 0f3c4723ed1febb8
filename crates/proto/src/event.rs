//! What the core tells its driver.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::crypto::Cipher;
use crate::fleet::FleetList;
use crate::path::Path;
use crate::time::Duration;
use crate::tunnel::Outage;
use crate::units::{LinkId, SessionIndex};
use crate::wire::frame::CloseReason;
use crate::wire::hello::MAX_VERSIONS;
use crate::wire::hello::answer::{Accept, Refusal};
use crate::wire::hello::parameters::MAX_NAME_SERVERS;

/// Something the user, the log, or the host's network wants to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A link carries packets.
    LinkUp(LinkId),
    /// A link carries none.
    LinkDown(LinkId, DownReason),
    /// Packets that were under way on a link went over others, and the first of them was confirmed.
    PacketsMoved(Outage),
    /// A link's peer has another address.
    PathMoved(LinkId, Path),
    /// The largest inner packet changed; bytes.
    InnerMtu(u16),
    /// Fresh keys are in use; the epoch.
    Rekeyed(u32),
    /// The peer ended the session, and was answered where it waits for that. Comes from a [`Tunnel`](crate::tunnel::Tunnel); the session owners
    /// turn it into [`SessionEnded`](Self::SessionEnded).
    Closed(CloseReason),
    /// A session is in use; its links are being opened.
    SessionEstablished(SessionInfo),
    /// The new session took the place of another with the same key, which was in use and is not this client's: the key
    /// is on two machines, or this one crashed. How long ago the proxy had heard of it (client only).
    Displaced(Duration),
    /// The session is over.
    SessionEnded(EndReason),
    /// The proxy refused a session (client only).
    Refused(Refusal),
    /// The proxy told of its fleet (client only).
    Fleet(FleetList),
    /// The client moves to another proxy of the fleet, and keeps this session for the flows that began in it (proxy only).
    Moving,
    /// The client asked for a speed test, or for more of one, or one is over: the owner takes into account what was used and decides. Comes
    /// from a proxy's [`Tunnel`](crate::tunnel::Tunnel); the [`Endpoint`](crate::endpoint::Endpoint) answers it.
    SpeedWish,
    /// The client began a speed test (proxy only). Of each key it is told once a minute, however many it begins.
    SpeedTest,
    /// The proxy says that it speaks other versions of the protocol (client only). Not authentic.
    OtherVersions(VersionList),
}

/// Versions of the protocol, as a proxy lists them.
pub type VersionList = ArrayVec<u8, MAX_VERSIONS>;

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The peer closed it.
    Closed(CloseReason),
    /// A newer session of the same key took its place.
    Replaced,
    /// A newer session of the same key with another proxy of the fleet took its place.
    Elsewhere,
    /// Nothing authentic came for half an hour.
    Idle,
    /// The peer was changed in the table.
    Withdrawn,
    /// The peer was taken out of the table.
    Removed,
    /// This end stops.
    Stopped,
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

/// What the handshake settled, seen from one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionInfo {
    /// This end's inner addresses, with the prefix of the tunnel's network; at most one of each family.
    pub own: ArrayVec<IpNet, 2>,
    /// The peer's.
    pub peer: ArrayVec<IpNet, 2>,
    /// What data is sealed with.
    pub cipher: Cipher,
    /// By which this end knows the session; it stands in clear in every datagram that comes in.
    pub index: SessionIndex,
    /// How many links the client announced; only the proxy is told.
    pub links: Option<u8>,
    /// Where the client may look up names.
    pub name_servers: ArrayVec<IpAddr, { 2 * MAX_NAME_SERVERS }>,
    /// The IPv6 network that the proxy routes to the client, for hosts behind it.
    pub network: Option<Ipv6Net>,
}

impl SessionInfo {
    /// As the client sees it.
    pub(crate) fn of_client(accept: &Accept, index: SessionIndex) -> Self {
        let (own, peer) = addresses(accept);
        Self {
            own,
            peer,
            cipher: accept.cipher,
            index,
            links: None,
            name_servers: name_servers(accept),
            network: accept.parameters.network,
        }
    }

    /// As the proxy sees it.
    pub(crate) fn of_proxy(accept: &Accept, links: Option<u8>) -> Self {
        let (peer, own) = addresses(accept);
        Self {
            own,
            peer,
            cipher: accept.cipher,
            index: accept.index,
            links,
            name_servers: name_servers(accept),
            network: accept.parameters.network,
        }
    }
}

fn name_servers(accept: &Accept) -> ArrayVec<IpAddr, { 2 * MAX_NAME_SERVERS }> {
    accept.parameters.name_servers.iter().collect()
}

/// The client's addresses and the proxy's, both with the prefix of the network they share.
fn addresses(accept: &Accept) -> (ArrayVec<IpNet, 2>, ArrayVec<IpNet, 2>) {
    let client_v4 = accept.inner_v4.map(IpNet::V4);
    let client_v6 = accept.inner_v6.map(IpNet::V6);
    let bits_v4 = accept.inner_v4.map_or(32, |net| net.prefix_len());
    let bits_v6 = accept.inner_v6.map_or(128, |net| net.prefix_len());
    let proxy_v4 = accept.proxy_v4.and_then(|own| Ipv4Net::new(own, bits_v4).ok()).map(IpNet::V4);
    let proxy_v6 = accept.proxy_v6.and_then(|own| Ipv6Net::new(own, bits_v6).ok()).map(IpNet::V6);
    (
        client_v4.into_iter().chain(client_v6).collect(),
        proxy_v4.into_iter().chain(proxy_v6).collect(),
    )
}
