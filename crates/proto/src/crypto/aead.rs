//! Sealing and opening one datagram, in place.
//!
//! AES-256-GCM where both CPUs have AES instructions, else ChaCha20-Poly1305 (RFC 8439): with the
//! instructions AES is more than twice as fast, without them it is several times slower.
//!
//! Nonce (12 bytes): link id ‖ 0 0 0 ‖ 64-bit local number, big-endian (PROTOCOL §3). Uniqueness is
//! the callers' duty and rests on two rules: a link id is given once within a key
//! ([`KeyRing::claim_link`](super::KeyRing::claim_link)), and the counter of a link is never reset.
//! Associated data: the eight clear bytes of the datagram.

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::secret::DataKey;
use crate::error::DropReason;
use crate::units::LinkId;

/// Bytes that sealing adds.
pub const TAG_LEN: usize = 16;

/// Bytes in front of every sealed part, authenticated but clear.
pub const CLEAR_LEN: usize = 8;

/// A data cipher.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Cipher {
    /// RFC 8439; fast everywhere.
    ChaCha20Poly1305 = 1,
    /// NIST SP 800-38D; fast with AES instructions only.
    Aes256Gcm = 2,
}

impl Cipher {
    /// The cipher of a wire number.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::ChaCha20Poly1305),
            2 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// The wire number.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// The name shown in `status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::Aes256Gcm => "aes-256-gcm",
        }
    }

    /// How many datagrams one key may seal.
    ///
    /// AES-GCM: 2^28. RFC 9001 B.1.1 finds that senders of packets up to 2^11 bytes stay below an
    /// attacker's advantage of 2^-57 up to that many. ChaCha20-Poly1305 has no such bound below its
    /// number space; 2^48 is one that no link reaches within a key's life and that keeps the
    /// counter far from its end.
    #[must_use]
    pub const fn seal_limit(self) -> u64 {
        match self {
            Self::Aes256Gcm => 1 << 28,
            Self::ChaCha20Poly1305 => 1 << 48,
        }
    }

    /// How many forgeries one key may refuse before an attacker's chance to hit grows beyond 2^-57
    /// (RFC 9001 section 6.6: 2^52 and 2^36).
    #[must_use]
    pub const fn forgery_limit(self) -> u64 {
        match self {
            Self::Aes256Gcm => 1 << 52,
            Self::ChaCha20Poly1305 => 1 << 36,
        }
    }

    fn key(self, key: &DataKey) -> LessSafeKey {
        let algorithm = match self {
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Self::Aes256Gcm => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key.as_bytes()).expect("both take 32 bytes");
        LessSafeKey::new(key)
    }
}

/// What the CPU can do; the driver finds out (the core asks no machine).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// The CPU has instructions for AES and for carry-less multiplication.
    pub aes: bool,
}

/// A set of data ciphers, as offered in a first message: one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CipherSet(u8);

impl CipherSet {
    /// What an end with this CPU offers: ChaCha20-Poly1305 always, AES only where it is fast, so that
    /// what both offer is fast on both.
    #[must_use]
    pub const fn offered(capabilities: Capabilities) -> Self {
        let chacha = Self::only(Cipher::ChaCha20Poly1305);
        if capabilities.aes { Self(chacha.0 | Self::only(Cipher::Aes256Gcm).0) } else { chacha }
    }

    /// Exactly this one: a user's choice.
    #[must_use]
    pub const fn only(cipher: Cipher) -> Self {
        Self(1 << (cipher.to_wire() - 1))
    }

    /// Reads the wire's bits; bits of ciphers that this version does not know are ignored.
    #[must_use]
    pub const fn from_wire(bits: u8) -> Self {
        Self(bits & (Self::only(Cipher::ChaCha20Poly1305).0 | Self::only(Cipher::Aes256Gcm).0))
    }

