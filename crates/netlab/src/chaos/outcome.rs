//! What came of a run: a table for people, the same as JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::daemon::Memory;
use super::load::Carried;
use super::upheaval::Kind;

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The seed that draws the same upheavals again.
    pub seed: u64,
    /// How long the tunnel was under upheaval, in seconds.
    pub seconds: f64,
    /// Each kind that was done alone.
    pub kinds: Vec<Row>,
    /// Several at once.
    pub together: Row,
    /// What the load saw.
    pub load: Carried,
    /// What the client has in memory.
    pub client: Memory,
    /// What the proxy has in memory.
    pub proxy: Memory,
    /// Everything that is not as it must be.
    pub faults: Vec<String>,
}

/// One kind of upheaval, as often as it was done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How often.
    pub times: usize,
    /// How often it was done together with others.
    pub beside_others: usize,
    /// Until packets of the download and of the call came again, in seconds: median and longest.
    pub packets_s: (f64, f64),
    /// Until everything was as before.
    pub whole_s: (f64, f64),
    /// How often something was not as it must be.
    pub failures: usize,
}

/// What one round showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) kinds: Vec<Kind>,
    pub(super) packets: Option<Duration>,
    pub(super) whole: Option<Duration>,
    pub(super) faults: Vec<String>,
}

impl Outcome {
    /// Whether everything was as it must be.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.faults.is_empty()
    }

    pub(super) fn of(seed: u64, seconds: f64, rounds: &[Round]) -> Self {
        let mut alone: BTreeMap<Kind, Vec<&Round>> = BTreeMap::new();
        let mut beside: BTreeMap<Kind, usize> = BTreeMap::new();
        let mut together = Vec::new();
        for round in rounds {
            match round.kinds.as_slice() {
                [kind] => alone.entry(*kind).or_default().push(round),
                several => {
                    several.iter().for_each(|kind| *beside.entry(*kind).or_default() += 1);
                    together.push(round);
                }
            }
        }
        let done = Kind::ALL
            .into_iter()
            .filter(|kind| alone.contains_key(kind) || beside.contains_key(kind));
        let kinds = done.map(|kind| {
            let rounds = alone.get(&kind).map_or(&[][..], Vec::as_slice);
            let beside_others = beside.get(&kind).copied().unwrap_or(0);
            Row { beside_others, ..Row::of(kind.name(), rounds) }
        });
        Self {
            seed,
            seconds,
            kinds: kinds.collect(),
            together: Row::of("several at once", &together),
            faults: rounds.iter().flat_map(|round| round.faults.iter().cloned()).collect(),
            ..Self::default()
        }
    }

    /// The table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "  {:<16} {:>5} {:>6}  {:>15}  {:>15}  {:>8}\n  {:<16} {:>5} {:>6}  {:>15}  {:>15}  {:>8}\n",
            "",
            "times",
            "beside",
            "packets again s",
            "whole again s",
            "",
            "upheaval",
            "alone",
            "others",
            "median  longest",
            "median  longest",
            "failures",
        );
        let pair = |(median, longest): (f64, f64)| match median.is_nan() {
            true => "-".to_owned(),
            false => format!("{median:.2}  {longest:7.2}"),
        };
        for row in self.kinds.iter().chain([&self.together]) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  {:<16} {:>5} {:>6}  {:>15}  {:>15}  {:>8}",
                row.name,
                row.times,
                row.beside_others,
                pair(row.packets_s),
                pair(row.whole_s),
                row.failures
            );
        }
        let Carried { bytes, downloads, broken, given_up, altered, .. } = &self.load;
        let _ = writeln!(
            text,
            "\n  {downloads} downloads whole, {:.1} MB in all, {altered} with altered bytes; {broken} connections ended by upheavals, \
             {given_up} given up after one",
            *bytes as f64 / 1e6
        );
        let Carried { call_sent, call_returned, .. } = &self.load;
        let _ = writeln!(text, "  call: {call_sent} packets sent, {call_returned} came back");
        for (who, memory) in [("client", self.client), ("proxy", self.proxy)] {
            let mib = |kib: u64| kib as f64 / 1024.0;
            let _ = writeln!(
                text,
                "  memory of the {who}: {:.1} MiB after the warm-up, {:.1} at most after a calm, {:.1} at the end",
                mib(memory.warm_kib),
                mib(memory.most_kib),
                mib(memory.last_kib)
            );
        }
        text
    }
}

impl Row {
    fn of(name: &str, rounds: &[&Round]) -> Self {
        let times = |of: fn(&Round) -> Option<Duration>| {
            let mut times: Vec<_> = rounds
                .iter()
                .filter_map(|round| of(round))
                .map(|time| time.as_secs_f64())
                .collect();
            times.sort_by(f64::total_cmp);
            let median = times.get(times.len() / 2).copied();
            (median.unwrap_or(f64::NAN), times.last().copied().unwrap_or(f64::NAN))
        };
        Self {
            name: name.to_owned(),
            times: rounds.len(),
            beside_others: 0,
            packets_s: times(|round| round.packets),
            whole_s: times(|round| round.whole),
            failures: rounds.iter().filter(|round| !round.faults.is_empty()).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_each_kind_alone_and_several_at_once_together() {
        let round = |kinds: &[Kind], whole: Option<u64>, faults: &[&str]| Round {
            kinds: kinds.to_vec(),
            packets: Some(Duration::from_millis(100)),
            whole: whole.map(Duration::from_millis),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        };
        let outcome = Outcome::of(
            1,
            60.0,
            &[
                round(&[Kind::Cut], Some(500), &[]),
                round(&[Kind::Cut], Some(100), &[]),
                round(&[Kind::Cut], Some(300), &[]),
                round(&[Kind::Cut, Kind::Loss], None, &["it leaks"]),
            ],
        );
        let [loss, cut] = outcome.kinds.as_slice() else { panic!("{outcome:?}") };
        assert_eq!((cut.times, cut.beside_others, cut.failures), (3, 1, 0));
        assert_eq!(cut.whole_s, (0.3, 0.5));
        assert_eq!((loss.times, loss.beside_others), (0, 1));
        assert_eq!((outcome.together.times, outcome.together.failures), (1, 1));
        assert!(!outcome.ok());
        assert!(outcome.table().contains("several at once"), "{}", outcome.table());
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(json["kinds"][1]["name"], "cut");
    }
}
