//! What tests start from: two tunnels that already share keys, or a client and a proxy that have
//! yet to shake hands, in a lab.

use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::client::{Client, ClientConfig};
use ropewalk_proto::config::{LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::rekey::RekeyContext;
use ropewalk_proto::crypto::{
    Capabilities, Cipher, CipherSet, DataKey, EpochKeys, HandshakeRole, KeyRing, StaticSecret,
};
use ropewalk_proto::endpoint::{Endpoint, EndpointConfig, PeerConfig, Share, SpeedRules};
use ropewalk_proto::path::Path;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{Credentials, Established, InnerFilter, Side, Tunnel};
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{Bitrate, Keepalive, LinkPolicy, PresharedKey, PublicKey};

use crate::inner::CLIENT;
use crate::lab::{Lab, Towards};
use crate::netem::{Conditions, QueueLimit, Rate};
use crate::profile::bitrate;

/// A lab with two bare tunnels.
pub type TunnelLab = Lab<Tunnel, Tunnel>;

/// A link as the papers describe one: rate in Mbit/s, round-trip time, queue in time.
#[must_use]
pub fn conditions(mbps: f64, rtt_ms: u64, queue_ms: u64) -> Conditions {
    Conditions {
        rate: Rate::Fixed(bitrate(mbps)),
        delay: Duration::from_micros(rtt_ms * 500),
        queue: QueueLimit::of_time(Duration::from_millis(queue_ms)),
        ..Conditions::default()
    }
}

/// Two tunnels with these configurations, no links yet.
#[must_use]
pub fn tunnels(client: &TunnelConfig, proxy: &TunnelConfig, seed: u64) -> TunnelLab {
    let mut rng = StdRng::seed_from_u64(seed);
    let (ours, theirs) = (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
    let psk = PresharedKey::from_bytes([3; 32]);
    let session =
        |side, role, keys: &EpochKeys, local: &StaticSecret, remote: &StaticSecret| Established {
            side,
            keys: KeyRing::new(role, keys),
            peer: SessionIndex::new(9),
            rekey: Credentials {
                local: Arc::new(local.clone()),
                remote: remote.public(),
                psk: psk.clone(),
                context: RekeyContext::from(keys),
            },
            gateways: vec![[10, 77, 0, 1].into()],
            peer_completes: client.partial_checksums && proxy.partial_checksums,
            peer_orders_flows: true,
            peer_tests_speed: side == Side::Client,
        };
    let (to_client, to_proxy) = (keys(Towards::Client), keys(Towards::Proxy));
    let of_client = session(Side::Client, HandshakeRole::Initiator, &to_proxy, &ours, &theirs);
    let of_proxy = session(Side::Proxy, HandshakeRole::Responder, &to_client, &theirs, &ours);
    let end = |config: &TunnelConfig, session, seed| {
        Tunnel::new(Instant::ZERO, config.clone(), InnerFilter::default(), session, seed)
    };
    Lab::new(end(client, of_client, [4; 32]), end(proxy, of_proxy, [5; 32]))
}

/// Two tunnels of this configuration that have been up for three seconds over links of these rates, Mbit/s, and delays, ms
/// one way, with queues of 100 ms.
///
/// # Panics
/// When there are more links than a tunnel takes.
#[must_use]
pub fn connected(config: &TunnelConfig, links: &[(u64, u64)], seed: u64) -> TunnelLab {
    let mut lab = tunnels(config, config, seed);
    for (number, (mbit, ms)) in (0..).zip(links) {
        let conditions = Conditions {
            rate: Rate::Fixed(Bitrate::from_mbps(*mbit)),
            delay: Duration::from_millis(*ms),
            queue: QueueLimit::of_time(Duration::from_millis(100)),
            ..Conditions::default()
        };
        let path = lab.add_link(conditions.clone(), conditions, seed + number);
        let link = link_config(&format!("wan{number}"), path, Keepalive::default());
        let added = lab.client.add_link(lab.now, &link);
        assert!(added.is_ok(), "few links");
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

/// The keys of the end that sends this way, in the first epoch of [`tunnels`].
fn keys(towards: Towards) -> EpochKeys {
    let (up, down) = (DataKey::from_bytes([1; 32]), DataKey::from_bytes([2; 32]));
    let (send, receive) = match towards {
        Towards::Client => (down, up),
        Towards::Proxy => (up, down),
    };
    let cipher = Cipher::ChaCha20Poly1305;
    EpochKeys { epoch: 0, cipher, send, receive, binding: [7; 32] }
}

/// Seals datagrams towards one end of [`tunnels`] as the other would: for tests that say with authority
/// what no honest peer says.
#[must_use]
pub fn forger(towards: Towards) -> KeyRing {
    KeyRing::new(HandshakeRole::Initiator, &keys(towards))
}

/// A client and a proxy that knows it, without links.
pub struct Strangers {
    /// Both.
    pub lab: Lab<Client, Endpoint>,
    /// The proxy's key.
    pub proxy_key: PublicKey,
}

/// A client and a proxy that have yet to shake hands.
///
/// # Panics
/// Never: one client finds room in an empty table.
#[must_use]
pub fn strangers(config: &TunnelConfig, seed: u64) -> Strangers {
    let mut rng = StdRng::seed_from_u64(seed);
    let (ours, theirs) = (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
    let (client_key, proxy_key) = (ours.public(), theirs.public());
    let ciphers = CipherSet::offered(Capabilities { aes: true });
    let wall_clock = Duration::from_secs(1_800_000_000);
    let endpoint = EndpointConfig {
        tunnel: config.clone(),
        secret: theirs,
        ciphers,
        inner_v4: Some([10, 77, 0, 1].into()),
        inner_v6: None,
        name_servers: NameServers::default(),
        max_sessions: 1 << 10,
        // It began a second before the client: what it is asked is newer than its start.
        wall_clock: wall_clock.saturating_sub(Duration::from_secs(1)),
        share: Share::WHOLE,
        speed: Some(SpeedRules::default()),
    };
    let mut proxy = Endpoint::new(Instant::ZERO, endpoint, rng.random());
    let peer = PeerConfig {
        name: "client".into(),
        psk: PresharedKey::NONE,
        inner_v4: Ipv4Net::new(CLIENT.0, 16).ok(),
        inner_v6: None,
        filter: InnerFilter {
            sources: [CLIENT.0.into()].into_iter().collect(),
            ..InnerFilter::default()
        },
        enabled: true,
    };
    let added = proxy.set_peer(Instant::ZERO, client_key, peer);
    assert!(added.is_ok(), "an empty table has room");
    let client = client_config(ours, proxy_key, wall_clock);
    let client = ClientConfig { tunnel: config.clone(), ..client };
    let client = Client::new(Instant::ZERO, client, rng.random());
    Strangers { lab: Lab::new(client, proxy), proxy_key }
}

/// What a client needs to know that has neither an invitation nor a preshared key. `wall_clock`: the time since 1970 at
/// [`Instant::ZERO`].
#[must_use]
pub fn client_config(secret: StaticSecret, proxy: PublicKey, wall_clock: Duration) -> ClientConfig {
    ClientConfig {
        tunnel: TunnelConfig::default(),
        secret,
        proxy,
        psk: PresharedKey::NONE,
        invitation: None,
        ciphers: CipherSet::offered(Capabilities { aes: true }),
        wall_clock,
    }
}

/// The client's settings of a link over `path`.
#[must_use]
pub fn link_config(name: &str, path: Path, keepalive: Keepalive) -> LinkConfig {
    let mut short = arrayvec::ArrayString::new();
    // A name too long for a link is cut at its first character that does not fit.
    name.chars().take_while(|character| short.try_push(*character).is_ok()).for_each(drop);
    LinkConfig {
        name: short,
        paths: [path].into_iter().collect(),
        keepalive,
        metered: false,
        mtu: None,
        policy: LinkPolicy::default(),
    }
}
