//! One link's settings changed by hand while the client runs: pure, over what the config says.
//!
//! The settings then stand in a section of the link's own, as if the file had it: what is said of a pattern stays as it
//! is for the others.

use std::collections::BTreeMap;
use std::fmt::Display;

use ropewalk_control::api::{LinkChange, LinkSettings};
use ropewalk_settings::{
    Cost, DataSize, Importance, Keepalive, LinkPolicy, NamePattern, Text as _, nearest,
};
use serde::de::value::Error as NameError;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use super::Decision;
use crate::config::{Allowance, LinkConfig, LinksConfig, MAX_LINKS};

/// What can be changed so: keys of `[[link]]`, with a dot those of a table in it.
pub(crate) const KEYS: [&str; 15] = [
    "enabled",
    "use",
    "direction",
    "max_up",
    "max_down",
    "rate_up",
    "rate_down",
    "weight",
    "cost",
    "importance",
    "keepalive",
    "metered",
    ALLOWANCE,
    RESET_DAY,
    STOP,
];

/// How much a link may carry in a month.
pub(crate) const ALLOWANCE: &str = "allowance";
/// On which day that begins again.
pub(crate) const RESET_DAY: &str = "allowance.reset_day";
/// Whether the link is not used any more when it is used up.
pub(crate) const STOP: &str = "allowance.stop";

/// The word for what is not said.
pub(crate) const OFF: &str = "off";

/// What only the file can change.
const OF_FILE: [&str; 3] = ["interface", "name", "gateway"];

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
    let link = &config.listed[at];
    link.policy.check().map_err(|problem| format!("{}: {problem}", link.name))?;
    config.check_policies().map_err(|error| error.to_string())?;
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
    let (name, interface) = (decision.name.clone(), decision.interface.clone());
    let Some(link) = config.of(&interface) else {
        let keepalive = ("keepalive".to_owned(), config.keepalive.to_string());
        return LinkSettings {
            name,
            interface,
            values: BTreeMap::from([keepalive]),
            ..LinkSettings::default()
        };
    };
    let LinkPolicy {
        usage,
        direction,
        max_up,
        max_down,
        rate_up,
        rate_down,
        weight,
        cost,
        importance,
    } = &link.policy;
    let allowance = link.allowance;
    let of_allowance = |value: fn(&Allowance) -> String| allowance.as_ref().map(value);
    let values = [
        ("enabled", Some(link.enabled.to_string())),
        ("use", Some(usage.to_string())),
        ("direction", Some(direction.to_string())),
        ("max_up", Some(or_off(max_up.as_ref()))),
        ("max_down", Some(or_off(max_down.as_ref()))),
        ("rate_up", Some(or_off(rate_up.as_ref()))),
        ("rate_down", Some(or_off(rate_down.as_ref()))),
        ("weight", Some(or_off(weight.as_ref()))),
        ("cost", Some(or_off(cost.as_ref()))),
        ("importance", Some(or_off(importance.as_ref()))),
        ("keepalive", Some(link.keepalive.to_string())),
        ("metered", Some(link.metered.to_string())),
        (ALLOWANCE, of_allowance(|allowance| format!("{} GB", gigabytes(allowance.bytes)))),
        (RESET_DAY, of_allowance(|allowance| allowance.reset_day.to_string())),
        (STOP, of_allowance(|allowance| allowance.stop.to_string())),
    ];
    let said = values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    LinkSettings { name, interface, values: said.collect(), ..LinkSettings::default() }
}

#[expect(clippy::cast_precision_loss, reason = "an allowance is below 2^53 bytes")]
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn or_off(value: Option<&impl Display>) -> String {
    value.map_or_else(|| OFF.to_owned(), ToString::to_string)
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
            policy: LinkPolicy::default(),
            allowance: None,
        },
    })
}

