//! Cost against load: what a packet costs the dearer end of each tunnel, over the rate offered.

use anyhow::Result;
use plotters::prelude::*;

use super::palette::{Look, Marker, mark, of_series};
use super::{Entry, axes, svg};
use crate::report::throughput::Drawn;
use crate::report::values::number;
use crate::throughput::figures::{Figures, Measured};
use crate::throughput::load::{FULL, Ladder, SMALL, at_rate};
use crate::throughput::udp::Way;

struct Curve {
    name: String,
    colour: RGBColor,
    marker: Marker,
    values: Vec<(f64, f64)>,
}

/// A picture for each size of packets that was measured.
///
/// # Errors
/// When one cannot be drawn.
pub fn pictures(figures: &Figures) -> Result<Vec<Drawn>> {
    let mut drawn = Vec::new();
    for ladder in [FULL, SMALL] {
        let curves = curves(figures, ladder);
        if !curves.is_empty() {
            drawn.push(picture(ladder, &curves)?);
        }
    }
    Ok(drawn)
}

fn curves(figures: &Figures, ladder: Ladder) -> Vec<Curve> {
    let all = figures.contenders.iter().enumerate().map(|(place, one)| {
        let (colour, marker) = of_series(&one.name, place);
        let values =
            ladder.rates.iter().filter_map(|rate| Some((*rate, dearer(one, ladder, *rate)?)));
        Curve { name: one.name.clone(), colour, marker, values: values.collect() }
    });
    all.filter(|curve| !curve.values.is_empty()).collect()
}

/// Of both ends and ways, CPU µs per packet.
fn dearer(one: &Measured, ladder: Ladder, rate: f64) -> Option<f64> {
    let ends = Way::ALL.into_iter().flat_map(|way| ["near_us", "far_us"].map(|end| (way, end)));
    let costs = ends
        .filter_map(|(way, end)| Some(one.summary.get(&at_rate(ladder, way, rate, end))?.median));
    costs.reduce(f64::max)
}

fn picture(ladder: Ladder, curves: &[Curve]) -> Result<Drawn> {
    let title = format!("What a packet of {} bytes costs the dearer end", ladder.size);
    let legend: Vec<Entry> = curves
        .iter()
        .map(|curve| Entry {
            name: curve.name.clone(),
            look: Look::Curve(curve.colour, curve.marker),
        })
        .collect();
    let marks: Vec<(f64, String)> =
        ladder.rates.iter().map(|rate| (*rate, number(*rate, 0))).collect();
    let end = ladder.rates.iter().copied().fold(0.0, f64::max) * 1.05;
    let most =
        curves.iter().flat_map(|curve| &curve.values).map(|value| value.1).fold(4.0, f64::max);
    let svg = svg((900, 460), &title, &legend, |canvas| {
        let titles = ("offered, thousand packets/s", "CPU, µs for each packet that came");
        let mut chart = axes(canvas, 0.0..end, &marks, titles, most * 1.05)?;
        for curve in curves {
            let line = LineSeries::new(curve.values.iter().copied(), curve.colour.stroke_width(2));
            chart.draw_series(line)?;
            let plot = chart.plotting_area();
            let pixels = plot.strip_coord_spec();
            let (left, top) = pixels.get_base_pixel();
            for value in &curve.values {
                let (x, y) = plot.map_coordinate(value);
                mark(&pixels, (x - left, y - top), curve.marker, curve.colour, true)?;
            }
        }
        Ok(())
    })?;
    Ok((title, format!("udp{}.svg", ladder.size), svg))
}
