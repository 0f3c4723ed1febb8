//! X25519 (RFC 7748) as snow asks for it, by AWS-LC: half of what pure Rust takes for it.
//!
//! snow sets the static key again for each handshake, and a key costs a multiplication to be made ready. Here a
//! [`StaticSecret`] is ready once and brought along, so snow never sees its bytes: it is given a [stand-in](STAND_IN).

use ropewalk_settings::{KEY_LEN, PrivateKey, PublicKey};
use snow::types;
use zeroize::Zeroizing;

use super::secret::StaticSecret;

/// What snow is given in place of the static key.
pub(super) const STAND_IN: [u8; KEY_LEN] = [0; KEY_LEN];

/// A key pair of a handshake: the static one, or an ephemeral one.
pub(super) struct X25519 {
    /// The static one.
    own: StaticSecret,
    pair: Option<(PrivateKey, PublicKey)>,
}

impl X25519 {
    /// Without a key, of a side whose static one is `own`.
    pub(super) const fn new(own: StaticSecret) -> Self {
        Self { own, pair: None }
    }

    fn take(&mut self, private: PrivateKey) {
        let public = private.public_key();
        self.pair = Some((private, public));
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

    /// Takes the static key: snow sets no other one.
    fn set(&mut self, _stand_in: &[u8]) {
        self.take(self.own.private().clone());
    }

    fn generate(&mut self, rng: &mut dyn types::Random) -> Result<(), snow::Error> {
        let mut private = Zeroizing::new([0; KEY_LEN]);
        rng.try_fill_bytes(private.as_mut())?;
        self.take(PrivateKey::from_bytes(&private));
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.pair.as_ref().map_or(&[0; KEY_LEN], |(_, public)| public.as_bytes())
    }

    /// Asked for only by who lets snow make static keys.
    fn privkey(&self) -> &[u8] {
        &STAND_IN
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let public = public.first_chunk().ok_or(snow::Error::Dh)?;
        let out = out.first_chunk_mut().ok_or(snow::Error::Dh)?;
        let (private, _) = self.pair.as_ref().ok_or(snow::Error::Dh)?;
        private.agree(public, out).map_err(|_| snow::Error::Dh)
    }
}

#[cfg(test)]
mod tests {
    use snow::types::Dh as _;

    use super::*;

    fn key(text: &str) -> [u8; KEY_LEN] {
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        std::array::from_fn(byte)
    }

    /// RFC 7748 section 6.1.
    #[test]
    fn two_ends_share_the_secret_of_rfc_7748() {
        let alice = key("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let alice_public = key("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        let bob = key("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let bob_public = key("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        let shared = key("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        for (own, own_public, other) in
            [(alice, alice_public, bob_public), (bob, bob_public, alice_public)]
        {
            let mut ours = X25519::new(StaticSecret::from_bytes(own));
            ours.set(&STAND_IN);
            assert_eq!(ours.pubkey(), own_public);
            assert_eq!(ours.privkey(), STAND_IN, "the key itself is not given away");
            let mut out = [0; KEY_LEN];
            ours.dh(&other, &mut out).unwrap();
            assert_eq!(out, shared);
        }
    }

    /// The points of low order, as <https://cr.yp.to/ecdh.html#validate> lists them: 0, 1, two of order 8, and p - 1.
    #[test]
    fn a_point_of_low_order_gives_no_secret() {
        let mut ours = X25519::new(StaticSecret::from_bytes([7; KEY_LEN]));
        ours.set(&STAND_IN);
        for point in [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ] {
            let outcome = ours.dh(&key(point), &mut [0; KEY_LEN]);
            assert!(matches!(outcome, Err(snow::Error::Dh)), "{point}: {outcome:?}");
        }
    }

    #[test]
    fn without_a_key_and_with_too_short_a_one_there_is_an_error() {
        let mut ours = X25519::new(StaticSecret::from_bytes([7; KEY_LEN]));
        assert!(ours.dh(&[9; KEY_LEN], &mut [0; KEY_LEN]).is_err());
        ours.set(&STAND_IN);
        assert!(ours.dh(&[9; KEY_LEN - 1], &mut [0; KEY_LEN]).is_err());
        assert!(ours.dh(&[9; KEY_LEN], &mut [0; KEY_LEN - 1]).is_err());
    }
}
