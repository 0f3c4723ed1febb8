//! How long traffic stands still where a link goes.

use std::time::Duration;

/// Shorter times between two packets or pieces are nothing that anybody notices.
pub const SHORT: Duration = Duration::from_millis(10);

/// After this time what happens is no consequence of a link that went.
const AFTERMATH: Duration = Duration::from_secs(1);

/// By how much a time since the beginning of a scenario may be wrong: traffic starts a little later than it is told.
const SLACK: Duration = Duration::from_millis(150);

/// A time in which nothing came.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stall {
    /// When something came again, since the beginning of the scenario.
    pub end: Duration,
    /// How long nothing came.
    pub length: Duration,
}

/// For each moment at which a link went, the longest stall that it can have caused; zero where there was none worth noting.
#[must_use]
pub fn at_each(departures: &[Duration], stalls: &[Stall]) -> Vec<Duration> {
    let after = |at: Duration| {
        let caused = stalls.iter().filter(move |stall| {
            stall.end + SLACK > at && stall.end.saturating_sub(stall.length) < at + AFTERMATH
        });
        caused.map(|stall| stall.length).max().unwrap_or_default()
    };
    departures.iter().map(|at| after(*at)).collect()
}

/// The stalls between these moments, ascending.
#[must_use]
pub fn between(moments: impl IntoIterator<Item = Duration>) -> Vec<Stall> {
    let mut last = None;
    let lengths = moments.into_iter().filter_map(|at| {
        let length = at.saturating_sub(last.replace(at)?);
        (length >= SHORT).then_some(Stall { end: at, length })
    });
    lengths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_departure_has_the_longest_stall_that_it_can_have_caused() {
        let ms = Duration::from_millis;
        let came = [0, 5, 1000, 1100, 1105, 1180, 4000, 4030, 9000].map(ms);
        let stalls = between(came);
        assert_eq!(stalls.len(), 6, "{stalls:?}");
        let found = at_each(&[ms(1050), ms(1101), ms(4010), ms(5000), ms(20_000)], &stalls);
        assert_eq!(found, [ms(2820), ms(2820), ms(4970), ms(4970), ms(0)]);
        let near = between([1000, 1100, 1105, 1180].map(ms));
        assert_eq!(at_each(&[ms(1050), ms(500), ms(1300)], &near), [ms(100), ms(100), ms(75)]);
    }
}
