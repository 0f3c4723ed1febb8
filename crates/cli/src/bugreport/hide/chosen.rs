//! What tells of the programs and domains that somebody's config chooses for a tunnel: entries of `routes` and `exclude`, control
//! groups, and the numbers of rules, which are made of the entries and could be guessed back.

use ropewalk_settings::selector::app_of_scope;

use super::shapes::run_within;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// An entry: the word in front of its colon, and its name.
    Entry(&'static str, String),
    /// What stands in front of a control group in a rule of the firewall, and its path.
    Group(String, String),
    /// A control group that `ropewalk run` made: for which application.
    Scope(String),
    /// What stands in front of the number of a rule, and the number.
    Rule(&'static str, String),
}

/// The words of entries that are no prefixes.
const WORDS: [&str; 5] = ["app", "cgroup", "domain", "unit", "user"];

/// Characters of the longest name of an entry: the path of a control group.
const MOST_OF_A_NAME: usize = 512;

/// What stands for a name where it is said how entries are written.
const PLACES: [&str; 2] = ["NAME", "PATH"];

/// What stands in front of a control group in a rule of the firewall.
const IN_A_RULE: &str = "socket cgroupv2 level ";

/// How the name of a control group of `ropewalk run` begins, and the characters of the longest: that of a file.
pub(super) const SCOPE: &str = "ropewalk-app-";
const MOST_OF_A_SCOPE: usize = 255;

/// What stands in front of the number of a rule: in the names of its counter, chain and sets, and in its marks.
const BEFORE_A_NUMBER: [&str; 8] =
    ["counter r", "chain r", "set r", "goto r", "name \"r", "@r", "0x5258", "0x5259"];

/// Digits of that number, in hexadecimal.
const DIGITS: usize = 4;

/// What stands at the beginning of `rest`, and its bytes.
pub(super) fn at(rest: &str) -> Option<(usize, Chosen)> {
    entry(rest).or_else(|| group(rest)).or_else(|| scope(rest)).or_else(|| rule(rest))
}

fn entry(rest: &str) -> Option<(usize, Chosen)> {
    let is_it = |word: &&str| rest.strip_prefix(*word).is_some_and(|after| after.starts_with(':'));
    let word = WORDS.into_iter().find(is_it)?;
    let after = &rest[word.len() + 1..];
    // The path of a control group may hold what ends other names.
    let ends = if word == "cgroup" { "\"'`$;{}" } else { "\"'`<>,;()[]{}|" };
    let is_end = |c: char| c.is_whitespace() || c.is_control() || ends.contains(c);
    let most = after.char_indices().nth(MOST_OF_A_NAME).map_or(after.len(), |(at, _)| at);
    let name = &after[..most];
    let name = &name[..name.find(is_end).unwrap_or(name.len())];
    // These belong to the sentence, or to the quote.
    let name = name.trim_end_matches(['.', ',', ':', '\\']);
    let is_number = word == "user" && name.bytes().all(|byte| byte.is_ascii_digit());
    if name.is_empty() || is_number || name.starts_with('<') || PLACES.contains(&name) {
        return None;
    }
    let length = word.len() + 1 + name.len();
    let name = if word == "domain" { name.to_lowercase() } else { name.to_owned() };
    Some((length, Chosen::Entry(word, name)))
}

fn group(rest: &str) -> Option<(usize, Chosen)> {
    let after = rest.strip_prefix(IN_A_RULE)?;
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let path = [" \"", " \\\""].into_iter().find_map(|quote| after.strip_prefix(quote))?;
    if path.starts_with('<') {
        return None;
    }
    let before = &rest[..rest.len() - path.len()];
    let path = &path[..path.find(['"', '\n']).unwrap_or(path.len())];
    let path = path.trim_end_matches('\\');
    Some((before.len() + path.len(), Chosen::Group(before.to_owned(), path.to_owned())))
}

fn scope(rest: &str) -> Option<(usize, Chosen)> {
    if !rest.starts_with(SCOPE) {
        return None;
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let name = rest[..run_within(rest, MOST_OF_A_SCOPE, is_of_name)].trim_end_matches('.');
    Some((name.len(), Chosen::Scope(app_of_scope(name)?.to_owned())))
}

fn rule(rest: &str) -> Option<(usize, Chosen)> {
    let before = BEFORE_A_NUMBER.into_iter().find(|before| rest.starts_with(*before))?;
    let (number, after) = rest[before.len()..].split_at_checked(DIGITS)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    // Marks of all rules of a side have the number 0.
    let is_number = number.bytes().all(is_digit) && number.bytes().any(|byte| byte != b'0');
    let goes_on = after.starts_with(|c: char| c.is_ascii_alphanumeric());
    (is_number && !goes_on)
        .then(|| (before.len() + DIGITS, Chosen::Rule(before, number.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::selector::scope_of_app;

    #[test]
    fn each_ends_where_it_ends() {
        let entry = |word, name: &str| Chosen::Entry(word, name.to_owned());
        let path = "a.slice/b\\x2d.scope";
        let group = |before: &str| Chosen::Group(before.to_owned(), path.to_owned());
        let rule = |before| Chosen::Rule(before, "0a1f".to_owned());
        for (text, end, expected) in [
            ("domain:Example.org: it has", ": it has", entry("domain", "example.org")),
            ("domain:example.org\\\",\\\"x", "\\\",\\\"x", entry("domain", "example.org")),
            ("app:firefox, user:x", ", user:x", entry("app", "firefox")),
            ("unit:a@*.service.", ".", entry("unit", "a@*.service")),
            ("user:PC01$)", ")", entry("user", "PC01$")),
            ("cgroup:a.slice/b,(c)` is", "` is", entry("cgroup", "a.slice/b,(c)")),
            (
                "socket cgroupv2 level 2 \"a.slice/b\\x2d.scope\" goto",
                "\" goto",
                group("socket cgroupv2 level 2 \""),
            ),
            (
                "socket cgroupv2 level 12 \\\"a.slice/b\\x2d.scope\\\" goto",
                "\\\" goto",
                group("socket cgroupv2 level 12 \\\""),
            ),
            (
                "socket cgroupv2 level 2 \"a.slice/b\\x2d.scope\n^^^",
                "\n^^^",
                group("socket cgroupv2 level 2 \""),
            ),
            ("goto r0a1f }", " }", rule("goto r")),
            ("@r0a1f_4 goto", "_4 goto", rule("@r")),
            ("name \"r0a1f\" ct", "\" ct", rule("name \"r")),
            ("0x52590a1f", "", rule("0x5259")),
        ] {
            assert_eq!(at(text), Some((text.len() - end.len(), expected)), "{text}");
        }
        let scope = scope_of_app("google-chrome", 4711);
        let expected = (scope.len(), Chosen::Scope("google-chrome".to_owned()));
        assert_eq!(at(&format!("{scope}. It")), Some(expected));
    }

    #[test]
    fn what_only_looks_alike_and_what_is_hidden_already_is_left() {
        for text in [
            "user:1000",
            "user:NAME:",
            "user: anna",
            "domain:<host-1>",
            "cgroup:",
            "application:x",
            "socket cgroupv2 level 2 \"<cgroup-1>\"",
            "ropewalk-app-x",
            "counter reject with tcp reset",
            "set rt mtu",
            "goto r0a1f2",
            "0x52580000/16",
            "0x52570001",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
