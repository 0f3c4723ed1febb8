//! What the config means to the protocol core.

use ropewalk_control::config::scheduler::Direction;
use ropewalk_daemon::core;
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::cpu;
use ropewalk_proto::client::ClientConfig;

use crate::config::Config;

/// The core's config, with what only this machine knows.
pub(crate) fn client_config(config: &Config, clock: Clock) -> ClientConfig {
    ClientConfig {
        tunnel: core::tunnel(&config.tunnel, Direction::Up),
        secret: core::secret(&config.private_key),
        proxy: core::public_key(&config.proxy.public_key),
        psk: core::preshared_key(config.proxy.preshared_key.as_ref()),
        invitation: config
            .proxy
            .invitation
            .as_ref()
            .map(|pending| core::invitation_token(&pending.token)),
        ciphers: core::ciphers(config.tunnel.cipher, cpu::has_aes()),
        wall_clock: core::wall_clock(clock.sample()),
    }
}
