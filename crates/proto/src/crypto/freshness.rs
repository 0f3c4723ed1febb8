//! Is a first message new, or a recording? (PROTOCOL §6.3)
//!
//! A first message carries the time of the client's clock, sealed. It is fresh if that time is newer
//! than any seen from this client's key; for a key not seen since the responder knows it, if it is
//! newer than that moment by the responder's clock (what was recorded before is older, unless the client's clock
//! was ahead by more than has passed since). Everything else gets a *retry*: a token
//! that the client repeats inside a new first message. Only the client can seal that, and only after
//! it saw the token: so the new message is fresh, whatever the clocks say. A clock that went back is
//! healed by one more round trip.
//!
//! The responder keeps no state for a token: it is a mac, under a secret that changes every two
//! minutes, over the client's key, its index and the time of issue. It is not bound to the source
//! address, because the new first message goes out over all links; its freshness does not depend on
//! where it comes from. Each client's tokens count in order of issue: once one was used, it and all
//! older ones are void, so that a recorded answer to a retry is no better than any other recording.

use std::time::Duration;

use rand::{CryptoRng, RngCore};
use subtle::ConstantTimeEq;

use super::mac::keyed16;
use super::rotating::RotatingSecret;
use crate::time::Instant;
use crate::units::SessionIndex;
use crate::wire::hello::first::ClientHello;
use crate::wire::hello::index_bytes;
use ropewalk_settings::PublicKey;

/// Bytes of a token: time of issue and mac.
pub const TOKEN_LEN: usize = 8 + 16;

/// A token counts for this long, and its secret is replaced as often. Long enough for the slowest
/// link's round trip with retransmissions, short enough that a table of used tokens is not missed.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(120);

/// A moment of the wall clock, as TAI64N has it but counted from 1970: 8 bytes of seconds, 4 of
/// nanoseconds, big-endian as on the wire. So moments are in the order of their bytes, and one takes no more room than these: a
/// proxy keeps one for each client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp([u8; 12]);

impl Timestamp {
    /// From the time since 1970. The driver reads the clock; the core is told.
    #[must_use]
    pub const fn from_unix(since_1970: Duration) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7] = since_1970.as_secs().to_be_bytes();
        let [n0, n1, n2, n3] = since_1970.subsec_nanos().to_be_bytes();
        Self([s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3])
    }

    /// The wire's 12 bytes, big-endian.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 12] {
        self.0
    }

    /// Reads the wire's 12 bytes; `None` if they claim more nanoseconds than a second has.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 12]) -> Option<Self> {
        let [.., n0, n1, n2, n3] = bytes;
        (u32::from_be_bytes([n0, n1, n2, n3]) < 1_000_000_000).then_some(Self(bytes))
    }
}

/// A proof of freshness: given by the responder, repeated by the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryToken {
    issued: u64,
    mac: [u8; 16],
}

impl RetryToken {
    /// The wire's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TOKEN_LEN] {
        let mut bytes = [0; TOKEN_LEN];
        bytes[..8].copy_from_slice(&self.issued.to_be_bytes());
        bytes[8..].copy_from_slice(&self.mac);
        bytes
    }

    /// Reads the wire's bytes; any 24 bytes are a token, few are a right one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; TOKEN_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, mac @ ..] = *bytes;
        Self { issued: u64::from_be_bytes([a, b, c, d, e, f, g, h]), mac }
    }
}

/// Issues tokens and knows them again.
pub struct RetryTokens {
    secret: RotatingSecret,
}

impl RetryTokens {
    /// With fresh secrets.
    pub fn new<R: RngCore + CryptoRng>(now: Instant, rng: &mut R) -> Self {
        Self { secret: RotatingSecret::new(now, rng, TOKEN_LIFETIME) }
    }

    /// A token for the client and the index of its first message.
    pub fn issue<R: RngCore + CryptoRng>(
        &mut self,
        now: Instant,
        rng: &mut R,
        client: &PublicKey,
        index: SessionIndex,
    ) -> RetryToken {
        self.secret.rotate(now, rng);
        let issued = now.as_nanos();
        RetryToken { issued, mac: token_mac(self.secret.current(), issued, client, index) }
    }

    /// When `token` was issued, if it was issued by us to this client and index within
    /// [`TOKEN_LIFETIME`].
    #[must_use]
    pub fn issued(
        &self,
        now: Instant,
        token: &RetryToken,
        client: &PublicKey,
        index: SessionIndex,
    ) -> Option<Instant> {
        let issued = Instant::from_nanos(token.issued);
        if issued > now || now.since(issued) > TOKEN_LIFETIME {
            return None;
        }
        let is_ours = |secret| token_mac(secret, token.issued, client, index).ct_eq(&token.mac);
        let [current, previous] = self.secret.both().map(is_ours);
        bool::from(current | previous).then_some(issued)
    }
}

fn token_mac(secret: &[u8; 32], issued: u64, client: &PublicKey, index: SessionIndex) -> [u8; 16] {
    keyed16(secret, &[&issued.to_be_bytes(), client.as_bytes(), &index_bytes(index)])
}

/// What the responder remembers of one client key while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreshnessRecord {
    /// The newest time that this client ever claimed, at first that from which its key is known. Never goes
    /// back, also when the client's clock does: else a recording from before would count as new.
    newest: Timestamp,
    /// When the newest token that this client used was issued.
    token: Option<Instant>,
}

