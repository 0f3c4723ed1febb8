//! The text of a config file, and the key files that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ropewalk_settings::{KeyError, Parsed, PrivateKey, SettingError};
use serde::de::{DeserializeOwned, IgnoredAny};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use super::error::{ConfigError, explain};
use crate::folder;
use crate::invitation::{Invitation, InvitationError, MAX_LINE};

/// Bytes of the longest config file that is read: 65,000 peers with a name and a key are 10 MiB.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Bytes of the longest key file: a key and room for white space.
pub const MAX_KEY_FILE_BYTES: u64 = 1024;

/// Mode bits that a file with a key may not have: others may do nothing with it, the group may not write it.
///
/// Group reading stays allowed: it is how a daemon without root is given its key.
pub const FORBIDDEN_MODE: u32 = 0o027;

/// One config file: its name for errors, its text (wiped when dropped: it may hold a key), and where
/// the key files come from.
pub struct Source {
    file: PathBuf,
    text: Zeroizing<String>,
    keys: KeyFiles,
    /// The permissions of the file; `None` for a text at hand.
    mode: Option<u32>,
}

/// Where the key files named by a config file are read from.
pub enum KeyFiles {
    /// The file system; a relative name is relative to the folder of the config file.
    Disk,
    /// These texts by the name that stands in the config file: for tests and fuzzing.
    Given(BTreeMap<PathBuf, String>),
}

