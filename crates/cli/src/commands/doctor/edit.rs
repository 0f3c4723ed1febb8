//! Commands that change a config file in place.

use std::path::Path;

/// Whether `exclude_interfaces` stands in the client's config yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclude {
    /// No: a line can be put on top.
    Add,
    /// Yes: a person must add to it.
    Extend,
}

impl Exclude {
    /// What leaves this interface out.
    pub(super) fn command(self, interface: &str, file: &Path) -> String {
        let file = file.display();
        match self {
            Self::Add => {
                format!("sudo sed -i '1i exclude_interfaces = [\"{interface}\"]' {file}")
            }
            Self::Extend => format!("sudoedit {file}"),
        }
    }
}

/// What puts one text in the place of another; neither holds a `|`.
pub(super) fn replace(old: &str, new: &str, file: &Path) -> String {
    format!("sudo sed -i 's|{old}|{new}|' {}", file.display())
}
