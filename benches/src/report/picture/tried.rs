//! What each of many weights gave, as figure 6 of the paper of NATALIE: a picture for each series that tried
//! them, with a curve for each point of the group. The best one is what the tables tell.

use anyhow::Result;
use plotters::prelude::*;

use super::palette::{Look, Marker, mark, of_series};
use super::{Entry, Picture, axes, categories, of_group, slug, svg, within_group};
use crate::report::both::{Both, Place};
use crate::results::{Case, Mode, Traffic};

/// Fewer are told in the table alone.
const MANY: usize = 6;

/// What one point gave.
struct Curve {
    name: String,
    look: (RGBColor, Marker),
    mbit: Vec<(f64, f64)>,
}

/// The pictures of one traffic and group of points.
///
/// # Errors
/// When one cannot be drawn.
pub fn pictures(experiment: &Both, traffic: Traffic, group: Option<&str>) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for mode in Mode::ALL {
        for series in experiment.series(traffic) {
            let points = experiment.points_of(traffic, group);
            let case = |point| experiment.case(mode, Place { traffic, point, series });
            let cases: Vec<&Case> = points
                .iter()
                .filter_map(|point| case(point))
                .filter(|c| c.tried.len() >= MANY)
                .collect();
            let (title, file) = of_group(experiment, traffic, group);
            let title = format!("{title}, {series}, {}", mode.as_str());
            let file = format!("{file}-{}-tried-{}.svg", slug(series), mode.as_str());
            pictures.extend(picture(traffic, &cases, title, file)?);
        }
    }
    Ok(pictures)
}

/// Of weights such as `a 100 : b 20`, the links (0) or their numbers (1), short enough for an axis.
fn words(weights: &str, place: usize) -> String {
    let links = weights.split(" : ").map(|link| link.split(' ').nth(place).unwrap_or(link));
    links.collect::<Vec<_>>().join(":")
}

/// `None` where nothing was tried.
fn picture(
    traffic: Traffic,
    cases: &[&Case],
    title: String,
    file: String,
) -> Result<Option<Picture>> {
    let Some(first) = cases.first() else { return Ok(None) };
    let names = || first.tried.iter().map(|tried| tried.name.as_str());
    let short: Vec<String> = names().map(|name| words(name, 1)).collect();
    let marks = categories(short.iter().map(String::as_str));
    let title_of_axis = names().next().map(|name| format!("weights {}", words(name, 0)));
    let title_of_axis = title_of_axis.unwrap_or_default();
    let curves: Vec<Curve> = cases
        .iter()
        .enumerate()
        .map(|(place, case)| Curve {
            name: within_group(&case.point).to_owned(),
            look: of_series("", place),
            mbit: (0..)
                .map(f64::from)
                .zip(&case.tried)
                .filter_map(|(x, tried)| Some((x, tried.goodput_mbit?.median)))
                .collect(),
        })
        .collect();
    let legend: Vec<Entry> = curves
        .iter()
        .map(|curve| Entry {
            name: curve.name.clone(),
            look: Look::Curve(curve.look.0, curve.look.1),
        })
        .collect();
    let highest = curves.iter().flat_map(|curve| &curve.mbit).map(|(_, mbit)| *mbit);
    let most = highest.fold(0.1, f64::max) * 1.05;
    let end = marks.last().map_or(0.0, |last| last.0) + 0.5;
    let svg = svg((900, 420), &title, &legend, |canvas| {
        let mut chart = axes(canvas, -0.5..end, &marks, (&title_of_axis, "Mbit/s"), most)?;
        for curve in &curves {
            let line = curve.mbit.iter().copied();
            chart.draw_series(LineSeries::new(line, curve.look.0.stroke_width(2)))?;
            let plot = chart.plotting_area();
            let pixels = plot.strip_coord_spec();
            let (left, top) = pixels.get_base_pixel();
            for at in &curve.mbit {
                let (x, y) = plot.map_coordinate(at);
                mark(&pixels, (x - left, y - top), curve.look.1, curve.look.0, true)?;
            }
        }
        Ok(())
    })?;
    Ok(Some(Picture { traffic, title, file, svg }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_fit_an_axis() {
        let table = [("a 100 : b 20.5", "a:b", "100:20.5"), ("wan", "wan", "wan")];
        for (weights, links, numbers) in table {
            assert_eq!((words(weights, 0), words(weights, 1)), (links.into(), numbers.into()));
        }
    }
}
