//! What a client that shares its tunnel does to the shared interfaces: addresses of their own, devices that are counted, and
//! lanes for those with a limit.
//!
//! An address that the client gives an interface is remembered *before* it is given, in a set of the firewall table, so that a
//! crashed run's are found too. One that the interface has already is its owner's and stays.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use ropewalk_link_io::netlink::{Interface, Lane, NetlinkError, Root};
use ropewalk_link_io::nft::{Element, NftError, is_plain_name};

use super::{LinuxNetwork, all_of};
use crate::devices::table::Sets;
use crate::devices::{lanes_down, lanes_up};
use crate::host::{Desired, Outcome, Problem};

/// Addresses that interfaces have of us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given(BTreeSet<(String, IpNet)>);

/// The sets that remember them: nft's type of the address, and the name.
const SETS: [(&str, &str); 2] =
    [("ipv4_addr", "addresses_given"), ("ipv6_addr", "addresses_given_6")];

impl Given {
    /// What the table remembers of an earlier run.
    pub(super) fn recall(sets: &BTreeMap<String, Vec<Element>>) -> Self {
        let elements = SETS.iter().filter_map(|(_, set)| sets.get(*set)).flatten();
        Self(elements.filter_map(given).collect())
    }

    /// The sets of the table that remember these; nothing where there are none.
    pub(super) fn sets(&self) -> String {
        let set = |(kind, name): &(&str, &str)| {
            let of_kind = self.0.iter().filter(|(_, net)| (*kind == "ipv4_addr") == is_v4(net));
            let elements: Vec<String> = of_kind
                .map(|(name, net)| format!("\"{name}\" . {} . {}", net.addr(), net.prefix_len()))
                .collect();
            if elements.is_empty() {
                return String::new();
            }
            let elements = elements.join(", ");
            format!(
                "    set {name} {{ type ifname . {kind} . mark; elements = {{ {elements} }} }}\n"
            )
        };
        SETS.iter().map(set).collect()
    }

    /// What must be remembered while the one becomes the other.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    /// Those that are to be there and are ours to give: no interface has them of somebody else, nor is it missing.
    fn wanted(&self, desired: &Desired, interfaces: &[Interface]) -> Self {
        let is_ours = |(name, net): &&(String, IpNet)| {
            let Some(interface) = interfaces.iter().find(|one| one.name == *name) else {
                return false;
            };
            let has = interface.addresses.iter().any(|address| address.net == *net);
            is_plain_name(name) && (!has || self.0.contains(&(name.clone(), *net)))
        };
        Self(desired.addresses.iter().filter(is_ours).cloned().collect())
    }
}

const fn is_v4(net: &IpNet) -> bool {
    matches!(net, IpNet::V4(_))
}

/// An element of a set: interface, address, length of the prefix.
fn given(element: &Element) -> Option<(String, IpNet)> {
    let [name, address, bits] = element.parts.as_slice() else { return None };
    let net = IpNet::new(address.parse().ok()?, bits.parse().ok()?).ok()?;
    // The table may be somebody else's.
    is_plain_name(name).then(|| (name.clone(), net))
}

impl LinuxNetwork {
    /// Which addresses are to be given.
    pub(super) async fn wanted_addresses(&self, desired: &Desired) -> Result<Given, NetlinkError> {
        if desired.addresses.is_empty() {
            return Ok(Given::default());
        }
        Ok(self.given.wanted(desired, &self.netlink.interfaces().await?))
    }

