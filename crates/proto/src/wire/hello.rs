//! The outer format of the four handshake datagrams (PROTOCOL §6).
//!
//! ```text
//!  0        1        2                          5               8                 24
//! +--------+--------+--------+--------+--------+---------------+-----------------+------
//! | type 0 | version|      steering index      |    reserved   |  mac, 16 bytes  | body
//! +--------+--------+--------+--------+--------+---------------+-----------------+------
//! ```
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

/// How many versions a list may name.
pub const MAX_VERSIONS: usize = 16;

/// The four kinds of handshake datagrams: the high nibble of the first byte. The low nibble is zero.
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
}

impl HelloKind {
    /// The kind that a datagram's first byte names.
    #[must_use]
    pub const fn from_first_byte(byte: u8) -> Option<Self> {
        match byte {
            0x80 => Some(Self::First),
            0x90 => Some(Self::Response),
            0xa0 => Some(Self::Retry),
            0xb0 => Some(Self::Versions),
            _ => None,
        }
    }

    /// The first byte of a datagram of this kind.
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
    /// Which of the four.
    pub kind: HelloKind,
    /// The version that the body is written in. Zero in a list of versions, which is the same in all.
    pub version: u8,
    /// The client's index.
    pub index: SessionIndex,
    /// What the sender claims about the rest.
    pub mac: [u8; MAC_LEN],
    datagram: &'a [u8],
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
        Ok(Self { kind, version: envelope[1], index: read_index(envelope), mac, datagram })
    }

    /// The bytes in front of the mac.
    #[must_use]
    pub fn head(&self) -> &'a [u8] {
        &self.datagram[..MAC_AT]
    }

    /// The bytes behind the mac.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.datagram[ENVELOPE_LEN..]
    }

    /// Length of the whole datagram in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty: it holds an envelope")]
    pub const fn len(&self) -> usize {
        self.datagram.len()
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
        for kind in [HelloKind::First, HelloKind::Response, HelloKind::Retry, HelloKind::Versions] {
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
        for byte in (0..=255_u8).filter(|byte| ![0x80, 0x90, 0xa0, 0xb0].contains(byte)) {
            let mut other = datagram.clone();
            other[0] = byte;
            assert_eq!(Hello::parse(&other), Err(MalformedHello), "{byte:#x}");
        }
    }
}
