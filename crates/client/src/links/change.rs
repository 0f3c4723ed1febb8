//! One link's settings changed by hand while the client runs: pure, over what the config says.
//!
//! The settings then stand in a section of the link's own, as if the file had it: what is said of a pattern stays as it
//! is for the others.

use std::collections::BTreeMap;

use ropewalk_control::api::{LinkChange, LinkSettings};
use ropewalk_settings::{Bitrate, Keepalive, NamePattern, Text as _, nearest};

use super::Decision;
use crate::config::{LinkConfig, LinksConfig, MAX_LINKS, Priority};

/// What can be changed so.
const KEYS: [&str; 6] = ["enabled", "priority", "max_up", "max_down", "keepalive", "metered"];

/// What is said of a link for the scheduler has a command of its own.
const TERMS: [&str; 6] = ["weight", "rate", "cost", "use", "importance", "direction"];

/// What only the file can change.
const OF_FILE: [&str; 4] = ["interface", "name", "gateway", "allowance"];

/// The config with this change; `decisions` are the links that there are.
///
/// # Errors
/// What is wrong with the change, and what to write.
pub(crate) fn changed(
    config: &LinksConfig,
    decisions: &[&Decision],
    change: &LinkChange,
) -> Result<LinksConfig, String> {
    let Some(decision) = decisions.iter().find(|decision| decision.name == change.name) else {
        let names = || decisions.iter().map(|decision| decision.name.as_str());
        let help = match nearest(&change.name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Err(format!("there is no link `{}`: {help}", change.name.escape_debug()));
    };
    let mut config = config.clone();
    let at = match config.listed.iter().position(|one| one.interface.as_str() == decision.interface)
    {
        Some(at) => at,
        None if config.listed.len() >= MAX_LINKS => {
            return Err(format!("more than {MAX_LINKS} links have settings of their own"));
        }
        None => {
            let link = of_its_own(&config, decision)?;
            config.listed.push(link);
            config.listed.len() - 1
        }
    };
    for (key, value) in &change.values {
        set(&mut config.listed[at], key, value)?;
    }
    if !config.listed[at].enabled {
        let others = decisions.iter().filter(|other| other.name != change.name);
        let mut enabled =
            others.filter(|other| config.of(&other.interface).is_none_or(|one| one.enabled));
        if enabled.next().is_none() {
            return Err(format!(
                "{} is the last link that is not switched off: nothing could reach the proxy then; to end \
                 the tunnel, stop the client",
                change.name
            ));
        }
    }
    Ok(config)
}

/// What holds for a link.
pub(crate) fn settings(config: &LinksConfig, decision: &Decision) -> LinkSettings {
    let (name, interface) = (decision.name.clone(), decision.interface.as_str());
    let Some(link) = config.of(interface) else {
        let keepalive = ("keepalive".to_owned(), config.keepalive.to_string());
        return LinkSettings { name, values: BTreeMap::from([keepalive]) };
    };
    let bound =
        |rate: Option<Bitrate>| rate.map_or_else(|| "off".to_owned(), |rate| rate.to_string());
    let values = [
        ("enabled", link.enabled.to_string()),
        ("priority", link.priority.to_string()),
        ("max_up", bound(link.max_up)),
        ("max_down", bound(link.max_down)),
        ("keepalive", link.keepalive.to_string()),
        ("metered", link.metered.to_string()),
    ];
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    LinkSettings { name, values }
}

/// A section for one link of which none, or a pattern's, said something so far.
fn of_its_own(config: &LinksConfig, decision: &Decision) -> Result<LinkConfig, String> {
    let interface = NamePattern::from_text(&decision.interface)?;
    let name = decision.name.clone();
    Ok(match config.of(&decision.interface) {
        Some(pattern) => LinkConfig { interface, name, ..pattern.clone() },
        None => LinkConfig {
            interface,
            name,
            keepalive: config.keepalive,
            gateways: Vec::new(),
            metered: false,
            enabled: true,
            priority: Priority::Always,
            max_up: None,
            max_down: None,
            allowance: None,
        },
    })
}

fn set(link: &mut LinkConfig, key: &str, value: &str) -> Result<(), String> {
    let wrong = |expected: &str| format!("{key}: `{}` is not {expected}", value.escape_debug());
    let truth = || value.parse().map_err(|_| wrong("true or false"));
    let bound = || match value {
        "off" => Ok(None),
        _ => Bitrate::from_text(value).map(Some).map_err(|error| format!("{key}: {error}, or off")),
    };
    match key {
        "enabled" => link.enabled = truth()?,
        "metered" => link.metered = truth()?,
        "priority" => {
            link.priority = match value {
                "always" => Priority::Always,
                "backup" => Priority::Backup,
                _ => return Err(wrong("always or backup")),
            }
        }
        "max_up" => link.max_up = bound()?,
        "max_down" => link.max_down = bound()?,
        "keepalive" => {
            link.keepalive =
                Keepalive::from_text(value).map_err(|error| format!("{key}: {error}"))?;
        }
        _ if TERMS.contains(&key) => {
            // It is typed into a shell.
            let flag = format!("--{key}");
            let words = ["ropewalk", "set", "link", &link.name, &flag, value];
            let command = shlex::try_join(words).map_err(|error| format!("{key}: {error}"))?;
            return Err(format!("`{key}` is said to the scheduler: {command}"));
        }
        _ if OF_FILE.contains(&key) => {
            return Err(format!(
                "`{key}` stands in the config file: change it there, then `ropewalk reload`"
            ));
        }
        _ => {
            let help = match nearest(key, KEYS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", KEYS.join(", ")),
            };
            return Err(format!("a link has no setting `{}`: {help}", key.escape_debug()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::config::Wishes;

    use super::super::decide::Obstacle;
    use super::*;
    use crate::config::Select;

    fn decision(interface: &str) -> Decision {
        Decision {
            slot: Some(0),
            name: interface.to_owned(),
            interface: interface.to_owned(),
            keepalive: Keepalive::default(),
            metered: false,
            wishes: Wishes::default(),
            allowance: None,
            wish: Err(Obstacle::Unresolved),
        }
    }

    fn auto() -> LinksConfig {
        LinksConfig {
            select: Select::Auto,
            include: Vec::new(),
            exclude: Vec::new(),
            keepalive: Keepalive::Off,
            listed: Vec::new(),
        }
    }

    fn change(config: &LinksConfig, text: &str) -> Result<LinksConfig, String> {
        let links = [decision("wlan0"), decision("wwan0")];
        let mut words = text.split(' ');
        let name = words.next().unwrap().to_owned();
        let values = words.map(|word| word.split_once('=').unwrap());
        let values = values.map(|(key, value)| (key.to_owned(), value.replace('_', " "))).collect();
        changed(config, &links.each_ref(), &LinkChange { name, values })
    }

    #[test]
    fn what_is_not_said_stays_and_the_others_of_a_pattern_keep_theirs() {
        let mut config = change(&auto(), "wlan0 max_up=5_Mbit/s priority=backup").unwrap();
        config = change(&config, "wlan0 keepalive=auto").unwrap();
        let link = config.of("wlan0").unwrap();
        assert_eq!((link.priority, link.max_up), (Priority::Backup, Some(Bitrate::from_mbps(5))));
        let settings = settings(&config, &decision("wlan0")).values;
        assert_eq!(
            (settings["max_up"].as_str(), settings["max_down"].as_str()),
            ("5 Mbit/s", "off")
        );
        assert_eq!((settings["keepalive"].as_str(), config.listed.len()), ("auto", 1));
        let mut pattern = link.clone();
        pattern.interface = NamePattern::from_text("w*").unwrap();
        let of_pattern = LinksConfig { listed: vec![pattern], ..auto() };
        let config = change(&of_pattern, "wwan0 max_up=off").unwrap();
        assert_eq!(config.of("wwan0").unwrap().max_up, None);
        assert_eq!(config.of("wwan0").unwrap().priority, Priority::Backup, "as the pattern says");
        assert_eq!(config.of("wlan0").unwrap().max_up, Some(Bitrate::from_mbps(5)));
    }

    #[test]
    fn a_mistake_is_told_with_what_to_write() {
        let table = [
            ("wlan1 enabled=false", "there is no link `wlan1`: did you mean `wlan0`?"),
            ("satellite enabled=false", "there are wlan0, wwan0"),
            ("wlan0 max_upp=1", "did you mean `max_up`?"),
            ("wlan0 colour=red", "there are enabled, priority"),
            ("wlan0 max_up=5", "max_up: "),
            ("wlan0 priority=maybe", "priority: `maybe` is not always or backup"),
            ("wlan0 metered=perhaps", "metered: `perhaps` is not true or false"),
            ("wlan0 keepalive=1s_and", "keepalive: "),
            ("wlan0 weight=3", "said to the scheduler: ropewalk set link wlan0 --weight 3"),
            ("wlan0 cost=5_EUR/GB", "ropewalk set link wlan0 --cost '5 EUR/GB'"),
            ("wlan0 allowance=3", "stands in the config file"),
        ];
        for (text, expected) in table {
            let error = change(&auto(), text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_last_link_is_not_switched_off() {
        let one_less = change(&auto(), "wlan0 enabled=false").unwrap();
        let error = change(&one_less, "wwan0 enabled=false").unwrap_err();
        assert!(error.contains("wwan0 is the last link"), "{error}");
        assert!(change(&one_less, "wlan0 enabled=true").is_ok());
    }
}
