//! The links and the proxies that the client is told of.

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use rand::Rng;
use ropewalk_settings::Usage;

use super::{FleetClient, Known, NamedProxy, Preference, START_PATIENCE};
use crate::client::{LinkKey, SetLinkError};
use crate::config::{LinkConfig, MAX_LINKS, MAX_PATHS};
use crate::fleet::{FleetList, ProxyState, Region};
use crate::path::{Path, SocketId};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};

/// A new list is followed within this time: what changes comes in bursts, and the clients of a proxy that drains shall not all move at once.
const FOLLOWED_WITHIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// A link to whichever proxy.
#[derive(Clone, Debug)]
pub struct FleetLink {
    /// As it is used. Its paths do not count: they follow from the sockets and the proxy's addresses.
    pub config: LinkConfig,
    /// Its sockets, each with whether it is for IPv4.
    pub sockets: ArrayVec<(bool, SocketId), 2>,
    /// Whether its sockets reach a proxy whatever port is named: one path to each address is enough then.
    pub any_port: bool,
}

impl FleetLink {
    /// Whether a question that nobody waits for may go over it.
    const fn is_free(&self) -> bool {
        !self.config.metered && matches!(self.config.policy.usage, Usage::Always)
    }
}

impl FleetClient {
    /// Adds a link, changes it, or (with `None`) takes it out.
    ///
    /// # Errors
    /// [`SetLinkError`]; nothing changes then.
    pub fn set_link(
        &mut self,
        now: Instant,
        key: LinkKey,
        link: Option<FleetLink>,
        sink: &mut impl PacketSink,
    ) -> Result<(), SetLinkError> {
        match link {
            Some(_) if self.links.len() >= MAX_LINKS && !self.links.contains_key(&key) => {
                return Err(SetLinkError::TooMany);
            }
            Some(link) if link.sockets.is_empty() => {
                drop(link);
                return Err(SetLinkError::NoPath);
            }
            Some(link) => {
                if self.links.is_empty() && self.is_fresh() && self.has_choice() {
                    self.choosing = Some(now + START_PATIENCE);
                    self.next_round = now;
                } else if self.choosing.is_none() {
                    self.roam(now);
                }
                self.links.insert(key, link);
            }
            None => drop(self.links.remove(&key)),
        }
        let link = self.links.get(&key).cloned();
        let chooses = self.choosing.is_some();
        let present = self.present.key;
        for slot in self.slots() {
            if !(chooses && slot.key == present) {
                slot.set_link(now, key, link.as_ref(), sink);
            }
        }
        Ok(())
    }

    /// The client's owner names these proxies, the first of which comes first where none answers.
    pub fn set_named(&mut self, now: Instant, named: Vec<NamedProxy>, sink: &mut impl PacketSink) {
        self.named = named;
        self.note_known(now, sink);
    }

    /// The fleet is these, as a proxy of it said in a session.
    pub fn set_list(&mut self, now: Instant, list: FleetList, sink: &mut impl PacketSink) {
        self.list = list;
        self.note_known(now, sink);
    }

    /// Which of them may be used.
    pub fn set_preference(&mut self, now: Instant, preference: Preference) {
        self.preference = preference;
        self.shunned.clear();
        self.follow_list = now;
        (self.next_round, self.quick_rounds) = (now, 0);
    }

    /// What its owner asked for.
    #[must_use]
    pub const fn preference(&self) -> &Preference {
        &self.preference
    }

    /// Whether more than one proxy is known.
    pub(super) fn has_choice(&self) -> bool {
        self.known.len() > 1
    }

