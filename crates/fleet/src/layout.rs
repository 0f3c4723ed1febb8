//! Where things stand in etcd, and how they are written.
//!
//! | key below the prefix | value | lives |
//! | --- | --- | --- |
//! | `fleet` | [`FleetValue`]: what all proxies must agree on | always |
//! | `clients/KEY` | [`ClientValue`] | until it is removed |
//! | `names/NAME`, `addresses/INNER` | [`Owner`]: whose it is | as long as its client |
//! | `invitations/HASH` | [`InvitationValue`] | until 30 days after it expired |
//! | `drains/ID` | [`DrainValue`] | until `undrain` |
//! | `proxies/ID` | [`ProxyValue`] | as long as the proxy keeps its lease |
//! | `sessions/KEY` | [`SessionValue`] | as long as the proxy keeps its lease |
//!
//! Every value is JSON with a version. Fields that this program does not know stay when it writes a value again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{Ipv4Net, Ipv6Net};
use ropewalk_settings::{InvitationToken, PublicKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of all values that this program writes.
pub const VERSION: u32 = 1;

/// Bytes of the longest value that is read. What is longer is not ours.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// Characters of the longest id of a proxy, and bytes of the longest region.
pub const MAX_ID: usize = 32;

/// Most addresses of a proxy.
pub const MAX_ADDRESSES: usize = 8;

/// The keys below one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

/// What a key is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The fleet itself.
    Fleet,
    /// A client.
    Client(PublicKey),
    /// An invitation, by the hash of its token.
    Invitation(String),
    /// A proxy.
    Proxy(String),
    /// A proxy that is to drain.
    Drain(String),
    /// The session of this client.
    Session(PublicKey),
    /// A name or an address: what it says stands with its client, too.
    Index,
}

impl Layout {
    /// The folders with a key for each client, or more, in the order of their keys; and whether who reads all reads them: those of
    /// addresses and names only say whose something is.
    pub const OF_CLIENTS: [(&str, bool); 4] =
        [("addresses/", false), ("clients/", true), ("names/", false), ("sessions/", true)];

    /// The keys below `prefix`, which ends in no slash.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: format!("{}/", prefix.trim_end_matches('/')) }
    }

    /// What all keys begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of the fleet.
    #[must_use]
    pub fn fleet(&self) -> String {
        format!("{}fleet", self.prefix)
    }

    /// What the keys of all clients begin with.
    #[must_use]
    pub fn clients(&self) -> String {
        format!("{}clients/", self.prefix)
    }

    /// The key of a client.
    #[must_use]
    pub fn client(&self, key: &PublicKey) -> String {
        format!("{}clients/{key}", self.prefix)
    }

    /// The key of a client's name.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        format!("{}names/{name}", self.prefix)
    }

    /// The key of an invitation.
    #[must_use]
    pub fn invitation(&self, hash: &str) -> String {
        format!("{}invitations/{hash}", self.prefix)
    }

    /// The key of an inner address.
    #[must_use]
    pub fn address(&self, address: IpAddr) -> String {
        format!("{}addresses/{address}", self.prefix)
    }

    /// The key of a proxy.
    #[must_use]
    pub fn proxy(&self, id: &str) -> String {
        format!("{}proxies/{id}", self.prefix)
    }

    /// The key of a proxy that is to drain.
    #[must_use]
    pub fn drain(&self, id: &str) -> String {
        format!("{}drains/{id}", self.prefix)
    }

    /// The key of a client's session.
    #[must_use]
    pub fn session(&self, key: &PublicKey) -> String {
        format!("{}sessions/{key}", self.prefix)
    }

    /// What a key is about; `None`: it is not ours.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> Option<Place> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if key == "fleet" {
            return Some(Place::Fleet);
        }
        let (folder, rest) = key.split_once('/')?;
        match folder {
            "clients" => rest.parse().ok().map(Place::Client),
            "sessions" => rest.parse().ok().map(Place::Session),
            "invitations" => is_hash(rest).then(|| Place::Invitation(rest.to_owned())),
            "proxies" => is_id(rest).then(|| Place::Proxy(rest.to_owned())),
            "drains" => is_id(rest).then(|| Place::Drain(rest.to_owned())),
            "names" | "addresses" => Some(Place::Index),
            _ => None,
        }
    }
}

