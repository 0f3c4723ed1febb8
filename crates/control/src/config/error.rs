//! An error in a config file, shown as a compiler would: place, line, caret, and what to write.
//!
//! ```text
//! client.toml:12:1: unknown key `keepaliv`
//!    |
//! 12 | keepaliv = "15s"
//!    | ^^^^^^^^
//!    = did you mean `keepalive`?
//! ```

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ropewalk_settings::nearest;

/// Columns of a line that are shown around the place; a longer line is cut.
const SHOWN_COLUMNS: usize = 72;

/// Characters of a message that are shown; texts from the file may be of any length.
const SHOWN_MESSAGE: usize = 400;

/// Base64 or hexadecimal digits in a row from which on a text counts as a key and is masked (a key has
/// 43 of base64 or 64 of hexadecimal; 40 also catches one with characters missing).
const SECRET_RUN: usize = 40;

/// What is wrong with a config file, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    place: Option<Box<Place>>,
    message: String,
    help: Option<String>,
    permission: bool,
}

/// Where in the file, and the line that stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// From 1.
    line: usize,
    /// From 1, in characters.
    column: usize,
    /// The line, or the part of it around the place.
    shown: String,
    /// Characters before the caret in `shown`.
    before: usize,
    /// Carets.
    width: usize,
}

impl ConfigError {
    /// An error of a whole file, such as that it cannot be read.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: file.to_path_buf(),
            place: None,
            message: clean(&message.into(), SHOWN_MESSAGE),
            help: None,
            permission: false,
        }
    }

    /// An error of the system with a file; remembers whether it was for lack of permission.
    pub fn of_io(file: &Path, what: &str, error: &io::Error) -> Self {
        let permission = error.kind() == io::ErrorKind::PermissionDenied;
        Self { permission, ..Self::of_file(file, format!("{what}: {error}")) }
    }

    /// An error at these bytes of the text of the file.
    pub(crate) fn at(file: &Path, text: &str, span: Range<usize>, message: &str) -> Self {
        let place = Some(Box::new(Place::of(text, span)));
        Self { place, ..Self::of_file(file, message) }
    }

    /// The same with a line that says what to do.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(clean(&help.into(), SHOWN_MESSAGE)), ..self }
    }

    /// The same, marked as a lack of permission or not.
    #[must_use]
    pub(crate) fn with_permission(self, permission: bool) -> Self {
        Self { permission, ..self }
    }

    /// The file that is wrong.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Line and column from 1, the column in characters; `None` for an error of the whole file.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        self.place.as_ref().map(|place| (place.line, place.column))
    }

    /// What is wrong, without place and help.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Whether the file could not be read for lack of permission.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        self.permission
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = clean(&self.file.to_string_lossy(), SHOWN_MESSAGE);
        let Some(place) = &self.place else {
            write!(f, "{file}: {}", self.message)?;
            return match &self.help {
                Some(help) => write!(f, "\n  = {help}"),
                None => Ok(()),
            };
        };
        let gutter = place.line.to_string().len();
        writeln!(f, "{file}:{}:{}: {}", place.line, place.column, self.message)?;
        writeln!(f, "{:gutter$} |", "")?;
        writeln!(f, "{} | {}", place.line, place.shown)?;
        write!(
            f,
            "{:gutter$} | {:before$}{:^<width$}",
            "",
            "",
            "",
            before = place.before,
            width = place.width
        )?;
        if let Some(help) = &self.help {
            write!(f, "\n{:gutter$} = {help}", "")?;
        }
        Ok(())
    }
}

impl Place {
    fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[..line_start].matches('\n').count() + 1;
        let before = text[line_start..start].chars().count();
        let width = text[start..end.min(line_end).max(start)].chars().count().max(1);

        let whole: Vec<char> =
            mask(&clean(&text[line_start..line_end], usize::MAX)).chars().collect();
        let cut = before.saturating_sub(SHOWN_COLUMNS / 2);
        let cut = if whole.len() <= SHOWN_COLUMNS { 0 } else { cut };
        let shown: String = whole.iter().skip(cut).take(SHOWN_COLUMNS).collect();
        let shown = shown.trim_end().to_owned();
        let before_shown = before - cut;
        let width = width.min(SHOWN_COLUMNS.saturating_sub(before_shown)).max(1);
        Self { line, column: before + 1, shown, before: before_shown, width }
    }
}

