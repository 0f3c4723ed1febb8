//! Which other proxies of the fleet an invitation names: where a client joins while the proxy that invited it is away.

use std::net::SocketAddr;

use ropewalk_control::invitation::{InvitingProxy, MAX_OTHERS};
use ropewalk_fleet::{FleetProxy, ProxyState};
use ropewalk_settings::{HostPort, Text as _, unusable};

/// Those that may be away at another time than `own` (its id and region): of other regions first, then those that are used least.
#[must_use]
pub fn choose((own, region): (&str, &str), proxies: &[FleetProxy]) -> Vec<InvitingProxy> {
    let mut others: Vec<_> = proxies
        .iter()
        .filter(|proxy| proxy.id != own && proxy.state == ProxyState::Serving)
        .map(|proxy| (proxy, one_of_each_kind(&proxy.addresses)))
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect();
    others.sort_by_key(|(proxy, _)| (proxy.region == region, proxy.load, proxy.id.clone()));
    let named = others.into_iter().take(MAX_OTHERS);
    named
        .map(|(proxy, addresses)| InvitingProxy { addresses, public_key: proxy.public_key })
        .collect()
}

/// The first address that is IPv4 and the first that is IPv6, in their order.
fn one_of_each_kind(addresses: &[SocketAddr]) -> Vec<HostPort> {
    let mut kinds: Vec<SocketAddr> = Vec::new();
    let usable = addresses.iter().filter(|address| unusable(address.ip()).is_none());
    for address in usable {
        if kinds.iter().all(|known| known.is_ipv4() != address.is_ipv4()) {
            kinds.push(*address);
        }
    }
    kinds.iter().filter_map(|address| HostPort::from_text(&address.to_string()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::{KEY_LEN, PublicKey};

    fn proxy(number: u8, region: &str, load: u8) -> FleetProxy {
        FleetProxy {
            id: format!("p-{number}"),
            region: region.into(),
            addresses: vec![format!("198.51.100.{number}:51900").parse().unwrap()],
            public_key: PublicKey::from_bytes([number; KEY_LEN]),
            state: ProxyState::Serving,
            load,
        }
    }

    fn chosen(proxies: &[FleetProxy]) -> Vec<u8> {
        let chosen = choose(("p-1", "eu"), proxies);
        chosen.iter().map(|other| other.public_key.as_bytes()[0]).collect()
    }

    #[test]
    fn other_regions_come_first_then_the_least_used_and_never_this_one() {
        let fleet = [
            proxy(1, "eu", 0),
            proxy(2, "eu", 10),
            proxy(3, "us", 90),
            proxy(4, "us", 20),
            proxy(5, "eu", 5),
        ];
        assert_eq!(chosen(&fleet), [4, 3, 5]);
        assert_eq!(chosen(&fleet[..2]), [2]);
        assert_eq!(chosen(&fleet[..1]), [0; 0]);
    }

    #[test]
    fn one_that_drains_or_cannot_be_reached_is_not_named() {
        let mut draining = proxy(2, "us", 0);
        draining.state = ProxyState::Draining;
        let mut nowhere = proxy(3, "us", 0);
        nowhere.addresses = vec!["0.0.0.0:51900".parse().unwrap()];
        assert_eq!(chosen(&[draining, nowhere, proxy(4, "eu", 99)]), [4]);
    }

    #[test]
    fn one_address_of_each_kind_is_named() {
        let mut many = proxy(2, "us", 0);
        many.addresses = ["198.51.100.2:51900", "198.51.100.2:443", "[2001:db8::2]:51900"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let chosen = choose(("p-1", "eu"), &[many]);
        let addresses: Vec<_> = chosen[0].addresses.iter().map(HostPort::to_string).collect();
        assert_eq!(addresses, ["198.51.100.2:51900", "[2001:db8::2]:51900"]);
    }
}
