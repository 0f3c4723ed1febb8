//! The report: one text that a person can read through before it is sent, or one document for programs. It says what is in it, where
//! each part is from, what could not be had and why, and what was left out.

use serde::Serialize;

use super::hide::Hider;
use crate::exit::plain;

/// Bytes of a part at most: some thousand lines, more than anybody reads.
pub(crate) const MOST_OF_A_PART: usize = 128 << 10;

/// Bytes of all parts together: trackers of issues take some times as much.
const MOST_IN_ALL: usize = 2 << 20;

/// Bytes of which a part makes use: with less it is left out as a whole.
const LEAST_ROOM: usize = 4 << 10;

/// The version of the document: it grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// How a text is hidden, and which end of it is kept where it is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// What a program prints, or a document whose names of clients were replaced.
    Output,
    /// Lines of a log, the last of which count.
    Log,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: u32,
    /// When it was made, in UTC.
    made: String,
    /// By which program, and as whom.
    by: String,
    /// What is not in it, or hidden; a sentence each.
    left_out: Vec<String>,
    parts: Vec<Part>,
}

/// One part.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Part {
    title: String,
    /// The command or file that it is from.
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Why there is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_had: Option<String>,
    /// Lines that were too many.
    lines_left_out: usize,
}

impl Report {
    /// One without parts.
    pub(crate) fn new(made: String, by: String, left_out: Vec<String>) -> Self {
        Self { version: VERSION, made, by, left_out, parts: Vec::new() }
    }

    /// A part that was had, or why it was not. Nothing comes in that `hider` has not seen.
    pub(crate) fn add(
        &mut self,
        hider: &mut Hider,
        (title, from): (&str, &str),
        nature: Nature,
        found: Result<String, String>,
    ) {
        let room = MOST_IN_ALL.saturating_sub(self.bytes()).min(MOST_OF_A_PART);
        let mut hidden = |text: &str| {
            let text = plain(text);
            match nature {
                Nature::Output => hider.text(&text),
                Nature::Log => hider.prose(&text),
            }
        };
        let (title, from) = (hidden(title), hidden(from));
        let (text, not_had, lines_left_out) = match found {
            Ok(text) if text.len() > room && room < LEAST_ROOM => {
                (None, Some("the report is long enough without it".to_owned()), 0)
            }
            Ok(text) => {
                // Hidden before it is cut, since half a secret may not look like one.
                let (text, cut) = bounded(&hidden(&text), room, nature);
                (Some(text), None, cut)
            }
            Err(why) => (None, Some(hidden(&why)), 0),
        };
        self.parts.push(Part { title, from, text, not_had, lines_left_out });
    }

    /// How many parts could not be had.
    pub(crate) fn missing(&self) -> usize {
        self.parts.iter().filter(|part| part.not_had.is_some()).count()
    }

    fn bytes(&self) -> usize {
        self.parts.iter().filter_map(|part| part.text.as_ref()).map(String::len).sum()
    }

    /// The text, in Markdown.
    pub(crate) fn text(&self) -> String {
        let Self { made, by, left_out, parts, .. } = self;
        let mut page = format!(
            "# Ropewalk bug report\n\nMade at {made} by {by}. Read it through before you send it, and take out what you like: it is a text.\n\n\
             ## What happened\n\nPlease write here what you did, what you expected, what came instead, and when.\n\n\
             ## What is in it\n\n| part | from | |\n| --- | --- | --- |\n"
        );
        for part in parts {
            let (title, anchor) = (&part.title, anchor(&part.title));
            let from = cell(&part.from);
            page += &format!("| [{title}](#{anchor}) | `{from}` | {} |\n", cell(&part.extent()));
        }
        page += "\n## What was left out\n\n";
        for sentence in left_out {
            page += &format!("- {sentence}\n");
        }
        for part in parts {
            page += &format!("\n## {}\n\n", part.title);
            page += &match (&part.text, &part.not_had) {
                (Some(text), _) => fenced(text),
                (None, Some(why)) => format!("Not had: {why}.\n"),
                (None, None) => String::new(),
            };
        }
        page
    }

    /// The document, in JSON.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl Part {
    /// How much of it there is, for the table of contents.
    fn extent(&self) -> String {
        match (&self.text, &self.not_had) {
            (Some(text), _) => {
                let lines = text.lines().count();
                let lines = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
                match self.lines_left_out {
                    0 => lines,
                    more => format!("{lines}, and {more} left out"),
                }
            }
            (None, Some(why)) => format!("not had: {why}"),
            (None, None) => String::new(),
        }
    }
}

