//! The config of a client that joins once more: what it said of links, page, name servers and all else stays, with its
//! comments; only the proxy and this machine's key are others.

use ropewalk_control::invitation::{Invitation, InvitingProxy};
use ropewalk_settings::NamePattern;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike, value};

/// The config `old` with what `invitation` says in place of what it said of the proxy, with the names of the new key file
/// and of the file that holds the invitation, and over these interfaces only, if there are any. `None` for an `old` that is
/// no config.
#[must_use]
pub fn config_text(
    old: &str,
    invitation: &Invitation,
    (key_file, invitation_file): (&str, &str),
    interfaces: &[NamePattern],
) -> Option<String> {
    let mut config: DocumentMut = old.parse().ok()?;
    config.remove("private_key");
    set(config.as_table_mut(), "private_key_file", value(key_file));
    let proxy = config.entry("proxy").or_insert(toml_edit::table()).as_table_like_mut()?;
    let addresses = invitation.addresses.iter().map(ToString::to_string);
    set(proxy, "address", value(addresses.collect::<Array>()));
    set(proxy, "public_key", value(invitation.public_key.to_string()));
    set(proxy, "invitation_file", value(invitation_file));
    // A secret with the other proxy; who joins by an invitation has none.
    proxy.remove("preshared_key_file");
    // Others of the old operator, and one of them by its name.
    proxy.remove("other");
    proxy.remove("choose");
    set_others(proxy, &invitation.others);
    if !interfaces.is_empty() {
        only(&mut config, interfaces);
    }
    Some(config.to_string())
}

/// The other proxies that the invitation names: as tables of a list within a line where the section is one.
fn set_others(proxy: &mut dyn TableLike, others: &[InvitingProxy]) {
    let sections = others.iter().map(|other| {
        let addresses = other.addresses.iter().map(ToString::to_string);
        let mut section = Table::new();
        section.insert("address", value(addresses.collect::<Array>()));
        section.insert("public_key", value(other.public_key.to_string()));
        section
    });
    let sections: ArrayOfTables = sections.collect();
    if !sections.is_empty() {
        proxy.insert("other", Item::ArrayOfTables(sections));
    }
}

/// Puts a value in the place of another, whose comments stay.
fn set(table: &mut dyn TableLike, key: &str, item: Item) {
    match table.get_mut(key) {
        Some(known) => *known = item,
        None => drop(table.insert(key, item)),
    }
}

