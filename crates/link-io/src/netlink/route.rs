//! Routes: one table entry as a value that compares equal to what the kernel gives back.

use std::fmt;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};

use super::error::{or_gone, or_present};
use super::{Family, Netlink, NetlinkError};

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Where packets go that it matches.
    pub destination: IpNet,
    /// The table it stands in.
    pub table: u32,
    /// Smaller is preferred among routes to the same prefix. Must not be 0: the kernel makes 1024 of it for IPv6, and
    /// the route would not read back as it was written.
    pub metric: u32,
    /// What happens to the packets.
    pub target: Target,
    /// Who made it; ours carry [`super::CLIENT_PROTOCOL`] or [`super::PROXY_PROTOCOL`].
    pub protocol: u8,
    /// Largest packet on this route, bytes, if smaller than the interface's.
    pub mtu: Option<u32>,
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Sends by an interface.
    Interface {
        /// The interface's index.
        index: u32,
        /// The router to hand the packet to; none on a link where the destination itself is the neighbour. An IPv4
        /// route may name an IPv6 router (RFC 8950).
        gateway: Option<IpAddr>,
        /// Believe that the gateway is a neighbour even if no prefix of the interface holds it.
        onlink: bool,
    },
    /// Answers with "unreachable".
    Unreachable,
    /// Drops silently.
    Blackhole,
}

/// What a route is for, of whatever kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where packets go that it matches.
    pub destination: IpNet,
    /// The table it stands in.
    pub table: u32,
    /// Who made it.
    pub protocol: u8,
    /// The interface's index; none for a route that drops packets, or that has several interfaces.
    pub interface: Option<u32>,
}

/// The default way out of an interface, as found in somebody's routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// IPv4 or IPv6 packets.
    pub family: Family,
    /// The interface.
    pub index: u32,
    /// The router, or none on a point-to-point link.
    pub via: Option<IpAddr>,
    /// The route's metric; smaller is preferred.
    pub metric: u32,
    /// The table it was found in.
    pub table: u32,
    /// The protocol number of the route it was found in (9 is a router advertisement).
    pub protocol: u8,
}

/// Wide enough for any host: nobody has more default routes than this, and a list that is longer is cut.
const MAX_GATEWAYS: usize = 256;

impl Netlink {
    /// All routes of this protocol number, sorted.
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn routes_of(&self, protocol: u8) -> Result<Vec<Route>, NetlinkError> {
        let mut found = Vec::new();
        for family in Family::BOTH {
            let messages = self.dump_routes(family, Some(protocol)).await?;
            found.extend(
                messages.iter().filter_map(route_of).filter(|route| route.protocol == protocol),
            );
        }
        found.sort();
        Ok(found)
    }

    /// The default ways out of every interface, in every table, except those made by `except` (our own protocol
    /// number): the best first (main table before others, then by metric).
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn gateways(&self, except: u8) -> Result<Vec<Gateway>, NetlinkError> {
        let mut found = Vec::new();
        for family in Family::BOTH {
            for message in self.dump_routes(family, None).await? {
                if u8::from(message.header.protocol) != except {
                    gateways_of(family, &message, &mut found);
                }
            }
        }
        found.sort_by_key(|gateway| (gateway.table != super::MAIN_TABLE, gateway.metric));
        found.truncate(MAX_GATEWAYS);
        Ok(found)
    }

    /// Where the routes of all tables lead, whoever made them and whatever they do with the packets.
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn destinations(&self) -> Result<Vec<Destination>, NetlinkError> {
        let mut found = Vec::new();
        for family in Family::BOTH {
            let messages = self.dump_routes(family, None).await?;
            found.extend(messages.iter().filter_map(|message| destination_of(family, message)));
        }
        Ok(found)
    }

    /// Adds a route; one that is there already is fine.
    ///
    /// # Errors
    /// When the interface is down or gone, the gateway is not acceptable, or the right is missing.
    pub async fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let done = self.handle.route().add(message_of(route)).execute().await;
        or_present(
            done.map_err(|error| NetlinkError::during(format!("add the route {route}"), &error)),
        )
    }

    /// Adds a route, or changes the one that has the same destination, table and metric.
    ///
    /// # Errors
    /// As [`Netlink::add_route`].
    pub async fn replace_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let done = self.handle.route().add(message_of(route)).replace().execute().await;
        done.map_err(|error| NetlinkError::during(format!("set the route {route}"), &error))
    }

    /// Removes a route; one that is gone is fine.
    ///
    /// # Errors
    /// When the right is missing.
    pub async fn remove_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let done = self.handle.route().del(message_of(route)).execute().await;
        or_gone(
            done.map_err(|error| NetlinkError::during(format!("remove the route {route}"), &error)),
        )
    }

    pub(super) async fn dump_routes(
        &self,
        family: Family,
        protocol: Option<u8>,
    ) -> Result<Vec<RouteMessage>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = kernel_family(family);
        message.header.kind = RouteType::Unspec;
        message.header.protocol = protocol.map_or(RouteProtocol::Unspec, RouteProtocol::from);
        let list = self.handle.route().get(message).execute().try_collect().await;
        list.map_err(|error| NetlinkError::during("list the routes", &error))
    }
}

