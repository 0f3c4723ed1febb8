//! What the protocol core is told of the config: the same values in the core's own types.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ropewalk_daemon::core;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::endpoint::{EndpointConfig, PeerConfig as CorePeer, Share, SpeedRules};
use ropewalk_proto::time::Duration;
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{Direction, PresharedKey};

use crate::config::Config;
use crate::leases::Lease;
use crate::pool::Pools;

/// Sessions for each peer: one in use, one being made while the old one is still used.
const SESSIONS_PER_PEER: usize = 2;

/// What an endpoint that serves this share is told. `wall_clock` is the time since 1970 at the core's instant zero; `aes`:
/// the processor has instructions for AES; `speed` is what all parts share of speed tests.
#[must_use]
pub fn endpoint(
    config: &Config,
    wall_clock: Duration,
    aes: bool,
    share: Share,
    speed: SpeedRules,
) -> EndpointConfig {
    EndpointConfig {
        tunnel: TunnelConfig::new(&config.tunnel, Direction::Down),
        secret: StaticSecret::new(&config.private_key),
        ciphers: core::ciphers(config.tunnel.cipher, aes),
        inner_v4: Some(config.pools.gateway_v4()),
        inner_v6: config.pools.gateway_v6(),
        name_servers: NameServers::of(config.dns.iter().copied()),
        max_sessions: config.max_peers.saturating_mul(SESSIONS_PER_PEER),
        wall_clock,
        share,
        speed: Some(speed),
    }
}

/// What all peers may reach inside the tunnel: each is told of the same lists.
#[derive(Clone, Debug)]
pub struct Inside {
    refused: Arc<[IpNet]>,
    allowed: Arc<[IpAddr]>,
}

impl Inside {
    /// Of this proxy.
    #[must_use]
    pub fn new(pools: &Pools, client_to_client: bool) -> Self {
        let refused = if client_to_client { Vec::new() } else { prefixes(pools) };
        Self { refused: refused.into(), allowed: gateways(pools).into() }
    }
}

/// What the endpoint is told of one peer: its name, the secret that it shares, and whether it gets a session; its addresses, and the
/// network behind it. Without addresses (no lease) the peer is refused.
#[must_use]
pub fn peer(
    (name, preshared_key, enabled): (&Arc<str>, Option<&PresharedKey>, bool),
    lease: Option<Lease>,
    behind: Option<Ipv6Net>,
    pools: &Pools,
    inside: &Inside,
) -> CorePeer {
    let inner_v4 = lease.and_then(|lease| Ipv4Net::new(lease.v4, pools.v4().prefix_len()).ok());
    let inner_v6 = lease
        .and_then(|lease| lease.v6.zip(pools.v6()))
        .and_then(|(v6, pool)| Ipv6Net::new(v6, pool.prefix_len()).ok());
    let sources =
        [inner_v4.map(|net| IpAddr::V4(net.addr())), inner_v6.map(|net| IpAddr::V6(net.addr()))];
    CorePeer {
        name: Arc::clone(name),
        psk: preshared_key.cloned().unwrap_or(PresharedKey::NONE),
        inner_v4,
        inner_v6,
        filter: InnerFilter {
            sources: sources.into_iter().flatten().collect(),
            network: behind.filter(|_| inner_v6.is_some()),
            refused: Arc::clone(&inside.refused),
            allowed: Arc::clone(&inside.allowed),
        },
        enabled,
    }
}

/// The prefixes of the pools.
#[must_use]
pub fn prefixes(pools: &Pools) -> Vec<IpNet> {
    [Some(IpNet::V4(pools.v4())), pools.v6().map(IpNet::V6)].into_iter().flatten().collect()
}

/// The networks behind clients.
#[must_use]
pub fn networks(config: &Config) -> Vec<IpNet> {
    config.peers.iter().filter_map(|peer| peer.prefix_v6).map(IpNet::V6).collect()
}

/// The proxy's own inner addresses.
#[must_use]
pub fn gateways(pools: &Pools) -> Vec<IpAddr> {
    let v6 = pools.gateway_v6().map(IpAddr::V6);
    [Some(IpAddr::V4(pools.gateway_v4())), v6].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
    use std::path::Path;

    fn config(text: &str) -> Config {
        let text =
            format!("private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n{text}");
        Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    #[test]
    fn a_peer_may_send_from_its_own_addresses_and_to_its_neighbours_only_if_allowed() {
        let file = config(
            "pool_v4 = \"10.9.0.0/24\"\npool_v6 = \"fd00:9::/64\"\n[[peer]]\nname = \"lisa\"\n\
             public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n",
        );
        let (v4, v6) = ("10.9.0.2".parse().unwrap(), "fd00:9::2".parse().unwrap());
        let lease = Lease { v4, v6: Some(v6) };
        let told = |enabled, lease, together| {
            let inside = Inside::new(&file.pools, together);
            let who = (&file.peers[0].name, file.peers[0].preshared_key.as_deref(), enabled);
            peer(who, lease, None, &file.pools, &inside)
        };
        let alone = told(true, Some(lease), false);
        assert_eq!((&*alone.name, &alone.psk), ("lisa", &PresharedKey::NONE));
        assert_eq!(alone.inner_v4, Some("10.9.0.2/24".parse().unwrap()));
        assert_eq!(alone.inner_v6, Some("fd00:9::2/64".parse().unwrap()));
        assert_eq!(alone.filter.sources[..], [IpAddr::V4(v4), IpAddr::V6(v6)]);
        assert_eq!(alone.filter.refused[..], prefixes(&file.pools)[..]);
        assert_eq!(alone.filter.allowed[..], gateways(&file.pools)[..]);
        let together = told(true, Some(lease), true);
        assert!(together.filter.refused.is_empty());
        let lease_v4 = Lease { v4, v6: None };
        let without_v6 = told(true, Some(lease_v4), false);
        assert_eq!(without_v6.inner_v6, None);
        assert_eq!(without_v6.filter.sources[..], [IpAddr::V4(v4)]);
        let network = Some("2001:db8:7::/56".parse().unwrap());
        let behind = |lease| {
            let who = (&file.peers[0].name, None, true);
            let inside = Inside::new(&file.pools, false);
            peer(who, Some(lease), network, &file.pools, &inside).filter.network
        };
        assert_eq!((behind(lease), behind(lease_v4)), (network, None));
        let disabled = told(false, Some(lease), false);
        assert!(alone.enabled && !disabled.enabled);
        let refused = told(true, None, false);
        assert_eq!((refused.inner_v4, refused.inner_v6), (None, None));
    }
}
