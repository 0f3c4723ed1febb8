//! The firewall table, what it remembers, and the settings that go with it.
//!
//! `src_valid_mark` of links with strict reverse path filtering is remembered *before* it is switched, in the set
//! `src_valid_mark_switched_on` of the table, so that a crashed run's switches are found too.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ropewalk_link_io::forwarding::{Forwarding, advertised_uplinks};
use ropewalk_link_io::netlink::NetlinkError;
use ropewalk_link_io::nft::{NftError, is_plain_name};
use ropewalk_link_io::sysctl::{self, SysctlError};
use ropewalk_settings::Side;

use super::lan::Given;
use super::{LinuxNetwork, all_of};
use crate::config::Inbound;
use crate::host::{Desired, Outcome, Problem};
use crate::routes::Plan;
use crate::share;

/// The set in the firewall table that remembers [`LinuxNetwork::switched`].
const SWITCHED: &str = "src_valid_mark_switched_on";

impl LinuxNetwork {
    /// Puts the firewall table in place and switches `src_valid_mark` where it is needed.
    pub(super) async fn apply_filter(
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

    /// Switches settings back, takes back addresses that were given, and removes the firewall table.
    pub(super) async fn remove_filter(&mut self) -> anyhow::Result<()> {
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
        self.table.remove().await?;
        Ok(())
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

    /// Forwarding as it is to be: on while the tunnel is shared.
    async fn wanted_forwarding(&self, desired: &Desired) -> anyhow::Result<Forwarding> {
        let Some(tun) = desired.tun.as_ref().filter(|_| !desired.shared.is_empty()) else {
            return Ok(Forwarding::default());
        };
        let uplinks = advertised_uplinks(&self.netlink, self.numbers.protocol).await?;
        let needed = [true, tun.inner.iter().any(IpAddr::is_ipv6)];
        Ok(self.forwarding.wanted(needed, &uplinks))
    }
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
