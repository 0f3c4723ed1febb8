//! Reading and writing a byte slice from front to back, without ever running over its end.

/// The input ended too early, or the output is too small.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the datagram ends too early")]
pub struct Truncated;

/// Reads values from the front of borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What has not been read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    /// Passes over zero bytes: a path MTU probe is filled with more than a thousand.
    pub fn skip_zeros(&mut self) {
        let zeros = self.0.iter().position(|byte| *byte != 0).unwrap_or(self.0.len());
        self.0 = self.0.get(zeros..).unwrap_or_default();
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Truncated)?;
        self.0 = tail;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// None is left.
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Three bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u24(&mut self) -> Result<u32, Truncated> {
        self.array::<3>().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }

    /// A variable-length integer (RFC 9000 §16): 1, 2, 4 or 8 bytes, 62 bits.
    ///
    /// # Errors
    /// The length that the first byte names is not there.
    pub fn varint(&mut self) -> Result<u64, Truncated> {
        let first = *self.0.first().ok_or(Truncated)?;
        let bytes = self.bytes(1 << (first >> 6))?;
        let tail = bytes.iter().skip(1);
        Ok(tail.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
    }
}

/// Writes values to the front of borrowed bytes.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `buffer`.
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// They do not fit; nothing is written.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Truncated> {
        let slot = self.buffer.get_mut(self.len..self.len + bytes.len()).ok_or(Truncated)?;
        slot.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Appends `len` bytes of zero, whatever stood there.
    ///
    /// # Errors
    /// They do not fit; nothing is written.
    pub fn zeros(&mut self, len: usize) -> Result<(), Truncated> {
        let slot = self.buffer.get_mut(self.len..self.len.saturating_add(len)).ok_or(Truncated)?;
        slot.fill(0);
        self.len += len;
        Ok(())
    }

    /// One byte.
    ///
    /// # Errors
    /// It does not fit.
    pub fn u8(&mut self, value: u8) -> Result<(), Truncated> {
        self.bytes(&[value])
    }

    /// Two bytes.
    ///
    /// # Errors
    /// They do not fit.
    pub fn u16(&mut self, value: u16) -> Result<(), Truncated> {
        self.bytes(&value.to_be_bytes())
    }

    /// The low three bytes of `value`.
    ///
    /// # Errors
    /// They do not fit.
    pub fn u24(&mut self, value: u32) -> Result<(), Truncated> {
        let [_, low @ ..] = value.to_be_bytes();
        self.bytes(&low)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// They do not fit.
    pub fn u32(&mut self, value: u32) -> Result<(), Truncated> {
        self.bytes(&value.to_be_bytes())
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// They do not fit.
    pub fn u64(&mut self, value: u64) -> Result<(), Truncated> {
        self.bytes(&value.to_be_bytes())
    }

    /// A variable-length integer (RFC 9000 §16); values of 2^62 and more saturate.
    ///
    /// # Errors
    /// It does not fit.
    pub fn varint(&mut self, value: u64) -> Result<(), Truncated> {
        const MAX: u64 = (1 << 62) - 1;
        let value = value.min(MAX);
        let mut bytes = value.to_be_bytes();
        let (tag, start) = match value {
            0..=0x3f => (0x00, 7),
            0x40..=0x3fff => (0x40, 6),
            0x4000..=0x3fff_ffff => (0x80, 4),
            _ => (0xc0, 0),
        };
        bytes[start] |= tag;
        self.bytes(&bytes[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9000_hold() {
        let cases: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in cases {
            assert_eq!(Reader::new(bytes).varint(), Ok(value));
        }
    }

    #[test]
    fn what_does_not_fit_is_not_written_in_part() {
        let mut buffer = [0; 3];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(writer.u32(7), Err(Truncated));
        assert!(writer.is_empty());
        assert_eq!(writer.u24(0x0102_0304), Ok(()));
        assert_eq!((writer.len(), writer.room()), (3, 0));
        assert_eq!(buffer, [2, 3, 4]);
    }

    proptest! {
        #[test]
        fn varints_survive_the_wire(value in 0..1_u64 << 62) {
            let mut buffer = [0; 8];
            let mut writer = Writer::new(&mut buffer);
            writer.varint(value).unwrap();
            let len = writer.len();
            let mut reader = Reader::new(&buffer[..len]);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.rest().is_empty());
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.varint().is_ok() {}
            let _ = reader.u64().or_else(|_| reader.u24().map(u64::from));
        }
    }
}
