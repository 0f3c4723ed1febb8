//! Whether the daemon runs, what it says itself, and whether its tunnels carry packets.

use ropewalk_control::api::{LinkState, RegistryStatus, Role, StatusReport, TunnelState};

use super::finding::Finding;

/// What came of asking for its status.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// It answers.
    Status(Box<StatusReport>),
    /// Nobody does.
    NotRunning,
    /// It is there and did not answer as it should, in words.
    Failed(String),
}

impl Answer {
    pub(super) fn status(&self) -> Option<&StatusReport> {
        match self {
            Self::Status(report) => Some(report),
            Self::NotRunning | Self::Failed(_) => None,
        }
    }
}

/// `version` is that of this program; `reached` says whether the proxy answers strangers over some link.
pub(super) fn judge(role: Role, answer: &Answer, version: &str, reached: bool) -> Vec<Finding> {
    let subject = "daemon";
    let report = match answer {
        Answer::Status(report) => report,
        Answer::NotRunning => {
            let found = format!("no {role} runs: this is the examination before the start");
            return vec![Finding::note("daemon.absent", subject, found)];
        }
        Answer::Failed(why) => {
            return vec![
                Finding::warn(
                    "daemon.mute",
                    subject,
                    why.clone(),
                    format!("sudo systemctl status ropewalk-{role}"),
                )
                .or("sudo ropewalk doctor"),
            ];
        }
    };
    let mut findings = Vec::new();
    if report.daemon.program_version == version {
        findings.push(Finding::ok(
            "daemon",
            subject,
            format!("the {role} runs, version {version}"),
        ));
    } else {
        findings.push(Finding::warn(
            "daemon.version",
            subject,
            format!("version {} runs, and {version} is installed", report.daemon.program_version),
            format!("sudo systemctl restart ropewalk-{role}"),
        ));
    }
    let warnings = report.daemon.warnings.iter();
    findings.extend(warnings.map(|warning| {
        Finding::warn(
            "daemon.warns",
            subject,
            format!("it says: {warning}"),
            "sudo ropewalk status",
        )
    }));
    if role == Role::Client {
        findings.extend(report.tunnels.iter().flat_map(|tunnel| tunnel_of(tunnel, reached)));
    } else if let Some(proxy) = &report.proxy {
        let wrong = proxy.handshakes.unauthentic;
        if wrong > 0 {
            findings.push(Finding::note(
                "daemon.strangers",
                subject,
                format!("{wrong} first messages were made for another public key, or damaged: a client may have a wrong key"),
            ));
        }
        if proxy.handshakes.unknown_key > 0 {
            let found = format!(
                "{} first messages came from keys that are no client's",
                proxy.handshakes.unknown_key
            );
            findings.push(Finding::note("daemon.unknown-keys", subject, found));
        }
        findings.extend(proxy.registry.iter().flat_map(registry));
    }
    findings
}

/// How it is with the registry that several proxies share.
fn registry(registry: &RegistryStatus) -> Vec<Finding> {
    let (subject, look) = ("registry", "sudo ropewalk fleet");
    let mut findings = vec![match (registry.away_s, &registry.away_why) {
        (Some(away), why) => {
            let why = why.as_deref().unwrap_or("no reason is known");
            Finding::fail("registry.away", subject, format!("away for {away} s: {why}"), look)
        }
        (None, _) if !registry.begun => {
            let found = "it was not read since the proxy's start";
            Finding::fail("registry.away", subject, found.to_owned(), look)
        }
        (None, _) => {
            let found = format!(
                "the fleet {} has {} clients and {} proxies",
                registry.fleet, registry.clients, registry.proxies
            );
            Finding::ok("registry", subject, found)
        }
    }];
    if !registry.begun {
        findings.push(match registry.copy_age_s {
            Some(age) => {
                let (clients, minutes) = (registry.clients, age / 60);
                let found = format!(
                    "{clients} clients are served from the copy on this proxy's disk, which is {minutes} min old: who joined \
                     since is not known, and who was removed since is let in"
                );
                Finding::warn("registry.copy", subject, found, look)
            }
            None => {
                let found = "this proxy's disk has no copy that can be used: no client is known, and the log says why";
                Finding::fail("registry.copy", subject, found.to_owned(), "sudo ropewalk logs proxy")
            }
        });
    }
    if registry.draining {
        let found = "this proxy drains: no session begins here".to_owned();
        findings.push(Finding::note("registry.drains", subject, found));
    }
    for (key, why) in &registry.foreign {
        let found = format!("{key} is not read: {why}");
        findings.push(Finding::warn("registry.foreign", subject, found, look).advise(
            "if another program put it there, delete it (`etcdctl del`), or have that program or this fleet use another prefix:",
        ));
    }
    findings
}

