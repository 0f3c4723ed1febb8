//! Everything of a namespace's network that a daemon could leave behind: interfaces, addresses, routes,
//! rules, firewall tables, settings. Two snapshots are compared line by line.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::error::LabError;
use crate::namespace::Namespace;
use crate::tool;

/// One namespace at one moment, as sorted lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot(BTreeSet<String>);

/// What is listed, each as a JSON list.
const LISTINGS: [(&str, &str, &[&str]); 7] = [
    ("interface", "ip", &["-j", "-details", "link", "show"]),
    ("address", "ip", &["-j", "addr", "show"]),
    ("rule", "ip", &["-j", "-4", "rule", "show"]),
    ("rule6", "ip", &["-j", "-6", "rule", "show"]),
    ("route", "ip", &["-j", "-4", "route", "show", "table", "all"]),
    ("route6", "ip", &["-j", "-6", "route", "show", "table", "all"]),
    ("nft", "nft", &["-j", "list", "ruleset"]),
];

/// Settings of every interface, and those of the whole namespace that a daemon may switch.
const SETTINGS: [&str; 3] =
    ["/proc/sys/net/ipv4/conf", "/proc/sys/net/ipv6/conf", "/proc/sys/net/ipv4/ip_forward"];

/// What differs from one run to the next without meaning anything: numbers that the kernel gives, counts
/// and times.
const NOISE: [&str; 14] = [
    "ifindex",
    "handle",
    "index",
    "packets",
    "bytes",
    "metainfo",
    "link_index",
    "link_netnsid",
    "valid_life_time",
    "preferred_life_time",
    "stats64",
    "expires",
    "address",
    "group",
];

impl Snapshot {
    pub(crate) fn of(namespace: &Namespace) -> Result<Self, LabError> {
        Self::without(namespace, &[])
    }

    /// The same but for these fields of what is listed.
    pub(crate) fn without(namespace: &Namespace, fields: &[&str]) -> Result<Self, LabError> {
        namespace.run(|| {
            let mut lines = BTreeSet::new();
            for (what, program, arguments) in LISTINGS {
                let text = tool::run(program, arguments)?;
                let listed: Value = serde_json::from_str(&text)
                    .map_err(|_| LabError::Malformed { what: "a listing", text })?;
                add_listing(&mut lines, what, listed, fields);
            }
            for setting in SETTINGS {
                add_settings(&mut lines, Path::new(setting));
            }
            Ok(Self(lines))
        })?
    }

    /// The same with other words in place of some.
    pub(crate) fn reading(self, words: &str, others: &str) -> Self {
        Self(self.0.into_iter().map(|line| line.replace(words, others)).collect())
    }

    /// What came and what went since `before`, a line each.
    pub(crate) fn since(&self, before: &Self) -> Vec<String> {
        let came = self.0.difference(&before.0).map(|line| format!("+ {line}"));
        let went = before.0.difference(&self.0).map(|line| format!("- {line}"));
        came.chain(went).collect()
    }
}

fn add_listing(lines: &mut BTreeSet<String>, what: &str, listed: Value, fields: &[&str]) {
    let entries = match listed {
        Value::Array(entries) => entries,
        // What nft prints.
        Value::Object(mut all) => match all.remove("nftables") {
            Some(Value::Array(entries)) => entries,
            _ => return,
        },
        _ => return,
    };
    for mut entry in entries {
        forget_traffic(&mut entry);
        clean(&mut entry, fields);
        let is_empty = entry.as_object().is_some_and(serde_json::Map::is_empty);
        if !is_empty {
            add(lines, format!("{what} {entry}"));
        }
    }
}

