//! Whether what must stay secret is closed to others.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ropewalk_control::config::source::FORBIDDEN_MODE;

use super::finding::Finding;
use super::fix::Fix;
use super::quoting;

/// A file that holds a secret.
#[derive(Clone, Debug)]
pub(super) struct Secret {
    /// What is in it.
    pub(super) what: &'static str,
    /// Where it is.
    pub(super) path: PathBuf,
    /// How it was found.
    pub(super) state: State,
}

/// How a file was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There, with these permissions.
    Mode(u32),
    /// Not there.
    Missing,
    /// Something else, in the system's words.
    Hidden(String),
}

/// The files that this config names, and itself where a key stands in it.
pub(super) fn look(file: &Path, text: &str) -> Vec<Secret> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut found: Vec<Secret> = named(&table)
        .into_iter()
        .map(|(what, name)| {
            let path = folder.join(name);
            Secret { what, state: state(&path), path }
        })
        .collect();
    // It goes with the first session.
    found.retain(|secret| secret.what != INVITATION || secret.state != State::Missing);
    if table.contains_key("private_key") {
        found.push(Secret { what: "private key", state: state(file), path: file.to_owned() });
    }
    found
}

/// The names of the key files, as they stand in the config.
pub(super) fn names(text: &str) -> Vec<PathBuf> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let named = named(&table).into_iter().filter(|(what, _)| *what != INVITATION);
    named.map(|(_, name)| name.into()).collect()
}

const INVITATION: &str = "invitation";

/// What is named, and what is in it.
fn named(table: &toml::Table) -> Vec<(&'static str, &str)> {
    let peers = table.get("peer").and_then(toml::Value::as_array).into_iter().flatten();
    let proxy = table.get("proxy");
    let of_proxy = |key| proxy.and_then(|proxy| proxy.get(key));
    let preshared = peers.map(|peer| peer.get("preshared_key_file"));
    let preshared = preshared.chain([of_proxy("preshared_key_file")]);
    std::iter::once(("private key", table.get("private_key_file")))
        .chain(preshared.map(|value| ("preshared key", value)))
        .chain([(INVITATION, of_proxy("invitation_file"))])
        .filter_map(|(what, value)| Some((what, value?.as_str()?)))
        .collect()
}

fn state(path: &Path) -> State {
    match std::fs::metadata(path) {
        Ok(found) => State::Mode(found.permissions().mode() & 0o777),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::Missing,
        Err(error) => State::Hidden(error.to_string()),
    }
}

pub(super) fn judge(secrets: &[Secret]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = secrets.iter().filter_map(fault).collect();
    if findings.is_empty() && !secrets.is_empty() {
        let count = secrets.len();
        let files = if count == 1 { "file with a secret is" } else { "files with secrets are" };
        findings.push(Finding::ok("files", "files", format!("{count} {files} closed to others")));
    }
    findings
}

fn fault(secret: &Secret) -> Option<Finding> {
    let Secret { what, path, state } = secret;
    let shown = path.display();
    match state {
        State::Mode(mode) if mode & FORBIDDEN_MODE != 0 => Some(
            Finding::fail(
                "files.open",
                "files",
                format!("the {what} {shown} is open to others (mode {mode:04o})"),
                format!("sudo chmod 600 {}", quoting::file(path)),
            )
            .advise("who may have read it has the key: make a new one if that may be a stranger;")
            .fixed_by(Fix::Close { file: path.clone() }),
        ),
        State::Mode(_) => None,
        State::Missing => {
            let found = format!("the {what} {shown} is not there");
            let preshared = if *what == "preshared key" { "--preshared " } else { "" };
            let command = format!("sudo ropewalk keygen {preshared}{}", quoting::file(path));
            Some(
                Finding::fail("files.missing", "files", found, command)
                    .advise("put your copy back, or make a new one and tell the other end of it:"),
            )
        }
        State::Hidden(why) => Some(Finding::fail(
            "files.hidden",
            "files",
            format!("the {what} {shown} cannot be looked at: {why}"),
            "sudo ropewalk doctor",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(what: &'static str, state: State) -> Secret {
        Secret { what, path: "/k/client.key".into(), state }
    }

    #[test]
    fn each_file_that_is_not_as_it_should_be_is_told_with_the_command() {
        let table = [
            ("private key", State::Mode(0o600), None),
            ("private key", State::Mode(0o640), None),
            ("private key", State::Mode(0o644), Some("sudo chmod 600 /k/client.key")),
            ("private key", State::Mode(0o660), Some("sudo chmod 600 /k/client.key")),
            ("private key", State::Missing, Some("sudo ropewalk keygen /k/client.key")),
            (
                "preshared key",
                State::Missing,
                Some("sudo ropewalk keygen --preshared /k/client.key"),
            ),
            ("invitation", State::Hidden("no".into()), Some("sudo ropewalk doctor")),
        ];
        for (what, state, command) in table {
            let finding = fault(&secret(what, state.clone()));
            let said = finding.as_ref().map(|finding| finding.commands[0].as_str());
            assert_eq!(said, command, "{what} {state:?}");
        }
        assert_eq!(judge(&[secret("private key", State::Mode(0o600))])[0].id, "files");
        assert!(judge(&[]).is_empty());
    }

    #[test]
    fn the_files_that_a_config_names_are_looked_at_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        std::fs::write(folder.path().join("a.key"), "x").unwrap();
        let text = "private_key_file = \"a.key\"\n[proxy]\ninvitation_file = \"gone\"\n\
                    preshared_key_file = \"b.psk\"\n[[peer]]\npreshared_key_file = \"/c.psk\"\n";
        let found = look(&file, text);
        let names: Vec<_> = found.iter().map(|secret| secret.path.display().to_string()).collect();
        let at = |name: &str| folder.path().join(name).display().to_string();
        assert_eq!(names, [at("a.key"), "/c.psk".to_owned(), at("b.psk")]);
        assert_eq!(super::names(text), ["a.key", "/c.psk", "b.psk"].map(PathBuf::from));
        assert!(matches!(found[0].state, State::Mode(_)));
        assert!(look(&file, "not toml [").is_empty());
        std::fs::write(&file, "private_key = \"x\"").unwrap();
        assert_eq!(look(&file, "private_key = \"x\"").len(), 1);
    }
}
