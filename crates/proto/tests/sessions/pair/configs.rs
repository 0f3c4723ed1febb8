//! How the proxy, its clients and their links are configured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::{LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::endpoint::{EndpointConfig, PeerConfig, Share, SpeedRules};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{Keepalive, LinkPolicy, PresharedKey};

use super::network::LISTEN;
use super::{PROXY, WALL, inner};

pub(crate) fn key_of(link: usize) -> LinkKey {
    LinkKey(u32::try_from(link).unwrap())
}

/// The configuration of a client's link.
pub(crate) fn link(at: usize) -> LinkConfig {
    let socket = SocketId(u16::try_from(at).unwrap());
    LinkConfig {
        name: format!("wan{at}").as_str().try_into().unwrap(),
        paths: [Path { socket, local: None, remote: LISTEN.into() }].into_iter().collect(),
        keepalive: Keepalive::default(),
        metered: false,
        mtu: None,
        policy: LinkPolicy::default(),
    }
}

/// Where names are looked up.
pub(crate) const NAME_SERVERS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9)), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// What the proxy says of a client.
pub(crate) fn peer(client: usize) -> PeerConfig {
    PeerConfig {
        name: format!("client{client}").into(),
        psk: PresharedKey::NONE,
        inner_v4: Some(ipnet::Ipv4Net::new(inner(client), 16).unwrap()),
        inner_v6: None,
        filter: InnerFilter {
            sources: [inner(client).into()].into_iter().collect(),
            refused: ["10.77.0.0/16".parse::<ipnet::IpNet>().unwrap()].into(),
            allowed: [IpAddr::from(PROXY)].into(),
            ..InnerFilter::default()
        },
        enabled: true,
    }
}

pub(super) fn proxy(
    secret: &StaticSecret,
    number: u64,
    max_sessions: usize,
    share: Share,
) -> (EndpointConfig, [u8; 32]) {
    let config = EndpointConfig {
        tunnel: TunnelConfig::default(),
        secret: secret.clone(),
        ciphers: CipherSet::offered(Capabilities { aes: true }),
        inner_v4: Some(PROXY),
        inner_v6: None,
        name_servers: NameServers::of(NAME_SERVERS),
        max_sessions,
        wall_clock: WALL,
        share,
        speed: Some(SpeedRules::default()),
    };
    (config, seed(number))
}

pub(super) fn seed(number: u64) -> [u8; 32] {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}
