//! The keys of Ropewalk: X25519 key pairs (RFC 7748) and preshared keys, as 44 characters of base64; and the token of an
//! invitation.
//!
//! Secrets are wiped when dropped, never appear in `Debug` output and are compared in constant time.
//! A text of only zeros is refused as a key: it is the placeholder of the sample files, and as a public key
//! it would make every shared secret zero (RFC 7748 section 6.1).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement;
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

/// The secret half of a key pair.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PrivateKey([u8; KEY_LEN]);

/// The half of a key pair that is given to the other end. It names a client on a proxy, and the proxy on a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

/// A secret that both ends share besides their key pairs (Noise `psk2`). It keeps recorded traffic safe from an
/// attacker who can one day compute X25519 private keys.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PresharedKey([u8; KEY_LEN]);

/// What lets a client that the proxy does not know yet come in, once. The proxy's owner gives it to the
/// client's (PROTOCOL §6.9).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct InvitationToken([u8; INVITATION_TOKEN_LEN]);

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
        Ok(Self(*bytes))
    }

    /// The public key that belongs to this private key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let key = agreement::PrivateKey::from_private_key(&agreement::X25519, &self.0)
            .expect("any 32 bytes are a key");
        let public = key.compute_public_key().expect("a key has a public half");
        PublicKey(public.as_ref().try_into().expect("32 bytes"))
    }
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
    /// A new token from the system's random generator.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; INVITATION_TOKEN_LEN]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self(*bytes))
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

/// What all kinds of secret have in common.
macro_rules! secret {
    ($name:ident, $len:ident) => {
        impl $name {
            /// The secret of these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The secret bytes. Copies of them are the caller's to wipe.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(secret)"))
            }
        }

        impl PartialEq for $name {
            /// In constant time.
            fn eq(&self, other: &Self) -> bool {
                self.0.ct_eq(&other.0).into()
            }
        }

        impl Eq for $name {}
    };
}

secret!(PrivateKey, KEY_LEN);
secret!(PresharedKey, KEY_LEN);
secret!(InvitationToken, INVITATION_TOKEN_LEN);

/// The text of secret keys.
macro_rules! secret_text {
    ($name:ident) => {
        impl $name {
            /// The secret as text, wiped when dropped.
            #[must_use]
            pub fn to_base64(&self) -> Zeroizing<String> {
                Zeroizing::new(STANDARD.encode(self.0))
            }
        }

        impl FromStr for $name {
            type Err = KeyError;

            fn from_str(text: &str) -> Result<Self, KeyError> {
                decode(text).map(|bytes| Self(*bytes))
            }
        }
    };
}

secret_text!(PrivateKey);
secret_text!(PresharedKey);

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
        decode(text).map(|bytes| Self(*bytes))
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

fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyError> {
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
    let mut bytes = Zeroizing::new([0; KEY_LEN]);
    bytes.copy_from_slice(&buffer[..KEY_LEN]);
    let is_zero = bool::from(bytes.ct_eq(&[0; KEY_LEN]));
    if is_zero { Err(KeyError::Zero) } else { Ok(bytes) }
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
            assert_eq!(PrivateKey::from_bytes(private).public_key().as_bytes(), &hex(public));
        }
    }

    #[test]
    fn a_key_survives_the_way_through_text() {
        let private = PrivateKey::generate().unwrap();
        assert_eq!(private.to_base64().parse::<PrivateKey>().unwrap(), private);
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
