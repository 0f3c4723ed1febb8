//! Whether daemon, or who wants to start it, has the capabilities it needs.

use ropewalk_control::api::Role;

use super::finding::Finding;
use crate::privilege::{self, Capability};

/// What there is to judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Whose.
    pub(super) role: Role,
    /// What it needs.
    pub(super) needed: &'static [Capability],
    /// What the running daemon has.
    pub(super) daemon: Option<u64>,
    /// What this program has.
    pub(super) own: Option<u64>,
}

pub(super) fn judge(facts: &Facts) -> Finding {
    let Facts { role, needed, daemon, own } = *facts;
    let subject = "privileges";
    let Some(effective) = daemon.or(own) else {
        let found = "the capabilities cannot be read here (/proc is not mounted)";
        return Finding::note("privileges.unknown", subject, found);
    };
    let missing = privilege::missing(needed, effective);
    if !missing.is_empty() {
        let missing: Vec<_> =
            missing.iter().map(|one| format!("{} {}", one.name, one.reason)).collect();
        let who = if daemon.is_some() { "the running daemon" } else { "this user" };
        let found = format!("{who} lacks {}", missing.join(" and "));
        let command = match daemon {
            Some(_) => format!("sudo systemctl restart ropewalk-{role}"),
            None => "sudo ropewalk doctor".to_owned(),
        };
        let advice =
            format!("run the {role} as the systemd unit or with sudo; and for this examination:");
        return Finding::fail("privileges.missing", subject, found, command).advise(advice);
    }
    let names: Vec<_> = needed.iter().map(|one| one.name).collect();
    match (daemon, own) {
        (Some(_), Some(own)) if !privilege::missing(needed, own).is_empty() => Finding::note(
            "privileges.doctor",
            subject,
            "the daemon has what it needs; this examination has not, and sees less: sudo ropewalk doctor",
        ),
        _ => Finding::ok(
            "privileges",
            subject,
            format!("all that is needed: {}", names.join(" and ")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn what_is_missing_is_named_with_what_it_is_for() {
        let judge = |daemon, own| {
            judge(&Facts { role: Role::Client, needed: privilege::CLIENT, daemon, own })
        };
        let table = [
            (None, Some(0x1000), "privileges", Level::Ok),
            (None, Some(0x2000), "privileges.missing", Level::Fail),
            (Some(0x1000), Some(0x1000), "privileges", Level::Ok),
            (Some(0x1000), Some(0), "privileges.doctor", Level::Note),
            (Some(0), Some(0x1000), "privileges.missing", Level::Fail),
            (None, None, "privileges.unknown", Level::Note),
        ];
        for (daemon, own, id, level) in table {
            let finding = judge(daemon, own);
            assert_eq!((finding.id, finding.level), (id, level), "{daemon:?} {own:?}");
        }
        let finding = judge(None, Some(0));
        assert!(finding.found.contains("CAP_NET_ADMIN to make the TUN"), "{}", finding.found);
        assert_eq!(finding.commands, ["sudo ropewalk doctor"]);
    }
}
