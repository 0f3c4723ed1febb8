//! Secrets of the core alone: wiped when they are dropped, and never shown in a log.

use std::fmt;

use rand::{CryptoRng, RngCore};
use ropewalk_settings::{KEY_LEN, PrivateKey, PublicKey};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// An end's identity: its [`PrivateKey`], of which there is one copy in memory.
#[derive(Clone)]
pub struct StaticSecret(PrivateKey);

impl StaticSecret {
    /// The identity of this key.
    #[must_use]
    pub fn new(private: &PrivateKey) -> Self {
        Self(private.clone())
    }

    /// The identity of the key of these bytes, for tests and benches. Any 32 bytes are one: X25519 clamps them when it
    /// uses them.
    #[must_use]
    pub fn from_bytes(private: [u8; KEY_LEN]) -> Self {
        Self(PrivateKey::from_bytes(&private))
    }

    /// Draws a new identity.
    pub fn generate<R: RngCore + CryptoRng>(rng: &mut R) -> Self {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rng.fill_bytes(bytes.as_mut());
        Self(PrivateKey::from_bytes(&bytes))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.0.public_key()
    }

    /// The key, for the curve.
    pub(super) const fn private(&self) -> &PrivateKey {
        &self.0
    }
}

impl fmt::Debug for StaticSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticSecret(..)")
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

    #[test]
    fn no_secret_shows_in_a_log() {
        let shown = format!(
            "{:?} {:?}",
            StaticSecret::from_bytes([0xab; 32]),
            DataKey::from_bytes([0xab; 32]),
        );
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }
}