/// The decision about an authentic first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// It is fresh. Keep this record for the client from now on, whatever else is decided.
    Fresh(FreshnessRecord),
    /// It may be a recording: answer with a retry, change nothing.
    Stale,
}

impl FreshnessRecord {
    /// Of a client whose key the responder knows since `known`, by its own wall clock: its start, or when the key
    /// was added later.
    #[must_use]
    pub const fn since(known: Timestamp) -> Self {
        Self { newest: known, token: None }
    }

    /// Judges an authentic first message. `token` is when the message's token was issued, if it has a right
    /// one ([`RetryTokens::issued`]).
    #[must_use]
    pub fn judge(&self, hello: &ClientHello, token: Option<Instant>) -> Freshness {
        let is_newer = hello.timestamp > self.newest;
        let is_proven = token.is_some() && token > self.token;
        if !is_newer && !is_proven {
            return Freshness::Stale;
        }
        Freshness::Fresh(Self {
            newest: self.newest.max(hello.timestamp),
            token: self.token.max(token),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::aead::{Capabilities, CipherSet};
    use crate::wire::hello::parameters::Parameters;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const CLIENT: PublicKey = PublicKey::from_bytes([4; 32]);
    const INDEX: SessionIndex = SessionIndex::new(77);

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    fn wall(seconds: u64) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(seconds))
    }

    fn hello(seconds: u64) -> ClientHello {
        ClientHello {
            timestamp: wall(seconds),
            ciphers: CipherSet::offered(Capabilities::default()),
            newest_version: 1,
            token: None,
            parameters: Parameters::default(),
        }
    }

    #[test]
    fn timestamps_order_as_their_bytes_do() {
        let times = [(0, 0), (0, 1), (1, 0), (1, 999_999_999), (256, 0), (u64::MAX, 0)]
            .map(|(s, n)| Timestamp::from_unix(Duration::new(s, n)));
        for pair in times.windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_bytes() < pair[1].to_bytes());
            assert_eq!(Timestamp::from_bytes(pair[0].to_bytes()), Some(pair[0]));
        }
    }

    #[test]
    fn freshness_follows_its_table() {
        let seen = FreshnessRecord { newest: wall(500), token: Some(at(5)) };
        let never = FreshnessRecord::since(wall(400));
        // record, time claimed, token issued, fresh?
        for (name, record, claimed, token, fresh) in [
            ("first seen, newer than its key", never, 401, None, true),
            ("first seen, as old as its key", never, 400, None, false),
            ("first seen, older, but proven", never, 100, Some(at(1)), true),
            ("newer than the last", seen, 501, None, true),
            ("the last again", seen, 500, None, false),
            ("older than the last", seen, 450, None, false),
            ("older, but proven", seen, 100, Some(at(6)), true),
            ("older, with a token used before", seen, 100, Some(at(5)), false),
            ("older, with a token older than one used", seen, 100, Some(at(4)), false),
            ("newer, with a used token", seen, 501, Some(at(5)), true),
        ] {
            let judged = record.judge(&hello(claimed), token);
            assert_eq!(matches!(judged, Freshness::Fresh(_)), fresh, "{name}");
        }
    }

    #[test]
    fn healing_a_clock_that_went_back_does_not_make_old_recordings_new() {
        let seen = FreshnessRecord { newest: wall(5_000), token: None };
        let healed = seen.judge(&hello(100), Some(at(9)));
        let Freshness::Fresh(record) = healed else { panic!("{healed:?}") };
        assert_eq!(record.judge(&hello(4_999), None), Freshness::Stale);
        assert_eq!(record.judge(&hello(100), Some(at(9))), Freshness::Stale);
    }

    #[test]
    fn a_token_counts_for_its_client_its_index_and_its_time_only() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut tokens = RetryTokens::new(at(0), &mut rng);
        for start in [0, 119, 120, 121, 10_000] {
            let token = tokens.issue(at(start), &mut rng, &CLIENT, INDEX);
            let token = RetryToken::from_bytes(&token.to_bytes());
            let known = |now, client: &PublicKey, index| tokens.issued(now, &token, client, index);
            assert_eq!(known(at(start), &CLIENT, INDEX), Some(at(start)));
            assert_eq!(known(at(start + 120), &CLIENT, INDEX), Some(at(start)));
            assert_eq!(known(at(start + 121), &CLIENT, INDEX), None);
            assert_eq!(known(at(start), &PublicKey::from_bytes([5; 32]), INDEX), None);
            assert_eq!(known(at(start), &CLIENT, SessionIndex::new(78)), None);
            for bit in 0..TOKEN_LEN * 8 {
                let mut bytes = token.to_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let forged = RetryToken::from_bytes(&bytes);
                assert_eq!(tokens.issued(at(start), &forged, &CLIENT, INDEX), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_token_outlives_one_change_of_the_secret() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut tokens = RetryTokens::new(at(0), &mut rng);
        let token = tokens.issue(at(119), &mut rng, &CLIENT, INDEX);
        tokens.issue(at(121), &mut rng, &CLIENT, INDEX);
        assert_eq!(tokens.issued(at(125), &token, &CLIENT, INDEX), Some(at(119)));
    }
}
