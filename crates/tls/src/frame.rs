//! Datagrams in a stream of bytes: each behind its length, two bytes in network order, as others do it
//! (RFC 9329 §3 for IPsec, which counts the two bytes too; mullvad's udp-over-tcp).
//!
//! Pure. A length that no datagram of a tunnel has ends the stream: whoever speaks another protocol (HTTP begins with
//! `GE`, which would be 18,245 bytes) is found out with the first two bytes, and memory is bounded by one buffer.

/// Bytes of the longest datagram: the payload of an outer packet of 1,500 bytes, which is the most that the tunnel
/// makes, and the headers of that packet to spare.
pub const LONGEST: usize = 1500;

/// Bytes of a length.
const PREFIX: usize = 2;

/// Bytes that a [`Reader`] holds: a whole record of TLS.
const BUFFER: usize = 16 * 1024;

/// What came is no datagram of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what listens there is no Ropewalk proxy: a datagram of {0} bytes was announced")]
pub(crate) struct NotOurs(pub(crate) usize);

/// Whether a tunnel has datagrams of this length.
pub(crate) const fn is_length(len: usize) -> bool {
    0 < len && len <= LONGEST
}

/// How many bytes a datagram has in the stream.
pub(crate) const fn framed(len: usize) -> usize {
    PREFIX + len
}

/// Appends a datagram of a length that is one.
pub(crate) fn write(datagram: &[u8], into: &mut Vec<u8>) {
    debug_assert!(is_length(datagram.len()), "checked where it is queued");
    let len = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
    into.extend_from_slice(&len.to_be_bytes());
    into.extend_from_slice(datagram);
}

/// Parts a stream into its datagrams.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: Box<[u8]>,
    /// Where what is not taken yet begins and ends.
    start: usize,
    end: usize,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Where the next bytes of the stream go; never empty once all whole datagrams are taken.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.bytes[self.end..]
    }

    /// So many bytes were put there.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Whether a whole datagram is there.
    pub(crate) fn has_datagram(&self) -> Result<bool, NotOurs> {
        Ok(self.announced()?.is_some_and(|len| self.end - self.start >= framed(len)))
    }

    /// Takes the next datagram; an empty one where none is whole.
    pub(crate) fn take(&mut self) -> &[u8] {
        let Ok(Some(len)) = self.announced() else { return &[] };
        let from = self.start + PREFIX;
        if self.end < from + len {
            return &[];
        }
        self.start = from + len;
        &self.bytes[from..from + len]
    }

    /// The length of the next datagram, if it has come.
    fn announced(&self) -> Result<Option<usize>, NotOurs> {
        match self.bytes[self.start..self.end] {
            [high, low, ..] => {
                let len = usize::from(u16::from_be_bytes([high, low]));
                if is_length(len) { Ok(Some(len)) } else { Err(NotOurs(len)) }
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All datagrams of a stream that comes in pieces of these sizes, and what ended it.
    fn parted(stream: &[u8], sizes: &[usize]) -> (Vec<Vec<u8>>, Option<NotOurs>) {
        let (mut reader, mut datagrams) = (Reader::new(), Vec::new());
        let mut sizes = sizes.iter().copied().cycle();
        let mut rest = stream;
        loop {
            loop {
                match reader.has_datagram() {
                    Ok(true) => datagrams.push(reader.take().to_vec()),
                    Ok(false) => break,
                    Err(error) => return (datagrams, Some(error)),
                }
            }
            if rest.is_empty() {
                return (datagrams, None);
            }
            let space = reader.space();
            let count = sizes.next().unwrap_or(1).clamp(1, space.len()).min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            reader.filled(count);
            rest = &rest[count..];
        }
    }

    #[test]
    fn what_is_no_datagram_of_a_tunnel_ends_the_stream_with_its_first_bytes() {
        for (stream, len) in [
            (&b"GET / HTTP/1.1\r\n"[..], 0x4745),
            (b"HTTP/1.1 400 Bad Request\r\n", 0x4854),
            (b"SSH-2.0-OpenSSH_9.2\r\n", 0x5353),
            (b"\x16\x03\x01", 0x1603),
            (b"\0\0", 0),
            (b"\x05\xdd", 1501),
        ] {
            assert_eq!(parted(stream, &[1]), (Vec::new(), Some(NotOurs(len))), "{stream:?}");
        }
        let mut stream = Vec::new();
        write(b"ours", &mut stream);
        stream.extend_from_slice(b"not ours");
        assert_eq!(parted(&stream, &[7]), (vec![b"ours".to_vec()], Some(NotOurs(0x6e6f))));
    }

    #[test]
    fn half_a_datagram_is_waited_for() {
        let mut stream = Vec::new();
        write(&[7; LONGEST], &mut stream);
        for cut in 0..stream.len() {
            assert_eq!(parted(&stream[..cut], &[BUFFER]), (Vec::new(), None), "{cut} bytes");
        }
        let mut reader = Reader::new();
        assert_eq!(reader.has_datagram(), Ok(false));
        assert!(reader.take().is_empty());
    }

    proptest! {
        #[test]
        fn a_stream_gives_back_what_was_written_however_it_is_cut(
            datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=LONGEST), 0..40),
            sizes in prop::collection::vec(1..20_000_usize, 1..20),
        ) {
            let mut stream = Vec::new();
            datagrams.iter().for_each(|datagram| write(datagram, &mut stream));
            prop_assert_eq!(parted(&stream, &sizes), (datagrams, None));
        }

        #[test]
        fn any_bytes_are_parted_or_refused(
            stream in prop::collection::vec(any::<u8>(), 0..5_000),
            sizes in prop::collection::vec(1..20_000_usize, 1..20),
        ) {
            let (datagrams, _) = parted(&stream, &sizes);
            let bytes: usize = datagrams.iter().map(|datagram| framed(datagram.len())).sum();
            prop_assert!(bytes <= stream.len());
        }
    }
}
