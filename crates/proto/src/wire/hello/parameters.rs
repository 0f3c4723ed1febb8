//! What one end wishes or states beside the keys: a list of type, length, value (PROTOCOL §6.1).
//!
//! ```text
//! +------+--------+--- - -
//! | type | length | value        type 0 ends the list; what follows is padding and ignored
//! +------+--------+--- - -
//! ```
//!
//! The rule for growth within a version: an unknown type is skipped by its length; a known type with
//! a wrong length, or twice, breaks the format. So a new parameter needs no new version, as long as
//! an end that does not know it may ignore it.

use std::time::Duration;

use crate::crypto::secret::{INVITATION_TOKEN_LEN, InvitationToken};

/// Wire numbers of the parameters.
const END: u8 = 0;
const REKEY_INTERVAL: u8 = 1;
const INVITATION: u8 = 2;
const YIELDS: u8 = 3;
const DISPLACED: u8 = 4;
const LINKS: u8 = 5;

/// Bytes of the longest list that this version writes, with its end.
pub const MAX_LEN: usize = (2 + 4) + (2 + INVITATION_TOKEN_LEN) + 2 + (2 + 4) + (2 + 1) + 1;

/// In a first message: what the client would like. In the response: what holds. `None`: nothing said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// Time between rekeys; on the wire in milliseconds, up to 49 days.
    pub rekey_interval: Option<Duration>,
    /// In a first message: what lets a client come in that the proxy does not know yet.
    pub invitation: Option<InvitationToken>,
    /// In a first message: the client wants no session while another machine uses one with its key.
    pub yields: bool,
    /// In a response: a session of the same key was in use until now, and was heard of so long ago; on the wire in
    /// milliseconds.
    pub displaced: Option<Duration>,
    /// In a first message: how many links the client is about to open.
    pub links: Option<u8>,
}

/// The content of an authentic handshake message breaks the format. Drop, count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content of the handshake message breaks the format")]
pub struct BadContent;

impl Parameters {
    /// Appends the list and its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        if let Some(interval) = self.rekey_interval {
            out.extend_from_slice(&[REKEY_INTERVAL, 4]);
            out.extend_from_slice(&millis(interval).to_be_bytes());
        }
        if let Some(token) = &self.invitation {
            out.extend_from_slice(&[INVITATION, INVITATION_TOKEN_LEN as u8]);
            out.extend_from_slice(token.as_bytes());
        }
        if self.yields {
            out.extend_from_slice(&[YIELDS, 0]);
        }
        if let Some(ago) = self.displaced {
            out.extend_from_slice(&[DISPLACED, 4]);
            out.extend_from_slice(&millis(ago).to_be_bytes());
        }
        if let Some(links) = self.links {
            out.extend_from_slice(&[LINKS, 1, links]);
        }
        out.push(END);
    }

    /// Reads a list up to its end (a type 0, or the end of `bytes`).
    ///
    /// # Errors
    /// [`BadContent`] if a value is cut off, has a wrong length, or comes twice.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, BadContent> {
        let mut parameters = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind == END {
                break;
            }
            let (&len, rest) = rest.split_first().ok_or(BadContent)?;
            let (value, rest) = rest.split_at_checked(usize::from(len)).ok_or(BadContent)?;
            bytes = rest;
            match kind {
                REKEY_INTERVAL => once(&mut parameters.rekey_interval, read_millis(value)?)?,
                INVITATION => once(&mut parameters.invitation, read_token(value)?)?,
                YIELDS if !value.is_empty() || parameters.yields => return Err(BadContent),
                YIELDS => parameters.yields = true,
                DISPLACED => once(&mut parameters.displaced, read_millis(value)?)?,
                LINKS => {
                    let &[links] = value else { return Err(BadContent) };
                    once(&mut parameters.links, links)?;
                }
                _ => {}
            }
        }
        Ok(parameters)
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), BadContent> {
    if place.replace(value).is_some() { Err(BadContent) } else { Ok(()) }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn read_millis(value: &[u8]) -> Result<Duration, BadContent> {
    let bytes = value.try_into().map_err(|_| BadContent)?;
    Ok(Duration::from_millis(u64::from(u32::from_be_bytes(bytes))))
}

fn read_token(value: &[u8]) -> Result<InvitationToken, BadContent> {
    value.try_into().map(InvitationToken::from_bytes).map_err(|_| BadContent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Parameters {
        Parameters {
            rekey_interval: Some(Duration::from_secs(120)),
            invitation: Some(InvitationToken::from_bytes([7; INVITATION_TOKEN_LEN])),
            yields: true,
            displaced: Some(Duration::from_millis(400)),
            links: Some(3),
        }
    }

    fn written(parameters: &Parameters) -> Vec<u8> {
        let mut out = Vec::new();
        parameters.write(&mut out);
        out
    }

    #[test]
    fn a_list_reads_back_as_written_and_padding_is_ignored() {
        for parameters in [all(), Parameters::default()] {
            let mut bytes = written(&parameters);
            assert!(bytes.len() <= MAX_LEN);
            bytes.extend_from_slice(b"\xff\xff padding");
            assert_eq!(Parameters::parse(&bytes), Ok(parameters));
        }
        assert_eq!(written(&all()).len(), MAX_LEN);
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let (rekey, token) = ([1, 4, 0, 1, 0xd4, 0xc0], [7; INVITATION_TOKEN_LEN]);
        let parts =
            [&rekey[..], &[2, 16], &token, &[3, 0], &[4, 4, 0, 0, 1, 0x90], &[5, 1, 3], &[0]];
        assert_eq!(written(&all()), parts.concat());
    }

    #[test]
    fn an_unknown_parameter_is_skipped() {
        let bytes = [b"\x63\x03abc\x00".as_slice(), &written(&all())].concat();
        assert_eq!(Parameters::parse(&bytes), Ok(Parameters::default()));
        let bytes = [b"\x63\x03abc".as_slice(), &written(&all())].concat();
        assert_eq!(Parameters::parse(&bytes), Ok(all()));
    }

    #[test]
    fn broken_lists_are_refused() {
        for (name, bytes) in [
            ("no length", [1].as_slice()),
            ("cut off", &[1, 4, 0, 0, 0]),
            ("unknown and cut off", &[99, 4, 0]),
            ("too short a value", &[1, 3, 0, 0, 0]),
            ("too long a value", &[1, 5, 0, 0, 0, 0, 0]),
            ("twice", &[1, 4, 0, 0, 5, 0, 1, 4, 0, 0, 5, 0]),
            ("half a token", &[2, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("a word with a value", &[3, 1, 1]),
            ("a word twice", &[3, 0, 3, 0]),
            ("too short a time", &[4, 2, 1, 1]),
            ("no number of links", &[5, 0, 0]),
            ("a number of links in two bytes", &[5, 2, 0, 1, 0]),
            ("links twice", &[5, 1, 3, 5, 1, 3, 0]),
        ] {
            assert_eq!(Parameters::parse(bytes), Err(BadContent), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_not_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(parameters) = Parameters::parse(&bytes) {
                prop_assert_eq!(Parameters::parse(&written(&parameters)), Ok(parameters));
            }
        }
    }
}
