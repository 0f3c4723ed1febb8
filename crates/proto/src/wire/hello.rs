//! The outer format of the handshake datagrams (PROTOCOL §6).
//!
//! ```text
//!  0        1        2                          5               8                 24
//! +--------+--------+--------+--------+--------+---------------+-----------------+------
//! | type 0 | version|      steering index      |    reserved   |  mac, 16 bytes  | body
//! +--------+--------+--------+--------+--------+---------------+-----------------+------
//! ```
//!
//! A first message may come with the proof of a cookie: it has another type byte, and 16 bytes more at its end. Mac and
//! handshake are those of the message without it, so that it is the same message over every link.
//!
//! The envelope is the same in every version, so that any two versions can say to each other that
//! they differ. The steering index is the sender's in a first message and the receiver's in every
//! answer: in both cases the client's. Reserved bytes are sent as zero, covered by the mac, and
//! ignored.
//!
//! What a body means is the business of [`crypto::handshake`](crate::crypto::handshake); what the
//! sealed payloads hold stands in `first` and [`answer`].

pub mod answer;
pub(crate) mod first;
pub mod parameters;

use crate::error::DropReason;
use crate::units::SessionIndex;

/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 1;

/// All versions that this crate speaks, newest first.
pub const VERSIONS: &[u8] = &[VERSION];

/// Bytes of the envelope.
pub const ENVELOPE_LEN: usize = 24;

/// Bytes of a mac.
pub const MAC_LEN: usize = 16;

/// Where the mac stands.
const MAC_AT: usize = 8;

/// Bytes of a first message at least; a shorter one is dropped. No answer is longer than this, so
/// that nobody can use a proxy to multiply traffic towards a victim. Longer first messages are
/// allowed: later minor revisions may add parameters.
pub const FIRST_LEN: usize = 256;

/// The first byte of a first message that ends with the proof of a cookie.
const FIRST_WITH_PROOF: u8 = 0xd0;

/// How many versions a list may name.
pub const MAX_VERSIONS: usize = 16;

/// The kinds of handshake datagrams: the high nibble of the first byte. The low nibble is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HelloKind {
    /// The client asks for a session.
    First = 8,
    /// The proxy answers with a session, or with a sealed refusal.
    Response = 9,
    /// The proxy asks for proof that the first message is fresh.
    Retry = 10,
    /// The proxy does not speak the version asked for, and says which it does.
    Versions = 11,
    /// The proxy has much to do, and asks for proof that the client is at its address.
    Cookie = 12,
}

impl HelloKind {
    /// The kind that a datagram's first byte names.
    #[must_use]
    pub const fn from_first_byte(byte: u8) -> Option<Self> {
        match byte {
            0x80 | FIRST_WITH_PROOF => Some(Self::First),
            0x90 => Some(Self::Response),
            0xa0 => Some(Self::Retry),
            0xb0 => Some(Self::Versions),
            0xc0 => Some(Self::Cookie),
            _ => None,
        }
    }

    /// The first byte of a datagram of this kind; of a first message, that of one without proof.
    #[must_use]
    pub const fn first_byte(self) -> u8 {
        (self as u8) << 4
    }
}

/// Not a handshake datagram: too short, or of another type. Drop, count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a handshake datagram")]
pub struct MalformedHello;

impl From<MalformedHello> for DropReason {
    fn from(_: MalformedHello) -> Self {
        Self::HandshakeMalformed
    }
}

/// A handshake datagram, looked at without trust: the mac is not checked yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// Which of them.
    pub kind: HelloKind,
    /// The version that the body is written in. Zero in a list of versions, which is the same in all.
    pub version: u8,
    /// The client's index.
    pub index: SessionIndex,
    /// What the sender claims about the rest.
    pub mac: [u8; MAC_LEN],
    /// The proof that the sender of a first message has a cookie.
    pub proof: Option<[u8; MAC_LEN]>,
    head: [u8; MAC_AT],
    body: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Reads the envelope.
    ///
    /// # Errors
    /// [`MalformedHello`] if it is too short or of another type.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, MalformedHello> {
        let envelope: &[u8; ENVELOPE_LEN] = datagram.first_chunk().ok_or(MalformedHello)?;
        let kind = HelloKind::from_first_byte(envelope[0]).ok_or(MalformedHello)?;
        let mac = envelope.last_chunk().copied().ok_or(MalformedHello)?;
        let mut head = *envelope.first_chunk().ok_or(MalformedHello)?;
        let (mut body, mut proof) = (&datagram[ENVELOPE_LEN..], None);
        if envelope[0] == FIRST_WITH_PROOF {
            let (rest, last) = body.split_last_chunk().ok_or(MalformedHello)?;
            (head[0], body, proof) = (kind.first_byte(), rest, Some(*last));
        }
        let (version, index) = (envelope[1], read_index(envelope));
        Ok(Self { kind, version, index, mac, proof, head, body })
    }

    /// The bytes in front of the mac, as they are without proof.
    #[must_use]
    pub const fn head(&self) -> &[u8] {
        &self.head
    }

    /// The bytes behind the mac, without proof.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Length of the whole datagram in bytes, without proof.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty: it holds an envelope")]
    pub const fn len(&self) -> usize {
        ENVELOPE_LEN + self.body.len()
    }
}

