//! Conditions that hold or do not, whatever came before: each is told once when it begins, and taken away when it is over.

use ropewalk_control::api::{
    AllowanceStatus, KillSwitch, LinkState, LinkStatus, StatusReport, TunnelTrouble,
};
use ropewalk_settings::figures::size;

use super::links::{and, working};
use super::note::{Note, Topic, Urgency};

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) note: Note,
    /// What has to change so that it is told again: its figures may change at any time.
    pub(super) level: u8,
}

/// All that hold.
pub(super) fn of(report: &StatusReport) -> Vec<Condition> {
    let tunnel = report.tunnels.first();
    let links = tunnel.map_or(&[][..], |tunnel| &tunnel.links);
    let mut found = Vec::new();
    if report.daemon.kill_switch == Some(KillSwitch::Failed) {
        let body = "Packets may leave this machine outside the tunnel. `ropewalk status` says why.";
        let note =
            Note::new(Topic::KillSwitch, Urgency::Critical, "The kill switch is not set", body);
        found.push(Condition { note, level: 0 });
    }
    if tunnel.is_some_and(|tunnel| tunnel.trouble == Some(TunnelTrouble::OtherVersions)) {
        let reason = tunnel.and_then(|tunnel| tunnel.reason.clone()).unwrap_or_default();
        let body = format!("{reason}. Update the older end.");
        let note = Note::new(Topic::Versions, Urgency::Normal, "Ropewalk needs an update", &body);
        found.push(Condition { note, level: 0 });
    }
    for link in links {
        found.extend(sign_in(link, links));
        found.extend(link.allowance.as_ref().and_then(|allowance| used(&link.name, allowance)));
    }
    found
}

fn sign_in(link: &LinkStatus, links: &[LinkStatus]) -> Option<Condition> {
    let page = link.sign_in.as_ref()?;
    let summary = format!("{} wants a sign-in", link.name);
    let mut body = format!("Its network lets nothing through before, perhaps at {page}.");
    let others = working(links);
    if !others.is_empty() {
        body += &format!(" {} meanwhile.", and(&others, "carries on", "carry on"));
    }
    let note = Note::new(Topic::SignIn(link.name.clone()), Urgency::Normal, &summary, &body);
    Some(Condition { note, level: 0 })
}

/// Little of an allowance is left, or nothing.
fn used(name: &str, allowance: &AllowanceStatus) -> Option<Condition> {
    let AllowanceStatus { bytes, used, until, stop, .. } = allowance;
    let percent = allowance.used_percent();
    let so_far = format!("{} of {} until {until}", size(*used), size(*bytes));
    let (level, summary, body) = match percent {
        100.. if *stop => {
            let body = format!("{so_far}. It is not used before that day.");
            (2, format!("{name}: the allowance is used up"), body)
        }
        100.. => {
            let body = format!("{so_far}. It is still used.");
            (2, format!("{name}: the allowance is used up"), body)
        }
        AllowanceStatus::WARN_PERCENT.. => {
            (1, format!("{name}: {percent} % of the allowance is used"), format!("{so_far}."))
        }
        _ => return None,
    };
    let note = Note::new(Topic::Allowance(name.to_owned()), Urgency::Normal, &summary, &body);
    Some(Condition { note, level })
}

/// Whether a link carries nothing because somebody wants it so: it is switched off, or its allowance is used up.
pub(super) fn is_wanted_so(link: &LinkStatus) -> bool {
    let is_over = |allowance: &AllowanceStatus| allowance.stop && allowance.used_percent() >= 100;
    link.state == LinkState::Disabled || link.allowance.as_ref().is_some_and(is_over)
}
