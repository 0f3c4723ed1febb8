//! The fleet: several proxies that know the same clients, and which of them a client uses.
//!
//! | file | its one idea |
//! | --- | --- |
//! | this one | the list of proxies, as a proxy tells it to its clients (PROTOCOL §4.2) |
//! | `telling` | a list on its way to the client, told again until it is confirmed |
//! | `gathering` | the parts of a list that came, until it is whole |
//! | `progress` | how far something came that is said again until it is confirmed |
//! | `questions` | asking proxies whether they are there, and how far away |
//! | [`choice`] | which of them is used |
//! | [`pins`] | flows stay on the proxy where they began |
//! | `client` | the client that moves between them |

pub mod choice;
mod client;
mod gathering;
pub mod pins;
mod progress;
mod questions;
mod telling;

use std::fmt;
use std::net::SocketAddr;

use arrayvec::{ArrayString, ArrayVec};
use ropewalk_settings::{KEY_LEN, PublicKey, unusable};

pub use client::{FleetClient, FleetEvent, FleetLink, NamedProxy, Preference, ProxyView};
pub(crate) use gathering::Gathering;
pub(crate) use progress::Progress;
pub(crate) use telling::Telling;

/// Most proxies of a fleet.
pub const MAX_PROXIES: usize = 64;

/// Most addresses of one proxy in the list.
pub const MAX_PROXY_ADDRESSES: usize = 8;

/// Most bytes of the name of a proxy, and of its region.
pub const MAX_PROXY_WORD: usize = 32;

/// The name of a proxy in its fleet: 1 to 32 of a to z, 0 to 9 and `-`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProxyId(ArrayString<MAX_PROXY_WORD>);

impl ProxyId {
    /// This name; `None`: it is none.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let is_name = !text.is_empty() && text.bytes().all(is_known);
        ArrayString::from(text).ok().filter(|_| is_name).map(Self)
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProxyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Where a proxy stands, in its operator's words: at most 32 bytes without control characters. Empty: nothing is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Region(ArrayString<MAX_PROXY_WORD>);

impl Region {
    /// This region; `None`: it is too long, or has control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_text = !text.chars().any(char::is_control);
        ArrayString::from(text).ok().filter(|_| is_text).map(Self)
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Whether a proxy takes new sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProxyState {
    /// It does.
    #[default]
    Serving,
    /// It asks its clients to move to another.
    Draining,
}

impl ProxyState {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

/// One proxy of the fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetProxy {
    /// Its name.
    pub id: ProxyId,
    /// Where it stands.
    pub region: Region,
    /// Where it is reached, in order of preference; at least one.
    pub addresses: ArrayVec<SocketAddr, MAX_PROXY_ADDRESSES>,
    /// Its key.
    pub public_key: PublicKey,
    /// Whether it takes new sessions.
    pub state: ProxyState,
    /// How much of what it can carry it carries, 0 to 100.
    pub load: u8,
}

/// The proxies of a fleet, at most [`MAX_PROXIES`]; no two have the same name or key, and each can be reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FleetList(Vec<FleetProxy>);

/// Why proxies are no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FleetListError {
    /// There are too many.
    #[error("a fleet has at most {MAX_PROXIES} proxies")]
    TooMany,
    /// Two have the same name.
    #[error("two proxies are called `{0}`")]
    SameId(ProxyId),
    /// Two have the same key.
    #[error("`{0}` has the public key of another proxy: each proxy needs a key of its own")]
    SameKey(ProxyId),
    /// One has no key.
    #[error("the public key of `{0}` is all zeros")]
    NoKey(ProxyId),
    /// One has no address.
    #[error("`{0}` has no address")]
    NoAddress(ProxyId),
    /// One has an address that cannot be sent to.
    #[error("`{0}` has the address {1}, which cannot be sent to")]
    Unusable(ProxyId, SocketAddr),
    /// The load of one is more than all it can carry.
    #[error("the load of `{0}` is above 100 %")]
    Load(ProxyId),
}

impl FleetList {
    /// A list of these.
    ///
    /// # Errors
    /// [`FleetListError`].
    pub fn new(proxies: Vec<FleetProxy>) -> Result<Self, FleetListError> {
        if proxies.len() > MAX_PROXIES {
            return Err(FleetListError::TooMany);
        }
        for (at, proxy) in proxies.iter().enumerate() {
            check(proxy)?;
            let before = &proxies[..at];
            if before.iter().any(|other| other.id == proxy.id) {
                return Err(FleetListError::SameId(proxy.id));
            }
            if before.iter().any(|other| other.public_key == proxy.public_key) {
                return Err(FleetListError::SameKey(proxy.id));
            }
        }
        Ok(Self(proxies))
    }

