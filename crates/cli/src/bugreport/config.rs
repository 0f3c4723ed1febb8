//! The settings of a config file: those that the samples show, with their values. Of everything else only that it is there, for it
//! may be a secret in a wrong place. Comments are not in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ropewalk_control::api::Role;
use ropewalk_control::config::source::MAX_FILE_BYTES;
use ropewalk_control::folder;
use ropewalk_settings::{DeviceSelector, Selector, Text as _};
use toml::{Table, Value};

use super::hide::Hider;
use crate::commands::reference::settings;

/// What the samples speak of in sentences only; `*` stands for a name or address that is a key.
const MORE: [&str; 17] = [
    "link.allowance.bytes",
    "link.allowance.reset_day",
    "link.allowance.stop",
    "link.importance.cost",
    "link.importance.throughput",
    "proxy.other.address",
    "proxy.other.public_key",
    "tunnel.link.*.cost",
    "tunnel.link.*.direction",
    "tunnel.link.*.importance",
    "tunnel.link.*.importance.cost",
    "tunnel.link.*.importance.throughput",
    "tunnel.link.*.max",
    "tunnel.link.*.rate",
    "tunnel.link.*.use",
    "tunnel.link.*.weight",
    "tunnel.safire.routes.*",
];

/// Tables whose keys are names or addresses.
const NAMED: [&str; 2] = ["tunnel.link", "tunnel.safire.routes"];

/// Where a proxy's config names clients: the section and its key.
const CLIENT_NAMES: [(&str, &str); 2] = [("peer", "name"), ("forward", "to")];

/// Where a client's config names a device.
const DEVICE: &str = "share.limit.device";

/// Sections that may also be written as the list of their first key.
const LISTS: [&str; 1] = ["share"];

/// Where a client's config says what goes through its tunnel and around it: the section and its keys.
const ENTRIES: (&str, [&str; 2]) = ("tun", ["routes", "exclude"]);

/// Sections of one kind, and values of one list, that are shown.
const MOST_ALIKE: usize = 24;

/// Characters of a value that are shown.
const MOST_SHOWN: usize = 160;

/// Characters of the longest key that is shown although it is not known.
const MOST_OF_A_KEY: usize = 32;

/// What a file says.
///
/// # Errors
/// In words: it cannot be read, or is not TOML. No part of it is repeated.
pub(crate) fn read(file: &Path) -> Result<Table, String> {
    let shown = file.display();
    let content = folder::read(file, MAX_FILE_BYTES).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no {shown}"),
        _ => format!("cannot read {shown}: {error}"),
    })?;
    let Ok(text) = std::str::from_utf8(&content.bytes) else {
        return Err(format!("{shown} is no text in UTF-8"));
    };
    text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().and_then(|span| text.get(..span.start));
        let line = at.map_or(1, |before| before.matches('\n').count() + 1);
        format!("{shown} is not TOML: an error in line {line}; `ropewalk check-config` shows it")
    })
}

/// Tells `hider` which names in it are of hosts, of clients, of devices, and of what is chosen for the tunnel.
pub(crate) fn learn(table: &Table, hider: &mut Hider) {
    let within = |table: &Value, key: &str| table.get(key).cloned();
    let proxy = table.get("proxy");
    let others = proxy.and_then(|proxy| within(proxy, "other"));
    let others = others.iter().filter_map(Value::as_array).flatten();
    let addresses = others.filter_map(|other| within(other, "address"));
    let addresses = addresses.chain(proxy.and_then(|proxy| within(proxy, "address")));
    let addresses = addresses.chain(table.get("public_addresses").cloned());
    for address in addresses {
        texts(&address).into_iter().for_each(|text| hider.learn_host(text));
    }
    for (section, key) in CLIENT_NAMES {
        let sections = table.get(section).and_then(Value::as_array).into_iter().flatten();
        let names = sections.filter_map(|section| section.get(key)?.as_str());
        names.for_each(|name| hider.learn_client(name));
    }
    let limits = table.get("share").and_then(|share| share.get("limit")?.as_array());
    let devices = limits.into_iter().flatten().filter_map(|limit| limit.get("device")?.as_str());
    devices.filter(|device| is_device_name(device)).for_each(|name| hider.learn_device(name));
    let (section, keys) = ENTRIES;
    let section = table.get(section);
    for text in keys.into_iter().filter_map(|key| section?.get(key)).flat_map(texts) {
        match Selector::from_text(text) {
            Ok(entry) => hider.learn_entry(&entry),
            // Most likely a domain without its word in front, which errors repeat.
            Err(_) if text.contains('.') => hider.learn_host(text),
            Err(_) => {}
        }
    }
}