/// These interfaces are the links, each with what was said of it.
fn only(config: &mut DocumentMut, interfaces: &[NamePattern]) {
    let known = match config.remove("link") {
        Some(Item::ArrayOfTables(sections)) => sections,
        _ => ArrayOfTables::new(),
    };
    config.remove("include_interfaces");
    config.remove("exclude_interfaces");
    set(config.as_table_mut(), "links", value("listed"));
    let section = |interface: &NamePattern| {
        let is_of = |section: &&Table| {
            section.get("interface").and_then(Item::as_str) == Some(interface.as_str())
        };
        let mut section = known.iter().find(is_of).cloned().unwrap_or_default();
        set(&mut section, "interface", value(interface.as_str()));
        section.remove("enabled");
        // In the order of these interfaces, not of the old file.
        section.set_position(None);
        section
    };
    let sections: ArrayOfTables = interfaces.iter().map(section).collect();
    config.insert("link", Item::ArrayOfTables(sections));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
    use ropewalk_proto::fleet::Preference;
    use ropewalk_settings::{HostPort, InvitationToken, PrivateKey, Text as _};

    use super::*;
    use crate::config::{Config, Select};

    const OLD: &str = "# My laptop.
private_key_file = \"client.key\" # made by keygen
links = \"auto\"
dns = \"9.9.9.9\"

[proxy]
# The old one.
address = \"vps.example.org\"
public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"
preshared_key_file = \"client.psk\"

[[link]]
interface = \"wwan0\"
name = \"lte\"
allowance = \"10 GB\"

[[link]]
interface = \"wlan0\"
enabled = false

[control]
web = \"127.0.0.1:9586\"
";

    fn invitation() -> Invitation {
        Invitation {
            addresses: vec![HostPort::from_text("203.0.113.7:443").unwrap()],
            public_key: PrivateKey::generate().unwrap().public_key(),
            token: InvitationToken::from_bytes([7; 16]),
            expires: 1,
            others: Vec::new(),
        }
    }

    fn parse(text: &str) -> Config {
        let key = PrivateKey::generate().unwrap().to_base64().to_string();
        let files = KeyFiles::Given(BTreeMap::from([("new.key".into(), key)]));
        Config::parse(&Source::from_text(Path::new("client.toml"), text, files)).unwrap()
    }

    #[test]
    fn all_but_the_proxy_and_the_key_stays_with_its_comments() {
        let invitation = invitation();
        let text = config_text(OLD, &invitation, ("new.key", "new.invitation"), &[]).unwrap();
        for kept in ["# My laptop.", "# The old one.", "allowance = \"10 GB\"", "name = \"lte\""] {
            assert!(text.contains(kept), "{kept} is missing in\n{text}");
        }
        let config = parse(&text);
        assert_eq!(config.proxy.addresses, invitation.addresses);
        assert_eq!(config.proxy.public_key, invitation.public_key);
        assert_eq!(config.proxy.preshared_key, None);
        assert_eq!((config.links.select, config.links.listed.len()), (Select::Auto, 2));
        assert_eq!(config.dns.to_string(), "9.9.9.9");
        assert!(config.control.web.is_some());
    }

    #[test]
    fn the_others_of_the_old_proxy_give_way_to_those_of_the_new_one() {
        let key = || PrivateKey::generate().unwrap().public_key();
        let old_others = format!(
            "{}\n[[proxy.other]]\naddress = \"192.0.2.9\"\npublic_key = \"{}\"\n",
            OLD.replace(
                "[[link]]\ninterface = \"wwan0\"",
                "choose = \"lyon\"\n\n[[link]]\ninterface = \"wwan0\""
            ),
            key()
        );
        let inline =
            format!("proxy = {{ address = \"vps.example.org\", public_key = \"{}\" }}\n", key());
        let mut invitation = invitation();
        for count in [0, 2] {
            invitation.others = (0..count)
                .map(|number| InvitingProxy {
                    addresses: vec![
                        HostPort::from_text(&format!("198.51.100.{number}:51900")).unwrap(),
                    ],
                    public_key: key(),
                })
                .collect();
            for old in [OLD, &old_others, &inline] {
                let text =
                    config_text(old, &invitation, ("new.key", "new.invitation"), &[]).unwrap();
                let proxy = parse(&text).proxy;
                let others: Vec<_> = proxy
                    .others
                    .into_iter()
                    .map(|other| InvitingProxy {
                        addresses: other.addresses,
                        public_key: other.public_key,
                    })
                    .collect();
                assert_eq!(others, invitation.others, "{text}");
                assert_eq!(proxy.choose, Preference::Auto, "{text}");
            }
        }
    }

    #[test]
    fn interfaces_that_are_named_are_the_links_with_what_was_said_of_them() {
        let names = ["wlan0", "wwan0", "usb*"].map(|name| NamePattern::from_text(name).unwrap());
        let text = config_text(OLD, &invitation(), ("new.key", "new.invitation"), &names).unwrap();
        let config = parse(&text);
        assert_eq!(config.links.select, Select::Listed);
        let listed: Vec<_> = config
            .links
            .listed
            .iter()
            .map(|link| (link.interface.to_string(), link.enabled, link.allowance.is_some()))
            .collect();
        let expected = [("wlan0", true, false), ("wwan0", true, true), ("usb*", true, false)];
        assert_eq!(listed, expected.map(|(name, enabled, all)| (name.to_owned(), enabled, all)));
        assert!(config.control.web.is_some(), "{text}");
    }

    #[test]
    fn whatever_the_old_file_holds_nothing_panics() {
        for old in
            ["not toml", "proxy = 3", "link = 1\nproxy.address = 2", "[[proxy]]\n", "", "[proxy]\n"]
        {
            let names = [NamePattern::from_text("wlan0").unwrap()];
            let text = config_text(old, &invitation(), ("k", "i"), &names);
            let is_config = ["", "[proxy]\n", "link = 1\nproxy.address = 2"].contains(&old);
            assert_eq!(text.is_some(), is_config, "{old}");
        }
    }
}
