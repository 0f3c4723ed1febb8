//! What came in order in each second of the first run, as figures 6 to 9 of the main paper have it: one
//! picture for each mode and point. Where links vary, grey areas, one upon the other, are what each
//! could carry at IP level.

use anyhow::Result;
use plotters::prelude::*;

use super::palette::{GREY, Look, of_series};
use super::{Entry, Picture, axes, heading, slug, svg};
use crate::measure::CAPACITY;
use crate::report::both::{Both, Place};
use crate::results::{Case, Mode, Point, Traffic};

/// The values of each second that are drawn.
const IN_ORDER: &str = "in_order_mbit";
/// Greys of what links could carry.
const LINKS: [RGBColor; 2] = [RGBColor(190, 190, 190), RGBColor(222, 222, 222)];

/// What came in one series.
struct Line<'a> {
    name: &'a str,
    colour: RGBColor,
    seconds: &'a [f64],
}

/// What one link could carry, above what those before it could.
struct Area<'a> {
    link: &'a str,
    colour: RGBColor,
    /// Lower and upper edge in each second.
    edges: Vec<(f64, f64)>,
}

/// The pictures of one traffic.
///
/// # Errors
/// When one cannot be drawn.
pub fn pictures(experiment: &Both, traffic: Traffic) -> Result<Vec<Picture>> {
    let points = experiment.points(traffic);
    let mut pictures = Vec::new();
    for mode in Mode::ALL {
        for point in &points {
            let name = match points.len() {
                1 => String::new(),
                _ => format!("-{}", slug(&point.label)),
            };
            let file = format!("{}-{}{name}.svg", traffic.as_str(), mode.as_str());
            pictures.extend(picture(experiment, traffic, mode, point, file)?);
        }
    }
    Ok(pictures)
}

/// `None` where nothing ran.
fn picture(
    experiment: &Both,
    traffic: Traffic,
    mode: Mode,
    point: &Point,
    file: String,
) -> Result<Option<Picture>> {
    let cases: Vec<_> = experiment
        .series(traffic)
        .into_iter()
        .filter_map(|series| experiment.case(mode, Place { traffic, point, series }))
        .collect();
    let lines: Vec<_> = cases
        .iter()
        .enumerate()
        .filter_map(|(place, case)| {
            // An upload on the kernel is only known by its end.
            let seconds = case.runs.first()?.per_second.get(IN_ORDER)?;
            if seconds.is_empty() {
                return None;
            }
            Some(Line { name: &case.series, colour: of_series(&case.series, place).0, seconds })
        })
        .collect();
    let Some(longest) = lines.iter().map(|line| line.seconds.len()).max() else { return Ok(None) };
    let areas = areas(&cases);
    // Where links vary, what they could carry is in the areas.
    let limit = cases.iter().map(|case| case.limit_mbit).reduce(f64::max);
    let limit = limit.filter(|_| areas.is_empty());

    let entry = |name: String, look| Entry { name, look };
    let mut legend: Vec<_> =
        lines.iter().map(|line| entry(line.name.to_owned(), Look::Line(line.colour))).collect();
    legend.extend(limit.map(|_| entry("limit".to_owned(), Look::Dashed(GREY))));
    // As they lie upon each other.
    let carries = areas.iter().rev();
    legend.extend(carries.map(|a| entry(format!("{} could carry", a.link), Look::Area(a.colour))));

    let top = areas.iter().flat_map(|area| &area.edges).map(|edge| edge.1);
    let came = lines.iter().flat_map(|line| line.seconds).copied();
    let most = top.chain(came).chain(limit).fold(0.1, f64::max) * 1.05;
    #[expect(clippy::cast_precision_loss, reason = "a run has few seconds")]
    let length = longest as f64;
    let marks: Vec<_> = (0..=u32::try_from(longest)?)
        .step_by(mark_distance(longest))
        .map(|at| (f64::from(at), at.to_string()))
        .collect();
    let title = format!("{}: {}, {}", heading(experiment, traffic), point.label, mode.as_str());
    let svg = svg((900, 420), &title, &legend, |canvas| {
        let titles = ("seconds", "in order, Mbit/s in each second");
        let mut chart = axes(canvas, 0.0..length, &marks, titles, most)?;
        for area in &areas {
            chart.draw_series([Polygon::new(outline(&area.edges), area.colour.filled())])?;
        }
        if let Some(limit) = limit {
            let ends = [(0.0, limit), (length, limit)];
            chart.draw_series(DashedLineSeries::new(ends, 8, 6, GREY.stroke_width(1)))?;
        }
        for line in &lines {
            // A second is told at its middle.
            let points = (0..).map(f64::from).zip(line.seconds).map(|(at, mbit)| (at + 0.5, *mbit));
            chart.draw_series(LineSeries::new(points, line.colour.stroke_width(2)))?;
        }
        Ok(())
    })?;
    Ok(Some(Picture { traffic, title, file, svg }))
}

/// Seconds between two marks, so that there are at most a dozen of them and an end.
const fn mark_distance(seconds: usize) -> usize {
    match seconds {
        0..=40 => 5,
        41..=120 => 10,
        121..=240 => 20,
        241..=600 => 50,
        _ => 100,
    }
}

/// What the links could carry, of the case that used most of them.
fn areas<'a>(cases: &[&'a Case]) -> Vec<Area<'a>> {
    let of = |case: &&'a Case| {
        let first = case.runs.first().into_iter().flat_map(|run| &run.per_second);
        let links =
            first.filter_map(|(name, seconds)| Some((name.strip_prefix(CAPACITY)?, seconds)));
        links.collect::<Vec<_>>()
    };
    let links = cases.iter().map(of).max_by_key(Vec::len).unwrap_or_default();
    let longest = links.iter().map(|link| link.1.len()).max().unwrap_or_default();
    let mut floor = vec![0.0; longest];
    let mut areas = Vec::new();
    for ((link, seconds), colour) in links.into_iter().zip(LINKS.into_iter().cycle()) {
        let edges: Vec<(f64, f64)> =
            floor.iter().zip(seconds).map(|(floor, mbit)| (*floor, floor + mbit)).collect();
        floor = edges.iter().map(|edge| edge.1).collect();
        areas.push(Area { link, colour, edges });
    }
    areas
}

/// The corners of an area: along its upper edge, and back along the lower.
fn outline(edges: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let steps = (0..).map(f64::from).zip(edges);
    let upper = steps.clone().flat_map(|(at, edge)| [(at, edge.1), (at + 1.0, edge.1)]);
    let mut lower: Vec<_> =
        steps.flat_map(|(at, edge)| [(at, edge.0), (at + 1.0, edge.0)]).collect();
    lower.reverse();
    upper.chain(lower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_of_an_axis_do_not_crowd() {
        for seconds in 1..=1200 {
            let marks = seconds / mark_distance(seconds);
            assert!(marks <= 12, "{seconds} s have {marks} marks");
        }
    }
}