/// The text within `most` bytes, in whole lines, and how many lines were left out.
fn bounded(text: &str, most: usize, nature: Nature) -> (String, usize) {
    if text.len() <= most {
        return (text.to_owned(), 0);
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut room = most;
    let mut fits = |line: &&&str| {
        let is_room = line.len() <= room;
        room = room.saturating_sub(line.len());
        is_room
    };
    let kept: Vec<&str> = match nature {
        Nature::Output => lines.iter().take_while(&mut fits).copied().collect(),
        Nature::Log => {
            let mut last: Vec<&str> = lines.iter().rev().take_while(&mut fits).copied().collect();
            last.reverse();
            last
        }
    };
    let left_out = lines.len() - kept.len();
    (kept.concat(), left_out)
}

/// Between fences that nothing in the text closes.
fn fenced(text: &str) -> String {
    let ticks = |line: &str| line.trim_start().bytes().take_while(|byte| *byte == b'`').count();
    let longest = text.lines().map(ticks).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// The name by which a link leads to a heading.
fn anchor(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// On one line, and with no bar that would end a cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> (Report, Hider) {
        let left_out = vec!["No keys.".to_owned()];
        let (made, by) = ("2026-11-27T16:32:00Z".to_owned(), "ropewalk 1, as root".to_owned());
        (Report::new(made, by, left_out), Hider::new(false))
    }

    #[test]
    fn it_begins_with_what_is_in_it_and_says_what_could_not_be_had() {
        let (mut report, mut hider) = report();
        let mut add = |title, found: Result<&str, &str>| {
            let found = found.map(str::to_owned).map_err(str::to_owned);
            report.add(&mut hider, (title, "ip rule"), Nature::Output, found);
        };
        add("Rules", Ok("0: from all lookup local\n5300: from 203.0.113.7 lookup 7701\n"));
        add("Client: status", Err("no daemon answers | at /run/x"));
        add("Odd", Ok("```\n\u{1b}[2Jx"));
        let expected = "\
# Ropewalk bug report

Made at 2026-11-27T16:32:00Z by ropewalk 1, as root. Read it through before you send it, and take out what you like: it is a text.

## What happened

Please write here what you did, what you expected, what came instead, and when.

## What is in it

| part | from | |
| --- | --- | --- |
| [Rules](#rules) | `ip rule` | 2 lines |
| [Client: status](#client-status) | `ip rule` | not had: no daemon answers \\| at /run/x |
| [Odd](#odd) | `ip rule` | 2 lines |

## What was left out

- No keys.

## Rules

```text
0: from all lookup local
5300: from <v4-1> lookup 7701
```

## Client: status

Not had: no daemon answers | at /run/x.

## Odd

````text
```
\u{fffd}[2Jx
````
";
        assert_eq!(report.text(), expected);
        assert_eq!(report.missing(), 1);
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["parts"][1]["not_had"], "no daemon answers | at /run/x");
        assert_eq!(json["parts"][0]["lines_left_out"], 0);
    }

    #[test]
    fn a_long_part_keeps_the_end_that_counts_and_the_whole_is_bounded() {
        let (mut report, mut hider) = report();
        let line = |number: usize| format!("line {number} {}\n", "x".repeat(90));
        let long: String = (0..4000).map(line).collect();
        for nature in [Nature::Output, Nature::Log] {
            report.add(&mut hider, ("Long", "x"), nature, Ok(long.clone()));
        }
        let [first, last] = &report.parts[..] else { panic!("two parts") };
        let of = |part: &Part| part.text.clone().unwrap();
        assert!(of(first).len() <= MOST_OF_A_PART && of(last).len() <= MOST_OF_A_PART);
        assert!(of(first).starts_with(&line(0)) && of(last).ends_with(&line(3999)));
        assert!(of(last).starts_with("line "), "whole lines only");
        assert_eq!(of(first).lines().count() + first.lines_left_out, 4000);
        for _ in 0..40 {
            report.add(&mut hider, ("Long", "x"), Nature::Output, Ok(long.clone()));
        }
        assert!(report.bytes() <= MOST_IN_ALL, "{}", report.bytes());
        assert!(report.missing() > 0);
    }

    #[test]
    fn one_line_without_an_end_leaves_nothing_and_is_counted() {
        assert_eq!(bounded(&"x".repeat(50), 40, Nature::Log), (String::new(), 1));
        assert_eq!(bounded("a\nb\n", 2, Nature::Log), ("b\n".to_owned(), 1));
        assert_eq!(bounded("a\nb\n", 2, Nature::Output), ("a\n".to_owned(), 1));
        assert_eq!(bounded("é\nb", 3, Nature::Output), ("é\n".to_owned(), 1));
    }
}
