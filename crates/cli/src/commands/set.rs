//! `ropewalk set`: change how a running daemon sends, or show how it does.

use std::fmt::Write as _;

use anyhow::Context as _;
use ropewalk_control::api::Role;
use ropewalk_control::config::Scheduling;
use ropewalk_control::config::error::nearest;
use ropewalk_control::config::scheduler::{Direction, LinkTerms, Scheduler};

use super::ask;
use crate::args::{Set, SetLink, SetScheduler, SetWhat};
use crate::exit::{Failure, print};

/// Reads what is in force, changes it as told, has it put in force, and shows it.
pub(crate) fn run(set: &Set) -> Result<(), Failure> {
    let peer = set.peer.as_deref();
    let socket = ask::socket_for(set.socket.as_deref(), peer);
    let mut scheduling = ask::scheduling(socket, peer, None)?;
    if let Some(what) = &set.what {
        match what {
            SetWhat::Scheduler(change) => change_scheduler(&mut scheduling, change)?,
            SetWhat::Link(change) => {
                let report = ask::status(socket)?;
                let tunnels = report.tunnels.iter();
                let asked = tunnels.filter(|tunnel| peer.is_none_or(|peer| tunnel.peer == peer));
                let links = asked.flat_map(|tunnel| &tunnel.links);
                let known: Vec<_> = links.map(|link| link.name.as_str()).collect();
                change_link(&mut scheduling, change, &known, sends(report.daemon.role))?;
            }
        }
        scheduling.check().map_err(|error| Failure::Usage(error.to_string()))?;
        scheduling = ask::scheduling(socket, peer, Some(scheduling))?;
    }
    if set.json {
        let json = serde_json::to_string_pretty(&scheduling);
        return print(&(json.context("cannot write it as JSON")? + "\n"));
    }
    print(&shown(&scheduling, peer))
}

/// Which way an end sends.
const fn sends(role: Role) -> Direction {
    match role {
        Role::Client => Direction::Up,
        Role::Proxy => Direction::Down,
    }
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
    known: &[&str],
    sends: Direction,
) -> Result<(), Failure> {
    let SetLink { name, weight, rate, cost, preference, importance, direction } = change;
    if !known.contains(&name.as_str()) && !scheduling.terms.contains_key(name) {
        let help = match nearest(name, known.iter().copied()) {
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
        && importance.is_none()
        && direction.is_none()
    {
        let help = "say what: --weight, --rate, --cost, --use, --importance or --direction";
        return Err(Failure::Usage(format!("nothing was said of the link {name}: {help}")));
    }
    // One says in words what the other says in numbers.
    if preference.is_some() {
        terms.importance = None;
    }
    if importance.is_some() {
        terms.preference = None;
    }
    *terms = LinkTerms {
        weight: weight.or(terms.weight),
        rate: rate.or(terms.rate),
        cost: cost.clone().or_else(|| terms.cost.take()),
        preference: preference.or(terms.preference),
        importance: importance.or(terms.importance),
        direction: direction.or(terms.direction),
    };
    scheduling.check_carries(known, sends).map_err(|error| Failure::Usage(error.to_string()))
}

/// What is in force, in the words of the config file.
fn shown(scheduling: &Scheduling, peer: Option<&str>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(peer) = peer {
        let _ = writeln!(text, "peer       {}", peer.escape_debug());
    }
    let _ = writeln!(text, "scheduler  {}", scheduling.in_words());
    for (name, terms) in &scheduling.terms {
        let _ = writeln!(text, "link       {name}: {}", terms.in_words());
    }
    for idle in scheduling.without_effect() {
        let _ = writeln!(text, "note       {idle}");
    }
    text
}

#[cfg(test)]
mod tests {
    use ropewalk_control::config::scheduler::{Cost, Formula, Importance, Preference, WhenFull};

    use super::*;

    fn scheduler(name: Scheduler) -> SetScheduler {
        SetScheduler { name, weights: None, count: None, when_full: None, formula: None, k: None }
    }

    fn link(name: &str) -> SetLink {
        let name = name.to_owned();
        SetLink {
            name,
            weight: None,
            rate: None,
            cost: None,
            preference: None,
            importance: None,
            direction: None,
        }
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let mut scheduling = Scheduling::default();
        let known = ["wlan0", "lte0"];
        let price = Cost { amount: 5.0, unit: "EUR".to_owned() };
        let changes = [
            SetLink { cost: Some(price.clone()), ..link("lte0") },
            SetLink { preference: Some(Preference::WhenNeeded), ..link("lte0") },
        ];
        for change in &changes {
            assert!(change_link(&mut scheduling, change, &known, Direction::Up).is_ok());
        }
        let wait = SetScheduler { when_full: Some(WhenFull::Wait), ..scheduler(Scheduler::Batcp) };
        assert!(change_scheduler(&mut scheduling, &wait).is_ok());
        assert!(change_scheduler(&mut scheduling, &scheduler(Scheduler::Batcp)).is_ok());
        let expected = "scheduler  batcp (formula prose, packets wait for a full link)\n\
            link       lte0: cost 5 EUR/GB, use when-needed\n";
        assert_eq!(shown(&scheduling, None), expected);
        let shares = Importance { throughput: 0.2, cost: 0.8 };
        let numbers = SetLink { importance: Some(shares), ..link("lte0") };
        assert!(change_link(&mut scheduling, &numbers, &known, Direction::Up).is_ok());
        scheduling.scheduler = Scheduler::Safire;
        let expected = "peer       van\nscheduler  safire (k 1, 0 routes)\n\
            link       lte0: cost 5 EUR/GB, throughput matters 0.2, cost 0.8\n\
            note       the use of lte0 counts only for the scheduler batcp\n";
        assert_eq!(shown(&scheduling, Some("van")), expected);
    }

    #[test]
    fn what_has_no_meaning_is_refused_and_the_nearest_link_is_named() {
        let mut scheduling = Scheduling::default();
        let misplaced =
            SetScheduler { formula: Some(Formula::Literal), ..scheduler(Scheduler::Natalie) };
        let changed = change_scheduler(&mut scheduling, &misplaced);
        assert!(changed.is_err_and(|error| error.to_string().contains("--formula")));
        let away = SetLink { direction: Some(Direction::Down), ..link("wlan0") };
        let table = [
            (link("wlan"), "did you mean `wlan0`?"),
            (link("satellite"), "there are wlan0"),
            (link("wlan0"), "--weight"),
            (SetLink { weight: Some(0.0), ..link("wlan0") }, "give one of them more than zero"),
            (away, "the direction of every link is the other one"),
        ];
        for (change, expected) in table {
            let mut scheduling = Scheduling::default();
            let changed = change_link(&mut scheduling, &change, &["wlan0"], Direction::Up);
            let error = changed.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(error.contains(expected), "{change:?}: {error}");
        }
    }
}
