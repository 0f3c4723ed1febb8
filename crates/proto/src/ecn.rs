//! Explicit congestion notification (RFC 3168) and how a tunnel carries it (RFC 6040).

/// The two ECN bits of an IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, codepoint 1.
    Ect1 = 0b01,
    /// ECN-capable, codepoint 0.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class byte.
    #[must_use]
    pub const fn from_tos(tos: u8) -> Self {
        match tos & 0b11 {
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            0b11 => Self::Ce,
            _ => Self::NotEct,
        }
    }

    /// The two bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// What the inner header says after decapsulation (RFC 6040 §4.2, figure 4). `None`: the packet
    /// must be dropped, because congestion was marked on a flow that cannot see marks.
    #[must_use]
    pub const fn decapsulate(inner: Self, outer: Self) -> Option<Self> {
        match (inner, outer) {
            (Self::NotEct, Self::Ce) => None,
            (Self::NotEct, _) => Some(Self::NotEct),
            (_, Self::Ce) => Some(Self::Ce),
            (Self::Ect0, Self::Ect1) => Some(Self::Ect1),
            (inner, _) => Some(inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ecn::{self, Ce, Ect0, Ect1, NotEct};

    #[test]
    fn decapsulation_follows_the_table_of_rfc_6040() {
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                assert_eq!(Ecn::decapsulate(inner, outer), expected, "{inner:?} in {outer:?}");
            }
        }
    }
}
