//! Names of interfaces and links with wildcards: one setting for `wlan0`, `wlan1` and whatever comes.

use std::fmt;

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::{InterfaceName, Text};

/// A name, or a pattern of names: `*` stands for any characters, also none, and `?` for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamePattern(String);

impl NamePattern {
    /// Characters of the longest pattern: some wildcards in the longest name.
    const MAX_BYTES: usize = 2 * InterfaceName::MAX_BYTES;

    /// A name that means itself only.
    #[must_use]
    pub fn exact(name: &InterfaceName) -> Self {
        Self(name.to_string())
    }

    /// Whether it means one name only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        is_exact(&self.0)
    }

    /// Whether it means this name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Text for NamePattern {
    const EXPECTED: &'static str =
        "the name of an interface or a pattern of names, such as \"wlan0\" or \"wlan*\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if is_exact(text) {
            return InterfaceName::from_text(text).map(|name| Self::exact(&name));
        }
        let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
        if !text.chars().all(legal) {
            return Err(format!("`{text}` is not {}", Self::EXPECTED));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(format!(
                "`{text}` has {} characters; a pattern has at most {}",
                text.len(),
                Self::MAX_BYTES
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Characters of a pattern that are no wildcards: of two that mean a name, the one with more of them says more.
#[must_use]
pub fn literals(pattern: &str) -> usize {
    pattern.chars().filter(|c| !matches!(c, '*' | '?')).count()
}

/// Whether it is a name without wildcards.
#[must_use]
pub fn is_exact(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

/// Whether `pattern` means `name`.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    if is_exact(pattern) { pattern == name } else { WildMatch::new(pattern).matches(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_the_names_that_its_wildcards_can_stand_for() {
        let table = [
            ("wlan0", "wlan0", true),
            ("wlan0", "wlan01", false),
            ("wlan*", "wlan0", true),
            ("wlan*", "wlan", true),
            ("wlan*", "wlp3s0", false),
            ("w*0", "wlp3s0", true),
            ("usb?", "usb1", true),
            ("usb?", "usb10", false),
            ("*", "anything", true),
            ("en*s?", "enp0s3", true),
        ];
        for (pattern, name, expected) in table {
            let read = NamePattern::from_text(pattern).unwrap();
            assert_eq!(read.matches(name), expected, "{pattern} and {name}");
        }
    }

    #[test]
    fn what_no_interface_can_be_called_is_refused() {
        let long = "a".repeat(16);
        let long_pattern = format!("{}*", "a".repeat(30));
        for text in ["", ".", "wl an*", "wlan/0", "wl:*", &long, &long_pattern] {
            assert!(NamePattern::from_text(text).is_err(), "{text}");
        }
    }
}
