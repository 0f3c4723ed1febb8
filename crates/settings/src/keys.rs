//! The keys of Ropewalk: X25519 key pairs (RFC 7748) and preshared keys, as 44 characters of base64; and the token of an
//! invitation.
//!
//! Secrets are wiped when dropped, never appear in `Debug` output and are compared in constant time. Of a private key and of
//! an invitation's token there is one copy in memory, however often the value is cloned or moved: the value points to it.
//! A text of only zeros is refused as a key: it is the placeholder of the sample files, and as a public key
//! it would make every shared secret zero (RFC 7748 section 6.1).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::agreement;
use aws_lc_rs::encoding::{AsBigEndian as _, Curve25519SeedBin};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake2::Blake2s256;
use blake2::digest::Digest as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::text::Text;

/// Bytes of every key: an X25519 scalar or point, a Noise preshared key, or a key of the data.
pub const KEY_LEN: usize = 32;

/// Characters of a key in base64 with padding.
const KEY_CHARS: usize = 44;

/// Bytes of the token of an invitation: 128 random bits.
pub const INVITATION_TOKEN_LEN: usize = 16;

/// Bytes of the dead stack that are overwritten after work with a secret. The deepest functions called are those of
/// AWS-LC's multiplication and of base64, a few KiB each in a build without optimisation.
const WIPED_STACK: usize = 16 << 10;

/// The secret half of a key pair, with the public half. Clones share the one copy in memory, which AWS-LC keeps ready for use
/// and wipes when the last of them is dropped.
#[derive(Clone)]
pub struct PrivateKey(Arc<KeyPair>);

struct KeyPair {
    private: agreement::PrivateKey,
    public: PublicKey,
}

/// The other end's public key is a point of low order: the shared secret would be zero (RFC 7748 section 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the public key is a point of low order")]
pub struct LowOrder;

/// The half of a key pair that is given to the other end. It names a client on a proxy, and the proxy on a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

/// A secret that both ends share besides their key pairs (Noise `psk2`). It keeps recorded traffic safe from an
/// attacker who can one day compute X25519 private keys.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PresharedKey([u8; KEY_LEN]);

/// What lets a client that the proxy does not know yet come in, once. The proxy's owner gives it to the
/// client's (PROTOCOL §6.9). Clones share the one copy in memory.
#[derive(Clone)]
pub struct InvitationToken(Arc<Zeroizing<[u8; INVITATION_TOKEN_LEN]>>);

/// Why a text is not a key. The text itself is never repeated: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text has another length than a key.
    #[error("a key is 44 characters of base64 (32 bytes); this has {chars}")]
    Length {
        /// Characters found, without surrounding white space.
        chars: usize,
    },
    /// A character outside the alphabet, or wrong padding.
    #[error("this is not base64: a key is 43 of A-Z a-z 0-9 + / followed by one =")]
    Encoding,
    /// All 32 bytes are zero.
    #[error("a key of only zeros is a placeholder: put the real key here")]
    Zero,
}

