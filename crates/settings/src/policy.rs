//! What the owner of a link says of it, for both directions.

use std::collections::BTreeSet;

use crate::{Bitrate, Cost, Direction, Importance, LinkTerms, SettingError, Usage};

/// What a client's `[[link]]` says of how the link is used. The client obeys it for what it sends, and tells the proxy,
/// which obeys it for what comes down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkPolicy {
    /// When it carries packets.
    pub usage: Usage,
    /// Which way it carries packets.
    pub direction: Direction,
    /// Most that the client sends on it, at IP level; `None`: as much as it carries.
    pub max_up: Option<Bitrate>,
    /// The same of the proxy.
    pub max_down: Option<Bitrate>,
    /// What it carries upstream, if that is known; see [`LinkTerms::rate`].
    pub rate_up: Option<Bitrate>,
    /// The same downstream.
    pub rate_down: Option<Bitrate>,
    /// Its share for told weights; see [`LinkTerms::weight`].
    pub weight: Option<f64>,
    /// What a gigabyte costs on it.
    pub cost: Option<Cost>,
    /// How much throughput and cost matter on it.
    pub importance: Option<Importance>,
}

impl LinkPolicy {
    /// What it means to the end that `sends` this way.
    #[must_use]
    pub fn terms(&self, sends: Direction) -> LinkTerms {
        let (max, rate) = match sends {
            Direction::Up => (self.max_up, self.rate_up),
            Direction::Down => (self.max_down, self.rate_down),
            Direction::Both => (None, None),
        };
        LinkTerms {
            weight: self.weight,
            rate,
            max,
            cost: self.cost.clone(),
            usage: Some(self.usage).filter(|usage| *usage != Usage::default()),
            importance: self.importance,
            direction: Some(self.direction).filter(|way| *way != Direction::default()),
        }
    }

    /// Whether it makes sense as a whole.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        self.terms(Direction::Both).check()
    }

    /// Whether the policies of these links, by name, make sense together. `all`: there are no other links, so that one of
    /// them must carry what goes each way.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check_together(links: &[(&str, &Self)], all: bool) -> Result<(), SettingError> {
        let priced = links.iter().filter_map(|(name, policy)| Some((*name, policy.cost.as_ref()?)));
        one_unit(priced)?;
        if !all || links.is_empty() {
            return Ok(());
        }
        for (way, word) in [(Direction::Up, "upstream"), (Direction::Down, "downstream")] {
            let mut may = links.iter().filter(|(_, policy)| policy.direction.includes(way));
            let Some(first) = may.next() else {
                let problem = format!(
                    "no link may carry packets {word}: set the `direction` of one to \"both\""
                );
                return Err(SettingError::new(["link"], problem));
            };
            if std::iter::once(first).chain(may).all(|(_, policy)| policy.weight == Some(0.0)) {
                let problem = format!(
                    "no link that may carry packets {word} has a weight: give one of them more than zero"
                );
                return Err(SettingError::new(["link"], problem));
            }
        }
        Ok(())
    }
}