    /// Gives and takes addresses; what is to be given must be remembered already. What could not be done is told.
    pub(super) async fn give(&mut self, wanted: &Given, outcome: &mut Outcome) {
        if self.given.0.is_empty() && wanted.0.is_empty() {
            return;
        }
        let interfaces = match self.netlink.interfaces().await {
            Ok(interfaces) => interfaces,
            Err(error) => {
                return outcome.problems.push(Problem { link: None, what: error.to_string() });
            }
        };
        let of = |name: &str| interfaces.iter().find(|interface| interface.name == name);
        let mut failed = Vec::new();
        for (name, net) in &self.given.0.clone() {
            if wanted.0.contains(&(name.clone(), *net)) {
                continue;
            }
            // An interface that is gone took its addresses along.
            let taken = match of(name) {
                Some(interface) => self.netlink.remove_address(interface.index, *net).await,
                None => Ok(()),
            };
            match taken {
                Ok(()) => outcome.changed |= self.given.0.remove(&(name.clone(), *net)),
                Err(error) => failed.push(error.to_string()),
            }
        }
        for (name, net) in &wanted.0 {
            let Some(interface) = of(name) else { continue };
            let has = interface.addresses.iter().any(|address| address.net == *net);
            let added = match has {
                true => Ok(()),
                false => self.netlink.add_network(interface.index, *net).await,
            };
            match added {
                Ok(()) => outcome.changed |= self.given.0.insert((name.clone(), *net)),
                Err(error) => failed.push(format!("{name}: {error}")),
            }
        }
        outcome.problems.extend(failed.into_iter().map(|what| Problem { link: None, what }));
    }

    /// Has devices counted, and those with a limit kept to it.
    pub(super) async fn apply_devices(
        &mut self,
        desired: &Desired,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        match self.devices.apply(&desired.shared, &desired.limited).await {
            Ok(changed) => outcome.changed |= changed,
            Err(error @ NftError::Permission { .. }) => return Err(error.into()),
            Err(error) => {
                let what =
                    format!("{error}; devices are not counted, and their limits do not hold");
                outcome.problems.push(Problem { link: None, what });
            }
        }
        let down = lanes_down(&desired.limited);
        let mut wanted: BTreeMap<&str, Vec<Lane>> = BTreeMap::new();
        if !down.is_empty() {
            wanted.extend(desired.shared.iter().map(|name| (name.as_str(), down.clone())));
        }
        let up = lanes_up(&desired.limited);
        if let Some(tun) = desired.tun.as_ref().filter(|_| !up.is_empty()) {
            wanted.insert(&tun.name, up);
        }
        if wanted.is_empty() && self.lanes.is_empty() {
            return Ok(());
        }
        self.apply_lanes(&wanted, outcome).await?;
        Ok(())
    }

    /// Puts these lanes before these interfaces, and before no others.
    async fn apply_lanes(
        &mut self,
        wanted: &BTreeMap<&str, Vec<Lane>>,
        outcome: &mut Outcome,
    ) -> Result<(), NetlinkError> {
        let interfaces = self.netlink.interfaces().await?;
        let roots = self.netlink.roots().await?;
        for interface in &interfaces {
            let root = roots.get(&interface.index);
            let lanes = wanted.get(interface.name.as_str());
            let known = self.lanes.get(&interface.index);
            let done = match (lanes, root) {
                (Some(lanes), Some(Root::Lanes)) if known == Some(lanes) => continue,
                (Some(_), Some(Root::Foreign(kind))) => {
                    let (name, what) = (&interface.name, "limits of devices do not hold there");
                    outcome.problems.push(Problem {
                        link: None,
                        what: format!(
                            "{name} has a queue of somebody else's ({kind}): {what}; `sudo tc qdisc del dev {name} root` \
                             takes it away"
                        ),
                    });
                    continue;
                }
                (Some(lanes), _) => self.netlink.set_lanes(interface.index, lanes).await,
                (None, Some(Root::Lanes)) => self.netlink.remove_lanes(interface.index).await,
                (None, _) => continue,
            };
            match (done, lanes) {
                (Ok(()), Some(lanes)) => {
                    outcome.changed = true;
                    self.lanes.insert(interface.index, lanes.clone());
                }
                (Ok(()), None) => {
                    outcome.changed = true;
                    self.lanes.remove(&interface.index);
                }
                (Err(error @ NetlinkError::Permission { .. }), _) => return Err(error),
                (Err(error), _) => {
                    let what = format!(
                        "{}: {error}; limits of devices do not hold there (they need sch_htb in the kernel)",
                        interface.name
                    );
                    outcome.problems.push(Problem { link: None, what });
                }
            }
        }
        self.lanes.retain(|index, _| interfaces.iter().any(|one| one.index == *index));
        Ok(())
    }

