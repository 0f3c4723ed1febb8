//! The host's network on Linux: policy routing over rtnetlink, one nftables table, and one kernel setting.
//!
//! What goes through the tunnel or around it whatever the prefixes say stands in a table of its own ([`Split`]).
//!
//! `apply` reads what is installed under our protocol number, takes the difference to the [plan](crate::routes), and
//! applies only that: first routes, then the rules that lead to them; rules are removed before the routes behind them.
//! So at no moment does a packet follow a rule into an empty table.

mod filter;
mod kill_switch;
mod lan;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use ropewalk_link_io::forwarding::Forwarding;
use ropewalk_link_io::netlink::{
    AddressScope, FoundRoute, Lane, MAIN_TABLE, Netlink, NetlinkError, Target,
};
use ropewalk_link_io::nft::{NftError, Table, is_plain_name};
use ropewalk_settings::Side;

use super::{
    Candidate, Choice, Desired, HostNetwork, LeftOut, LinkDesired, Outcome, Problem, TunDesired,
    Unlocked,
};
use crate::devices::table::DeviceTable;
use crate::interfaces;
use crate::near::{Surroundings, near};
use crate::routes::{Numbers, Plan, plan};
use crate::split::learned::Answered;
use crate::split::table::{Applied, Split};
use crate::split::{RuleState, Tally};
use kill_switch::Locked;
use lan::Given;

/// The client's hold on the network of a Linux host.
#[derive(Debug)]
pub struct LinuxNetwork {
    netlink: Netlink,
    numbers: Numbers,
    table: Table,
    /// Interfaces whose `src_valid_mark` we switched from 0 to 1.
    switched: BTreeSet<String>,
    /// Forwarding that we switched on.
    forwarding: Forwarding,
    /// The kill switch, where there is one.
    lock: Option<Locked>,
    /// What chooses connections.
    split: Split,
    /// The sides to which it led some: what leads there stays, so that nothing of theirs goes elsewhere.
    sides: BTreeSet<Side>,
    /// Addresses that shared interfaces have of us.
    given: Given,
    /// What counts devices.
    devices: DeviceTable,
    /// The lanes that we put before interfaces, by their numbers.
    lanes: BTreeMap<u32, Vec<Lane>>,
    /// Whether `switched`, `forwarding` and `given` hold what the table remembers of an earlier client.
    recalled: bool,
}

impl LinuxNetwork {
    /// Takes hold, and removes what a crashed client left behind under the same numbers.
    ///
    /// # Errors
    /// When the right is missing (the capability is named) or the kernel refuses.
    pub async fn open(numbers: Numbers) -> anyhow::Result<Self> {
        let table = Table::new(&numbers.firewall);
        Self::open_with(numbers, table).await
    }

    /// The same with a given handle on the firewall table, for an `nft` in an unusual place.
    ///
    /// # Errors
    /// As [`LinuxNetwork::open`].
    pub async fn open_with(numbers: Numbers, table: Table) -> anyhow::Result<Self> {
        let mut network = Self::untouched(numbers, table)?;
        let what = "cannot clean up what an earlier client left behind";
        // What marks goes before what the marks lead to.
        let split = network.split.remove().await.map(drop).map_err(anyhow::Error::from);
        let devices = network.remove_devices().await;
        network.remove_routing().await.context(what)?;
        match all_of([split, devices, network.remove_filter().await]) {
            Ok(()) => {}
            Err(error) if matches!(error.downcast_ref(), Some(NftError::Permission { .. })) => {
                return Err(error.context(what));
            }
            // As later: links work without. What stayed is taken over.
            Err(error) => tracing::warn!("{what}: {error:#}"),
        }
        Ok(network)
    }

    /// Takes back all that a client which has ended left under these numbers, its kill switch too. What cannot be taken back
    /// keeps nothing else.
    ///
    /// # Errors
    /// All that could not be taken back.
    pub async fn purge(numbers: Numbers) -> anyhow::Result<()> {
        let table = Table::new(&numbers.firewall);
        let mut network = Self::untouched(numbers, table)?;
        all_of([network.remove().await, network.unlock().await])
    }

    /// A hold that changes nothing yet.
    fn untouched(numbers: Numbers, table: Table) -> Result<Self, NetlinkError> {
        let [split, devices] = [&numbers.split, &numbers.devices].map(|name| Table::new(name));
        Ok(Self {
            netlink: Netlink::open()?,
            numbers,
            table,
            switched: BTreeSet::new(),
            forwarding: Forwarding::default(),
            lock: None,
            split: Split::new(split),
            given: Given::default(),
            devices: DeviceTable::new(devices),
            lanes: BTreeMap::new(),
            sides: BTreeSet::new(),
            recalled: false,
        })
    }

    /// Waits until a control group that a rule may mean begins or ends.
    pub async fn news_of_groups(&self) {
        self.split.news().await;
    }

