//! The proxies that a client knows: which of them may be used, how they are told, and what of them outlives a run.

use std::net::SocketAddr;

use ropewalk_control::api::{KnownProxy, ProxiesReport};
use ropewalk_proto::fleet::{
    FleetClient, FleetList, FleetProxy, Preference, ProxyId, ProxyState, ProxyView, Region,
};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::PublicKey;
use serde::{Deserialize, Serialize};

/// Bytes of the longest `choose`: a name or region of a fleet, or an address.
pub const MAX_CHOICE: usize = 64;

/// What `choose` says where all proxies may be used.
pub const CHOOSE_AUTO: &str = "auto";

/// What a text of `choose` means.
///
/// # Errors
/// It is empty or too long.
pub fn preference(text: &str) -> Result<Preference, String> {
    match text {
        CHOOSE_AUTO => Ok(Preference::Auto),
        "" => Err(format!(
            "an empty name: write \"{CHOOSE_AUTO}\", or a proxy's ID, region or address"
        )),
        text if text.len() > MAX_CHOICE => {
            Err(format!("a proxy's ID, region or address has at most {MAX_CHOICE} bytes"))
        }
        text => Ok(Preference::Named(text.to_owned())),
    }
}

/// How a choice is written.
#[must_use]
pub fn choice_word(choice: &Preference) -> String {
    match choice {
        Preference::Auto => CHOOSE_AUTO.to_owned(),
        Preference::Named(name) => name.clone(),
    }
}

/// All that are known, and why one of them is in use.
#[must_use]
pub fn report(client: &FleetClient, now: Instant) -> ProxiesReport {
    let (why, since) = client.why();
    ProxiesReport {
        choose: choice_word(client.preference()),
        why: why.to_string(),
        since_s: now.since(since).as_secs_f64(),
        moves: client.moves(),
        proxies: client.proxies(now).into_iter().map(shown).collect(),
    }
}

fn shown(proxy: ProxyView) -> KnownProxy {
    let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
    KnownProxy {
        id: proxy.id,
        region: Some(proxy.region).filter(|region| !region.is_empty()),
        addresses: proxy.addresses,
        public_key: proxy.key,
        state: proxy.state.as_str().to_owned(),
        load_percent: proxy.load,
        rtt_ms: ms(proxy.rtt),
        distance_ms: ms(proxy.distance),
        answered_s: proxy.answered.map(|ago| ago.as_secs_f64()),
        in_use: proxy.present,
        staying_flows: proxy.staying,
        wanted: proxy.wanted,
        not_tried_for_s: proxy.shunned.map(|time| time.as_secs_f64()),
    }
}

/// What outlives a run of one proxy. Its state and load are of the moment, and are not kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptProxy {
    /// Its name in the fleet.
    pub id: String,
    /// Where it stands; empty: nothing is said.
    pub region: String,
    /// Where it is reached.
    pub addresses: Vec<SocketAddr>,
    /// Its key.
    pub public_key: PublicKey,
}

/// What outlives a run of a fleet.
#[must_use]
pub fn kept(list: &FleetList) -> Vec<KeptProxy> {
    let kept = list.iter().map(|proxy| KeptProxy {
        id: proxy.id.to_string(),
        region: proxy.region.to_string(),
        addresses: proxy.addresses.to_vec(),
        public_key: proxy.public_key,
    });
    kept.collect()
}

/// The fleet of which this was kept.
///
/// # Errors
/// A proxy makes no sense, or they make none together.
pub fn fleet_of(kept: &[KeptProxy]) -> Result<FleetList, String> {
    let proxies = kept.iter().map(proxy).collect::<Option<Vec<_>>>();
    let proxies = proxies.ok_or_else(|| "a proxy in it makes no sense".to_owned())?;
    FleetList::new(proxies).map_err(|error| error.to_string())
}

fn proxy(kept: &KeptProxy) -> Option<FleetProxy> {
    Some(FleetProxy {
        id: ProxyId::new(&kept.id)?,
        region: Region::new(&kept.region)?,
        addresses: kept.addresses[..].try_into().ok()?,
        public_key: kept.public_key,
        state: ProxyState::Serving,
        load: 0,
    })
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::KEY_LEN;

    use super::*;

    #[test]
    fn a_choice_is_a_word_that_reads_back() {
        for word in ["auto", "fra-1", "203.0.113.7:51900"] {
            assert_eq!(choice_word(&preference(word).unwrap()), word);
        }
        assert!(preference("").is_err() && preference(&"a".repeat(MAX_CHOICE + 1)).is_err());
    }

    #[test]
    fn what_is_kept_of_a_fleet_reads_back_and_what_makes_no_sense_is_refused() {
        let proxy = KeptProxy {
            id: "fra-1".to_owned(),
            region: "eu".to_owned(),
            addresses: vec![([203, 0, 113, 7], 51_900).into()],
            public_key: PublicKey::from_bytes([7; KEY_LEN]),
        };
        let list = fleet_of(std::slice::from_ref(&proxy)).unwrap();
        assert_eq!(kept(&list), std::slice::from_ref(&proxy));
        let table = [
            (vec![KeptProxy { id: "Fra 1".to_owned(), ..proxy.clone() }], "makes no sense"),
            (vec![proxy.clone(), proxy.clone()], "two proxies are called"),
            (vec![KeptProxy { addresses: Vec::new(), ..proxy }], "has no address"),
        ];
        for (kept, expected) in table {
            let error = fleet_of(&kept).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
