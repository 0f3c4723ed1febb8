//! Identifiers of the wire.

use std::fmt;

/// One UDP path of a tunnel, as named on the wire. The client gives the ids; within one key an id
/// is never given twice (PROTOCOL §5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link{}", self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The 24-bit index by which a receiver finds the session of a datagram (PROTOCOL §2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionIndex(u32);

impl SessionIndex {
    /// The largest index.
    pub const MAX: u32 = 0xff_ffff;

    /// Takes the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MAX)
    }

    /// The index as a number below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_index_keeps_twenty_four_bits() {
        assert_eq!(SessionIndex::new(0x1234_5678).get(), 0x34_5678);
    }
}
