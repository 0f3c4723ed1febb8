//! An experiment: what its file says, checked, with the links of each point put together.

use std::path::Path;

use ropewalk_netlab::scenario::file::{LinkSection, ScenarioFile, TunnelSection};
use ropewalk_netlab::scenario::{Folders, Link, Scenario};
use ropewalk_settings::Bitrate;
use ropewalk_settings::Direction;

use crate::error::BadInput;
use crate::file::{
    CheckSection, Company, Effort, ExperimentFile, GroupSection, PointSection, Uses,
};
use crate::results::{LinkSummary, Mode, Traffic, rounded};

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The name of its file.
    pub name: String,
    /// The file.
    pub file: ExperimentFile,
    /// The places on its axis.
    pub points: Vec<Point>,
}

/// One place on the axis.
#[derive(Clone, Debug)]
pub struct Point {
    /// For people; once in the experiment.
    pub label: String,
    /// For a picture.
    pub value: f64,
    /// The group it belongs to, where there are groups.
    pub group: Option<String>,
    /// What TCP carries, where it ends with that.
    pub bytes: Option<u64>,
    /// How often fetches follow each other.
    pub times: u16,
    /// Over how many connections at once, where the series does not say.
    pub at_once: Option<u16>,
    /// Downloads beside a call.
    pub downloads: u16,
    /// And uploads.
    pub uploads: u16,
    /// How long a run is, where it is not as long as others.
    pub seconds: Option<f64>,
    /// What UDP sends, where that is not what it sends elsewhere.
    pub offered_mbit: Option<f64>,
    /// Who shares the first link.
    pub company: Option<Company>,
    /// All its links.
    pub links: Vec<LinkSection>,
    down: Vec<LinkSummary>,
    up: Vec<LinkSummary>,
}

impl Point {
    /// What those of its links that carry packets in a direction are like there.
    #[must_use]
    pub fn summaries(&self, direction: Direction) -> &[LinkSummary] {
        if direction == Direction::Up { &self.up } else { &self.down }
    }
}

/// What is wrong, and at which byte of the file.
type Fault = (usize, String);

impl Experiment {
    /// Reads a file with traces from these folders.
    ///
    /// # Errors
    /// [`BadInput`] with path, line and key.
    pub fn open(path: &Path, traces: Folders<'_>) -> Result<Self, BadInput> {
        let place = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| BadInput(format!("cannot read {place}: {error}")))?;
        let file: ExperimentFile =
            toml::from_str(&text).map_err(|error| BadInput(format!("{place}: {error}")))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let points = check_names(&file).and_then(|()| points(&file, traces));
        let points = points.map_err(|(at, problem)| {
            let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
            BadInput(format!("{place}: line {line}: {problem}"))
        })?;
        Ok(Self { name, file, points })
    }

    /// How much is run in a mode.
    #[must_use]
    pub fn effort(&self, mode: Mode) -> &Effort {
        match mode {
            Mode::Simulated => &self.file.simulated,
            Mode::Real => &self.file.real,
        }
    }
}

/// The points with their links: all of each group.
fn points(file: &ExperimentFile, traces: Folders<'_>) -> Result<Vec<Point>, Fault> {
    let point = |group: Option<&GroupSection>, section: &toml::Spanned<PointSection>| {
        let PointSection { label, value, bytes, links, .. } = section.get_ref();
        let &PointSection { seconds, offered_mbit, company, .. } = section.get_ref();
        let &PointSection { times, at_once, downloads, uploads, .. } = section.get_ref();
        let (times, downloads) = (times.unwrap_or(1), downloads.unwrap_or_default());
        let uploads = uploads.unwrap_or_default();
        let label = group.map_or_else(|| label.clone(), |group| grouped(group, label));
        let common = together(&file.links, group.map_or(&[], |group| &group.links));
        let links = together(&common, links);
        let of = |direction| {
            summaries(&links, direction, traces)
                .map_err(|problem| (section.span().start, format!("point `{label}`: {problem}")))
        };
        let (down, up) = (of(Direction::Down)?, of(Direction::Up)?);
        let group = group.map(|group| group.label.clone());
        let (value, bytes) = (*value, *bytes);
        Ok(Point {
            label,
            value,
            group,
            bytes,
            times,
            at_once,
            downloads,
            uploads,
            seconds,
            offered_mbit,
            company,
            links,
            down,
            up,
        })
    };
    let of = |group| file.points.iter().map(move |section| point(group, section));
    match file.groups.is_empty() {
        true => of(None).collect(),
        false => file.groups.iter().map(Some).flat_map(of).collect(),
    }
}

/// The label of a point in a group.
fn grouped(group: &GroupSection, point: &str) -> String {
    format!("{}, {point}", group.label)
}

