//! Whether the ports that a proxy forwards lead to their clients, and what else on its host wants them.

use ropewalk_control::api::{ForwardState, ForwardStatus};
use ropewalk_proxy::forward::conflicts::Conflict;

use super::finding::Finding;

/// What there is to judge.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The forwards of the config, each in words.
    pub(super) configured: Vec<String>,
    /// What else on this host wants their ports.
    pub(super) conflicts: Vec<Conflict>,
    /// How it is with them, where the proxy runs.
    pub(super) seen: Vec<ForwardStatus>,
}

const SUBJECT: &str = "forward";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    if facts.configured.is_empty() {
        return Vec::new();
    }
    let conflicts = facts.conflicts.iter().map(|conflict| match conflict {
        Conflict::Listener { port, .. } => Finding::warn(
            "forward.taken",
            SUBJECT,
            conflict.to_string(),
            format!("sudo ss -lntup sport = :{port}"),
        )
        .advise("see what it is:"),
        Conflict::Ephemeral { .. } => {
            Finding::note("forward.ephemeral", SUBJECT, conflict.to_string())
        }
    });
    let mut findings: Vec<Finding> = conflicts.collect();
    findings.extend(facts.seen.iter().filter_map(unled));
    if findings.is_empty() {
        findings.push(Finding::ok("forward", SUBJECT, facts.configured.join("; ")));
    }
    findings
}

/// A port that does not lead to its client.
fn unled(forward: &ForwardStatus) -> Option<Finding> {
    let why = forward.reason.as_deref().unwrap_or("nobody knows why");
    let (protocol, port) = (forward.protocol.in_words(), forward.port);
    match forward.state {
        ForwardState::Active => None,
        ForwardState::Away => {
            let found = format!("{protocol} {port} leads to nobody at present: {why}");
            Some(Finding::note("forward.away", SUBJECT, found))
        }
        ForwardState::Waiting => {
            let found = format!("{protocol} {port} waits for its client: {why}");
            Some(Finding::note("forward.waiting", SUBJECT, found))
        }
        ForwardState::Refused => {
            let found = format!("{protocol} {port} leads nowhere: {why}");
            Some(Finding::warn("forward.refused", SUBJECT, found, "sudo ropewalk forward"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::{ForwardProtocol, ForwardTraffic};
    use ropewalk_proxy::allow::Transport;
    use ropewalk_settings::{PortRange, Text as _};

    fn seen(state: ForwardState) -> ForwardStatus {
        ForwardStatus {
            protocol: ForwardProtocol::Tcp,
            port: PortRange::from_text("8443").unwrap(),
            to: "laptop".to_owned(),
            to_port: 443,
            from: Vec::new(),
            state,
            reason: Some("as it is".to_owned()),
            inner: Vec::new(),
            notes: Vec::new(),
            traffic: ForwardTraffic::default(),
        }
    }

    #[test]
    fn what_is_in_the_way_of_a_port_and_what_it_waits_for_is_told() {
        let listener = || Conflict::Listener {
            transport: Transport::Tcp,
            port: 8443,
            holder: Some("nginx (process 7)".to_owned()),
        };
        let table = [
            (vec![], vec![], vec!["forward"]),
            (vec![], vec![seen(ForwardState::Active)], vec!["forward"]),
            (vec![listener()], vec![], vec!["forward.taken"]),
            (
                vec![listener()],
                vec![seen(ForwardState::Waiting), seen(ForwardState::Refused)],
                vec!["forward.taken", "forward.waiting", "forward.refused"],
            ),
            (vec![], vec![seen(ForwardState::Away)], vec!["forward.away"]),
        ];
        for (conflicts, seen, expected) in table {
            let configured = vec!["TCP 8443 to laptop port 443".to_owned()];
            let findings = judge(&Facts { configured, conflicts, seen });
            let ids: Vec<_> = findings.iter().map(|finding| finding.id).collect();
            assert_eq!(ids, expected, "{findings:?}");
        }
        let nothing = Facts { conflicts: vec![listener()], ..Facts::default() };
        assert_eq!(judge(&nothing), []);
    }
}
