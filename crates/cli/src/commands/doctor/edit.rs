//! Commands that change a config file in place, and words in them that a shell takes as they are.

use std::path::Path;

use ropewalk_client::host::quoted as quoted_list;

/// A word of a command line. What comes from a network or a name is no part of the shell's language.
pub(super) fn quoted(word: &str) -> String {
    let word: String = word.chars().filter(|character| *character != '\0').collect();
    shlex::try_quote(&word).map_or_else(|_| String::new(), std::borrow::Cow::into_owned)
}

/// A file as a word of a command line.
pub(super) fn file(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Puts a value in front of those of a list that stands at the config's top level, or the list on top if it is not there.
pub(super) fn add(list: &str, value: &str, path: &Path) -> String {
    let path = file(path);
    format!(
        "sudo grep -q '^{list} *=' {path} && sudo sed -i 's|^{list} *= *\\[|&{value}, |' {path} || sudo sed -i '1i {list} = [{value}]' {path}"
    )
}

/// Leaves an interface out.
pub(super) fn exclude(interface: &str, path: &Path) -> String {
    interfaces("exclude_interfaces", &[interface.to_owned()], path)
}

/// Puts interfaces in front of those of a list; where a name holds more than usual, a person has to.
pub(super) fn interfaces(list: &str, names: &[String], path: &Path) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    match names.iter().all(|name| name.chars().all(plain)) {
        true => add(list, &quoted_list(names), path),
        false => format!("sudoedit {}", file(path)),
    }
}

/// Puts one text in the place of another wherever it stands; where one of them holds more than an address does, a person
/// has to.
pub(super) fn replace(old: &str, new: &str, path: &Path) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || ".:-[]_".contains(character);
    let path = file(path);
    if !old.chars().chain(new.chars()).all(plain) {
        return format!("sudoedit {path}");
    }
    let old = old.replace('.', "\\.").replace('[', "\\[").replace(']', "\\]");
    format!("sudo sed -i 's|{old}|{new}|g' {path}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What is in a file once the command has run, by a shell that knows no `sudo`.
    fn after(before: &str, command: impl Fn(&Path) -> String) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a $(false) 'config'.toml");
        std::fs::write(&path, before).unwrap();
        let line = command(&path).replace("sudo ", "");
        let done = Command::new("sh").args(["-c", &line]).status().unwrap();
        assert!(done.success(), "{line}");
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_list_gains_a_value_whether_it_is_there_or_not_and_stays_toml() {
        let port = |path: &Path| add("more_ports", "443", path);
        for (before, ports) in [
            ("listen = 1\n[link]\n", &[443][..]),
            ("more_ports = []\n", &[443]),
            ("a = 1\nmore_ports=[53]\n", &[443, 53]),
            ("more_ports = [\n  53,\n]\n", &[443, 53]),
        ] {
            let table: toml::Table = after(before, port).parse().unwrap();
            let found: Vec<i64> = table["more_ports"].clone().try_into().unwrap();
            assert_eq!(found, ports, "{before}");
        }
    }

    #[test]
    fn the_sample_configs_gain_them_too() {
        let leave_out = |path: &Path| exclude("wlan0", path);
        let client: toml::Table =
            after(include_str!("../../../../../configs/client.toml"), leave_out).parse().unwrap();
        let names: Vec<String> = client["exclude_interfaces"].clone().try_into().unwrap();
        assert!(names.contains(&"wlan0".to_owned()), "{names:?}");
        let open = |path: &Path| add("more_ports", "443", path);
        let proxy: toml::Table =
            after(include_str!("../../../../../configs/proxy.toml"), open).parse().unwrap();
        let ports: Vec<i64> = proxy["more_ports"].clone().try_into().unwrap();
        assert!(ports.contains(&443), "{ports:?}");
    }

    #[test]
    fn one_text_takes_the_place_of_another_and_nothing_is_given_to_the_shell() {
        let moved = |path: &Path| replace("192.0.2.1:51999", "192.0.2.1:443", path);
        let text = "address = [\"192.0.2.1:51999\", \"192.0.2.1:51999\", \"192a0.2.1:51999\"]";
        let expected = "address = [\"192.0.2.1:443\", \"192.0.2.1:443\", \"192a0.2.1:51999\"]";
        assert_eq!(after(text, moved), expected);
        let bad = replace("x|e touch /tmp/y", "", Path::new("/c.toml"));
        assert_eq!(bad, "sudoedit /c.toml");
        assert_eq!(exclude("a'b", Path::new("/c.toml")), "sudoedit /c.toml");
        assert_eq!(quoted("http://x/';id;'"), "\"http://x/';id;'\"");
        assert_eq!(quoted("/etc/ropewalk/client/client.toml"), "/etc/ropewalk/client/client.toml");
    }
}
