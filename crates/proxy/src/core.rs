//! What the protocol core is told of the config: the same values in the core's own types.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ropewalk_control::config::TunnelConfig;
use ropewalk_control::config::tunnel::{Cipher, Controller, Release, Scheduler, WhenClosed};
use ropewalk_control::keys;
use ropewalk_proto::config::TunnelConfig as CoreConfig;
use ropewalk_proto::congestion::ControllerKind;
use ropewalk_proto::crypto::{
    self, Capabilities, CipherSet, PresharedKey, PublicKey, StaticSecret,
};
use ropewalk_proto::endpoint::{EndpointConfig, PeerConfig as CorePeer};
use ropewalk_proto::reseq;
use ropewalk_proto::sched::{SchedulerKind, WhenClosed as CoreWhenClosed};
use ropewalk_proto::time::Duration;
use ropewalk_proto::tunnel::InnerFilter;

use crate::config::{Config, PeerConfig};
use crate::leases::Lease;
use crate::pool::Pools;

/// Sessions for each peer: one in use, one being made while the old one is still used.
const SESSIONS_PER_PEER: usize = 2;

/// What the whole endpoint is told. `wall_clock` is the time since 1970 at the core's instant zero; `aes`:
/// the processor has instructions for AES.
#[must_use]
pub fn endpoint(config: &Config, wall_clock: Duration, aes: bool) -> EndpointConfig {
    EndpointConfig {
        tunnel: tunnel(&config.tunnel),
        secret: StaticSecret::from_bytes(*config.private_key.as_bytes()),
        ciphers: ciphers(config.tunnel.cipher, aes),
        inner_v4: Some(config.pools.gateway_v4()),
        inner_v6: config.pools.gateway_v6(),
        max_sessions: config.max_peers.saturating_mul(SESSIONS_PER_PEER),
        wall_clock,
    }
}

/// What one tunnel is told.
#[must_use]
pub fn tunnel(config: &TunnelConfig) -> CoreConfig {
    let mut core = CoreConfig {
        scheduler: match config.scheduler {
            Scheduler::FreeWindow => SchedulerKind::FreeWindow,
            Scheduler::RoundRobin => SchedulerKind::RoundRobin,
        },
        controller: match config.controller {
            Controller::Ccid2 => ControllerKind::Ccid2,
            Controller::Fixed { window } => ControllerKind::Fixed(window),
        },
        ecn: config.ecn,
        rekey_after: config.rekey_after,
        reseq: reseq::Config {
            max_bytes: usize::try_from(config.resequencer.buffer_bytes).unwrap_or(usize::MAX),
            max_wait: config.resequencer.max_wait,
            release: match config.resequencer.release {
                Release::Drain => reseq::Release::Drain,
                Release::One => reseq::Release::One,
            },
            ..reseq::Config::default()
        },
        ..CoreConfig::default()
    };
    match config.when_closed {
        WhenClosed::Drop => core.when_closed = CoreWhenClosed::Drop,
        WhenClosed::Queue(most) => {
            core.when_closed = CoreWhenClosed::Queue;
            core.queue.time = most;
        }
    }
    core
}

fn ciphers(cipher: Cipher, aes: bool) -> CipherSet {
    match cipher {
        Cipher::Auto => CipherSet::offered(Capabilities { aes }),
        Cipher::Aes256Gcm => CipherSet::only(crypto::Cipher::Aes256Gcm),
        Cipher::ChaCha20Poly1305 => CipherSet::only(crypto::Cipher::ChaCha20Poly1305),
    }
}

/// What the endpoint is told of one peer. Without addresses (no lease) it refuses the peer.
#[must_use]
pub fn peer(
    peer: &PeerConfig,
    lease: Option<Lease>,
    pools: &Pools,
    client_to_client: bool,
) -> CorePeer {
    let inner_v4 = lease.and_then(|lease| Ipv4Net::new(lease.v4, pools.v4().prefix_len()).ok());
    let inner_v6 = lease
        .and_then(|lease| lease.v6.zip(pools.v6()))
        .and_then(|(v6, pool)| Ipv6Net::new(v6, pool.prefix_len()).ok());
    let sources =
        [inner_v4.map(|net| IpAddr::V4(net.addr())), inner_v6.map(|net| IpAddr::V6(net.addr()))];
    let psk = peer.preshared_key.as_ref();
    CorePeer {
        name: peer.name.clone(),
        psk: psk.map_or(PresharedKey::NONE, |psk| PresharedKey::from_bytes(*psk.as_bytes())),
        inner_v4,
        inner_v6,
        filter: InnerFilter {
            sources: sources.into_iter().flatten().collect(),
            refused: if client_to_client { Vec::new() } else { prefixes(pools) },
            allowed: gateways(pools),
        },
        enabled: true,
    }
}

