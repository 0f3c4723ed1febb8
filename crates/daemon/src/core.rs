//! What the values of a config mean to the protocol core: the same in the core's own types.

use ropewalk_control::config::scheduler::Direction;
use ropewalk_control::config::{Cipher, Controller, Release, TunnelConfig, WhenClosed};
use ropewalk_control::invitation::Token;
use ropewalk_control::keys;
use ropewalk_link_io::clock::Sample;
use ropewalk_proto::config::TunnelConfig as CoreConfig;
use ropewalk_proto::congestion::ControllerKind;
use ropewalk_proto::crypto::{
    self, Capabilities, CipherSet, InvitationToken, PresharedKey, PublicKey, StaticSecret,
};
use ropewalk_proto::queue::QueueLimits;
use ropewalk_proto::reseq;
use ropewalk_proto::sched::WhenClosed as CoreWhenClosed;
use ropewalk_proto::time::{Duration, Instant};

use crate::scheduling;

/// What one tunnel is told at the end that `sends` this way.
#[must_use]
pub fn tunnel(config: &TunnelConfig, sends: Direction) -> CoreConfig {
    let defaults = CoreConfig::default();
    let (when_closed, time) = match config.when_closed {
        WhenClosed::Queue(most) => (CoreWhenClosed::Queue, most),
        // The queue still holds what a turn has read until it is sent: the core's own bound stays.
        WhenClosed::Drop => (CoreWhenClosed::Drop, defaults.queue.time),
    };
    CoreConfig {
        scheduler: scheduling::scheduler(&config.scheduling),
        terms: scheduling::terms(&config.scheduling, sends),
        controller: match config.controller {
            Controller::Ccid2 => ControllerKind::Ccid2,
            Controller::Fixed { window } => ControllerKind::Fixed(window),
        },
        when_closed,
        queue: QueueLimits { time, ..defaults.queue },
        ecn: config.ecn,
        rekey_after: config.rekey_after,
        reseq: reseq::Config {
            enabled: config.resequencer.enabled,
            max_bytes: usize::try_from(config.resequencer.buffer_bytes).unwrap_or(usize::MAX),
            max_wait: config.resequencer.max_wait,
            release: match config.resequencer.release {
                Release::Drain => reseq::Release::Drain,
                Release::One => reseq::Release::One,
            },
            ..defaults.reseq
        },
        bundle: defaults.bundle,
        max_mtu: defaults.max_mtu,
        // The TUN will say.
        partial_checksums: defaults.partial_checksums,
    }
}

/// The ciphers offered or accepted. `aes`: the processor has instructions for AES.
#[must_use]
pub fn ciphers(cipher: Cipher, aes: bool) -> CipherSet {
    match cipher {
        Cipher::Auto => CipherSet::offered(Capabilities { aes }),
        Cipher::Aes256Gcm => CipherSet::only(crypto::Cipher::Aes256Gcm),
        Cipher::ChaCha20Poly1305 => CipherSet::only(crypto::Cipher::ChaCha20Poly1305),
    }
}

/// A private key.
#[must_use]
pub fn secret(key: &keys::PrivateKey) -> StaticSecret {
    StaticSecret::from_bytes(*key.as_bytes())
}

/// A public key.
#[must_use]
pub fn public_key(key: &keys::PublicKey) -> PublicKey {
    PublicKey(*key.as_bytes())
}

/// What lets a client in, once.
#[must_use]
pub fn invitation_token(token: &Token) -> InvitationToken {
    InvitationToken::from_bytes(*token.as_bytes())
}

/// The secret shared besides the keys, where there is one.
#[must_use]
pub fn preshared_key(key: Option<&keys::PresharedKey>) -> PresharedKey {
    key.map_or(PresharedKey::NONE, |key| PresharedKey::from_bytes(*key.as_bytes()))
}

/// The time since 1970 at the core's instant zero, so that the core can tell the date.
#[must_use]
pub fn wall_clock(sample: Sample) -> Duration {
    sample.unix.saturating_sub(sample.now.since(Instant::ZERO))
}

#[cfg(test)]
mod tests {
    use ropewalk_control::config::{Scheduler, Scheduling};
    use ropewalk_proto::sched::SchedulerConfig;

    use super::*;

    #[test]
    fn what_the_file_leaves_out_is_the_cores_own_default() {
        let core = tunnel(&TunnelConfig::default(), Direction::Up);
        assert_eq!((core.scheduler, core.controller), Default::default());
        assert_eq!(core.when_closed, CoreWhenClosed::Queue);
        assert_eq!(core.queue.time, Duration::from_millis(100));
        assert_eq!(core.rekey_after, Duration::from_secs(120));
        assert_eq!(core.reseq.max_bytes, 16 << 20);
        assert_eq!(core.max_mtu, CoreConfig::default().max_mtu);
    }

    #[test]
    fn every_choice_of_the_config_reaches_the_core() {
        let mut config = TunnelConfig {
            scheduling: Scheduling { scheduler: Scheduler::RoundRobin, ..Scheduling::default() },
            controller: Controller::Fixed { window: 7 },
            when_closed: WhenClosed::Queue(Duration::from_millis(20)),
            ecn: false,
            rekey_after: Duration::from_secs(3),
            ..TunnelConfig::default()
        };
        config.resequencer.enabled = false;
        config.resequencer.max_wait = Duration::from_millis(80);
        config.resequencer.buffer_bytes = 1 << 20;
        config.resequencer.release = Release::One;
        let core = tunnel(&config, Direction::Up);
        assert_eq!(core.scheduler, SchedulerConfig::RoundRobin);
        assert_eq!(core.controller, ControllerKind::Fixed(7));
        assert_eq!(core.when_closed, CoreWhenClosed::Queue);
        assert_eq!(core.queue.time, Duration::from_millis(20));
        assert!(!core.ecn);
        assert_eq!(core.rekey_after, Duration::from_secs(3));
        assert!(!core.reseq.enabled);
        assert_eq!(core.reseq.max_wait, Duration::from_millis(80));
        assert_eq!(core.reseq.max_bytes, 1 << 20);
        assert_eq!(core.reseq.release, reseq::Release::One);
        config.when_closed = WhenClosed::Drop;
        let dropping = tunnel(&config, Direction::Up);
        assert_eq!(dropping.when_closed, CoreWhenClosed::Drop);
        assert!(!dropping.queue.time.is_zero(), "a packet waits for the end of its batch");
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
    fn the_wall_clock_is_that_of_the_cores_instant_zero() {
        let sample = |unix, now| Sample {
            unix: Duration::from_secs(unix),
            now: Instant::ZERO + Duration::from_secs(now),
        };
        assert_eq!(wall_clock(sample(1_000, 10)), Duration::from_secs(990));
        // A machine whose date was never set.
        assert_eq!(wall_clock(sample(5, 10)), Duration::ZERO);
    }
}
