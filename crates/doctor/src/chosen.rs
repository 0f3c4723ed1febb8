//! What goes through the tunnel and around it by program, user and domain: whether each entry can choose anything.

use std::path::Path;

use ropewalk_client::config::Config;
use ropewalk_client::probe;
use ropewalk_client::split::cgroups::{MOUNT, Tree};
use ropewalk_client::split::users::{PASSWD, id_of};
use ropewalk_control::api::RuleStatus;
use ropewalk_settings::Selector;

use super::finding::Finding;
use super::quoting;

/// What there is to judge.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The entries of `routes` and `exclude` that are no prefixes.
    pub(super) entries: Vec<Selector>,
    /// Those that name nobody.
    pub(super) strangers: Vec<Selector>,
    /// Those by control groups of which none runs.
    pub(super) idle: Vec<Selector>,
    /// This system has control groups of version 2.
    pub(super) has_groups: bool,
    /// Why `nft` or the kernel takes no rules by them; not known where it could not be tried.
    pub(super) refused: Option<String>,
    /// What a running client says of its rules.
    pub(super) told: Vec<RuleStatus>,
}

pub(super) fn look(config: &Config, told: &[RuleStatus]) -> Facts {
    let entries = config.tun.routes.iter().chain(&config.tun.exclude);
    let entries: Vec<Selector> = entries.filter(|one| one.prefix().is_none()).cloned().collect();
    let passwd = std::fs::read_to_string(PASSWD).unwrap_or_default();
    let is_stranger = |one: &&Selector| match one {
        Selector::User(user) => id_of(user, &passwd).is_none(),
        _ => false,
    };
    let by_group: Vec<&Selector> = entries.iter().filter(|one| one.is_by_cgroup()).collect();
    let tree = Tree::mounted().filter(|_| !by_group.is_empty());
    let found = tree.as_ref().map(|tree| tree.find(&by_group, |_| ()).paths).unwrap_or_default();
    let idle = by_group.iter().zip(&found).filter(|(_, paths)| paths.is_empty());
    let tried = tree.as_ref().and_then(|_| probe::takes_groups());
    Facts {
        strangers: entries.iter().filter(is_stranger).cloned().collect(),
        idle: idle.map(|(one, _)| (*one).clone()).collect(),
        has_groups: tree.is_some() || by_group.is_empty(),
        refused: tried.and_then(Result::err).map(|error| error.to_string()),
        told: told.to_vec(),
        entries,
    }
}

/// `file` is the client's config.
pub(super) fn judge(file: &Path, facts: &Facts) -> Vec<Finding> {
    let subject = "routes";
    let mut findings = Vec::new();
    if facts.entries.is_empty() {
        return findings;
    }
    let edit = || format!("sudoedit {}", quoting::file(file));
    for one in &facts.strangers {
        let found = format!("`{one}` chooses nothing: no user has this name in {PASSWD}");
        findings.push(
            Finding::fail("routes.user", subject, found, edit())
                .advise("write another name, or the number if another source knows the user:"),
        );
    }
    let has_group_entries = facts.entries.iter().any(Selector::is_by_cgroup);
    if has_group_entries && !facts.has_groups {
        let found = format!(
            "units, applications and control groups are not told apart: there is no tree of version 2 at {MOUNT}"
        );
        findings.push(
            Finding::fail("routes.cgroup", subject, found, edit())
                .advise("boot with systemd.unified_cgroup_hierarchy=1, or choose by user:NAME:"),
        );
    } else if let Some(why) = &facts.refused {
        let found = format!("units, applications and control groups are not told apart: {why}");
        findings.push(
            Finding::fail("routes.nft", subject, found, "nft --version; uname -r").advise(
                "nftables 1.0 and Linux 5.13 take rules by control groups; older ones: choose by user:NAME:",
            ),
        );
    } else {
        findings.extend(facts.idle.iter().map(|one| {
            Finding::note("routes.idle", subject, format!("`{one}` is not running now"))
        }));
    }
    let by_domain = facts.told.iter().filter(|one| one.rule.is_by_domain());
    findings.extend(by_domain.filter_map(|one| {
        let note = one.note.as_ref()?;
        Some(Finding::warning("routes.domain", subject, format!("`{}`: {note}", one.rule)))
    }));
    if findings.iter().all(|one| one.id == "routes.idle") {
        let count = facts.entries.len();
        let found = format!("{count} entries by program, user or domain can choose what they mean");
        findings.push(Finding::ok("routes", subject, found));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::{Side, Text as _};

    fn list(entries: &[&str]) -> Vec<Selector> {
        entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
    }

    #[test]
    fn who_is_unknown_and_what_the_kernel_lacks_are_failures_and_what_does_not_run_a_note() {
        let told = RuleStatus {
            rule: list(&["domain:example.org"]).remove(0),
            side: Side::Inside,
            packets: 0,
            bytes: 0,
            cgroups: Vec::new(),
            addresses: None,
            note: Some("no name servers".to_owned()),
        };
        let facts = |entries: &[&str]| Facts {
            entries: list(entries),
            has_groups: true,
            ..Facts::default()
        };
        let unit = || facts(&["unit:a.service"]);
        for (facts, expected) in [
            (facts(&[]), vec![]),
            (facts(&["user:7"]), vec!["routes"]),
            (Facts { strangers: list(&["user:x"]), ..facts(&["user:x"]) }, vec!["routes.user"]),
            (Facts { idle: list(&["unit:a.service"]), ..unit() }, vec!["routes.idle", "routes"]),
            (Facts { has_groups: false, ..unit() }, vec!["routes.cgroup"]),
            (Facts { refused: Some("syntax error".to_owned()), ..unit() }, vec!["routes.nft"]),
            (Facts { told: vec![told], ..facts(&["domain:example.org"]) }, vec!["routes.domain"]),
        ] {
            let findings = judge(Path::new("/etc/client.toml"), &facts);
            let ids: Vec<&str> = findings.iter().map(|one| one.id).collect();
            assert_eq!(ids, expected, "{facts:?}");
        }
    }
}
