//! What an experiment comes to in one mode: cases, and the runs of each as ordinary scenarios.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::scenario::file::{
    Direction, LinkSection, ScenarioFile, SettingsSection, TrafficKind, TrafficSection,
    TunnelSection,
};
use ropewalk_netlab::scenario::{Folders, Scenario};

use crate::capacity::Capacity;
use crate::error::BadInput;
use crate::experiment::{Experiment, Point};
use crate::file::{CheckSection, Effort, ExperimentFile, SeriesSection, Uses};
use crate::results::{self, LinkSummary, Mode, Traffic};

/// How long a quick run is, in seconds, and there is one of each case.
const QUICK_SECONDS: f64 = 10.0;

/// What the user asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Where to run.
    pub mode: Mode,
    /// One short run of each case.
    pub quick: bool,
    /// What the seeds of the runs begin with.
    pub seed: u64,
}

/// An experiment in one mode.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is.
    pub experiment: Experiment,
    /// How it was asked for.
    pub asked: Asked,
    /// In the order of the file: points, then series, then traffic.
    pub cases: Vec<PlannedCase>,
}

/// One point of one curve with one traffic.
#[derive(Clone, Debug)]
pub struct PlannedCase {
    /// Once in the plan.
    pub id: String,
    /// Its place on the axis.
    pub point: results::Point,
    /// Its curve.
    pub series: String,
    /// What runs.
    pub traffic: Traffic,
    /// What all links of the point carry downstream, Mbit/s at IP level.
    pub sum_mbit: f64,
    /// Length of a run.
    pub seconds: f64,
    /// How often.
    pub runs: usize,
    /// One, or each link alone, of which the best will count.
    pub candidates: Vec<Candidate>,
    /// What must hold.
    pub checks: Vec<CheckSection>,
}

/// A choice of links.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The link, where it is alone one of several candidates.
    pub alone: Option<String>,
    /// The links.
    pub links: Vec<LinkSection>,
    /// What they are like downstream.
    pub summaries: Vec<LinkSummary>,
    tunnel: TunnelSection,
    /// What UDP sends, payload in Mbit/s.
    pub offered_mbit: f64,
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// The place of its case in the plan.
    pub case: usize,
    /// The place of its candidate in the case.
    pub candidate: usize,
    /// From 0.
    pub run: usize,
}

impl Plan {
    /// What an experiment comes to.
    #[must_use]
    pub fn new(experiment: Experiment, asked: Asked) -> Self {
        let effort = experiment.effort(asked.mode);
        let file = &experiment.file;
        let mut cases = Vec::new();
        for point in experiment.points.iter().filter(|point| effort.has_point(&point.label)) {
            for series in file.series.iter().filter(|series| effort.has_series(&series.name)) {
                for traffic in file.traffic.iter().copied() {
                    // The sender of virtual time has cubic only.
                    let absent = asked.mode == Mode::Simulated && traffic == Traffic::TcpBbr;
                    if !absent && effort.has_traffic(traffic) {
                        cases.push(case(file, asked, effort, point, series, traffic));
                    }
                }
            }
        }
        Self { experiment, asked, cases }
    }

