//! X25519 (RFC 7748) as snow asks for it, by `curve25519-dalek`.
//!
//! snow computes the public half of a static key anew for each handshake, a fifteenth of what the proxy's part costs. Here
//! a [`StaticSecret`] brings it along.

use curve25519_dalek::montgomery::MontgomeryPoint;
use snow::types;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::secret::{KEY_LEN, StaticSecret};

/// The public half of any private key.
pub(super) fn public_half(private: &[u8; KEY_LEN]) -> [u8; KEY_LEN] {
    MontgomeryPoint::mul_base_clamped(*private).to_bytes()
}

/// A key pair: the static one, or an ephemeral one.
pub(super) struct X25519 {
    /// The static one, whose public half is known.
    own: StaticSecret,
    private: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
}

impl X25519 {
    /// Without a key, of a side whose static one is `own`.
    pub(super) fn new(own: StaticSecret) -> Self {
        Self { own, private: Zeroizing::default(), public: [0; KEY_LEN] }
    }
}

impl types::Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        let is_own = bool::from(self.private.ct_eq(self.own.as_bytes()));
        self.public = if is_own { self.own.public().0 } else { public_half(&self.private) };
    }

    fn generate(&mut self, rng: &mut dyn types::Random) -> Result<(), snow::Error> {
        rng.try_fill_bytes(self.private.as_mut())?;
        self.public = public_half(&self.private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.private.as_ref()
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let public = public.first_chunk().ok_or(snow::Error::Dh)?;
        let out = out.first_chunk_mut().ok_or(snow::Error::Dh)?;
        *out = MontgomeryPoint(*public).mul_clamped(*self.private).to_bytes();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use snow::types::Dh as _;

    use super::*;

    /// RFC 7748 section 6.1.
    #[test]
    fn two_ends_share_the_secret_of_rfc_7748_whether_the_key_is_their_static_one_or_not() {
        let key = |text: &str| -> [u8; KEY_LEN] {
            let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
            std::array::from_fn(byte)
        };
        let alice = key("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let bob = key("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let shared = key("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        for own in [alice, [7; KEY_LEN]] {
            let mut ours = X25519::new(StaticSecret::from_bytes(own));
            ours.set(&alice);
            assert_eq!(ours.pubkey(), public_half(&alice));
            let mut out = [0; KEY_LEN];
            ours.dh(&public_half(&bob), &mut out).unwrap();
            assert_eq!(out, shared);
        }
    }

    #[test]
    fn a_key_that_is_too_short_is_an_error() {
        let ours = X25519::new(StaticSecret::from_bytes([7; KEY_LEN]));
        assert!(ours.dh(&[1; KEY_LEN - 1], &mut [0; KEY_LEN]).is_err());
        assert!(ours.dh(&[1; KEY_LEN], &mut [0; KEY_LEN - 1]).is_err());
    }
}
