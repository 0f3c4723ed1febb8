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

/// An amount of data as it stands in a config: exact, in the largest unit that fits.
#[must_use]
pub fn exact_size(bytes: u64) -> String {
    const DECIMAL: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    const BINARY: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = |units: [(u64, &'static str); 4]| {
        units.into_iter().find(|(factor, _)| bytes >= *factor && bytes.is_multiple_of(*factor))
    };
    match (whole(DECIMAL), whole(BINARY)) {
        (Some((factor, unit)), Some(binary)) if bytes / factor <= bytes / binary.0 => {
            format!("{} {unit}", bytes / factor)
        }
        (_, Some((factor, unit))) | (Some((factor, unit)), None) => {
            format!("{} {unit}", bytes / factor)
        }
        (None, None) => format!("{bytes} B"),
    }
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
    fn an_amount_of_a_config_is_shown_as_it_was_written() {
        let table = [
            (0, "0 B"),
            (999, "999 B"),
            (50_000_000_000, "50 GB"),
            (1_500_000_000_000, "1500 GB"),
            (2_048_000_000_000, "2048 GB"),
            (2 << 30, "2 GiB"),
            (16 << 20, "16 MiB"),
            (100 << 10, "100 KiB"),
            (10_000_000_001, "10000000001 B"),
        ];
        for (bytes, expected) in table {
            assert_eq!(exact_size(bytes), expected);
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