/// The links in common, changed and added to by those of a point.
fn together(common: &[LinkSection], own: &[LinkSection]) -> Vec<LinkSection> {
    let mut links = common.to_vec();
    for own in own {
        match links.iter_mut().find(|link| link.name == own.name) {
            Some(link) => *link = link.with(own),
            None => links.push(own.clone()),
        }
    }
    links
}

fn summaries(
    links: &[LinkSection],
    direction: Direction,
    traces: Folders<'_>,
) -> Result<Vec<LinkSummary>, String> {
    let file = ScenarioFile {
        name: String::new(),
        description: String::new(),
        seed: 0,
        duration_s: None,
        links: links.to_vec(),
        traffic: Vec::new(),
        tunnel: TunnelSection::default(),
        checks: Vec::new(),
    };
    let scenario = Scenario::from_file(file, traces).map_err(|error| error.to_string())?;
    let known = |link: &Link| {
        summary(link, direction).ok_or_else(|| format!("link `{}` needs rate_mbit", link.name))
    };
    let carry = |link: &&Link| link.direction.includes(direction);
    scenario.links.iter().filter(carry).map(known).collect()
}

/// `None` where it has no rate.
fn summary(link: &Link, direction: Direction) -> Option<LinkSummary> {
    let course = if direction == Direction::Up { &link.upstream } else { &link.downstream };
    let way = &course.initial;
    let both_ways = link.downstream.initial.delay + link.upstream.initial.delay;
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bit/s")]
    let mbit = |rate: Bitrate| rate.as_bps() as f64 / 1e6;
    Some(LinkSummary {
        name: link.name.clone(),
        rate_mbit: rounded(mbit(way.mean_rate()?)),
        rtt_ms: rounded(both_ways.as_secs_f64() * 1e3),
        loss: rounded(way.loss.mean()),
        jitter_ms: rounded(way.jitter.as_secs_f64() * 1e3),
        follows: course.traces.first().map(ToString::to_string),
    })
}

/// Whether what names something of the file names something that is there.
fn check_names(file: &ExperimentFile) -> Result<(), Fault> {
    let labels: Vec<String> = match file.groups.is_empty() {
        true => file.points.iter().map(|point| point.get_ref().label.clone()).collect(),
        false => {
            let of = |group| file.points.iter().map(move |p| grouped(group, &p.get_ref().label));
            file.groups.iter().flat_map(of).collect()
        }
    };
    let points: Vec<&str> = labels.iter().map(String::as_str).collect();
    let series: Vec<&str> = file.series.iter().map(|series| series.name.as_str()).collect();
    for (place, label) in points.iter().enumerate() {
        if points[..place].contains(label) {
            let at = file.points[place % file.points.len()].span().start;
            return Err((at, format!("label: `{label}` is there twice")));
        }
    }
    for point in &file.points {
        let PointSection { label, bytes, times, .. } = point.get_ref();
        if bytes.is_none() && (times.is_some() || file.traffic.contains(&Traffic::Fetches)) {
            return Err((point.span().start, format!("point `{label}`: fetches need bytes")));
        }
    }
    if let Some(series) = file.series.iter().find(|s| !s.weights.is_empty() && s.uses != Uses::All)
    {
        return Err((0, format!("series `{}` has either `uses` or `weights`", series.name)));
    }
    for series in &file.series {
        for point in series.points.iter().flatten() {
            known_or("points", point, &points)
                .map_err(|problem| (0, format!("series `{}`: {problem}", series.name)))?;
        }
        for link in series.links.iter().flatten() {
            if !points_links(file).any(|known| known == link) {
                let problem = format!("series `{}`: there is no link `{link}`", series.name);
                return Err((0, problem));
            }
        }
    }
    for effort in [&file.simulated, &file.real] {
        for (key, chosen, known) in
            [("points", &effort.points, &points), ("series", &effort.series, &series)]
        {
            for name in chosen.iter().flatten() {
                let unknown = |problem| (name.span().start, problem);
                known_or(key, name.get_ref(), known).map_err(unknown)?;
            }
        }
        for traffic in effort.traffic.iter().flatten() {
            if !file.traffic.contains(traffic.get_ref()) {
                let problem =
                    format!("traffic: there is no `{}` above", traffic.get_ref().as_str());
                return Err((traffic.span().start, problem));
            }
        }
    }
    for check in &file.checks {
        check_check(check.get_ref(), &points, &series)
            .map_err(|problem| (check.span().start, problem))?;
    }
    Ok(())
}

/// The names of all links, of whatever point.
fn points_links(file: &ExperimentFile) -> impl Iterator<Item = &str> {
    let own = file.points.iter().flat_map(|point| &point.get_ref().links);
    file.links.iter().chain(own).map(|link| link.name.as_str())
}

