//! The first start of a proxy on a host: keys and a config that works, if there are none.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ropewalk_control::api::Role;
use ropewalk_control::config::source::MAX_KEY_FILE_BYTES;
use ropewalk_control::{config_folder, folder};
use ropewalk_daemon::file;
use ropewalk_settings::{PrivateKey, PublicKey};

/// What a person finds in the file: every key with its default.
const SAMPLE: &str = include_str!("../../../configs/proxy.toml");

/// The line of the sample that names the key.
const KEY_LINE: &str = "private_key_file = \"/etc/ropewalk/proxy/proxy.key\"";

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The config.
    pub config: PathBuf,
    /// The private key.
    pub key_file: PathBuf,
    /// Whether the key was there before.
    pub key_was_there: bool,
    /// The public key, which invitations hold.
    pub public_key: PublicKey,
}

/// Makes a config, and a private key beside it, if there is no config. What is there is never touched.
///
/// # Errors
/// The folder does not exist (a mistyped name, unless it is the usual one), or cannot be written.
pub fn make(config: &Path) -> anyhow::Result<Option<Made>> {
    if config.try_exists().with_context(|| format!("cannot look at {}", config.display()))? {
        return Ok(None);
    }
    let folder = match config.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() && folder != Path::new(config_folder(Role::Proxy)) {
        bail!(
            "there is no config {0}, and no folder {1} to make one in",
            config.display(),
            folder.display()
        );
    }
    let name = config.with_extension("key");
    let key_file = folder.join(name.file_name().unwrap_or_default());
    let (key, key_was_there) = private_key(&key_file)?;
    let named = key_file.file_name().unwrap_or_default().to_string_lossy();
    let text = SAMPLE.replace(KEY_LINE, &format!("private_key_file = {named:?}"));
    let at = folder.join(config.file_name().unwrap_or_default());
    file::create(&at, text.as_bytes())
        .with_context(|| format!("cannot write the config {}", config.display()))?;
    Ok(Some(Made {
        config: config.to_path_buf(),
        key_file,
        key_was_there,
        public_key: key.public_key(),
    }))
}

/// The key that is there, for its clients know it; else a new one.
fn private_key(file: &Path) -> anyhow::Result<(PrivateKey, bool)> {
    let shown = file.display();
    let key = PrivateKey::generate().context("the system gives no randomness")?;
    match file::create(file, key.to_line().as_bytes()) {
        Ok(()) => Ok((key, false)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let content = folder::read(file, MAX_KEY_FILE_BYTES)
                .with_context(|| format!("cannot read the key {shown}"))?;
            let text = std::str::from_utf8(&content.bytes).unwrap_or("not a key");
            let key = text.parse().with_context(|| {
                format!("the key file {shown}: repair it, or move it away for a new one")
            })?;
            Ok((key, true))
        }
        Err(error) => Err(error).with_context(|| format!("cannot write the key {shown}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ropewalk_control::config::ConfigFile as _;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_first_start_makes_a_key_and_a_config_that_works_and_the_second_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("proxy.toml");
        let made = make(&config).unwrap().unwrap();
        assert_eq!(made.key_file, folder.path().join("proxy.key"));
        assert!(!made.key_was_there);
        for file in [&made.config, &made.key_file] {
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
        let loaded = Config::load(&config).unwrap();
        assert_eq!(loaded.private_key.public_key(), made.public_key);
        assert!(loaded.peers.is_empty());
        let text = std::fs::read_to_string(&config).unwrap();
        assert_eq!(make(&config).unwrap(), None);
        assert_eq!(std::fs::read_to_string(&config).unwrap(), text);
    }

    #[test]
    fn a_key_that_is_there_is_kept_for_clients_know_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = make(&folder.path().join("proxy.toml")).unwrap().unwrap();
        std::fs::remove_file(&first.config).unwrap();
        let second = make(&first.config).unwrap().unwrap();
        assert!(second.key_was_there);
        assert_eq!(second.public_key, first.public_key);
        std::fs::remove_file(&first.config).unwrap();
        std::fs::write(&first.key_file, "no key").unwrap();
        let error = format!("{:#}", make(&first.config).unwrap_err());
        assert!(error.contains("repair it, or move it away"), "{error}");
        assert!(!first.config.exists());
    }

    #[test]
    fn a_mistyped_folder_is_an_error() {
        let error = make(Path::new("/nowhere/etc/proxy.toml")).unwrap_err().to_string();
        assert!(error.contains("no folder /nowhere/etc"), "{error}");
    }
}