impl PrivateKey {
    /// The key of these bytes, which are the caller's to wipe. Any 32 bytes are one: X25519 clamps them when it uses them.
    /// Costs one multiplication on the curve (some 10 µs), for the public half.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        let key = Self::made_of(bytes);
        wipe_stack();
        key
    }

    #[inline(never)]
    fn made_of(bytes: &[u8; KEY_LEN]) -> Self {
        let private = agreement::PrivateKey::from_private_key(&agreement::X25519, bytes)
            .expect("any 32 bytes are a key");
        let public = private.compute_public_key().expect("a key has a public half");
        let public = PublicKey(public.as_ref().try_into().expect("32 bytes"));
        Self(Arc::new(KeyPair { private, public }))
    }

    /// A new key from the system's random generator.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        getrandom::fill(bytes.as_mut())?;
        // RFC 7748 section 5 clamps at use; storing it clamped makes equal keys equal texts.
        bytes[0] &= 248;
        bytes[31] &= 127;
        bytes[31] |= 64;
        Ok(Self::from_bytes(&bytes))
    }

    /// The public key that belongs to this private key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.0.public
    }

    /// Puts the secret shared with the owner of `public` into `out`, which is the caller's to wipe (X25519, RFC 7748).
    ///
    /// # Errors
    /// It would be zero.
    pub fn agree(&self, public: &[u8; KEY_LEN], out: &mut [u8; KEY_LEN]) -> Result<(), LowOrder> {
        let agreed = self.multiply(public, out);
        wipe_stack();
        agreed
    }

    #[inline(never)]
    fn multiply(&self, public: &[u8; KEY_LEN], out: &mut [u8; KEY_LEN]) -> Result<(), LowOrder> {
        let public = agreement::UnparsedPublicKey::new(&agreement::X25519, public);
        agreement::agree(&self.0.private, public, LowOrder, |shared| {
            out.copy_from_slice(shared);
            Ok(())
        })
    }

    /// The key as text, wiped when dropped.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        let bytes: Curve25519SeedBin<'static> =
            self.0.private.as_be_bytes().expect("a key of this curve has its bytes");
        Zeroizing::new(STANDARD.encode(&*bytes))
    }

    /// Puts the secret bytes into `out`, which is the caller's to wipe.
    pub fn copy_to(&self, out: &mut [u8; KEY_LEN]) {
        let bytes: Curve25519SeedBin<'static> =
            self.0.private.as_be_bytes().expect("a key of this curve has its bytes");
        out.copy_from_slice(bytes.as_ref());
    }

    /// The line of a key file, wiped when dropped.
    #[must_use]
    pub fn to_line(&self) -> Zeroizing<String> {
        let mut line = Zeroizing::new(String::with_capacity(KEY_CHARS + 1));
        line.push_str(&self.to_base64());
        line.push('\n');
        line
    }
}

impl PartialEq for PrivateKey {
    /// Keys are equal if they have the same public half.
    fn eq(&self, other: &Self) -> bool {
        self.0.public == other.0.public
    }
}

impl Eq for PrivateKey {}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(secret)")
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        decode(text, &mut bytes)?;
        Ok(Self::from_bytes(&bytes))
    }
}

/// Overwrites what functions that have returned left below the caller's stack frame.
#[inline(never)]
fn wipe_stack() {
    std::hint::black_box(&mut [0_u8; WIPED_STACK]);
}

impl PresharedKey {
    /// No preshared key: 32 zero bytes, as WireGuard has it.
    pub const NONE: Self = Self([0; KEY_LEN]);

    /// A new key from the system's random generator.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self(*bytes))
    }
}

impl InvitationToken {
    /// The token of these bytes.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; INVITATION_TOKEN_LEN]) -> Self {
        let mut token = Arc::new(Zeroizing::new([0; INVITATION_TOKEN_LEN]));
        if let Some(place) = Arc::get_mut(&mut token) {
            place.copy_from_slice(&bytes);
        }
        bytes.zeroize();
        Self(token)
    }

    /// A new token from the system's random generator.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; INVITATION_TOKEN_LEN]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self::from_bytes(*bytes))
    }

    /// The secret bytes. Copies of them are the caller's to wipe.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; INVITATION_TOKEN_LEN] {
        &self.0
    }

    /// What a proxy keeps in place of the token: who reads it cannot come in with it. Who compares digests need not
    /// do so in constant time: what differs first says nothing of the token.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Blake2s256::new();
        hash.update(b"ropewalk invitation token");
        hash.update(self.as_bytes());
        hash.finalize().into()
    }
}

impl PresharedKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The secret bytes. Copies of them are the caller's to wipe.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// The key as text, wiped when dropped.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0))
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut key = Self([0; KEY_LEN]);
        decode(text, &mut key.0)?;
        Ok(key)
    }
}

/// Secrets that are compared byte by byte, in constant time, and not shown.
macro_rules! secret {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(secret)"))
            }
        }

        impl PartialEq for $name {
            /// In constant time.
            fn eq(&self, other: &Self) -> bool {
                self.as_bytes().ct_eq(other.as_bytes()).into()
            }
        }

        impl Eq for $name {}
    };
}

secret!(PresharedKey);
secret!(InvitationToken);

impl PublicKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes of the key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut bytes = [0; KEY_LEN];
        decode(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Keys: the error never repeats the text.
macro_rules! key {
    ($type:ty, $expected:literal) => {
        impl Text for $type {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: KeyError| error.to_string())
            }
        }
    };
}

key!(PublicKey, "a public key: 44 characters of base64");
key!(PrivateKey, "a private key: 44 characters of base64");
key!(PresharedKey, "a preshared key: 44 characters of base64");