/// The prefixes of the pools.
#[must_use]
pub fn prefixes(pools: &Pools) -> Vec<IpNet> {
    [Some(IpNet::V4(pools.v4())), pools.v6().map(IpNet::V6)].into_iter().flatten().collect()
}

/// The proxy's own inner addresses.
#[must_use]
pub fn gateways(pools: &Pools) -> Vec<IpAddr> {
    let v6 = pools.gateway_v6().map(IpAddr::V6);
    [Some(IpAddr::V4(pools.gateway_v4())), v6].into_iter().flatten().collect()
}

/// A public key in the core's type.
#[must_use]
pub fn public_key(key: &keys::PublicKey) -> PublicKey {
    PublicKey(*key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::config::{KeyFiles, Source};
    use std::path::Path;

    fn config(text: &str) -> Config {
        let text =
            format!("private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n{text}");
        Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    #[test]
    fn every_knob_of_the_file_reaches_the_core() {
        let file = config(
            "[tunnel]\necn = false\nscheduler = \"round-robin\"\ncontroller = \"fixed\"\nfixed_window = 7\n\
             queue = \"20ms\"\nrekey_after = \"3s\"\n[tunnel.resequencer]\nmax_wait = \"80ms\"\n\
             buffer = \"1MiB\"\nrelease = \"one\"\n",
        );
        let core = tunnel(&file.tunnel);
        assert_eq!(core.scheduler, SchedulerKind::RoundRobin);
        assert_eq!(core.controller, ControllerKind::Fixed(7));
        assert_eq!(core.when_closed, CoreWhenClosed::Queue);
        assert_eq!(core.queue.time, Duration::from_millis(20));
        assert!(!core.ecn);
        assert_eq!(core.rekey_after, Duration::from_secs(3));
        assert_eq!(core.reseq.max_wait, Duration::from_millis(80));
        assert_eq!(core.reseq.max_bytes, 1 << 20);
        assert_eq!(core.reseq.release, reseq::Release::One);
        let dropping = config("[tunnel]\nwhen_closed = \"drop\"\n");
        assert_eq!(tunnel(&dropping.tunnel).when_closed, CoreWhenClosed::Drop);
    }

    #[test]
    fn aes_is_offered_where_it_is_fast_or_wished_for() {
        let aes = |cipher, has| ciphers(cipher, has).contains(crypto::Cipher::Aes256Gcm);
        for (cipher, has, expected) in [
            (Cipher::Auto, true, true),
            (Cipher::Auto, false, false),
            (Cipher::Aes256Gcm, false, true),
            (Cipher::ChaCha20Poly1305, true, false),
        ] {
            assert_eq!(aes(cipher, has), expected, "{cipher:?} {has}");
        }
    }

    #[test]
    fn a_peer_may_send_from_its_own_addresses_and_to_its_neighbours_only_if_allowed() {
        let file = config(
            "pool_v4 = \"10.9.0.0/24\"\npool_v6 = \"fd00:9::/64\"\n[[peer]]\nname = \"lisa\"\n\
             public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n",
        );
        let (v4, v6) = ("10.9.0.2".parse().unwrap(), "fd00:9::2".parse().unwrap());
        let lease = Lease { v4, v6: Some(v6) };
        let alone = peer(&file.peers[0], Some(lease), &file.pools, false);
        assert_eq!(alone.inner_v4, Some("10.9.0.2/24".parse().unwrap()));
        assert_eq!(alone.inner_v6, Some("fd00:9::2/64".parse().unwrap()));
        assert_eq!(alone.filter.sources, [IpAddr::V4(v4), IpAddr::V6(v6)]);
        assert_eq!(alone.filter.refused, prefixes(&file.pools));
        assert_eq!(alone.filter.allowed, gateways(&file.pools));
        assert!(peer(&file.peers[0], Some(lease), &file.pools, true).filter.refused.is_empty());
        let without_v6 = peer(&file.peers[0], Some(Lease { v4, v6: None }), &file.pools, false);
        assert_eq!((without_v6.inner_v6, without_v6.filter.sources), (None, vec![IpAddr::V4(v4)]));
        let refused = peer(&file.peers[0], None, &file.pools, false);
        assert_eq!((refused.inner_v4, refused.inner_v6), (None, None));
    }
}
