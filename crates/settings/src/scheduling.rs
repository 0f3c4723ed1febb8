//! Which scheduler, its settings, which packets go over two links, and what is said of each link: the same in a config file (`[tunnel]`) and in a
//! change of a running tunnel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pattern::{literals, matches};
use crate::policy::one_unit;
use crate::{
    Acknowledge, BatcpSettings, ControllerKind, Direction, LinkPolicy, LinkTerms, NatalieSettings,
    Order, Profile, Redundant, SafireSettings, SchedulerKind, SettingError, Terms, nearest,
    shortened,
};

/// The scheduler and all its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduling {
    /// Which one.
    pub scheduler: SchedulerKind,
    /// Settings of `natalie`.
    pub natalie: NatalieSettings,
    /// Settings of `batcp`.
    pub batcp: BatcpSettings,
    /// Settings of `safire`.
    pub safire: SafireSettings,
    /// Which packets go over two links at once, whatever the scheduler.
    pub redundant: Redundant,
    /// Whose controller, order and acknowledgements are in force in place of those of the config; only said to a running daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// What is said of links, by name or by a pattern of names ([`Scheduling::told`]).
    pub terms: BTreeMap<String, LinkTerms>,
}

impl From<SchedulerKind> for Scheduling {
    /// This scheduler, with defaults.
    fn from(scheduler: SchedulerKind) -> Self {
        Self { scheduler, ..Self::default() }
    }
}

impl Scheduling {
    /// Takes a profile: its scheduler, and what belongs to it.
    pub fn set_profile(&mut self, profile: Profile) {
        self.scheduler = profile.scheduler();
        self.profile = Some(profile);
    }

    /// By which controller the window of a link is kept, where the config says this.
    #[must_use]
    pub fn controller(&self, configured: ControllerKind) -> ControllerKind {
        self.profile.map_or(configured, Profile::controller)
    }

    /// Which order the receiver restores, where the config says this.
    #[must_use]
    pub fn order(&self, configured: Order) -> Order {
        self.profile.map_or(configured, Profile::order)
    }

    /// Who acknowledges what a sender of TCP has sent, where the config says this.
    #[must_use]
    pub fn acknowledge(&self, configured: Acknowledge) -> Acknowledge {
        self.profile.map_or(configured, Profile::acknowledge)
    }

    /// What is said of the link of this name, of which the wire may carry only the beginning ([`shortened`]): under the
    /// name itself, else under the pattern that leaves least open.
    #[must_use]
    pub fn told(&self, link: &str) -> Option<&LinkTerms> {
        let of = |(_, terms)| terms;
        let short = || self.terms.iter().find(|(name, _)| shortened(name).as_str() == link);
        let patterns = || self.terms.iter().filter(|(name, _)| matches(name, link));
        let closest = || patterns().max_by_key(|(name, _)| literals(name));
        self.terms.get(link).or_else(|| short().map(of)).or_else(|| closest().map(of))
    }

    /// What holds for the link of this name, whose owner says this `policy` of it, for the end that `sends` this way.
    #[must_use]
    pub fn terms_of(&self, link: &str, policy: &LinkPolicy, sends: Direction) -> Terms {
        Terms::agreed(self.told(link), policy, sends)
    }

    /// Whether the scheduler in force and its settings are the same, whatever is said of others and of links.
    #[must_use]
    pub fn schedules_like(&self, other: &Self) -> bool {
        self.scheduler == other.scheduler
            && match self.scheduler {
                SchedulerKind::FreeWindow | SchedulerKind::Arrival | SchedulerKind::RoundRobin => {
                    true
                }
                SchedulerKind::Natalie => self.natalie == other.natalie,
                SchedulerKind::Batcp => self.batcp == other.batcp,
                SchedulerKind::Safire => self.safire == other.safire,
            }
    }

    /// Whether it makes sense as a whole.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), SettingError> {
        for (name, terms) in &self.terms {
            terms.check().map_err(|problem| SettingError::new(["link", name], problem))?;
        }
        let costs = self.terms.iter();
        one_unit(costs.filter_map(|(name, terms)| Some((name.as_str(), terms.cost.as_ref()?))))?;
        self.check_weights()?;
        self.redundant.check()?;
        self.safire.check().map_err(|problem| SettingError::new(["safire"], problem))
    }

    /// Of a single weight nothing follows: links that are not named weigh 1.
    fn check_weights(&self) -> Result<(), SettingError> {
        let none = |terms: &LinkTerms| terms.weight == Some(0.0);
        if self.terms.len() > 1 && self.terms.values().all(none) {
            let problem =
                "all weights are zero: no link would carry anything; give one of them more";
            return Err(SettingError::new(["link"], problem));
        }
        Ok(())
    }

    /// Whether it names only links that there can be, where all of them are `known`.
    ///
    /// # Errors
    /// The first that does not exist, and what may have been meant.
    pub fn check_links(&self, known: &[&str]) -> Result<(), SettingError> {
        let unknown = |name: &str| {
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", known.join(", ")),
            };
            format!("there is no link `{}`: {help}", name.escape_debug())
        };
        let means_none = |name: &&String| !known.iter().any(|link| matches(name, link));
        if let Some(name) = self.terms.keys().find(means_none) {
            return Err(SettingError::new(["link", name], unknown(name)));
        }
        let mut routed = self.safire.routes.values().flatten();
        match routed.find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(SettingError::new(["safire"], unknown(name))),
            None => Ok(()),
        }
    }
}

