//! The limit of a device that was changed while the client runs, written into its config file.

use std::path::Path;

use anyhow::Context as _;
use ropewalk_settings::{DeviceLimit, DeviceSelector, Text as _};
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value,
};

use super::{count, remove, replace, save, section_at, sections};

/// The key of the limits within `share`.
const LIMIT: &str = "limit";

/// Writes this limit into the config file, as the only one of its device; one without a rate is taken out.
///
/// # Errors
/// The file cannot be read or written, shares nothing, or would be no valid config; it is as it was then.
pub fn save_limit(file: &Path, limit: &DeviceLimit) -> anyhow::Result<()> {
    save(file, |text| edited(text, limit))
}

/// The text with this limit.
fn edited(text: &str, limit: &DeviceLimit) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse().context("it is not TOML")?;
    let item = document.get_mut("share").context("nothing is shared there")?;
    let list = item.as_table_like().and_then(|share| share.get(LIMIT));
    let known = list.and_then(|list| place(list, &limit.device));
    let is_nothing = limit.down.is_none() && limit.up.is_none();
    if is_nothing && known.is_none() {
        return Ok(text.to_owned());
    }
    let is_section = item.is_table();
    let share = with_room(item).context("`share` is no list and no section")?;
    let (at, new) = match known {
        Some(at) if is_nothing => {
            take_out(share, at);
            return Ok(document.to_string());
        }
        Some(at) => (at, None),
        None => (share.get(LIMIT).map_or(0, count), Some(of(&limit.device))),
    };
    if !share.contains_key(LIMIT) {
        share.insert(
            LIMIT,
            match is_section {
                true => Item::ArrayOfTables(ArrayOfTables::new()),
                false => value(Array::new()),
            },
        );
    }
    let list = share.get_mut(LIMIT).context("it has no [[share.limit]]")?;
    let section = section_at(list, at, new).context("`limit` is no list of tables")?;
    for (key, rate) in [("down", limit.down), ("up", limit.up)] {
        match rate {
            Some(rate) => replace(section, key, Value::from(rate.to_string())),
            None => remove(section, key),
        }
    }
    Ok(document.to_string())
}

/// Where the limit of this device is.
fn place(list: &Item, device: &DeviceSelector) -> Option<usize> {
    let names = |section: &dyn TableLike| {
        let said = section.get("device").and_then(Item::as_str);
        said.and_then(|text| DeviceSelector::from_text(text).ok())
    };
    sections(list).into_iter().position(|section| names(section).as_ref() == Some(device))
}

/// `share` as a table: a list of interfaces becomes one, in its place.
fn with_room(share: &mut Item) -> Option<&mut dyn TableLike> {
    if let Item::Value(list @ (Value::String(_) | Value::Array(_))) = share {
        let mut interfaces = list.clone();
        interfaces.decor_mut().clear();
        let mut table = InlineTable::new();
        table.insert("interfaces", interfaces);
        let mut table = Value::from(table);
        *table.decor_mut() = list.decor().clone();
        *list = table;
    }
    share.as_table_like_mut()
}

/// A limit of this device that says nothing yet.
fn of(device: &DeviceSelector) -> Table {
    let mut section = Table::new();
    section.decor_mut().set_prefix("\n");
    section.insert("device", value(device.to_string()));
    section
}

fn take_out(share: &mut dyn TableLike, at: usize) {
    let Some(list) = share.get_mut(LIMIT) else { return };
    match list {
        Item::ArrayOfTables(tables) => {
            tables.remove(at);
        }
        Item::Value(Value::Array(array)) => {
            array.remove(at);
        }
        _ => {}
    }
    if count(list) == 0 {
        share.remove(LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Bitrate;

    fn edit(text: &str, device: &str, down: Option<u64>, up: Option<u64>) -> String {
        let device = DeviceSelector::from_text(device).unwrap();
        let rate = |rate: Option<u64>| rate.map(Bitrate::from_mbps);
        edited(text, &DeviceLimit { device, down: rate(down), up: rate(up) }).unwrap()
    }

    const FILE: &str = r#"# my household
[share]
interfaces = ["lan0"] # the switch
dhcp = true

# of the living room
[[share.limit]]
device = "TV" # the old one
down = "5 Mbit/s" # ask in May
up = "1 Mbit/s"

[tun]
name = "x"
"#;

    #[test]
    fn a_limit_is_changed_in_its_place_and_all_else_stays() {
        let expected = FILE.replace("\"5 Mbit/s\"", "\"6 Mbit/s\"");
        assert_eq!(edit(FILE, "tv", Some(6), Some(1)), expected);
        let expected = FILE.replace("up = \"1 Mbit/s\"\n", "");
        assert_eq!(edit(FILE, "tv", Some(5), None), expected);
        let new = "\n[[share.limit]]\ndevice = \"192.168.77.20\"\nup = \"2 Mbit/s\"\n";
        let expected = FILE.replace("\n[tun]", &format!("{new}\n[tun]"));
        assert_eq!(edit(FILE, "192.168.77.20", None, Some(2)), expected);
        let (before, rest) = FILE.split_once("\n# of the living room").unwrap();
        let (_, after) = rest.split_once("\n[tun]").unwrap();
        assert_eq!(edit(FILE, "tv", None, None), format!("{before}\n[tun]{after}"));
        assert_eq!(edit(FILE, "radio", None, None), FILE);
    }

    #[test]
    fn a_list_of_interfaces_becomes_a_table_in_its_place() {
        let text = "# mine\nshare = [\"lan0\"] # the switch\n\n[tun]\nname = \"x\"\n";
        let expected = "# mine\nshare = { interfaces = [\"lan0\"], limit = [{ device = \"tv\", \
                        down = \"5 Mbit/s\" }] } # the switch\n\n[tun]\nname = \"x\"\n";
        assert_eq!(edit(text, "tv", Some(5), None), expected);
        assert!(!edit(expected, "tv", None, None).contains("tv"));
        assert!(edit("share = \"lan0\"\n", "tv", Some(5), None).contains("interfaces = \"lan0\""));
    }

    #[test]
    fn where_nothing_is_shared_there_is_no_place_for_a_limit() {
        let limit = DeviceLimit {
            device: DeviceSelector::from_text("tv").unwrap(),
            down: Some(Bitrate::from_mbps(5)),
            up: None,
        };
        for (text, expected) in [
            ("", "nothing is shared there"),
            ("share = 7", "no list and no section"),
            ("[share]\nlimit = 7", "no list of tables"),
            ("[share", "not TOML"),
        ] {
            let error = format!("{:#}", edited(text, &limit).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
