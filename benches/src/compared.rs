//! Runs beside others of the same number: transfers beside the links one by one, fetches beside the better link without a
//! tunnel. And which of several candidates counts.

use crate::measure::{Packets, limit_mbit, spread};
use crate::plan::{Candidate, PlannedCase};
use crate::results::{Run, Traffic, rounded};

/// How long a fetch takes: median, and 95th percentile.
pub(crate) const FETCH: [&str; 2] = ["fetch_p50_ms", "fetch_p95_ms"];
/// The same as a multiple of what it takes without a tunnel.
const FETCH_OF_DIRECT: [&str; 2] = ["fetch_p50_of_direct", "fetch_p95_of_direct"];
/// By what a link alone is chosen for a call.
pub(crate) const CALL: &str = "call_down_added_p95_ms";

/// A fetch takes so many round trips at least: one for the connection, one for the question.
const TRIPS: f64 = 2.0;

/// Of transfers that end with their bytes: goodput in percent of the sum of what the links of the point each
/// carried alone in the run of the same number, where a series has run them so.
pub fn note_singles(planned: &[PlannedCase], runs: &mut [Vec<Vec<Run>>]) {
    let singles: Vec<_> = planned
        .iter()
        .zip(runs.iter())
        .filter(|(case, _)| case.bytes.is_some() && case.alone)
        .map(|(case, runs)| (case.point.label.as_str(), case.traffic, sums(runs)))
        .collect();
    for (case, runs) in planned.iter().zip(runs).filter(|(case, _)| !case.alone) {
        let same = |single: &&(&str, Traffic, Vec<f64>)| {
            single.0 == case.point.label && single.1 == case.traffic
        };
        let Some((_, _, sums)) = singles.iter().find(same) else { continue };
        for (run, sum) in runs.iter_mut().flat_map(|runs| runs.iter_mut().zip(sums)) {
            if let Some(goodput) = run.values.get("goodput_mbit").filter(|_| *sum > 0.0) {
                let percent = rounded(100.0 * goodput / sum);
                run.values.insert("percent_of_singles".to_owned(), percent);
            }
        }
    }
}

/// Run by run, the goodput of all candidates together.
fn sums(candidates: &[Vec<Run>]) -> Vec<f64> {
    let runs = candidates.iter().map(Vec::len).min().unwrap_or_default();
    let goodput = |run: &Run| run.values.get("goodput_mbit").copied().unwrap_or_default();
    (0..runs).map(|run| candidates.iter().map(|runs| goodput(&runs[run])).sum()).collect()
}

/// Of fetches: how long they took, as a multiple of what they took in the run of the same number without a tunnel, over
/// the link that was the better one. Absent where one of the two runs is void.
pub fn note_direct(planned: &[PlannedCase], runs: &mut [Vec<Vec<Run>>]) {
    let fetches = |case: &PlannedCase| case.traffic == Traffic::Fetches;
    let direct: Vec<(String, Vec<Run>)> = planned
        .iter()
        .zip(runs.iter())
        .filter(|(case, _)| fetches(case) && case.bare)
        .filter_map(|(case, runs)| {
            let best = best(case, runs)?;
            Some((case.point.label.clone(), runs.get(best)?.clone()))
        })
        .collect();
    for (case, runs) in planned.iter().zip(runs).filter(|(case, _)| fetches(case) && !case.bare) {
        let Some((_, direct)) = direct.iter().find(|(label, _)| *label == case.point.label) else {
            continue;
        };
        let pairs = runs.iter_mut().flat_map(|runs| runs.iter_mut().zip(direct));
        for (run, direct) in pairs.filter(|(run, direct)| sound(run) && sound(direct)) {
            for (time, ratio) in FETCH.into_iter().zip(FETCH_OF_DIRECT) {
                if let (Some(ours), Some(theirs)) = (run.values.get(time), direct.values.get(time))
                {
                    let ratio_of = rounded(ours / theirs);
                    run.values.insert(ratio.to_owned(), ratio_of);
                }
            }
        }
    }
}

fn sound(run: &Run) -> bool {
    run.void.is_none()
}

