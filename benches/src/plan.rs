//! What an experiment comes to in one mode: cases, and the runs of each as ordinary scenarios.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::scenario::file::{
    Beside, LinkSection, ScenarioFile, SettingsSection, TrafficKind, TrafficSection, TunnelSection,
};
use ropewalk_netlab::scenario::{Folders, Scenario};
use ropewalk_settings::{Direction, LinkTerms};

use crate::capacity::Capacity;
use crate::error::BadInput;
use crate::experiment::{Experiment, Point};
use crate::file::{CheckSection, Company, Effort, ExperimentFile, SeriesSection, Uses};
use crate::results::{self, LinkSummary, Mode, Traffic};

/// How long a quick run is, in seconds, and there is one of each case.
const QUICK_SECONDS: f64 = 10.0;
/// After this share of a run those come who share its first link.
const ALONE: f64 = 0.1;

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
    /// Whether its candidates are each link alone.
    pub alone: bool,
    /// Whether it goes over the link without a tunnel.
    pub bare: bool,
    /// Who shares the first link.
    pub company: Option<Company>,
    /// Whether figures of its link are kept in place of series by the second.
    pub one_by_one: bool,
    /// Over how many connections, where it is TCP.
    pub flows: u16,
    /// How often fetches follow each other.
    pub times: u16,
    /// Downloads beside a call.
    pub downloads: u16,
    /// And uploads.
    pub uploads: u16,
    /// After how many bytes of payload it ends, where it does.
    pub bytes: Option<u64>,
    /// What all links of the point carry in the direction of the traffic, Mbit/s at IP level.
    pub sum_mbit: f64,
    /// Length of a run; of one that ends with its bytes, the longest.
    pub seconds: f64,
    /// How often.
    pub runs: usize,
    /// One, or several of which the best will count: each link alone, or some weights.
    pub candidates: Vec<Candidate>,
    /// What must hold.
    pub checks: Vec<CheckSection>,
}

/// A choice of links and weights.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The link alone, or the weights, where there are several candidates.
    pub name: Option<String>,
    /// The links.
    pub links: Vec<LinkSection>,
    /// What those that carry packets in the direction of the traffic are like there.
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
                    let here = series.has_point(&point.label) && series.has_traffic(traffic);
                    let wanted = here && effort.has_traffic(traffic);
                    if wanted && !is_beyond(asked.mode, point, series, traffic) {
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
        let candidate = case.candidates[job.candidate].name.as_deref().unwrap_or("all");
        format!("{}/{candidate}/{}", case.id, job.run)
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

    /// What all links of a run's point could carry while it lasted, if it was over before the planned
    /// seconds; `None` where none of them varies.
    ///
    /// # Errors
    /// [`BadInput`] where the file makes no sense.
    pub fn capacity(
        &self,
        job: Job,
        lasted: Option<f64>,
        traces: Folders<'_>,
    ) -> Result<Option<Capacity>, BadInput> {
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
        let seconds = lasted.unwrap_or(case.seconds).ceil() as u32;
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
        let mut tunnel = candidate.tunnel.clone();
        tunnel.settings.link.retain(|name, _| links.iter().any(|link| link.name == *name));
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut moment = || rng.random_range(0.0..1.0);
        let mut main = TrafficSection {
            kind: TrafficKind::Tcp,
            direction: case.traffic.direction(),
            rate_mbit: None,
            flows: case.flows,
            bytes: case.bytes,
            times: 1,
            duration_s: Some(case.seconds),
            congestion: None,
            start_s: moment(),
            beside: None,
        };
        let ping = TrafficSection {
            kind: TrafficKind::Ping,
            flows: 1,
            bytes: None,
            start_s: moment(),
            ..main.clone()
        };
        match case.traffic {
            Traffic::Udp => {
                main.kind = TrafficKind::Udp;
                main.rate_mbit = Some(candidate.offered_mbit);
            }
            Traffic::TcpCubic | Traffic::TcpCubicUp => main.congestion = Some("cubic".to_owned()),
            Traffic::TcpBbr | Traffic::TcpBbrUp => main.congestion = Some("bbr".to_owned()),
            Traffic::Fetches => {
                main.congestion = Some("cubic".to_owned());
                main.times = case.times;
            }
            Traffic::Call => main.kind = TrafficKind::Call,
        }
        let mut traffic = vec![main];
        traffic.extend(self.experiment.file.ping.then_some(ping));
        traffic.extend(beside(case, &traffic[0]).collect::<Vec<_>>());
        traffic.extend(case.company.map(|company| others(company, &traffic[0], case.seconds)));
        let file = ScenarioFile {
            name: self.key(job),
            description: self.experiment.file.shows.clone(),
            seed,
            duration_s: None,
            links,
            traffic,
            tunnel,
            checks: Vec::new(),
        };
        Scenario::from_file(file, traces).map_err(|error| {
            BadInput(format!("{}: {}: {error}", self.experiment.name, case.point.label))
        })
    }
}

