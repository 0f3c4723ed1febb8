//! Forwarding between interfaces, switched on where it is needed and back at the end.
//!
//! Three kernel settings may be switched, and what was switched is remembered *before* in sets of the own firewall table, so
//! that a crashed run's switches are found too:
//!
//! * `net.ipv4.ip_forward` and `net.ipv6.conf.all.forwarding`;
//! * `accept_ra` of interfaces whose IPv6 default route comes from router advertisements: a forwarding host ignores these
//!   unless the value is 2, and would lose its own IPv6 within minutes.

use std::collections::BTreeSet;

use crate::netlink::{Family, Gateway, Netlink, NetlinkError};
use crate::nft::{NftError, Table, is_plain_name};
use crate::sysctl::{self, SysctlError};

/// The settings that this program changed, each from the value that it goes back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Forwarding, from 0 to 1: `ipv4`, `ipv6`.
    families: BTreeSet<String>,
    /// Interfaces whose `accept_ra` went from 1 to 2.
    accept_ra: BTreeSet<String>,
}

const FAMILIES: &str = "forwarding_switched_on";
const ACCEPT_RA: &str = "accept_ra_switched_to_2";

/// More names than these are remembered only of interfaces that are there: names may come without end (usb0, usb1, ...).
const MAX_REMEMBERED: usize = 64;

/// The protocol number of routes from router advertisements.
const RTPROT_RA: u8 = 9;

/// nft's word for the family, and the setting.
const KEYS: [(&str, &str); 2] =
    [("ipv4", "net/ipv4/ip_forward"), ("ipv6", "net/ipv6/conf/all/forwarding")];

impl Forwarding {
    /// What the table remembers of an earlier run.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or the answer is no JSON.
    pub async fn recall(table: &Table) -> Result<Self, NftError> {
        Ok(Self {
            families: table.set_elements(FAMILIES).await?.into_iter().collect(),
            accept_ra: table.set_elements(ACCEPT_RA).await?.into_iter().collect(),
        })
    }

    /// The settings that must be switched, or already are by this program, where IPv4, and IPv6, are to be forwarded.
    /// `uplinks` have their IPv6 default route from router advertisements ([`advertised_uplinks`]).
    #[must_use]
    pub fn wanted(&self, needed: [bool; 2], uplinks: &[String]) -> Self {
        let mut wanted = Self::default();
        for ((family, key), needed) in KEYS.into_iter().zip(needed) {
            if needed && (self.families.contains(family) || is(key, 0)) {
                wanted.families.insert(family.to_owned());
            }
        }
        if wanted.families.contains("ipv6") {
            // An uplink whose route is lost for a while, or that is gone and returns, is still one: with 1 it would never
            // learn its route again.
            wanted.accept_ra.clone_from(&self.accept_ra);
            wanted.accept_ra.extend(uplinks.iter().filter(|name| is(&accept_ra(name), 1)).cloned());
            if wanted.accept_ra.len() > MAX_REMEMBERED {
                wanted.accept_ra.retain(|name| is_there(&accept_ra(name)));
            }
        }
        wanted
    }

    /// nft's word for each family whose forwarding this program switched on.
    pub fn switched_on(&self) -> impl Iterator<Item = &str> {
        self.families.iter().map(String::as_str)
    }

    /// What was switched, by name: families, and interfaces whose `accept_ra` was.
    #[must_use]
    pub const fn names(&self) -> [&BTreeSet<String>; 2] {
        [&self.families, &self.accept_ra]
    }

    /// The same again of [`Forwarding::names`] that were kept. What is no such name is left out: it would be written into the
    /// firewall table.
    #[must_use]
    pub fn of_names([mut families, mut accept_ra]: [BTreeSet<String>; 2]) -> Self {
        families.retain(|family| KEYS.iter().any(|(known, _)| known == family));
        accept_ra.retain(|name| {
            is_plain_name(name) && !["all", "default", ".", ".."].contains(&&**name)
        });
        Self { families, accept_ra }
    }

    /// What must be remembered while the one becomes the other.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            families: self.families.union(&other.families).cloned().collect(),
            accept_ra: self.accept_ra.union(&other.accept_ra).cloned().collect(),
        }
    }

    /// The sets of the firewall table that remember this.
    #[must_use]
    pub fn sets(&self) -> String {
        let elements = |names: &BTreeSet<String>, quote: &str| {
            let names: Vec<_> = names.iter().map(|name| format!("{quote}{name}{quote}")).collect();
            match names.as_slice() {
                [] => String::new(),
                names => format!("elements = {{ {} }}", names.join(", ")),
            }
        };
        format!(
            "    set {FAMILIES} {{ type nf_proto; {} }}\n    set {ACCEPT_RA} {{ type ifname; {} }}\n",
            elements(&self.families, ""),
            elements(&self.accept_ra, "\"")
        )
    }

    /// Switches from these to `wanted`, which must be remembered already. Returns whether anything was switched.
    ///
    /// # Errors
    /// When a setting cannot be written; the rest is as it was.
    pub fn switch_to(&self, wanted: &Self) -> Result<bool, SysctlError> {
        let mut changed = false;
        let mut write = |key: &str, value: &str| {
            changed = true;
            sysctl::write(key, value)
        };
        // Before forwarding: at that moment the kernel forgets what advertisements taught it.
        for key in wanted.accept_ra.iter().map(|name| accept_ra(name)).filter(|key| is(key, 1)) {
            write(&key, "2")?;
        }
        for (family, key) in KEYS {
            if wanted.families.contains(family) {
                if is(key, 0) {
                    write(key, "1")?;
                }
            } else if self.families.contains(family) {
                write(key, "0")?;
            }
        }
        for name in self.accept_ra.difference(&wanted.accept_ra) {
            // An interface that is gone took its setting with it.
            if is_plain_name(name) && is(&accept_ra(name), 2) {
                write(&accept_ra(name), "1")?;
            }
        }
        Ok(changed)
    }
}

/// Names of interfaces that have their IPv6 default route from router advertisements; routes of `protocol` are this
/// program's own.
///
/// # Errors
/// When the kernel's answer fails or cannot be understood.
pub async fn advertised_uplinks(
    netlink: &Netlink,
    protocol: u8,
) -> Result<Vec<String>, NetlinkError> {
    let gateways = netlink.gateways(protocol).await?;
    let learned =
        |gateway: &&Gateway| gateway.family == Family::V6 && gateway.protocol == RTPROT_RA;
    let learned: BTreeSet<u32> =
        gateways.iter().filter(learned).map(|gateway| gateway.index).collect();
    let interfaces = netlink.interfaces().await?;
    let named = interfaces.into_iter().filter(|found| learned.contains(&found.index));
    Ok(named.map(|found| found.name).filter(|name| is_plain_name(name)).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_kept_come_back_but_for_those_that_are_none() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let kept = Forwarding::of_names([set(&["ipv4", "ipv6"]), set(&["eth0"])]);
        assert_eq!(Forwarding::of_names(kept.names().map(Clone::clone)), kept);
        let odd = [
            set(&["ipv4", "ipv6", "ipv4 }"]),
            set(&["eth0", "eth0\" }", "../all", "all", "default", "..", ""]),
        ];
        assert_eq!(Forwarding::of_names(odd), kept);
    }
}
