//! What the config means to the protocol core.

use ropewalk_control::config::{Cipher, Controller, Release, Scheduler, TunnelConfig, WhenClosed};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::cpu;
use ropewalk_proto::client::ClientConfig;
use ropewalk_proto::config::TunnelConfig as CoreConfig;
use ropewalk_proto::congestion::ControllerKind;
use ropewalk_proto::crypto::aead::{Capabilities, Cipher as CoreCipher, CipherSet};
use ropewalk_proto::crypto::secret::{PresharedKey, PublicKey, StaticSecret};
use ropewalk_proto::queue::QueueLimits;
use ropewalk_proto::reseq;
use ropewalk_proto::sched::{SchedulerKind, WhenClosed as CoreWhenClosed};
use ropewalk_proto::time::{Duration, Instant};

use crate::config::Config;

/// The core's config, with what only this machine knows.
pub(crate) fn client_config(config: &Config, clock: Clock) -> ClientConfig {
    let sample = clock.sample();
    ClientConfig {
        tunnel: tunnel_config(&config.tunnel),
        secret: StaticSecret::from_bytes(*config.private_key.as_bytes()),
        proxy: PublicKey(*config.proxy.public_key.as_bytes()),
        psk: match &config.proxy.preshared_key {
            Some(key) => PresharedKey::from_bytes(*key.as_bytes()),
            None => PresharedKey::NONE,
        },
        ciphers: match config.tunnel.cipher {
            Cipher::Auto => CipherSet::offered(Capabilities { aes: cpu::has_aes() }),
            Cipher::Aes256Gcm => CipherSet::only(CoreCipher::Aes256Gcm),
            Cipher::ChaCha20Poly1305 => CipherSet::only(CoreCipher::ChaCha20Poly1305),
        },
        wall_clock: sample.unix.saturating_sub(sample.now.since(Instant::ZERO)),
    }
}

fn tunnel_config(config: &TunnelConfig) -> CoreConfig {
    let defaults = CoreConfig::default();
    let (when_closed, time) = match config.when_closed {
        WhenClosed::Queue(time) => (CoreWhenClosed::Queue, time),
        WhenClosed::Drop => (CoreWhenClosed::Drop, Duration::ZERO),
    };
    CoreConfig {
        scheduler: match config.scheduler {
            Scheduler::FreeWindow => SchedulerKind::FreeWindow,
            Scheduler::RoundRobin => SchedulerKind::RoundRobin,
        },
        controller: match config.controller {
            Controller::Ccid2 => ControllerKind::Ccid2,
            Controller::Fixed { window } => ControllerKind::Fixed(window),
        },
        when_closed,
        queue: QueueLimits { time, ..defaults.queue },
        ecn: config.ecn,
        rekey_after: config.rekey_after,
        reseq: reseq::Config {
            max_bytes: usize::try_from(config.resequencer.buffer_bytes).unwrap_or(usize::MAX),
            max_wait: config.resequencer.max_wait,
            release: match config.resequencer.release {
                Release::Drain => reseq::Release::Drain,
                Release::One => reseq::Release::One,
            },
            ..defaults.reseq
        },
        max_mtu: defaults.max_mtu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_the_config_reaches_the_core() {
        let mut config = TunnelConfig::default();
        let core = tunnel_config(&config);
        assert_eq!((core.scheduler, core.controller), Default::default());
        assert_eq!(core.queue.time, Duration::from_millis(100));
        assert_eq!(core.rekey_after, Duration::from_secs(120));
        assert_eq!(core.reseq.max_bytes, 16 << 20);

        config.scheduler = Scheduler::RoundRobin;
        config.controller = Controller::Fixed { window: 7 };
        config.when_closed = WhenClosed::Drop;
        config.resequencer.release = Release::One;
        config.resequencer.max_wait = Duration::from_millis(3);
        let core = tunnel_config(&config);
        assert_eq!(core.scheduler, SchedulerKind::RoundRobin);
        assert_eq!(core.controller, ControllerKind::Fixed(7));
        assert_eq!(core.when_closed, CoreWhenClosed::Drop);
        assert_eq!(core.reseq.release, reseq::Release::One);
        assert_eq!(core.reseq.max_wait, Duration::from_millis(3));
    }
}
