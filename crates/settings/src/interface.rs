//! Names of interfaces, and of the links that are called like them.

use std::fmt;

use arrayvec::ArrayString;

use crate::text::Text;

/// The name of a network interface as the kernel takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Bytes of the longest name (Linux: `IFNAMSIZ` less the final zero).
    pub const MAX_BYTES: usize = 15;

    /// The interface of this name, which need not exist.
    ///
    /// # Errors
    /// The kernel could not give an interface this name; the message says why.
    pub fn new(name: &str) -> Result<Self, String> {
        Self::from_text(name)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Text for InterfaceName {
    const EXPECTED: &'static str = "the name of an interface, such as \"wlan0\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
        if text.is_empty() || matches!(text, "." | "..") || !text.chars().all(legal) {
            return Err(format!("`{text}` is not {}", Self::EXPECTED));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(format!(
                "`{text}` has {} characters; an interface's name has at most {}",
                text.len(),
                Self::MAX_BYTES
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// As much of a link's name as the wire carries, cut at a character: as long as an interface's.
#[must_use]
pub fn shortened(name: &str) -> ArrayString<{ InterfaceName::MAX_BYTES }> {
    let mut short = ArrayString::new();
    for character in name.chars() {
        if short.try_push(character).is_err() {
            break;
        }
    }
    short
}
