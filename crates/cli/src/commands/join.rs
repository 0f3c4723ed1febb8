//! `ropewalk join`: from an invitation to a client that is ready to start.
//!
//! Three files are made, closed to others: the private key, which is made here; the invitation, which the client removes
//! when the proxy knows the key; and the config. What is there already stays, or is kept under another name; its settings
//! go on in the new config.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use ropewalk_client::{Config, joining, rejoining};
use ropewalk_control::api::Role;
use ropewalk_control::config::source::MAX_FILE_BYTES;
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_control::folder::{self, Folder};
use ropewalk_control::invitation::{Invitation, MAX_LINE};
use ropewalk_control::{CLIENT_CONFIG, config_folder};
use ropewalk_settings::{NamePattern, PrivateKey};
use zeroize::Zeroizing;

use crate::args::Join;
use crate::commands::daemon::refuse_former;
use crate::exit::{Failure, print};
use crate::render;

/// Where a unit for the client may be.
const UNITS: [&str; 3] = [
    "/etc/systemd/system/ropewalk-client.service",
    "/usr/lib/systemd/system/ropewalk-client.service",
    "/lib/systemd/system/ropewalk-client.service",
];

/// Joins.
pub(crate) fn run(join: &Join) -> Result<(), Failure> {
    let line = line(&join.line)?;
    let invitation: Invitation = line.parse().map_err(usage)?;
    invitation.check_expiry(SystemTime::now()).map_err(usage)?;
    refuse_former(Role::Client, &join.config)?;
    let files = Files::of(&join.config)?;
    let old = files.old(join.replace);
    let kept = files.clear(join.replace)?;
    let is_taken_over =
        files.write(&invitation, &join.link, old.as_ref().map(|old| old.as_str()))?;
    print(&report(&files, &invitation, &kept, is_taken_over))
}

/// The invitation: as it was given, else from standard input. A person at a terminal is asked for it.
fn line(words: &[String]) -> Result<Zeroizing<String>, Failure> {
    if !(words.is_empty() || words == ["-"]) {
        return Ok(Zeroizing::new(words.join(" ")));
    }
    let mut input = io::stdin().lock();
    let mut line = Zeroizing::new(String::new());
    let read = if input.is_terminal() {
        drop(writeln!(
            io::stderr(),
            "Paste the line that `ropewalk peer add` printed, then press Enter:"
        ));
        input.read_line(&mut line)
    } else {
        input.take(MAX_LINE as u64 + 1).read_to_string(&mut line)
    };
    read.context("cannot read the invitation from standard input")?;
    Ok(line)
}

/// The files of one client.
struct Files {
    config: PathBuf,
    key: PathBuf,
    invitation: PathBuf,
}

impl Files {
    /// Beside the config, by its name.
    fn of(config: &Path) -> Result<Self, Failure> {
        if config.file_stem().is_none() {
            return Err(Failure::Usage(format!("{} is no name of a file", config.display())));
        }
        let (key, invitation) = (config.with_extension("key"), config.with_extension("invitation"));
        if key == config || invitation == config {
            let message = format!("{} is a name for a key: name it NAME.toml", config.display());
            return Err(Failure::Usage(message));
        }
        Ok(Self { config: config.to_path_buf(), key, invitation })
    }

    /// What the config that is replaced says; one that cannot be read says nothing.
    fn old(&self, replace: bool) -> Option<Zeroizing<String>> {
        let read = replace.then(|| folder::read(&self.config, MAX_FILE_BYTES).ok()).flatten()?;
        String::from_utf8(read.bytes.to_vec()).ok().map(Zeroizing::new)
    }

    /// Makes room: nothing is there, or it is kept under another name. Returns what is kept where.
    fn clear(&self, replace: bool) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
        let mut kept = Vec::new();
        let there = [&self.config, &self.key].map(|file| (file, file.symlink_metadata()));
        for (file, found) in there {
            match found {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error, "look at", file)),
                Ok(_) if !replace => {
                    return Err(Failure::Failed(anyhow::anyhow!(
                        "{} exists and stays as it is: this machine has joined a proxy already. --replace joins this \
                         one instead (the old files are kept); --config FILE writes a config for a second proxy",
                        file.display()
                    )));
                }
                Ok(_) => kept.push((file.clone(), free_name(file))),
            }
        }
        for (from, to) in &kept {
            rename(from, to).map_err(|error| failed(error, "rename", from))?;
        }
        // One that was not used yet is of no use to the new config, and its owner has it still.
        match folder::remove(&self.invitation) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(error, "remove", &self.invitation))
            }
            _ => Ok(kept),
        }
    }

    /// The config last: it names the others. Returns whether it says what the old one did.
    fn write(
        &self,
        invitation: &Invitation,
        links: &[NamePattern],
        old: Option<&str>,
    ) -> Result<bool, Failure> {
        let key = PrivateKey::generate().context("the system gives no randomness")?;
        create(&self.key, &key.to_line())?;
        create(&self.invitation, &Zeroizing::new(format!("{}\n", *invitation.to_line())))?;
        let names = (&*name(&self.key), &*name(&self.invitation));
        let again = old.and_then(|old| rejoining::config_text(old, invitation, names, links));
        // An old config with an error would keep the client from starting.
        let again = again.map(Zeroizing::new).filter(|text| {
            Config::parse(&Source::from_text(&self.config, text, KeyFiles::Disk)).is_ok()
        });
        match &again {
            Some(text) => create(&self.config, text)?,
            None => create(&self.config, &joining::config_text(invitation, names, links))?,
        }
        Ok(again.is_some())
    }
}

