//! Bytes read as choices; when they have run out every choice is zero.

use rand::RngCore;

/// What is left of the input.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Up to `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// A piece that names its own length.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) * 8 + usize::from(self.byte() & 7);
        self.bytes(len)
    }
}

/// Whatever draws at random draws from the input.
impl RngCore for Input<'_> {
    fn next_u32(&mut self) -> u32 {
        let mut word = [0; 4];
        self.fill_bytes(&mut word);
        u32::from_be_bytes(word)
    }

    fn next_u64(&mut self) -> u64 {
        // Two bytes choose well enough, and leave more choices to an input of a given length.
        let [high, low] = [self.byte(), self.byte()];
        let word = u64::from(u16::from_be_bytes([high, low]));
        word.wrapping_mul(0x0001_0001_0001_0001)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        let bytes = self.bytes(out.len());
        out[..bytes.len()].copy_from_slice(bytes);
        out[bytes.len()..].fill(0);
    }
}
