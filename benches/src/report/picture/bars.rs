//! Bars beside each other: ours and peers' in percent of the sum of the links' rates, point by point. Where
//! peers have no figures for a traffic, the better link alone stands in their place.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::prelude::*;

use super::palette::{LIGHT_AND_DARK, Look, MORE_OF_OURS, OURS, PEERS};
use super::{Entry, Picture, axes, categories, heading, svg};
use crate::report::both::{Both, Place};
use crate::report::peers::{Figures, PeerValue};
use crate::report::values::{SINGLES, SUM, Value};
use crate::results::{Mode, Point, Traffic};

/// The series with our settings, and what it is called beside others.
const DEFAULT: (&str, &str) = ("default", "Ropewalk");
/// And of the better link alone.
const ALONE: (&str, &str) = ("best-single", "better link alone");
/// The part of a group that its bars take.
const FILLED: f64 = 0.84;

/// One colour of bars.
struct Bars {
    entry: Entry,
    /// In percent of the sum, one for each point.
    heights: Vec<Option<f64>>,
}

/// The picture of one traffic.
///
/// # Errors
/// When it cannot be drawn.
pub fn picture(experiment: &Both, traffic: Traffic, figures: Option<&Figures>) -> Result<Picture> {
    let points = experiment.points(traffic);
    let marks = categories(points.iter().map(|point| point.label.as_str()));
    let mut bars = figures.map_or_else(
        || measured(experiment, traffic, ALONE, SUM, LIGHT_AND_DARK),
        |figures| peers(experiment, &points, figures),
    );
    let value = match figures.map(|figures| figures.value) {
        Some(PeerValue::PercentOfSingles) => SINGLES,
        _ => SUM,
    };
    let others = figures.iter().flat_map(|figures| &figures.ours);
    for ((series, name), colours) in others.zip(MORE_OF_OURS.into_iter().cycle()) {
        bars.extend(measured(
            experiment,
            traffic,
            (series.as_str(), name.as_str()),
            value,
            colours,
        ));
    }
    bars.extend(measured(experiment, traffic, DEFAULT, value, OURS));
    let goals = figures.map(|figures| heights(experiment, &points, figures, &figures.goal));
    let goals = goals.unwrap_or_default();
    let mut legend: Vec<_> = bars.iter().map(|bars| bars.entry.clone()).collect();
    if goals.iter().any(Option::is_some) {
        legend.push(Entry { name: "goal".to_owned(), look: Look::Goal });
    }

    let highest = bars.iter().flat_map(|bars| &bars.heights).flatten().copied();
    let most = highest.fold(100.0, f64::max) * 1.05;
    #[expect(clippy::cast_precision_loss, reason = "an experiment has few points and peers")]
    let (groups, in_group) = (marks.len() as f64, bars.len().max(1) as f64);
    let title = heading(experiment, traffic);
    let axis = points.first().map_or("", |point| point.axis.as_str());
    let size = (if points.len() > 8 { 1800 } else { 1100 }, 460);
    let svg = svg(size, &title, &legend, |canvas| {
        let of = if value == SINGLES { "of the links one by one" } else { "of the links' rates" };
        let percent = format!("percent of the sum {of}");
        let labels = (axis, percent.as_str());
        let mut chart = axes(canvas, -0.5..groups - 0.5, &marks, labels, most)?;
        for (number, one) in (0..).map(f64::from).zip(&bars) {
            let Look::Bar(colour) = one.entry.look else { continue };
            let left = -FILLED / 2.0 + FILLED * number / in_group;
            let boxes = || {
                let high = marks
                    .iter()
                    .zip(&one.heights)
                    .filter_map(|(mark, height)| Some((mark.0, (*height)?)));
                high.map(|(x, height)| [(x + left, 0.0), (x + left + FILLED / in_group, height)])
            };
            let high = boxes().filter(|corners| corners[1].1 > 0.0);
            chart.draw_series(high.map(|corners| Rectangle::new(corners, colour.filled())))?;
            chart.draw_series(boxes().map(|[low, high]| {
                let edge = [low, (low.0, high.1), high, (high.0, low.1)];
                PathElement::new(edge, BLACK.stroke_width(1))
            }))?;
        }
        let goals = marks.iter().zip(&goals).filter_map(|(mark, goal)| Some((mark.0, (*goal)?)));
        chart.draw_series(goals.map(|(x, goal)| {
            PathElement::new([(x - 0.47, goal), (x + 0.47, goal)], BLACK.stroke_width(3))
        }))?;
        Ok(())
    })?;
    Ok(Picture { traffic, title, file: format!("{}.svg", traffic.as_str()), svg })
}

fn peers(experiment: &Both, points: &[&Point], figures: &Figures) -> Vec<Bars> {
    let drawn = figures.peers.iter().filter(|peer| peer.drawn);
    drawn
        .zip(PEERS.into_iter().cycle())
        .map(|(peer, colour)| Bars {
            entry: Entry { name: peer.name.clone(), look: Look::Bar(colour) },
            heights: heights(experiment, points, figures, &peer.at),
        })
        .collect()
}

/// A series of ours in the modes in which it ran.
fn measured(
    experiment: &Both,
    traffic: Traffic,
    (series, name): (&str, &str),
    value: Value,
    colours: [RGBColor; 2],
) -> Vec<Bars> {
    let points = experiment.points(traffic);
    let bars = Mode::ALL.into_iter().zip(colours).map(|(mode, colour)| {
        let place = |point| Place { traffic, point, series };
        let height = |point| Some(experiment.spread(mode, place(point), value.name)?.median);
        Bars {
            entry: Entry { name: format!("{name}, {}", mode.as_str()), look: Look::Bar(colour) },
            heights: points.iter().map(|&point| height(point)).collect(),
        }
    });
    bars.filter(|bars| bars.heights.iter().any(Option::is_some)).collect()
}

/// Figures of others in percent of the sum of the rates that our results name.
fn heights(
    experiment: &Both,
    points: &[&Point],
    figures: &Figures,
    at: &BTreeMap<String, f64>,
) -> Vec<Option<f64>> {
    let sum = |label: &str| {
        let mut cases = experiment.cases().filter(|(_, case)| case.point.label == label);
        cases.next().map(|(_, case)| case.sum_mbit)
    };
    let height = |label: &String| Some(figures.value.percent(*at.get(label)?, sum(label)?));
    points.iter().map(|point| height(&point.label)).collect()
}