/// Which of several candidates counts: the one that did best. A link alone of which no run is sound may have been better
/// than that: then it counts, so that nothing is known, and the reason is told.
pub(crate) fn best(case: &PlannedCase, candidates: &[Vec<Run>]) -> Option<usize> {
    let of = |place: usize| merit(case.traffic, &candidates[place]);
    let best = (0..candidates.len()).max_by(|one, other| of(*one).total_cmp(&of(*other)))?;
    let may_be_better = |place: &usize| {
        let unknown = case.alone && !candidates[*place].iter().any(sound);
        let planned = case.candidates.get(*place).filter(|_| unknown);
        planned.is_some_and(|link| at_best(case, link) > of(best))
    };
    Some((0..candidates.len()).find(may_be_better).unwrap_or(best))
}

/// The more, the better: the median of goodput; of traffic that is judged by times, the median less than nothing.
fn merit(traffic: Traffic, runs: &[Run]) -> f64 {
    let median = |name| spread(runs, name).map(|spread| spread.median);
    match traffic {
        Traffic::Fetches => -median(FETCH[0]).unwrap_or(f64::INFINITY),
        Traffic::Call => -median(CALL).unwrap_or(f64::INFINITY),
        _ => median("goodput_mbit").unwrap_or(0.0),
    }
}