/// Whether the key at this path holds what is chosen for the tunnel.
fn is_of_entries(path: &str) -> bool {
    let (section, keys) = ENTRIES;
    keys.iter().any(|key| path.split_once('.') == Some((section, *key)))
}

/// Whether a device is called so by its name, or not in a way that there is; what else it is called by is known by its shape.
fn is_device_name(text: &str) -> bool {
    !matches!(
        DeviceSelector::from_text(text),
        Ok(DeviceSelector::Mac(_) | DeviceSelector::Address(_))
    )
}

/// Whether the key at this path names a client.
fn is_client_name(path: &str) -> bool {
    CLIENT_NAMES.iter().any(|(section, key)| path.split_once('.') == Some((section, key)))
}

/// A text, or those of a list.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The folder of the daemon's state: as the file says, else as the sample does.
pub(crate) fn state_folder(role: Role, table: Option<&Table>) -> Option<PathBuf> {
    let default: Option<Table> = settings::sample(role).parse().ok();
    let tables = table.into_iter().chain(default.as_ref());
    let mut said = tables.filter_map(|table| table.get("state_dir")?.as_str());
    said.next().map(PathBuf::from)
}

/// Where the daemon answers, where the file says so.
pub(crate) fn socket(table: &Table) -> Option<PathBuf> {
    table.get("control")?.get("socket")?.as_str().map(PathBuf::from)
}

/// The settings, as TOML has them.
///
/// # Errors
/// The sample that is built in is not understood.
pub(crate) fn as_toml(role: Role, table: &Table, hider: &mut Hider) -> Result<String, String> {
    let mut known = settings::paths(role).map_err(|error| format!("{error:#}"))?;
    known.extend(MORE.map(str::to_owned));
    let mut writer = Writer { known, hider, text: String::new() };
    writer.section("", "", table);
    Ok(writer.text)
}

struct Writer<'a> {
    /// By their paths.
    known: BTreeSet<String>,
    hider: &'a mut Hider,
    text: String,
}

