//! Which scheduler, its settings, and what is said of each link: the same in a config file (`[tunnel]`) and in a
//! change of a running tunnel.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::error::nearest;
use super::pattern;
use super::value::Text;

/// Which link takes the next packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// The link with the most room in its congestion window.
    #[default]
    FreeWindow,
    /// The links in turn: a baseline for comparison.
    RoundRobin,
    /// Weighted rounds, by told weights or by what others leave of each link (NATALIE).
    Natalie,
    /// Weighted rounds, by throughput and cost (BATCP).
    Batcp,
    /// Each flow on one link (SAFIRE).
    Safire,
}

impl Scheduler {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::FreeWindow, Self::RoundRobin, Self::Natalie, Self::Batcp, Self::Safire];
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FreeWindow => "free-window",
            Self::RoundRobin => "round-robin",
            Self::Natalie => "natalie",
            Self::Batcp => "batcp",
            Self::Safire => "safire",
        })
    }
}

/// The scheduler and all its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduling {
    /// Which one.
    pub scheduler: Scheduler,
    /// Settings of `natalie`.
    pub natalie: NatalieSettings,
    /// Settings of `batcp`.
    pub batcp: BatcpSettings,
    /// Settings of `safire`.
    pub safire: SafireSettings,
    /// What is said of links, by name or by a pattern of names ([`Scheduling::of`]).
    pub terms: BTreeMap<String, LinkTerms>,
}

/// `[tunnel.natalie]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatalieSettings {
    /// Where the weights come from.
    pub weights: Weights,
    /// What the shares are shares of.
    pub count: Count,
    /// What happens when the link whose turn it is has no room.
    pub when_full: WhenFull,
}

/// `[tunnel.batcp]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatcpSettings {
    /// Which reading of the paper's load formula.
    pub formula: Formula,
    /// What happens when the link whose turn it is has no room.
    pub when_full: WhenFull,
}

/// `[tunnel.safire]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SafireSettings {
    /// The constant of the paper's equation (1).
    pub k: f64,
    /// The links, by name, that packets to a destination may take; for others, all.
    pub routes: BTreeMap<IpNet, Vec<String>>,
}

impl Default for SafireSettings {
    fn default() -> Self {
        Self { k: 1.0, routes: BTreeMap::new() }
    }
}

/// Where NATALIE's weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// From what others leave of each link.
    #[default]
    Auto,
    /// From `weight` of each link.
    Told,
}

/// What the shares of a round are shares of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Packets.
    #[default]
    Packets,
    /// Bytes.
    Bytes,
}

/// What happens when the link whose turn it is has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// The next link with room takes the turn.
    #[default]
    Pass,
    /// The packet waits for that link, as in the papers.
    Wait,
}

/// Which reading of BATCP's load formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formula {
    /// The better link carries more.
    #[default]
    Prose,
    /// As printed: the worse link carries more.
    Literal,
}

/// `[tunnel.link.NAME]`: what is said of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkTerms {
    /// Its share for `weights = "told"`; 1 if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// What it carries in the direction in which this end sends, such as `"20 Mbit/s"`: no more is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// What a gigabyte costs on it, such as `"5 EUR/GB"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// When it is used.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub preference: Option<Preference>,
    /// What throughput and cost matter on it: shares of one, in place of `use`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance: Option<Importance>,
    /// Which way it carries packets; both if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// When a link is used, in words: what becomes of it in BATCP's weights stands in `docs/SCHEDULING.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// Preferred.
    First,
    /// As good as any.
    Also,
    /// For what the others cannot carry.
    WhenNeeded,
}

/// What throughput and cost matter on a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Importance {
    /// 0 to 1.
    pub throughput: f64,
    /// 0 to 1; both together are 1.
    pub cost: f64,
}

/// Which way a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Client to proxy.
    Up,
    /// Proxy to client.
    Down,
    /// One and the other.
    #[default]
    Both,
}

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(pub u64);

/// The price of a gigabyte, in some unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cost {
    /// How many.
    pub amount: f64,
    /// Of what: one unit for all links.
    pub unit: String,
}

/// Largest weight: beyond it nobody can mean a share.
const MAX_WEIGHT: f64 = 1e6;

/// Characters of the longest unit of money.
const MAX_UNIT: usize = 16;

/// Lowest and highest rate that can be told, bit/s: a modem, and more than a kernel forwards.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;