fn tunnel_of(tunnel: &ropewalk_control::api::TunnelStatus, reached: bool) -> Vec<Finding> {
    let subject = "tunnel";
    let reason = tunnel.reason.as_deref().unwrap_or("no reason is known");
    let mut findings = vec![match tunnel.state {
        TunnelState::Up => Finding::ok("tunnel", subject, format!("up with {}", tunnel.peer)),
        state if reached => Finding::fail(
            "tunnel.unknown-key",
            subject,
            format!("{state}: {reason}. The proxy answers strangers, and not this client: it may not know its key"),
            "sudo ropewalk peer list",
        )
        .or("sudo ropewalk peer add NAME")
        .at_proxy()
        .advise("is this client there? If not, invite it, and `ropewalk join --replace` here:"),
        state => Finding::fail("tunnel.down", subject, format!("{state}: {reason}"), "sudo ropewalk status"),
    }];
    let down = tunnel
        .links
        .iter()
        .filter(|link| matches!(link.state, LinkState::Down | LinkState::Suspect));
    findings.extend(down.map(|link| {
        let reason = link.reason.as_deref().unwrap_or("no reason is known");
        let found = format!("{}: {reason}", link.state);
        let command = match &link.interface {
            Some(interface) => format!("ip address show dev {interface}"),
            None => "sudo ropewalk status".to_owned(),
        };
        Finding::warn("tunnel.link", &*link.name, found, command)
    }));
    if let Some(mtu) = tunnel.inner_mtu.filter(|mtu| *mtu < 1280) {
        let found = format!(
            "packets of {mtu} bytes fit through the links; IPv6 packets go in two parts, which costs"
        );
        findings.push(Finding::note("tunnel.mtu", subject, found));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn report(state: &str, version: &str) -> Answer {
        let none = serde_json::json!({"rate_bps": 0.0, "packets": 0, "bytes": 0});
        let document = serde_json::json!({
            "version": 1,
            "daemon": {"role": "client", "program_version": version, "pid": 1, "uptime_s": 1.0, "warnings": ["look"]},
            "tunnels": [{
                "peer": "vps:51900", "state": state, "state_age_s": 1.0,
                "peer_public_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
                "policy": {"scheduler": "x", "controller": "x", "when_closed": "x"},
                "up": none, "down": none, "queue": {"packets": 0, "bytes": 0},
                "resequencer": {"held": 0, "held_bytes": 0, "in_order": 0, "late": 0, "duplicate": 0,
                    "skipped_by_proof": 0, "skipped_by_deadline": 0, "released_by_full_buffer": 0},
                "links": [],
            }],
        });
        Answer::Status(Box::new(serde_json::from_value(document).unwrap()))
    }

    #[test]
    fn a_daemon_is_judged_by_what_it_says() {
        let judge = |answer: &Answer, reached| {
            let found = judge(Role::Client, answer, "1", reached);
            found.into_iter().map(|one| (one.id, one.level)).collect::<Vec<_>>()
        };
        let warns = ("daemon.warns", Level::Warn);
        let runs = ("daemon", Level::Ok);
        assert_eq!(judge(&report("up", "1"), true), [runs, warns, ("tunnel", Level::Ok)]);
        assert_eq!(
            judge(&report("connecting", "1"), true),
            [runs, warns, ("tunnel.unknown-key", Level::Fail)]
        );
        assert_eq!(
            judge(&report("connecting", "2"), false),
            [("daemon.version", Level::Warn), warns, ("tunnel.down", Level::Fail)]
        );
        assert_eq!(judge(&Answer::NotRunning, false), [("daemon.absent", Level::Note)]);
        assert_eq!(judge(&Answer::Failed("x".into()), false), [("daemon.mute", Level::Warn)]);
    }

    #[test]
    fn a_registry_that_is_away_is_told_with_what_is_served_meanwhile() {
        let read = RegistryStatus { begun: true, clients: 3, ..RegistryStatus::default() };
        let away = RegistryStatus { away_s: Some(60), ..read.clone() };
        let copied = RegistryStatus { begun: false, copy_age_s: Some(7_200), ..away.clone() };
        let empty = RegistryStatus { copy_age_s: None, ..copied.clone() };
        let (is_away, ok) = (("registry.away", Level::Fail), ("registry", Level::Ok));
        for (status, expected) in [
            (read, vec![ok]),
            (away, vec![is_away]),
            (copied.clone(), vec![is_away, ("registry.copy", Level::Warn)]),
            (empty, vec![is_away, ("registry.copy", Level::Fail)]),
        ] {
            let found = registry(&status);
            let found: Vec<_> = found.into_iter().map(|one| (one.id, one.level)).collect();
            assert_eq!(found, expected);
        }
        let told = registry(&copied).remove(1).found;
        assert!(told.contains("3 clients") && told.contains("120 min old"), "{told}");
    }
}