impl Writer<'_> {
    /// The keys of a table, then the sections below it. `path` is how the samples call it, `name` how the file does.
    fn section(&mut self, path: &str, name: &str, table: &Table) {
        let (below, keys): (Vec<_>, Vec<_>) =
            table.iter().partition(|(key, value)| self.is_section(&joined(path, key), value));
        for (key, value) in keys {
            self.key(&joined(path, key), key, value);
        }
        for (key, value) in below {
            let path = joined(path, key);
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            match value {
                Value::Table(table) => {
                    self.text += &format!("\n[{name}]\n");
                    self.section(&path, &name, table);
                }
                Value::Array(tables) => {
                    for table in tables.iter().filter_map(Value::as_table).take(MOST_ALIKE) {
                        self.text += &format!("\n[[{name}]]\n");
                        self.section(&path, &name, table);
                    }
                    let more = tables.len().saturating_sub(MOST_ALIKE);
                    if more > 0 {
                        self.text += &format!("\n# and {more} more of [[{name}]]\n");
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether it is a section that the samples know, or one above such.
    fn is_section(&self, path: &str, value: &Value) -> bool {
        let is_table = match value {
            Value::Table(_) => true,
            Value::Array(values) => !values.is_empty() && values.iter().all(Value::is_table),
            _ => false,
        };
        let begin = format!("{path}.");
        is_table
            && !self.known.contains(path)
            && self.known.iter().any(|known| known.starts_with(&begin))
    }

    fn key(&mut self, path: &str, key: &str, value: &Value) {
        let name = if is_plain(key) { key } else { "a key" };
        let line = if is_secret(key) {
            format!("# {name}: left out, for it is a secret\n")
        } else if self.known.contains(path) || LISTS.contains(&path) {
            format!("{key} = {}\n", self.value(path, value))
        } else {
            format!("# {name}: left out, for no setting is called so\n")
        };
        self.text += &line;
    }

    fn value(&mut self, path: &str, value: &Value) -> String {
        match value {
            Value::String(name) if is_client_name(path) => format!("{:?}", self.hider.client(name)),
            Value::String(name) if path == DEVICE && is_device_name(name) => {
                format!("{:?}", self.hider.device(name))
            }
            Value::String(text) if is_of_entries(path) => self.entry(text),
            Value::String(text) => shown(text),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(is) => is.to_string(),
            Value::Datetime(time) => time.to_string(),
            Value::Array(values) => {
                let first = values.iter().take(MOST_ALIKE).map(|value| self.value(path, value));
                let mut first: Vec<String> = first.collect();
                let more = values.len().saturating_sub(MOST_ALIKE);
                if more > 0 {
                    first.push(format!("and {more} more"));
                }
                format!("[{}]", first.join(", "))
            }
            Value::Table(table) => {
                let known = table.iter().filter_map(|(key, value)| {
                    let path = joined(path, key);
                    let is_known = self.known.contains(&path) && !is_secret(key);
                    is_known.then(|| format!("{} = {}", shown(key), self.value(&path, value)))
                });
                let mut known: Vec<String> = known.collect();
                if known.len() < table.len() {
                    known.push("and what is not known".to_owned());
                }
                format!("{{ {} }}", known.join(", "))
            }
        }
    }

    /// What goes through the tunnel or around it: its kind, and no name.
    fn entry(&mut self, text: &str) -> String {
        match Selector::from_text(text) {
            Ok(entry) => shown(&self.hider.entry(&entry).to_string()),
            Err(_) => "\"no entry\"".to_owned(),
        }
    }
}

/// The path of a key in the table of that path.
fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        named if NAMED.contains(&named) => format!("{named}.*"),
        path => format!("{path}.{key}"),
    }
}

/// Whether a key is one of a secret, in any version of this program or in somebody's mind.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let named = ["password", "passphrase", "secret", "token", "psk"];
    (key.ends_with("_key") && key != "public_key") || named.iter().any(|word| key.contains(word))
}

/// Whether a key looks like the name of a setting.
fn is_plain(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    key.len() <= MOST_OF_A_KEY && key.bytes().all(plain)
}

/// A text as TOML has it, cut where it is long.
fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(MOST_SHOWN).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    format!("{cut:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(role: Role, text: &str) -> String {
        let table: Table = text.parse().unwrap();
        let mut hider = Hider::new(false);
        learn(&table, &mut hider);
        let written = as_toml(role, &table, &mut hider).unwrap();
        hider.text(&written)
    }

    #[test]
    fn every_setting_of_the_samples_is_shown() {
        for role in [Role::Client, Role::Proxy] {
            let sample = settings::sample(role);
            let shown = written(role, sample);
            assert!(!shown.contains("left out"), "{shown}");
            let table: Table = sample.parse().unwrap();
            for key in table.keys() {
                assert!(shown.contains(key.as_str()), "{key} is missing in {shown}");
            }
            for path in settings::paths(role).unwrap() {
                let key = path.rsplit('.').next().unwrap();
                assert!(!is_secret(key), "{path} would never be shown");
            }
        }
    }

    #[test]
    fn what_is_no_known_setting_is_left_out_and_so_is_every_secret() {
        let key = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";
        let text = format!(
            "private_key = \"{key}\"\nkepalive = \"hunter2\"\nlinks = \"auto\"\n\
             api_token = \"hunter2\"\n\"a key with hunter2 in it\" = 1\nsomething = {{ pin = \"hunter2\" }}\n\
             [proxy]\naddress = [\"vps.example.org\", \"203.0.113.7:443\"]\npublic_key = \"{key}\"\n\
             preshared_key = \"hunter2\"\npreshared_key_file = \"{key}\"\n\
             [[proxy.other]]\naddress = \"two.example.org\"\npublic_key = \"{key}\"\n\
             [[link]]\ninterface = \"wlan0\"\nallowance = {{ bytes = \"5 GB\", password = \"hunter2\" }}\n\
             [unknown]\nvalue = \"hunter2\"\n[tunnel.safire.routes]\n\"9.9.9.9/32\" = [\"wlan\"]\n"
        );
        let shown = written(Role::Client, &text);
        assert!(!shown.contains("hunter2") && !shown.contains(&key[..20]), "{shown}");
        for expected in [
            "# private_key: left out, for it is a secret\n",
            "# kepalive: left out, for no setting is called so\n",
            "# a key: left out",
            "# unknown: left out",
            "links = \"auto\"\n",
            "[proxy]\naddress = [\"<host-1>\", \"<v4-1>:443\"]\n# preshared_key: left out",
            "public_key = \"<key-1>\"\n",
            "[[proxy.other]]\naddress = \"<host-2>\"\n",
            "allowance = { \"bytes\" = \"5 GB\", and what is not known }\n",
            "routes = { \"<v4-2>/32\" = [\"wlan\"] }\n",
        ] {
            assert!(shown.contains(expected), "{expected} is missing in\n{shown}");
        }
    }

    #[test]
    fn names_of_clients_are_hidden_and_many_sections_are_counted() {
        let peer = |number: usize| format!("[[peer]]\nname = \"anna{number}\"\n");
        let peers: String = (0..30).map(peer).collect();
        let forward = "[[forward]]\nprotocol = \"tcp\"\nport = 443\nto = \"anna0\"\n";
        let text = format!("{peers}{forward}[tunnel.link.lte]\nmax = \"5 Mbit/s\"\n");
        let shown = written(Role::Proxy, &text);
        assert!(!shown.contains("anna"), "{shown}");
        assert!(shown.contains("to = \"<client-1>\"\n"), "{shown}");
        assert!(shown.contains("name = \"<client-1>\"\n"), "{shown}");
        assert!(shown.contains("# and 6 more of [[peer]]\n"), "{shown}");
        assert!(shown.contains("[tunnel.link.lte]\nmax = \"5 Mbit/s\"\n"), "{shown}");
    }

    #[test]
    fn names_of_devices_are_hidden_however_the_limits_are_written() {
        let sections = "[share]\ninterfaces = [\"lan0\"]\ndhcp = true\n[[share.limit]]\ndevice = \"annas-tv\"\n\
                        down = \"5 Mbit/s\"\n[[share.limit]]\ndevice = \"192.168.77.20\"\nup = \"1 Mbit/s\"\n";
        let inline = "share = { interfaces = [\"lan0\"], dhcp = true, limit = [{ device = \"annas-tv\", down = \
                      \"5 Mbit/s\" }, { device = \"192.168.77.20\", up = \"1 Mbit/s\" }] }\n";
        for text in [sections, inline] {
            let shown = written(Role::Client, text);
            assert!(!shown.contains("annas-tv"), "{shown}");
            for expected in [
                "[share]\n",
                "interfaces = [\"lan0\"]\n",
                "dhcp = true\n",
                "[[share.limit]]\ndevice = \"<device-1>\"\ndown = \"5 Mbit/s\"\n",
                "[[share.limit]]\ndevice = \"192.168.77.20\"\nup = \"1 Mbit/s\"\n",
            ] {
                assert!(shown.contains(expected), "{expected} is missing in\n{shown}");
            }
        }
        assert_eq!(written(Role::Client, "share = [\"lan0\"]\n"), "share = [\"lan0\"]\n");
    }

    #[test]
    fn what_is_chosen_for_the_tunnel_is_shown_by_its_kind_only() {
        let text = "[proxy]\naddress = \"vps.example.org\"\n[tun]\n\
            routes = [\"10.0.0.0/8\", \"app:chat\", \"bank.example\"]\n\
            exclude = [\"domain:bank.example\", \"user:anna\", \"user:1000\", \"cgroup:a/b\"]\n";
        let shown = written(Role::Client, text);
        for line in [
            "routes = [\"10.0.0.0/8\", \"app:<app-1>\", \"no entry\"]\n",
            "exclude = [\"domain:<host-1>\", \"user:<user-1>\", \"user:1000\", \"cgroup:<cgroup-1>\"]\n",
        ] {
            assert!(shown.contains(line), "{line} is missing in\n{shown}");
        }
    }

    #[test]
    fn a_file_that_is_not_toml_is_told_without_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        std::fs::write(&file, "links = \"auto\"\nropewalk:hunter2 hunter2\n").unwrap();
        let told = read(&file).unwrap_err();
        assert!(told.contains("an error in line 2") && !told.contains("hunter2"), "{told}");
        std::fs::write(&file, b"a = \"\xff\"").unwrap();
        assert!(read(&file).unwrap_err().contains("no text"));
        assert!(read(&folder.path().join("none")).unwrap_err().starts_with("there is no "));
    }
}
