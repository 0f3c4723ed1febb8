//! Whether a crashed daemon has left something behind, and whether something stands where a daemon wants to.

use std::path::Path;

use ropewalk_control::CLIENT_CONFIG;
use ropewalk_control::api::Role;

use super::finding::Finding;
use super::quoting;

/// What there is to judge.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// A daemon of this role answers: what is there is its own.
    pub(super) runs: bool,
    /// Rules and routes under our protocol number.
    pub(super) rules: usize,
    pub(super) routes: usize,
    /// The firewall table of this role is there, and does something.
    pub(super) table: bool,
    /// A client's kill switch stands.
    pub(super) lock: bool,
    /// What stood in `/etc/resolv.conf` before a client changed it is still kept.
    pub(super) names: bool,
    /// An interface with the TUN's name is there.
    pub(super) tun: Option<Tun>,
    /// A daemon of this role holds its lock, without answering.
    pub(super) locked: bool,
}

/// An interface with the name of a daemon's TUN.
#[derive(Clone, Debug)]
pub(super) struct Tun {
    pub(super) name: String,
    /// Its kind, as in `ip -d link`.
    pub(super) kind: String,
    /// Whether a program holds it, if it is a TUN.
    pub(super) is_held: bool,
}

pub(super) fn judge(role: Role, file: &Path, facts: &Facts) -> Vec<Finding> {
    let subject = "leftovers";
    if facts.runs {
        return Vec::new();
    }
    if facts.locked {
        return vec![
            Finding::warn(
                "leftovers.mute",
                subject,
                format!("a {role} runs in this network namespace and does not answer at this config's socket"),
                "sudo ropewalk status",
            )
            .advise("it has another config, or is starting or stopping:"),
        ];
    }
    let mut findings = Vec::new();
    findings.extend(facts.tun.as_ref().map(|tun| of_tun(role, tun)));
    match role {
        // The guard and an empty table stay on purpose.
        Role::Proxy if facts.rules + facts.routes > 0 || facts.table => findings.push(Finding::note(
            "leftovers.guard",
            subject,
            "a stopped proxy's guard is there, as it should; `sudo ropewalk proxy --purge` takes it away",
        )),
        Role::Client if facts.lock => findings.push(
            Finding::fail(
                "leftovers.lock",
                subject,
                "the kill switch of a client that is gone stands: nothing leaves this machine",
                "sudo systemctl start ropewalk-client",
            )
            .or(purge(file))
            .advise("start the client again, or take it away:"),
        ),
        Role::Client if facts.rules + facts.routes > 0 || facts.table || facts.names => {
            let table = if facts.table { ", its firewall table" } else { "" };
            let names = if facts.names { ", other name servers" } else { "" };
            let found = format!(
                "a client that ended early left {} rules, {} routes{table}{names}",
                facts.rules, facts.routes
            );
            findings.push(
                Finding::warn("leftovers.crash", subject, found, purge(file))
                    .advise("the client's next start takes them away; without one:")
                    .automatic(),
            );
        }
        _ => {}
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "leftovers",
            subject,
            format!("no {role} runs, and none left anything behind"),
        ));
    }
    findings
}

/// A TUN that nobody holds is taken over: somebody made it for a daemon without rights.
fn of_tun(role: Role, Tun { name, kind, is_held }: &Tun) -> Finding {
    if kind == "tun" && !is_held {
        let found = format!("a TUN {name} is there, and nobody holds it: the {role} takes it over");
        return Finding::note("leftovers.free-tun", "leftovers", found);
    }
    let found =
        format!("an interface {name} ({kind}) is there already: the {role} cannot make its TUN");
    Finding::fail(
        "leftovers.tun",
        "leftovers",
        found,
        format!("sudo ip link delete {}", quoting::quoted(name)),
    )
    .advise("if nothing else uses it:")
    .automatic()
}

/// What takes everything away that a client left.
fn purge(file: &Path) -> String {
    match file == Path::new(CLIENT_CONFIG) {
        true => "sudo ropewalk client --purge".to_owned(),
        false => format!("sudo ropewalk client --purge --config {}", quoting::file(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_told_and_what_is_meant_to_stay_is_not_a_fault() {
        let left = Facts { rules: 3, routes: 2, table: true, ..Facts::default() };
        let tun = |kind: &str, is_held| {
            let tun = Tun { name: "ropewalk0".into(), kind: kind.into(), is_held };
            Facts { tun: Some(tun), ..Facts::default() }
        };
        let table = [
            (Role::Client, Facts { runs: true, ..left.clone() }, vec![]),
            (Role::Client, Facts::default(), vec!["leftovers"]),
            (Role::Client, left.clone(), vec!["leftovers.crash"]),
            (Role::Proxy, left.clone(), vec!["leftovers.guard"]),
            (Role::Client, tun("veth", false), vec!["leftovers.tun"]),
            (Role::Client, tun("tun", true), vec!["leftovers.tun"]),
            (Role::Client, tun("tun", false), vec!["leftovers.free-tun"]),
            (Role::Client, Facts { lock: true, ..left.clone() }, vec!["leftovers.lock"]),
            (Role::Client, Facts { names: true, ..Facts::default() }, vec!["leftovers.crash"]),
            (Role::Client, Facts { locked: true, ..left.clone() }, vec!["leftovers.mute"]),
        ];
        for (role, facts, ids) in table {
            let found: Vec<_> = judge(role, Path::new(CLIENT_CONFIG), &facts)
                .into_iter()
                .map(|one| one.id)
                .collect();
            assert_eq!(found, ids, "{facts:?}");
        }
        let crash = |file| judge(Role::Client, Path::new(file), &left).remove(0).commands;
        assert_eq!(crash(CLIENT_CONFIG), ["sudo ropewalk client --purge"]);
        assert_eq!(crash("/w.toml"), ["sudo ropewalk client --purge --config /w.toml"]);
        let tun = judge(Role::Client, Path::new(CLIENT_CONFIG), &tun("veth", false)).remove(0);
        assert_eq!(tun.commands, ["sudo ip link delete ropewalk0"]);
    }
}