    /// Puts together what the owner and the fleet say, and has links lead where proxies are.
    fn note_known(&mut self, now: Instant, sink: &mut impl PacketSink) {
        let named = self.named.iter().map(|named| {
            let told = self.list.iter().find(|told| told.public_key == named.public_key);
            let mut addresses = named.addresses.clone();
            let more = told.iter().flat_map(|told| told.addresses.iter().copied());
            more.for_each(|address| add(&mut addresses, address));
            addresses.truncate(MAX_PATHS);
            Known {
                key: named.public_key,
                id: told.map(|told| told.id),
                region: told.map_or_else(Region::default, |told| told.region),
                addresses,
                state: told.map_or(ProxyState::Serving, |told| told.state),
                load: told.map_or(0, |told| told.load),
            }
        });
        let is_named = |key| self.named.iter().any(|named| named.public_key == key);
        let others = self.list.iter().filter(|told| !is_named(told.public_key)).map(|told| Known {
            key: told.public_key,
            id: Some(told.id),
            region: told.region,
            addresses: told.addresses.to_vec(),
            state: told.state,
            load: told.load,
        });
        let before = std::mem::replace(&mut self.known, named.chain(others).collect());
        let known = &self.known;
        self.questions.retain(|key| known.iter().any(|one| one.key == *key));
        self.shunned.retain(|key, _| known.iter().any(|one| one.key == *key));
        if !before.iter().map(Known::without_load).eq(known.iter().map(Known::without_load)) {
            let (soonest, latest) = FOLLOWED_WITHIN;
            self.follow_list = now + self.rng.random_range(soonest..latest);
            self.next_round = self.next_round.min(self.follow_list);
        }
        self.follow_addresses(now, sink);
    }

    /// The links of a session lead to where its proxy is. One that is known no more stays where it was.
    fn follow_addresses(&mut self, now: Instant, sink: &mut impl PacketSink) {
        let (known, links) = (self.known.clone(), self.links.clone());
        let (chooses, present) = (self.choosing.is_some(), self.present.key);
        for slot in self.slots() {
            let Some(one) = known.iter().find(|one| one.key == slot.key) else { continue };
            // Their order does not count: a name server that answers in turn must not restart the links.
            let same = |addresses: &[SocketAddr]| {
                let mut sorted = addresses.to_vec();
                sorted.sort_unstable();
                sorted
            };
            if same(&slot.addresses) == same(&one.addresses) {
                continue;
            }
            slot.addresses.clone_from(&one.addresses);
            if chooses && slot.key == present {
                continue;
            }
            links.iter().for_each(|(key, link)| slot.set_link(now, *key, Some(link), sink));
        }
    }

    /// Whether this proxy may be used.
    pub(super) fn is_wanted(&self, proxy: &Known) -> bool {
        match &self.preference {
            Preference::Auto => true,
            Preference::Named(name) => {
                is_called(proxy, name) || !self.known.iter().any(|one| is_called(one, name))
            }
        }
    }

    /// Whether what the owner asked for means a proxy that is known.
    #[must_use]
    pub fn knows_preferred(&self) -> bool {
        match &self.preference {
            Preference::Auto => true,
            Preference::Named(name) => self.known.iter().any(|one| is_called(one, name)),
        }
    }

    /// Where a question to this proxy goes: over each link, to its first address of each family.
    pub(super) fn paths_to(&self, proxy: &Known, all_links: bool) -> Vec<Path> {
        let first = |is_ipv4| proxy.addresses.iter().find(|ip| ip.is_ipv4() == is_ipv4).copied();
        let addresses: Vec<_> = [first(true), first(false)].into_iter().flatten().collect();
        let any_free = self.links.values().any(FleetLink::is_free);
        let links = self.links.values().filter(|link| all_links || !any_free || link.is_free());
        links.flat_map(|link| super::slot::paths(link, &addresses)).collect()
    }
}

impl Known {
    /// What of it is a reason to look for another one.
    fn without_load(&self) -> Self {
        Self { load: 0, ..self.clone() }
    }
}

fn is_called(proxy: &Known, name: &str) -> bool {
    proxy.id.is_some_and(|id| id.as_str() == name)
        || !name.is_empty() && proxy.region.as_str() == name
        || proxy.addresses.iter().any(|address| address.to_string() == name)
}

fn add(addresses: &mut Vec<SocketAddr>, address: SocketAddr) {
    if !addresses.contains(&address) {
        addresses.push(address);
    }
}
