//! Rates and amounts of data as people read them, wherever they are shown: decimal units, three digits, and no zeros that
//! say nothing.

/// A rate, such as `48.2 Mbit/s` or `556 bit/s`.
#[must_use]
pub fn rate(bps: f64) -> String {
    scaled(bps, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// An amount of data, such as `20 MB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn size(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// A rate in Mbit/s without its unit, for a column whose title has it.
#[must_use]
pub fn megabits(bps: f64) -> String {
    let number = bps / 1e6;
    match number {
        ..0.000_5 => "0".to_owned(),
        ..0.0995 => format!("{number:.3}"),
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// A number that is not negative, in the unit that leaves at most three digits before the point.
fn scaled(number: f64, units: &[&str]) -> String {
    let (mut number, mut place) = (number.max(0.0), 0);
    while number >= 999.5 && place + 1 < units.len() {
        (number, place) = (number / 1000.0, place + 1);
    }
    let unit = units.get(place).copied().unwrap_or_default();
    let text = match number {
        // Half a byte is none.
        _ if place == 0 => format!("{number:.0}"),
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    };
    let digits = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{digits} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_amounts_have_three_digits_in_decimal_units() {
        let rates = [
            (0.0, "0 bit/s"),
            (-1.0, "0 bit/s"),
            (f64::NAN, "0 bit/s"),
            (556.4, "556 bit/s"),
            (999.6, "1 kbit/s"),
            (96_400.0, "96.4 kbit/s"),
            (999_700.0, "1 Mbit/s"),
            (1_234_000.0, "1.23 Mbit/s"),
            (48_200_000.0, "48.2 Mbit/s"),
            (100e6, "100 Mbit/s"),
            (2.5e9, "2.5 Gbit/s"),
            (f64::INFINITY, "inf Tbit/s"),
        ];
        for (bps, expected) in rates {
            assert_eq!(rate(bps), expected);
        }
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1_500, "1.5 kB"),
            (20_000_000, "20 MB"),
            (1 << 20, "1.05 MB"),
            (10_000_000_000, "10 GB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (bytes, expected) in sizes {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn a_column_of_megabits_shows_little_as_little_and_not_as_nothing() {
        let table = [
            (0.0, "0"),
            (556.0, "0.001"),
            (80_000.0, "0.080"),
            (520_000.0, "0.52"),
            (7_810_000.0, "7.81"),
            (48_200_000.0, "48.2"),
            (9.99e9, "9990"),
        ];
        for (bps, expected) in table {
            assert_eq!(megabits(bps), expected);
        }
    }
}
