//! The host's network on Linux: policy routing over rtnetlink, one nftables table, and one kernel setting.
//!
//! What goes through the tunnel or around it whatever the prefixes say stands in a table of its own ([`Split`]).
//!
//! `apply` reads what is installed under our protocol number, takes the difference to the [plan](crate::routes), and
//! applies only that: first routes, then the rules that lead to them; rules are removed before the routes behind them.
//! So at no moment does a packet follow a rule into an empty table.
//!
//! The one setting, `src_valid_mark` of links with strict reverse path filtering, is remembered *before* it is switched,
//! in the set `src_valid_mark_switched_on` of the firewall table, so that a crashed run's switches are found too.

mod lan;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::Context;
use ipnet::IpNet;
use ropewalk_link_io::forwarding::{Forwarding, advertised_uplinks};
use ropewalk_link_io::netlink::{
    AddressScope, FoundRoute, Lane, MAIN_TABLE, Netlink, NetlinkError, Target,
};
use ropewalk_link_io::nft::{NftError, Table, is_plain_name};
use ropewalk_link_io::sysctl::{self, SysctlError};
use ropewalk_settings::Side;
use rustix::process::geteuid;

use super::{
    Candidate, Choice, Desired, HostNetwork, LeftOut, LinkDesired, Outcome, Problem, TunDesired,
};
use crate::config::Inbound;
use crate::devices::table::DeviceTable;
use crate::interfaces;
use crate::lock::{self, Lock};
use crate::near::{Surroundings, near};
use crate::routes::{MARK_MASK, Numbers, Plan, plan};
use crate::share;
use crate::split::learned::Answered;
use crate::split::table::{Applied, Split};
use crate::split::{RuleState, Tally};
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

