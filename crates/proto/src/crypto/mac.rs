//! The macs of handshake datagrams: cheap checks before any costly one (PROTOCOL §6).
//!
//! * `mac1` of a first message is keyed with the responder's *public* key. Whoever does not know that
//!   key learns not even that something listens here; whoever does still has to be cheap to refuse.
//! * The mac of an answer also covers the question's mac. So only someone who saw the question can
//!   answer it, and an answer to an older question is not one to a newer.
//!
//! Neither authenticates the peer: that is the Noise handshake's part. In particular a retry and a
//! list of versions can be forged by an observer who knows the proxy's public key; an initiator takes
//! them as hints and goes on waiting for the real answer.
//!
//! Answers are not keyed with the client's public key (as WireGuard's are), because then an observer
//! with a list of public keys could tell which client this is.

use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac, Blake2sMac256};
use subtle::ConstantTimeEq;

use crate::wire::hello::{Hello, MAC_LEN};
use ropewalk_settings::PublicKey;

/// The mac keys that belong to one responder. Derived once, kept by both ends.
#[derive(Clone, Debug)]
pub struct HelloMac {
    first: [u8; 32],
    answer: [u8; 32],
    cookie: [u8; 32],
}

impl HelloMac {
    /// The keys for talking to the responder with this public key.
    #[must_use]
    pub fn new(responder: &PublicKey) -> Self {
        Self {
            first: hash(&[b"ropewalk mac1", responder.as_bytes()]),
            answer: hash(&[b"ropewalk answer", responder.as_bytes()]),
            cookie: hash(&[b"ropewalk cookie", responder.as_bytes()]),
        }
    }

    /// The mac of a first message.
    #[must_use]
    pub fn first(&self, first: &Hello<'_>) -> [u8; MAC_LEN] {
        keyed16(&self.first, &[first.head(), first.body()])
    }

    /// The mac of an answer to the first message whose mac is `question`.
    #[must_use]
    pub fn answer(&self, question: &[u8; MAC_LEN], answer: &Hello<'_>) -> [u8; MAC_LEN] {
        keyed16(&self.answer, &[question, answer.head(), answer.body()])
    }

    /// A cookie as it stands in the answer to the first message whose mac is `question`, or such a cookie as it is: under
    /// a pad that only they can make who know the responder's public key and saw the question.
    #[must_use]
    pub fn cover(&self, question: &[u8; MAC_LEN], cookie: [u8; MAC_LEN]) -> [u8; MAC_LEN] {
        let pad = keyed16(&self.cookie, &[question]);
        std::array::from_fn(|at| cookie[at] ^ pad[at])
    }

    /// Whether the mac of a first message is right. In constant time.
    #[must_use]
    pub fn is_first(&self, first: &Hello<'_>) -> bool {
        self.first(first).ct_eq(&first.mac).into()
    }

    /// Whether the mac of an answer is right. In constant time.
    #[must_use]
    pub fn is_answer(&self, question: &[u8; MAC_LEN], answer: &Hello<'_>) -> bool {
        self.answer(question, answer).ct_eq(&answer.mac).into()
    }
}

/// BLAKE2s-256 over the concatenation of `parts`.
fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Blake2s256::new();
    parts.iter().for_each(|part| Digest::update(&mut hash, part));
    hash.finalize().into()
}

/// Keyed BLAKE2s-128 over the concatenation of `parts`.
pub(crate) fn keyed16(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = <Blake2sMac<U16> as KeyInit>::new(key.into());
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    mac.finalize_fixed().into()
}

/// Keyed BLAKE2s-256 over the concatenation of `parts`.
pub(crate) fn keyed32(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = <Blake2sMac256 as KeyInit>::new(key.into());
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    mac.finalize_fixed().into()
}