    /// The wire's bits.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        self.0
    }

    /// Whether `cipher` is in the set.
    #[must_use]
    pub const fn contains(self, cipher: Cipher) -> bool {
        self.0 & Self::only(cipher).0 != 0
    }

    /// The best cipher that both sets hold: AES first.
    #[must_use]
    pub fn choose(self, other: Self) -> Option<Cipher> {
        [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]
            .into_iter()
            .find(|&cipher| self.contains(cipher) && other.contains(cipher))
    }
}

/// Why a datagram could not be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The key has sealed as many datagrams as its AEAD bears. Nothing may be sent until a rekey.
    #[error("the key has sealed as many datagrams as its cipher bears")]
    KeyExhausted,
    /// The buffer has no room for the tag: a mistake of the caller. The datagram is not sent.
    #[error("no room for the tag")]
    NoRoom,
    /// The responder has not yet heard the initiator under any key: nothing may be sent before.
    #[error("the peer has not proven that it holds the key")]
    Unconfirmed,
}

/// Why a datagram could not be opened. Always: drop and count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Too short to hold a tag. Drop, count.
    #[error("too short to hold a tag")]
    TooShort,
    /// No live key has this phase: never given, or expired. Drop, count.
    #[error("no live key of this phase")]
    KeyPhaseUnknown,
    /// This number was received before under this key on this link. Drop, count.
    #[error("received before")]
    Replayed,
    /// This number is older than the replay window remembers. Drop, count.
    #[error("older than the replay window")]
    OlderThanWindow,
    /// The tag is wrong: altered, reflected or forged. Drop, count.
    #[error("not authentic")]
    NotAuthentic,
    /// The key has refused as many forgeries as its AEAD bears. Drop, count; a rekey brings a fresh
    /// key.
    #[error("the key has refused as many forgeries as its cipher bears")]
    KeyWornOut,
}

impl From<OpenError> for DropReason {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::TooShort => Self::DatagramTooShort,
            OpenError::KeyPhaseUnknown => Self::KeyPhaseUnknown,
            OpenError::Replayed => Self::Replayed,
            OpenError::OlderThanWindow => Self::OlderThanWindow,
            OpenError::NotAuthentic => Self::NotAuthentic,
            OpenError::KeyWornOut => Self::KeyWornOut,
        }
    }
}

/// Seals the datagrams of one direction under one key, and counts them.
pub struct Sealer {
    key: LessSafeKey,
    sealed: u64,
    limit: u64,
}

impl Sealer {
    /// A fresh key.
    #[must_use]
    pub fn new(cipher: Cipher, key: &DataKey) -> Self {
        Self { key: cipher.key(key), sealed: 0, limit: cipher.seal_limit() }
    }

    /// Seals in place. `buffer` is the plaintext followed by [`TAG_LEN`] bytes of room; afterwards it
    /// is ciphertext and tag.
    ///
    /// The pair (`link`, `number`) must never come twice under one key.
    ///
    /// # Errors
    /// [`SealError::KeyExhausted`], [`SealError::NoRoom`]; `buffer` is unchanged then.
    pub fn seal(
        &mut self,
        link: LinkId,
        number: u64,
        clear: &[u8; CLEAR_LEN],
        buffer: &mut [u8],
    ) -> Result<(), SealError> {
        if self.is_exhausted() {
            return Err(SealError::KeyExhausted);
        }
        let Some((plaintext, room)) = buffer.split_last_chunk_mut::<TAG_LEN>() else {
            return Err(SealError::NoRoom);
        };
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(link, number), Aad::from(clear), plaintext)
            .map_err(|_| SealError::NoRoom)?; // only beyond 64 GiB
        room.copy_from_slice(tag.as_ref());
        self.sealed += 1;
        Ok(())
    }

    /// Whether a rekey should start: half of what the key may seal is used up, which leaves as much
    /// time again for the rekey to succeed.
    #[must_use]
    pub const fn wants_rekey(&self) -> bool {
        self.sealed >= self.limit / 2
    }

    /// Whether the key has sealed as much as it may.
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.sealed >= self.limit
    }

    /// How many datagrams it may still seal.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.limit.saturating_sub(self.sealed)
    }

    /// How many datagrams this key has sealed.
    #[must_use]
    pub const fn sealed(&self) -> u64 {
        self.sealed
    }
}

