//! Settings of a link, and limits of devices, that were changed while the client runs, written into its config file. All else
//! stays as it is, comments too.

mod limit;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_settings::{NamePattern, Text as _};
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value,
};

use super::Config;
use crate::links::change::{ALLOWANCE, OFF, RESET_DAY, STOP, importance};

pub use limit::save_limit;

/// Keys that go where their value is `off`.
const OPTIONAL: [&str; 7] =
    ["max_up", "max_down", "rate_up", "rate_down", "weight", "cost", "importance"];

/// Writes these settings of the link of this interface into the config file: keys and values as [`LinkChange`] has them,
/// which the running client took.
///
/// # Errors
/// The file cannot be read or written, or would be no valid config; it is as it was then.
///
/// [`LinkChange`]: ropewalk_control::api::LinkChange
pub fn save_link(
    file: &Path,
    interface: &str,
    values: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    save(file, |text| edited(text, interface, values))
}

/// The text of a config with these settings in the `[[link]]` of exactly this interface; `None` if it has none.
///
/// # Errors
/// It is no config, or a value is none of its key.
pub fn text_with_link(
    text: &str,
    interface: &str,
    values: &BTreeMap<String, String>,
) -> anyhow::Result<Option<String>> {
    let document: DocumentMut = text.parse().context("it is not TOML")?;
    let own = document.get("link").and_then(|list| place(list, interface).0);
    own.map(|_| edited(text, interface, values)).transpose()
}

/// Has the file say what this makes of its text.
fn save(file: &Path, edited: impl FnOnce(&str) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let source = Source::read(file)?;
    let text =
        edited(source.text()).with_context(|| format!("cannot change {}", file.display()))?;
    Config::parse(&Source::from_text(file, &text, KeyFiles::Disk))
        .with_context(|| format!("{} would be wrong with this change", file.display()))?;
    ropewalk_daemon::file::rewrite(file, text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

/// The text with these settings.
fn edited(
    text: &str,
    interface: &str,
    values: &BTreeMap<String, String>,
) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse().context("it is not TOML")?;
    let section = section(&mut document, interface)?;
    for (key, text) in values {
        put(section, key, text)?;
    }
    Ok(document.to_string())
}

/// The section of this interface, made if there is none: with what a pattern says, for of two sections only one counts.
fn section<'a>(
    document: &'a mut DocumentMut,
    interface: &str,
) -> anyhow::Result<&'a mut dyn TableLike> {
    if !document.contains_key("link") {
        // The first [[link]] would make the listed ones the only ones.
        if !document.contains_key("links") {
            document.insert("links", value("auto"));
        }
        document.insert("link", Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let Some(list) = document.get_mut("link") else { bail!("it has no [[link]]") };
    let (at, new) = match place(list, interface) {
        (Some(at), _) => (at, None),
        (None, pattern) => (count(list), Some(of_its_own(interface, pattern)?)),
    };
    section_at(list, at, new).context("`link` is no list of tables")
}

/// The section at this place of a list, after a new one was put to its end, if there is one.
fn section_at(list: &mut Item, at: usize, new: Option<Table>) -> Option<&mut dyn TableLike> {
    match list {
        Item::ArrayOfTables(tables) => {
            if let Some(new) = new {
                tables.push(new);
            }
            tables.get_mut(at).map(|table| table as &mut dyn TableLike)
        }
        Item::Value(Value::Array(array)) => {
            if let Some(new) = new {
                array.push(new.into_inline_table());
            }
            let inline = array.get_mut(at).and_then(Value::as_inline_table_mut);
            inline.map(|table| table as &mut dyn TableLike)
        }
        _ => None,
    }
}

/// Where the interface's own section is, and what the first pattern that means it says.
fn place<'a>(list: &'a Item, interface: &str) -> (Option<usize>, Option<&'a dyn TableLike>) {
    let sections = sections(list);
    let own = sections.iter().position(|table| interface_of(*table) == Some(interface));
    let means = |text: &str| NamePattern::from_text(text).is_ok_and(|one| one.matches(interface));
    let pattern = sections.iter().find(|table| interface_of(**table).is_some_and(means));
    (own, pattern.copied())
}

fn interface_of(section: &dyn TableLike) -> Option<&str> {
    section.get("interface").and_then(Item::as_str)
}

