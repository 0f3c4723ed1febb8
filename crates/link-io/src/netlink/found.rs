//! Routes that somebody else made, kept as the kernel gave them, so that they can be copied into a table of ours.
//!
//! [`Route`](super::Route) holds what we make ourselves. A route of the user's or of another program can have several next
//! hops, a preferred source, metrics and more; a copy that lost one of them would be another route. So the kernel's own
//! message is kept whole, and only the table and the protocol number are changed.

use std::cmp::Ordering;
use std::net::IpAddr;

use futures_util::StreamExt as _;
use ipnet::IpNet;
use rtnetlink::packet_core::{
    Emitable as _, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHopFlags, RouteProtocol,
    RouteType,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::error::{or_gone, or_present};
use super::route::{Parts, table_of};
use super::{Family, Netlink, NetlinkError};

/// A route as it was found.
#[derive(Clone, Debug)]
pub struct FoundRoute {
    /// Where packets go that it matches.
    pub destination: IpNet,
    /// The table it stands in.
    pub table: u32,
    /// Who made it (`rtm_protocol`).
    pub protocol: u8,
    /// Where it sends to; none for a route that refuses or drops.
    pub hops: Vec<Hop>,
    message: RouteMessage,
}

/// A next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The interface's index.
    pub index: u32,
    /// The router; none where the destination itself is the neighbour.
    pub gateway: Option<IpAddr>,
}

/// Two are equal if the kernel would do the same with them.
impl PartialEq for FoundRoute {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for FoundRoute {}

impl PartialOrd for FoundRoute {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Routes without a router come first: the router of another route may be a neighbour by one of them.
impl Ord for FoundRoute {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl FoundRoute {
    /// This route in another table, with another protocol number.
    #[must_use]
    pub fn copied(&self, table: u32, protocol: u8) -> Self {
        let mut message = self.message.clone();
        message.header.protocol = RouteProtocol::from(protocol);
        normalize(&mut message, table);
        Self { table, protocol, message, ..self.clone() }
    }

    fn of(mut message: RouteMessage) -> Option<Self> {
        let family = match message.header.address_family {
            AddressFamily::Inet => Family::V4,
            AddressFamily::Inet6 => Family::V6,
            _ => return None,
        };
        if message.header.flags.contains(RouteFlags::Cloned) {
            return None;
        }
        let parts = Parts::of(&message.attributes);
        let length = message.header.destination_prefix_length;
        let destination = match parts.destination {
            Some(address) => IpNet::new(address, length).ok()?,
            None if length == 0 => family.everything(),
            None => return None,
        };
        let mut hops: Vec<Hop> = Vec::new();
        match message.header.kind {
            RouteType::Unicast => {
                let single = parts.index.map(|index| Hop { index, gateway: parts.gateway });
                hops.extend(single);
                for attribute in &message.attributes {
                    let RouteAttribute::MultiPath(several) = attribute else { continue };
                    hops.extend(several.iter().map(|hop| Hop {
                        index: hop.interface_index,
                        gateway: Parts::of(&hop.attributes).gateway,
                    }));
                }
                if hops.is_empty() {
                    return None;
                }
            }
            RouteType::Unreachable
            | RouteType::BlackHole
            | RouteType::Prohibit
            | RouteType::Throw => {}
            _ => return None,
        }
        let (table, protocol) =
            (table_of(&message.header, &parts), u8::from(message.header.protocol));
        normalize(&mut message, table);
        Some(Self { destination, table, protocol, hops, message })
    }

    fn key(&self) -> (bool, Vec<u8>) {
        let mut bytes = vec![0; self.message.buffer_len()];
        self.message.emit(&mut bytes);
        (self.hops.iter().any(|hop| hop.gateway.is_some()), bytes)
    }
}

/// Leaves what the kernel takes: its state of the moment goes, and of a next hop that is an object of its own only that.
fn normalize(message: &mut RouteMessage, table: u32) {
    message.header.flags &= RouteFlags::Onlink;
    // The header has room for small numbers only.
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Table(_)));
    message.attributes.push(RouteAttribute::Table(table));
    let by_object = message.attributes.iter().any(|one| matches!(one, RouteAttribute::NhId(_)));
    message.attributes.retain(|attribute| match attribute {
        RouteAttribute::CacheInfo(_)
        | RouteAttribute::Expires(_)
        | RouteAttribute::MulticastExpires(_) => false,
        RouteAttribute::Oif(_)
        | RouteAttribute::Gateway(_)
        | RouteAttribute::Via(_)
        | RouteAttribute::MultiPath(_) => !by_object,
        _ => true,
    });
    for attribute in &mut message.attributes {
        let RouteAttribute::MultiPath(hops) = attribute else { continue };
        for hop in hops {
            hop.flags &= RouteNextHopFlags::Onlink;
        }
    }
    // A set: in which order the kernel writes them says nothing.
    message.attributes.sort_by_key(|attribute| {
        let mut bytes = vec![0; attribute.buffer_len()];
        attribute.emit(&mut bytes);
        bytes
    });
}

impl Netlink {
    /// All routes of this table in both families, sorted.
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn routes_in(&self, table: u32) -> Result<Vec<FoundRoute>, NetlinkError> {
        let mut found = Vec::new();
        for family in Family::BOTH {
            let messages = self.dump_routes(family, None).await?;
            found.extend(
                messages.into_iter().filter_map(FoundRoute::of).filter(|one| one.table == table),
            );
        }
        found.sort();
        Ok(found)
    }

    /// Puts a [copy](FoundRoute::copied) in place, beside others to the same destination; one that is there already is fine.
    ///
    /// # Errors
    /// When the interface is down or gone, or the right is missing.
    pub async fn add_copy(&self, copy: &FoundRoute) -> Result<(), NetlinkError> {
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewRoute(copy.message.clone()));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND;
        let during = |error: &rtnetlink::Error| {
            NetlinkError::during(format!("copy the route {copy}"), error)
        };
        let mut answers = self.handle.clone().request(request).map_err(|error| during(&error))?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload
                && error.code.is_some()
            {
                return or_present(Err(during(&rtnetlink::Error::NetlinkError(error))));
            }
        }
        Ok(())
    }

    /// Removes a copy; one that is gone is fine.
    ///
    /// # Errors
    /// When the right is missing.
    pub async fn remove_copy(&self, copy: &FoundRoute) -> Result<(), NetlinkError> {
        let done = self.handle.route().del(copy.message.clone()).execute().await;
        or_gone(
            done.map_err(|error| NetlinkError::during(format!("remove the route {copy}"), &error)),
        )
    }
}

impl std::fmt::Display for FoundRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in table {}", self.destination, self.table)
    }
}