/// More merit than a link can have.
fn at_best(case: &PlannedCase, candidate: &Candidate) -> f64 {
    let links = &candidate.summaries;
    match case.traffic {
        Traffic::Fetches => {
            #[expect(clippy::cast_precision_loss, reason = "transfers are far below 2^52 bytes")]
            let megabits = case.bytes.unwrap_or_default() as f64 * 8e-6;
            let times =
                links.iter().map(|link| TRIPS * link.rtt_ms + 1e3 * megabits / link.rate_mbit);
            -times.fold(f64::INFINITY, f64::min)
        }
        Traffic::Call => 0.0,
        _ => limit_mbit(links, case.traffic, Packets::of(case, f64::NAN)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Experiment;
    use crate::measure::{case_of, check};
    use crate::plan::{Asked, Plan};
    use crate::results::Mode;

    const FILE: &str = r#"
        title = "t"
        source = "s"
        shows = "w"
        axis = "x"
        traffic = ["fetches", "tcp-cubic-up"]
        ping = false
        simulated = { runs = 2, seconds = 20 }
        real = { runs = 2, seconds = 20 }
        points = [{ label = "p", value = 1, bytes = 200_000, times = 3 }]
        [[links]]
        name = "a"
        both = { rate_mbit = 40, delay_ms = 35 }
        [[links]]
        name = "b"
        both = { rate_mbit = 5, delay_ms = 400 }
        [[series]]
        name = "default"
        [[series]]
        name = "direct"
        uses = "best-alone"
        tunnel = { absent = true }
        [[checks]]
        series = "default"
        traffic = "tcp-cubic-up"
        value = "goodput_mbit"
        at_least_series = "direct"
        share = 0.95
    "#;

    /// The cases of `default` and of `direct`, with this traffic.
    fn planned(traffic: Traffic) -> [PlannedCase; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, FILE).unwrap();
        let experiment = Experiment::open(&path, folder.path().into()).unwrap();
        let asked = Asked { mode: Mode::Simulated, quick: false, seed: 1 };
        let mut cases = Plan::new(experiment, asked).cases;
        cases.retain(|case| case.traffic == traffic);
        let [default, direct] = &cases[..] else { panic!("{cases:?}") };
        [default.clone(), direct.clone()]
    }

    /// Runs with these values under each of these names; those below zero are void.
    fn runs(names: &[&str], values: &[f64]) -> Vec<Run> {
        let run = |value: &f64| Run {
            seed: 1,
            void: (*value < 0.0).then(|| "busy".to_owned()),
            values: names.iter().map(|name| ((*name).to_owned(), value.abs())).collect(),
            per_second: BTreeMap::new(),
            flow_mbit: Vec::new(),
            drops: BTreeMap::new(),
            share_percent: BTreeMap::new(),
            congestion_control: None,
        };
        values.iter().map(run).collect()
    }

    fn goodputs(values: &[f64]) -> Vec<Run> {
        runs(&["goodput_mbit"], values)
    }

    fn fetches(values: &[f64]) -> Vec<Run> {
        runs(&FETCH, values)
    }

    #[test]
    fn transfers_are_compared_with_the_single_links_of_the_same_run() {
        let told = |run: &Run| run.values.get("percent_of_singles").copied();
        let planned = planned(Traffic::TcpCubicUp);
        let direct = vec![goodputs(&[6.0, 2.0]), goodputs(&[4.0, 2.0])];
        let mut noted = [vec![goodputs(&[9.0, 3.0])], direct];
        note_singles(&planned, &mut noted);
        assert_eq!(noted[0][0].iter().map(told).collect::<Vec<_>>(), [Some(90.0), Some(75.0)]);
        assert!(noted[1].iter().flatten().all(|run| told(run).is_none()));
        // Without a series of single links there is nothing to compare with.
        let mut alone = [vec![goodputs(&[9.0])]];
        note_singles(&planned[..1], &mut alone);
        assert!(alone.iter().flatten().flatten().all(|run| told(run).is_none()));
    }

    /// What two runs of fetches have of `direct`.
    fn of_direct(ours: &[f64], direct: Vec<Vec<Run>>) -> Vec<Option<f64>> {
        let mut noted = [vec![fetches(ours)], direct];
        note_direct(&planned(Traffic::Fetches), &mut noted);
        let told = |run: &Run| FETCH_OF_DIRECT.map(|name| run.values.get(name).copied());
        assert!(noted[1].iter().flatten().all(|run| told(run) == [None; 2]));
        let told: Vec<_> = noted[0][0].iter().map(told).collect();
        assert!(told.iter().all(|[middle, late]| middle == late), "{told:?}");
        told.into_iter().map(|[middle, _]| middle).collect()
    }

    #[test]
    fn fetches_are_compared_with_the_better_link_without_a_tunnel() {
        // The second link has the lower median, and it is the one of all runs.
        let direct = vec![fetches(&[100.0, 500.0]), fetches(&[200.0, 200.0])];
        assert_eq!(of_direct(&[300.0, 100.0], direct), [Some(1.5), Some(0.5)]);
    }

    #[test]
    fn beside_a_better_link_whose_run_is_void_nothing_is_told() {
        let beside = |better: &[f64]| {
            let direct = vec![fetches(better), fetches(&[5000.0, 5000.0])];
            of_direct(&[650.0, 650.0], direct)
        };
        assert_eq!(beside(&[-400.0, 325.0]), [None, Some(2.0)]);
        assert_eq!(beside(&[-400.0, -400.0]), [None, None], "not beside the other one");
        // The second link takes more than a second at best.
        let direct = vec![fetches(&[325.0, 325.0]), fetches(&[-1.0, -1.0])];
        assert_eq!(of_direct(&[650.0, -650.0], direct), [Some(2.0), None]);
    }

    #[test]
    fn a_check_beside_a_better_link_whose_runs_are_void_does_not_hold() {
        let planned = planned(Traffic::TcpCubicUp);
        let checked = |direct: [&[f64]; 2]| {
            let direct = direct.map(goodputs).to_vec();
            let made = [(&planned[0], vec![goodputs(&[30.0])]), (&planned[1], direct)];
            let mut cases: Vec<_> =
                made.into_iter().map(|(planned, runs)| case_of(planned, runs)).collect();
            check(&planned, &mut cases);
            let [checked] = &cases[0].checks[..] else { panic!("{:?}", cases[0].checks) };
            (checked.at_least, checked.ok, cases[1].runs[0].void.is_some())
        };
        assert_eq!(checked([&[20.0], &[4.0]]), (Some(19.0), true, false));
        assert_eq!(checked([&[38.0], &[4.0]]), (Some(36.1), false, false));
        assert_eq!(checked([&[-20.0], &[4.0]]), (None, false, true));
        assert_eq!(checked([&[20.0], &[-4.0]]), (Some(19.0), true, false), "it has 5 at best");
    }
}