/// Whether a mode lacks what is asked for.
fn is_beyond(mode: Mode, point: &Point, series: &SeriesSection, traffic: Traffic) -> bool {
    let bbr = matches!(traffic, Traffic::TcpBbr | Traffic::TcpBbrUp)
        || point.company == Some(Company::TcpBbr);
    let second = point.company == Some(Company::Tunnel);
    match mode {
        // The sender of virtual time has cubic only. Beside what needs no tunnel nobody needs a second one.
        Mode::Simulated => bbr || (second && series.tunnel.absent),
        // There the client has one tunnel, and UDP goes through it only.
        Mode::Real => second || (traffic == Traffic::Udp && series.tunnel.absent),
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
    let bytes = point.bytes.filter(|_| !matches!(traffic, Traffic::Udp | Traffic::Call));
    PlannedCase {
        id: format!("{}/{}/{}", point.label, series.name, traffic.as_str()),
        point: results::Point {
            axis: file.axis.clone(),
            label: point.label.clone(),
            value: point.value,
            group: point.group.clone(),
        },
        series: series.name.clone(),
        traffic,
        alone: series.uses == Uses::BestAlone,
        bare: series.tunnel.absent,
        company: point.company,
        one_by_one: file.one_by_one,
        flows: match traffic {
            Traffic::Udp | Traffic::Call => 1,
            _ => point.at_once.unwrap_or(series.flows),
        },
        times: if traffic == Traffic::Fetches { point.times } else { 1 },
        downloads: if traffic == Traffic::Call { point.downloads } else { 0 },
        uploads: if traffic == Traffic::Call { point.uploads } else { 0 },
        bytes,
        sum_mbit: sum_mbit(point.summaries(traffic.direction())),
        // A transfer that is cut says nothing.
        seconds: match asked.quick && bytes.is_none() {
            true => QUICK_SECONDS,
            false => point.seconds.unwrap_or(effort.seconds),
        },
        runs: if asked.quick { 1 } else { effort.runs },
        candidates: candidates(file, series, point, traffic),
        checks: file.checks.iter().map(toml::Spanned::get_ref).filter(about).cloned().collect(),
    }
}

fn candidates(
    file: &ExperimentFile,
    series: &SeriesSection,
    point: &Point,
    traffic: Traffic,
) -> Vec<Candidate> {
    let of = |name: Option<String>, links: Vec<LinkSection>, summaries: Vec<LinkSummary>| {
        let carried = sum_mbit(&summaries);
        let share = file.offered_percent_of_sum.map_or(1.0, |percent| percent / 100.0);
        let told = point.offered_mbit.or(file.offered_mbit);
        let offered_mbit = told.unwrap_or(share * carried);
        Candidate { name, links, summaries, tunnel: series.tunnel.clone(), offered_mbit }
    };
    let all = point.summaries(traffic.direction());
    let meant = |name: &String| series.links.as_ref().is_none_or(|only| only.contains(name));
    let summaries = || all.iter().filter(|summary| meant(&summary.name)).cloned();
    let whole = || {
        let links = point.links.iter().filter(|link| meant(&link.name)).cloned().collect();
        of(None, links, summaries().collect())
    };
    // Those that carry nothing that way stay beside whatever does.
    let with_others = |summary: &LinkSummary| {
        let known = |link: &LinkSection| all.iter().any(|s| s.name == link.name);
        let ours = |link: &&LinkSection| link.name == summary.name || !known(link);
        point.links.iter().filter(ours).cloned().collect::<Vec<_>>()
    };
    match series.uses {
        Uses::All if series.weights.is_empty() => vec![whole()],
        Uses::All => {
            let with = |weights: &BTreeMap<String, f64>| {
                let mut candidate = whole();
                candidate.name = Some(told(weights));
                candidate.tunnel.settings.link.extend(weights.iter().map(|(name, weight)| {
                    (name.clone(), LinkTerms { weight: Some(*weight), ..LinkTerms::default() })
                }));
                candidate
            };
            series.weights.iter().map(with).collect()
        }
        Uses::OneOfTheSum => {
            let rate_mbit = sum_mbit(all);
            let first = summaries().take(1);
            let whole = first.map(|summary| {
                let faster = |link: LinkSection| match link.name == summary.name {
                    true => with_rate(link, rate_mbit),
                    false => link,
                };
                let links = with_others(&summary).into_iter().map(faster).collect();
                of(None, links, vec![LinkSummary { rate_mbit, ..summary.clone() }])
            });
            whole.collect()
        }
        Uses::BestAlone => summaries()
            .map(|one| of(Some(one.name.clone()), with_others(&one), vec![one]))
            .collect(),
    }
}

/// The download of those who share the link with `main`, which lasts so many seconds.
fn others(company: Company, main: &TrafficSection, seconds: f64) -> TrafficSection {
    let later = seconds * ALONE;
    TrafficSection {
        kind: TrafficKind::Tcp,
        direction: Direction::Down,
        rate_mbit: None,
        flows: 1,
        bytes: None,
        times: 1,
        duration_s: Some(seconds - later),
        congestion: Some(if company == Company::TcpBbr { "bbr" } else { "cubic" }.to_owned()),
        start_s: main.start_s + later,
        beside: Some(if company == Company::Tunnel { Beside::Tunnel } else { Beside::Bare }),
    }
}

/// The downloads and uploads beside a call: as long as it, and through the tunnel like it.
fn beside<'a>(
    case: &'a PlannedCase,
    call: &'a TrafficSection,
) -> impl Iterator<Item = TrafficSection> + 'a {
    let both = [(case.downloads, Direction::Down), (case.uploads, Direction::Up)];
    both.into_iter().filter(|(flows, _)| *flows > 0).map(|(flows, direction)| TrafficSection {
        kind: TrafficKind::Tcp,
        direction,
        flows,
        congestion: Some("cubic".to_owned()),
        ..call.clone()
    })
}