/// Reads a key straight into its place, so that no copy of it is left on the way.
fn decode(text: &str, key: &mut [u8; KEY_LEN]) -> Result<(), KeyError> {
    let read = decode_text(text, key);
    wipe_stack();
    read
}

#[inline(never)]
fn decode_text(text: &str, key: &mut [u8; KEY_LEN]) -> Result<(), KeyError> {
    let text = text.trim();
    let chars = text.chars().count();
    if chars != KEY_CHARS {
        return Err(KeyError::Length { chars });
    }
    // One byte more than a key: base64 without padding at the end decodes to 33.
    let mut buffer = Zeroizing::new([0; KEY_LEN + 1]);
    match STANDARD.decode_slice(text, buffer.as_mut()) {
        Ok(KEY_LEN) => {}
        Ok(_) | Err(_) => return Err(KeyError::Encoding),
    }
    key.copy_from_slice(&buffer[..KEY_LEN]);
    let is_zero = bool::from(key.ct_eq(&[0; KEY_LEN]));
    if is_zero { Err(KeyError::Zero) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_keys_are_those_of_an_independent_implementation() {
        let mut nine = [0; KEY_LEN];
        nine[0] = 9;
        let counting = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let cases = [
            // RFC 7748 section 5.2: the first iteration.
            (nine, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"),
            // OpenSSL, for the private key 00 01 02 .. 1f.
            (counting, "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"),
            // RFC 7748 section 6.1: Alice.
            (
                hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"),
                "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            ),
        ];
        for (private, public) in cases {
            assert_eq!(PrivateKey::from_bytes(&private).public_key().as_bytes(), &hex(public));
        }
    }

    #[test]
    fn a_key_survives_the_way_through_text() {
        let private = PrivateKey::generate().unwrap();
        assert_eq!(private.to_base64().parse::<PrivateKey>().unwrap(), private);
        let mut bytes = [0; KEY_LEN];
        private.copy_to(&mut bytes);
        assert_eq!(PrivateKey::from_bytes(&bytes), private);
        let public = private.public_key();
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        assert_eq!(format!(" {public}\n").parse::<PublicKey>().unwrap(), public);
        let shared = PresharedKey::generate().unwrap();
        assert_eq!(shared.to_base64().parse::<PresharedKey>().unwrap(), shared);
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let private = PrivateKey::generate().unwrap();
        let shared = PresharedKey::generate().unwrap();
        let token = InvitationToken::generate().unwrap();
        assert_eq!(format!("{private:?}"), "PrivateKey(secret)");
        assert_eq!(format!("{shared:?}"), "PresharedKey(secret)");
        assert_eq!(format!("{token:?}"), "InvitationToken(secret)");
    }

    #[test]
    fn secrets_are_equal_if_all_their_bytes_are() {
        let token = InvitationToken::from_bytes([7; INVITATION_TOKEN_LEN]);
        let key = PresharedKey::from_bytes([7; KEY_LEN]);
        assert_eq!(token.clone(), token);
        assert_eq!(key.clone(), key);
        for at in 0..INVITATION_TOKEN_LEN {
            let mut bytes = *token.as_bytes();
            bytes[at] ^= 1;
            assert_ne!(InvitationToken::from_bytes(bytes), token, "{at}");
        }
        for at in 0..KEY_LEN {
            let mut bytes = *key.as_bytes();
            bytes[at] ^= 128;
            assert_ne!(PresharedKey::from_bytes(bytes), key, "{at}");
        }
    }

    #[test]
    fn a_text_that_is_no_key_says_why() {
        let cases = [
            ("", KeyError::Length { chars: 0 }),
            ("abc", KeyError::Length { chars: 3 }),
            (
                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                KeyError::Length { chars: 64 },
            ),
            ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", KeyError::Zero),
            ("!AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", KeyError::Encoding),
            // 44 characters without padding are 33 bytes.
            ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", KeyError::Encoding),
            ("ääääääääääääääääääääääääääääääääääääääääääää", KeyError::Encoding),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<PublicKey>(), Err(expected), "{text:?}");
        }
    }

    fn hex(text: &str) -> [u8; KEY_LEN] {
        let mut bytes = [0; KEY_LEN];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        bytes
    }
}
