//! `ropewalk set`: change how a running daemon sends, or show how it does.

use std::fmt::Write as _;

use anyhow::Context as _;
use ropewalk_control::api::Role;
use ropewalk_settings::{Direction, LinkTerms, Order, SchedulerKind, Scheduling, nearest};

use super::ask;
use crate::args::{Set, SetLink, SetRedundant, SetScheduler, SetWhat};
use crate::exit::{Failure, print};

/// Reads what is in force, changes it as told, has it put in force, and shows it.
pub(crate) fn run(set: &Set) -> Result<(), Failure> {
    let peer = set.peer.as_deref();
    let socket = ask::socket_for(set.daemon.socket.as_deref(), peer);
    let mut scheduling = ask::scheduling(socket, peer, None)?;
    let mut note = "";
    if let Some(what) = &set.what {
        let report = ask::status(socket)?;
        let tunnels = report.tunnels.iter();
        let asked = || tunnels.clone().filter(|tunnel| peer.is_none_or(|peer| tunnel.peer == peer));
        let global = Order::Global.to_string();
        if matches!(what, SetWhat::Redundant(_))
            && asked().any(|tunnel| tunnel.policy.order.as_ref() == Some(&global))
        {
            note = "note       no packet goes over two links with order global\n";
        }
        let links = asked().flat_map(|tunnel| &tunnel.links);
        let known: Vec<_> = links.map(|link| link.name.as_str()).collect();
        change(&mut scheduling, what, &known, sends(report.daemon.role))?;
        scheduling = ask::scheduling(socket, peer, Some(scheduling))?;
    }
    if set.json {
        let json = serde_json::to_string_pretty(&scheduling);
        return print(&(json.context("cannot write it as JSON")? + "\n"));
    }
    print(&(shown(&scheduling, peer) + note))
}

/// Which way an end sends.
const fn sends(role: Role) -> Direction {
    match role {
        Role::Client => Direction::Up,
        Role::Proxy => Direction::Down,
    }
}

/// Changes it as told, and checks that it makes sense then. `known`: the links that there are; `sends`: the way of what
/// the daemon sends.
fn change(
    scheduling: &mut Scheduling,
    what: &SetWhat,
    known: &[&str],
    sends: Direction,
) -> Result<(), Failure> {
    match what {
        SetWhat::Profile(change) => scheduling.set_profile(change.name),
        SetWhat::Scheduler(change) => change_scheduler(scheduling, change)?,
        SetWhat::Link(change) => change_link(scheduling, change, known, sends)?,
        SetWhat::Redundant(change) => change_redundant(scheduling, change)?,
    }
    scheduling.check().map_err(|error| Failure::Usage(error.to_string()))
}

fn change_scheduler(scheduling: &mut Scheduling, change: &SetScheduler) -> Result<(), Failure> {
    let name = change.name;
    let misplaced = [
        ("--weights", change.weights.is_some(), name == SchedulerKind::Natalie),
        ("--count", change.count.is_some(), name == SchedulerKind::Natalie),
        (
            "--when-full",
            change.when_full.is_some(),
            matches!(name, SchedulerKind::Natalie | SchedulerKind::Batcp),
        ),
        ("--formula", change.formula.is_some(), name == SchedulerKind::Batcp),
        ("--k", change.k.is_some(), name == SchedulerKind::Safire),
    ];
    if let Some((flag, ..)) = misplaced.iter().find(|(_, given, fits)| *given && !fits) {
        return Err(Failure::Usage(format!("{flag} has no meaning for the scheduler {name}")));
    }
    scheduling.scheduler = name;
    let (natalie, batcp) = (&mut scheduling.natalie, &mut scheduling.batcp);
    natalie.weights = change.weights.unwrap_or(natalie.weights);
    natalie.count = change.count.unwrap_or(natalie.count);
    match change.when_full {
        Some(when_full) if name == SchedulerKind::Natalie => natalie.when_full = when_full,
        Some(when_full) => batcp.when_full = when_full,
        None => {}
    }
    batcp.formula = change.formula.unwrap_or(batcp.formula);
    scheduling.safire.k = change.k.unwrap_or(scheduling.safire.k);
    Ok(())
}