    /// Has no device counted any more, nor kept to a limit; also a crashed client's.
    pub(super) async fn remove_devices(&mut self) -> anyhow::Result<()> {
        let lanes = self.remove_lanes().await.map_err(anyhow::Error::from);
        let table = self.devices.remove().await.map(drop).map_err(anyhow::Error::from);
        all_of([lanes, table])
    }

    async fn remove_lanes(&mut self) -> Result<(), NetlinkError> {
        for (index, root) in self.netlink.roots().await? {
            if root == Root::Lanes {
                self.netlink.remove_lanes(index).await?;
            }
        }
        self.lanes.clear();
        Ok(())
    }

    /// What was counted of devices.
    pub async fn counted_devices(&self) -> Sets {
        self.devices.sets().await
    }

    /// The addresses of these interfaces, of those that there are.
    ///
    /// # Errors
    /// When the kernel's answer fails.
    pub async fn addresses_of(
        &self,
        names: &[String],
    ) -> Result<BTreeMap<String, Vec<IpNet>>, NetlinkError> {
        let interfaces = self.netlink.interfaces().await?;
        let named = interfaces.into_iter().filter(|interface| names.contains(&interface.name));
        let nets = |interface: Interface| {
            let nets = interface.addresses.iter().map(|address| address.net).collect();
            (interface.name, nets)
        };
        Ok(named.map(nets).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::testing::interface;

    fn pair(name: &str, net: &str) -> (String, IpNet) {
        (name.to_owned(), net.parse().unwrap())
    }

    #[test]
    fn what_is_remembered_is_what_the_sets_say() {
        let list = [pair("lan0", "192.168.77.1/24"), pair("lan0", "2001:db8:1::1/64")];
        let given = Given(list.clone().into());
        assert_eq!(
            given.sets(),
            "    set addresses_given { type ifname . ipv4_addr . mark; elements = { \"lan0\" . 192.168.77.1 . 24 } }
    set addresses_given_6 { type ifname . ipv6_addr . mark; elements = { \"lan0\" . 2001:db8:1::1 . 64 } }
"
        );
        assert_eq!(Given::default().sets(), "");
        let element = |(name, net): &(String, IpNet)| Element {
            parts: vec![name.clone(), net.addr().to_string(), net.prefix_len().to_string()],
            count: None,
        };
        let mut sets = BTreeMap::from([
            ("addresses_given".to_owned(), vec![element(&list[0])]),
            ("addresses_given_6".to_owned(), vec![element(&list[1])]),
            ("others".to_owned(), vec![element(&pair("lan9", "10.0.0.1/8"))]),
        ]);
        assert_eq!(Given::recall(&sets), given);
        let odd = ["lan 0", "192.168.77.1", "24"].map(str::to_owned).into();
        sets.insert("addresses_given".to_owned(), vec![Element { parts: odd, count: None }]);
        assert_eq!(Given::recall(&sets), Given([list[1].clone()].into()));
    }

    #[test]
    fn an_address_that_is_there_of_somebody_elses_is_not_ours() {
        let desired = Desired {
            addresses: vec![
                pair("lan0", "192.168.77.1/24"),
                pair("lan0", "2001:db8:1::1/64"),
                pair("lan1", "192.168.78.1/24"),
            ],
            ..Desired::default()
        };
        let there = [interface(7, "lan0", &["192.168.77.1/24"])];
        let nothing = Given::default();
        let of_prefix = Given([pair("lan0", "2001:db8:1::1/64")].into());
        assert_eq!(nothing.wanted(&desired, &there), of_prefix);
        // The one that we gave stays wanted.
        let given = Given([pair("lan0", "192.168.77.1/24")].into());
        assert_eq!(given.wanted(&desired, &there), given.union(&of_prefix));
    }
}
