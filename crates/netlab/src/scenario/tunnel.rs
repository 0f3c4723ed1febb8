//! What the settings of the tunnel mean: to the core in virtual time, and in the daemons' config files.

use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::{Bitrate, Direction, LinkTerms, SettingError, TunnelSection};
use toml::Table;

use super::{Link, Scenario};

impl Link {
    /// What it carries that way in the mean of the beginning; `None` without a limit.
    #[must_use]
    pub fn rate(&self, sends: Direction) -> Option<Bitrate> {
        let course = if sends == Direction::Up { &self.upstream } else { &self.downstream };
        course.initial.mean_rate()
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

    /// What the first link carries against the direction of the first stream, in the mean of the beginning.
    #[must_use]
    pub fn rate_back(&self) -> Option<Bitrate> {
        let back = if self.direction() == Direction::Up { Direction::Down } else { Direction::Up };
        self.links.first().and_then(|link| link.rate(back))
    }

    /// How the core of the end that sends this way is set.
    ///
    /// # Errors
    /// A setting makes no sense.
    pub fn core(&self, sends: Direction) -> Result<TunnelConfig, SettingError> {
        let names = self.links.iter().map(|link| link.name.clone());
        let section = self.section(sends, names);
        Ok(TunnelConfig::new(&section.resolve()?, sends))
    }

    /// `[tunnel]` in the config file of the end that sends this way, where a link is called `name` of its place.
    #[must_use]
    pub fn table(&self, sends: Direction, name: impl Fn(u8) -> String) -> Table {
        let section = self.section(sends, (0..=u8::MAX).map(name));
        Table::try_from(section).expect("a section can always be written")
    }

    /// The settings with what is said of the links, which are called by these `names` in their order.
    fn section(&self, sends: Direction, names: impl Iterator<Item = String>) -> TunnelSection {
        let links = names.zip(self.links.iter().map(|link| self.told(link, sends)));
        let link = links.filter(|(_, told)| *told != LinkTerms::default()).collect();
        TunnelSection { link, ..self.tunnel.settings.clone() }
    }

    /// What is said of a link to the end that sends this way.
    fn told(&self, link: &Link, sends: Direction) -> LinkTerms {
        let told = self.tunnel.settings.link.get(&link.name).cloned().unwrap_or_default();
        LinkTerms {
            rate: link.rate(sends).filter(|_| self.tunnel.rates_told).or(told.rate),
            direction: Some(link.direction)
                .filter(|way| *way != Direction::Both)
                .or(told.direction),
            ..told
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_settings::{
        ControllerKind, LinkPolicy, NatalieSettings, SchedulerKind, Terms, Weights, WhenFull,
    };

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
        let natalie = NatalieSettings {
            weights: Weights::Told,
            when_full: WhenFull::Wait,
            ..NatalieSettings::default()
        };
        assert_eq!(core.scheduling.scheduler, SchedulerKind::Natalie);
        assert_eq!(core.scheduling.natalie, natalie);
        assert_eq!(core.controller, ControllerKind::Fixed(64));
        assert!(!core.reseq.settings.enabled);
        let told = |config: &TunnelConfig| {
            ["a", "b"]
                .map(|name| config.terms_of(name, &LinkPolicy::default()))
                .map(|t| (t.weight, t.rate, t.carries))
        };
        let mbit = |rate| Some(Bitrate::from_mbps(rate));
        assert_eq!(told(&core), [(1.0, mbit(1), false), (50.0, mbit(2), true)]);
        let down = scenario.core(Direction::Down).unwrap();
        assert_eq!(told(&down), [(1.0, mbit(5), true), (50.0, mbit(2), true)]);
        let table = scenario.table(Direction::Up, |place| format!("wan{place}"));
        let expected: Table = toml::from_str(
            "scheduler = 'natalie'\ncontroller = 'fixed'\n\
             resequencer = { enabled = false }\n\
             natalie = { weights = 'told', count = 'packets', when_full = 'wait' }\n\
             link.wan0 = { rate = '1 Mbit/s', direction = 'down' }\n\
             link.wan1 = { rate = '2 Mbit/s', weight = 50.0 }",
        )
        .unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn what_the_scenario_leaves_out_stands_in_no_config_file() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        assert_eq!(scenario.table(Direction::Down, |_| "wan".to_owned()), Table::new());
        assert_eq!(
            scenario.core(Direction::Down).unwrap().terms_of("a", &LinkPolicy::default()),
            Terms::default()
        );
    }
}
