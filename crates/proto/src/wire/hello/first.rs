//! The sealed payload of a first message (PROTOCOL §6.1): what the client says of itself.
//!
//! ```text
//!  0            12        13        14       15       16         40
//! +------------+---------+---------+--------+--------+----------+------------+---------+
//! | timestamp  | ciphers | newest  | flags  |   0    |  token   | parameters | padding |
//! +------------+---------+---------+--------+--------+----------+------------+---------+
//! ```

use zeroize::Zeroizing;

use super::parameters::{BadContent, Parameters};
use super::{ENVELOPE_LEN, FIRST_LEN};
use crate::crypto::aead::CipherSet;
use crate::crypto::freshness::{RetryToken, TOKEN_LEN, Timestamp};

/// Bytes that the Noise message adds to the payload: ephemeral key, sealed static key, tag.
const NOISE_LEN: usize = 32 + 48 + 16;

/// Bytes of the payload, padded.
pub(crate) const PAYLOAD_LEN: usize = FIRST_LEN - ENVELOPE_LEN - NOISE_LEN;

const FIXED_LEN: usize = 16 + TOKEN_LEN;
const _: () = assert!(FIXED_LEN + super::parameters::MAX_FIRST_LEN <= PAYLOAD_LEN);

/// Flag: the token field holds a token.
const WITH_TOKEN: u8 = 1;

/// What the client says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientHello {
    /// Grows with every first message of a client, unless its clock went back.
    pub timestamp: Timestamp,
    /// The data ciphers that the client can use fast.
    pub ciphers: CipherSet,
    /// The newest version of the protocol that the client speaks, whatever this message is written
    /// in.
    pub newest_version: u8,
    /// The proof of freshness that the proxy asked for.
    pub token: Option<RetryToken>,
    /// What the client would like.
    pub parameters: Parameters,
}

impl ClientHello {
    /// The payload, padded to [`PAYLOAD_LEN`]. It may hold the token of an invitation.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(PAYLOAD_LEN));
        out.extend_from_slice(&self.timestamp.to_bytes());
        let flags = if self.token.is_some() { WITH_TOKEN } else { 0 };
        out.extend_from_slice(&[self.ciphers.to_wire(), self.newest_version, flags, 0]);
        out.extend_from_slice(&self.token.map_or([0; TOKEN_LEN], RetryToken::to_bytes));
        self.parameters.write(&mut out);
        out.resize(PAYLOAD_LEN, 0);
        out
    }

    /// Reads a payload. Unknown flags and ciphers are ignored.
    ///
    /// # Errors
    /// [`BadContent`].
    pub fn parse(payload: &[u8]) -> Result<Self, BadContent> {
        let (timestamp, rest) = payload.split_first_chunk().ok_or(BadContent)?;
        let (&[ciphers, newest_version, flags, _], rest) =
            rest.split_first_chunk().ok_or(BadContent)?;
        let (token, rest) = rest.split_first_chunk().ok_or(BadContent)?;
        Ok(Self {
            timestamp: Timestamp::from_bytes(*timestamp).ok_or(BadContent)?,
            ciphers: CipherSet::from_wire(ciphers),
            newest_version,
            token: (flags & WITH_TOKEN != 0).then(|| RetryToken::from_bytes(token)),
            parameters: Parameters::parse(rest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::aead::Capabilities;
    use ropewalk_settings::InvitationToken;
    use std::time::Duration;

    fn hello(token: Option<RetryToken>) -> ClientHello {
        ClientHello {
            timestamp: Timestamp::from_unix(Duration::new(1_700_000_000, 999_999_999)),
            ciphers: CipherSet::offered(Capabilities { aes: true }),
            newest_version: 1,
            token,
            parameters: Parameters {
                rekey_interval: Some(Duration::from_secs(120)),
                invitation: Some(InvitationToken::from_bytes([9; 16])),
                yields: true,
                links: Some(16),
                ..Parameters::default()
            },
        }
    }

    #[test]
    fn a_payload_reads_back_as_written_and_has_always_the_same_length() {
        for token in [None, Some(RetryToken::from_bytes(&[7; TOKEN_LEN]))] {
            let bytes = hello(token).to_bytes();
            assert_eq!(bytes.len(), PAYLOAD_LEN);
            assert_eq!(ClientHello::parse(&bytes), Ok(hello(token)));
        }
    }

    #[test]
    fn a_cut_off_payload_is_refused() {
        let bytes = hello(None).to_bytes();
        for len in 0..FIXED_LEN {
            assert_eq!(ClientHello::parse(&bytes[..len]), Err(BadContent), "{len}");
        }
    }

    #[test]
    fn a_timestamp_with_too_many_nanoseconds_is_refused() {
        let mut bytes = hello(None).to_bytes();
        bytes[8..12].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
        assert_eq!(ClientHello::parse(&bytes), Err(BadContent));
    }
}
