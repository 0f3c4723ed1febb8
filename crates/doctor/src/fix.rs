//! What `ropewalk doctor --fix` does itself, once its user has agreed: edits of a config file, and commands.
//!
//! An edit changes one key and leaves everything else in the file as it is, comments too. The file as it was is kept beside it.
//! Commands are those that the finding shows, run one after the other without a shell.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use ropewalk_client::config::text_with_link;
use ropewalk_control::api::Role;
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_control::folder;
use ropewalk_link_io::sysctl;
use ropewalk_settings::DEFAULT_PORT;
use serde::Serialize;
use toml_edit::{Array, DocumentMut, Item, Value, value};

/// What fixes a finding on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Fix {
    /// A change of a config file; a daemon that runs has to read it again.
    Edit {
        /// The file.
        file: PathBuf,
        /// What changes in it.
        change: Change,
    },
    /// A file with a secret is closed to all but its owner.
    Close {
        /// The file.
        file: PathBuf,
    },
    /// Commands, in this order.
    Run {
        /// As a person types them.
        commands: Vec<String>,
    },
}

/// What changes in a config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// These values go into a list at the top level, which is made if it is missing.
    Add {
        /// Its key.
        list: &'static str,
        /// Those that it has already are left out.
        values: Vec<String>,
    },
    /// An interface is no link any more: its own `[[link]]` is switched off, for the config refuses to exclude what has one; any
    /// other interface goes into `exclude_interfaces`.
    LeaveOut {
        /// Its name.
        interface: String,
    },
    /// A switch at the top level.
    Switch {
        /// Its key.
        key: &'static str,
        /// What it is from then on.
        on: bool,
    },
    /// The proxy's addresses with the one port get the other.
    Port {
        /// The port that is wrong.
        old: u16,
        /// The port at which the proxy answers.
        new: u16,
    },
}

/// What came of a fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// A config file is changed.
    Edited {
        /// Where it is kept as it was.
        kept: PathBuf,
        /// A running daemon gets the change by a reload. Else it must be restarted.
        by_reload: bool,
    },
    /// The config file has the change already and was not touched.
    AlreadyThere {
        /// A running daemon that lacks the change gets it by a reload. Else it must be restarted.
        by_reload: bool,
    },
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edit { file, change } => write!(f, "in {}: {change}", file.display()),
            Self::Close { file } => write!(f, "close {} to others (mode 600)", file.display()),
            Self::Run { commands } => write!(f, "run {}", commands.join("; ")),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { list, values } => write!(f, "put {} into `{list}`", values.join(", ")),
            Self::LeaveOut { interface } => write!(
                f,
                "leave {interface} out (`enabled = false` in its [[link]] if it has one, else `exclude_interfaces`)"
            ),
            Self::Switch { key, on } => write!(f, "set `{key} = {on}`"),
            Self::Port { old, new } => {
                write!(f, "put port {new} in the place of {old} in `proxy.address`")
            }
        }
    }
}

impl Fix {
    /// Does it; `role` is whose config an edit changes.
    ///
    /// # Errors
    /// What could not be done, with the reason. An edit that fails leaves the file as it was.
    pub fn apply(&self, role: Role) -> anyhow::Result<Outcome> {
        match self {
            Self::Edit { file, change } => edit(role, file, change),
            Self::Close { file } => close(file)
                .with_context(|| format!("cannot close {}", file.display()))
                .map(|()| Outcome::Done),
            Self::Run { commands } => {
                commands.iter().try_for_each(|one| run(one)).map(|()| Outcome::Done)
            }
        }
    }
}

fn edit(role: Role, file: &Path, change: &Change) -> anyhow::Result<Outcome> {
    let by_reload = change.is_reloaded();
    let source = Source::read(file)?;
    let text =
        change.made(source.text()).with_context(|| format!("cannot change {}", file.display()))?;
    if means_the_same(source.text(), &text) {
        return Ok(Outcome::AlreadyThere { by_reload });
    }
    let new = Source::from_text(file, &text, KeyFiles::Disk);
    match role {
        Role::Client => ropewalk_client::Config::parse(&new).map(drop),
        Role::Proxy => ropewalk_proxy::Config::parse(&new).map(drop),
    }
    .with_context(|| format!("{} would be wrong with this change", file.display()))?;
    let copy = keep(file, source.text().as_bytes())
        .with_context(|| format!("cannot keep a copy of {}", file.display()))?;
    ropewalk_daemon::file::rewrite(file, text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Outcome::Edited { kept: copy, by_reload })
}

