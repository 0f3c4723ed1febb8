//! `ropewalk set`: change how a running daemon sends, or show how it does.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::RoutesChange;
use ropewalk_settings::{Order, SchedulerKind, Scheduling, Selector, Side};

use super::ask;
use crate::args::{List, Set, SetRedundant, SetRoutes, SetScheduler, SetWhat};
use crate::exit::{Failure, print};
use crate::render;

/// Reads what is in force, changes it as told, has it put in force, and shows it.
pub(crate) fn run(set: &Set) -> Result<(), Failure> {
    match &set.what {
        Some(SetWhat::Routes(change)) => return set_routes(set, Side::Inside, change),
        Some(SetWhat::Exclude(change)) => return set_routes(set, Side::Outside, change),
        Some(SetWhat::Profile(_) | SetWhat::Scheduler(_) | SetWhat::Redundant(_)) | None => {}
    }
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
        change(&mut scheduling, what)?;
        scheduling = ask::scheduling(socket, peer, Some(scheduling))?;
    }
    if set.json {
        let json = serde_json::to_string_pretty(&scheduling);
        return print(&(json.context("cannot write it as JSON")? + "\n"));
    }
    print(&(shown(&scheduling, peer) + note))
}

/// Has other entries of one list hold, where some are said, and shows both lists.
fn set_routes(set: &Set, side: Side, said: &SetRoutes) -> Result<(), Failure> {
    if set.peer.is_some() {
        let message =
            "--peer goes with how a proxy sends: what goes through a tunnel is said at its client";
        return Err(Failure::Usage(message.to_owned()));
    }
    let socket = set.daemon.socket.as_deref().unwrap_or(Path::new(CLIENT_SOCKET));
    let entries = |list: &Option<List<Selector>>| {
        list.as_ref().map(|list| list.0.clone()).unwrap_or_default()
    };
    let (add, remove) = (entries(&said.add), entries(&said.remove));
    let is_change = !add.is_empty() || !remove.is_empty();
    let change = is_change.then_some(RoutesChange { side, add, remove });
    let report = ask::routes(socket, change)?;
    if set.json {
        let json = serde_json::to_string_pretty(&report);
        return print(&(json.context("cannot write it as JSON")? + "\n"));
    }
    print(&render::routes(&report, render::columns()))
}

/// Changes it as told, and checks that it makes sense then.
fn change(scheduling: &mut Scheduling, what: &SetWhat) -> Result<(), Failure> {
    match what {
        SetWhat::Profile(change) => scheduling.set_profile(change.name),
        SetWhat::Scheduler(change) => change_scheduler(scheduling, change)?,
        SetWhat::Redundant(change) => change_redundant(scheduling, change)?,
        // Nothing of scheduling.
        SetWhat::Routes(_) | SetWhat::Exclude(_) => {}
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
    use ropewalk_settings::{Formula, Profile, WhenFull};

    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Command};

    fn scheduler(name: SchedulerKind) -> SetScheduler {
        SetScheduler { name, weights: None, count: None, when_full: None, formula: None, k: None }
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let mut scheduling: Scheduling =
            serde_json::from_str(r#"{ "terms": { "lte0": { "cost": "5 EUR/GB" } } }"#).unwrap();
        let wait =
            SetScheduler { when_full: Some(WhenFull::Wait), ..scheduler(SchedulerKind::Batcp) };
        assert!(change_scheduler(&mut scheduling, &wait).is_ok());
        assert!(change_scheduler(&mut scheduling, &scheduler(SchedulerKind::Batcp)).is_ok());
        let expected = "scheduler  batcp (formula prose, packets wait for a full link)\n\
            sent twice DSCP 40 and above; copies of at most 1 Mbit/s\n\
            link       lte0: cost 5 EUR/GB\n";
        assert_eq!(shown(&scheduling, None), expected);
        scheduling.terms.get_mut("lte0").unwrap().weight = Some(2.0);
        scheduling.scheduler = SchedulerKind::Safire;
        let expected = "peer       van\nscheduler  safire (k 1, 0 routes)\n\
            sent twice DSCP 40 and above; copies of at most 1 Mbit/s\n\
            link       lte0: weight 2, cost 5 EUR/GB\n\
            note       the weight of lte0 counts only for the scheduler natalie with weights told\n";
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
            ("link wlan0 --weight 1", "unrecognized subcommand 'link'"),
            ("redundant", "say what: --marked"),
            ("redundant --marked perhaps", "perhaps"),
            ("redundant --ports 0", "`0` is not a port"),
            ("redundant --ports 9-7", "write \"7-9\""),
            ("redundant --addresses 10.0.0.1/8", "write \"10.0.0.0/8\""),
            ("redundant --budget 1", "such as \"20 Mbit/s\""),
            ("exclude --add usr:backup", "did you mean `user:`?"),
            ("routes --remove 10.0.0.1/8", "write \"10.0.0.0/8\""),
            ("redundant --budget 1Gbit/s", "is outside 10 kbit/s to 100 Mbit/s"),
        ];
        for (written, expected) in table {
            let words = ["ropewalk", "set"].into_iter().chain(written.split(' '));
            let error = match Arguments::try_parse_from(words) {
                Err(error) => error.to_string(),
                Ok(Arguments { command: Command::Set(Set { what: Some(what), .. }), .. }) => {
                    let changed = change(&mut Scheduling::default(), &what);
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
            assert!(change(&mut scheduling, &what).is_ok(), "{written}");
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
    fn what_has_no_meaning_is_refused() {
        let mut scheduling = Scheduling::default();
        let misplaced =
            SetScheduler { formula: Some(Formula::Literal), ..scheduler(SchedulerKind::Natalie) };
        let changed = change_scheduler(&mut scheduling, &misplaced);
        assert!(changed.is_err_and(|error| error.to_string().contains("--formula")));
    }
}