/// Turns serde's wording of an unknown name into ours: the message and the help.
pub(crate) fn explain(message: &str) -> (String, Option<String>) {
    let message = &mask(message);
    let kinds = [("unknown field ", "key"), ("unknown variant ", "value")];
    for (prefix, kind) in kinds {
        if !message.starts_with(prefix) {
            continue;
        }
        // serde: unknown field `a`, expected one of `b`, `c`.
        let (written, rest) = match message[prefix.len()..].rsplit_once("`, ") {
            Some((written, rest)) if rest.contains("expected") => (written, rest),
            _ => message[prefix.len()..].split_once("`, expected ").unwrap_or((message, "")),
        };
        return explain_name(kind, written.trim_start_matches('`'), rest);
    }
    let message = message.trim_end().replace('\n', "; ");
    match message.strip_prefix("missing field ") {
        Some(key) => (format!("missing key {key}"), None),
        None => (message, None),
    }
}

/// The same as one text.
#[must_use]
pub fn explained(message: &str) -> String {
    let (message, help) = explain(message);
    help.map_or_else(|| message.clone(), |help| format!("{message}: {help}"))
}

fn explain_name(kind: &str, written: &str, rest: &str) -> (String, Option<String>) {
    let valid: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let message = format!("unknown {kind} `{written}`");
    let help = match nearest(written, valid.iter().copied()) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if valid.is_empty() => None,
        None => Some(format!("valid here: {}", valid.join(", "))),
    };
    (message, help)
}

/// A text as it may be shown: bounded, and without control characters, which could steer the terminal.
fn clean(text: &str, limit: usize) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().take(limit).map(shown).collect()
}

/// A text of the file with all that looks like a key replaced by as many asterisks.
fn mask(text: &str) -> String {
    let mut shown: Vec<char> = text.chars().collect();
    let is_digit = |c: &&char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut start = 0;
    while start < shown.len() {
        let run = shown[start..].iter().take_while(is_digit).count();
        if run >= SECRET_RUN {
            shown[start..start + run].fill('*');
        }
        start += run + 1;
    }
    shown.into_iter().collect()
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place() {
        let text = "a = 1\n\tkeepaliv = \"15s\"\n";
        let error = ConfigError::at(Path::new("c.toml"), text, 7..15, "unknown key `keepaliv`")
            .with_help("did you mean `keepalive`?");
        assert_eq!(
            error.to_string(),
            "c.toml:2:2: unknown key `keepaliv`\n  |\n2 |  keepaliv = \"15s\"\n  |  ^^^^^^^^\n  \
             = did you mean `keepalive`?"
        );
    }

    #[test]
    fn any_span_of_any_text_has_a_place() {
        let text = "ä = \"ö\"\r\nß\u{1b}[31m\n\n";
        for start in 0..text.len() + 3 {
            for end in 0..text.len() + 3 {
                let error = ConfigError::at(Path::new("c"), text, start..end, "m");
                assert!(!error.to_string().contains('\u{1b}'), "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("x = [{}oops]", "1, ".repeat(400));
        let at = text.find("oops").unwrap();
        let error = ConfigError::at(Path::new("c"), &text, at..at + 4, "m").to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert!(lines[2].len() < 90, "{error}");
        assert_eq!(lines[2].find("oops"), lines[3].find("^^^^"), "{error}");
    }

    #[test]
    fn a_key_in_the_line_or_the_message_is_masked() {
        let key = "eFFhV2VydHpVaW9wQXNkZkdoamtMenhjdmJubTEyMzQ=";
        let text = format!("private_kye = \"{key}\"");
        let message = format!("invalid type: string \"{key}\"");
        let (message, _) = explain(&message);
        let error = ConfigError::at(Path::new("c"), &text, 0..11, &message).to_string();
        assert!(!error.contains("eFFh"), "{error}");
        assert!(error.contains("private_kye"), "{error}");
    }
}
