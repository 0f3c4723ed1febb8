//! New keys for a running session (PROTOCOL §6.5).
//!
//! The same Noise pattern as the handshake, carried in frames of the session itself and bound to it:
//! the prologue holds the previous epoch's handshake hash and the number of the new epoch. The two
//! static keys must be those of the session. Only the client starts a rekey; a proxy that wants one
//! says so in a frame. So two never meet.
//!
//! ```text
//! message 1: epoch, 4 bytes ‖ Noise message 1 without payload (96 bytes)
//! message 2: epoch, 4 bytes ‖ Noise message 2 without payload (48 bytes)
//! ```
//!
//! Both messages may be lost, doubled or late. The initiator repeats message 1 *unchanged* until
//! message 2 comes; the responder answers a repeated message 1 with the very same message 2. A second,
//! different message 1 for the same epoch is refused: its keys would contradict those installed.

use rand::{CryptoRng, RngCore};
use snow::HandshakeState;
use subtle::ConstantTimeEq;

use super::aead::Cipher;
use super::keys::{EpochKeys, HandshakeRole};
use super::noise::{self, MESSAGE_1_LEN, MESSAGE_2_LEN};
use super::secret::StaticSecret;
use crate::error::DropReason;
use ropewalk_settings::{PresharedKey, PublicKey};

const EPOCH_LEN: usize = 4;

/// Bytes of message 1.
pub const REKEY_1_LEN: usize = EPOCH_LEN + MESSAGE_1_LEN;

/// Bytes of message 2.
pub const REKEY_2_LEN: usize = EPOCH_LEN + MESSAGE_2_LEN;

/// Who the two ends of a session are: this end's secret, the other's public key, and what they share.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// This end's identity.
    pub local: &'a StaticSecret,
    /// The other's.
    pub remote: &'a PublicKey,
    /// The secret that they share beside.
    pub psk: &'a PresharedKey,
}

/// Where a session stands: what the next rekey is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RekeyContext {
    epoch: u32,
    binding: [u8; 32],
    cipher: Cipher,
}

impl From<&EpochKeys> for RekeyContext {
    fn from(keys: &EpochKeys) -> Self {
        Self { epoch: keys.epoch, binding: keys.binding, cipher: keys.cipher }
    }
}

impl RekeyContext {
    const fn next_epoch(&self) -> u32 {
        self.epoch.wrapping_add(1)
    }

    fn prologue(&self) -> Vec<u8> {
        let epoch = self.next_epoch().to_be_bytes();
        [b"ropewalk rekey".as_slice(), &self.binding, &epoch].concat()
    }
}

/// Why a rekey message was dropped. Always: drop, count, nothing changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RekeyError {
    /// Not of the right length. Drop, count.
    #[error("not a rekey message")]
    Malformed,
    /// For an epoch that is past or too far ahead, or a second one for the present. Drop, count; late
    /// copies are normal.
    #[error("for another epoch")]
    OutOfOrder,
    /// Does not decrypt, or names another static key than the session's. Drop, count.
    #[error("not authentic")]
    NotAuthentic,
}

impl From<RekeyError> for DropReason {
    fn from(error: RekeyError) -> Self {
        match error {
            RekeyError::Malformed => Self::RekeyMalformed,
            RekeyError::OutOfOrder => Self::RekeyOutOfOrder,
            RekeyError::NotAuthentic => Self::RekeyNotAuthentic,
        }
    }
}

/// One rekey, seen from the client: from message 1 until message 2 has come.
pub struct RekeyInitiator {
    state: HandshakeState,
    epoch: u32,
    cipher: Cipher,
    message: Vec<u8>,
}

impl RekeyInitiator {
    /// Begins the rekey after `context`. Ask [`KeyRing::can_install`](super::KeyRing::can_install)
    /// first.
    pub fn start<R: RngCore + CryptoRng>(
        identity: &Identity<'_>,
        context: &RekeyContext,
        rng: &mut R,
    ) -> Self {
        let Identity { local, remote, psk } = *identity;
        let mut state = noise::initiator(rng, local, remote, psk, &context.prologue());
        let epoch = context.next_epoch();
        let mut message = Vec::with_capacity(REKEY_1_LEN);
        message.extend_from_slice(&epoch.to_be_bytes());
        noise::write(&mut state, &[], &mut message);
        Self { state, epoch, cipher: context.cipher, message }
    }

