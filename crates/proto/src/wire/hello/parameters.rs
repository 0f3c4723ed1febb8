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

/// Wire numbers of the parameters.
const END: u8 = 0;
const REKEY_INTERVAL: u8 = 1;

/// Bytes of the longest list that this version writes, with its end.
pub const MAX_LEN: usize = 2 + 4 + 1;

/// In a first message: what the client would like. In the response: what holds. `None`: nothing said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// Time between rekeys; on the wire in milliseconds, up to 49 days.
    pub rekey_interval: Option<Duration>,
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
            if kind == REKEY_INTERVAL {
                once(&mut parameters.rekey_interval, read_millis(value)?)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Parameters = Parameters { rekey_interval: Some(Duration::from_secs(120)) };

    fn written(parameters: &Parameters) -> Vec<u8> {
        let mut out = Vec::new();
        parameters.write(&mut out);
        out
    }

    #[test]
    fn a_list_reads_back_as_written_and_padding_is_ignored() {
        for parameters in [ALL, Parameters::default()] {
            let mut bytes = written(&parameters);
            assert!(bytes.len() <= MAX_LEN);
            bytes.extend_from_slice(b"\xff\xff padding");
            assert_eq!(Parameters::parse(&bytes), Ok(parameters));
        }
        assert_eq!(written(&ALL).len(), MAX_LEN);
    }

    #[test]
    fn an_unknown_parameter_is_skipped() {
        let bytes = [b"\x63\x03abc\x00".as_slice(), &written(&ALL)].concat();
        assert_eq!(Parameters::parse(&bytes), Ok(Parameters::default()));
        let bytes = [b"\x63\x03abc".as_slice(), &written(&ALL)].concat();
        assert_eq!(Parameters::parse(&bytes), Ok(ALL));
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