impl SafireSettings {
    fn check(&self) -> Result<(), String> {
        if !(self.k.is_finite() && self.k > 0.0) {
            return Err(format!("k is {}, and must be above zero", self.k));
        }
        if let Some((prefix, _)) = self.routes.iter().find(|(_, links)| links.is_empty()) {
            return Err(format!(
                "the route to {prefix} names no link: packets to it would go nowhere"
            ));
        }
        if self.routes.len() > Self::MAX_ROUTES {
            return Err(format!("more than {} routes", Self::MAX_ROUTES));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bitrate;

    fn scheduling(text: &str) -> Result<Scheduling, String> {
        let scheduling: Scheduling =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        scheduling.check().map_err(|error| error.to_string())?;
        Ok(scheduling)
    }

    #[test]
    fn what_is_said_of_links_is_read_and_written_alike() {
        let text = r#"
            scheduler = "batcp"
            [safire.routes]
            "10.0.0.0/8" = ["wlan"]
            [terms.wlan]
            use = "backup"
            max = "10 Mbit/s"
            rate = "20 Mbit/s"
            [terms.lte]
            cost = "2.5 EUR/GB"
            importance = { throughput = 0.1, cost = 0.9 }
            weight = 0
            direction = "down"
        "#;
        let read = scheduling(text).unwrap();
        assert_eq!(read.terms["wlan"].rate, Some(Bitrate::from_mbps(20)));
        assert_eq!(read.terms["lte"].cost.as_ref().unwrap().to_string(), "2.5 EUR/GB");
        let written = toml::to_string(&read).unwrap();
        assert_eq!(toml::from_str::<Scheduling>(&written).unwrap(), read);
    }

    #[test]
    fn what_is_said_of_a_pattern_is_said_of_each_link_that_has_none_of_its_own() {
        let text = "terms.\"*\".weight = 1\nterms.\"wlan*\".weight = 2\nterms.wlan1.weight = 3\n\
                    terms.a-name-of-twenty-one.weight = 4";
        let scheduling = scheduling(text).unwrap();
        for (link, weight) in
            [("lte", 1.0), ("wlan0", 2.0), ("wlan1", 3.0), ("a-name-of-twent", 4.0)]
        {
            assert_eq!(scheduling.told(link).unwrap().weight, Some(weight), "{link}");
        }
        assert!(scheduling.check_links(&["wlan1", "a-name-of-twenty-one"]).is_ok());
        let error = scheduling.check_links(&["a-name-of-twenty-one"]).unwrap_err().to_string();
        assert!(error.contains("there is no link `wlan"), "{error}");
    }

    #[test]
    fn links_that_there_are_not_are_refused() {
        let known = ["wlan", "lte"];
        let table = [
            ("terms.wlan.weight = 2", None),
            (
                "terms.wlna.weight = 2",
                Some("link wlna: there is no link `wlna`: did you mean `wlan`?"),
            ),
            ("terms.satellite.weight = 2", Some("there are wlan, lte")),
            ("safire.routes.\"10.0.0.0/8\" = [\"lt\"]", Some("safire: there is no link `lt`")),
        ];
        for (text, expected) in table {
            let scheduling = scheduling(text).unwrap();
            let checked = scheduling.check_links(&known);
            let error = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(expected.unwrap_or_default()), "{text}: {error}");
            assert_eq!(error.is_empty(), expected.is_none(), "{text}: {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place_and_a_remedy() {
        let table = [
            ("terms.a.weight = -1", "link a: weight = -1"),
            ("terms.a.weight = nan", "link a: weight = NaN"),
            ("terms.a.weight = 0\nterms.b.weight = 0", "all weights are zero"),
            ("terms.a.cost = \"5\"", "such as \"5 EUR/GB\""),
            ("terms.a.cost = \"5 EUR\"", "such as \"5 EUR/GB\""),
            ("terms.a.cost = \"5 sixteen-and-more-letters/GB\"", "at most 16"),
            ("terms.a.cost = \"-5 EUR/GB\"", "a price is from 0"),
            ("terms.a.cost = \"5 EUR/GB\"\nterms.b.cost = \"5 USD/GB\"", "use one unit for all"),
            ("terms.a.rate = \"20\"", "such as \"20 Mbit/s\""),
            ("terms.a.rate = \"0 Mbit/s\"", "outside 1 kbit/s"),
            ("terms.a.importance = { throughput = 0.5, cost = 0.6 }", "sum to 1"),
            ("terms.a.importance = { throughput = nan, cost = 1 }", "sum to 1"),
            ("terms.a.use = \"sometimes\"", "when-needed"),
            ("safire.k = 0", "above zero"),
            ("safire.routes.\"10.0.0.0/8\" = []", "names no link"),
            ("scheduler = \"natali\"", "natalie"),
        ];
        for (text, expected) in table {
            let error = scheduling(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(
            scheduling("terms.a.weight = 0\nterms.b.weight = 1").is_ok(),
            "a single zero is legal"
        );
    }
}