    /// Message 1: repeat these very bytes until [`finish`](Self::finish) gives keys.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The epoch that this rekey begins.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Takes message 2. After the keys were given, forget this value: it has no more to say.
    ///
    /// # Errors
    /// [`RekeyError`]; the rekey goes on waiting.
    pub fn finish(&mut self, message: &[u8]) -> Result<EpochKeys, RekeyError> {
        let noise_message = check(message, REKEY_2_LEN, self.epoch)?;
        if self.state.is_handshake_finished() {
            return Err(RekeyError::OutOfOrder);
        }
        noise::read(&mut self.state, noise_message).map_err(|_| RekeyError::NotAuthentic)?;
        Ok(noise::split(&mut self.state, HandshakeRole::Initiator, self.epoch, self.cipher))
    }
}

/// The proxy's side of all rekeys of a session.
#[derive(Debug)]
pub struct RekeyResponder {
    context: RekeyContext,
    last: Option<Answered>,
}

/// The last rekey, to answer copies of its message 1.
#[derive(Debug)]
struct Answered {
    message_1: [u8; REKEY_1_LEN],
    message_2: Vec<u8>,
}

impl RekeyResponder {
    /// After the handshake.
    #[must_use]
    pub const fn new(context: RekeyContext) -> Self {
        Self { context, last: None }
    }

    /// Answers message 1. Returns message 2, and the keys to install if it is the first copy. Ask
    /// [`KeyRing::can_install`](super::KeyRing::can_install) first and ignore the message if it says
    /// no: the initiator repeats it.
    ///
    /// # Errors
    /// [`RekeyError`]; nothing changes.
    pub fn respond<R: RngCore + CryptoRng>(
        &mut self,
        identity: &Identity<'_>,
        message: &[u8],
        rng: &mut R,
    ) -> Result<(&[u8], Option<EpochKeys>), RekeyError> {
        let message_1: &[u8; REKEY_1_LEN] =
            message.try_into().map_err(|_| RekeyError::Malformed)?;
        if self.last.as_ref().is_some_and(|last| last.message_1 == *message_1) {
            let last = self.last.as_ref().map_or(&[][..], |last| &last.message_2);
            return Ok((last, None));
        }
        let epoch = self.context.next_epoch();
        let noise_message = check(message, REKEY_1_LEN, epoch)?;
        let mut state = noise::responder(rng, identity.local, &self.context.prologue());
        noise::read(&mut state, noise_message).map_err(|_| RekeyError::NotAuthentic)?;
        let remote = noise::remote_static(&state).ok_or(RekeyError::NotAuthentic)?;
        if !bool::from(remote.as_bytes().ct_eq(identity.remote.as_bytes())) {
            return Err(RekeyError::NotAuthentic);
        }
        noise::set_psk(&mut state, identity.psk);
        let mut message_2 = Vec::with_capacity(REKEY_2_LEN + 48);
        message_2.extend_from_slice(&epoch.to_be_bytes());
        noise::write(&mut state, &[], &mut message_2);
        let keys = noise::split(&mut state, HandshakeRole::Responder, epoch, self.context.cipher);
        self.context = RekeyContext::from(&keys);
        let last = self.last.insert(Answered { message_1: *message_1, message_2 });
        Ok((&last.message_2, Some(keys)))
    }

    /// Whether `message` asks for the keys of the next epoch, rather than for a copy of the last answer or
    /// for what is past: only then it costs a handshake, and only then
    /// [`KeyRing::can_install`](super::KeyRing::can_install) matters.
    #[must_use]
    pub fn is_next(&self, message: &[u8]) -> bool {
        let copy = self.last.as_ref().is_some_and(|last| last.message_1 == message);
        !copy && check(message, REKEY_1_LEN, self.context.next_epoch()).is_ok()
    }
}

/// The Noise part of a message of `len` bytes for `epoch`.
fn check(message: &[u8], len: usize, epoch: u32) -> Result<&[u8], RekeyError> {
    if message.len() != len {
        return Err(RekeyError::Malformed);
    }
    let (named, noise_message) = message.split_first_chunk().ok_or(RekeyError::Malformed)?;
    if u32::from_be_bytes(*named) != epoch {
        return Err(RekeyError::OutOfOrder);
    }
    Ok(noise_message)
}

#[cfg(test)]
mod tests;