    /// Follows the control groups; `None` where that changes nothing. What became of each rule then, and what the user should know.
    ///
    /// # Errors
    /// When the right is missing or `nft` refuses the rules; what stood before stands then.
    pub async fn follow_groups(&mut self) -> anyhow::Result<Option<(Vec<RuleState>, Vec<String>)>> {
        let applied = self.split.follow(&self.numbers).await?;
        Ok(applied.map(|Applied { states, warnings, .. }| (states, warnings)))
    }

    /// Has packets to these addresses go where the rules say that learned them. Returns whether they do.
    pub async fn place(&mut self, answered: &[Answered]) -> bool {
        self.split.place(answered).await
    }

    /// What was counted of each rule.
    pub async fn tallies(&self) -> BTreeMap<u16, Tally> {
        self.split.tallies().await
    }

    /// Puts the table of the rules in place.
    async fn apply_split(
        &mut self,
        desired: &Desired,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        match self.split.apply(&self.numbers, desired).await {
            Ok(Applied { changed, states, warnings }) => {
                outcome.changed |= changed;
                outcome.rules = states;
                outcome.warnings.extend(warnings);
            }
            Err(error @ NftError::Permission { .. }) => return Err(error.into()),
            Err(error) => {
                let what = format!(
                    "{error}; users, programs and domains in `routes` and `exclude` are not told apart"
                );
                outcome.problems.push(Problem { link: None, what });
            }
        }
        Ok(())
    }

    /// Removes all rules and routes under our numbers.
    async fn remove_routing(&self) -> Result<(), NetlinkError> {
        for rule in self.netlink.rules_of(self.numbers.protocol).await? {
            self.netlink.remove_rule(&rule).await?;
        }
        for copy in self.copies().await? {
            self.netlink.remove_copy(&copy).await?;
        }
        for route in self.netlink.routes_of(self.numbers.protocol).await? {
            self.netlink.remove_route(&route).await?;
        }
        Ok(())
    }

    /// The near networks as they stand in our table.
    async fn copies(&self) -> Result<BTreeSet<FoundRoute>, NetlinkError> {
        let mut found = self.netlink.routes_in(self.numbers.near()).await?;
        found.retain(|route| route.protocol == self.numbers.protocol);
        Ok(found.into_iter().collect())
    }

    /// Copies those routes of the main table that win over the tunnel, and says which do not.
    async fn apply_near(&self, desired: &Desired, outcome: &mut Outcome) -> anyhow::Result<()> {
        let main = self.netlink.routes_in(MAIN_TABLE).await?;
        let links: Vec<&str> = desired.links.iter().map(|link| link.name.as_str()).collect();
        let around = Surroundings {
            links: &links,
            tun: desired.tun.as_ref().map_or("", |tun| &tun.name),
            interfaces: &self.netlink.interfaces().await?,
            gateways: &self.netlink.gateways(self.numbers.protocol).await?,
        };
        let near = near(&main, &around, &desired.routed, &desired.excluded);
        outcome.warnings.extend(near.passed_over.iter().map(ToString::to_string));
        let copy = |route: &FoundRoute| route.copied(self.numbers.near(), self.numbers.protocol);
        let wanted: BTreeSet<_> = near.routes.iter().map(copy).collect();
        let copies = self.copies().await?;
        for route in wanted.difference(&copies) {
            match self.netlink.add_copy(route).await {
                Ok(()) => outcome.changed = true,
                Err(error @ NetlinkError::Permission { .. }) => return Err(error.into()),
                // The interface went down or away since it was listed: the next events tell more.
                Err(error) => {
                    outcome.problems.push(Problem { link: None, what: error.to_string() });
                }
            }
        }
        for route in copies.difference(&wanted) {
            self.netlink.remove_copy(route).await?;
            outcome.changed = true;
        }
        Ok(())
    }

    /// Sets up the TUN and returns its number.
    /// All but the kill switch.
    async fn apply_rest(&mut self, desired: &Desired, outcome: &mut Outcome) -> anyhow::Result<()> {
        let tun = match &desired.tun {
            Some(tun) => Some(self.apply_tun(tun, outcome).await?),
            None => None,
        };
        for name in &desired.shared {
            anyhow::ensure!(
                is_plain_name(name),
                "the interface name {name:?} cannot be used in firewall rules"
            );
        }
        let mut plan = plan(&self.numbers, desired, tun)?;
        self.sides.extend(desired.rules.iter().map(|rule| rule.side));
        plan.add_sides(&self.numbers, &self.sides, tun.is_some());
        self.apply_filter(&plan, desired, outcome).await?;
        // Before the rules that lead there.
        self.apply_near(desired, outcome).await?;
        self.apply_plan(&plan, &desired.links, outcome).await?;
        // What marks, once there is what the marks lead to.
        self.apply_split(desired, outcome).await?;
        self.apply_devices(desired, outcome).await
    }