impl Text for Rate {
    const EXPECTED: &'static str = "a rate with its unit, such as \"20 Mbit/s\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(split);
        let number: f64 = number.trim().parse().map_err(|_| bad())?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "kbit/s" | "kbit" => 1e3,
            "mbit/s" | "mbit" => 1e6,
            "gbit/s" | "gbit" => 1e9,
            "bit/s" | "bit" => 1.0,
            _ => return Err(bad()),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and the bounds are checked"
        )]
        let bits = (number * factor).round() as u64;
        if number.is_finite() && RATES.contains(&bits) {
            return Ok(Self(bits));
        }
        Err(format!("`{text}` is outside 1 kbit/s to 1000 Gbit/s"))
    }
}

impl Text for Cost {
    const EXPECTED: &'static str = "a price of a gigabyte with its unit, such as \"5 EUR/GB\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(split);
        let amount: f64 = number.trim().parse().map_err(|_| bad())?;
        let unit =
            unit.trim().strip_suffix("/GB").filter(|unit| !unit.is_empty()).ok_or_else(bad)?;
        if unit.chars().count() > MAX_UNIT || unit.chars().any(char::is_control) {
            return Err(format!("`{text}`: a unit has at most {MAX_UNIT} printable characters"));
        }
        if !(0.0..=1e9).contains(&amount) {
            return Err(format!("`{text}`: a price is from 0 to a thousand million"));
        }
        Ok(Self { amount, unit: unit.to_owned() })
    }
}

/// Serde by way of [`Text`].
macro_rules! by_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Self::from_text(&text)
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

by_text!(Rate);
by_text!(Cost);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
        let bits = self.0 as f64;
        match self.0 {
            0..1_000_000 => write!(f, "{} kbit/s", bits / 1e3),
            _ => write!(f, "{} Mbit/s", bits / 1e6),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/GB", self.amount, self.unit)
    }
}

/// A setting that makes no sense: of which link or section, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct SchedulingError {
    /// `link NAME`, `safire`, and so on.
    pub place: String,
    /// What is wrong, and what to write.
    pub problem: String,
}

impl Scheduling {
    /// Whether it makes sense as a whole.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), SchedulingError> {
        let error = |place: &str, problem: String| {
            Err(SchedulingError { place: place.to_owned(), problem })
        };
        let mut unit: Option<(&str, &str)> = None;
        for (name, terms) in &self.terms {
            let place = format!("link {name}");
            if let Err(problem) = terms.check() {
                return error(&place, problem);
            }
            let Some(cost) = &terms.cost else { continue };
            match unit {
                Some((other, known)) if known != cost.unit => {
                    let problem = format!(
                        "its cost is in {}, that of {other} in {known}: use one unit for all",
                        cost.unit
                    );
                    return error(&place, problem);
                }
                _ => unit = Some((name, &cost.unit)),
            }
        }
        let told: Vec<_> = self.terms.values().filter_map(|terms| terms.weight).collect();
        // Of a single one nothing follows: links that are not named weigh 1.
        let of_all = told.len() > 1 && told.len() == self.terms.len();
        if of_all && told.iter().all(|weight| *weight == 0.0) {
            let problem =
                "all weights are zero: no link would carry anything; give one of them more";
            return error("natalie", problem.to_owned());
        }
        if !(self.safire.k.is_finite() && self.safire.k > 0.0) {
            return error("safire", format!("k is {}, and must be above zero", self.safire.k));
        }
        if let Some((prefix, _)) = self.safire.routes.iter().find(|(_, links)| links.is_empty()) {
            let problem =
                format!("the route to {prefix} names no link: packets to it would go nowhere");
            return error("safire", problem);
        }
        if self.safire.routes.len() > MAX_ROUTES {
            return error("safire", format!("more than {MAX_ROUTES} routes"));
        }
        Ok(())
    }
}

impl Scheduling {
    /// What is said of the link of this name: under the name itself, else under the pattern that leaves least open.
    #[must_use]
    pub fn of(&self, link: &str) -> Option<&LinkTerms> {
        let patterns = self.terms.iter().filter(|(name, _)| pattern::matches(name, link));
        let most = |(name, _): &(&String, &LinkTerms)| pattern::literals(name);
        self.terms.get(link).or_else(|| patterns.max_by_key(most).map(|(_, terms)| terms))
    }

