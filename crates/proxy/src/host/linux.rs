//! The host's network on Linux: guard and client routes over rtnetlink, one nftables table, and forwarding.
//!
//! The order of `apply` keeps every moment safe: first the guard, then the firewall table, then forwarding, last the TUN and
//! the clients' routes.
//!
//! Three kernel settings may be switched, and what was switched is remembered *before* in sets of the firewall table, so
//! that a crashed run's switches are found too:
//!
//! * `net.ipv4.ip_forward` and, where clients have IPv6, `net.ipv6.conf.all.forwarding`;
//! * `accept_ra` of interfaces whose IPv6 default route comes from router advertisements: a forwarding host ignores these
//!   unless the value is 2, and would lose its own IPv6 within minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::Context;
use ropewalk_link_io::netlink::{
    AddressScope, Family, Gateway, Interface, Netlink, PROXY_PROTOCOL,
};
use ropewalk_link_io::nft::{NftError, Table, is_plain_name};
use ropewalk_link_io::sysctl;

use super::{Desired, HostNetwork, Ipv6, Outcome};
use crate::{guard, nat};

/// The name of the proxy's nftables table.
pub const TABLE: &str = "ropewalk_proxy";

/// The proxy's hold on the network of a Linux host.
#[derive(Debug)]
pub struct LinuxNetwork {
    netlink: Netlink,
    table: Table,
    switched: Switched,
    tun: Option<u32>,
    clients: BTreeMap<IpAddr, u32>,
}

/// The settings that we changed, each from the value that it goes back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Switched {
    /// Forwarding, from 0 to 1: `ipv4`, `ipv6`.
    forwarding: BTreeSet<String>,
    /// Interfaces whose `accept_ra` went from 1 to 2.
    accept_ra: BTreeSet<String>,
}

const FORWARDING: &str = "forwarding_switched_on";
const ACCEPT_RA: &str = "accept_ra_switched_to_2";

/// More names than these are remembered only of interfaces that are there: names may come without end (usb0, usb1, ...).
const MAX_REMEMBERED: usize = 64;

/// The protocol number of routes from router advertisements.
const RTPROT_RA: u8 = 9;

impl LinuxNetwork {
    /// Takes hold. What an earlier proxy left behind is taken over, not torn down: open connections go on.
    ///
    /// # Errors
    /// When `nft` or the right is missing (the remedy is named) or the kernel refuses.
    pub async fn open() -> anyhow::Result<Self> {
        Self::open_with(Table::new(TABLE)).await
    }

    /// The same with a given handle on the firewall table, for an `nft` in an unusual place.
    ///
    /// # Errors
    /// As [`LinuxNetwork::open`].
    pub async fn open_with(table: Table) -> anyhow::Result<Self> {
        let netlink = Netlink::open()?;
        let switched = Switched {
            forwarding: table.set_elements(FORWARDING).await?.into_iter().collect(),
            accept_ra: table.set_elements(ACCEPT_RA).await?.into_iter().collect(),
        };
        Ok(Self { netlink, table, switched, tun: None, clients: BTreeMap::new() })
    }

    /// Settings that must be switched, or already are by us.
    fn wanted(&self, desired: &Desired, uplinks: &[String]) -> Switched {
        let mut wanted = Switched::default();
        for (family, key, needed) in forwarding_keys(desired.ipv6) {
            if needed && (self.switched.forwarding.contains(family) || is(key, 0)) {
                wanted.forwarding.insert(family.to_owned());
            }
        }
        if wanted.forwarding.contains("ipv6") {
            // An uplink whose route is lost for a while, or that is gone and returns, is still one: with 1 it would never
            // learn its route again.
            wanted.accept_ra.clone_from(&self.switched.accept_ra);
            wanted.accept_ra.extend(uplinks.iter().filter(|name| is(&accept_ra(name), 1)).cloned());
            if wanted.accept_ra.len() > MAX_REMEMBERED {
                wanted.accept_ra.retain(|name| is_there(&accept_ra(name)));
            }
        }
        wanted
    }

    /// Names of interfaces that have their IPv6 default route from router advertisements.
    async fn advertised_uplinks(&self) -> anyhow::Result<Vec<String>> {
        let gateways = self.netlink.gateways(PROXY_PROTOCOL).await?;
        let learned =
            |gateway: &&Gateway| gateway.family == Family::V6 && gateway.protocol == RTPROT_RA;
        let learned: BTreeSet<u32> =
            gateways.iter().filter(learned).map(|gateway| gateway.index).collect();
        let interfaces = self.netlink.interfaces().await?;
        let named = interfaces.into_iter().filter(|found| learned.contains(&found.index));
        Ok(named.map(|found| found.name).filter(|name| is_plain_name(name)).collect())
    }