/// The last part of a file's name: what a config beside it says.
fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `FILE.old`, or `FILE.old.2` and so on.
fn free_name(file: &Path) -> PathBuf {
    let with = |ending: String| PathBuf::from(format!("{}{ending}", file.display()));
    let names = std::iter::once(with(".old".to_owned()));
    let names = names.chain((2..=u32::MAX).map(|number| with(format!(".old.{number}"))));
    let mut free = names.filter(|name| name.symlink_metadata().is_err());
    free.next().unwrap_or_else(|| with(".old".to_owned()))
}

/// Another name in the same folder.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (folder, name) = Folder::of(from)?;
    std::fs::rename(folder.at(name), folder.at(folder::split(to)?.1))
}

/// A new file with mode 600, on disk on return.
fn create(file: &Path, content: &str) -> Result<(), Failure> {
    let written = || {
        let (folder, name) = folder::split(file)?;
        let folder = if folder == Path::new(config_folder(Role::Client)) {
            Folder::make(folder, 0o755)?
        } else {
            Folder::open(folder)?
        };
        let mut new = tempfile::NamedTempFile::new_in(folder.path())?;
        new.write_all(content.as_bytes())?;
        folder.give(new.as_file())?;
        new.as_file().sync_all()?;
        new.persist_noclobber(folder.at(name)).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(|error| failed(error, "write", file))
}

fn failed(error: io::Error, what: &str, file: &Path) -> Failure {
    anyhow::Error::new(error).context(format!("cannot {what} {}", file.display())).into()
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}

/// What was made, and what to do next.
fn report(
    files: &Files,
    invitation: &Invitation,
    kept: &[(PathBuf, PathBuf)],
    is_taken_over: bool,
) -> String {
    let addresses: Vec<_> = invitation.addresses.iter().map(ToString::to_string).collect();
    let mut text = format!("Ready to join the proxy at {}.\n", addresses.join(", "));
    let until = format!("good until {}", render::moment(invitation.expires));
    let config = match (is_taken_over, kept.iter().any(|(from, _)| *from == files.config)) {
        (true, _) => "the config, with the old one's settings",
        (false, true) => "the config, without the old one's settings, which had an error",
        (false, false) => "the config",
    };
    let mut made = vec![
        (&files.config, config.to_owned()),
        (&files.key, "this machine's private key; it never leaves this machine".to_owned()),
        (&files.invitation, until),
    ];
    made.extend(kept.iter().map(|(from, to)| (to, format!("what {} was before", name(from)))));
    let shown = |file: &Path| file.display().to_string();
    let width = made.iter().map(|(file, _)| shown(file).chars().count()).max().unwrap_or_default();
    for (file, what) in made {
        text.push_str(&format!("  {:width$}  {what}\n", shown(file)));
    }
    let is_usual = files.config == Path::new(CLIENT_CONFIG);
    let command = match is_usual {
        true => "sudo ropewalk client".to_owned(),
        false => format!("sudo ropewalk client --config {}", files.config.display()),
    };
    let has_unit = is_usual && UNITS.iter().any(|unit| Path::new(unit).exists());
    text.push_str(&next(&command, has_unit));
    text
}

/// What to do next: with the service if it is installed, for it starts with the machine, or with this command.
fn next(command: &str, has_unit: bool) -> String {
    if has_unit {
        let service = "sudo systemctl enable --now ropewalk-client";
        format!(
            "Next, now and at each start of this machine:\n  {service}\nor, until this terminal closes:\n  {command}\n"
        )
    } else {
        format!("Next:\n  {command}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_service_is_told_of_it_first() {
        let told = next("sudo ropewalk client", true);
        let of = |what: &str| told.find(what).expect("it is named");
        assert!(
            of("systemctl enable --now ropewalk-client") < of("sudo ropewalk client"),
            "{told}"
        );
        assert!(!next("sudo ropewalk client", false).contains("systemctl"));
    }

    #[test]
    fn older_copies_are_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        for expected in ["client.toml.old", "client.toml.old.2", "client.toml.old.3"] {
            let free = free_name(&file);
            assert_eq!(name(&free), expected);
            std::fs::write(free, "").unwrap();
        }
    }

    #[test]
    fn a_config_is_not_called_like_a_key() {
        for wrong in ["/etc/ropewalk/client/client.key", "x.invitation", "/"] {
            assert!(matches!(Files::of(Path::new(wrong)), Err(Failure::Usage(_))), "{wrong}");
        }
        let files = Files::of(Path::new("work.toml")).unwrap();
        assert_eq!(
            (name(&files.key), name(&files.invitation)),
            ("work.key".into(), "work.invitation".into())
        );
    }
}
