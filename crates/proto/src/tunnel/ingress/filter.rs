//! Which inner addresses a peer may use (PROTOCOL §10).

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ipnet::{IpNet, Ipv6Net};

/// Inner addresses of one client: IPv4 and IPv6.
const MAX_SOURCES: usize = 2;

/// What the proxy lets one client send. The client itself accepts whatever the proxy sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InnerFilter {
    /// The only source addresses, but for those of [`network`](Self::network); empty: any.
    pub sources: ArrayVec<IpAddr, MAX_SOURCES>,
    /// The IPv6 network behind the client: its hosts send through the client, and what is for them leads to it.
    pub network: Option<Ipv6Net>,
    /// Destinations refused: the pools, where clients may not talk to each other. All clients share the list.
    pub refused: Arc<[IpNet]>,
    /// Exceptions to [`refused`](Self::refused): the proxy's own inner addresses.
    pub allowed: Arc<[IpAddr]>,
}

/// Why a packet from the peer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Source,
    Destination,
}

impl InnerFilter {
    #[inline]
    pub(super) fn check(&self, source: IpAddr, destination: IpAddr) -> Result<(), Refusal> {
        let is_own = self.sources.contains(&source) || self.is_behind(source);
        if !self.sources.is_empty() && !is_own {
            return Err(Refusal::Source);
        }
        let refused = self.refused.iter().any(|prefix| prefix.contains(&destination));
        // What is for the client's own network would come back, and leave again, until its hop limit is used up.
        if (refused && !self.allowed.contains(&destination)) || self.is_behind(destination) {
            return Err(Refusal::Destination);
        }
        Ok(())
    }

    fn is_behind(&self, address: IpAddr) -> bool {
        let IpAddr::V6(address) = address else { return false };
        self.network.is_some_and(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sends_from_its_own_addresses_and_not_to_its_neighbours() {
        let filter = InnerFilter {
            sources: ["10.77.0.2", "fd00::2"].map(|ip| ip.parse::<IpAddr>().unwrap()).into(),
            network: None,
            refused: ["10.77.0.0/16", "fd00::/64"].map(|net| net.parse::<IpNet>().unwrap()).into(),
            allowed: ["10.77.0.1".parse::<IpAddr>().unwrap()].into(),
        };
        let table = [
            ("10.77.0.2", "192.0.2.1", Ok(())),
            ("fd00::2", "2001:db8::1", Ok(())),
            ("10.77.0.2", "10.77.0.1", Ok(())),
            ("10.77.0.3", "192.0.2.1", Err(Refusal::Source)),
            ("192.0.2.1", "192.0.2.1", Err(Refusal::Source)),
            ("10.77.0.2", "10.77.0.3", Err(Refusal::Destination)),
            ("fd00::2", "fd00::3", Err(Refusal::Destination)),
        ];
        for (source, destination, expected) in table {
            let verdict = filter.check(source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(verdict, expected, "{source} to {destination}");
        }
    }

    #[test]
    fn hosts_behind_a_client_send_from_its_network_and_nothing_goes_back_into_it() {
        let sources = ["10.77.0.2", "fd00::2"].map(|ip| ip.parse::<IpAddr>().unwrap()).into();
        let network = Some("2001:db8:7:1::/64".parse().unwrap());
        let filter = InnerFilter { sources, network, ..InnerFilter::default() };
        let table = [
            ("2001:db8:7:1::20", "2001:db8::1", Ok(())),
            ("fd00::2", "2001:db8::1", Ok(())),
            ("10.77.0.2", "192.0.2.1", Ok(())),
            // Those before and behind it, and another client's.
            ("2001:db8:7:0:ffff:ffff:ffff:ffff", "2001:db8::1", Err(Refusal::Source)),
            ("2001:db8:7:2::", "2001:db8::1", Err(Refusal::Source)),
            ("2001:db8:8:1::20", "2001:db8::1", Err(Refusal::Source)),
            ("fd00::3", "2001:db8::1", Err(Refusal::Source)),
            ("fd00::2", "2001:db8:7:1::20", Err(Refusal::Destination)),
            ("2001:db8:7:1::20", "2001:db8:7:1::21", Err(Refusal::Destination)),
            ("2001:db8:7:1::20", "2001:db8:7:2::21", Ok(())),
        ];
        for (source, destination, expected) in table {
            let verdict = filter.check(source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(verdict, expected, "{source} to {destination}");
        }
    }

    #[test]
    fn a_filter_without_rules_lets_all_pass() {
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(InnerFilter::default().check(a, b), Ok(()));
    }
}