/// Whether both say the same, however it is written: an edit may write line ends in another way.
fn means_the_same(before: &str, after: &str) -> bool {
    match (before.parse::<toml::Table>(), after.parse::<toml::Table>()) {
        (Ok(before), Ok(after)) => before == after,
        _ => false,
    }
}

/// Writes `FILE.old`, or `FILE.old.2` and so on: the first of these that is not there.
fn keep(file: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let with = |ending: String| PathBuf::from(format!("{}{ending}", file.display()));
    let mut number = 1_u32;
    loop {
        let copy = with(if number == 1 { ".old".to_owned() } else { format!(".old.{number}") });
        match ropewalk_daemon::file::create(&copy, content) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
            Ok(()) => return Ok(copy),
        }
    }
}

impl Change {
    /// Whether a running daemon takes it over when it reads its config again.
    const fn is_reloaded(&self) -> bool {
        match self {
            Self::Add { .. } | Self::LeaveOut { .. } | Self::Port { .. } => true,
            // The only one is that of the sandbox, into which a daemon goes at its start.
            Self::Switch { .. } => false,
        }
    }

    /// The text of a config with this change.
    fn made(&self, text: &str) -> anyhow::Result<String> {
        let mut document: DocumentMut = text.parse().context("it is not TOML")?;
        match self {
            Self::Add { list, values } => add(&mut document, list, values)?,
            Self::LeaveOut { interface } => {
                let off = BTreeMap::from([("enabled".to_owned(), "false".to_owned())]);
                if let Some(text) = text_with_link(text, interface, &off)? {
                    return Ok(text);
                }
                add(&mut document, "exclude_interfaces", std::slice::from_ref(interface))?;
            }
            Self::Switch { key, on } => put(&mut document[key], Value::from(*on)),
            Self::Port { old, new } => {
                let address = document.get_mut("proxy").and_then(|proxy| proxy.get_mut("address"));
                let changed = match address {
                    Some(Item::Value(Value::Array(all))) => {
                        all.iter_mut().filter_map(|one| with_port(one, *old, *new)).count()
                    }
                    Some(Item::Value(one)) => usize::from(with_port(one, *old, *new).is_some()),
                    _ => 0,
                };
                if changed == 0 {
                    bail!("no address of `proxy.address` has port {old}");
                }
            }
        }
        Ok(document.to_string())
    }
}

/// Puts into a list what it has not yet.
fn add(document: &mut DocumentMut, list: &str, values: &[String]) -> anyhow::Result<()> {
    let item = document.entry(list).or_insert_with(|| value(Array::new()));
    // A list of one may be written as that one.
    if let Some(one) = item.as_str().map(str::to_owned) {
        if values.iter().all(|value| *value == one) {
            return Ok(());
        }
        put(item, [one].into_iter().collect());
    }
    let Some(array) = item.as_array_mut() else { bail!("`{list}` is no list") };
    for one in values {
        if !array.iter().any(|there| there.as_str() == Some(one)) {
            array.push(one.as_str());
        }
    }
    Ok(())
}

/// Puts a value in the place of another one; a comment behind that stays.
fn put(item: &mut Item, mut new: Value) {
    if let Item::Value(old) = item {
        *new.decor_mut() = old.decor().clone();
    }
    *item = Item::Value(new);
}

/// Changes one address, if it has the old port. One without a port has the default one.
fn with_port(address: &mut Value, old: u16, new: u16) -> Option<()> {
    let text = address.as_str()?;
    let split =
        text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, port) = match split {
        Some((host, port)) => (host.to_owned(), port.parse().ok()?),
        None if text.contains(':') => (format!("[{text}]"), DEFAULT_PORT),
        None => (text.to_owned(), DEFAULT_PORT),
    };
    if port != old {
        return None;
    }
    let decor = address.decor().clone();
    *address = Value::from(format!("{host}:{new}"));
    *address.decor_mut() = decor;
    Some(())
}

/// Of the file that was opened, which for root is none that another user put there as a link.
fn close(file: &Path) -> io::Result<()> {
    let (opened, _) = folder::open(file)?;
    opened.set_permissions(std::fs::Permissions::from_mode(0o600))
}

