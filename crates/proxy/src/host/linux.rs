//! The host's network on Linux: guard and client routes over rtnetlink, one nftables table, and forwarding.
//!
//! The order of `apply` keeps every moment safe: first the guard, then the firewall table, then forwarding, last the TUN and
//! the clients' routes.
//!
//! Forwarding is switched on where it is off ([`Forwarding`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::Context;
use ipnet::IpNet;
use ropewalk_link_io::conntrack;
use ropewalk_link_io::forwarding::{Forwarding, advertised_uplinks};
use ropewalk_link_io::netlink::{AddressScope, Family, Interface, Netlink, PROXY_PROTOCOL};
use ropewalk_link_io::nft::{Table, is_plain_name};

use super::switched::SwitchedFile;
use super::totals::Totals;
use super::{Counts, Desired, HostNetwork, Ipv6, Outcome};
use crate::allow::Transport;
use crate::forward::connections::{self, Ended};
use crate::forward::{Ports, rules};
use crate::{closed, firewall, guard, nat};

/// The name of the proxy's nftables table.
pub const TABLE: &str = "ropewalk_proxy";

/// The proxy's hold on the network of a Linux host.
#[derive(Debug)]
pub struct LinuxNetwork {
    netlink: Netlink,
    table: Table,
    switched: Forwarding,
    /// Remembers them too, for others may take the table away.
    file: Option<SwitchedFile>,
    tun: Option<u32>,
    clients: BTreeMap<IpNet, u32>,
    /// Ports that lead to clients by the table that stands, or by that of an earlier proxy.
    forwarded: Ports,
    ended: Ended,
    /// The table was replaced, and open connections are not as it says yet.
    unsettled: bool,
    totals: Totals,
}

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
        let switched = Forwarding::recall(&table).await?;
        // A table that an earlier proxy left has counted for that one.
        let totals = Totals::from_now(&table.counters().await?);
        let tcp = table.set_ranges(&rules::set_name(Transport::Tcp)).await?;
        let udp = table.set_ranges(&rules::set_name(Transport::Udp)).await?;
        Ok(Self {
            netlink,
            table,
            switched,
            file: None,
            tun: None,
            clients: BTreeMap::new(),
            forwarded: rules::remembered(&tcp, &udp),
            ended: Ended::default(),
            unsettled: false,
            totals,
        })
    }

    /// Remembers switched settings in this file, too, and takes over what it says where there is no table any more.
    ///
    /// # Errors
    /// As [`LinuxNetwork::open`].
    pub async fn remembering(mut self, mut file: SwitchedFile) -> anyhow::Result<Self> {
        let kept = file.read();
        // A table that stands knows better: the disk may have been full.
        if self.table.listing().await?.is_none() {
            self.switched = kept;
        }
        self.file = Some(file);
        Ok(self)
    }

    /// Puts the table with this body in place, and goes on counting.
    async fn put(&mut self, body: &str) -> anyhow::Result<bool> {
        if !self.table.has_applied(body) {
            // What was counted since the last look goes with the table that is replaced.
            match self.table.counters().await {
                Ok(counted) => self.totals.add(&counted),
                Err(error) => tracing::debug!("the firewall's counters cannot be read: {error}"),
            }
        }
        let replaced = self.table.apply(body).await?;
        if replaced {
            self.totals.begin_again();
        }
        Ok(replaced)
    }

    /// Puts the table with `chains` in place and switches the settings to `wanted`, remembering first.
    async fn apply_table(&mut self, chains: &str, wanted: Forwarding) -> anyhow::Result<bool> {
        let known = self.switched.union(&wanted);
        // At an end nothing more is switched on.
        if wanted != Forwarding::default() {
            self.keep(&known).await;
        }
        let mut changed = self.put(&body(&known, chains)).await?;
        changed |= self.switched.switch_to(&wanted)?;
        if known != wanted {
            changed |= self.put(&body(&wanted, chains)).await?;
        }
        self.keep(&wanted).await;
        self.switched = wanted;
        Ok(changed)
    }

    async fn keep(&mut self, switched: &Forwarding) {
        if let Some(file) = &mut self.file {
            file.keep(switched).await;
        }
    }

    /// The networks that this host is connected to, but for the tunnel's.
    async fn connected(&self, tun: &str) -> anyhow::Result<Vec<IpNet>> {
        let interfaces = self.netlink.interfaces().await?;
        let others = interfaces.iter().filter(|one| one.name != tun && !one.loopback);
        let addresses = others.flat_map(|one| &one.addresses).map(|address| address.net);
        Ok(closed::connected(addresses))
    }

    /// The chains of the table, on a host that is connected to these networks.
    fn chains(&self, desired: &Desired, connected: &[IpNet]) -> String {
        let mut chains = firewall::chains(desired, connected);
        rules::ended(&mut chains, &desired.tun, self.ended.places());
        chains
    }

    /// Ends the connections of ports that lead elsewhere, or nowhere, since the table is another one: the kernel forgets them. An
    /// end that goes on sending is told by the table with `wanted`, which then names it.
    async fn end_forwards(
        &mut self,
        desired: &Desired,
        connected: &[IpNet],
        wanted: &Forwarding,
    ) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.forwarded, desired.forwards.ports());
        if before.is_empty() {
            return Ok(());
        }
        let is_over = |connection: &_| connections::is_over(desired, &before, connection);
        let ended = match conntrack::find(is_over).await {
            Ok(over) if over.is_empty() => return Ok(()),
            Ok(over) => {
                if self.ended.add(&over) {
                    let chains = self.chains(desired, connected);
                    self.apply_table(&chains, wanted.clone()).await?;
                }
                conntrack::forget(is_over).await
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(count) => tracing::info!(count, "ended connections of ports that lead elsewhere"),
            Err(error) => tracing::warn!(
                "connections of ports that lead elsewhere now go on until they end by themselves: the kernel's table of \
                 connections cannot be changed: {error}"
            ),
        }
        Ok(())
    }

    /// Has connections that began without our table begin again with it.
    async fn translate_open_connections(&self, desired: &Desired) -> anyhow::Result<()> {
        let interfaces = self.netlink.interfaces().await?;
        let addresses = interfaces.iter().flat_map(|one| &one.addresses);
        let host: Vec<IpAddr> = addresses.map(|address| address.net.addr()).collect();
        let lacks = |connection: &_| {
            nat::lacks_translation(desired, &host, connection)
                || connections::lacks_forward(desired, &host, connection)
        };
        match conntrack::forget(lacks).await {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!("{count} connections that began without a translation begin again");
            }
            // New ones are translated all the same.
            Err(error) => tracing::warn!(
                "connections that began while the firewall table \"{TABLE}\" was missing may get no answers until they are \
                 begun again: the kernel's table of connections cannot be changed: {error}"
            ),
        }
        Ok(())
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
        let uplinks = advertised_uplinks(&self.netlink, PROXY_PROTOCOL).await?;
        let connected = self.connected(&desired.tun).await?;
        let wanted = self.switched.wanted([true, desired.ipv6 != Ipv6::None], &uplinks);
        self.ended.follow(&desired.forwards);
        let chains = self.chains(desired, &connected);
        let mut changed = self.apply_table(&chains, wanted.clone()).await?;
        self.totals.follow(&desired.forwards);
        self.unsettled |= changed;
        if self.unsettled {
            self.translate_open_connections(desired).await?;
            self.end_forwards(desired, &connected, &wanted).await?;
            self.unsettled = false;
        }
        let (tun, tun_changed) = self.apply_tun(desired).await?;
        self.tun = Some(tun);
        let mut routes = guard::client_routes(tun, &self.clients);
        routes.extend(guards);
        changed |= tun_changed | self.apply_routes(&routes).await?;
        Ok(Outcome { changed, warnings: self.warnings(&desired.tun).await })
    }

    async fn set_client(&mut self, inner: IpNet, mtu: u32) -> anyhow::Result<()> {
        let tun = self.tun.context("the TUN is not set up yet")?;
        if self.clients.insert(inner, mtu) != Some(mtu) {
            self.netlink.replace_route(&guard::client_route(tun, inner, mtu)).await?;
        }
        Ok(())
    }

    async fn remove_client(&mut self, inner: IpNet) -> anyhow::Result<()> {
        let (Some(tun), Some(mtu)) = (self.tun, self.clients.remove(&inner)) else {
            return Ok(());
        };
        self.netlink.remove_route(&guard::client_route(tun, inner, mtu)).await?;
        Ok(())
    }

    async fn counts(&mut self) -> anyhow::Result<Counts> {
        let counted = self.table.counters().await?;
        self.totals.add(&counted);
        Ok(self.totals.counts())
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        for route in self.netlink.routes_of(PROXY_PROTOCOL).await? {
            if !guard::is_guard(&route) {
                self.netlink.remove_route(&route).await?;
            }
        }
        self.clients.clear();
        self.apply_table(&nat::at_rest(&self.forwarded), Forwarding::default()).await?;
        Ok(())
    }

    async fn purge(&mut self) -> anyhow::Result<()> {
        self.apply_table(&nat::at_rest(&Ports::default()), Forwarding::default()).await?;
        self.clients.clear();
        self.table.remove().await?;
        self.apply_routes(&BTreeSet::new()).await?;
        Ok(())
    }
}

/// The whole firewall table: what must be remembered, and the chains.
fn body(switched: &Forwarding, chains: &str) -> String {
    format!("{}{chains}", switched.sets())
}