/// Whether these prices, by the names of their links, have one unit.
///
/// # Errors
/// The first that has another one than those before it.
pub(crate) fn one_unit<'a>(
    priced: impl Iterator<Item = (&'a str, &'a Cost)>,
) -> Result<(), SettingError> {
    let mut units = BTreeSet::new();
    let mut first = None;
    for (name, cost) in priced {
        let (other, unit) = *first.get_or_insert((name, cost.unit.as_str()));
        if units.insert(cost.unit.as_str()) && units.len() > 1 {
            let problem = format!(
                "its cost is in {}, that of {other} in {unit}: use one unit for all",
                cost.unit
            );
            return Err(SettingError::new(["link", name], problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Terms, Text as _};

    fn mbit(rate: u64) -> Option<Bitrate> {
        Some(Bitrate::from_mbps(rate))
    }

    #[test]
    fn each_end_takes_from_a_policy_what_concerns_what_it_sends() {
        let policy = LinkPolicy {
            usage: Usage::WhenNeeded,
            max_up: mbit(1),
            max_down: mbit(2),
            rate_up: mbit(3),
            rate_down: mbit(4),
            weight: Some(5.0),
            ..LinkPolicy::default()
        };
        for (sends, max, rate) in
            [(Direction::Up, mbit(1), mbit(3)), (Direction::Down, mbit(2), mbit(4))]
        {
            let terms = Terms::agreed(None, &policy, sends);
            assert_eq!((terms.max, terms.rate), (max, rate));
            assert_eq!((terms.usage, terms.weight), (Usage::WhenNeeded, 5.0));
        }
    }

    #[test]
    fn what_an_end_says_itself_counts_first_and_of_bounds_the_stricter() {
        use Usage::{Always, Backup, WhenNeeded};
        let table = [
            (None, Always, Always),
            (None, Backup, Backup),
            (Some(Always), WhenNeeded, WhenNeeded),
            (Some(Backup), WhenNeeded, Backup),
            (Some(WhenNeeded), Always, WhenNeeded),
        ];
        for (own, of_client, expected) in table {
            let own = LinkTerms { usage: own, ..LinkTerms::default() };
            let policy = LinkPolicy { usage: of_client, ..LinkPolicy::default() };
            assert_eq!(Terms::agreed(Some(&own), &policy, Direction::Down).usage, expected);
        }
        let table = [
            (None, None, None),
            (mbit(5), None, mbit(5)),
            (None, mbit(3), mbit(3)),
            (mbit(5), mbit(3), mbit(3)),
            (mbit(2), mbit(3), mbit(2)),
        ];
        for (max, max_down, expected) in table {
            let own = LinkTerms { max, ..LinkTerms::default() };
            let policy = LinkPolicy { max_down, ..LinkPolicy::default() };
            assert_eq!(Terms::agreed(Some(&own), &policy, Direction::Down).max, expected);
        }
        let own =
            LinkTerms { weight: Some(2.0), direction: Some(Direction::Up), ..LinkTerms::default() };
        let policy =
            LinkPolicy { weight: Some(7.0), direction: Direction::Down, ..LinkPolicy::default() };
        let terms = Terms::agreed(Some(&own), &policy, Direction::Down);
        assert_eq!((terms.weight, terms.carries), (2.0, false), "both must let it carry");
    }

    #[test]
    fn policies_that_leave_a_direction_without_a_link_are_refused() {
        let of = |direction, weight| LinkPolicy { direction, weight, ..LinkPolicy::default() };
        let (up, down, both) = (Direction::Up, Direction::Down, Direction::Both);
        let table = [
            ([of(both, None), of(up, None)], ""),
            ([of(down, None), of(up, None)], ""),
            ([of(up, None), of(up, None)], "no link may carry packets downstream"),
            ([of(down, None), of(down, None)], "no link may carry packets upstream"),
            ([of(both, Some(0.0)), of(both, None)], ""),
            ([of(both, Some(0.0)), of(down, None)], "upstream has a weight"),
            ([of(both, Some(0.0)), of(both, Some(0.0))], "has a weight"),
        ];
        for (policies, expected) in table {
            let links = [("a", &policies[0]), ("b", &policies[1])];
            let checked = LinkPolicy::check_together(&links, true);
            let error = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{policies:?}: {error}");
            assert_eq!(error.is_empty(), expected.is_empty(), "{policies:?}: {error}");
            assert!(LinkPolicy::check_together(&links, false).is_ok(), "there may be others");
        }
    }

    #[test]
    fn prices_have_one_unit() {
        let priced = |text: &str| LinkPolicy {
            cost: Some(Cost::from_text(text).expect("a price")),
            ..LinkPolicy::default()
        };
        let (euro, other_euro, dollar) =
            (priced("5 EUR/GB"), priced("1 EUR/GB"), priced("5 USD/GB"));
        assert!(LinkPolicy::check_together(&[("a", &euro), ("b", &other_euro)], false).is_ok());
        let mixed = LinkPolicy::check_together(&[("a", &euro), ("b", &dollar)], false);
        let error = mixed.expect_err("two units").to_string();
        assert!(error.contains("link b: its cost is in USD, that of a in EUR"), "{error}");
    }
}
