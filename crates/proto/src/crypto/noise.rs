//! `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` through the crate `snow`: the pattern in one place.
//!
//! snow asks a resolver for its random numbers. Ours is seeded from the generator that the caller
//! passes in, so that a run with a printed seed repeats byte for byte.
//!
//! Data keys (PROTOCOL §6): Noise's two transport keys are not used as they are. Each data key is
//! keyed BLAKE2s-256 under the Noise key of its direction over a label, the direction, the cipher and
//! the handshake hash. So one Noise key can never be used with two ciphers, and the keys depend on
//! every byte of the handshake, the negotiation included.

use rand::rngs::StdRng;
use rand::{CryptoRng, RngCore, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::{Builder, HandshakeState, types};
use zeroize::{Zeroize, Zeroizing};

use super::aead::Cipher;
use super::keys::{EpochKeys, HandshakeRole};
use super::mac::keyed32;
use super::secret::{DataKey, StaticSecret};
use super::x25519::{STAND_IN, X25519};
use ropewalk_settings::{PresharedKey, PublicKey};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";

/// Where the pattern mixes the preshared key in: at the end of the second message.
const PSK_PLACE: u8 = 2;

/// Bytes that message 1 adds to its payload: ephemeral key, sealed static key, tag.
pub(crate) const MESSAGE_1_LEN: usize = 32 + 48 + 16;

/// Bytes that message 2 adds to its payload: ephemeral key, tag.
pub(crate) const MESSAGE_2_LEN: usize = 32 + 16;

/// A Noise message does not decrypt. Never says why: there is only one reaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAuthentic;

/// The side that knows the other's static key.
pub(crate) fn initiator<R: RngCore + CryptoRng>(
    rng: &mut R,
    local: &StaticSecret,
    remote: &PublicKey,
    psk: &PresharedKey,
    prologue: &[u8],
) -> HandshakeState {
    builder(rng, local)
        .prologue(prologue)
        .and_then(|builder| builder.local_private_key(&STAND_IN))
        .and_then(|builder| builder.remote_public_key(remote.as_bytes()))
        .and_then(|builder| builder.psk(PSK_PLACE, psk.as_bytes()))
        .and_then(Builder::build_initiator)
        .expect("the pattern is complete")
}

/// The side that learns the other's static key from message 1, and then the preshared key.
pub(crate) fn responder<R: RngCore + CryptoRng>(
    rng: &mut R,
    local: &StaticSecret,
    prologue: &[u8],
) -> HandshakeState {
    builder(rng, local)
        .prologue(prologue)
        .and_then(|builder| builder.local_private_key(&STAND_IN))
        .and_then(Builder::build_responder)
        .expect("the pattern is complete")
}

/// Writes the next message with `payload`, appended to `out`.
pub(crate) fn write(state: &mut HandshakeState, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + MESSAGE_1_LEN + payload.len(), 0);
    let len = state
        .write_message(payload, &mut out[start..])
        .expect("it is our turn, the keys are set, and the room was made for the longer message");
    out.truncate(start + len);
}

/// Reads the next message; returns its payload. After an error the same state can read another.
pub(crate) fn read(
    state: &mut HandshakeState,
    message: &[u8],
) -> Result<Zeroizing<Vec<u8>>, NotAuthentic> {
    let mut payload = Zeroizing::new(vec![0; message.len()]);
    let len = state.read_message(message, &mut payload).map_err(|_| NotAuthentic)?;
    payload.truncate(len);
    Ok(payload)
}

/// The static key that message 1 named and proved.
pub(crate) fn remote_static(state: &HandshakeState) -> Option<PublicKey> {
    state.get_remote_static()?.try_into().ok().map(PublicKey::from_bytes)
}

/// Gives a responder the preshared key of the client it has come to know.
pub(crate) fn set_psk(state: &mut HandshakeState, psk: &PresharedKey) {
    state.set_psk(usize::from(PSK_PLACE), psk.as_bytes()).expect("a key of 32 bytes at place 2");
}

/// The keys of the finished handshake, as the side `role` sees them.
pub(crate) fn split(
    state: &mut HandshakeState,
    role: HandshakeRole,
    epoch: u32,
    cipher: Cipher,
) -> EpochKeys {
    let mut binding = [0; 32];
    binding.copy_from_slice(state.get_handshake_hash());
    let (mut from_initiator, mut from_responder) = state.dangerously_get_raw_split();
    let derive = |noise_key: &[u8; 32], direction: u8| {
        let place = [direction, cipher.to_wire()];
        DataKey::from_bytes(keyed32(noise_key, &[b"ropewalk data key", &place, &binding]))
    };
    let (up, down) = (derive(&from_initiator, 0), derive(&from_responder, 1));
    from_initiator.zeroize();
    from_responder.zeroize();
    let (send, receive) = match role {
        HandshakeRole::Initiator => (up, down),
        HandshakeRole::Responder => (down, up),
    };
    EpochKeys { epoch, cipher, send, receive, binding }
}

fn builder<'a, R: RngCore + CryptoRng>(rng: &mut R, local: &StaticSecret) -> Builder<'a> {
    let mut seed = Zeroizing::new([0; 32]);
    rng.fill_bytes(seed.as_mut());
    let pattern = PATTERN.parse().expect("a pattern that snow was built with");
    Builder::with_resolver(pattern, Box::new(Resolver { seed, local: local.clone() }))
}

/// ring for the cipher, AWS-LC for the curve, RustCrypto for the hash, the caller's seed for random numbers.
struct Resolver {
    seed: Zeroizing<[u8; 32]>,
    local: StaticSecret,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn types::Random>> {
        Some(Box::new(Seeded(StdRng::from_seed(*self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn types::Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(X25519::new(self.local.clone()))),
            _ => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn types::Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn types::Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// Used for one ephemeral key, then dropped.
struct Seeded(StdRng);

impl types::Random for Seeded {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}
