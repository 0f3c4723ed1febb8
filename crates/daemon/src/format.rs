//! The version of a JSON file that a daemon keeps: a file of a newer program is not a damaged one.

use serde::Deserialize;

/// A file was written by a newer version of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it was written by a newer version of ropewalk (format {found}, this program knows up to {known}): upgrade, or restore a \
     backup"
)]
pub struct NewerFormat {
    /// The version that it says.
    pub found: u64,
    /// The newest one that this program reads.
    pub known: u32,
}

/// Whether this program knows the format of a file. It looks at nothing but the field `version`, as a newer format may
/// have any other fields; a file without one is left to who reads it.
///
/// # Errors
/// It is newer than `known`.
pub fn check(json: &[u8], known: u32) -> Result<(), NewerFormat> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    match serde_json::from_slice(json) {
        Ok(Version { version: found }) if found > u64::from(known) => {
            Err(NewerFormat { found, known })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_higher_version_is_newer_whatever_else_the_file_holds() {
        for (text, newer) in [
            ("{\"version\":3,\"other\":[{\"x\":1}]}", true),
            ("{\"version\":2}", false),
            ("{\"version\":0}", false),
            ("{\"version\":-1}", false),
            ("{\"version\":\"3\"}", false),
            ("{\"version\":3", false),
            ("{}", false),
            ("", false),
        ] {
            assert_eq!(check(text.as_bytes(), 2).is_err(), newer, "{text}");
        }
        let said = check(b"{\"version\":3}", 2).unwrap_err().to_string();
        assert!(said.contains("newer version of ropewalk (format 3"), "{said}");
    }
}