/// Whether a proxy may be called so: 1 to 32 small letters, digits and hyphens.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(allowed)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What is kept of a token.
#[must_use]
pub fn hash(token: &InvitationToken) -> String {
    token.digest().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fields of a newer program, which stay as they are.
pub type Unknown = Map<String, Value>;

/// What all proxies of a fleet must agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetValue {
    /// The version of all values of this fleet.
    pub version: u32,
    /// How the fleet is called.
    pub name: String,
    /// The pool of inner IPv4 addresses.
    pub pool_v4: Ipv4Net,
    /// The pool of inner IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_v6: Option<Ipv6Net>,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientValue {
    /// The version.
    pub version: u32,
    /// How it is called.
    pub name: String,
    /// Its inner IPv4 address.
    pub address_v4: Ipv4Addr,
    /// Its inner IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_v6: Option<Ipv6Addr>,
    /// When the key was bound, in seconds since 1970.
    pub since: u64,
    /// It gets no session until it is enabled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// The key that it had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formerly: Option<PublicKey>,
    /// The hash of the token by which it came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<String>,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Whose a name or an address is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Owner {
    /// The version.
    pub version: u32,
    /// The client's key.
    pub public_key: PublicKey,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// An invitation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InvitationValue {
    /// The version.
    pub version: u32,
    /// How the client will be called.
    pub name: String,
    /// When it counts no more, in seconds since 1970.
    pub expires: u64,
    /// The proxies at which it counts; empty: at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<String>,
    /// Who used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<PublicKey>,
    /// It was taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Whether a proxy takes new sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyState {
    /// It does.
    #[default]
    Serving,
    /// It does not, and its clients move away.
    Draining,
}

/// A proxy that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyValue {
    /// The version of the value.
    pub version: u32,
    /// Its public key.
    pub public_key: PublicKey,
    /// Where clients find it.
    pub addresses: Vec<SocketAddr>,
    /// Where it stands.
    pub region: String,
    /// Clients that it is made for.
    pub capacity: u32,
    /// How much of that is used, in percent.
    pub load: u8,
    /// Sessions that it has.
    pub sessions: u32,
    /// The version of its program.
    pub program: String,
    /// Whether it takes new sessions.
    pub state: ProxyState,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// That a proxy is to take no new sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrainValue {
    /// The version.
    pub version: u32,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Where a client has its session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionValue {
    /// The version.
    pub version: u32,
    /// The proxy's id.
    pub proxy: String,
    /// Since when, in microseconds since 1970 by the proxy's clock.
    pub since_us: u64,
    /// The revision at which this session was first written, where that is an earlier one: its proxy was cut off meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<i64>,
    /// Fields of a newer program.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Reads a value.
///
/// # Errors
/// Why it is not one of ours.
pub fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(format!(
            "it has {} bytes, and ours have at most {MAX_VALUE_BYTES}",
            value.len()
        ));
    }
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// Writes a value.
#[must_use]
pub fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("maps with text keys, numbers and text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_by_its_folder_and_others_are_not_ours() {
        let layout = Layout::new("/ropewalk/home/");
        let key = PublicKey::from_bytes([7; 32]);
        let hash = hash(&InvitationToken::from_bytes([1; 16]));
        let table = [
            (layout.fleet(), Some(Place::Fleet)),
            (layout.client(&key), Some(Place::Client(key))),
            (layout.session(&key), Some(Place::Session(key))),
            (layout.invitation(&hash), Some(Place::Invitation(hash.clone()))),
            (layout.proxy("fra-1"), Some(Place::Proxy("fra-1".into()))),
            (layout.drain("fra-1"), Some(Place::Drain("fra-1".into()))),
            (layout.name("a/b c"), Some(Place::Index)),
            ("/ropewalk/home/proxies/Fra".into(), None),
            ("/ropewalk/home/clients/short".into(), None),
            ("/ropewalk/other/fleet".into(), None),
            ("/ropewalk/home/".into(), None),
        ];
        for (text, place) in table {
            assert_eq!(layout.place(text.as_bytes()), place, "{text}");
        }
        assert_eq!(layout.place(&[0xff]), None);
    }

    #[test]
    fn fields_of_a_newer_program_stay_in_a_value() {
        let text = r#"{"version":1,"name":"a","address_v4":"10.77.0.2","since":5,"colour":"blue"}"#;
        let value: ClientValue = read(text.as_bytes()).unwrap();
        let again: Value = serde_json::from_slice(&written(&value)).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_value_that_is_long_or_no_json_is_told() {
        let long = read::<FleetValue>(&vec![b' '; MAX_VALUE_BYTES + 1]).unwrap_err();
        assert!(long.contains("has 16385 bytes"), "{long}");
        let other = read::<FleetValue>(b"{\"name\":3}").unwrap_err();
        assert!(other.contains("line 1"), "{other}");
    }
}