    /// Whether it names only links that there can be, where all of them are `known`.
    ///
    /// # Errors
    /// The first that does not exist, and what may have been meant.
    pub fn check_links(&self, known: &[&str]) -> Result<(), SchedulingError> {
        let unknown = |name: &str| {
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", known.join(", ")),
            };
            format!("there is no link `{}`: {help}", name.escape_debug())
        };
        let means_none = |name: &&String| !known.iter().any(|link| pattern::matches(name, link));
        if let Some(name) = self.terms.keys().find(means_none) {
            return Err(SchedulingError { place: format!("link {name}"), problem: unknown(name) });
        }
        let mut routed = self.safire.routes.values().flatten();
        match routed.find(|name| !known.contains(&name.as_str())) {
            Some(name) => {
                Err(SchedulingError { place: "safire".to_owned(), problem: unknown(name) })
            }
            None => Ok(()),
        }
    }

    /// Whether one of these links would carry what the end that `sends` this way has to send.
    ///
    /// # Errors
    /// None would, and why.
    pub fn check_carries(&self, links: &[&str], sends: Direction) -> Result<(), SchedulingError> {
        let terms = |name: &&&str| self.of(name);
        let weighs = |name: &&&str| terms(name).and_then(|terms| terms.weight) != Some(0.0);
        let goes = |name: &&&str| {
            let way = terms(name).and_then(|terms| terms.direction).unwrap_or_default();
            way == Direction::Both || way == sends
        };
        let problem = if links.is_empty() || links.iter().any(|name| weighs(&name) && goes(&name)) {
            return Ok(());
        } else if links.iter().any(|name| goes(&name)) {
            "no link that may carry packets has a weight: give one of them more than zero"
        } else {
            "the direction of every link is the other one: nothing would be carried; set one to both"
        };
        Err(SchedulingError { place: "the links".to_owned(), problem: problem.to_owned() })
    }
}

/// As many as the core takes.
const MAX_ROUTES: usize = 64;

impl LinkTerms {
    fn check(&self) -> Result<(), String> {
        if let Some(weight) = self.weight
            && !(0.0..=MAX_WEIGHT).contains(&weight)
        {
            return Err(format!("weight = {weight} is no number from 0 to {MAX_WEIGHT}"));
        }
        let Some(Importance { throughput, cost }) = self.importance else { return Ok(()) };
        if self.preference.is_some() {
            return Err("`use` and `importance` say the same in two ways: remove one".to_owned());
        }
        let shares = [throughput, cost].iter().all(|share| (0.0..=1.0).contains(share));
        if shares && (throughput + cost - 1.0).abs() <= 1e-3 {
            return Ok(());
        }
        Err(format!(
            "importance: throughput = {throughput} and cost = {cost} must be shares that sum to 1"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            use = "first"
            rate = "20 Mbit/s"
            [terms.lte]
            cost = "2.5 EUR/GB"
            importance = { throughput = 0.1, cost = 0.9 }
            weight = 0
            direction = "down"
        "#;
        let read = scheduling(text).unwrap();
        assert_eq!(read.terms["wlan"].rate, Some(Rate(20_000_000)));
        assert_eq!(read.terms["lte"].cost.as_ref().unwrap().to_string(), "2.5 EUR/GB");
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Scheduling>(&json).unwrap(), read);
    }

    #[test]
    fn what_is_said_of_a_pattern_is_said_of_each_link_that_has_none_of_its_own() {
        let text = "terms.\"*\".weight = 1\nterms.\"wlan*\".weight = 2\nterms.wlan1.weight = 3";
        let scheduling = scheduling(text).unwrap();
        for (link, weight) in [("lte", 1.0), ("wlan0", 2.0), ("wlan1", 3.0)] {
            assert_eq!(scheduling.of(link).unwrap().weight, Some(weight), "{link}");
        }
        assert!(scheduling.check_links(&["wlan1"]).is_ok());
        let error = scheduling.check_links(&["lte"]).unwrap_err().to_string();
        assert!(error.contains("there is no link `wlan"), "{error}");
    }

    #[test]
    fn links_that_there_are_not_or_that_carry_nothing_are_refused() {
        let known = ["wlan", "lte"];
        let table = [
            ("terms.wlan.weight = 2", None),
            (
                "terms.wlna.weight = 2",
                Some("link wlna: there is no link `wlna`: did you mean `wlan`?"),
            ),
            ("terms.satellite.weight = 2", Some("there are wlan, lte")),
            ("safire.routes.\"10.0.0.0/8\" = [\"lt\"]", Some("safire: there is no link `lt`")),
            ("terms.wlan.weight = 0", None),
            ("terms.wlan.weight = 0\nterms.lte.direction = \"down\"", Some("has a weight")),
            ("terms.wlan.direction = \"up\"\nterms.lte.direction = \"down\"", None),
            (
                "terms.wlan.direction = \"down\"\nterms.lte.direction = \"down\"",
                Some("the direction of every link"),
            ),
        ];
        for (text, expected) in table {
            let scheduling = scheduling(text).unwrap();
            let checked = scheduling
                .check_links(&known)
                .and_then(|()| scheduling.check_carries(&known, Direction::Up));
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
            (
                "terms.a.use = \"first\"\nterms.a.importance = { throughput = 1, cost = 0 }",
                "remove one",
            ),
            ("terms.a.use = \"sometimes\"", "first"),
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