fn kernel_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn message_of(route: &Route) -> RouteMessage {
    let builder = RouteMessageBuilder::<IpAddr>::default()
        .table_id(route.table)
        .priority(route.metric)
        .protocol(RouteProtocol::from(route.protocol));
    let mut builder = match route.target {
        Target::Interface { index, gateway: None, .. } => {
            // IPv4 refuses a route of wider scope than "link" without a gateway on some devices; IPv6 ignores scopes.
            builder.output_interface(index).scope(RouteScope::Link)
        }
        Target::Interface { index, gateway: Some(_), onlink } => {
            let builder = builder.output_interface(index);
            if onlink { builder.onlink() } else { builder }
        }
        Target::Unreachable => builder.kind(RouteType::Unreachable),
        Target::Blackhole => builder.kind(RouteType::BlackHole),
    };
    let message = builder.get_mut();
    message.header.address_family = kernel_family(Family::of(route.destination.addr()));
    message.header.destination_prefix_length = route.destination.prefix_len();
    if route.destination.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(route.destination.network().into()));
    }
    if let Target::Interface { gateway: Some(gateway), .. } = route.target {
        message.attributes.push(match (route.destination, gateway) {
            (IpNet::V4(_), IpAddr::V6(via)) => RouteAttribute::Via(RouteVia::Inet6(via)),
            _ => RouteAttribute::Gateway(gateway.into()),
        });
    }
    if let Some(mtu) = route.mtu {
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    builder.build()
}

fn route_of(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let family = match header.address_family {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    // Entries of the IPv6 route cache (a learned path MTU, for example) are not configuration.
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let parts = Parts::of(&message.attributes);
    let destination = match parts.destination {
        Some(address) => IpNet::new(address, header.destination_prefix_length).ok()?,
        None if header.destination_prefix_length == 0 => family.everything(),
        None => return None,
    };
    let target = match header.kind {
        RouteType::Unicast => Target::Interface {
            index: parts.index?,
            gateway: parts.gateway,
            onlink: header.flags.contains(RouteFlags::Onlink),
        },
        RouteType::Unreachable => Target::Unreachable,
        RouteType::BlackHole => Target::Blackhole,
        _ => return None,
    };
    Some(Route {
        destination,
        table: table_of(header, &parts),
        metric: parts.metric,
        target,
        protocol: header.protocol.into(),
        mtu: parts.mtu,
    })
}

fn destination_of(family: Family, message: &RouteMessage) -> Option<Destination> {
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let parts = Parts::of(&message.attributes);
    let address = parts.destination.unwrap_or(family.everything().addr());
    Some(Destination {
        destination: IpNet::new(address, header.destination_prefix_length).ok()?,
        table: table_of(header, &parts),
        protocol: header.protocol.into(),
        interface: parts.index,
    })
}

fn gateways_of(family: Family, message: &RouteMessage, found: &mut Vec<Gateway>) {
    let header = &message.header;
    if header.kind != RouteType::Unicast
        || header.destination_prefix_length != 0
        || header.flags.contains(RouteFlags::Cloned)
    {
        return;
    }
    let parts = Parts::of(&message.attributes);
    let gateway = |index, via| Gateway {
        family,
        index,
        via,
        metric: parts.metric,
        table: table_of(header, &parts),
        protocol: header.protocol.into(),
    };
    if let Some(index) = parts.index {
        found.push(gateway(index, parts.gateway));
    }
    for attribute in &message.attributes {
        let RouteAttribute::MultiPath(hops) = attribute else { continue };
        for hop in hops {
            found.push(gateway(hop.interface_index, Parts::of(&hop.attributes).gateway));
        }
    }
}

pub(super) fn table_of(header: &RouteHeader, parts: &Parts) -> u32 {
    parts.table.unwrap_or_else(|| header.table.into())
}

/// The attributes of a route that matter here.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) destination: Option<IpAddr>,
    pub(super) index: Option<u32>,
    pub(super) gateway: Option<IpAddr>,
    table: Option<u32>,
    metric: u32,
    mtu: Option<u32>,
}

impl Parts {
    pub(super) fn of(attributes: &[RouteAttribute]) -> Self {
        let mut parts = Self::default();
        for attribute in attributes {
            match attribute {
                RouteAttribute::Destination(address) => parts.destination = ip(address),
                RouteAttribute::Oif(index) => parts.index = Some(*index),
                RouteAttribute::Gateway(address) => parts.gateway = ip(address),
                RouteAttribute::Via(RouteVia::Inet(address)) => {
                    parts.gateway = Some((*address).into());
                }
                RouteAttribute::Via(RouteVia::Inet6(address)) => {
                    parts.gateway = Some((*address).into());
                }
                RouteAttribute::Table(table) => parts.table = Some(*table),
                RouteAttribute::Priority(metric) => parts.metric = *metric,
                RouteAttribute::Metrics(metrics) => {
                    parts.mtu = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) => Some(*mtu),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        parts
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Target::Interface { index, gateway, .. } => {
                write!(f, "{}", self.destination)?;
                if let Some(gateway) = gateway {
                    write!(f, " via {gateway}")?;
                }
                write!(f, " by the interface number {index}")?;
            }
            Target::Unreachable => write!(f, "unreachable {}", self.destination)?,
            Target::Blackhole => write!(f, "blackhole {}", self.destination)?,
        }
        write!(f, " in table {}", self.table)
    }
}