    /// The proxies, in the order in which they were told.
    pub fn iter(&self) -> impl Iterator<Item = &FleetProxy> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn as_slice(&self) -> &[FleetProxy] {
        &self.0
    }
}

/// What every proxy of a list must have.
fn check(proxy: &FleetProxy) -> Result<(), FleetListError> {
    let id = proxy.id;
    if proxy.public_key.as_bytes() == &[0; KEY_LEN] {
        return Err(FleetListError::NoKey(id));
    }
    if proxy.addresses.is_empty() {
        return Err(FleetListError::NoAddress(id));
    }
    let is_unusable =
        |address: &&SocketAddr| unusable(address.ip()).is_some() || address.port() == 0;
    if let Some(address) = proxy.addresses.iter().find(is_unusable) {
        return Err(FleetListError::Unusable(id, *address));
    }
    if proxy.load > 100 {
        return Err(FleetListError::Load(id));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A proxy of this name, whose key and address follow from the number.
    pub(crate) fn proxy(id: &str, number: u8) -> FleetProxy {
        FleetProxy {
            id: ProxyId::new(id).unwrap(),
            region: Region::new("eu").unwrap(),
            addresses: [SocketAddr::from(([203, 0, 113, number], 51_900))].into_iter().collect(),
            public_key: PublicKey::from_bytes([number; KEY_LEN]),
            state: ProxyState::Serving,
            load: 0,
        }
    }

    #[test]
    fn a_name_is_short_and_of_few_letters_and_a_region_is_any_short_text() {
        let long = "a".repeat(MAX_PROXY_WORD);
        for name in ["fra-1", "0", long.as_str()] {
            assert_eq!(ProxyId::new(name).unwrap().as_str(), name);
        }
        for name in ["", "Fra", "fra_1", "fra 1", "fr\u{e4}", &format!("{long}a")] {
            assert_eq!(ProxyId::new(name), None, "{name}");
        }
        for region in ["", "eu-central", "Z\u{fc}rich, Rack 3"] {
            assert_eq!(Region::new(region).unwrap().as_str(), region);
        }
        for region in ["a\nb", "\u{1b}[2J", &"\u{fc}".repeat(17)] {
            assert_eq!(Region::new(region), None, "{region:?}");
        }
    }

    #[test]
    fn a_list_is_bounded_and_each_of_it_can_be_told_from_the_others_and_reached() {
        let id = |text| ProxyId::new(text).unwrap();
        let with = |change: fn(&mut FleetProxy)| {
            let mut changed = proxy("b", 2);
            change(&mut changed);
            vec![proxy("a", 1), changed]
        };
        let many = |count: u8| (1..=count).map(|n| proxy(&format!("p{n}"), n)).collect::<Vec<_>>();
        let table = [
            (vec![], Ok(0)),
            (with(|_| {}), Ok(2)),
            (many(64), Ok(64)),
            (many(65), Err(FleetListError::TooMany)),
            (with(|b| b.id = ProxyId::new("a").unwrap()), Err(FleetListError::SameId(id("a")))),
            (
                with(|b| b.public_key = PublicKey::from_bytes([1; KEY_LEN])),
                Err(FleetListError::SameKey(id("b"))),
            ),
            (
                with(|b| b.public_key = PublicKey::from_bytes([0; KEY_LEN])),
                Err(FleetListError::NoKey(id("b"))),
            ),
            (with(|b| b.addresses.clear()), Err(FleetListError::NoAddress(id("b")))),
            (
                with(|b| b.addresses.push(([224, 0, 0, 1], 1).into())),
                Err(FleetListError::Unusable(id("b"), ([224, 0, 0, 1], 1).into())),
            ),
            (
                with(|b| b.addresses.push(([203, 0, 113, 9], 0).into())),
                Err(FleetListError::Unusable(id("b"), ([203, 0, 113, 9], 0).into())),
            ),
            (with(|b| b.load = 101), Err(FleetListError::Load(id("b")))),
        ];
        for (proxies, expected) in table {
            assert_eq!(FleetList::new(proxies).map(|list| list.len()), expected);
        }
    }
}
