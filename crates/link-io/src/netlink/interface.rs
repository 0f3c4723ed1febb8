//! Interfaces and their addresses.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope as KernelScope,
};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use super::error::or_gone;
use super::{Netlink, NetlinkError};

/// A network interface as the kernel has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number; a returning interface gets another one.
    pub index: u32,
    /// Its name, for example `wlan0`.
    pub name: String,
    /// Switched on by its administrator.
    pub up: bool,
    /// Its cable is in, its radio associated.
    pub carrier: bool,
    /// What kind of device it is.
    pub kind: Kind,
    /// The loopback interface.
    pub loopback: bool,
    /// One peer only (PPP, many cellular modems): needs no gateway address.
    pub point_to_point: bool,
    /// Largest IP packet it carries, bytes.
    pub mtu: u32,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// What kind of device an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel names no software kind for it: a network card or modem.
    Physical,
    /// A device made by software; its kind as in `ip -d link` (`veth`, `ppp`, `wireguard`, `tun`, ...).
    Virtual(String),
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address and the length of its prefix.
    pub net: IpNet,
    /// How far it can be used.
    pub scope: AddressScope,
    /// Duplicate detection has not finished, or found a duplicate: no socket can use it.
    pub tentative: bool,
    /// Its lifetime is nearly over: for old connections only.
    pub deprecated: bool,
    /// A short-lived privacy address (IPv6).
    pub temporary: bool,
}

/// How far an address can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressScope {
    /// Everywhere (private addresses count).
    Global,
    /// On its own link only.
    Link,
    /// On this machine only.
    Host,
}

impl Netlink {
    /// All interfaces with their addresses, in the order of their index.
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn interfaces(&self) -> Result<Vec<Interface>, NetlinkError> {
        let failed = |error| NetlinkError::during("list the interfaces", &error);
        let links: Vec<_> =
            self.handle.link().get().execute().try_collect().await.map_err(failed)?;
        let addresses: Vec<_> =
            self.handle.address().get().execute().try_collect().await.map_err(failed)?;
        let mut interfaces: Vec<Interface> = links.iter().map(interface_of).collect();
        interfaces.sort_by_key(|interface| interface.index);
        for message in &addresses {
            let Some(address) = address_of(message) else { continue };
            if let Ok(at) =
                interfaces.binary_search_by_key(&message.header.index, |known| known.index)
            {
                interfaces[at].addresses.push(address);
            }
        }
        Ok(interfaces)
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// [`NetlinkError::NoInterface`] if there is none.
    pub async fn interface(&self, name: &str) -> Result<Interface, NetlinkError> {
        let all = self.interfaces().await?;
        all.into_iter()
            .find(|interface| interface.name == name)
            .ok_or_else(|| NetlinkError::NoInterface(name.to_owned()))
    }

    /// Switches an interface on.
    ///
    /// # Errors
    /// When the interface is gone or the right is missing.
    pub async fn set_up(&self, index: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).up().build();
        self.change_link(message, &format!("switch on the interface number {index}")).await
    }

    /// Sets the largest IP packet of an interface, bytes.
    ///
    /// # Errors
    /// When the interface is gone, the kernel finds the size unfit, or the right is missing.
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        let what = format!("set the MTU of the interface number {index} to {mtu}");
        self.change_link(message, &what).await
    }

    async fn change_link(&self, message: LinkMessage, what: &str) -> Result<(), NetlinkError> {
        let done = self.handle.link().set(message).execute().await;
        done.map_err(|error| NetlinkError::during(what, &error))
    }

    /// Gives an interface an address, without a route to its prefix (routes are made on purpose, each with our protocol
    /// number) and without duplicate detection (inner addresses belong to the key). An address that is there is kept.
    ///
    /// # Errors
    /// When the interface is gone or the right is missing.
    pub async fn add_address(&self, index: u32, net: IpNet) -> Result<(), NetlinkError> {
        let mut request = self.handle.address().add(index, net.addr(), net.prefix_len()).replace();
        request
            .message_mut()
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Noprefixroute | AddressFlags::Nodad));
        let done = request.execute().await;
        done.map_err(|error| NetlinkError::during(format!("add the address {net}"), &error))
    }

    /// Gives an interface an address of the network on it, with the kernel's own route to that network, and without duplicate
    /// detection (who asks for it names it). An address that is there is kept.
    ///
    /// # Errors
    /// As [`Netlink::add_address`].
    pub async fn add_network(&self, index: u32, net: IpNet) -> Result<(), NetlinkError> {
        let mut request = self.handle.address().add(index, net.addr(), net.prefix_len()).replace();
        request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        let done = request.execute().await;
        done.map_err(|error| NetlinkError::during(format!("add the address {net}"), &error))
    }

    /// Takes an address away; one that is gone is fine.
    ///
    /// # Errors
    /// When the right is missing.
    pub async fn remove_address(&self, index: u32, net: IpNet) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = match net {
            IpNet::V4(_) => rtnetlink::packet_route::AddressFamily::Inet,
            IpNet::V6(_) => rtnetlink::packet_route::AddressFamily::Inet6,
        };
        message.header.index = index;
        message.header.prefix_len = net.prefix_len();
        message.attributes.push(AddressAttribute::Local(net.addr()));
        message.attributes.push(AddressAttribute::Address(net.addr()));
        let done = self.handle.address().del(message).execute().await;
        or_gone(
            done.map_err(|error| NetlinkError::during(format!("remove the address {net}"), &error)),
        )
    }
}

fn interface_of(message: &LinkMessage) -> Interface {
    let flags = message.header.flags;
    let mut interface = Interface {
        index: message.header.index,
        name: String::new(),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp) && flags.contains(LinkFlags::Running),
        kind: Kind::Physical,
        loopback: flags.contains(LinkFlags::Loopback),
        point_to_point: flags.contains(LinkFlags::Pointopoint),
        mtu: 0,
        addresses: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    if let LinkInfo::Kind(kind) = info {
                        interface.kind = Kind::Virtual(kind.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    interface
}

fn address_of(message: &AddressMessage) -> Option<Address> {
    let (mut address, mut local, mut flags) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(value) => address = Some(*value),
            AddressAttribute::Local(value) => local = Some(*value),
            AddressAttribute::Flags(value) => flags = Some(*value),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the peer and IFA_LOCAL is ours; IPv6 mostly has IFA_ADDRESS alone.
    let own: IpAddr = local.or(address)?;
    let header = message.header.flags;
    let has = |long: AddressFlags, short: AddressHeaderFlags| {
        flags.map_or(header.contains(short), |flags| flags.contains(long))
    };
    Some(Address {
        net: IpNet::new(own, message.header.prefix_len).ok()?,
        scope: match message.header.scope {
            KernelScope::Link => AddressScope::Link,
            KernelScope::Host | KernelScope::Nowhere => AddressScope::Host,
            _ => AddressScope::Global,
        },
        tentative: (has(AddressFlags::Tentative, AddressHeaderFlags::Tentative)
            && !has(AddressFlags::Optimistic, AddressHeaderFlags::Optimistic))
            || has(AddressFlags::Dadfailed, AddressHeaderFlags::Dadfailed),
        deprecated: has(AddressFlags::Deprecated, AddressHeaderFlags::Deprecated),
        // IFA_F_TEMPORARY and IFA_F_SECONDARY are one bit: temporary in IPv6, secondary in IPv4.
        temporary: own.is_ipv6() && has(AddressFlags::Secondary, AddressHeaderFlags::Secondary),
    })
}
