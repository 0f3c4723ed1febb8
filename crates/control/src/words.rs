//! Numbers as people say them; rates and amounts are in `ropewalk_settings::figures`.

/// A share of one.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// Milliseconds.
pub(crate) fn millis(ms: f64) -> String {
    if ms < 9.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// Seconds that have passed.
pub(crate) fn age(seconds: f64) -> String {
    let whole = seconds.max(0.0).round();
    match whole {
        0.0..120.0 => format!("{whole:.0} s"),
        120.0..7200.0 => format!("{:.0} min", (whole / 60.0).floor()),
        _ => format!("{:.0} h", (whole / 3600.0).floor()),
    }
}

/// So many of something.
pub(crate) fn some(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        assert_eq!([percent(0.0), percent(0.0123), percent(0.5)], ["0 %", "1.2 %", "50 %"]);
        assert_eq!([millis(3.13), millis(45.6)], ["3.1 ms", "46 ms"]);
        assert_eq!(
            [age(-1.0), age(119.4), age(150.0), age(7300.0)],
            ["0 s", "119 s", "2 min", "2 h"]
        );
        assert_eq!([some(1, "packet"), some(2, "packet")], ["1 packet", "2 packets"]);
    }
}