    /// Puts the table with `chains` in place and switches the settings to `wanted`, remembering first.
    async fn apply_table(&mut self, chains: &str, wanted: Switched) -> anyhow::Result<bool> {
        let known = self.switched.union(&wanted);
        let mut changed = self.table.apply(&body(&known, chains)).await?;
        // Before forwarding: at that moment the kernel forgets what advertisements taught it.
        for key in wanted.accept_ra.iter().map(|name| accept_ra(name)).filter(|key| is(key, 1)) {
            sysctl::write(&key, "2")?;
            changed = true;
        }
        for family in &wanted.forwarding {
            if let Some(key) = forwarding_key(family).filter(|key| is(key, 0)) {
                sysctl::write(key, "1")?;
                changed = true;
            }
        }
        for family in self.switched.forwarding.difference(&wanted.forwarding) {
            if let Some(key) = forwarding_key(family) {
                sysctl::write(key, "0")?;
                changed = true;
            }
        }
        for name in self.switched.accept_ra.difference(&wanted.accept_ra) {
            // An interface that is gone took its setting with it.
            if is_plain_name(name) && is(&accept_ra(name), 2) {
                sysctl::write(&accept_ra(name), "1")?;
                changed = true;
            }
        }
        if known != wanted {
            changed |= self.table.apply(&body(&wanted, chains)).await?;
        }
        self.switched = wanted;
        Ok(changed)
    }

    async fn apply_tun(&self, desired: &Desired) -> anyhow::Result<(u32, bool)> {
        let now = self.netlink.interface(&desired.tun).await?;
        let mut changed = false;
        if now.mtu != desired.mtu {
            self.netlink.set_mtu(now.index, desired.mtu).await?;
            changed = true;
        }
        for old in now.addresses.iter().filter(|old| old.scope == AddressScope::Global) {
            if !desired.own.contains(&old.net.addr()) {
                self.netlink.remove_address(now.index, old.net).await?;
                changed = true;
            }
        }
        for own in &desired.own {
            if !now.addresses.iter().any(|old| old.net.addr() == *own) {
                self.netlink.add_address(now.index, (*own).into()).await?;
                changed = true;
            }
        }
        if !now.up {
            self.netlink.set_up(now.index).await?;
            changed = true;
        }
        Ok((now.index, changed))
    }

    /// Makes our routes these and no others.
    async fn apply_routes(
        &self,
        wanted: &BTreeSet<ropewalk_link_io::netlink::Route>,
    ) -> anyhow::Result<bool> {
        let now: BTreeSet<_> = self.netlink.routes_of(PROXY_PROTOCOL).await?.into_iter().collect();
        for route in wanted.difference(&now) {
            self.netlink.replace_route(route).await?;
        }
        for route in now.difference(wanted) {
            self.netlink.remove_route(route).await?;
        }
        Ok(*wanted != now)
    }

    /// Other firewalls that would hold the clients' packets up, in words.
    async fn warnings(&self, tun: &str) -> Vec<String> {
        // Only advice: where it cannot be had, the proxy works all the same.
        let drops = self.table.foreign_forward_drops().await.unwrap_or_default();
        drops
            .into_iter()
            .map(|chain| {
                format!(
                    "the firewall chain \"{chain}\" drops forwarded packets by default (Docker and ufw do this): allow \
                     {tun} there, for example: iptables -I FORWARD -i {tun} -j ACCEPT; \
                     iptables -I FORWARD -o {tun} -j ACCEPT"
                )
            })
            .collect()
    }
}

impl HostNetwork for LinuxNetwork {
    async fn has_ipv6_uplink(&self, tun: &str) -> anyhow::Result<bool> {
        let interfaces = self.netlink.interfaces().await?;
        let other = |index: u32| {
            interfaces.iter().any(|found| {
                found.index == index && found.name != tun && !found.loopback && found.up
            })
        };
        let gateways = self.netlink.gateways(PROXY_PROTOCOL).await?;
        Ok(gateways.iter().any(|gateway| gateway.family == Family::V6 && other(gateway.index)))
    }

