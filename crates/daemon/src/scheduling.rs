//! What is said of schedulers and links means this to the core.

use ropewalk_control::config::Scheduling;
use ropewalk_control::config::scheduler::{
    Count, Direction, Formula, LinkTerms, Preference, Scheduler, Weights, WhenFull,
};
use ropewalk_proto::sched::batcp::{self, Importance};
use ropewalk_proto::sched::{
    self, BatcpConfig, NatalieConfig, Route, SafireConfig, SchedulerConfig, Terms,
};
use ropewalk_proto::units::Bitrate;

/// What throughput and cost matter on a link that is preferred: the paper's example of one (seed 001 §3.5).
const FIRST: (f64, f64) = (0.9, 0.1);

/// And on one that is avoided.
const WHEN_NEEDED: (f64, f64) = (0.1, 0.9);

/// The price of a gigabyte, of whatever unit, on a link used when needed whose price nobody told: as long as it is
/// higher than the others' it says what the preference says.
const DEAR: f64 = 10.0;

/// The scheduler with its settings.
#[must_use]
pub fn scheduler(scheduling: &Scheduling) -> SchedulerConfig {
    let when_full = |when_full| match when_full {
        WhenFull::Pass => sched::WhenFull::Pass,
        WhenFull::Wait => sched::WhenFull::Wait,
    };
    match scheduling.scheduler {
        Scheduler::FreeWindow => SchedulerConfig::FreeWindow,
        Scheduler::RoundRobin => SchedulerConfig::RoundRobin,
        Scheduler::Natalie => SchedulerConfig::Natalie(NatalieConfig {
            count: match scheduling.natalie.count {
                Count::Packets => sched::Count::Packets,
                Count::Bytes => sched::Count::Bytes,
            },
            when_full: when_full(scheduling.natalie.when_full),
            weights: match scheduling.natalie.weights {
                Weights::Auto => sched::Weights::Auto,
                Weights::Told => sched::Weights::Told,
            },
        }),
        Scheduler::Batcp => SchedulerConfig::Batcp(BatcpConfig {
            formula: match scheduling.batcp.formula {
                Formula::Prose => batcp::Formula::Prose,
                Formula::Literal => batcp::Formula::Literal,
            },
            when_full: when_full(scheduling.batcp.when_full),
        }),
        Scheduler::Safire => {
            let routes = scheduling.safire.routes.iter();
            let route = |(prefix, links): (&_, &Vec<String>)| Route {
                prefix: *prefix,
                links: links.clone(),
            };
            SchedulerConfig::Safire(SafireConfig {
                k: scheduling.safire.k,
                routes: routes.map(route).collect(),
            })
        }
    }
}

/// What is said of each link, for the end that `sends` this way.
#[must_use]
pub fn terms(scheduling: &Scheduling, sends: Direction) -> Vec<(String, Terms)> {
    scheduling.terms.iter().map(|(name, terms)| (name.clone(), of_link(terms, sends))).collect()
}

fn of_link(told: &LinkTerms, sends: Direction) -> Terms {
    let default = Terms::default();
    let cost = told.cost.as_ref().map(|cost| cost.amount);
    let ((throughput, importance), assumed) = match (told.importance, told.preference) {
        (Some(shares), _) => ((shares.throughput, shares.cost), default.cost),
        (None, Some(Preference::First)) => (FIRST, default.cost),
        (None, Some(Preference::WhenNeeded)) => (WHEN_NEEDED, DEAR),
        (None, Some(Preference::Also)) => ((0.5, 0.5), default.cost),
        // Where only a price is told, it matters as much as the throughput.
        (None, None) if cost.is_some() => ((0.5, 0.5), default.cost),
        (None, None) => ((1.0, 0.0), default.cost),
    };
    Terms {
        weight: told.weight.unwrap_or(default.weight),
        rate: told.rate.map(|rate| Bitrate::from_bps(rate.0)),
        cost: cost.unwrap_or(assumed),
        // Checked with the file.
        importance: Importance::new(throughput, importance).unwrap_or_default(),
        carries: told.direction.is_none_or(|way| way == Direction::Both || way == sends),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::config::scheduler::Cost;
    use ropewalk_proto::sched::LinkFacts;
    use ropewalk_proto::sched::batcp::{Formula as Reading, loads};
    use ropewalk_proto::units::LinkId;

    #[test]
    fn every_name_means_the_scheduler_of_the_core_that_has_it() {
        for scheduler in Scheduler::ALL {
            let scheduling = Scheduling { scheduler, ..Scheduling::default() };
            assert_eq!(super::scheduler(&scheduling).to_string(), scheduler.to_string());
        }
    }

    #[test]
    fn a_preference_loads_the_links_as_its_words_say() {
        let price = |amount| Some(Cost { amount, unit: "EUR".to_owned() });
        let prefers = |preference, cost| LinkTerms {
            preference: Some(preference),
            cost,
            ..LinkTerms::default()
        };
        let first = prefers(Preference::First, None);
        let table = [
            (first.clone(), prefers(Preference::WhenNeeded, None), true),
            (first.clone(), prefers(Preference::WhenNeeded, price(2.0)), true),
            (LinkTerms::default(), prefers(Preference::WhenNeeded, None), true),
            (prefers(Preference::Also, None), prefers(Preference::Also, None), false),
            (prefers(Preference::Also, price(1.0)), prefers(Preference::Also, price(9.0)), true),
        ];
        for (a, b, more) in table {
            let links = [&a, &b].map(|told| {
                let terms = of_link(told, Direction::Up);
                LinkFacts {
                    throughput: Some(500.0),
                    cost: terms.cost,
                    importance: terms.importance,
                    ..LinkFacts::unknown(LinkId(0))
                }
            });
            let loads = loads(&links, Reading::Prose);
            assert_eq!(loads[0] > loads[1], more, "{a:?} beside {b:?}: {loads:?}");
        }
    }

    #[test]
    fn a_link_for_one_direction_carries_packets_only_that_way() {
        let table = [
            (None, true, true),
            (Some(Direction::Both), true, true),
            (Some(Direction::Up), true, false),
            (Some(Direction::Down), false, true),
        ];
        for (direction, up, down) in table {
            let told = LinkTerms { direction, ..LinkTerms::default() };
            let carries =
                [Direction::Up, Direction::Down].map(|sends| of_link(&told, sends).carries);
            assert_eq!(carries, [up, down], "{direction:?}");
        }
    }
}
