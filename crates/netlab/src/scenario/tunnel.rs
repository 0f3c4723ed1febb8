//! What the settings of the tunnel mean: to the core in virtual time, and in the daemons' config files.

use std::time::Duration;

use ropewalk_proto::config::{Keepalive, TunnelConfig};
use ropewalk_proto::sched::{
    self, BatcpConfig, NatalieConfig, SchedulerConfig, Terms, WhenClosed, batcp,
};
use ropewalk_proto::units::Bitrate;
use toml::{Table, Value};

use super::file::{Direction, Formula, TunnelSection, Weights, WhenFull};
use super::{Link, Scenario};

/// A setting of the tunnel that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("tunnel: {name} cannot be {value:?}")]
pub struct UnknownSetting {
    name: &'static str,
    value: String,
}

impl Link {
    /// What it carries that way in the mean of the beginning; `None` without a limit.
    #[must_use]
    pub fn rate(&self, sends: Direction) -> Option<Bitrate> {
        let course = if sends == Direction::Up { &self.upstream } else { &self.downstream };
        course.initial.rate.mean()
    }
}

impl Scenario {
    /// The initial rates, that way, of the links that carry packets that way.
    pub fn rates(&self, way: Direction) -> impl Iterator<Item = Bitrate> {
        // What goes both ways is told of downstream.
        let way = if way == Direction::Up { way } else { Direction::Down };
        self.links
            .iter()
            .filter(move |link| link.direction.includes(way))
            .filter_map(move |l| l.rate(way))
    }

    /// How the core of the end that sends this way is set.
    ///
    /// # Errors
    /// A setting does not exist.
    pub fn core(&self, sends: Direction) -> Result<TunnelConfig, UnknownSetting> {
        let section = &self.tunnel;
        let mut config = TunnelConfig::default();
        if let Some(name) = &section.scheduler {
            config.scheduler = name.parse().map_err(|_| unknown("scheduler", name))?;
        }
        if let (SchedulerConfig::Natalie(ours), Some(told)) =
            (&mut config.scheduler, &section.natalie)
        {
            *ours = NatalieConfig {
                weights: match told.weights {
                    Weights::Auto => sched::Weights::Auto,
                    Weights::Told => sched::Weights::Told,
                },
                when_full: when_full(told.when_full),
                ..NatalieConfig::default()
            };
        }
        if let (SchedulerConfig::Batcp(ours), Some(told)) = (&mut config.scheduler, &section.batcp)
        {
            *ours = BatcpConfig {
                formula: match told.formula {
                    Formula::Prose => batcp::Formula::Prose,
                    Formula::Literal => batcp::Formula::Literal,
                },
                when_full: when_full(told.when_full),
            };
        }
        if let Some(name) = &section.controller {
            let window = section.fixed_window.map_or_else(String::new, |n| format!(":{n}"));
            let name = format!("{name}{window}");
            config.controller = name.parse().map_err(|_| unknown("controller", &name))?;
        }
        config.when_closed = match section.when_closed.as_deref() {
            None => config.when_closed,
            Some("queue") => WhenClosed::Queue,
            Some("drop") => WhenClosed::Drop,
            Some(other) => return Err(unknown("when_closed", other)),
        };
        if let Some(seconds) = section.rekey_s {
            let time = Duration::try_from_secs_f64(seconds);
            config.rekey_after = time.map_err(|_| unknown("rekey_s", &seconds.to_string()))?;
        }
        if let Some(resequencer) = section.resequencer {
            config.reseq.enabled = resequencer.enabled;
        }
        let terms = |link: &Link| (link.name.clone(), self.terms(link, sends));
        config.terms = self.links.iter().map(terms).collect();
        Ok(config)
    }

    /// What is said of a link to the end that sends this way.
    fn terms(&self, link: &Link, sends: Direction) -> Terms {
        let told = self.tunnel.link.get(&link.name);
        let default = Terms::default();
        Terms {
            weight: told.and_then(|told| told.weight).unwrap_or(default.weight),
            rate: link.rate(sends).filter(|_| self.tunnel.rates_told),
            carries: link.direction.includes(sends),
            ..default
        }
    }

    /// How idle links are kept open.
    ///
    /// # Errors
    /// The setting does not exist.
    pub fn keepalive(&self) -> Result<Keepalive, UnknownSetting> {
        match self.tunnel.keepalive.as_deref() {
            None => Ok(Keepalive::default()),
            Some("off") => Ok(Keepalive::Off),
            Some("auto") => Ok(Keepalive::Auto),
            Some(text) => {
                let every = humantime::parse_duration(text);
                every.map(Keepalive::Every).map_err(|_| unknown("keepalive", text))
            }
        }
    }