/// Weights, for people.
fn told(weights: &BTreeMap<String, f64>) -> String {
    let each = weights.iter().map(|(link, weight)| format!("{link} {weight}"));
    each.collect::<Vec<_>>().join(" : ")
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

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        title = "t"
        source = "s"
        shows = "w"
        axis = "x"
        traffic = ["tcp-cubic"]
        simulated = { runs = 2, seconds = 1 }
        real = { runs = 1, seconds = 1 }
        points = [{ label = "p", value = 1 }]
        [[links]]
        name = "a"
        both = { rate_mbit = 5 }
        [[links]]
        name = "b"
        both = { rate_mbit = 3 }
        [[links]]
        name = "acks"
        direction = "up"
        both = { rate_mbit = 9 }
        [[series]]
        name = "best"
        weights = [{ a = 1, b = 0 }, { a = 100, b = 20.5 }]
        tunnel = { scheduler = "natalie", natalie = { weights = "told" } }
        [[series]]
        name = "alone"
        uses = "best-alone"
        tunnel = { link = { a = { weight = 7 } } }
    "#;

    const TRANSFERS: &str = r#"
        title = "t"
        source = "s"
        shows = "w"
        axis = "x"
        traffic = ["tcp-cubic-up", "tcp-bbr-up", "tcp-cubic", "udp"]
        ping = false
        simulated = { runs = 2, seconds = 90 }
        real = { runs = 1, seconds = 90 }
        links = [
            { name = "a", both = { rate_mbit = 5 }, up = { rate_mbit = 1 } },
            { name = "b", both = { rate_mbit = 3 } },
        ]
        points = [{ label = "5 MB", value = 5, bytes = 5_000_000 }]
        series = [{ name = "three", flows = 3 }, { name = "b", links = ["b"] }]
    "#;

    fn open(text: &str) -> Result<Experiment, BadInput> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        std::fs::write(&path, text).expect("a file");
        Experiment::open(&path, folder.path().into())
    }

    fn plan() -> Plan {
        let experiment = open(FILE).expect("it makes sense");
        Plan::new(experiment, Asked { mode: Mode::Simulated, quick: false, seed: 1 })
    }

    #[test]
    fn a_transfer_is_planned_with_its_bytes_direction_connections_and_links() {
        let asked = Asked { mode: Mode::Simulated, quick: true, seed: 1 };
        let plan = Plan::new(open(TRANSFERS).unwrap(), asked);
        let planned = plan.jobs().into_iter().map(|job| {
            let scenario = plan.scenario(job, std::path::Path::new(".").into()).unwrap();
            let [main] = &scenario.traffic[..] else { panic!("{:?}", scenario.traffic) };
            let sum = plan.cases[job.case].sum_mbit;
            let links = scenario.links.len();
            (sum, main.direction, main.flows, main.bytes, main.duration_s, links)
        });
        let transfer =
            |sum, way, flows, links| (sum, way, flows, Some(5_000_000), Some(90.0), links);
        // UDP goes on for its time: a quick run's.
        let udp = |links| (8.0, Direction::Down, 1, None, Some(QUICK_SECONDS), links);
        let expected = [
            transfer(4.0, Direction::Up, 3, 2),
            transfer(8.0, Direction::Down, 3, 2),
            udp(2),
            transfer(4.0, Direction::Up, 1, 1),
            transfer(8.0, Direction::Down, 1, 1),
            udp(1),
        ];
        assert_eq!(planned.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn uploads_use_cubic_or_bbr_which_only_the_kernel_has() {
        let used = |mode| -> Vec<Option<String>> {
            let plan = Plan::new(open(TRANSFERS).unwrap(), Asked { mode, quick: false, seed: 1 });
            let jobs = plan.jobs().into_iter().filter(|job| job.run == 0);
            let scenarios = jobs.map(|job| plan.scenario(job, std::path::Path::new(".").into()));
            let mains = scenarios.map(|scenario| scenario.unwrap().traffic[0].clone());
            mains.filter(TrafficSection::is_upload).map(|main| main.congestion).collect()
        };
        let [cubic, bbr] = ["cubic", "bbr"].map(|name| Some(name.to_owned()));
        assert_eq!(used(Mode::Simulated), [cubic.clone(), cubic.clone()]);
        assert_eq!(used(Mode::Real), [cubic.clone(), bbr.clone(), cubic, bbr]);
    }

    #[test]
    fn a_series_may_be_run_at_some_points_only() {
        let text = ONE_BY_ONE.replace("name = \"ours\"", "name = \"ours\", points = [\"cubic\"]");
        let asked = Asked { mode: Mode::Simulated, quick: false, seed: 1 };
        let plan = Plan::new(open(&text).unwrap(), asked);
        let ours = plan.cases.iter().filter(|case| case.series == "ours");
        let ids: Vec<_> = ours.map(|case| case.id.as_str()).collect();
        assert_eq!(ids, ["cubic/ours/udp", "cubic/ours/tcp-cubic"]);
        let problem = open(&text.replace("[\"cubic\"]", "[\"reno\"]")).unwrap_err().to_string();
        assert!(problem.contains("series `ours`: points: there is no `reno`"), "{problem}");
    }

    #[test]
    fn a_series_with_a_link_that_no_point_has_is_refused() {
        let problem = open(&TRANSFERS.replace(r#"["b"]"#, r#"["c"]"#)).unwrap_err().to_string();
        assert!(problem.contains("series `b`: there is no link `c`"), "{problem}");
    }

    #[test]
    fn each_of_several_weights_is_a_candidate_with_runs_of_its_own() {
        let plan = plan();
        let jobs: Vec<_> = plan.jobs().into_iter().filter(|job| job.case == 0).collect();
        let keys: Vec<_> = jobs.iter().map(|job| plan.key(*job)).collect();
        let expected = ["a 1 : b 0/0", "a 1 : b 0/1", "a 100 : b 20.5/0", "a 100 : b 20.5/1"];
        assert_eq!(keys, expected.map(|end| format!("p/best/tcp-cubic/{end}")));
        let scenario = plan.scenario(jobs[2], std::path::Path::new(".").into()).unwrap();
        let weights =
            scenario.tunnel.settings.link.iter().map(|(link, told)| (link.as_str(), told.weight));
        assert_eq!(weights.collect::<Vec<_>>(), [("a", Some(100.0)), ("b", Some(20.5))]);
        assert_eq!(plan.cases[0].sum_mbit, 8.0);
    }

    #[test]
    fn a_link_alone_keeps_the_links_of_the_other_way_beside_it() {
        let plan = plan();
        let folder = std::path::Path::new(".");
        let links = |candidate| -> Vec<String> {
            let job = Job { case: 1, candidate, run: 0 };
            let scenario = plan.scenario(job, folder.into()).expect("it makes sense");
            scenario.links.into_iter().map(|link| link.name).collect()
        };
        assert_eq!(
            (links(0), links(1)),
            (vec!["a".into(), "acks".into()], vec!["b".into(), "acks".into()])
        );
    }

    const ONE_BY_ONE: &str = r#"
        title = "t"
        source = "s"
        shows = "w"
        axis = "x"
        traffic = ["udp", "tcp-cubic"]
        one_by_one = true
        ping = false
        offered_percent_of_sum = 110
        simulated = { runs = 1, seconds = 20 }
        real = { runs = 1, seconds = 20 }
        links = [{ name = "a", both = { rate_mbit = 5 } }]
        points = [
            { label = "alone", value = 1, offered_mbit = 7 },
            { label = "cubic", value = 2, seconds = 60, company = "tcp-cubic" },
            { label = "bbr", value = 3, company = "tcp-bbr" },
            { label = "tunnel", value = 4, company = "tunnel" },
        ]
        series = [
            { name = "direct", traffic = ["tcp-cubic"], tunnel = { absent = true } },
            { name = "ours" },
        ]
    "#;

    #[test]
    fn others_come_after_a_tenth_of_the_time_where_the_mode_has_them() {
        let planned = |mode| {
            let plan = Plan::new(open(ONE_BY_ONE).unwrap(), Asked { mode, quick: false, seed: 1 });
            let told = plan.jobs().into_iter().map(|job| {
                let case = &plan.cases[job.case];
                let scenario = plan.scenario(job, std::path::Path::new(".").into()).unwrap();
                let [main, others @ ..] = &scenario.traffic[..] else { panic!("no traffic") };
                if let [others] = others {
                    let later = others.start_s - main.start_s;
                    assert!((later - case.seconds / 10.0).abs() < 1e-9, "{}", case.id);
                }
                let beside = others.first().and_then(|others| others.beside);
                (case.id.clone(), main.rate_mbit, main.duration_s, beside)
            });
            told.collect::<Vec<_>>()
        };
        let told = |id: &str, rate, seconds, beside| (id.to_owned(), rate, Some(seconds), beside);
        let bare = Some(Beside::Bare);
        let of_both = [
            told("alone/direct/tcp-cubic", None, 20.0, None),
            told("alone/ours/udp", Some(7.0), 20.0, None),
            told("alone/ours/tcp-cubic", None, 20.0, None),
            told("cubic/direct/tcp-cubic", None, 60.0, bare),
            told("cubic/ours/udp", Some(5.5), 60.0, bare),
            told("cubic/ours/tcp-cubic", None, 60.0, bare),
        ];
        let simulated = planned(Mode::Simulated);
        assert_eq!(simulated[..6], of_both);
        let second = Some(Beside::Tunnel);
        let only_here = [
            told("tunnel/ours/udp", Some(5.5), 20.0, second),
            told("tunnel/ours/tcp-cubic", None, 20.0, second),
        ];
        assert_eq!(simulated[6..], only_here);
        let real = planned(Mode::Real);
        assert_eq!(real[..6], of_both);
        let ids: Vec<_> = real[6..].iter().map(|told| told.0.as_str()).collect();
        assert_eq!(ids, ["bbr/direct/tcp-cubic", "bbr/ours/udp", "bbr/ours/tcp-cubic"]);
    }

    #[test]
    fn fetches_and_calls_are_planned_as_their_points_say() {
        let text = r#"
            title = "t"
            source = "s"
            shows = "w"
            axis = "x"
            traffic = ["fetches", "call"]
            ping = false
            simulated = { runs = 1, seconds = 20 }
            real = { runs = 1, seconds = 20 }
            links = [{ name = "a", both = { rate_mbit = 5 } }]
            points = [
                { label = "six", value = 1, bytes = 600_000, at_once = 6, times = 9, downloads = 4 },
                { label = "one", value = 2, bytes = 20_000 },
            ]
            series = [{ name = "ours" }]
        "#;
        let asked = Asked { mode: Mode::Simulated, quick: false, seed: 1 };
        let plan = Plan::new(open(text).unwrap(), asked);
        let planned: Vec<_> = plan
            .jobs()
            .into_iter()
            .map(|job| {
                let scenario = plan.scenario(job, std::path::Path::new(".").into()).unwrap();
                let told = |t: &TrafficSection| (t.kind, t.flows, t.bytes, t.times);
                scenario.traffic.iter().map(told).collect::<Vec<_>>()
            })
            .collect();
        let call = (TrafficKind::Call, 1, None, 1);
        let expected = [
            vec![(TrafficKind::Tcp, 6, Some(600_000), 9)],
            vec![call, (TrafficKind::Tcp, 4, None, 1)],
            vec![(TrafficKind::Tcp, 1, Some(20_000), 1)],
            vec![call],
        ];
        assert_eq!(planned, expected);
        let without = text.replace("bytes = 20_000", "seconds = 3");
        let problem = open(&without).unwrap_err().to_string();
        assert!(problem.contains("point `one`: fetches need bytes"), "{problem}");
    }
}