/// The set in the firewall table that remembers [`LinuxNetwork::switched`].
const SWITCHED: &str = "src_valid_mark_switched_on";

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

    /// From now on nothing leaves outside the tunnel; what a crashed client locked is taken over.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or `nft` refuses: then it is as it was.
    pub async fn lock(&mut self, tun: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            is_plain_name(tun),
            "the interface name {tun:?} cannot be used in firewall rules"
        );
        let table = Table::new(&self.numbers.lock);
        let lock = self.lock.insert(Locked { table, tun: tun.to_owned() });
        lock.apply(&self.netlink, &self.numbers, &Desired::default()).await?;
        Ok(())
    }

    /// The same before anything else is taken hold of.
    ///
    /// # Errors
    /// As [`LinuxNetwork::lock`].
    pub async fn lock_alone(numbers: Numbers, tun: &str) -> anyhow::Result<()> {
        let table = Table::new(&numbers.firewall);
        Self::untouched(numbers, table)?.lock(tun).await
    }

    /// Packets leave as they do without a client; also after a crashed one.
    ///
    /// # Errors
    /// When the right is missing or `nft` refuses.
    pub async fn unlock(&mut self) -> anyhow::Result<()> {
        self.lock = None;
        match Table::new(&self.numbers.lock).remove().await {
            // Where nft is missing there is no table of ours either.
            Ok(_) | Err(NftError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
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

    /// Interfaces on which answers are for another address than that by which they came, for the rules: those of default routes
    /// for what goes around the tunnel, the TUN for what goes through it.
    async fn turned(&self, desired: &Desired) -> Result<BTreeSet<String>, NetlinkError> {
        let has = |side| desired.rules.iter().any(|rule| rule.side == side);
        let mut turned = BTreeSet::new();
        if has(Side::Outside) {
            let gateways = self.netlink.gateways(self.numbers.protocol).await?;
            let interfaces = self.netlink.interfaces().await?;
            let has_gateway = |index| gateways.iter().any(|gateway| gateway.index == index);
            let named = interfaces.into_iter().filter(|one| has_gateway(one.index));
            // The name is written into the firewall table.
            turned.extend(named.map(|one| one.name).filter(|name| is_plain_name(name)));
        }
        if has(Side::Inside) {
            turned.extend(desired.tun.iter().map(|tun| tun.name.clone()));
        }
        Ok(turned)
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

    /// Switches settings back, takes back addresses that were given, and removes the firewall table.
    async fn remove_filter(&mut self) -> anyhow::Result<()> {
        match self.recall().await {
            // Where nft is missing there is no table of ours either.
            Ok(()) | Err(NftError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let mut failed = Vec::new();
        let mut outcome = Outcome::default();
        self.give(&Given::default(), &mut outcome).await;
        let problems = outcome.problems.into_iter();
        failed.extend(problems.map(|problem| Err(anyhow::Error::msg(problem.what))));
        for name in std::mem::take(&mut self.switched) {
            if let Err(error) = switch_back(&name) {
                failed.push(Err(error.into()));
                self.switched.insert(name);
            }
        }
        match self.forwarding.switch_to(&Forwarding::default()) {
            Ok(_) => self.forwarding = Forwarding::default(),
            Err(error) => failed.push(Err(error.into())),
        }
        // The table stays for as long as it remembers something.
        all_of(failed)?;
        match self.table.remove().await {
            Ok(_) | Err(NftError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes over what the table remembers; a table that cannot be read now is read later, before it is replaced.
    async fn recall(&mut self) -> Result<(), NftError> {
        if !self.recalled {
            self.switched.extend(self.table.set_elements(SWITCHED).await?);
            self.forwarding = self.forwarding.union(&Forwarding::recall(&self.table).await?);
            self.given = self.given.union(&Given::recall(&self.table.sets().await?));
            self.recalled = true;
        }
        Ok(())
    }

    /// Sets up the TUN and returns its number.
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

    /// Forwarding as it is to be: on while the tunnel is shared.
    async fn wanted_forwarding(&self, desired: &Desired) -> anyhow::Result<Forwarding> {
        let Some(tun) = desired.tun.as_ref().filter(|_| !desired.shared.is_empty()) else {
            return Ok(Forwarding::default());
        };
        let uplinks = advertised_uplinks(&self.netlink, self.numbers.protocol).await?;
        let needed = [true, tun.inner.iter().any(IpAddr::is_ipv6)];
        Ok(self.forwarding.wanted(needed, &uplinks))
    }

    /// Puts the firewall table in place and switches `src_valid_mark` where it is needed.
    async fn apply_filter(
        &mut self,
        plan: &Plan,
        desired: &Desired,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let turned = self.turned(desired).await?;
        let links = desired.links.iter().filter(|link| link.ways.v4.is_some());
        let named = links.map(|link| link.name.as_str()).chain(turned.iter().map(String::as_str));
        let strict: BTreeSet<&str> = named.filter(|name| is_strict(name)).collect();
        let recalled = self.recall().await;
        let wanted_forwarding = self.wanted_forwarding(desired).await?;
        let wanted_given = self.wanted_addresses(desired).await?;
        let wanted: BTreeSet<String> = strict
            .iter()
            .filter(|name| self.switched.contains(**name) || !marks_count(name))
            .map(|name| (*name).to_owned())
            .collect();
        let remembered = self.switched.union(&wanted).cloned().collect();
        let forwarding = self.forwarding.union(&wanted_forwarding);
        let given = self.given.union(&wanted_given);
        let text = body(plan, desired, &remembered, &forwarding, &given);
        let applied = match recalled {
            Ok(()) => self.table.apply(&text).await,
            Err(error) => Err(error),
        };
        match applied {
            Ok(changed) => outcome.changed |= changed,
            Err(error @ NftError::Permission { .. }) => return Err(error.into()),
            Err(error) => {
                // Without the table the links still work, unless reverse path filtering is strict and one of the rare
                // cases holds that the mark is for.
                let links = strict.iter().map(|name| Some((*name).to_owned()));
                let links: Vec<_> = if strict.is_empty() { vec![None] } else { links.collect() };
                let open = if desired.inbound == Inbound::Proxy { "" } else { NOT_REFUSED };
                let error = format!("{error}; {UNGUARDED}{open}");
                outcome.problems.extend(links.into_iter().map(|link| unfiltered(link, &error)));
                return Ok(());
            }
        }
        // A setting that cannot be written (a container's /proc/sys is read-only) is trouble of the rare cases only.
        let mut switched = self.switched.clone();
        for name in wanted.difference(&self.switched) {
            match sysctl::write(&src_valid_mark(name), "1") {
                Ok(()) => outcome.changed |= switched.insert(name.clone()),
                Err(error) => outcome.problems.push(unfiltered(Some(name.clone()), &error)),
            }
        }
        for name in self.switched.difference(&wanted) {
            match switch_back(name) {
                Ok(()) => outcome.changed |= switched.remove(name),
                Err(error) => outcome
                    .problems
                    .push(Problem { link: Some(name.clone()), what: error.to_string() }),
            }
        }
        self.switched = switched;
        match self.forwarding.switch_to(&wanted_forwarding) {
            Ok(switched) => {
                outcome.changed |= switched;
                self.forwarding = wanted_forwarding;
            }
            // What was switched until then stays remembered.
            Err(error) => {
                self.forwarding = forwarding.clone();
                outcome
                    .problems
                    .push(Problem { link: None, what: format!("cannot share: {error}") });
            }
        }
        self.give(&wanted_given, outcome).await;
        let text = body(plan, desired, &self.switched, &self.forwarding, &self.given);
        let is_as_remembered =
            self.switched == remembered && self.forwarding == forwarding && self.given == given;
        if !is_as_remembered && let Err(error) = self.table.apply(&text).await {
            outcome.problems.push(unfiltered(None, &error));
        }
        Ok(())
    }
}

/// The kill switch.
#[derive(Debug)]
struct Locked {
    table: Table,
    tun: String,
}

impl Locked {
    async fn apply(
        &mut self,
        netlink: &Netlink,
        numbers: &Numbers,
        desired: &Desired,
    ) -> anyhow::Result<bool> {
        let interfaces = netlink.interfaces().await?;
        let others = interfaces.iter().filter(|one| one.name != self.tun && !one.loopback);
        let connected: Vec<IpNet> =
            others.flat_map(|one| &one.addresses).map(|address| address.net).collect();
        let askers = match desired.asked.as_slice() {
            [] => Vec::new(),
            _ => {
                let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
                lock::askers(geteuid().as_raw(), &passwd)
            }
        };
        let outside = desired.rules.iter().filter(|rule| rule.side == Side::Outside);
        let let_out: Vec<u32> = outside.map(|rule| rule.mark(numbers)).collect();
        // Hosts behind this machine get their answers, whatever kind of addresses they have.
        let behind = desired.prefix.map(IpNet::V6);
        let excluded: Vec<IpNet> = desired.excluded.iter().copied().chain(behind).collect();
        let leads_in = desired.rules.iter().any(|rule| rule.side == Side::Inside);
        let chains = lock::chains(&Lock {
            tun: &self.tun,
            mark: (numbers.mark, MARK_MASK),
            connected: &connected,
            excluded: &excluded,
            asked: &desired.asked,
            askers: &askers,
            proxy: &desired.proxy,
            let_out: &let_out,
            inside: leads_in.then(|| numbers.mark_of_side(Side::Inside)),
            tls_port: desired.tls_port,
        });
        Ok(self.table.apply(&chains).await?)
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
        let tun = match &desired.tun {
            Some(tun) => Some(self.apply_tun(tun, &mut outcome).await?),
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
        if let Some(lock) = &mut self.lock {
            match lock.apply(&self.netlink, &self.numbers, desired).await {
                Ok(changed) => outcome.changed |= changed,
                // The old one stands, unless somebody took it away.
                Err(error) => {
                    outcome.unlocked = true;
                    let what = format!("the kill switch: {error:#}");
                    outcome.problems.push(Problem { link: None, what });
                }
            }
        }
        self.apply_filter(&plan, desired, &mut outcome).await?;
        // Before the rules that lead there.
        self.apply_near(desired, &mut outcome).await?;
        self.apply_plan(&plan, &desired.links, &mut outcome).await?;
        // What marks, once there is what the marks lead to.
        self.apply_split(desired, &mut outcome).await?;
        self.apply_devices(desired, &mut outcome).await?;
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

/// The whole firewall table: the plan's chains, what may be forwarded, and what must be remembered.
fn body(
    plan: &Plan,
    desired: &Desired,
    remembered: &BTreeSet<String>,
    forwarding: &Forwarding,
    given: &Given,
) -> String {
    let names: Vec<_> = remembered.iter().map(|name| format!("\"{name}\"")).collect();
    let elements = match names.as_slice() {
        [] => String::new(),
        names => format!("elements = {{ {} }}", names.join(", ")),
    };
    let forwarded = share::forwarded(desired, forwarding.switched_on());
    let (forwarding, given, chains) = (forwarding.sets(), given.sets(), &plan.firewall);
    format!(
        "    set {SWITCHED} {{ type ifname; {elements} }}\n{forwarding}{given}{chains}{forwarded}"
    )
}

/// What the table keeps apart.
const UNGUARDED: &str = "neighbours can send to the tunnel's own addresses, and the proxy to this machine's networks where \
                         it forwards";

/// What else the table does, where `inbound` asks for it.
const NOT_REFUSED: &str = ", and what `inbound` refuses is let in";

/// What is wrong where the mark does not take part in reverse path filtering.
fn unfiltered(link: Option<String>, error: &impl std::fmt::Display) -> Problem {
    let what =
        format!("{error}; where rp_filter is 1 (strict), answers of the proxy may be dropped");
    Problem { link, what }
}

/// Whether a datagram is dropped on this interface when its answer would leave by another one. The larger of the
/// interface's value and that of `all` counts; 2 (loose) asks only whether there is any answer.
fn is_strict(interface: &str) -> bool {
    let value = |name: &str| {
        let key = format!("net/ipv4/conf/{name}/rp_filter");
        sysctl::read_number(&key).ok().flatten().unwrap_or(0)
    };
    value(interface).max(value("all")) == 1
}

/// Whether the mark of a datagram takes part in that question already.
fn marks_count(interface: &str) -> bool {
    let value = |key: String| sysctl::read_number(&key).ok().flatten() == Some(1);
    value(src_valid_mark(interface)) || value(src_valid_mark("all"))
}

fn src_valid_mark(interface: &str) -> String {
    format!("net/ipv4/conf/{interface}/src_valid_mark")
}

/// Sets `src_valid_mark` of an interface to 0 again; an interface that is gone took its setting with it.
fn switch_back(interface: &str) -> Result<(), SysctlError> {
    let key = src_valid_mark(interface);
    // The name may come from a table that somebody else wrote.
    if is_plain_name(interface) && sysctl::read(&key)?.is_some() {
        sysctl::write(&key, "0")?;
    }
    Ok(())
}