/// Addresses and keys that the kernel draws for itself on a TUN.
const DRAWN: [&str; 2] = ["stable_secret", r#""dst":"fe80::"#];

/// What packets put into a set of the firewall comes and goes with them. nft does not say of every such set that it is dynamic,
/// but a rule that adds an element gives it something beside its value: a limit or a count.
fn forget_traffic(entry: &mut Value) {
    let Some(set) = entry.get_mut("set").and_then(Value::as_object_mut) else { return };
    let is_of_packets = |flag: &Value| flag == "dynamic" || flag == "timeout";
    let of_packets = match set.get("flags") {
        Some(Value::Array(flags)) => flags.iter().any(is_of_packets),
        Some(flag) => is_of_packets(flag),
        None => false,
    };
    let Some(Value::Array(elements)) = set.get_mut("elem") else { return };
    let counts = |key: &str| !["val", "comment"].contains(&key);
    elements.retain(|element| {
        let element = element.get("elem").and_then(Value::as_object);
        !of_packets && !element.is_some_and(|element| element.keys().any(|key| counts(key)))
    });
    if elements.is_empty() {
        set.remove("elem");
    }
}

fn clean(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !NOISE.contains(&key.as_str()) && !fields.contains(&key.as_str()));
            map.values_mut().for_each(|value| clean(value, fields));
        }
        Value::Array(list) => {
            // An address that the kernel drew for itself.
            list.retain(|entry| entry["scope"] != "link" || entry["family"] != "inet6");
            list.iter_mut().for_each(|value| clean(value, fields));
        }
        _ => {}
    }
}

fn add(lines: &mut BTreeSet<String>, line: String) {
    // The prefix of all such addresses is the same in every run.
    let drawn = DRAWN.iter().any(|part| line.contains(part)) && !line.contains("fe80::/64");
    if !drawn {
        lines.insert(line);
    }
}

fn add_settings(lines: &mut BTreeSet<String>, at: &Path) {
    let Ok(entries) = std::fs::read_dir(at) else {
        // Some can only be written.
        if let Ok(value) = std::fs::read_to_string(at) {
            add(lines, format!("setting {} = {}", at.display(), value.trim()));
        }
        return;
    };
    entries.flatten().for_each(|entry| add_settings(lines, &entry.path()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_kernel_are_no_difference_and_a_rule_is() {
        let snapshot = |text: &str| {
            let mut lines = BTreeSet::new();
            add_listing(&mut lines, "rule", serde_json::from_str(text).unwrap(), &[]);
            Snapshot(lines)
        };
        let before = snapshot(r#"[{"priority":0,"handle":1},{"priority":5}]"#);
        let after = snapshot(r#"[{"priority":0,"handle":9},{"priority":6}]"#);
        assert_eq!(after.since(&before), [r#"+ rule {"priority":6}"#, r#"- rule {"priority":5}"#]);
        let nft = snapshot(r#"{"nftables":[{"metainfo":{"version":"1"}},{"table":{"name":"a"}}]}"#);
        assert_eq!(nft.0.len(), 1);
    }

    #[test]
    fn what_packets_put_into_a_set_is_no_difference_and_what_a_daemon_puts_there_is() {
        let [plain, counted] =
            [r#""10.77.0.2""#, r#"{"elem":{"val":"10.77.0.2","ct count":{"val":20,"inv":true}}}"#];
        for (flags, element, expected) in [
            (r#""flags":"dynamic","#, plain, 0),
            (r#""flags":["dynamic","timeout"],"#, plain, 0),
            (r#""flags":["interval"],"#, plain, 2),
            ("", plain, 2),
            ("", counted, 0),
        ] {
            let set = |elements: &str| {
                let text = format!(r#"[{{"set":{{{flags}"name":"s"{elements}}}}}]"#);
                let mut lines = BTreeSet::new();
                add_listing(&mut lines, "nft", serde_json::from_str(&text).unwrap(), &[]);
                Snapshot(lines)
            };
            let (before, after) = (set(""), set(&format!(r#","elem":[{element}]"#)));
            assert_eq!(after.since(&before).len(), expected, "{flags} {element}");
        }
    }
}
