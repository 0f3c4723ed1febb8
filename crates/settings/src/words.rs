//! How an end sends, in words: the same in `ropewalk status`, `ropewalk set` and `ropewalk check-config`.

use crate::{
    Direction, LinkPolicy, LinkTerms, Order, SchedulerKind, Scheduling, TunnelSettings, Weights,
    WhenClosed, WhenFull,
};

impl Scheduling {
    /// The scheduler, and its settings where it has some.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.settings_in_words() {
            Some(settings) => format!("{} ({settings})", self.scheduler),
            None => self.scheduler.to_string(),
        }
    }

    /// The settings of the scheduler in force; `None`: it has none.
    #[must_use]
    pub fn settings_in_words(&self) -> Option<String> {
        let when_full = |when_full| match when_full {
            WhenFull::Pass => "a full link passes its turn",
            WhenFull::Wait => "packets wait for a full link",
        };
        match self.scheduler {
            SchedulerKind::FreeWindow | SchedulerKind::Arrival | SchedulerKind::RoundRobin => None,
            SchedulerKind::Natalie => {
                let settings = &self.natalie;
                Some(format!(
                    "weights {}, count {}, {}",
                    settings.weights,
                    settings.count,
                    when_full(settings.when_full)
                ))
            }
            SchedulerKind::Batcp => {
                let settings = &self.batcp;
                let formula = settings.formula;
                Some(format!("formula {formula}, {}", when_full(settings.when_full)))
            }
            SchedulerKind::Safire => {
                let settings = &self.safire;
                Some(format!("k {}, {} routes", settings.k, settings.routes.len()))
            }
        }
    }

    /// What is said of links and changes nothing while this scheduler decides, with what would: a sentence each.
    #[must_use]
    pub fn without_effect(&self) -> Vec<String> {
        let terms = self.terms.iter();
        terms.flat_map(|(name, terms)| self.without_effect_on(name, terms)).collect()
    }

    /// The same of what is said of one link.
    #[must_use]
    pub fn without_effect_on(&self, name: &str, terms: &LinkTerms) -> Vec<String> {
        let weighs =
            self.scheduler == SchedulerKind::Natalie && self.natalie.weights == Weights::Told;
        let mut idle = Vec::new();
        if terms.weight.is_some_and(|weight| weight != 1.0) && !weighs {
            idle.push(format!(
                "the weight of {name} counts only for the scheduler natalie with weights told"
            ));
        }
        if terms.importance.is_some() && self.scheduler != SchedulerKind::Batcp {
            idle.push(format!("the importance of {name} counts only for the scheduler batcp"));
        }
        idle
    }
}

impl TunnelSettings {
    /// What is said and changes nothing beside the rest, with what would: a sentence each.
    #[must_use]
    pub fn without_effect(&self) -> Vec<String> {
        let mut idle = self.scheduling.without_effect();
        if self.order == Order::Global && !self.scheduling.redundant.is_off() {
            idle.push(
                "no packet goes over two links ([tunnel.redundant]) with order global".to_owned(),
            );
        }
        idle
    }

    /// What happens to a packet when no link has room.
    #[must_use]
    pub fn when_closed_in_words(&self) -> String {
        match self.when_closed {
            WhenClosed::Queue => format!("queue {}", humantime::format_duration(self.queue)),
            WhenClosed::Drop => self.when_closed.to_string(),
        }
    }
}

impl LinkTerms {
    /// What is said of the link; empty: nothing.
    #[must_use]
    pub fn in_words(&self) -> String {
        let importance = self.importance.map(|shares| {
            format!("throughput matters {}, cost {}", shares.throughput(), shares.cost())
        });
        let said = [
            self.weight.map(|weight| format!("weight {weight}")),
            self.rate.map(|rate| format!("rate {rate}")),
            self.max.map(|max| format!("at most {max}")),
            self.cost.as_ref().map(|cost| format!("cost {cost}")),
            self.usage.map(|usage| format!("use {usage}")),
            importance,
            self.direction.map(|direction| format!("direction {direction}")),
        ];
        said.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl LinkPolicy {
    /// What is said of the link; empty: nothing.
    #[must_use]
    pub fn in_words(&self) -> String {
        let both = LinkTerms { direction: None, ..self.terms(Direction::Both) }.in_words();
        let said = [
            Some(both).filter(|words| !words.is_empty()),
            (self.direction != Direction::Both).then(|| format!("{} only", self.direction)),
            self.max_up.map(|rate| format!("at most {rate} up")),
            self.max_down.map(|rate| format!("at most {rate} down")),
            self.rate_up.map(|rate| format!("carries {rate} up")),
            self.rate_down.map(|rate| format!("carries {rate} down")),
        ];
        said.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduling(text: &str) -> Scheduling {
        toml::from_str(text).expect("valid settings")
    }

    #[test]
    fn settings_are_said_in_words_where_there_are_some() {
        let table = [
            ("scheduler = \"free-window\"", "free-window"),
            (
                "scheduler = \"natalie\"",
                "natalie (weights auto, count packets, a full link passes its turn)",
            ),
            (
                "scheduler = \"natalie\"\nnatalie = { weights = \"told\", when_full = \"wait\" }",
                "natalie (weights told, count packets, packets wait for a full link)",
            ),
            (
                "scheduler = \"batcp\"\nbatcp.formula = \"literal\"",
                "batcp (formula literal, a full link passes its turn)",
            ),
            (
                "scheduler = \"safire\"\nsafire.routes.\"10.0.0.0/8\" = [\"a\"]",
                "safire (k 1, 1 routes)",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(scheduling(text).in_words(), expected);
        }
    }

    #[test]
    fn all_that_is_said_of_a_link_is_shown() {
        let told = scheduling(
            "[terms.lte]\nweight = 3\nrate = \"20 Mbit/s\"\nmax = \"9 Mbit/s\"\nuse = \"backup\"\ncost = \"5 EUR/GB\"\ndirection = \"down\"\n\
             importance = { throughput = 0.1, cost = 0.9 }",
        );
        assert_eq!(
            told.terms["lte"].in_words(),
            "weight 3, rate 20 Mbit/s, at most 9 Mbit/s, cost 5 EUR/GB, use backup, throughput matters 0.1, cost 0.9, direction down"
        );
        assert_eq!(LinkTerms::default().in_words(), "");
    }

    #[test]
    fn what_changes_nothing_is_named_with_what_would() {
        let said = "terms.lte.weight = 3\nterms.lte.importance = { throughput = 1, cost = 0 }\nterms.wlan.cost = \"1 EUR/GB\"";
        let table = [
            ("free-window", 2),
            ("natalie", 2),
            ("natalie\"\nnatalie.weights = \"told", 1),
            ("batcp", 1),
            ("safire", 2),
        ];
        for (scheduler, count) in table {
            let idle = scheduling(&format!("scheduler = \"{scheduler}\"\n{said}")).without_effect();
            assert_eq!(idle.len(), count, "{scheduler}: {idle:?}");
        }
    }
}
