//! Routes to the clients, and the guard behind them.
//!
//! Each client's inner address, and the network behind a client, is a route of its own into the TUN. Behind all of them stands, for each inner prefix, a route
//! "unreachable" with the worst metric: an inner address without a client has no way. The guard stays *on purpose* when the
//! daemon stops or crashes: the TUN and its routes are gone then, and without the guard the host would send inner packets
//! (answers for clients, translated back) along its own default route to its provider.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use ropewalk_link_io::netlink::{MAIN_TABLE, PROXY_PROTOCOL, Route, Target};

/// The guard's metric: worse than anything a person or a daemon uses, so that any other route to the prefix wins.
pub const GUARD_METRIC: u32 = 4_000_000_000;

/// The metric of a client's route. Nobody else routes single inner addresses.
const CLIENT_METRIC: u32 = 10;

/// The guard routes for these inner prefixes.
#[must_use]
pub fn guards(inner: &[IpNet]) -> BTreeSet<Route> {
    let guard = |net: &IpNet| Route {
        destination: net.trunc(),
        table: MAIN_TABLE,
        metric: GUARD_METRIC,
        target: Target::Unreachable,
        protocol: PROXY_PROTOCOL,
        mtu: None,
    };
    inner.iter().map(guard).collect()
}

/// Whether a route is one of [`guards`], for whatever prefix.
#[must_use]
pub fn is_guard(route: &Route) -> bool {
    route.protocol == PROXY_PROTOCOL
        && route.metric == GUARD_METRIC
        && route.target == Target::Unreachable
}

/// The smallest MTU of IPv6 (RFC 8200 §5). Senders ignore a "packet too big" that names less (RFC 8201 §4) and would
/// go on with what does not fit; packets of this size take the links that carry them.
const IPV6_MIN_MTU: u32 = 1280;

/// The route of one client's inner address, or of the network behind it, into the TUN (its interface number), for packets of at
/// most `mtu` bytes.
#[must_use]
pub fn client_route(tun: u32, inner: IpNet, mtu: u32) -> Route {
    Route {
        destination: inner.trunc(),
        table: MAIN_TABLE,
        metric: CLIENT_METRIC,
        target: Target::Interface { index: tun, gateway: None, onlink: false },
        protocol: PROXY_PROTOCOL,
        mtu: Some(if inner.addr().is_ipv6() { mtu.max(IPV6_MIN_MTU) } else { mtu }),
    }
}

/// The routes of all clients, with the MTU of each.
#[must_use]
pub fn client_routes(tun: u32, clients: &BTreeMap<IpNet, u32>) -> BTreeSet<Route> {
    clients.iter().map(|(inner, mtu)| client_route(tun, *inner, *mtu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_known_as_one_and_a_client_route_is_not() {
        let inner: Vec<IpNet> =
            ["10.77.0.1/16", "fd77::/64"].map(|net| net.parse().unwrap()).into();
        let guards = guards(&inner);
        assert_eq!(guards.len(), 2);
        assert!(guards.iter().all(is_guard));
        assert_eq!(guards.first().unwrap().destination.to_string(), "10.77.0.0/16");
        let client = client_route(7, "10.77.0.2/32".parse().unwrap(), 1400);
        assert!(!is_guard(&client));
        assert_eq!(client.destination.to_string(), "10.77.0.2/32");
    }

    #[test]
    fn no_ipv6_sender_is_told_an_mtu_that_it_would_ignore() {
        for (inner, mtu, told) in [
            ("10.77.0.2/32", 1240, 1240),
            ("10.77.0.2/32", 1400, 1400),
            ("fd77::2/128", 1240, 1280),
            ("fd77::2/128", 1400, 1400),
            ("2001:db8:7:1::/64", 1240, 1280),
        ] {
            let route = client_route(7, inner.parse().unwrap(), mtu);
            assert_eq!(route.mtu, Some(told), "{inner} {mtu}");
        }
    }
}
