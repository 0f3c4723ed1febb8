//! Which inner addresses a peer may use (PROTOCOL §10).

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ipnet::IpNet;

/// Inner addresses of one client: IPv4 and IPv6.
const MAX_SOURCES: usize = 2;

/// What the proxy lets one client send. The client itself accepts whatever the proxy sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InnerFilter {
    /// The only source addresses; empty: any.
    pub sources: ArrayVec<IpAddr, MAX_SOURCES>,
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
        if !self.sources.is_empty() && !self.sources.contains(&source) {
            return Err(Refusal::Source);
        }
        let refused = self.refused.iter().any(|prefix| prefix.contains(&destination));
        if refused && !self.allowed.contains(&destination) {
            return Err(Refusal::Destination);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sends_from_its_own_addresses_and_not_to_its_neighbours() {
        let filter = InnerFilter {
            sources: ["10.77.0.2", "fd00::2"].map(|ip| ip.parse::<IpAddr>().unwrap()).into(),
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
    fn a_filter_without_rules_lets_all_pass() {
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(InnerFilter::default().check(a, b), Ok(()));
    }
}