    /// All runs, those of one case after the other.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (case, planned) in self.cases.iter().enumerate() {
            for candidate in 0..planned.candidates.len() {
                jobs.extend((0..planned.runs).map(|run| Job { case, candidate, run }));
            }
        }
        jobs
    }

    /// The seed of a run.
    #[must_use]
    pub fn seed(&self, job: Job) -> u64 {
        self.asked.seed.wrapping_add(job.run as u64)
    }

    /// A run's name in files of what is done: the same in each plan of the same experiment.
    #[must_use]
    pub fn key(&self, job: Job) -> String {
        let case = &self.cases[job.case];
        let alone = case.candidates[job.candidate].alone.as_deref().unwrap_or("all");
        format!("{}/{alone}/{}", case.id, job.run)
    }

    /// The scenario of a run. Traffic and the ping beside it begin at moments drawn from its seed, else runs
    /// over links without chance would all be the same.
    ///
    /// # Errors
    /// [`BadInput`] where the file makes no sense.
    pub fn scenario(&self, job: Job, traces: Folders<'_>) -> Result<Scenario, BadInput> {
        let case = &self.cases[job.case];
        self.with_links(job, case.candidates[job.candidate].links.clone(), traces)
    }

    /// What all links of a run's point could carry while it lasts; `None` where none of them varies.
    ///
    /// # Errors
    /// [`BadInput`] where the file makes no sense.
    pub fn capacity(&self, job: Job, traces: Folders<'_>) -> Result<Option<Capacity>, BadInput> {
        let case = &self.cases[job.case];
        let mut points = self.experiment.points.iter();
        let point = points.find(|point| point.label == case.point.label);
        let links = point.map_or_else(Vec::new, |point| point.links.clone());
        let scenario = self.with_links(job, links, traces)?;
        let begin = scenario.traffic.first().map_or(0.0, |traffic| traffic.start_s);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a day at most"
        )]
        let seconds = case.seconds.ceil() as u32;
        Ok(Capacity::of(&scenario, Duration::from_secs_f64(begin), seconds))
    }

    /// The run with these links.
    fn with_links(
        &self,
        job: Job,
        links: Vec<LinkSection>,
        traces: Folders<'_>,
    ) -> Result<Scenario, BadInput> {
        let case = &self.cases[job.case];
        let candidate = &case.candidates[job.candidate];
        let seed = self.seed(job);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut moment = || rng.random_range(0.0..1.0);
        let mut main = TrafficSection {
            kind: TrafficKind::Tcp,
            direction: Direction::Down,
            rate_mbit: None,
            bytes: None,
            duration_s: Some(case.seconds),
            congestion: None,
            start_s: moment(),
        };
        let ping = TrafficSection { kind: TrafficKind::Ping, start_s: moment(), ..main.clone() };
        match case.traffic {
            Traffic::Udp => {
                main.kind = TrafficKind::Udp;
                main.rate_mbit = Some(candidate.offered_mbit);
            }
            Traffic::TcpCubic => main.congestion = Some("cubic".to_owned()),
            Traffic::TcpBbr => main.congestion = Some("bbr".to_owned()),
        }
        let file = ScenarioFile {
            name: self.key(job),
            description: self.experiment.file.shows.clone(),
            seed,
            duration_s: None,
            links,
            traffic: vec![main, ping],
            tunnel: candidate.tunnel.clone(),
            checks: Vec::new(),
        };
        Scenario::from_file(file, traces).map_err(|error| {
            BadInput(format!("{}: {}: {error}", self.experiment.name, case.point.label))
        })
    }
}

fn case(
    file: &ExperimentFile,
    asked: Asked,
    effort: &Effort,
    point: &Point,
    series: &SeriesSection,
    traffic: Traffic,
) -> PlannedCase {
    let about = |check: &&CheckSection| {
        check.series == series.name
            && check.traffic.is_none_or(|only| only == traffic)
            && check.mode.is_none_or(|only| only == asked.mode)
            && check.points.as_ref().is_none_or(|only| only.contains(&point.label))
    };
    PlannedCase {
        id: format!("{}/{}/{}", point.label, series.name, traffic.as_str()),
        point: results::Point {
            axis: file.axis.clone(),
            label: point.label.clone(),
            value: point.value,
        },
        series: series.name.clone(),
        traffic,
        sum_mbit: sum_mbit(&point.summaries),
        seconds: if asked.quick { QUICK_SECONDS } else { effort.seconds },
        runs: if asked.quick { 1 } else { effort.runs },
        candidates: candidates(file, series, point),
        checks: file.checks.iter().map(toml::Spanned::get_ref).filter(about).cloned().collect(),
    }
}

fn candidates(file: &ExperimentFile, series: &SeriesSection, point: &Point) -> Vec<Candidate> {
    let of = |alone: Option<String>, links: Vec<LinkSection>, summaries: Vec<LinkSummary>| {
        let carried = sum_mbit(&summaries);
        let offered_mbit = file.offered_mbit.unwrap_or(carried);
        Candidate { alone, links, summaries, tunnel: series.tunnel.clone(), offered_mbit }
    };
    let each = || point.links.iter().cloned().zip(point.summaries.iter().cloned());
    match series.uses {
        Uses::All => vec![of(None, point.links.clone(), point.summaries.clone())],
        Uses::OneOfTheSum => {
            let rate_mbit = sum_mbit(&point.summaries);
            let whole = |(link, summary): (LinkSection, LinkSummary)| {
                (with_rate(link, rate_mbit), LinkSummary { rate_mbit, ..summary })
            };
            let (links, summaries) = each().take(1).map(whole).unzip();
            vec![of(None, links, summaries)]
        }
        Uses::BestAlone => each()
            .map(|(link, summary)| of(Some(link.name.clone()), vec![link], vec![summary]))
            .collect(),
    }
}

fn sum_mbit(links: &[LinkSummary]) -> f64 {
    links.iter().map(|link| link.rate_mbit).sum()
}

/// The link with this rate in both directions, always.
fn with_rate(mut link: LinkSection, rate_mbit: f64) -> LinkSection {
    let rate = SettingsSection { rate_mbit: Some(rate_mbit), ..SettingsSection::default() };
    for settings in link.up.iter_mut().chain(&mut link.down) {
        *settings = settings.with(&rate);
    }
    link.both = Some(link.both.unwrap_or_default().with(&rate));
    link.changes.clear();
    link
}
