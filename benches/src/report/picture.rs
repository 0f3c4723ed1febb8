//! Pictures in SVG, of the kind of the main paper's figures 4 to 9.
//!
//! | what there is | picture |
//! | --- | --- |
//! | traffic judged by times | none |
//! | links judged one by one | none: their tables are read link by link |
//! | figures of peers, with some traffic | [bars], grouped by point |
//! | one point only, links whose capacity varies, or an experiment that asks for it | [seconds]: what came in each second, by mode and point |
//! | anything else | [curves] over the axis, for each group of points |
//! | beside that, where many weights were tried | [tried]: what each gave |
//!
//! Each has its own white ground and black text, so that it reads the same on a dark page. Colours are
//! those of Okabe and Ito ("Color Universal Design", 2008), which colour-blind readers can tell apart;
//! curves also differ in their markers. The legend has a column of its own beside the plot.

pub mod bars;
pub mod curves;
pub mod load;
pub mod palette;
pub mod seconds;
pub mod tried;

use std::ops::Range;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::palette::Look;
use super::both::Both;
use super::peers::Peers;
use super::values::{number, title};
use crate::measure::CAPACITY;
use crate::results::{Point, Traffic};

/// One picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    /// What ran.
    pub traffic: Traffic,
    /// For its alternative text.
    pub title: String,
    /// Its name beside the results.
    pub file: String,
    /// The SVG.
    pub svg: String,
}

/// Where plots are drawn.
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A plot with its axes.
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Marked, RangedCoordf64>>;

/// Width of the column with the legend, in pixels.
const LEGEND: i32 = 230;
/// Height of the line with the title.
const TITLE: i32 = 36;
/// Height of a line of the legend.
const LINE: i32 = 22;

/// All pictures of an experiment.
///
/// # Errors
/// When one cannot be drawn.
pub fn all(experiment: &Both, peers: &Peers) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    if experiment.results.iter().any(|results| results.one_by_one) {
        return Ok(pictures);
    }
    for traffic in experiment.traffics().into_iter().filter(|traffic| traffic.is_bulk()) {
        if peers.figures.iter().any(|figures| figures.experiment == experiment.name) {
            let figures = peers.of(&experiment.name, traffic);
            pictures.push(bars::picture(experiment, traffic, figures)?);
        } else if by_second(experiment, traffic) {
            pictures.extend(seconds::pictures(experiment, traffic)?);
        } else {
            for group in experiment.groups(traffic) {
                pictures.push(curves::picture(experiment, traffic, group)?);
                pictures.extend(tried::pictures(experiment, traffic, group)?);
            }
        }
    }
    Ok(pictures)
}

fn by_second(experiment: &Both, traffic: Traffic) -> bool {
    experiment.results.iter().any(|results| results.by_second)
        || experiment.points(traffic).len() == 1
        || varies(experiment, traffic)
}

fn varies(experiment: &Both, traffic: Traffic) -> bool {
    let runs = experiment.cases().filter(|(_, case)| case.traffic == traffic);
    runs.flat_map(|(_, case)| &case.runs)
        .any(|run| run.per_second.keys().any(|name| name.starts_with(CAPACITY)))
}

/// A line of a legend.
#[derive(Clone, PartialEq, Debug)]
struct Entry {
    name: String,
    look: Look,
}

/// A heading for a picture.
fn heading(experiment: &Both, traffic: Traffic) -> String {
    format!("{}: {}, {}", experiment.name, experiment.title(), title(traffic))
}

/// A heading for the picture of a group, and its name.
fn of_group(experiment: &Both, traffic: Traffic, group: Option<&str>) -> (String, String) {
    let (heading, file) = (heading(experiment, traffic), traffic.as_str());
    match group {
        None => (heading, file.to_owned()),
        Some(group) => (format!("{heading}, {group}"), format!("{file}-{}", slug(group))),
    }
}

/// A point's label beside others of its group.
fn within_group(point: &Point) -> &str {
    let group = point.group.as_deref().and_then(|group| point.label.strip_prefix(group));
    group.and_then(|label| label.strip_prefix(", ")).unwrap_or(&point.label)
}

/// A picture of this size with title and legend; `plot` draws the rest.
fn svg(
    size: (u32, u32),
    title: &str,
    legend: &[Entry],
    plot: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        let style = font(17.0).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(title.to_owned(), (14, TITLE / 2), style))?;
        let (_, below) = root.split_vertically(TITLE);
        let width = i32::try_from(size.0).unwrap_or(i32::MAX) - LEGEND;
        let (left, right) = below.split_horizontally(width);
        plot(&left)?;
        for (number, entry) in (0..).zip(legend) {
            let y = 14 + LINE * number;
            palette::sample(&right, (8, y), &entry.look)?;
            let style = font(14.0).pos(Pos::new(HPos::Left, VPos::Center));
            right.draw(&Text::new(entry.name.clone(), (44, y), style))?;
        }
        root.present()?;
    }
    text.push('\n');
    Ok(text)
}

/// Black text of this height in pixels.
fn font(height: f64) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", height)).color(&BLACK)
}

/// Axes from (`x.start`, 0) to (`x.end`, `y_most`), with these marks on the first.
fn axes<'a, 'b>(
    canvas: &'a Canvas<'b>,
    x: Range<f64>,
    marks: &[(f64, String)],
    (x_title, y_title): (&str, &str),
    y_most: f64,
) -> Result<Chart<'a, 'b>> {
    let marked = Marked { range: x.into(), marks: marks.iter().map(|mark| mark.0).collect() };
    let mut chart = ChartBuilder::on(canvas)
        .margin_left(10)
        .margin_right(10)
        .margin_top(6)
        .x_label_area_size(48)
        .y_label_area_size(56)
        .build_cartesian_2d(marked, 0.0..y_most)?;
    let named = |at: &f64| {
        let mark = marks.iter().find(|mark| (mark.0 - at).abs() < 1e-6);
        mark.map_or_else(String::new, |mark| mark.1.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(RGBColor(215, 215, 215))
        .light_line_style(WHITE)
        .axis_style(BLACK)
        .y_labels(8)
        .x_label_formatter(&named)
        .y_label_formatter(&|y| number(*y, usize::from(y_most < 4.0)))
        .label_style(font(14.0))
        .axis_desc_style(font(15.0))
        .x_desc(x_title)
        .y_desc(y_title)
        .draw()?;
    Ok(chart)
}

/// An axis with marks of our choice.
struct Marked {
    range: RangedCoordf64,
    marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

/// Marks for categories, the first at 0.
fn categories<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<(f64, String)> {
    (0..).map(f64::from).zip(labels.map(str::to_owned)).collect()
}

/// A name as part of a name of a file.
fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let dashed: String = text.chars().map(plain).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
