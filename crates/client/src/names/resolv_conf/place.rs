//! What stands at the place of `/etc/resolv.conf`: looked at, and written as a whole or, where it cannot be replaced, in
//! place.
//!
//! A file is always written as root's with mode 644: what somebody else recorded gives no owner and no mode.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How the name of a file begins that takes the place of this one when it is finished.
pub(super) const NEW: &str = ".resolv.conf.ropewalk-";

/// Bytes of the longest file that is kept: far beyond what a resolver reads.
const MAX_BYTES: u64 = 64 * 1024;

/// What stands, or stood, at the file's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub(super) enum Place {
    Absent,
    Symlink {
        target: PathBuf,
    },
    File {
        /// Each byte as one character, so that any bytes survive and text stays readable.
        content: String,
    },
}

/// Where programs keep the file that `/etc/resolv.conf` then leads to: systemd-resolved, NetworkManager, resolvconf and
/// openresolv, ConnMan, netconfig. With `..` as they write it, too.
pub(super) const LINKS: [&str; 14] = [
    "/run/systemd/resolve/stub-resolv.conf",
    "../run/systemd/resolve/stub-resolv.conf",
    "/run/systemd/resolve/resolv.conf",
    "../run/systemd/resolve/resolv.conf",
    "/usr/lib/systemd/resolv.conf",
    "../usr/lib/systemd/resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "../run/NetworkManager/resolv.conf",
    "/var/run/NetworkManager/resolv.conf",
    "/run/resolvconf/resolv.conf",
    "../run/resolvconf/resolv.conf",
    "/etc/resolvconf/run/resolv.conf",
    "/run/connman/resolv.conf",
    "/run/netconfig/resolv.conf",
];

/// What a line of the file may begin with (`resolv.conf(5)`, and what other systems and old ones had).
const KEYWORDS: [&str; 8] =
    ["nameserver", "search", "domain", "options", "sortlist", "lookup", "family", "lwserver"];

/// Resolvers read shorter lines.
const MAX_LINE: usize = 2048;

/// What became of writing it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// It stands there, and its folder is on disk.
    Whole,
    /// The file there cannot be replaced, perhaps be written: nothing was changed.
    Fixed,
}

impl Place {
    /// What stands there; `None`: a folder, a device, or too long.
    pub(super) fn look(place: &Path) -> io::Result<Option<Self>> {
        let found = match std::fs::symlink_metadata(place) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Self::Absent)),
            Err(error) => return Err(error),
        };
        if found.is_symlink() {
            return Ok(Some(Self::Symlink { target: std::fs::read_link(place)? }));
        }
        let mut bytes = Vec::new();
        if found.is_file() {
            File::open(place)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        }
        if !found.is_file() || bytes.len() as u64 > MAX_BYTES {
            return Ok(None);
        }
        let content = bytes.into_iter().map(char::from).collect();
        Ok(Some(Self::File { content }))
    }

    /// Puts it there as a whole, where that can be.
    pub(super) fn put(&self, place: &Path) -> io::Result<Written> {
        let folder = place.parent().unwrap_or(Path::new("/"));
        match self {
            Self::Absent => std::fs::remove_file(place)?,
            Self::Symlink { target } => replace_by_link(place, folder, target)?,
            Self::File { content } => match replace(place, folder, &bytes(content)) {
                Err(error) if is_fixed(&error) => return Ok(Written::Fixed),
                done => done?,
            },
        }
        File::open(folder)?.sync_all()?;
        Ok(Written::Whole)
    }

    /// Writes its text over that of the file that stands there.
    pub(super) fn put_in_place(&self, place: &Path) -> io::Result<()> {
        match self {
            Self::File { content } => write_in_place(place, &bytes(content)),
            Self::Absent | Self::Symlink { .. } => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Why root may not put it there on the word of a less trusted user: it is more than a choice of name servers.
    pub(super) fn objection(&self) -> Option<String> {
        match self {
            Self::Absent => None,
            Self::Symlink { target } => {
                let known = LINKS.iter().any(|known| Path::new(known) == target.as_path());
                (!known).then(|| {
                    format!(
                        "no program keeps a resolv.conf at {}",
                        target.display().to_string().escape_debug()
                    )
                })
            }
            Self::File { content } => objection_to(content),
        }
    }

    /// Whether it is a file of this text.
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self, Self::File { content } if content == text)
    }

    /// Whether programs read the same there.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { content: one }, Self::File { content: other }) => one == other,
            _ => self == other,
        }
    }
}

/// What is more in a text than a choice of name servers.
fn objection_to(content: &str) -> Option<String> {
    if content.len() as u64 > MAX_BYTES {
        return Some(format!("it is longer than {MAX_BYTES} bytes"));
    }
    if content.starts_with("#!") {
        return Some("it begins as a program".to_owned());
    }
    let objection = |line: &str| {
        let line = line.trim_end_matches('\r');
        if line.len() > MAX_LINE {
            return Some("is too long");
        }
        // Each character is a byte.
        let odd = |byte: char| byte > '\u{ff}' || byte != '\t' && byte.is_ascii_control();
        if line.contains(odd) {
            return Some("holds what is no text");
        }
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        match words.next() {
            None => None,
            Some(word) if word.starts_with(['#', ';']) => None,
            Some("nameserver") => {
                let address = words.next().unwrap_or_default();
                let address = address.split('%').next().unwrap_or_default();
                address.parse::<IpAddr>().is_err().then_some("names no address")
            }
            Some(word) => (!KEYWORDS.contains(&word)).then_some("is none of resolv.conf"),
        }
    };
    let mut lines = (1..).zip(content.split('\n'));
    lines.find_map(|(number, line)| Some(format!("line {number} {}", objection(line)?)))
}

/// The bytes of a content; what is no byte (a record that was tampered with) becomes a question mark.
fn bytes(content: &str) -> Vec<u8> {
    content.chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

fn replace(file: &Path, folder: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = tempfile::Builder::new().prefix(NEW).tempfile_in(folder)?;
    new.write_all(content)?;
    // Everybody reads it; it is its maker's, who is root or has root's right to write it.
    new.as_file().set_permissions(Permissions::from_mode(0o644))?;
    new.as_file().sync_all()?;
    new.persist(file).map(drop).map_err(|error| error.error)
}

fn replace_by_link(file: &Path, folder: &Path, target: &Path) -> io::Result<()> {
    let new = tempfile::Builder::new().prefix(NEW).make_in(folder, |path| symlink(target, path))?;
    new.persist(file).map(drop).map_err(|error| error.error)
}

/// Whether the file is one that cannot be replaced, and perhaps written.
fn is_fixed(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    [CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy].contains(&error.kind())
}

fn write_in_place(file: &Path, content: &[u8]) -> io::Result<()> {
    // What a link leads to is not recorded.
    if std::fs::symlink_metadata(file)?.is_symlink() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut file = OpenOptions::new().write(true).truncate(true).open(file)?;
    file.write_all(content)?;
    file.sync_all()
}