fn check_check(check: &CheckSection, points: &[&str], series: &[&str]) -> Result<(), String> {
    known_or("series", &check.series, series)?;
    for point in check.points.iter().flatten() {
        known_or("points", point, points)?;
    }
    if let Some(other) = &check.at_least_series {
        return known_or("at_least_series", other, series);
    }
    if check.at_least.is_none() && check.at_most.is_none() {
        return Err("a check needs at_least, at_least_series or at_most".to_owned());
    }
    Ok(())
}

fn known_or(key: &str, name: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(format!("{key}: there is no `{name}`, only {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        title = "t"
        source = "s"
        shows = "w"
        axis = "x"
        traffic = ["udp"]
        simulated = { runs = 1, seconds = 1 }
        real = { runs = 1, seconds = 1, points = ["both"] }
        links = [{ name = "a", rtt_ms = 10, both = { rate_mbit = 5 } }]
        series = [{ name = "default" }]
        points = [
            { label = "one", value = 1, links = [{ name = "a", up = { rate_mbit = 1 } }] },
            { label = "both", value = 2, links = [{ name = "b", both = { rate_mbit = 3, loss = 0.1 } }] },
        ]
    "#;

    fn open(text: &str) -> Result<Experiment, BadInput> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        Experiment::open(&path, folder.path().into())
    }

    #[test]
    fn points_have_the_links_in_common_changed_and_added_to() {
        let experiment = open(FILE).unwrap();
        let labels: Vec<_> = experiment.points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(labels, ["one", "both"]);
        let rates = |point: usize| -> Vec<(f64, f64)> {
            let links = experiment.points[point].summaries(Direction::Down).iter();
            links.map(|link| (link.rate_mbit, link.loss)).collect()
        };
        assert_eq!((rates(0), rates(1)), (vec![(5.0, 0.0)], vec![(5.0, 0.0), (3.0, 0.1)]));
        let up = experiment.points[0].summaries(Direction::Up);
        assert_eq!(up.iter().map(|link| link.rate_mbit).collect::<Vec<_>>(), [1.0]);
        assert!(experiment.effort(Mode::Real).has_point("both"));
        assert!(!experiment.effort(Mode::Real).has_point("one"));
        assert!(experiment.effort(Mode::Simulated).has_point("one"));
    }

    #[test]
    fn a_link_without_a_rate_is_refused_with_its_line() {
        let text = FILE.replace("both = { rate_mbit = 3, loss = 0.1 }", "rtt_ms = 1");
        let problem = open(&text).unwrap_err().to_string();
        assert!(problem.contains("line 13: point `both`: link `b` needs rate_mbit"), "{problem}");
    }

    #[test]
    fn each_group_has_all_points_and_a_point_wins_over_its_group() {
        let text = FILE.replace(
            "series =",
            "groups = [
                { label = \"slow\", links = [{ name = \"a\", both = { rate_mbit = 1 } }] },
                { label = \"lossy\", links = [{ name = \"b\", both = { loss = 0.2, rate_mbit = 7 } }] },
            ]
            series =",
        );
        let text = text.replace("points = [\"both\"]", "points = [\"slow, both\"]");
        let experiment = open(&text).unwrap();
        let seen: Vec<_> = experiment
            .points
            .iter()
            .map(|point| {
                let links = point.summaries(Direction::Down).iter();
                let links = links.map(|link| (link.rate_mbit, link.loss));
                (point.label.as_str(), point.group.as_deref(), links.collect::<Vec<_>>())
            })
            .collect();
        let [slow, lossy] = [Some("slow"), Some("lossy")];
        let expected = [
            ("slow, one", slow, vec![(1.0, 0.0)]),
            ("slow, both", slow, vec![(1.0, 0.0), (3.0, 0.1)]),
            ("lossy, one", lossy, vec![(5.0, 0.0), (7.0, 0.2)]),
            ("lossy, both", lossy, vec![(5.0, 0.0), (3.0, 0.1)]),
        ];
        assert_eq!(seen, expected);
        assert!(open(&FILE.replace("\"both\"]", "\"slow, both\"]")).is_err(), "no such point");
    }

    #[test]
    fn a_link_for_the_other_way_is_no_part_of_the_sum() {
        let text = FILE.replace("rtt_ms = 10,", "rtt_ms = 10, direction = \"up\",");
        let experiment = open(&text).unwrap();
        let names = |point: usize| -> Vec<&str> {
            let links = experiment.points[point].summaries(Direction::Down).iter();
            links.map(|link| link.name.as_str()).collect()
        };
        assert_eq!((names(0), names(1)), (vec![], vec!["b"]));
        assert_eq!(experiment.points[1].links.len(), 2, "it is there all the same");
    }

    #[test]
    fn weights_beside_a_choice_of_links_are_refused() {
        let series = "{ name = \"default\", uses = \"best-alone\", weights = [{ a = 1 }] }";
        let problem =
            open(&FILE.replace("{ name = \"default\" }", series)).unwrap_err().to_string();
        assert!(problem.contains("either `uses` or `weights`"), "{problem}");
    }
}
