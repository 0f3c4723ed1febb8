//! Every key of `client.toml` and `proxy.toml`, as the sample configs explain them. Other tests hold the samples to the
//! program: each key is there, with its default.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use ropewalk_control::api::Role;
use ropewalk_settings::{TunnelSection, TunnelSettings};
use toml::Table;

use super::{cell, head};

const CLIENT: &str = include_str!("../../../../../configs/client.toml");
const PROXY: &str = include_str!("../../../../../configs/proxy.toml");

/// The sample of a daemon's config, with every key and its default.
pub(crate) const fn sample(role: Role) -> &'static str {
    match role {
        Role::Client => CLIENT,
        Role::Proxy => PROXY,
    }
}

/// Every key that a sample shows, by its path, such as `tunnel.redundant.budget`.
///
/// # Errors
/// The sample has a line that is neither a comment nor a key.
pub(crate) fn paths(role: Role) -> Result<BTreeSet<String>> {
    let sections = sections(sample(role))?;
    let of_section = |section: &Section| {
        let heading = section.heading.trim_matches(['[', ']']);
        let begin = if heading.is_empty() { String::new() } else { format!("{heading}.") };
        section.keys.iter().map(|key| format!("{begin}{}", key.name)).collect::<Vec<_>>()
    };
    Ok(sections.iter().flat_map(of_section).collect())
}

/// The page.
pub(super) fn page() -> Result<String> {
    let mut page = head("Settings");
    page += "\nDurations need a unit (`\"15s\"`, `\"100ms\"`), sizes too (`\"16MiB\"`). Relative file names are relative to the folder of \
             the file. `ropewalk check-config FILE` says what is wrong with yours, and `ropewalk reload` takes it over.\n";
    for (file, sample) in [("client.toml", CLIENT), ("proxy.toml", PROXY)] {
        page += &format!("\n## {file}\n");
        let sections = sections(sample).with_context(|| format!("the sample {file}"))?;
        for section in sections {
            page += &section.written();
        }
    }
    Ok(page)
}

/// One table of the file.
#[derive(Default)]
struct Section {
    /// As it is written, such as `[tunnel.redundant]`; empty for the keys before the first one.
    heading: String,
    /// What is said before its heading.
    text: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    value: String,
    /// The line is a comment in the sample: there is no default, or it depends on other keys.
    commented: bool,
    meaning: String,
}

impl Section {
    fn written(&self) -> String {
        let mut written = String::new();
        if !self.heading.is_empty() {
            written += &format!("\n### `{}`\n", self.heading);
        }
        if !self.text.is_empty() {
            written += &format!("\n{}\n", self.text);
        }
        if self.keys.is_empty() {
            return written;
        }
        written += "\n| key | default | |\n| --- | --- | --- |\n";
        for key in &self.keys {
            let default = if !key.commented || self.is_default(key) {
                format!("`{}`", key.value)
            } else {
                format!("none; for example `{}`", key.value)
            };
            written +=
                &format!("| `{}` | {} | {} |\n", key.name, cell(&default), cell(&key.meaning));
        }
        written
    }

    /// Whether a key that is a comment changes nothing when it is written, as those that a profile sets.
    fn is_default(&self, key: &Key) -> bool {
        let Some(path) = self.heading.trim_matches(['[', ']']).strip_prefix("tunnel") else {
            return false;
        };
        let path = path.trim_start_matches('.');
        let table = if path.is_empty() { String::new() } else { format!("[{path}]\n") };
        toml::from_str::<TunnelSection>(&format!("{table}{} = {}\n", key.name, key.value))
            .is_ok_and(|section| section.resolve() == Ok(TunnelSettings::default()))
    }
}

/// The sections of a sample, in order.
fn sections(sample: &str) -> Result<Vec<Section>> {
    let mut sections = vec![Section::default()];
    let mut comment: Vec<&str> = Vec::new();
    // What the file says of itself stands on the page already.
    let (_, body) = sample.split_once("\n\n").unwrap_or(("", sample));
    for line in body.lines() {
        let uncommented = line.strip_prefix("# ");
        let entry = uncommented.unwrap_or(line);
        let Some(section) = sections.last_mut() else { bail!("no section") };
        if line.is_empty() {
            let text = std::mem::take(&mut comment).join(" ");
            if !text.is_empty() {
                section.text = [&*section.text, &text].join(" ").trim().to_owned();
            }
        } else if entry.starts_with('[') && entry.ends_with(']') {
            let text = std::mem::take(&mut comment).join(" ");
            sections.push(Section { heading: entry.to_owned(), text, keys: Vec::new() });
        } else if let Some((name, value)) = key(entry) {
            let (value, trailing) = value.split_once(" # ").unwrap_or((value, ""));
            let said = std::mem::take(&mut comment);
            let mut meaning =
                said.into_iter().chain([trailing.trim()]).collect::<Vec<_>>().join(" ");
            if meaning.trim().is_empty() && !section.keys.is_empty() {
                "see above".clone_into(&mut meaning);
            }
            section.keys.push(Key {
                name: name.to_owned(),
                value: value.trim().to_owned(),
                commented: uncommented.is_some(),
                meaning,
            });
        } else if let Some(text) = uncommented {
            comment.push(text);
        } else {
            bail!("`{line}` is neither a comment nor a key");
        }
    }
    Ok(sections)
}

/// A line that sets a key, also in a comment: its name and value.
fn key(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = ")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    // A sentence may have a key at the beginning of a line.
    let whole = || line.parse::<Table>().is_ok();
    (!name.is_empty() && name.chars().all(plain) && whole()).then_some((name, value))
}
