//! Words of a command line that a shell takes as they are.

use std::path::Path;

/// A word of a command line. What comes from a network or a name is no part of the shell's language.
pub(super) fn quoted(word: &str) -> String {
    let word: String = word.chars().filter(|character| *character != '\0').collect();
    shlex::try_quote(&word).map_or_else(|_| String::new(), std::borrow::Cow::into_owned)
}

/// A file as a word of a command line.
pub(super) fn file(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_to_the_shell() {
        assert_eq!(quoted("http://x/';id;'"), "\"http://x/';id;'\"");
        assert_eq!(
            file(Path::new("/etc/ropewalk/client/client.toml")),
            "/etc/ropewalk/client/client.toml"
        );
    }
}