    async fn uplinks(&self, tun: &str) -> anyhow::Result<Vec<String>> {
        let gateways = self.netlink.gateways(PROXY_PROTOCOL).await?;
        let leads_out: BTreeSet<u32> = gateways.iter().map(|gateway| gateway.index).collect();
        let interfaces = self.netlink.interfaces().await?;
        let uplink = |found: &Interface| {
            leads_out.contains(&found.index) && found.name != tun && !found.loopback
        };
        Ok(interfaces.into_iter().filter(uplink).map(|found| found.name).collect())
    }

    async fn apply(&mut self, desired: &Desired) -> anyhow::Result<Outcome> {
        for name in desired.uplinks.iter().chain([&desired.tun]) {
            anyhow::ensure!(
                is_plain_name(name),
                "the interface name {name:?} cannot be used in firewall rules"
            );
        }
        let guards = guard::guards(&desired.inner);
        for guard in &guards {
            self.netlink.replace_route(guard).await.context("cannot guard the inner prefixes")?;
        }
        let wanted = self.wanted(desired, &self.advertised_uplinks().await?);
        let mut changed = self.apply_table(&nat::chains(desired), wanted).await?;
        let (tun, tun_changed) = self.apply_tun(desired).await?;
        self.tun = Some(tun);
        let mut routes = guard::client_routes(tun, &self.clients);
        routes.extend(guards);
        changed |= tun_changed | self.apply_routes(&routes).await?;
        Ok(Outcome { changed, warnings: self.warnings(&desired.tun).await })
    }

    async fn set_client(&mut self, inner: IpAddr, mtu: u32) -> anyhow::Result<()> {
        let tun = self.tun.context("the TUN is not set up yet")?;
        if self.clients.insert(inner, mtu) != Some(mtu) {
            self.netlink.replace_route(&guard::client_route(tun, inner, mtu)).await?;
        }
        Ok(())
    }

    async fn remove_client(&mut self, inner: IpAddr) -> anyhow::Result<()> {
        let (Some(tun), Some(mtu)) = (self.tun, self.clients.remove(&inner)) else {
            return Ok(());
        };
        self.netlink.remove_route(&guard::client_route(tun, inner, mtu)).await?;
        Ok(())
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        for route in self.netlink.routes_of(PROXY_PROTOCOL).await? {
            if !guard::is_guard(&route) {
                self.netlink.remove_route(&route).await?;
            }
        }
        self.clients.clear();
        self.apply_table(&nat::chains_at_rest(), Switched::default()).await?;
        Ok(())
    }

    async fn purge(&mut self) -> anyhow::Result<()> {
        self.apply_table(&nat::chains_at_rest(), Switched::default()).await?;
        self.clients.clear();
        match self.table.remove().await {
            Ok(_) | Err(NftError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.apply_routes(&BTreeSet::new()).await?;
        Ok(())
    }
}

impl Switched {
    fn union(&self, other: &Self) -> Self {
        Self {
            forwarding: self.forwarding.union(&other.forwarding).cloned().collect(),
            accept_ra: self.accept_ra.union(&other.accept_ra).cloned().collect(),
        }
    }
}

/// The whole firewall table: what must be remembered, and the chains.
fn body(switched: &Switched, chains: &str) -> String {
    let elements = |names: &BTreeSet<String>, quote: &str| {
        let names: Vec<_> = names.iter().map(|name| format!("{quote}{name}{quote}")).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!("elements = {{ {} }}", names.join(", ")),
        }
    };
    format!(
        "    set {FORWARDING} {{ type nf_proto; {} }}\n    set {ACCEPT_RA} {{ type ifname; {} }}\n{chains}",
        elements(&switched.forwarding, ""),
        elements(&switched.accept_ra, "\"")
    )
}

const FORWARD_V4: &str = "net/ipv4/ip_forward";
const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";

/// The forwarding settings: nft's word for the family, the setting, whether it is needed.
fn forwarding_keys(ipv6: Ipv6) -> [(&'static str, &'static str, bool); 2] {
    [("ipv4", FORWARD_V4, true), ("ipv6", FORWARD_V6, ipv6 != Ipv6::None)]
}

fn forwarding_key(family: &str) -> Option<&'static str> {
    match family {
        "ipv4" => Some(FORWARD_V4),
        "ipv6" => Some(FORWARD_V6),
        _ => None,
    }
}

fn accept_ra(interface: &str) -> String {
    format!("net/ipv6/conf/{interface}/accept_ra")
}

fn is_there(key: &str) -> bool {
    sysctl::read(key).is_ok_and(|value| value.is_some())
}

fn is(key: &str, value: u64) -> bool {
    sysctl::read_number(key).ok().flatten() == Some(value)
}
