//! `ropewalk set`: change how a running daemon sends, or show how it does.

use std::fmt::Write as _;

use anyhow::Context as _;
use ropewalk_control::config::Scheduling;
use ropewalk_control::config::error::nearest;
use ropewalk_control::config::scheduler::{LinkTerms, Scheduler};

use super::ask;
use crate::args::{Set, SetLink, SetScheduler, SetWhat};
use crate::exit::{Failure, print};

/// Reads what is in force, changes it as told, has it put in force, and shows it.
pub(crate) fn run(set: &Set) -> Result<(), Failure> {
    let socket = set.socket.as_deref();
    let mut scheduling = ask::scheduling(socket, None)?;
    if let Some(what) = &set.what {
        match what {
            SetWhat::Scheduler(change) => change_scheduler(&mut scheduling, change)?,
            SetWhat::Link(change) => {
                let report = ask::status(socket)?;
                let links = report.tunnels.iter().flat_map(|tunnel| &tunnel.links);
                let known: Vec<_> = links.map(|link| link.name.clone()).collect();
                change_link(&mut scheduling, change, &known)?;
            }
        }
        scheduling.check().map_err(|error| Failure::Usage(error.to_string()))?;
        scheduling = ask::scheduling(socket, Some(scheduling))?;
    }
    if set.json {
        let json = serde_json::to_string_pretty(&scheduling);
        return print(&(json.context("cannot write it as JSON")? + "\n"));
    }
    print(&shown(&scheduling))
}

fn change_scheduler(scheduling: &mut Scheduling, change: &SetScheduler) -> Result<(), Failure> {
    let name = change.name;
    let misplaced = [
        ("--weights", change.weights.is_some(), name == Scheduler::Natalie),
        ("--count", change.count.is_some(), name == Scheduler::Natalie),
        (
            "--when-full",
            change.when_full.is_some(),
            matches!(name, Scheduler::Natalie | Scheduler::Batcp),
        ),
        ("--formula", change.formula.is_some(), name == Scheduler::Batcp),
        ("--k", change.k.is_some(), name == Scheduler::Safire),
    ];
    if let Some((flag, ..)) = misplaced.iter().find(|(_, given, fits)| *given && !fits) {
        return Err(Failure::Usage(format!("{flag} has no meaning for the scheduler {name}")));
    }
    scheduling.scheduler = name;
    let (natalie, batcp) = (&mut scheduling.natalie, &mut scheduling.batcp);
    natalie.weights = change.weights.unwrap_or(natalie.weights);
    natalie.count = change.count.unwrap_or(natalie.count);
    match change.when_full {
        Some(when_full) if name == Scheduler::Natalie => natalie.when_full = when_full,
        Some(when_full) => batcp.when_full = when_full,
        None => {}
    }
    batcp.formula = change.formula.unwrap_or(batcp.formula);
    scheduling.safire.k = change.k.unwrap_or(scheduling.safire.k);
    Ok(())
}

/// `known`: the links that there are.
fn change_link(
    scheduling: &mut Scheduling,
    change: &SetLink,
    known: &[String],
) -> Result<(), Failure> {
    let SetLink { name, weight, rate, cost, preference, direction } = change;
    if !known.contains(name) && !scheduling.terms.contains_key(name) {
        let help = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "there is none at present".to_owned(),
            None => format!("there are {}", known.join(", ")),
        };
        return Err(Failure::Usage(format!("there is no link `{}`: {help}", name.escape_debug())));
    }
    let terms = scheduling.terms.entry(name.clone()).or_default();
    if weight.is_none()
        && rate.is_none()
        && cost.is_none()
        && preference.is_none()
        && direction.is_none()
    {
        let help = "say what: --weight, --rate, --cost, --use or --direction";
        return Err(Failure::Usage(format!("nothing was said of the link {name}: {help}")));
    }
    if preference.is_some() {
        terms.importance = None;
    }
    *terms = LinkTerms {
        weight: weight.or(terms.weight),
        rate: rate.or(terms.rate),
        cost: cost.clone().or_else(|| terms.cost.take()),
        preference: preference.or(terms.preference),
        importance: terms.importance,
        direction: direction.or(terms.direction),
    };
    let weighs = |link: &String| {
        let told = scheduling.terms.get(link).and_then(|terms| terms.weight);
        told.is_none_or(|weight| weight != 0.0)
    };
    if weight.is_some() && !known.iter().any(weighs) {
        let problem = "then no link that there is has a weight, and nothing would be carried";
        return Err(Failure::Usage(format!("the weight of {name}: {problem}")));
    }
    Ok(())
}