fn sections(list: &Item) -> Vec<&dyn TableLike> {
    match list {
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Item::Value(Value::Array(array)) => {
            let inline = array.iter().filter_map(Value::as_inline_table);
            inline.map(|table| table as &dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

fn count(list: &Item) -> usize {
    list.as_array_of_tables()
        .map(ArrayOfTables::len)
        .or_else(|| list.as_array().map(Array::len))
        .unwrap_or_default()
}

/// A section for one interface, with what a pattern says so far.
fn of_its_own(interface: &str, pattern: Option<&dyn TableLike>) -> anyhow::Result<Table> {
    let mut section = Table::new();
    section.decor_mut().set_prefix("\n");
    section.insert("interface", value(interface));
    for (key, item) in pattern.into_iter().flat_map(TableLike::iter) {
        if key != "interface" {
            let Ok(said) = item.clone().into_value() else { bail!("`{key}` is no value") };
            section.insert(key, Item::Value(said));
        }
    }
    Ok(section)
}

/// Sets one key, or takes it out.
fn put(section: &mut dyn TableLike, key: &str, text: &str) -> anyhow::Result<()> {
    let within = match key {
        ALLOWANCE => "bytes",
        RESET_DAY => "reset_day",
        STOP => "stop",
        _ if text == OFF && OPTIONAL.contains(&key) => {
            remove(section, key);
            return Ok(());
        }
        _ => {
            replace(section, key, written(key, text)?);
            return Ok(());
        }
    };
    if !section.contains_key(ALLOWANCE) {
        section.insert(ALLOWANCE, value(InlineTable::new()));
    }
    let allowance = section.get_mut(ALLOWANCE).and_then(Item::as_table_like_mut);
    replace(allowance.context("`allowance` is no table")?, within, written(key, text)?);
    Ok(())
}

/// As it stands in the file.
fn written(key: &str, text: &str) -> anyhow::Result<Value> {
    Ok(match key {
        "enabled" | "metered" | STOP => Value::from(text.parse::<bool>()?),
        RESET_DAY => Value::from(text.parse::<i64>()?),
        "weight" => match text.parse::<i64>() {
            Ok(whole) => Value::from(whole),
            Err(_) => Value::from(text.parse::<f64>()?),
        },
        "importance" => {
            let shares = importance(text).map_err(anyhow::Error::msg)?;
            let mut table = InlineTable::new();
            table.insert("throughput", Value::from(shares.throughput()));
            table.insert("cost", Value::from(shares.cost()));
            Value::from(table)
        }
        _ => Value::from(text),
    })
}

/// Sets a key; a comment behind it stays.
fn replace(section: &mut dyn TableLike, key: &str, mut new: Value) {
    match section.get_mut(key) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        _ => {
            section.insert(key, Item::Value(new));
        }
    }
}

/// Takes a key out; the comments in front of it stay, in front of the next one or behind the one before.
fn remove(section: &mut dyn TableLike, key: &str) {
    let keys: Vec<String> = section.iter().map(|(key, _)| key.to_owned()).collect();
    let Some(at) = keys.iter().position(|known| known == key) else { return };
    let comments = comments_before(section, key);
    section.remove(key);
    if comments.is_empty() {
        return;
    }
    if let Some(next) = keys.get(at + 1) {
        let both = comments + &comments_before(section, next);
        if let Some(mut next) = section.key_mut(next) {
            next.leaf_decor_mut().set_prefix(both);
        }
    } else if let Some(Item::Value(before)) =
        at.checked_sub(1).and_then(|before| section.get_mut(&keys[before]))
    {
        let suffix = before.decor().suffix().and_then(|text| text.as_str()).unwrap_or_default();
        let behind = format!("{suffix}\n{}", comments.trim_end());
        before.decor_mut().set_suffix(behind);
    }
}

fn comments_before(section: &dyn TableLike, key: &str) -> String {
    let prefix = section.key(key).and_then(|key| key.leaf_decor().prefix());
    prefix.and_then(|text| text.as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, changes: &str) -> anyhow::Result<String> {
        let change = |word: &str| {
            let (key, value) = word.split_once('=').expect("key=value");
            (key.to_owned(), value.replace('_', " "))
        };
        edited(text, "wan1", &changes.split(' ').map(change).collect())
    }

    const FILE: &str = r#"# my laptop
keepalive = "15s"   # NAT of the landlord

# at home
[[link]]
interface = "wan0"
use = "always"

# LTE
[[link]]
interface = "wan1"  # the stick
# no more than the plan has
max_up = "5 Mbit/s" # ask in May
# dear
metered = true

[tunnel]
scheduler = "arrival" # best
"#;

    #[test]
    fn a_setting_is_changed_in_its_place_and_all_else_stays() {
        let cases = [
            ("max_up=6_Mbit/s", vec![("\"5 Mbit/s\"", "\"6 Mbit/s\"")]),
            ("metered=false", vec![("metered = true", "metered = false")]),
            (
                "use=when-needed cost=5_EUR/GB weight=2.5 importance=0.1,0.9",
                vec![(
                    "metered = true\n",
                    "metered = true\ncost = \"5 EUR/GB\"\n\
                     importance = { throughput = 0.1, cost = 0.9 }\nuse = \"when-needed\"\n\
                     weight = 2.5\n",
                )],
            ),
            (
                "allowance=50_GB allowance.reset_day=15 allowance.stop=true",
                vec![(
                    "metered = true\n",
                    "metered = true\nallowance = { bytes = \"50 GB\", reset_day = 15, stop = true }\n",
                )],
            ),
            // What is not said any more goes, the comments before it stay.
            ("max_up=off", vec![("max_up = \"5 Mbit/s\" # ask in May\n", "")]),
            ("max_down=off", vec![]),
            ("keepalive=off", vec![("metered = true\n", "metered = true\nkeepalive = \"off\"\n")]),
        ];
        for (changes, expected) in cases {
            let mut text = FILE.to_owned();
            for (old, new) in expected {
                text = text.replacen(old, new, 1);
            }
            assert_eq!(edit(FILE, changes).unwrap(), text, "{changes}");
        }
    }

    #[test]
    fn comments_before_the_last_setting_stay_when_it_goes() {
        let text =
            "[[link]]\ninterface = \"wan1\" # LTE\n# the plan\nmax_up = \"5 Mbit/s\"\n[tun]\n";
        let expected = "[[link]]\ninterface = \"wan1\" # LTE\n# the plan\n[tun]\n";
        assert_eq!(edit(text, "max_up=off").unwrap(), expected);
    }

    #[test]
    fn an_interface_without_a_section_gets_one_and_keeps_what_its_pattern_says() {
        let of_pattern = "[[link]]\ninterface = \"wan*\"\nmetered = true # all\n\
                          [link.allowance]\nbytes = \"1 GB\"\n[tun]\nname = \"x\"\n";
        let expected = "[[link]]\ninterface = \"wan*\"\nmetered = true # all\n\
                        [link.allowance]\nbytes = \"1 GB\"\n\n[[link]]\ninterface = \"wan1\"\n\
                        metered = true # all\nallowance = { bytes = \"1 GB\" }\nuse = \"backup\"\n\
                        [tun]\nname = \"x\"\n";
        assert_eq!(edit(of_pattern, "use=backup").unwrap(), expected);
        // Without any section every interface is a link, and stays one.
        let none = "# mine\nprivate_key_file = \"client.key\"\n\n[tun]\nname = \"x\"\n";
        let expected = "# mine\nprivate_key_file = \"client.key\"\nlinks = \"auto\"\n\n[tun]\n\
                        name = \"x\"\n\n[[link]]\ninterface = \"wan1\"\nuse = \"backup\"\n";
        assert_eq!(edit(none, "use=backup").unwrap(), expected);
        let inline = "link = [{ interface = \"wan0\" }]\n";
        let expected =
            "link = [{ interface = \"wan0\" }, { interface = \"wan1\", use = \"backup\" }]\n";
        assert_eq!(edit(inline, "use=backup").unwrap(), expected);
    }

    #[test]
    fn what_is_no_config_is_refused() {
        let table = [
            ("[[link", "not TOML"),
            ("link = 7", "no list of tables"),
            ("[[link]]\ninterface = \"wan1\"\nallowance = 7", "no table"),
        ];
        for (text, expected) in table {
            let error = format!("{:#}", edit(text, "allowance=1_GB").unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(edit("", "weight=heavy").is_err());
    }
}