fn set(link: &mut LinkConfig, key: &str, value: &str) -> Result<(), String> {
    let wrong = |expected: &str| format!("{key}: `{}` is not {expected}", value.escape_debug());
    let truth = || value.parse().map_err(|_| wrong("true or false"));
    let policy = &mut link.policy;
    match key {
        "enabled" => link.enabled = truth()?,
        "use" => policy.usage = choice(key, value)?,
        "direction" => policy.direction = choice(key, value)?,
        "max_up" => policy.max_up = unless_off(key, value)?,
        "max_down" => policy.max_down = unless_off(key, value)?,
        "rate_up" => policy.rate_up = unless_off(key, value)?,
        "rate_down" => policy.rate_down = unless_off(key, value)?,
        "weight" if value == OFF => policy.weight = None,
        "weight" => policy.weight = Some(value.parse().map_err(|_| wrong("a number, or off"))?),
        "cost" => policy.cost = unless_off::<Cost>(key, value)?,
        "importance" if value == OFF => policy.importance = None,
        "importance" => policy.importance = Some(importance(value)?),
        "keepalive" => {
            link.keepalive =
                Keepalive::from_text(value).map_err(|error| format!("{key}: {error}"))?;
        }
        "metered" => link.metered = truth()?,
        ALLOWANCE => {
            let DataSize(bytes) =
                DataSize::from_text(value).map_err(|error| format!("{key}: {error}"))?;
            let known = link.allowance.unwrap_or(Allowance { bytes, reset_day: 1, stop: false });
            link.allowance = Some(Allowance { bytes, ..known });
        }
        RESET_DAY | STOP => {
            let allowance = link.allowance.as_mut().ok_or_else(|| {
                format!("{key}: {} has no allowance: write allowance='50 GB' too", link.name)
            })?;
            match key {
                STOP => allowance.stop = truth()?,
                _ => {
                    let day = value.parse().ok().filter(|day| (1..=31).contains(day));
                    allowance.reset_day = day.ok_or_else(|| wrong("a day from 1 to 31"))?;
                }
            }
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

/// Reads a value, or that there is none.
fn unless_off<T: ropewalk_settings::Text>(key: &str, value: &str) -> Result<Option<T>, String> {
    match value {
        OFF => Ok(None),
        _ => T::from_text(value).map(Some).map_err(|error| format!("{key}: {error}, or off")),
    }
}

/// Reads a choice by the names of the config file.
fn choice<T: DeserializeOwned>(key: &str, value: &str) -> Result<T, String> {
    T::deserialize(value.into_deserializer()).map_err(|error: NameError| {
        format!("{key}: {}", ropewalk_control::config::error::explained(&error.to_string()))
    })
}

/// Reads two shares.
pub(crate) fn importance(value: &str) -> Result<Importance, String> {
    let number = |text: &str| text.trim().parse().ok();
    let both = value.split_once(',').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    let help = "importance: write two shares of one, of throughput and of cost, such as 0.1,0.9";
    let (throughput, cost) = both.ok_or(help)?;
    Importance::new(throughput, cost)
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::{Bitrate, Usage};

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
            policy: LinkPolicy::default(),
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
        let mut config = change(&auto(), "wlan0 max_up=5_Mbit/s use=backup").unwrap();
        config = change(&config, "wlan0 keepalive=auto").unwrap();
        let link = config.of("wlan0").unwrap();
        let bound = Some(Bitrate::from_mbps(5));
        assert_eq!((link.policy.usage, link.policy.max_up), (Usage::Backup, bound));
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
        assert_eq!(config.of("wwan0").unwrap().policy.max_up, None);
        assert_eq!(config.of("wwan0").unwrap().policy.usage, Usage::Backup, "as the pattern says");
        assert_eq!(config.of("wlan0").unwrap().policy.max_up, bound);
    }

    #[test]
    fn a_mistake_is_told_with_what_to_write() {
        let table = [
            ("wlan1 enabled=false", "there is no link `wlan1`: did you mean `wlan0`?"),
            ("satellite enabled=false", "there are wlan0, wwan0"),
            ("wlan0 max_upp=1", "did you mean `max_up`?"),
            ("wlan0 colour=red", "there are enabled, use, direction"),
            ("wlan0 priority=backup", "a link has no setting `priority`"),
            ("wlan0 max_up=5", "max_up: "),
            ("wlan0 use=maybe", "always, when-needed, backup"),
            ("wlan0 use=when-neded", "did you mean `when-needed`?"),
            ("wlan0 direction=sideways", "direction: "),
            ("wlan0 weight=-1", "wlan0: weight = -1 is no number from 0"),
            ("wlan0 weight=nan", "wlan0: weight = NaN is no number from 0"),
            ("wlan0 weight=heavy", "weight: `heavy` is not a number, or off"),
            ("wlan0 cost=5", "such as \"5 EUR/GB\", or off"),
            ("wlan0 importance=0.5", "two shares of one"),
            ("wlan0 importance=0.5,0.6", "must be shares that sum to 1"),
            ("wlan0 metered=perhaps", "metered: `perhaps` is not true or false"),
            ("wlan0 keepalive=1s_and", "keepalive: "),
            ("wlan0 allowance=much", "allowance: "),
            ("wlan0 allowance.stop=true", "has no allowance: write allowance='50 GB' too"),
            ("wlan0 allowance=1_GB allowance.reset_day=32", "is not a day from 1 to 31"),
            ("wlan0 gateway=192.0.2.1", "stands in the config file"),
        ];
        for (text, expected) in table {
            let error = change(&auto(), text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn every_setting_can_be_changed_and_taken_back_and_is_told_as_it_is_written() {
        let written = [
            ("use", "when-needed", "always"),
            ("direction", "down", "both"),
            ("max_up", "5 Mbit/s", "off"),
            ("max_down", "6 Mbit/s", "off"),
            ("rate_up", "7 Mbit/s", "off"),
            ("rate_down", "8 Mbit/s", "off"),
            ("weight", "2.5", "off"),
            ("cost", "5 EUR/GB", "off"),
            ("importance", "0.1,0.9", "off"),
            ("keepalive", "20s", "off"),
            ("metered", "true", "false"),
        ];
        for (key, value, none) in written {
            for said in [value, none] {
                let text = format!("wlan0 {key}={}", said.replace(' ', "_"));
                let config = change(&auto(), &text).unwrap();
                let settings = settings(&config, &decision("wlan0"));
                assert_eq!(settings.values[key], said, "{key}");
                assert_eq!(settings.interface, "wlan0");
            }
        }
        let text = "wlan0 allowance=2_GB allowance.reset_day=15 allowance.stop=true";
        let config = change(&auto(), text).unwrap();
        let expected = Allowance { bytes: 2_000_000_000, reset_day: 15, stop: true };
        assert_eq!(config.of("wlan0").unwrap().allowance, Some(expected));
        let more = change(&config, "wlan0 allowance=3_GB").unwrap();
        let expected = Allowance { bytes: 3_000_000_000, ..expected };
        assert_eq!(more.of("wlan0").unwrap().allowance, Some(expected), "the rest stays");
        let settings = settings(&more, &decision("wlan0"));
        assert_eq!((&*settings.values[ALLOWANCE], &*settings.values[STOP]), ("3 GB", "true"));
    }

    #[test]
    fn prices_in_two_units_are_refused() {
        let config = change(&auto(), "wlan0 cost=1_EUR/GB").unwrap();
        let error = change(&config, "wwan0 cost=1_USD/GB").unwrap_err();
        assert!(error.contains("use one unit for all"), "{error}");
    }

    #[test]
    fn the_last_link_is_not_switched_off() {
        let one_less = change(&auto(), "wlan0 enabled=false").unwrap();
        let error = change(&one_less, "wwan0 enabled=false").unwrap_err();
        assert!(error.contains("wwan0 is the last link"), "{error}");
        assert!(change(&one_less, "wlan0 enabled=true").is_ok());
    }
}