/// Opens the datagrams of the other direction under one key, and counts forgeries.
pub struct Opener {
    key: LessSafeKey,
    forgeries: u64,
    limit: u64,
}

impl Opener {
    /// A fresh key.
    #[must_use]
    pub fn new(cipher: Cipher, key: &DataKey) -> Self {
        Self { key: cipher.key(key), forgeries: 0, limit: cipher.forgery_limit() }
    }

    /// Opens in place: `sealed` is ciphertext and tag; the plaintext is its beginning.
    ///
    /// Only says that the peer sealed this under (`link`, `number`), not that it did so once: replays
    /// are for the window.
    ///
    /// # Errors
    /// [`OpenError::TooShort`], [`OpenError::NotAuthentic`], [`OpenError::KeyWornOut`]; what `sealed`
    /// holds then means nothing.
    pub fn open<'a>(
        &mut self,
        link: LinkId,
        number: u64,
        clear: &[u8; CLEAR_LEN],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        if sealed.len() < TAG_LEN {
            return Err(OpenError::TooShort);
        }
        if self.forgeries >= self.limit {
            return Err(OpenError::KeyWornOut);
        }
        match self.key.open_in_place(nonce(link, number), Aad::from(clear), sealed) {
            Ok(plaintext) => Ok(plaintext),
            Err(_) => {
                self.forgeries += 1;
                Err(OpenError::NotAuthentic)
            }
        }
    }
}