impl Source {
    /// Reads a config file from disk.
    ///
    /// # Errors
    /// The file cannot be read, is too long, or is not UTF-8.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let (bytes, mode) = read_bounded(file, MAX_FILE_BYTES)
            .map_err(|error| ConfigError::of_io(file, "cannot read the config file", &error))?;
        match into_text(bytes) {
            Ok(text) => {
                let (file, mode) = (file.to_path_buf(), Some(mode));
                Ok(Self { file, text, keys: KeyFiles::Disk, mode })
            }
            Err((bytes, valid)) => {
                let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
                Err(ConfigError::at(file, &text, valid..valid, "the file is not UTF-8 text"))
            }
        }
    }

    /// A config file whose text is at hand.
    #[must_use]
    pub fn from_text(file: &Path, text: &str, keys: KeyFiles) -> Self {
        let (file, text) = (file.to_path_buf(), Zeroizing::new(text.to_owned()));
        Self { file, text, keys, mode: None }
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What stands in the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads the raw file.
    ///
    /// # Errors
    /// Not TOML, an unknown key, or a value of the wrong kind.
    pub fn raw<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let (message, help) = explain(error.message());
            let at = match error.span() {
                Some(span) => self.error(span, &message),
                None => ConfigError::of_file(&self.file, message),
            };
            match help {
                Some(help) => at.with_help(help),
                None => at,
            }
        })
    }

    /// The keys and tables at the top of the file: what a `client.toml` and a `proxy.toml` differ in.
    ///
    /// # Errors
    /// The file is not TOML.
    pub fn top_keys(&self) -> Result<BTreeSet<String>, ConfigError> {
        let table: BTreeMap<String, IgnoredAny> = self.raw()?;
        Ok(table.into_keys().collect())
    }

    /// The files that it names, each with its folder. None of a text that is not TOML.
    #[must_use]
    pub fn named_files(&self) -> Vec<PathBuf> {
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let Ok(table) = DeTable::parse(&self.text) else { return Vec::new() };
        let named = files_of_table(table.get_ref());
        named.into_iter().map(|name| folder.join(name)).collect()
    }

    /// A file that this one names: where it is, seen from the folder of this one.
    #[must_use]
    pub fn beside(&self, name: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(name)
    }

    /// An error at this place of the text.
    pub fn error(&self, span: Range<usize>, message: &str) -> ConfigError {
        ConfigError::at(&self.file, &self.text, span, message)
    }

    /// What is wrong with a setting of `[tunnel]`, at its place, or that of the section around it.
    pub fn error_of_setting(&self, error: &SettingError) -> ConfigError {
        let shown = match self.place_of(&error.path) {
            Some(span) => self.error(span, &error.to_string()),
            None => self.error_of_file(error.to_string()),
        };
        match error.help {
            Some(help) => shown.with_help(help),
            None => shown,
        }
    }

    /// Where what stands at this path of `[tunnel]`, or else what is next around it, is in the text.
    fn place_of(&self, path: &[String]) -> Option<Range<usize>> {
        let file = DeTable::parse(&self.text).ok()?;
        let mut found = file.get_ref().get("tunnel")?;
        for key in path {
            let DeValue::Table(table) = found.get_ref() else { break };
            let Some(within) = table.get(key.as_str()) else { break };
            found = within;
        }
        Some(found.span())
    }

    /// An error of the whole file.
    pub fn error_of_file(&self, message: impl Into<String>) -> ConfigError {
        ConfigError::of_file(&self.file, message)
    }

    /// The private key of a daemon: in the file itself or in a file of its own, exactly one of both.
    ///
    /// # Errors
    /// None or both are given, the file that holds the key may be read by others, or the key is not usable.
    pub fn private_key(
        &self,
        inline: Option<&Spanned<Parsed<PrivateKey>>>,
        key_file: Option<&Spanned<PathBuf>>,
    ) -> Result<PrivateKey, ConfigError> {
        match (inline, key_file) {
            (Some(key), None) => match self.mode.filter(|mode| mode & FORBIDDEN_MODE != 0) {
                None => Ok(key.get_ref().0.clone()),
                Some(mode) => {
                    let message = format!(
                        "this file holds a private key and is open to others (mode {mode:04o})"
                    );
                    let shown = self.file.display();
                    Err(self.error(key.span(), &message).with_help(format!(
                        "chmod 600 {shown}, or put the key into a file of its own (private_key_file)"
                    )))
                }
            },
            (None, Some(name)) => self.key_file(name),
            (Some(_), Some(name)) => Err(self
                .error(name.span(), "`private_key` and `private_key_file` are both given")
                .with_help("keep the file, so that this config may be shown to others")),
            (None, None) => Err(self
                .error_of_file("missing key `private_key_file`")
                .with_help("`ropewalk keygen FILE` makes one; then: private_key_file = \"FILE\"")),
        }
    }

    /// Reads a key from a file of its own.
    ///
    /// # Errors
    /// The file cannot be read, may be read by others, or holds no key.
    pub fn key_file<K: FromStr<Err = KeyError>>(
        &self,
        name: &Spanned<PathBuf>,
    ) -> Result<K, ConfigError> {
        let (path, text) = match &self.keys {
            KeyFiles::Given(texts) => {
                let text = texts.get(name.get_ref()).cloned().unwrap_or_default();
                (name.get_ref().clone(), Zeroizing::new(text))
            }
            KeyFiles::Disk => {
                let folder = self.file.parent().unwrap_or(Path::new(""));
                let path = folder.join(name.get_ref());
                let text = self.read_key_file(name, &path)?;
                (path, text)
            }
        };
        text.parse().map_err(|error| {
            self.error(name.span(), &format!("the key file {}: {error}", path.display()))
                .with_help("`ropewalk keygen FILE` writes one")
        })
    }

    /// Reads an invitation from a file of its own, and says where that is. `None`: there is no such file (any more).
    ///
    /// # Errors
    /// The file cannot be read, may be read by others, or holds no invitation.
    pub fn invitation_file(
        &self,
        name: &Spanned<PathBuf>,
    ) -> Result<Option<(PathBuf, Invitation)>, ConfigError> {
        let path = self.file.parent().unwrap_or(Path::new("")).join(name.get_ref());
        let shown = path.display();
        let text = match &self.keys {
            KeyFiles::Given(texts) => texts.get(name.get_ref()).cloned().map(Zeroizing::new),
            KeyFiles::Disk => match read_bounded(&path, MAX_LINE as u64) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => {
                    let message = format!("cannot read the invitation {shown}: {error}");
                    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                    return Err(self.error(name.span(), &message).with_permission(denied));
                }
                Ok((_, mode)) if mode & FORBIDDEN_MODE != 0 => {
                    let message =
                        format!("the invitation {shown} is open to others (mode {mode:04o})");
                    let help = format!("chmod 600 {shown}");
                    return Err(self.error(name.span(), &message).with_help(help));
                }
                Ok((bytes, _)) => {
                    Some(into_text(bytes).unwrap_or_else(|_| "no text".to_owned().into()))
                }
            },
        };
        let Some(text) = text else { return Ok(None) };
        let read = text.parse().map_err(|error: InvitationError| {
            let help = "join again: `ropewalk join --replace`, with a new invitation";
            self.error(name.span(), &format!("{shown}: {error}")).with_help(help)
        });
        read.map(|invitation| Some((path, invitation)))
    }

    fn read_key_file(
        &self,
        name: &Spanned<PathBuf>,
        path: &Path,
    ) -> Result<Zeroizing<String>, ConfigError> {
        let shown = path.display();
        let failed = |error: std::io::Error| {
            let help = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "run it with sudo, or as the owner of the file"
                }
                std::io::ErrorKind::NotFound => "`ropewalk keygen FILE` writes one",
                _ => "the file must hold one key: 44 characters of base64",
            };
            self.error(name.span(), &format!("cannot read the key file {shown}: {error}"))
                .with_help(help)
                .with_permission(error.kind() == std::io::ErrorKind::PermissionDenied)
        };
        let (bytes, mode) = read_bounded(path, MAX_KEY_FILE_BYTES).map_err(failed)?;
        if mode & FORBIDDEN_MODE != 0 {
            let message = format!("the key file {shown} is open to others (mode {mode:04o})");
            return Err(self.error(name.span(), &message).with_help(format!("chmod 600 {shown}")));
        }
        Ok(into_text(bytes).unwrap_or_else(|_| "not a key".to_owned().into()))
    }
}

