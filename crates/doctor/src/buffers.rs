//! Whether the kernel gives sockets buffers that hold a burst.

use ropewalk_link_io::sysctl;
use ropewalk_link_io::udp::{RECV_BUFFER, SEND_BUFFER};

use super::finding::Finding;

/// What there is to judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// `net.core.rmem_max` and `net.core.wmem_max`, bytes; unknown inside most namespaces.
    pub(super) receive: Option<u64>,
    pub(super) send: Option<u64>,
    /// Whether the daemon may pass these limits (CAP_NET_ADMIN of the machine itself).
    pub(super) may_pass: bool,
}

pub(super) fn look(may_pass: bool) -> Facts {
    let limit = |key| sysctl::read_number(key).ok().flatten();
    Facts { receive: limit("net/core/rmem_max"), send: limit("net/core/wmem_max"), may_pass }
}

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let subject = "buffers";
    let limits = [
        ("net.core.rmem_max", facts.receive, RECV_BUFFER as u64, "receive"),
        ("net.core.wmem_max", facts.send, SEND_BUFFER as u64, "send"),
    ];
    let mut findings = Vec::new();
    for (key, limit, wanted, what) in limits {
        match limit {
            Some(limit) if limit < wanted && !facts.may_pass => findings.push(
                Finding::warn(
                    "buffers.small",
                    subject,
                    format!("{key} is {limit}, and {what} buffers of {wanted} bytes hold a burst"),
                    format!("sudo sysctl -w {key}={wanted}"),
                )
                .automatic(),
            ),
            _ => {}
        }
    }
    if !findings.is_empty() {
        return findings;
    }
    vec![match (facts.receive, facts.send) {
        (Some(receive), Some(send)) if facts.may_pass => Finding::ok(
            "buffers",
            subject,
            format!(
                "the limits for others are {receive} and {send} bytes; the daemon may pass them"
            ),
        ),
        (Some(receive), Some(send)) => Finding::ok(
            "buffers",
            subject,
            format!("up to {receive} bytes to receive and {send} to send"),
        ),
        _ => Finding::note("buffers.unknown", subject, "the limits cannot be read in here"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_binds_is_told_with_the_command() {
        let (receive, send) = (RECV_BUFFER as u64, SEND_BUFFER as u64);
        let table = [
            (Some(receive), Some(send), false, vec![]),
            (Some(212_992), Some(212_992), true, vec![]),
            (None, None, false, vec![]),
            (Some(212_992), Some(send), false, vec!["sudo sysctl -w net.core.rmem_max=4194304"]),
            (
                Some(1),
                Some(1),
                false,
                vec![
                    "sudo sysctl -w net.core.rmem_max=4194304",
                    "sudo sysctl -w net.core.wmem_max=1048576",
                ],
            ),
        ];
        for (receive, send, may_pass, commands) in table {
            let findings = judge(&Facts { receive, send, may_pass });
            let said: Vec<_> = findings.iter().flat_map(|one| one.commands.clone()).collect();
            assert_eq!(said, commands, "{receive:?} {send:?} {may_pass}");
        }
    }
}
