//! Curves over the axis of an experiment: throughput in percent of the sum of the links' rates, as figures
//! 4 and 5 of the main paper. Virtual time is a line with filled markers; what ran on the kernel is
//! hollow. Thin strokes reach from the lowest to the highest run. Curves stand a little beside each other,
//! so that none hides another.

use anyhow::Result;
use plotters::prelude::*;

use super::palette::{GREY, Look, Marker, mark, of_series};
use super::{Chart, Entry, Picture, axes, categories, of_group, svg, within_group};
use crate::report::both::{Both, Place};
use crate::report::values::SUM;
use crate::results::{Mode, Point, Spread, Traffic};

/// From one curve to the next, in parts of the way from one point to the next.
const BESIDE: f64 = 0.13;

/// A series in one mode.
struct Curve {
    name: String,
    mode: Mode,
    colour: RGBColor,
    marker: Marker,
    /// By place on the axis.
    values: Vec<(f64, Spread)>,
}

/// The picture of one traffic and group of points.
///
/// # Errors
/// When it cannot be drawn.
pub fn picture(experiment: &Both, traffic: Traffic, group: Option<&str>) -> Result<Picture> {
    let points = experiment.points_of(traffic, group);
    let curves = curves(experiment, traffic, &points);
    let limit = limit(experiment, traffic, &points);
    let mut legend: Vec<_> = curves.iter().map(Curve::entry).collect();
    legend.push(Entry { name: "limit of the links together".to_owned(), look: Look::Dashed(GREY) });
    let highest = curves.iter().flat_map(|curve| &curve.values).map(|(_, spread)| spread.highest);
    let most = highest.fold(100.0, f64::max) * 1.05;

    let marks = categories(points.iter().map(|point| within_group(point)));
    let end = marks.last().map_or(0.0, |last| last.0) + 0.5;
    let axis = points.first().map_or("", |point| point.axis.as_str());
    let (title, file) = of_group(experiment, traffic, group);
    let svg = svg((900, 460), &title, &legend, |canvas| {
        let titles = (axis, "percent of the sum of the links' rates");
        let mut chart = axes(canvas, -0.5..end, &marks, titles, most)?;
        chart.draw_series(DashedLineSeries::new(limit, 8, 6, GREY.stroke_width(1)))?;
        curves.iter().try_for_each(|curve| curve.draw(&mut chart))
    })?;
    Ok(Picture { traffic, title, file: format!("{file}.svg"), svg })
}

fn curves(experiment: &Both, traffic: Traffic, points: &[&Point]) -> Vec<Curve> {
    let all = experiment.series(traffic);
    let mut curves = Vec::new();
    for (place, series) in all.iter().enumerate() {
        let (colour, marker) = of_series(series, place);
        #[expect(clippy::cast_precision_loss, reason = "an experiment has few series")]
        let beside = BESIDE * (place as f64 - (all.len() - 1) as f64 / 2.0);
        for mode in Mode::ALL {
            let at = |point| experiment.spread(mode, Place { traffic, point, series }, SUM.name);
            let values = (0..).map(f64::from).zip(points);
            let values: Vec<_> =
                values.filter_map(|(x, point)| Some((x + beside, at(point)?))).collect();
            if !values.is_empty() {
                let name = format!("{series}, {}", mode.as_str());
                curves.push(Curve { name, mode, colour, marker, values });
            }
        }
    }
    curves
}

/// What all links of a point can carry, by place on the axis, from half a step before to half a step after.
fn limit(experiment: &Both, traffic: Traffic, points: &[&Point]) -> Vec<(f64, f64)> {
    let mut limit = Vec::new();
    for (x, point) in (0..).map(f64::from).zip(points) {
        let cases = experiment
            .cases()
            .filter(|(_, case)| case.traffic == traffic && case.point.label == point.label);
        let shares = cases.map(|(_, case)| 100.0 * case.limit_mbit / case.sum_mbit);
        let most = shares.fold(0.0, f64::max);
        limit.extend([(x - 0.5, most), (x + 0.5, most)]);
    }
    limit
}

impl Curve {
    fn entry(&self) -> Entry {
        let look = match self.mode {
            Mode::Simulated => Look::Curve(self.colour, self.marker),
            Mode::Real => Look::Dots(self.colour, self.marker),
        };
        Entry { name: self.name.clone(), look }
    }

    fn draw(&self, chart: &mut Chart<'_, '_>) -> Result<()> {
        let simulated = self.mode == Mode::Simulated;
        if simulated {
            let line = self.values.iter().map(|(x, spread)| (*x, spread.median));
            chart.draw_series(LineSeries::new(line, self.colour.stroke_width(2)))?;
        }
        chart.draw_series(self.values.iter().map(|(x, spread)| {
            let ends = [(*x, spread.lowest), (*x, spread.highest)];
            PathElement::new(ends, self.colour.stroke_width(1))
        }))?;
        let plot = chart.plotting_area();
        let pixels = plot.strip_coord_spec();
        let (left, top) = pixels.get_base_pixel();
        for (x, spread) in &self.values {
            let (x, y) = plot.map_coordinate(&(*x, spread.median));
            mark(&pixels, (x - left, y - top), self.marker, self.colour, simulated)?;
        }
        Ok(())
    }
}