/// Runs one command as it is shown, but for `sudo`: whoever runs this is root, or has what it takes.
fn run(line: &str) -> anyhow::Result<()> {
    let words = shlex::split(line).with_context(|| format!("`{line}` is no command"))?;
    let mut words = words.iter().skip_while(|word| *word == "sudo");
    let program = words.next().with_context(|| format!("`{line}` is no command"))?;
    let words: Vec<&String> = words.collect();
    if let ("sysctl", [flag, setting]) = (program.as_str(), words.as_slice())
        && *flag == "-w"
    {
        return set(setting);
    }
    // The one that shows the command, wherever it is installed.
    let own = if program == "ropewalk" { std::env::current_exe().ok() } else { None };
    let output = Command::new(own.as_deref().unwrap_or(Path::new(program)))
        .args(words)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({}): {}", output.status, said.trim());
    }
    Ok(())
}

/// Writes a setting of the kernel, `KEY=VALUE`: a bare Debian lacks the program `sysctl`.
fn set(setting: &str) -> anyhow::Result<()> {
    let (key, value) = setting.split_once('=').context("a setting is KEY=VALUE")?;
    // As sysctl has it: `.` parts a key, and stands for `/` in the name of an interface.
    let swapped = |c: char| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let key: String = key.chars().map(swapped).collect();
    sysctl::write(&key, value).with_context(|| format!("cannot set {setting}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = include_str!("../../../configs/client.toml");

    fn added(text: &str) -> String {
        let values = vec!["wlan0".to_owned()];
        Change::Add { list: "exclude_interfaces", values }.made(text).unwrap()
    }

    #[test]
    fn a_list_gains_a_value_once_whether_it_is_there_or_not_and_comments_stay() {
        for (before, names) in [
            ("a = 1 # mine\n[link]\n", &["wlan0"][..]),
            ("exclude_interfaces = []\n", &["wlan0"]),
            ("exclude_interfaces = [\n  'eth0', # mine\n]\n", &["eth0", "wlan0"]),
            ("exclude_interfaces = ['wlan0']\n", &["wlan0"]),
            ("exclude_interfaces = 'eth0' # mine\n", &["eth0", "wlan0"]),
        ] {
            let after = added(before);
            assert_eq!(after.contains("# mine"), before.contains("# mine"), "{after}");
            let table: toml::Table = after.parse().unwrap();
            let found: Vec<String> = table["exclude_interfaces"].clone().try_into().unwrap();
            assert_eq!(found, names, "{before}");
        }
        assert!(added(CLIENT).parse::<toml::Table>().is_ok());
        let wrong = Change::Add { list: "links", values: vec!["x".to_owned()] };
        assert!(wrong.made("links = 7").is_err());
    }

    #[test]
    fn an_interface_is_left_out_in_the_section_that_is_its_own_else_by_its_name() {
        let made =
            |text: &str| Change::LeaveOut { interface: "wan1".to_owned() }.made(text).unwrap();
        let listed = "[[link]]\ninterface = \"wan0\"\n[[link]]\ninterface = \"wan1\" # LTE\n";
        assert_eq!(made(listed), format!("{listed}enabled = false\n"));
        for text in ["links = \"auto\"\n", "[[link]]\ninterface = \"wan*\"\n"] {
            let table: toml::Table = made(text).parse().unwrap();
            let excluded: Vec<String> = table["exclude_interfaces"].clone().try_into().unwrap();
            assert_eq!(excluded, ["wan1"], "{text}");
        }
    }

    #[test]
    fn a_switch_is_set_whether_it_is_there_or_not_and_the_comment_behind_it_stays() {
        let set = |text: &str| Change::Switch { key: "sandbox", on: true }.made(text).unwrap();
        let there = "a = 1\nsandbox = false # for a day\n[link]\n";
        assert_eq!(set(there), "a = 1\nsandbox = true # for a day\n[link]\n");
        assert_eq!(set("a = 1\n[link]\n"), "a = 1\nsandbox = true\n[link]\n");
    }

    #[test]
    fn only_addresses_with_the_wrong_port_get_the_other() {
        let table = [
            ("'192.0.2.1:51999'", Some("192.0.2.1:443")),
            ("'[2001:db8::1]:51999'", Some("[2001:db8::1]:443")),
            ("['192.0.2.1:51999', 'vps.example']", Some("192.0.2.1:443, vps.example")),
            ("'192.0.2.1:53'", None),
            ("'vps.example'", None),
        ];
        for (address, expected) in table {
            let text = format!("[proxy]\naddress = {address} # here\n");
            let made = Change::Port { old: 51999, new: 443 }.made(&text);
            let found = made.ok().map(|text| {
                assert!(text.contains("# here"), "{text}");
                let table: toml::Table = text.parse().unwrap();
                match &table["proxy"]["address"] {
                    toml::Value::Array(all) => {
                        let all: Vec<_> = all.iter().filter_map(toml::Value::as_str).collect();
                        all.join(", ")
                    }
                    one => one.as_str().unwrap_or_default().to_owned(),
                }
            });
            assert_eq!(found.as_deref(), expected, "{address}");
        }
        for (host, expected) in
            [("vps.example", "vps.example:443"), ("2001:db8::1", "[2001:db8::1]:443")]
        {
            let text = format!("[proxy]\naddress = \"{host}\"\n");
            let made = Change::Port { old: DEFAULT_PORT, new: 443 }.made(&text).unwrap();
            assert!(made.contains(expected), "{made}");
        }
    }

    #[test]
    fn a_file_that_has_the_change_already_is_left_as_it_is_without_a_copy() {
        let on = || Change::Switch { key: "sandbox", on: true };
        let listed =
            || Change::Add { list: "exclude_interfaces", values: vec!["wlan0".to_owned()] };
        let left_out = || Change::LeaveOut { interface: "wlan0".to_owned() };
        for (text, change, by_reload) in [
            ("sandbox=true # for good\n", on(), false),
            ("sandbox = true\r\ntun = {}\r\n", on(), false),
            ("exclude_interfaces = [ 'wlan0', 'x' ]\n", listed(), true),
            ("exclude_interfaces = 'wlan0'\n", listed(), true),
            ("exclude_interfaces = 'wlan0'\n", left_out(), true),
            ("[[link]]\ninterface = \"wlan0\"\nenabled = false\n", left_out(), true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("client.toml");
            std::fs::write(&file, text).unwrap();
            let fix = Fix::Edit { file: file.clone(), change };
            let outcome = fix.apply(Role::Client).unwrap();
            assert_eq!(outcome, Outcome::AlreadyThere { by_reload }, "{text}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{text}");
        }
    }

    #[test]
    fn after_an_edit_of_the_sandbox_a_daemon_must_be_restarted_and_after_any_other_one_reloaded() {
        const CONFIG: &str = "private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n\
            sandbox = false\n\
            [proxy]\n\
            address = \"203.0.113.1\"\n\
            public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n";
        let values = vec!["wlan0".to_owned()];
        for (change, by_reload) in [
            (Change::Switch { key: "sandbox", on: true }, false),
            (Change::Add { list: "exclude_interfaces", values }, true),
            (Change::LeaveOut { interface: "wlan0".to_owned() }, true),
            (Change::Port { old: DEFAULT_PORT, new: 51999 }, true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("client.toml");
            std::fs::write(&file, CONFIG).unwrap();
            let kept = folder.path().join("client.toml.old");
            let fix = Fix::Edit { file, change };
            let outcome = fix.apply(Role::Client).unwrap();
            assert_eq!(outcome, Outcome::Edited { kept, by_reload }, "{fix}");
        }
    }

    #[test]
    fn what_was_there_before_is_kept_under_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        let first = keep(&file, b"1").unwrap();
        let second = keep(&file, b"2").unwrap();
        assert_eq!(first, folder.path().join("client.toml.old"));
        assert_eq!(second, folder.path().join("client.toml.old.2"));
        assert_eq!(std::fs::read(first).unwrap(), b"1");
    }

    #[test]
    fn a_setting_that_the_kernel_lacks_is_told() {
        let error = run("sudo sysctl -w net.ipv4.conf.no/such.rp_filter=2").unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains("cannot set net.ipv4.conf.no/such.rp_filter=2"), "{told}");
    }

    #[test]
    fn a_command_runs_without_a_shell_and_its_failure_is_told() {
        run("sudo true '; false'").unwrap();
        let error = run("sudo ls '/nonexistent $(x)'").unwrap_err().to_string();
        assert!(error.contains("/nonexistent $(x)"), "{error}");
        assert!(run("sudo").is_err());
        assert!(run("/nonexistent/program").unwrap_err().to_string().contains("cannot run"));
    }
}
