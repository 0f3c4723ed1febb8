//! The end under attack, and the keys of both ends.

use std::sync::Arc;

use ropewalk_netlab::lab::Towards;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::rekey::{Identity, RekeyContext};
use ropewalk_proto::crypto::{Cipher, DataKey, EpochKeys, HandshakeRole, KeyRing, StaticSecret};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{Credentials, Established, InnerFilter, Side, Tunnel};
use ropewalk_proto::units::SessionIndex;
use ropewalk_settings::PresharedKey;

/// The keys of the end that sends `towards`.
pub(super) fn keys(towards: Towards) -> EpochKeys {
    let (up, down) = (DataKey::from_bytes([1; 32]), DataKey::from_bytes([2; 32]));
    let (send, receive) = match towards {
        Towards::Client => (down, up),
        Towards::Proxy => (up, down),
    };
    let cipher = Cipher::ChaCha20Poly1305;
    EpochKeys { epoch: 0, cipher, send, receive, binding: [7; 32] }
}

/// What the end that sends `towards` makes rekeys with.
pub(super) fn credentials(towards: Towards) -> Credentials {
    let (client, proxy) = (StaticSecret::from_bytes([3; 32]), StaticSecret::from_bytes([4; 32]));
    let (local, remote) = match towards {
        Towards::Proxy => (client, proxy),
        Towards::Client => (proxy, client),
    };
    Credentials {
        local: Arc::new(local),
        remote: remote.public(),
        psk: PresharedKey::NONE,
        context: RekeyContext::from(&keys(towards)),
    }
}

/// The end to which datagrams go `towards`.
pub(super) fn tunnel(towards: Towards) -> Tunnel {
    let (side, role) = match towards {
        Towards::Client => (Side::Client, HandshakeRole::Initiator),
        Towards::Proxy => (Side::Proxy, HandshakeRole::Responder),
    };
    let away = towards.opposite();
    let session = Established {
        side,
        keys: KeyRing::new(role, &keys(away)),
        peer: SessionIndex::new(9),
        rekey: credentials(away),
        gateways: vec![[10, 77, 0, 1].into()],
        peer_completes: false,
        peer_orders_flows: true,
        peer_tests_speed: true,
    };
    Tunnel::new(Instant::ZERO, TunnelConfig::default(), InnerFilter::default(), session, [5; 32])
}

pub(super) fn identity(credentials: &Credentials) -> Identity<'_> {
    let Credentials { local, remote, psk, .. } = credentials;
    Identity { local, remote, psk }
}
