//! Two tunnels that already share keys, in a lab: what a test starts from that is not about the
//! handshake.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use ropewalk_proto::config::{Keepalive, LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::rekey::Standing;
use ropewalk_proto::crypto::{
    Cipher, DataKey, EpochKeys, KeyRing, PresharedKey, Role, StaticSecret,
};
use ropewalk_proto::path::Path;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{Credentials, Established, InnerFilter, Side, Tunnel};
use ropewalk_proto::units::SessionIndex;

use crate::lab::Lab;
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
    let (up, down) = (DataKey::from_bytes([1; 32]), DataKey::from_bytes([2; 32]));
    let psk = PresharedKey::from_bytes([3; 32]);
    let keys = |send: &DataKey, receive: &DataKey| EpochKeys {
        epoch: 0,
        cipher: Cipher::ChaCha20Poly1305,
        send: send.clone(),
        receive: receive.clone(),
        binding: [7; 32],
    };
    let session =
        |side, role, keys: &EpochKeys, local: &StaticSecret, remote: &StaticSecret| Established {
            side,
            keys: KeyRing::new(role, keys),
            peer: SessionIndex::new(9),
            rekey: Credentials {
                local: Arc::new(local.clone()),
                remote: remote.public(),
                psk: psk.clone(),
                standing: Standing::from(keys),
            },
            gateways: vec![[10, 77, 0, 1].into()],
        };
    let of_client = session(Side::Client, Role::Initiator, &keys(&up, &down), &ours, &theirs);
    let of_proxy = session(Side::Proxy, Role::Responder, &keys(&down, &up), &theirs, &ours);
    let end = |config: &TunnelConfig, session, seed| {
        Tunnel::new(Instant::ZERO, config.clone(), InnerFilter::default(), session, seed)
    };
    Lab::new(end(client, of_client, [4; 32]), end(proxy, of_proxy, [5; 32]))
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
    }
}