    async fn apply_tun(&self, tun: &TunDesired, outcome: &mut Outcome) -> anyhow::Result<u32> {
        let now = self.netlink.interface(&tun.name).await?;
        if now.mtu != tun.mtu {
            self.netlink.set_mtu(now.index, tun.mtu).await?;
            outcome.changed = true;
        }
        for old in now.addresses.iter().filter(|old| old.scope == AddressScope::Global) {
            if !tun.inner.contains(&old.net.addr()) {
                self.netlink.remove_address(now.index, old.net).await?;
                outcome.changed = true;
            }
        }
        for inner in &tun.inner {
            if !now.addresses.iter().any(|old| old.net.addr() == *inner) {
                self.netlink.add_address(now.index, (*inner).into()).await?;
                outcome.changed = true;
            }
        }
        if !now.up {
            self.netlink.set_up(now.index).await?;
            outcome.changed = true;
        }
        Ok(now.index)
    }

    async fn apply_plan(
        &self,
        plan: &Plan,
        links: &[LinkDesired],
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let protocol = self.numbers.protocol;
        let mut routes: BTreeSet<_> = self.netlink.routes_of(protocol).await?.into_iter().collect();
        routes.retain(|route| route.table != self.numbers.near());
        let rules: BTreeSet<_> = self.netlink.rules_of(protocol).await?.into_iter().collect();
        for route in plan.routes.difference(&routes) {
            match self.netlink.replace_route(route).await {
                Ok(()) => outcome.changed = true,
                Err(error @ NetlinkError::Permission { .. }) => return Err(error.into()),
                // The interface went down or away since it was listed: the next events tell more.
                Err(error) => {
                    let link = links.iter().find(|link| {
                        matches!(route.target, Target::Interface { index, .. } if index == link.ways.index)
                    });
                    let link = link.map(|link| link.name.clone());
                    outcome.problems.push(Problem { link, what: error.to_string() });
                }
            }
        }
        for rule in plan.rules.difference(&rules) {
            self.netlink.add_rule(rule).await?;
            outcome.changed = true;
        }
        for rule in rules.difference(&plan.rules) {
            self.netlink.remove_rule(rule).await?;
            outcome.changed = true;
        }
        for route in routes.difference(&plan.routes) {
            self.netlink.remove_route(route).await?;
            outcome.changed = true;
        }
        Ok(())
    }
}

impl HostNetwork for LinuxNetwork {
    async fn candidates(
        &self,
        choice: &Choice,
        tun: &str,
    ) -> anyhow::Result<(Vec<Candidate>, Vec<LeftOut>)> {
        let interfaces = self.netlink.interfaces().await?;
        let gateways = self.netlink.gateways(self.numbers.protocol).await?;
        Ok((
            interfaces::candidates(choice, tun, &interfaces, &gateways),
            interfaces::left_out(choice, tun, &interfaces, &gateways),
        ))
    }

    async fn names(&self) -> anyhow::Result<Vec<String>> {
        let interfaces = self.netlink.interfaces().await?;
        Ok(interfaces.into_iter().map(|interface| interface.name).collect())
    }

    async fn apply(&mut self, desired: &Desired) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        // First: nothing leaves outside the tunnel either while the rest cannot be done, such as without a TUN.
        let locked = match &mut self.lock {
            Some(lock) => lock.apply(&self.netlink, &self.numbers, desired).await,
            None => Ok(false),
        };
        // Where it fails the old one stands, unless somebody took it away.
        let unlocked = locked
            .map(|changed| outcome.changed |= changed)
            .map_err(|error| Unlocked(format!("{error:#}")))
            .err();
        match (self.apply_rest(desired, &mut outcome).await, unlocked) {
            (Ok(()), None) => {}
            (Ok(()), Some(unlocked)) => {
                outcome.unlocked = true;
                outcome.problems.insert(0, Problem { link: None, what: unlocked.to_string() });
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(unlocked)) => return Err(error.context(unlocked)),
        }
        Ok(outcome)
    }

    async fn remove(&mut self) -> anyhow::Result<()> {
        let split = self.split.remove().await.map(drop).map_err(anyhow::Error::from);
        let devices = self.remove_devices().await;
        self.sides.clear();
        let routing = self.remove_routing().await.map_err(anyhow::Error::from);
        all_of([split, devices, routing, self.remove_filter().await])
    }
}

/// Nothing, or all that failed: an error alone as it is, several as one sentence.
pub(crate) fn all_of(results: impl IntoIterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    let failed = results.into_iter().filter_map(Result::err);
    failed.reduce(|one, other| one.context(format!("{other:#}; besides"))).map_or(Ok(()), Err)
}
