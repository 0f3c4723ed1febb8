//! Whether a proxy with this public key is at an address: asked without being a client (PROTOCOL §6.4).
//!
//! The question is a first message in a version that is never spoken. So the proxy lists its versions, as it does for
//! everybody who knows its public key, at a bounded rate, and looks no further: no session comes of it, no client is named
//! and no decryption is spent. A question may have any length from that of its answer on, so it also shows which sizes pass.

use crate::crypto::mac::HelloMac;
use crate::units::SessionIndex;
use crate::wire::hello::{
    ENVELOPE_LEN, Hello, HelloKind, MAC_LEN, MAX_VERSIONS, envelope, set_mac,
};
use ropewalk_settings::PublicKey;

/// The version that is never spoken.
pub const NO_VERSION: u8 = 255;

/// Bytes of the shortest question: no answer is longer.
pub const MIN_LEN: usize = ENVELOPE_LEN + 1 + MAX_VERSIONS;

/// One question, and how its answer is known.
#[derive(Clone, Debug)]
pub struct Inquiry {
    mac: HelloMac,
    index: SessionIndex,
    question: [u8; MAC_LEN],
    datagram: Vec<u8>,
}

impl Inquiry {
    /// A question to the proxy with this key, `len` bytes long (at least [`MIN_LEN`]). Questions with the same `index` and
    /// length are the same.
    #[must_use]
    pub fn new(proxy: &PublicKey, index: SessionIndex, len: usize) -> Self {
        let mac = HelloMac::new(proxy);
        let mut datagram = envelope(HelloKind::First, NO_VERSION, index);
        datagram.resize(len.max(MIN_LEN), 0);
        // It is longer than an envelope, and begins as one.
        let question = Hello::parse(&datagram).map_or([0; MAC_LEN], |hello| mac.first(&hello));
        set_mac(&mut datagram, &question);
        Self { mac, index, question, datagram }
    }

    /// What is sent.
    #[must_use]
    pub fn datagram(&self) -> &[u8] {
        &self.datagram
    }

    /// Whether a datagram is the answer of a proxy with that key. Who reads along and knows the key can forge it.
    #[must_use]
    pub fn is_answer(&self, datagram: &[u8]) -> bool {
        Hello::parse(datagram).is_ok_and(|hello| {
            hello.kind == HelloKind::Versions
                && hello.index == self.index
                && self.mac.is_answer(&self.question, &hello)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::aead::{Capabilities, CipherSet};
    use crate::crypto::handshake::{Inspected, Responder};
    use crate::crypto::secret::StaticSecret;
    use crate::wire::hello::VERSIONS;

    fn proxy(key: u8) -> Responder {
        let ciphers = CipherSet::offered(Capabilities { aes: true });
        Responder::new(StaticSecret::from_bytes([key; 32]), ciphers)
    }

    fn asked(len: usize) -> Inquiry {
        Inquiry::new(&StaticSecret::from_bytes([1; 32]).public(), SessionIndex::new(77), len)
    }

    #[test]
    fn a_proxy_with_that_key_answers_a_question_of_any_length_and_nobody_else() {
        assert!(!VERSIONS.contains(&NO_VERSION));
        for len in [0, MIN_LEN, 256, 1232, 1472] {
            let inquiry = asked(len);
            assert_eq!(inquiry.datagram().len(), len.max(MIN_LEN));
            let right = proxy(1);
            let Ok(Inspected::OtherVersion(other)) = right.inspect(inquiry.datagram()) else {
                unreachable!("a question in another version")
            };
            let answer = right.versions_answer(&other).expect("it is long enough");
            assert!(answer.len() <= inquiry.datagram().len(), "nothing is amplified");
            assert!(inquiry.is_answer(&answer));
            assert!(!asked(len.max(MIN_LEN) + 1).is_answer(&answer), "that of another question");
            assert!(proxy(2).inspect(inquiry.datagram()).is_err(), "another proxy is silent");
            for at in 0..answer.len() {
                let mut flipped = answer.clone();
                flipped[at] ^= 1;
                assert!(!inquiry.is_answer(&flipped), "byte {at}");
            }
            assert!(!inquiry.is_answer(inquiry.datagram()));
            assert!(!inquiry.is_answer(&[]));
        }
    }
}