/// PROTOCOL §3: link id ‖ 0 0 0 ‖ number.
fn nonce(link: LinkId, number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[0] = link.0;
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
impl Sealer {
    /// Lets the key seal only so many.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Cipher; 2] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
    const CLEAR: [u8; CLEAR_LEN] = [0x10, 3, 0, 0, 7, 0, 0, 9];

    fn sealed(cipher: Cipher, plaintext: &[u8]) -> Vec<u8> {
        let mut buffer = plaintext.to_vec();
        buffer.resize(plaintext.len() + TAG_LEN, 0);
        let mut sealer = Sealer::new(cipher, &DataKey::from_bytes([7; 32]));
        sealer.seal(LinkId(3), 9, &CLEAR, &mut buffer).unwrap();
        buffer
    }

    fn open(
        cipher: Cipher,
        link: u8,
        number: u64,
        clear: [u8; 8],
        buffer: &[u8],
    ) -> Option<Vec<u8>> {
        let mut buffer = buffer.to_vec();
        Opener::new(cipher, &DataKey::from_bytes([7; 32]))
            .open(LinkId(link), number, &clear, &mut buffer)
            .ok()
            .map(|plaintext| plaintext.to_vec())
    }

    #[test]
    fn what_was_sealed_opens_and_is_not_the_plaintext() {
        for cipher in BOTH {
            for len in [0, 1, 16, 1400, 9000] {
                let plaintext = vec![0x5a; len];
                let buffer = sealed(cipher, &plaintext);
                assert_eq!(open(cipher, 3, 9, CLEAR, &buffer).as_ref(), Some(&plaintext));
                assert!(len < 16 || buffer[..len] != plaintext[..]);
            }
        }
    }

    #[test]
    fn each_flipped_bit_of_clear_and_sealed_bytes_and_of_the_nonce_is_refused() {
        for cipher in BOTH {
            let buffer = sealed(cipher, b"inner packet");
            for bit in 0..buffer.len() * 8 {
                let mut flipped = buffer.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(cipher, 3, 9, CLEAR, &flipped), None, "sealed bit {bit}");
            }
            for bit in 0..CLEAR_LEN * 8 {
                let mut clear = CLEAR;
                clear[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(cipher, 3, 9, clear, &buffer), None, "clear bit {bit}");
            }
            for bit in 0..8 {
                assert_eq!(open(cipher, 3 ^ (1 << bit), 9, CLEAR, &buffer), None, "link bit {bit}");
            }
            for bit in 0..64 {
                assert_eq!(open(cipher, 3, 9 ^ (1 << bit), CLEAR, &buffer), None, "number {bit}");
            }
        }
    }

    #[test]
    fn every_truncation_is_refused_without_a_panic() {
        let buffer = sealed(Cipher::Aes256Gcm, b"inner packet");
        for len in 0..buffer.len() {
            assert_eq!(open(Cipher::Aes256Gcm, 3, 9, CLEAR, &buffer[..len]), None);
        }
    }

    /// The nonce layout is wire format: RFC 8439's construction computed through ring directly.
    #[test]
    fn the_nonce_is_link_zeros_number_big_endian() {
        let buffer = sealed(Cipher::ChaCha20Poly1305, b"x");
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &[7; 32]).unwrap());
        let nonce = Nonce::assume_unique_for_key([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        let mut copy = buffer;
        assert_eq!(key.open_in_place(nonce, Aad::from(CLEAR), &mut copy).unwrap(), b"x");
    }

    #[test]
    fn a_key_asks_for_a_rekey_at_half_its_limit_and_stops_at_the_limit() {
        let mut sealer = Sealer::new(Cipher::Aes256Gcm, &DataKey::from_bytes([7; 32]));
        sealer.limit = 4;
        let mut buffer = [0; TAG_LEN];
        let mut wants = Vec::new();
        for number in 0..4 {
            wants.push(sealer.wants_rekey());
            sealer.seal(LinkId(0), number, &CLEAR, &mut buffer).unwrap();
        }
        assert_eq!(wants, [false, false, true, true]);
        let before = buffer;
        let refused = sealer.seal(LinkId(0), 4, &CLEAR, &mut buffer);
        assert_eq!((refused, buffer), (Err(SealError::KeyExhausted), before));
    }

    #[test]
    fn a_key_that_refused_too_many_forgeries_opens_nothing_any_more() {
        let mut opener = Opener::new(Cipher::ChaCha20Poly1305, &DataKey::from_bytes([7; 32]));
        opener.limit = 2;
        let good = sealed(Cipher::ChaCha20Poly1305, b"x");
        for _ in 0..2 {
            let mut bad = good.clone();
            bad[0] ^= 1;
            let error = opener.open(LinkId(3), 9, &CLEAR, &mut bad).unwrap_err();
            assert_eq!(error, OpenError::NotAuthentic);
        }
        let mut copy = good;
        let error = opener.open(LinkId(3), 9, &CLEAR, &mut copy).unwrap_err();
        assert_eq!(error, OpenError::KeyWornOut);
    }

    #[test]
    fn aes_is_chosen_only_where_both_cpus_have_it() {
        let (with, without) = (Capabilities { aes: true }, Capabilities { aes: false });
        for (ours, theirs, expected) in [
            (with, with, Cipher::Aes256Gcm),
            (with, without, Cipher::ChaCha20Poly1305),
            (without, with, Cipher::ChaCha20Poly1305),
            (without, without, Cipher::ChaCha20Poly1305),
        ] {
            let chosen = CipherSet::offered(ours).choose(CipherSet::offered(theirs));
            assert_eq!(chosen, Some(expected), "{ours:?} {theirs:?}");
        }
        let aes = CipherSet::only(Cipher::Aes256Gcm);
        assert_eq!(aes.choose(CipherSet::offered(without)), None);
        assert_eq!(CipherSet::from_wire(0xff), CipherSet::offered(with));
    }
}