    /// `[tunnel]` in the config file of the end that sends this way, where a link is called `name` of its place.
    #[must_use]
    pub fn table(&self, sends: Direction, name: impl Fn(u8) -> String) -> Table {
        let TunnelSection { scheduler, controller, when_closed, .. } = &self.tunnel;
        let mut table = Table::new();
        let words =
            [("scheduler", scheduler), ("controller", controller), ("when_closed", when_closed)];
        for (key, value) in words {
            if let Some(value) = value {
                table.insert(key.into(), value.clone().into());
            }
        }
        if let Some(window) = self.tunnel.fixed_window {
            table.insert("fixed_window".into(), i64::from(window).into());
        }
        if let Some(seconds) = self.tunnel.rekey_s {
            table.insert("rekey_after".into(), format!("{:.0}ms", seconds * 1e3).into());
        }
        // Sections of words alone can always be told in TOML.
        let resequencer = self.tunnel.resequencer.and_then(|told| Value::try_from(told).ok());
        let natalie = self.tunnel.natalie.and_then(|told| Value::try_from(told).ok());
        let batcp = self.tunnel.batcp.and_then(|told| Value::try_from(told).ok());
        let sections = [("resequencer", resequencer), ("natalie", natalie), ("batcp", batcp)];
        for (key, section) in sections {
            table.extend(section.map(|section| (key.to_owned(), section)));
        }
        let links = (0u8..).zip(&self.links);
        let links: Table = links
            .map(|(place, link)| (name(place), self.link_table(link, sends)))
            .filter(|(_, terms)| !terms.is_empty())
            .map(|(name, terms)| (name, Value::Table(terms)))
            .collect();
        if !links.is_empty() {
            table.insert("link".into(), links.into());
        }
        table
    }

    /// `[tunnel.link.NAME]` of a link.
    fn link_table(&self, link: &Link, sends: Direction) -> Table {
        let mut table = Table::new();
        if let Some(weight) = self.tunnel.link.get(&link.name).and_then(|told| told.weight) {
            table.insert("weight".into(), weight.into());
        }
        if let Some(rate) = link.rate(sends).filter(|_| self.tunnel.rates_told) {
            table.insert("rate".into(), format!("{} bit/s", rate.as_bps()).into());
        }
        if link.direction != Direction::Both {
            table.extend(Value::try_from(link.direction).map(|way| ("direction".to_owned(), way)));
        }
        table
    }
}

fn when_full(told: WhenFull) -> sched::WhenFull {
    match told {
        WhenFull::Pass => sched::WhenFull::Pass,
        WhenFull::Wait => sched::WhenFull::Wait,
    }
}

fn unknown(name: &'static str, value: &str) -> UnknownSetting {
    UnknownSetting { name, value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = r#"
        name = "x"
        links = [
            { name = "a", both = { rate_mbit = 5 }, up = { rate_mbit = 1 }, direction = "down" },
            { name = "b", both = { rate_mbit = 2 } },
        ]
        [tunnel]
        scheduler = "natalie"
        controller = "fixed"
        rates_told = true
        resequencer = { enabled = false }
        natalie = { weights = "told", when_full = "wait" }
        link = { b = { weight = 50 } }
    "#;

    #[test]
    fn the_same_words_reach_the_core_and_the_config_files() {
        let scenario = Scenario::parse(FILE, Path::new(".")).unwrap();
        let core = scenario.core(Direction::Up).unwrap();
        let natalie = NatalieConfig {
            weights: sched::Weights::Told,
            when_full: sched::WhenFull::Wait,
            ..NatalieConfig::default()
        };
        assert_eq!(core.scheduler, SchedulerConfig::Natalie(natalie));
        assert!(!core.reseq.enabled);
        let told = |config: &TunnelConfig| {
            ["a", "b"].map(|name| config.terms_of(name)).map(|t| (t.weight, t.rate, t.carries))
        };
        let mbit = |rate| Some(Bitrate::from_mbps(rate));
        assert_eq!(told(&core), [(1.0, mbit(1), false), (50.0, mbit(2), true)]);
        let down = scenario.core(Direction::Down).unwrap();
        assert_eq!(told(&down), [(1.0, mbit(5), true), (50.0, mbit(2), true)]);
        let table = scenario.table(Direction::Up, |place| format!("wan{place}"));
        let expected: Table = toml::from_str(
            "scheduler = 'natalie'\ncontroller = 'fixed'\n\
             resequencer = { enabled = false }\n\
             natalie = { weights = 'told', when_full = 'wait' }\n\
             link.wan0 = { rate = '1000000 bit/s', direction = 'down' }\n\
             link.wan1 = { rate = '2000000 bit/s', weight = 50.0 }",
        )
        .unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn what_the_scenario_leaves_out_stands_in_no_config_file() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        assert_eq!(scenario.table(Direction::Down, |_| "wan".to_owned()), Table::new());
        assert_eq!(scenario.core(Direction::Down).unwrap().terms_of("a"), Terms::default());
    }
}
