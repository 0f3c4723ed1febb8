//! A network as the app describes it, as JSON: what a `[[link]]` of a `client.toml` says, by the same names.

use std::net::IpAddr;

use ropewalk_settings::{
    Bitrate, Cost, Direction, Importance, Keepalive, LinkPolicy, Parsed, Usage, unusable,
};
use serde::Deserialize;

use crate::Error;

/// Bytes of the longest description.
const MAX_BYTES: usize = 16 << 10;

/// Characters of the longest name, as of a link.
const MAX_NAME: usize = 32;

/// The smallest MTU of an interface that is believed: what IPv4 needs (RFC 791 section 3.2 has every host take 576).
const MIN_MTU: u16 = 576;

/// A network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The app's number for it: on Android `Network.getNetworkHandle()`.
    pub id: u64,
    /// For people, such as `wifi`; the proxy is told it.
    pub name: String,
    /// Our addresses on it that a socket may be bound to. None: the kernel chooses.
    pub addresses: Vec<IpAddr>,
    /// Largest IP packet in bytes, if that is known.
    pub mtu: Option<u16>,
    /// How the NATs on it are kept open.
    pub keepalive: Keepalive,
    /// Whether bytes cost money on it.
    pub metered: bool,
    /// How it is used, in both directions.
    pub policy: LinkPolicy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkFile {
    id: u64,
    name: String,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    mtu: Option<u16>,
    keepalive: Option<Parsed<Keepalive>>,
    #[serde(default)]
    metered: bool,
    #[serde(default, rename = "use")]
    usage: Usage,
    #[serde(default)]
    direction: Direction,
    max_up: Option<Parsed<Bitrate>>,
    max_down: Option<Parsed<Bitrate>>,
    rate_up: Option<Parsed<Bitrate>>,
    rate_down: Option<Parsed<Bitrate>>,
    weight: Option<f64>,
    cost: Option<Parsed<Cost>>,
    importance: Option<Importance>,
}

impl Network {
    /// Reads a description.
    ///
    /// # Errors
    /// It is not understood, or makes no sense.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let wrong = |problem: String| Error::Config(format!("the network: {problem}"));
        if text.len() > MAX_BYTES {
            return Err(wrong(format!("{} bytes; at most {MAX_BYTES} are possible", text.len())));
        }
        let file: NetworkFile =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let printable = file.name.chars().all(|c| c.is_ascii_graphic());
        if file.name.is_empty() || file.name.len() > MAX_NAME || !printable {
            return Err(wrong(format!(
                "its name has 1 to {MAX_NAME} printable characters without spaces"
            )));
        }
        // Systems say 0 where they do not know.
        let mtu = file.mtu.filter(|mtu| *mtu > 0);
        if let Some(mtu) = mtu.filter(|mtu| *mtu < MIN_MTU) {
            return Err(wrong(format!("an MTU of {mtu} bytes; at least {MIN_MTU} are needed")));
        }
        let policy = file.policy();
        policy.check().map_err(wrong)?;
        // Link-local addresses are among those of every interface, and reach no proxy.
        let is_usable = |address: &IpAddr| unusable(*address).is_none();
        Ok(Self {
            id: file.id,
            addresses: file.addresses.into_iter().filter(is_usable).collect(),
            mtu,
            keepalive: file.keepalive.map_or(Keepalive::default(), |Parsed(keepalive)| keepalive),
            metered: file.metered,
            policy,
            name: file.name,
        })
    }

    /// Whether a link of one can go on as a link of the other, whatever its policy is: that changes in place.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (&self.name, self.mtu, self.keepalive, self.metered)
            == (&other.name, other.mtu, other.keepalive, other.metered)
    }
}

impl NetworkFile {
    fn policy(&self) -> LinkPolicy {
        let rate = |rate: Option<Parsed<Bitrate>>| rate.map(|Parsed(rate)| rate);
        LinkPolicy {
            usage: self.usage,
            direction: self.direction,
            max_up: rate(self.max_up),
            max_down: rate(self.max_down),
            rate_up: rate(self.rate_up),
            rate_down: rate(self.rate_down),
            weight: self.weight,
            cost: self.cost.as_ref().map(|Parsed(cost)| cost.clone()),
            importance: self.importance,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Code;

    #[test]
    fn a_network_needs_a_number_and_a_name_and_takes_what_a_link_takes() {
        let network = Network::from_json(r#"{"id": 432902426637, "name": "wifi"}"#).unwrap();
        assert_eq!((network.id, network.mtu, network.metered), (432_902_426_637, None, false));
        assert_eq!(network.policy, LinkPolicy::default());
        let network = Network::from_json(
            r#"{"id": 7, "name": "lte", "addresses": ["fe80::1", "100.64.3.4", "2001:db8::4"], "mtu": 1420,
                "metered": true, "keepalive": "20s", "use": "when-needed", "max_down": "5 Mbit/s", "cost": "5 EUR/GB"}"#,
        );
        let network = network.unwrap();
        let addresses: Vec<_> = network.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["100.64.3.4", "2001:db8::4"], "no link-local one");
        assert_eq!((network.mtu, network.metered), (Some(1420), true));
        assert_eq!(network.keepalive, Keepalive::Every(Duration::from_secs(20)));
        assert_eq!(network.policy.usage, Usage::WhenNeeded);
        assert_eq!(network.policy.max_down, Some(Bitrate::from_mbps(5)));
    }

    #[test]
    fn a_network_that_makes_no_sense_is_refused_with_a_sentence() {
        let name = "x".repeat(33);
        let table = [
            ("{}".to_owned(), "missing field `id`"),
            (r#"{"id": -1, "name": "a"}"#.to_owned(), "invalid value"),
            (r#"{"id": 1, "name": ""}"#.to_owned(), "1 to 32 printable"),
            (format!(r#"{{"id": 1, "name": "{name}"}}"#), "1 to 32 printable"),
            (r#"{"id": 1, "name": "a b"}"#.to_owned(), "1 to 32 printable"),
            (r#"{"id": 1, "name": "a", "mtu": 100}"#.to_owned(), "an MTU of 100"),
            (r#"{"id": 1, "name": "a", "interface": "b"}"#.to_owned(), "unknown field"),
            (r#"{"id": 1, "name": "a", "max_up": "fast"}"#.to_owned(), "fast"),
            (" ".repeat(MAX_BYTES + 1), "bytes; at most"),
        ];
        for (text, expected) in table {
            let error = Network::from_json(&text).unwrap_err();
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            assert_eq!(error.code(), Code::Config);
        }
        let unknown = Network::from_json(r#"{"id": 1, "name": "a", "mtu": 0}"#).unwrap();
        assert_eq!(unknown.mtu, None);
    }

    #[test]
    fn what_changes_in_place_needs_no_new_link() {
        let read =
            |more: &str| Network::from_json(&format!(r#"{{"id": 1, "name": "a"{more}}}"#)).unwrap();
        let base = read("");
        for (more, expected) in [
            (r#", "use": "backup""#, true),
            (r#", "addresses": ["192.0.2.1"]"#, true),
            (r#", "mtu": 1400"#, false),
            (r#", "metered": true"#, false),
            (r#", "keepalive": "off""#, false),
        ] {
            assert_eq!(base.is_like(&read(more)), expected, "{more}");
        }
    }
}