/// What is in force, in the words of the config file.
fn shown(scheduling: &Scheduling) -> String {
    let mut text = format!("scheduler  {}", scheduling.scheduler);
    // Writing to a string cannot fail.
    let _ = match scheduling.scheduler {
        Scheduler::FreeWindow | Scheduler::RoundRobin => Ok(()),
        Scheduler::Natalie => {
            let settings = &scheduling.natalie;
            write!(
                text,
                " (weights {}, count {}, when full {})",
                word(&settings.weights),
                word(&settings.count),
                word(&settings.when_full)
            )
        }
        Scheduler::Batcp => {
            let settings = &scheduling.batcp;
            let (formula, when_full) = (word(&settings.formula), word(&settings.when_full));
            write!(text, " (formula {formula}, when full {when_full})")
        }
        Scheduler::Safire => {
            let settings = &scheduling.safire;
            write!(text, " (k {}, {} routes)", settings.k, settings.routes.len())
        }
    };
    text.push('\n');
    for (name, terms) in &scheduling.terms {
        let mut said = Vec::new();
        said.extend(terms.weight.map(|weight| format!("weight {weight}")));
        said.extend(terms.rate.map(|rate| format!("rate {rate}")));
        said.extend(terms.cost.as_ref().map(|cost| format!("cost {cost}")));
        said.extend(terms.preference.map(|preference| format!("use {}", word(&preference))));
        let importance = terms.importance.map(|shares| {
            format!("throughput matters {}, cost {}", shares.throughput, shares.cost)
        });
        said.extend(importance);
        said.extend(terms.direction.map(|direction| format!("direction {}", word(&direction))));
        let _ = writeln!(text, "link       {name}: {}", said.join(", "));
    }
    text
}

/// A choice as the config file has it.
fn word(choice: &impl serde::Serialize) -> String {
    match serde_json::to_value(choice) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_control::config::scheduler::{Cost, Formula, Preference, WhenFull};

    use super::*;

    fn scheduler(name: Scheduler) -> SetScheduler {
        SetScheduler { name, weights: None, count: None, when_full: None, formula: None, k: None }
    }

    fn link(name: &str) -> SetLink {
        let name = name.to_owned();
        SetLink { name, weight: None, rate: None, cost: None, preference: None, direction: None }
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let mut scheduling = Scheduling::default();
        let known = ["wlan0".to_owned(), "lte0".to_owned()];
        let price = Cost { amount: 5.0, unit: "EUR".to_owned() };
        let changes = [
            SetLink { cost: Some(price.clone()), ..link("lte0") },
            SetLink { preference: Some(Preference::WhenNeeded), ..link("lte0") },
        ];
        for change in &changes {
            assert!(change_link(&mut scheduling, change, &known).is_ok());
        }
        let wait = SetScheduler { when_full: Some(WhenFull::Wait), ..scheduler(Scheduler::Batcp) };
        assert!(change_scheduler(&mut scheduling, &wait).is_ok());
        assert!(change_scheduler(&mut scheduling, &scheduler(Scheduler::Batcp)).is_ok());
        let expected = "scheduler  batcp (formula prose, when full wait)\n\
            link       lte0: cost 5 EUR/GB, use when-needed\n";
        assert_eq!(shown(&scheduling), expected);
    }

    #[test]
    fn what_has_no_meaning_is_refused_and_the_nearest_link_is_named() {
        let mut scheduling = Scheduling::default();
        let misplaced =
            SetScheduler { formula: Some(Formula::Literal), ..scheduler(Scheduler::Natalie) };
        let refused = [
            change_scheduler(&mut scheduling, &misplaced),
            change_link(&mut scheduling, &link("wlan"), &["wlan0".to_owned()]),
            change_link(&mut scheduling, &link("wlan0"), &["wlan0".to_owned()]),
            change_link(
                &mut scheduling,
                &SetLink { weight: Some(0.0), ..link("wlan0") },
                &["wlan0".to_owned()],
            ),
        ];
        let errors =
            refused.map(|result| result.map_or_else(|error| error.to_string(), |()| String::new()));
        assert!(errors[0].contains("--formula"), "{errors:?}");
        assert!(errors[1].contains("did you mean `wlan0`?"), "{errors:?}");
        assert!(errors[2].contains("--weight"), "{errors:?}");
        assert!(errors[3].contains("nothing would be carried"), "{errors:?}");
    }
}
