//! What the config means to the protocol core.

use ropewalk_daemon::core;
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::cpu;
use ropewalk_link_io::tun::TunOffload;
use ropewalk_proto::client::ClientConfig;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_settings::{Direction, PresharedKey};

use crate::config::Config;

/// The core's config, with what only this machine knows. `tun`: what its TUN can do.
pub(crate) fn client_config(config: &Config, clock: Clock, tun: TunOffload) -> ClientConfig {
    let tunnel = TunnelConfig::new(&config.tunnel, Direction::Up);
    ClientConfig {
        tunnel: TunnelConfig { partial_checksums: tun.completes_checksums(), ..tunnel },
        secret: StaticSecret::new(&config.private_key),
        proxy: config.proxy.public_key,
        psk: config.proxy.preshared_key.clone().unwrap_or(PresharedKey::NONE),
        invitation: config.proxy.invitation.as_ref().map(|pending| pending.token.clone()),
        ciphers: core::ciphers(config.tunnel.cipher, cpu::has_aes()),
        wall_clock: core::wall_clock(clock.sample()),
    }
}
