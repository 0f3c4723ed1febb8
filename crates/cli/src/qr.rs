//! A QR code in the terminal, two modules a character.

use anyhow::Context as _;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

use crate::exit::Failure;

/// Black on white, whatever the terminal's own colours are: not every reader takes a code with light and dark exchanged.
const BLACK_ON_WHITE: &str = "\u{1b}[38;5;16;48;5;231m";
const RESET: &str = "\u{1b}[0m";

/// The code, with the border of four modules that readers need. A screen does not get dirty, so that the least
/// correction of errors does, and the code stays small.
///
/// # Errors
/// The text is longer than any code holds.
pub(crate) fn drawn(text: &str, coloured: bool) -> Result<String, Failure> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)
        .context("the invitation is too long for a QR code")?;
    let drawn = code.render::<Dense1x2>().quiet_zone(true).build();
    let lines = drawn.lines().map(|line| match coloured {
        true => format!("{BLACK_ON_WHITE}{line}{RESET}\n"),
        false => format!("{line}\n"),
    });
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every module of a drawing: whether it is dark.
    fn modules(drawn: &str) -> Vec<Vec<bool>> {
        let mut rows = Vec::new();
        for line in drawn.lines() {
            let half = |dark: [char; 2]| line.chars().map(|c| dark.contains(&c)).collect();
            rows.push(half(['\u{2580}', '\u{2588}']));
            rows.push(half(['\u{2584}', '\u{2588}']));
        }
        rows
    }

    #[test]
    fn what_is_drawn_is_read_again_and_fits_a_small_terminal() {
        // As long as an invitation with one IPv4 and one IPv6 address.
        let text = format!("ROPEWALK:{}", "A5Q7".repeat(36));
        let drawn = drawn(&text, false).unwrap();
        assert!(drawn.lines().count() <= 24, "{}", drawn.lines().count());
        assert!(drawn.lines().all(|line| line.chars().count() <= 80));
        let modules = modules(&drawn);
        // Four points a module: what a camera sees.
        let (width, height) = (modules[0].len() * 4, modules.len() * 4);
        let grey = |x: usize, y: usize| if modules[y / 4][x / 4] { 0 } else { 255 };
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(width, height, grey);
        let (_, read) = image.detect_grids()[0].decode().unwrap();
        assert_eq!(read, text);
    }

    #[test]
    fn colours_are_set_and_taken_back_on_each_line() {
        for line in drawn("ROPEWALK:AB", true).unwrap().lines() {
            assert!(line.starts_with(BLACK_ON_WHITE) && line.ends_with(RESET));
        }
    }
}
