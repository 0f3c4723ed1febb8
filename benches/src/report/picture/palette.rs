//! Colours and markers: the same for a series in every picture.

use anyhow::Result;
use plotters::prelude::*;

use super::Canvas;

/// Okabe and Ito's colours that stand out on white.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const PURPLE: RGBColor = RGBColor(204, 121, 167);
const SKY: RGBColor = RGBColor(86, 180, 233);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// For bars only: as a line it is too pale.
const YELLOW: RGBColor = RGBColor(240, 228, 66);
/// For what is given and not measured.
pub(super) const GREY: RGBColor = RGBColor(120, 120, 120);

/// Series that have their own colour everywhere.
const NAMED: [(&str, RGBColor); 9] = [
    ("default", BLUE),
    ("paper", VERMILION),
    ("round-robin", PURPLE),
    ("single", GREEN),
    ("best-single", GREEN),
    ("safire", ORANGE),
    ("batcp", ORANGE),
    ("striping", PURPLE),
    ("default-3-flows", SKY),
];
/// For other series, in their order.
const OTHERS: [RGBColor; 5] = [ORANGE, SKY, BLACK, VERMILION, PURPLE];
/// Of ours beside peers: simulated, real.
pub(super) const OURS: [RGBColor; 2] = [SKY, BLUE];
/// Of ours with other settings, in their order: simulated, real.
pub(super) const MORE_OF_OURS: [[RGBColor; 2]; 4] = [
    [RGBColor(245, 215, 150), ORANGE],
    [RGBColor(180, 225, 205), GREEN],
    [RGBColor(237, 180, 140), VERMILION],
    [RGBColor(232, 200, 218), PURPLE],
];
/// Of what is compared with: simulated, real.
pub(super) const LIGHT_AND_DARK: [RGBColor; 2] = [RGBColor(190, 190, 190), GREY];
/// Of peers, in their order.
pub(super) const PEERS: [RGBColor; 7] = [BLACK, ORANGE, GREEN, PURPLE, VERMILION, YELLOW, GREY];

/// How something looks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Look {
    /// A filled bar.
    Bar(RGBColor),
    /// A filled area.
    Area(RGBColor),
    /// A line with filled markers.
    Curve(RGBColor, Marker),
    /// Hollow markers without a line.
    Dots(RGBColor, Marker),
    /// A line.
    Line(RGBColor),
    /// A broken line.
    Dashed(RGBColor),
    /// A short black stroke across bars.
    Goal,
}

/// A marker of a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    Circle,
    Triangle,
    Inverted,
    Square,
    Diamond,
}

/// Colour and marker of a series by its name, or else its place among all.
pub(super) fn of_series(name: &str, place: usize) -> (RGBColor, Marker) {
    let markers =
        [Marker::Circle, Marker::Triangle, Marker::Inverted, Marker::Square, Marker::Diamond];
    let named = NAMED.iter().find(|named| named.0 == name);
    let colour = named.map_or(OTHERS[place % OTHERS.len()], |named| named.1);
    (colour, markers[place % markers.len()])
}

/// Draws a marker; one that is not filled is larger, so that it does not hide a filled one.
pub(super) fn mark(
    canvas: &Canvas<'_>,
    (x, y): (i32, i32),
    marker: Marker,
    colour: RGBColor,
    filled: bool,
) -> Result<()> {
    let edge = colour.stroke_width(2);
    let scale = if filled { 2 } else { 3 };
    let corners: &[(i32, i32)] = match marker {
        Marker::Circle => {
            let style = if filled { colour.filled() } else { edge };
            canvas.draw(&Circle::new((x, y), 5 * scale / 2, style))?;
            return Ok(());
        }
        Marker::Triangle => &[(0, -6), (6, 5), (-6, 5), (0, -6)],
        Marker::Inverted => &[(0, 6), (6, -5), (-6, -5), (0, 6)],
        Marker::Square => &[(-5, -5), (5, -5), (5, 5), (-5, 5), (-5, -5)],
        Marker::Diamond => &[(0, -7), (7, 0), (0, 7), (-7, 0), (0, -7)],
    };
    let place = |corner: &(i32, i32)| (x + corner.0 * scale / 2, y + corner.1 * scale / 2);
    let corners: Vec<_> = corners.iter().map(place).collect();
    if filled {
        canvas.draw(&Polygon::new(corners, colour.filled()))?;
    } else {
        canvas.draw(&PathElement::new(corners, edge))?;
    }
    Ok(())
}

/// A sample for a legend, 28 pixels wide.
pub(super) fn sample(canvas: &Canvas<'_>, (x, y): (i32, i32), look: &Look) -> Result<()> {
    let line = |colour: RGBColor, width| {
        PathElement::new([(x, y), (x + 28, y)], colour.stroke_width(width))
    };
    match *look {
        Look::Bar(colour) => {
            let corners = [(x + 6, y - 7), (x + 22, y + 7)];
            canvas.draw(&Rectangle::new(corners, colour.filled()))?;
            canvas.draw(&Rectangle::new(corners, BLACK.stroke_width(1)))?;
        }
        Look::Area(colour) => {
            canvas.draw(&Rectangle::new([(x, y - 7), (x + 28, y + 7)], colour.filled()))?;
        }
        Look::Curve(colour, shape) => {
            canvas.draw(&line(colour, 2))?;
            mark(canvas, (x + 14, y), shape, colour, true)?;
        }
        Look::Dots(colour, shape) => {
            mark(canvas, (x + 14, y), shape, colour, false)?;
        }
        Look::Line(colour) => canvas.draw(&line(colour, 2))?,
        Look::Dashed(colour) => {
            for begin in [x, x + 10, x + 20] {
                let ends = [(begin, y), (begin + 6, y)];
                canvas.draw(&PathElement::new(ends, colour.stroke_width(2)))?;
            }
        }
        Look::Goal => canvas.draw(&line(BLACK, 3))?,
    }
    Ok(())
}