/// Whether a path of a file that the daemon makes is absolute: a daemon has no folder of its own.
///
/// # Errors
/// It is not; for the user.
pub fn absolute(path: &Path) -> Result<(), String> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(format!("`{}` is not an absolute path", path.display()))
}

/// The values of all keys that name a file.
fn files_of(value: &DeValue<'_>) -> Vec<PathBuf> {
    match value {
        DeValue::Table(table) => files_of_table(table),
        DeValue::Array(values) => {
            values.iter().flat_map(|value| files_of(value.get_ref())).collect()
        }
        _ => Vec::new(),
    }
}

fn files_of_table(table: &DeTable<'_>) -> Vec<PathBuf> {
    let named = table.iter().flat_map(|(key, value)| match value.get_ref() {
        DeValue::String(name) if key.get_ref().ends_with("_file") => vec![PathBuf::from(&**name)],
        value => files_of(value),
    });
    named.collect()
}

/// Reads at most `limit` bytes, and the permissions of the file that they are from; a longer file is an error.
fn read_bounded(file: &Path, limit: u64) -> std::io::Result<(Zeroizing<Vec<u8>>, u32)> {
    let content = folder::read(file, limit)?;
    Ok((content.bytes, content.mode & 0o777))
}

/// Bytes as text, without a copy of them; else they come back, with how many of them are text.
fn into_text(
    mut bytes: Zeroizing<Vec<u8>>,
) -> Result<Zeroizing<String>, (Zeroizing<Vec<u8>>, usize)> {
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            Err((Zeroizing::new(error.into_bytes()), valid))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Raw {
        key: Spanned<PathBuf>,
    }

    #[test]
    fn the_files_that_a_config_names_are_found_wherever_they_stand() {
        let text = "private_key_file = \"/k\"\nfile = 7\n[proxy]\ninvitation_file = \"i\"\n\
            [[peer]]\nname = \"n\"\npreshared_key_file = \"p\"\n[[peer]]\npreshared_key_file = 7";
        let named = |text| {
            let mut named =
                Source::from_text(Path::new("/etc/x.toml"), text, KeyFiles::Disk).named_files();
            named.sort();
            named
        };
        assert_eq!(named(text), ["/etc/i", "/etc/p", "/k"].map(PathBuf::from));
        assert_eq!(named("private_key_file = "), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_key_file_open_to_others_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("client.toml");
        std::fs::write(&config, "key = \"my.key\"\n").unwrap();
        let key = PrivateKey::generate().unwrap();
        let key_path = folder.path().join("my.key");
        std::fs::write(&key_path, format!("{}\n", *key.to_base64())).unwrap();
        let source = Source::read(&config).unwrap();
        let raw: Raw = source.raw().unwrap();

        for (mode, accepted) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o604, false),
        ] {
            std::fs::set_permissions(&key_path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = source.key_file::<PrivateKey>(&raw.key);
            assert_eq!(read.is_ok(), accepted, "mode {mode:o}");
            match read {
                Ok(read) => assert_eq!(read, key),
                Err(error) => {
                    assert_eq!(error.position(), Some((1, 7)));
                    assert_eq!(error.help(), Some(&*format!("chmod 600 {}", key_path.display())));
                }
            }
        }
    }

    #[derive(Debug, serde::Deserialize)]
    struct Inline {
        private_key: Spanned<Parsed<PrivateKey>>,
    }

    #[test]
    fn a_config_with_a_key_in_it_that_is_open_to_others_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("client.toml");
        let key = PrivateKey::generate().unwrap();
        std::fs::write(&config, format!("private_key = \"{}\"\n", *key.to_base64())).unwrap();
        for (mode, accepted) in
            [(0o600, true), (0o640, true), (0o644, false), (0o660, false), (0o604, false)]
        {
            std::fs::set_permissions(&config, std::fs::Permissions::from_mode(mode)).unwrap();
            let source = Source::read(&config).unwrap();
            let raw: Inline = source.raw().unwrap();
            match source.private_key(Some(&raw.private_key), None) {
                Ok(read) => assert!(accepted && read == key, "mode {mode:o}"),
                Err(error) => {
                    assert!(!accepted, "mode {mode:o}: {error}");
                    assert_eq!(error.position(), Some((1, 15)));
                    assert!(error.help().unwrap().contains("chmod 600"), "{error}");
                    assert!(!error.to_string().contains(&**key.to_base64()), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_missing_no_text_or_too_long_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Source::read(&folder.path().join("none.toml")).err().unwrap();
        assert!(missing.to_string().contains("No such file"), "{missing}");

        let binary = folder.path().join("binary.toml");
        std::fs::write(&binary, b"a = 1\nb = \"\xff\"").unwrap();
        let error = Source::read(&binary).err().unwrap();
        assert_eq!(error.position(), Some((2, 6)));
        assert_eq!(error.message(), "the file is not UTF-8 text");

        let long = folder.path().join("long.toml");
        std::fs::File::create(&long).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        let error = Source::read(&long).err().unwrap();
        assert!(error.message().contains("longer than"), "{error}");
    }
}
