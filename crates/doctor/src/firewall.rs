//! Whether `nft` is there and may be used, and whether rules of others drop what the tunnel needs.

mod ruleset;

use std::collections::BTreeMap;

use ropewalk_control::api::Role;
use ropewalk_link_io::nft::NftError;

use ruleset::{Drop, Verdict};
pub(super) use ruleset::{Flow, Hook, Ruleset, State, Transport};

use super::finding::Finding;

/// What `nft` said.
#[derive(Debug)]
pub(super) enum Nft {
    /// All rules.
    Rules(Ruleset),
    /// It works, and its list cannot be understood: rules that this version cannot print, say.
    Opaque(String),
    Missing,
    Denied,
    Broken(String),
}

impl Nft {
    pub(super) fn of(listed: Result<String, NftError>) -> Self {
        match listed {
            Ok(text) => Ruleset::parse(&text).map_or_else(Self::Opaque, Self::Rules),
            Err(NftError::Missing { .. }) => Self::Missing,
            Err(NftError::Permission { .. }) => Self::Denied,
            Err(error) => Self::Broken(error.to_string()),
        }
    }

    /// Whether rules can be set.
    pub(super) fn works(&self) -> bool {
        matches!(self, Self::Rules(_) | Self::Opaque(_))
    }
}

/// Whether it is there.
pub(super) fn judge_nft(role: Role, nft: &Nft) -> Finding {
    let subject = "nft";
    match nft {
        Nft::Rules(_) => Finding::ok("nft", subject, "it is there and may be used"),
        Nft::Opaque(why) => Finding::note(
            "nft.opaque",
            subject,
            format!(
                "it works, and its list of rules is not understood ({why}): other firewalls are not judged"
            ),
        ),
        Nft::Missing => {
            let install = "sudo apt install nftables";
            match role {
                Role::Proxy => Finding::fail(
                    "nft.missing",
                    subject,
                    "the program nft was not found: the proxy cannot translate addresses",
                    install,
                ),
                Role::Client => Finding::warn(
                    "nft.missing",
                    subject,
                    "the program nft was not found: no marks and no firewall rules can be set",
                    install,
                ),
            }
            .advise("the package is called nftables on Fedora and Arch, too:")
        }
        Nft::Denied => Finding::note(
            "nft.denied",
            subject,
            "without CAP_NET_ADMIN the firewall cannot be seen: sudo ropewalk doctor",
        ),
        Nft::Broken(why) => {
            Finding::fail("nft.broken", subject, why.clone(), "sudo nft list ruleset")
                .or("sudo modprobe nf_tables")
                .advise("see what it says; a kernel without nf_tables needs the module:")
        }
    }
}

/// A flow that must pass, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Needed {
    /// A link, or a part of the proxy.
    pub(super) subject: String,
    /// What is dropped, in words.
    pub(super) what: String,
    /// Its packets.
    pub(super) flow: Flow,
}

/// Which rules of others drop what is needed: each is told once, with all that it drops.
pub(super) fn judge_rules(rules: &Ruleset, needed: &[Needed]) -> Vec<Finding> {
    let mut drops: BTreeMap<Drop, Vec<&Needed>> = BTreeMap::new();
    for one in needed {
        for verdict in rules.judge(&one.flow) {
            if let Verdict::Drops(place) = verdict {
                drops.entry(place).or_default().push(one);
            }
        }
    }
    let mut findings: Vec<Finding> =
        drops.iter().map(|(place, dropped)| told(place, dropped)).collect();
    if findings.is_empty() && !needed.is_empty() {
        findings.push(Finding::ok(
            "firewall",
            "firewall",
            "no rule of others drops the tunnel's packets",
        ));
    }
    findings
}

fn told(place: &Drop, dropped: &[&Needed]) -> Finding {
    let [first, ..] = dropped else {
        return Finding::ok("firewall", "firewall", "nothing is dropped");
    };
    let mut subjects: Vec<&str> = dropped.iter().map(|one| one.subject.as_str()).collect();
    subjects.dedup();
    let Drop { family, table, chain, handle, .. } = place;
    let at = format!("{family} {table} {chain}");
    let what = &first.what;
    let subject = subjects.join(", ");
    match handle {
        Some(handle) => Finding::fail(
            "firewall.rule",
            subject,
            format!("a rule in the chain {at} drops {what}"),
            format!("sudo nft delete rule {at} handle {handle}"),
        )
        .advise("if that is your own firewall's, change it there; at once:")
        .automatic(),
        None => {
            let finding = |command: String| {
                Finding::fail(
                    "firewall.policy",
                    &*subject,
                    format!("the chain {at} drops what no rule allows, and none allows {what}"),
                    command,
                )
            };
            let mut commands = allow(place, &first.flow).into_iter();
            match commands.next() {
                Some(first) => {
                    commands.fold(finding(first), Finding::or).advise("allow it:").automatic()
                }
                None => finding("sudo nft list ruleset".to_owned()).advise("allow it:"),
            }
        }
    }
}