/// A datagram with an envelope whose mac is still zero; the body is appended, then the mac is set.
#[must_use]
pub fn envelope(kind: HelloKind, version: u8, index: SessionIndex) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(FIRST_LEN);
    datagram.extend_from_slice(&[kind.first_byte(), version]);
    datagram.extend_from_slice(&index_bytes(index));
    datagram.resize(ENVELOPE_LEN, 0);
    datagram
}

/// Makes the form with proof of a first message; `place` is [`MAC_LEN`] bytes longer than that.
pub fn write_with_proof(place: &mut [u8], first: &[u8], proof: &[u8; MAC_LEN]) {
    let Some((message, end)) = place.split_last_chunk_mut() else { return };
    message.copy_from_slice(first);
    *end = *proof;
    if let Some(kind) = message.first_mut() {
        *kind = FIRST_WITH_PROOF;
    }
}

/// Sets the mac of a datagram that [`envelope`] began.
pub fn set_mac(datagram: &mut [u8], mac: &[u8; MAC_LEN]) {
    if let Some(place) = datagram.get_mut(MAC_AT..ENVELOPE_LEN) {
        place.copy_from_slice(mac);
    }
}

/// An index as it stands on the wire.
#[must_use]
pub const fn index_bytes(index: SessionIndex) -> [u8; 3] {
    let [_, a, b, c] = index.get().to_be_bytes();
    [a, b, c]
}

/// An index from the wire.
#[must_use]
pub const fn index_from_bytes([a, b, c]: [u8; 3]) -> SessionIndex {
    SessionIndex::new(u32::from_be_bytes([0, a, b, c]))
}

const fn read_index(envelope: &[u8; ENVELOPE_LEN]) -> SessionIndex {
    index_from_bytes([envelope[2], envelope[3], envelope[4]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_reads_back_as_written() {
        let index = SessionIndex::new(0xab_cdef);
        for kind in [
            HelloKind::First,
            HelloKind::Response,
            HelloKind::Retry,
            HelloKind::Versions,
            HelloKind::Cookie,
        ] {
            let mut datagram = envelope(kind, 7, index);
            datagram.extend_from_slice(b"body");
            set_mac(&mut datagram, &[9; MAC_LEN]);
            assert_eq!(datagram[2..5], [0xab, 0xcd, 0xef]);
            let hello = Hello::parse(&datagram).unwrap();
            assert_eq!((hello.kind, hello.version, hello.index), (kind, 7, index));
            assert_eq!((hello.mac, hello.body(), hello.len()), ([9; 16], b"body".as_slice(), 28));
            assert_eq!(hello.head(), &datagram[..8]);
        }
    }

    #[test]
    fn short_datagrams_and_other_types_are_malformed() {
        let datagram = envelope(HelloKind::First, 1, SessionIndex::new(1));
        for len in 0..ENVELOPE_LEN {
            assert_eq!(Hello::parse(&datagram[..len]), Err(MalformedHello));
        }
        let known = [0x80, 0x90, 0xa0, 0xb0, 0xc0, 0xd0];
        for byte in (0..=255_u8).filter(|byte| !known.contains(byte)) {
            let mut other = datagram.clone();
            other[0] = byte;
            assert_eq!(Hello::parse(&other), Err(MalformedHello), "{byte:#x}");
        }
    }

    #[test]
    fn a_first_message_with_proof_is_the_message_without_and_the_proof() {
        let mut first = envelope(HelloKind::First, 1, SessionIndex::new(7));
        first.extend_from_slice(&[5; 40]);
        set_mac(&mut first, &[9; MAC_LEN]);
        let mut with = vec![0; first.len() + MAC_LEN];
        write_with_proof(&mut with, &first, &[3; MAC_LEN]);
        let plain = Hello::parse(&first).unwrap();
        let proven = Hello::parse(&with).unwrap();
        assert_eq!((plain.proof, proven.proof), (None, Some([3; MAC_LEN])));
        assert_eq!(Hello { proof: None, ..proven }, plain);
        for len in 0..ENVELOPE_LEN + MAC_LEN {
            assert_eq!(Hello::parse(&with[..len]), Err(MalformedHello), "{len}");
        }
    }
}