fn change_redundant(scheduling: &mut Scheduling, change: &SetRedundant) -> Result<(), Failure> {
    let SetRedundant { marked, ports, addresses, budget } = change;
    if marked.is_none() && ports.is_none() && addresses.is_none() && budget.is_none() {
        let help = "say what: --marked, --ports, --addresses or --budget";
        return Err(Failure::Usage(format!("nothing was said of packets over two links: {help}")));
    }
    let redundant = &mut scheduling.redundant;
    redundant.marked = marked.unwrap_or(redundant.marked);
    redundant.budget = budget.unwrap_or(redundant.budget);
    if let Some(ports) = ports {
        redundant.ports.clone_from(&ports.0);
    }
    if let Some(addresses) = addresses {
        redundant.addresses.clone_from(&addresses.0);
    }
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
    if let Some(profile) = scheduling.profile {
        let (controller, order) = (profile.controller(), profile.order());
        let acknowledge = profile.acknowledge();
        let _ = writeln!(
            text,
            "profile    {profile}: controller {controller}, order {order}, acknowledge {acknowledge}"
        );
    }
    let _ = writeln!(text, "scheduler  {}", scheduling.in_words());
    let _ = writeln!(text, "sent twice {}", scheduling.redundant.in_words());
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
    use ropewalk_settings::{Cost, Formula, Importance, Preference, Profile, WhenFull};

    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Command};

    fn scheduler(name: SchedulerKind) -> SetScheduler {
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
        let wait =
            SetScheduler { when_full: Some(WhenFull::Wait), ..scheduler(SchedulerKind::Batcp) };
        assert!(change_scheduler(&mut scheduling, &wait).is_ok());
        assert!(change_scheduler(&mut scheduling, &scheduler(SchedulerKind::Batcp)).is_ok());
        let expected = "scheduler  batcp (formula prose, packets wait for a full link)\n\
            sent twice DSCP 40 and above; copies of at most 1 Mbit/s\n\
            link       lte0: cost 5 EUR/GB, use when-needed\n";
        assert_eq!(shown(&scheduling, None), expected);
        let shares = Importance::new(0.2, 0.8).unwrap();
        let numbers = SetLink { importance: Some(shares), ..link("lte0") };
        assert!(change_link(&mut scheduling, &numbers, &known, Direction::Up).is_ok());
        scheduling.scheduler = SchedulerKind::Safire;
        let expected = "peer       van\nscheduler  safire (k 1, 0 routes)\n\
            sent twice DSCP 40 and above; copies of at most 1 Mbit/s\n\
            link       lte0: cost 5 EUR/GB, throughput matters 0.2, cost 0.8\n\
            note       the use of lte0 counts only for the scheduler batcp\n";
        assert_eq!(shown(&scheduling, Some("van")), expected);
    }

    #[test]
    fn a_mistake_is_told_with_what_to_write_wherever_it_is_found() {
        let table = [
            ("scheduler natali", "did you mean `natalie`?"),
            (
                "scheduler fastest",
                "valid here: arrival, free-window, round-robin, natalie, batcp, safire",
            ),
            ("scheduler safire --k 0", "k is 0, and must be above zero"),
            ("scheduler safire --k nan", "k is NaN, and must be above zero"),
            ("link wlna0 --weight 1", "did you mean `wlan0`?"),
            ("link wlan0 --weight -1", "link wlan0: weight = -1 is no number from 0"),
            ("link wlan0 --weight nan", "link wlan0: weight = NaN is no number from 0"),
            ("link wlan0 --weight 0", "give one of them more"),
            ("link wlan0 --cost 5", "such as \"5 EUR/GB\""),
            ("link wlan0 --cost 5USD/GB", "its cost is in USD, that of lte0 in EUR"),
            ("link wlan0 --rate 20", "such as \"20 Mbit/s\""),
            ("link wlan0 --importance 0.5,0.6", "must be shares that sum to 1"),
            ("link wlan0 --importance nan,1", "must be shares that sum to 1"),
            ("link wlan0 --importance 1", "two shares of one, such as 0.1,0.9"),
            ("link wlan0 --use sometimes", "valid here: first, also, when-needed"),
            ("link wlan0 --use first --importance 1,0", "cannot be used with"),
            ("link wlan0 --direction sideways", "up, down, both"),
            ("link wlan0", "say what"),
            ("redundant", "say what: --marked"),
            ("redundant --marked perhaps", "perhaps"),
            ("redundant --ports 0", "`0` is not a port"),
            ("redundant --ports 9-7", "write \"7-9\""),
            ("redundant --addresses 10.0.0.1/8", "write \"10.0.0.0/8\""),
            ("redundant --budget 1", "such as \"20 Mbit/s\""),
            ("redundant --budget 1Gbit/s", "is outside 10 kbit/s to 100 Mbit/s"),
        ];
        for (written, expected) in table {
            let words = ["ropewalk", "set"].into_iter().chain(written.split(' '));
            let error = match Arguments::try_parse_from(words) {
                Err(error) => error.to_string(),
                Ok(Arguments { command: Command::Set(Set { what: Some(what), .. }), .. }) => {
                    let mut scheduling: Scheduling = serde_json::from_str(
                        r#"{ "terms": { "lte0": { "weight": 0, "cost": "5 EUR/GB" } } }"#,
                    )
                    .unwrap();
                    let known = ["wlan0", "lte0"];
                    let changed = change(&mut scheduling, &what, &known, Direction::Up);
                    changed.map_or_else(|error| error.to_string(), |()| String::new())
                }
                Ok(other) => format!("{other:?}"),
            };
            assert!(error.contains(expected), "{written}: {error}");
        }
    }

    #[test]
    fn packets_over_two_links_are_said_part_by_part() {
        let table = [
            ("--ports 5060,16384-32767", "DSCP 40 and above, ports 5060, 16384-32767; "),
            ("--marked no", "ports 5060, 16384-32767; "),
            ("--addresses 192.0.2.7", "ports 5060, 16384-32767, addresses 192.0.2.7; "),
            (
                "--budget 300kbit/s --ports none",
                "addresses 192.0.2.7; copies of at most 300 kbit/s",
            ),
            ("--addresses none", "nothing"),
        ];
        let mut scheduling = Scheduling::default();
        for (written, expected) in table {
            let words = ["ropewalk", "set", "redundant"].into_iter().chain(written.split(' '));
            let Ok(Arguments { command: Command::Set(set), .. }) = Arguments::try_parse_from(words)
            else {
                panic!("{written}")
            };
            let what = set.what.expect("something was said");
            assert!(change(&mut scheduling, &what, &[], Direction::Up).is_ok(), "{written}");
            let words = scheduling.redundant.in_words();
            assert!(words.starts_with(expected), "{written}: {words}");
        }
    }

    #[test]
    fn a_profile_is_taken_as_a_whole_and_its_scheduler_may_be_changed_afterwards() {
        let mut scheduling = Scheduling::default();
        scheduling.set_profile(Profile::Paper);
        let expected = "profile    paper: controller ccid2, order global, acknowledge end-to-end\n\
            scheduler  free-window\n";
        assert!(shown(&scheduling, None).starts_with(expected));
        assert!(change_scheduler(&mut scheduling, &scheduler(SchedulerKind::RoundRobin)).is_ok());
        assert!(shown(&scheduling, None).contains("end-to-end\nscheduler  round-robin\n"));
    }

    #[test]
    fn what_has_no_meaning_is_refused_and_the_nearest_link_is_named() {
        let mut scheduling = Scheduling::default();
        let misplaced =
            SetScheduler { formula: Some(Formula::Literal), ..scheduler(SchedulerKind::Natalie) };
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
