//! Amounts of data.

use crate::text::Text;

/// An amount of data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSize(pub u64);

impl DataSize {
    /// Least and largest amount that anybody can mean.
    const RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000_000;
}

impl Text for DataSize {
    const EXPECTED: &'static str =
        "an amount of data with its unit, such as \"50 GB\" (10^9 bytes) or \"50 GiB\" (2^30)";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let split = text.find(|c: char| c.is_alphabetic());
        let (number, unit) = text.split_at(split.unwrap_or(text.len()));
        let number: f64 = number.trim().parse().map_err(|_| bad())?;
        let factor = match unit.trim() {
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "" => return Err(format!("`{text}` has no unit: write {}", Self::EXPECTED)),
            bits if bits.to_ascii_lowercase().contains("bit") || bits.ends_with('b') => {
                return Err(format!("`{text}` means bits: write {}", Self::EXPECTED));
            }
            other => {
                let what = format!("`{}` is no unit of data here", other.escape_debug());
                return Err(format!("{what}: write {}", Self::EXPECTED));
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and the bounds are checked"
        )]
        let bytes = (number * factor).round() as u64;
        if number.is_finite() && Self::RANGE.contains(&bytes) {
            return Ok(Self(bytes));
        }
        Err(format!("`{text}` is outside 1 MB to 1000 TB"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_data_are_decimal_or_binary_and_never_bits_or_nonsense() {
        let table = [
            ("50 GB", Ok(50_000_000_000)),
            ("50GB", Ok(50_000_000_000)),
            ("1.5 TB", Ok(1_500_000_000_000)),
            ("2 GiB", Ok(2 << 30)),
            ("300 MiB", Ok(300 << 20)),
            ("50", Err("has no unit")),
            ("50 Gb", Err("means bits")),
            ("50 Gbit", Err("means bits")),
            ("50 G", Err("`G` is no unit of data here")),
            ("50 gigs", Err("`gigs` is no unit")),
            ("50 bananas", Err("`bananas` is no unit")),
            ("50 EUR", Err("`EUR` is no unit")),
            ("fifty GB", Err("is not an amount of data")),
            ("-5 GB", Err("outside 1 MB")),
            ("nan GB", Err("is not an amount")),
            ("0 GB", Err("outside 1 MB")),
            ("9999999 TB", Err("outside 1 MB")),
            ("", Err("is not an amount")),
        ];
        for (text, expected) in table {
            match (DataSize::from_text(text), expected) {
                (Ok(size), Ok(bytes)) => assert_eq!(size.0, bytes, "{text}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