/// The commands that allow a flow in a chain whose policy is to drop, in the words of the firewall that made the chain.
fn allow(place: &Drop, flow: &Flow) -> Vec<String> {
    let Drop { family, table, chain, .. } = place;
    let (port, protocol) = (flow.destination_port, flow.transport.as_str());
    let tun = flow.tun.as_deref();
    if chain.starts_with("ufw") || place.is_ufw {
        if let Some(tun) = tun {
            return ["in", "out"].map(|way| format!("sudo ufw route allow {way} on {tun}")).into();
        }
        return port.map(|port| format!("sudo ufw allow {port}/{protocol}")).into_iter().collect();
    }
    if let (Some(tun), true) = (tun, place.is_docker) {
        return ["-i", "-o"]
            .map(|way| format!("sudo iptables -I DOCKER-USER {way} {tun} -j ACCEPT"))
            .into();
    }
    if let Some(tun) = tun {
        return ["iifname", "oifname"]
            .map(|way| format!("sudo nft insert rule {family} {table} {chain} {way} {tun} accept"))
            .into();
    }
    let matched = match (flow.hook, port, flow.source_port) {
        (Hook::Input, _, Some(port)) => format!("{protocol} sport {port}"),
        (_, Some(port), _) => format!("{protocol} dport {port}"),
        (_, None, Some(port)) => format!("{protocol} sport {port}"),
        _ => return Vec::new(),
    };
    vec![format!("sudo nft insert rule {family} {table} {chain} {matched} accept")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(chains: &str) -> Ruleset {
        Ruleset::parse(&format!("{{\"nftables\": [{chains}]}}")).unwrap()
    }

    const INPUT: &str = r#"{"chain": {"family": "inet", "table": "mine", "name": "in", "handle": 1,
        "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}"#;
    const FORWARD: &str = r#"{"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 1,
        "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}"#;

    fn listens(subject: &str) -> Needed {
        let flow = Flow { destination_port: Some(51900), ..Flow::new(Hook::Input) };
        Needed { subject: subject.into(), what: "datagrams to UDP 51900".into(), flow }
    }

    fn over_tls() -> Needed {
        let flow = Flow {
            transport: Transport::Tcp,
            destination_port: Some(443),
            ..Flow::new(Hook::Input)
        };
        Needed { subject: "clients".into(), what: "connections to TCP 443".into(), flow }
    }

    fn forwards() -> Needed {
        let flow = Flow {
            tun: Some("rope0".into()),
            input: Some("rope0".into()),
            ..Flow::new(Hook::Forward)
        };
        Needed { subject: "clients".into(), what: "packets of clients".into(), flow }
    }

    #[test]
    fn a_rule_or_a_policy_that_drops_is_told_once_with_what_allows_the_flow() {
        let drop = r#"{"rule": {"family": "inet", "table": "mine", "chain": "in", "handle": 7, "expr": [
            {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 51900}},
            {"drop": null}]}}"#;
        let docker =
            r#"{"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER", "handle": 2}}"#;
        let ufw = r#"{"chain": {"family": "ip", "table": "filter", "name": "ufw-user-forward", "handle": 2}}"#;
        let accepts = INPUT.replace("\"policy\": \"drop\"", "\"policy\": \"accept\"");
        let table = [
            (rules(&accepts), listens("a"), None, ""),
            (
                rules(&format!("{accepts}, {drop}")),
                listens("a"),
                Some("firewall.rule"),
                "sudo nft delete rule inet mine in handle 7",
            ),
            (
                rules(INPUT),
                listens("a"),
                Some("firewall.policy"),
                "sudo nft insert rule inet mine in udp dport 51900 accept",
            ),
            (rules(&format!("{accepts}, {drop}")), over_tls(), None, ""),
            (
                rules(INPUT),
                over_tls(),
                Some("firewall.policy"),
                "sudo nft insert rule inet mine in tcp dport 443 accept",
            ),
            (
                rules(FORWARD),
                forwards(),
                Some("firewall.policy"),
                "sudo nft insert rule ip filter FORWARD iifname rope0 accept",
            ),
            (
                rules(&format!("{FORWARD}, {docker}")),
                forwards(),
                Some("firewall.policy"),
                "sudo iptables -I DOCKER-USER -i rope0 -j ACCEPT",
            ),
            (
                rules(&format!("{FORWARD}, {ufw}")),
                forwards(),
                Some("firewall.policy"),
                "sudo ufw route allow in on rope0",
            ),
        ];
        for (rules, needed, id, command) in table {
            let findings = judge_rules(&rules, &[needed]);
            let fault = findings.first().filter(|one| one.id != "firewall");
            assert_eq!(fault.map(|one| one.id), id, "{command}");
            if let Some(fault) = fault {
                assert_eq!(fault.commands[0], command);
            }
        }
        let both = judge_rules(&rules(INPUT), &[listens("a"), listens("b")]);
        assert_eq!((both.len(), both[0].subject.as_str()), (1, "a, b"));
    }

    #[test]
    fn without_nft_a_proxy_fails_and_a_client_is_warned() {
        use crate::Level;
        let table = [
            (Role::Proxy, Nft::Missing, Level::Fail),
            (Role::Client, Nft::Missing, Level::Warn),
            (Role::Client, Nft::Denied, Level::Note),
            (Role::Client, Nft::Opaque("x".into()), Level::Note),
            (Role::Proxy, Nft::Broken("x".into()), Level::Fail),
            (Role::Proxy, Nft::Rules(rules(INPUT)), Level::Ok),
        ];
        for (role, nft, level) in table {
            assert_eq!(judge_nft(role, &nft).level, level, "{nft:?}");
        }
    }
}
