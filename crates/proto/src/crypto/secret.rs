//! Keys as types: a secret is wiped when it is dropped and never shows in a log.

use std::fmt;
use std::sync::Arc;

use blake2::Blake2s256;
use blake2::digest::Digest as _;
use rand::{CryptoRng, RngCore};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::x25519::KeyPair;

/// Bytes of every key of the protocol.
pub const KEY_LEN: usize = 32;

/// An end's identity (X25519): the private half, and the public one that follows from it. Copies share one secret.
#[derive(Clone)]
pub struct StaticSecret(Arc<KeyPair>);

impl StaticSecret {
    /// Any 32 bytes are a key: X25519 clamps them when it uses them. Costs one multiplication on the curve (some 10 µs).
    #[must_use]
    pub fn from_bytes(private: [u8; KEY_LEN]) -> Self {
        Self(Arc::new(KeyPair::new(&Zeroizing::new(private))))
    }

    /// Draws a new identity.
    pub fn generate<R: RngCore + CryptoRng>(rng: &mut R) -> Self {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rng.fill_bytes(bytes.as_mut());
        Self(Arc::new(KeyPair::new(&bytes)))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(*self.0.public())
    }

    /// The raw bytes, to write them to a key file.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; KEY_LEN] {
        self.0.private()
    }

    /// Ready for use on the curve.
    pub(super) const fn pair(&self) -> &Arc<KeyPair> {
        &self.0
    }
}

impl fmt::Debug for StaticSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticSecret(..)")
    }
}

/// The public half of an end's identity. Names a client on a proxy, and the proxy on a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY_LEN]);

impl PublicKey {
    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for PublicKey {
    /// The first four bytes in hexadecimal: enough to tell peers apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "PublicKey({a:02x}{b:02x}{c:02x}{d:02x}..)")
    }
}

/// A secret that both ends hold beside their identities. It keeps recorded traffic safe from an
/// attacker who can one day compute X25519 private keys. All zero when none was configured.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct PresharedKey([u8; KEY_LEN]);

impl PresharedKey {
    /// No preshared key: 32 zero bytes, as WireGuard has it.
    pub const NONE: Self = Self([0; KEY_LEN]);

    /// Takes 32 secret bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The raw bytes, to write them to a key file.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

/// Bytes of the token of an invitation: 128 random bits.
pub const INVITATION_TOKEN_LEN: usize = 16;

/// What lets a client that the proxy does not know yet come in, once. The proxy's owner gives it to the
/// client's (PROTOCOL §6.9).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct InvitationToken([u8; INVITATION_TOKEN_LEN]);

impl InvitationToken {
    /// Takes 16 secret bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; INVITATION_TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// The raw bytes, for the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; INVITATION_TOKEN_LEN] {
        &self.0
    }

    /// What a proxy keeps in place of the token: who reads it cannot come in with it. Who compares digests need not
    /// do so in constant time: what differs first says nothing of the token.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Blake2s256::new();
        hash.update(b"ropewalk invitation token");
        hash.update(self.0);
        hash.finalize().into()
    }
}

impl PartialEq for InvitationToken {
    /// In constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for InvitationToken {}

impl fmt::Debug for InvitationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvitationToken(..)")
    }
}

/// One key of one direction of one epoch.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct DataKey([u8; KEY_LEN]);

impl DataKey {
    /// Takes 32 secret bytes. Sessions get theirs from the handshake; this is for tests and benches.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The raw bytes, for the AEAD.
    #[must_use]
    pub(crate) const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl PartialEq for DataKey {
    /// In constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748 section 6.1.
    #[test]
    fn the_public_half_is_that_of_rfc_7748() {
        let alice = [
            0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2,
            0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5,
            0x1d, 0xb9, 0x2c, 0x2a,
        ];
        let public = [
            0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d, 0xdc, 0xb4, 0x3e,
            0xf7, 0x5a, 0x0d, 0xbf, 0x3a, 0x0d, 0x26, 0x38, 0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e,
            0xaa, 0x9b, 0x4e, 0x6a,
        ];
        assert_eq!(StaticSecret::from_bytes(alice).public(), PublicKey(public));
    }

    #[test]
    fn no_secret_shows_in_a_log() {
        let shown = format!(
            "{:?} {:?} {:?} {:?}",
            InvitationToken::from_bytes([0xab; 16]),
            StaticSecret::from_bytes([0xab; 32]),
            PresharedKey::from_bytes([0xab; 32]),
            DataKey::from_bytes([0xab; 32]),
        );
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }
}
