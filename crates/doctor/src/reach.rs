//! Whether the proxy answers over each link, and what is in the way where it does not.

use std::net::SocketAddr;
use std::path::Path;

use ropewalk_client::probe::{Reply, TlsReply, Web};
use ropewalk_control::PROXY_CONFIG;
use ropewalk_settings::DEFAULT_PORT;

use super::finding::Finding;
use super::fix::Change;
use super::quoting;

/// A link, and what was tried over it.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    /// Its name.
    pub(super) link: String,
    /// Its interface.
    pub(super) interface: String,
    /// What came of asking each address.
    pub(super) asked: Vec<(SocketAddr, Reply)>,
    /// What came of asking over TLS, where nothing answers by UDP and it is wanted.
    pub(super) tls: Option<TlsReply>,
    /// What answers at TCP port 80, where nothing else does.
    pub(super) web: Option<Web>,
    /// Strict filtering drops every answer here, as long as no client runs.
    pub(super) is_deaf: bool,
    /// A rule of this machine's firewall drops questions or answers, which is told already.
    pub(super) is_filtered: bool,
}

/// What there is to judge.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    /// The links that have a way out.
    pub(super) links: Vec<Tried>,
    /// Where no link has an answer: addresses of the proxy with the usual ports, and whether it is there.
    pub(super) elsewhere: Vec<(SocketAddr, Reply)>,
    /// Whether the proxy has an address at all, as far as is known.
    pub(super) is_known: bool,
    /// The proxy's key as the config has it.
    pub(super) key: String,
    /// The config.
    pub(super) file: &'a Path,
}

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let any = facts.links.iter().any(Tried::answers);
    let mut findings: Vec<Finding> =
        facts.links.iter().filter_map(|link| of_link(facts, link, any)).collect();
    let elsewhere = |one: &Finding| one.id == "reach.silent" || one.id == "reach.refused";
    if !any && !findings.is_empty() && findings.iter().all(elsewhere) {
        // The same on all links: the reason is not one of them.
        findings.clear();
        findings.push(of_proxy(facts));
    }
    findings
}

impl Tried {
    fn answers(&self) -> bool {
        self.asked.iter().any(|(_, reply)| matches!(reply, Reply::Answer(_)))
    }

    fn has(&self, wanted: &Reply) -> bool {
        self.asked.iter().any(|(_, reply)| reply == wanted)
    }
}

fn of_link(facts: &Facts<'_>, tried: &Tried, any: bool) -> Option<Finding> {
    let link = tried.link.as_str();
    if let Some(finding) = answered(tried) {
        return Some(finding);
    }
    if tried.is_filtered {
        return None;
    }
    let addresses = addresses(&tried.asked);
    if let Some(TlsReply::Answer(time)) = &tried.tls {
        let ms = time.as_secs_f64() * 1e3;
        let found = format!(
            "no answer by UDP at {addresses}, and one over TLS within {ms:.1} ms: this network lets no UDP through, so the link \
             goes over TLS, which is slower where packets are lost"
        );
        return Some(Finding::note("reach.tls", link, found));
    }
    if tried.asked.is_empty() && !tried.is_deaf {
        let found = "the proxy has no address of the family (IPv4, IPv6) that this link has";
        let command = format!("ip -brief address show dev {}", tried.interface);
        return facts.is_known.then(|| {
            Finding::fail("reach.family", link, found, command)
                .advise("add an address of the proxy in that family to `address`, or ask the network for the other family; see what the link has:")
        });
    }
    if tried.is_deaf {
        let found = "not tried: until the client runs, strict filtering drops all answers here";
        return Some(Finding::note("reach.deaf", link, found));
    }
    if let Some(Web::SignIn(page)) = &tried.web {
        let found = format!(
            "no answer at {addresses}: this network wants a sign-in first, perhaps at {page}"
        );
        return Some(
            Finding::fail("portal", link, found, format!("xdg-open {}", quoting::quoted(page)))
                .advise("sign in; the link comes up by itself then:"),
        );
    }
    if tried.has(&Reply::Forbidden) {
        let found = format!("this machine's firewall refuses datagrams to {addresses}");
        return Some(Finding::fail("reach.forbidden", link, found, "sudo nft list ruleset"));
    }
    if tried.asked.iter().all(|(_, reply)| *reply == Reply::NoWay) {
        let found = format!("no way to {addresses}: the network says that it is unreachable");
        let command = format!("ping -c 3 -I {} {}", tried.interface, first_host(&tried.asked));
        return Some(
            Finding::fail("reach.no-way", link, found, command)
                .advise("see how far this link goes:"),
        );
    }
    if let Some(why) = tried.asked.iter().find_map(|(_, reply)| match reply {
        Reply::Failed(why) => Some(why),
        _ => None,
    }) {
        let command = format!("ip address show dev {}", tried.interface);
        return Some(Finding::fail(
            "reach.failed",
            link,
            format!("cannot ask {addresses}: {why}"),
            command,
        ));
    }
    if !any {
        let id = if tried.has(&Reply::Refused) { "reach.refused" } else { "reach.silent" };
        return Some(Finding::fail(
            id,
            link,
            format!("no answer at {addresses}"),
            "sudo ropewalk doctor",
        ));
    }
    let tls = match &tried.tls {
        Some(TlsReply::No(why)) => format!("; over TLS: {why}"),
        Some(TlsReply::Answer(_)) | None => String::new(),
    };
    let found = format!(
        "no answer at {addresses}, while another link has one: this network drops UDP there{tls}"
    );
    let tries_443 = tried.asked.iter().any(|(address, _)| address.port() == 443);
    Some(if tries_443 {
        Finding::failure("reach.blocked", link, found)
            .advise("let the proxy take links over TLS (`[tls]` in its config), which nearly every network lets through; or leave this link out:")
            .edit(facts.file, Change::LeaveOut { interface: tried.interface.clone() })
    } else {
        let open = format!("sudoedit {PROXY_CONFIG}");
        Finding::fail("reach.blocked", link, found, open)
            .or("sudo systemctl restart ropewalk-proxy")
            .at_proxy()
            .advise("let the proxy listen at UDP 443 too, which more networks let through (`more_ports = [443]` on top of its config), and add its address with :443 to `address` here; or take links over TLS (`[tls]` there), which nearly all let through:")
    })
}

/// A link with an answer; other ports of it may have none.
fn answered(tried: &Tried) -> Option<Finding> {
    let (best, time) = tried.asked.iter().find_map(|(address, reply)| match reply {
        Reply::Answer(time) => Some((address, time)),
        _ => None,
    })?;
    let silent: Vec<_> = tried
        .asked
        .iter()
        .filter(|(_, reply)| !matches!(reply, Reply::Answer(_)))
        .cloned()
        .collect();
    let ms = time.as_secs_f64() * 1e3;
    let found = format!("the proxy answers at {best} within {ms:.1} ms");
    Some(if silent.is_empty() {
        Finding::ok("reach", &*tried.link, found)
    } else {
        Finding::note(
            "reach.partly",
            &*tried.link,
            format!("{found}, and not at {}", addresses(&silent)),
        )
    })
}

/// What is the same on all links.
fn of_proxy(facts: &Facts<'_>) -> Finding {
    let subject = "proxy";
    let asked: Vec<_> = facts.links.iter().flat_map(|link| link.asked.iter().cloned()).collect();
    let shown = addresses(&asked);
    let there = facts.elsewhere.iter().find(|(_, reply)| matches!(reply, Reply::Answer(_)));
    if let Some((there, _)) = there {
        let wrong =
            asked.iter().map(|(address, _)| address).find(|address| address.ip() == there.ip());
        let found = format!("no answer at {shown}: the proxy is at UDP {} there", there.port());
        let old = wrong.map_or(DEFAULT_PORT, SocketAddr::port);
        return Finding::failure("reach.port", subject, found)
            .advise("put that port behind the address in the config:")
            .edit(facts.file, Change::Port { old, new: there.port() });
    }
    if asked.iter().any(|(_, reply)| *reply == Reply::Refused) {
        let found = format!("nothing listens at {shown}: no proxy runs there, or at another port");
        return Finding::fail(
            "reach.refused",
            subject,
            found,
            "sudo systemctl start ropewalk-proxy",
        )
        .or("sudo ss -ulpn | grep ropewalk")
        .at_proxy()
        .advise("start it, or see at which port it is:");
    }
    let alive = facts.links.iter().any(|link| matches!(link.web, Some(Web::There)));
    if alive {
        let found = format!(
            "the host is up, but {shown} does not answer to the public key {}: the proxy has another key, or a firewall \
             there drops UDP",
            facts.key
        );
        return Finding::fail("reach.key", subject, found, "sudo ropewalk doctor")
            .at_proxy()
            .advise(format!(
                "it shows the key and judges the firewall; put the key into {} in place of the wrong one:",
                facts.file.display()
            ));
    }
    let found = format!("no answer at {shown}, over any link");
    Finding::fail("reach.silent", subject, found, format!("ping -c 3 {}", first_host(&asked)))
        .advise("is that the proxy's address, and does its machine run?")
}

fn first_host(asked: &[(SocketAddr, Reply)]) -> String {
    asked.first().map_or_else(String::new, |(address, _)| address.ip().to_string())
}

/// Each once, such as "203.0.113.2:51900 or 203.0.113.2:443".
fn addresses(asked: &[(SocketAddr, Reply)]) -> String {
    let mut each: Vec<String> = Vec::new();
    for (address, _) in asked {
        let address = address.to_string();
        if !each.contains(&address) {
            each.push(address);
        }
    }
    each.join(" or ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Fix;

    const ANSWER: Reply = Reply::Answer(Duration::from_millis(12));

    fn link(name: &str, replies: &[(u16, Reply)], web: Option<Web>) -> Tried {
        let at = |port| SocketAddr::new("203.0.113.2".parse().unwrap(), port);
        Tried {
            link: name.into(),
            interface: name.into(),
            asked: replies.iter().map(|(port, reply)| (at(*port), reply.clone())).collect(),
            tls: None,
            web,
            is_deaf: false,
            is_filtered: false,
        }
    }

    fn facts(links: Vec<Tried>) -> Facts<'static> {
        Facts {
            links,
            elsewhere: Vec::new(),
            is_known: true,
            key: "KEY".into(),
            file: Path::new("/c.toml"),
        }
    }

    fn ids(facts: &Facts<'_>) -> Vec<(&'static str, String)> {
        judge(facts).into_iter().map(|one| (one.id, one.subject)).collect()
    }

    #[test]
    fn each_link_says_what_is_in_its_way() {
        let good = || link("wan0", &[(51900, ANSWER)], None);
        let page = Web::SignIn("http://192.168.1.1/login".into());
        let table = [
            (link("wan1", &[(51900, ANSWER)], None), "reach"),
            (link("wan1", &[(51900, Reply::Silence), (443, ANSWER)], None), "reach.partly"),
            (link("wan1", &[(51900, Reply::Silence)], Some(Web::There)), "reach.blocked"),
            (
                link("wan1", &[(51900, Reply::Silence), (443, Reply::Silence)], None),
                "reach.blocked",
            ),
            (link("wan1", &[(51900, Reply::Silence)], Some(page)), "portal"),
            (
                Tried {
                    tls: Some(TlsReply::Answer(Duration::from_millis(30))),
                    ..link("wan1", &[(51900, Reply::Silence)], Some(Web::There))
                },
                "reach.tls",
            ),
            (
                Tried {
                    tls: Some(TlsReply::No("TCP 203.0.113.2:443 refuses".into())),
                    ..link("wan1", &[(51900, Reply::Silence)], Some(Web::There))
                },
                "reach.blocked",
            ),
            (link("wan1", &[(51900, Reply::Forbidden)], None), "reach.forbidden"),
            (link("wan1", &[(51900, Reply::NoWay)], None), "reach.no-way"),
            (link("wan1", &[], None), "reach.family"),
            (link("wan1", &[(51900, Reply::Failed("x".into()))], None), "reach.failed"),
            (
                Tried { is_deaf: true, ..link("wan1", &[(51900, Reply::Silence)], None) },
                "reach.deaf",
            ),
        ];
        for (second, id) in table {
            let found = ids(&facts(vec![good(), second]));
            assert_eq!(found, [("reach", "wan0".to_owned()), (id, "wan1".to_owned())]);
        }
        let ports = link("wan1", &[(51900, Reply::Silence)], None);
        let finding = judge(&facts(vec![good(), ports])).remove(1);
        assert!(finding.at_proxy && finding.advice.contains("more_ports = [443]"), "{finding:?}");
    }

    #[test]
    fn a_key_that_no_proxy_answers_to_is_told_with_where_it_was_tried() {
        let asked = [(51900, Reply::Silence), (443, Reply::Silence)];
        let told = judge(&facts(vec![link("wan0", &asked, Some(Web::There))])).remove(0).found;
        let expected = "203.0.113.2:51900 or 203.0.113.2:443 does not answer to the public key KEY: the proxy has another key";
        assert!(told.contains(expected), "{told}");
    }

    #[test]
    fn what_is_the_same_on_all_links_is_told_of_the_proxy() {
        let silent = |web| link("wan0", &[(51999, Reply::Silence)], web);
        let refused = link("wan0", &[(51999, Reply::Refused)], None);
        let table = [
            (silent(None), "reach.silent", "ping -c 3 203.0.113.2"),
            (silent(Some(Web::There)), "reach.key", "sudo ropewalk doctor"),
            (refused.clone(), "reach.refused", "sudo systemctl start ropewalk-proxy"),
        ];
        for (tried, id, command) in table {
            let findings =
                judge(&facts(vec![tried.clone(), Tried { link: "wan1".into(), ..tried }]));
            assert_eq!((findings.len(), findings[0].id), (1, id));
            assert_eq!(findings[0].commands[0], command);
        }
        let elsewhere = vec![("203.0.113.2:51900".parse().unwrap(), ANSWER)];
        let finding = judge(&Facts { elsewhere, ..facts(vec![refused]) }).remove(0);
        assert_eq!(finding.id, "reach.port");
        assert_eq!(finding.commands, ["sudo ropewalk doctor --fix --config /c.toml"]);
        let change = Change::Port { old: 51999, new: 51900 };
        assert_eq!(finding.fix, Some(Fix::Edit { file: "/c.toml".into(), change }));
        let unknown = Facts { is_known: false, ..facts(vec![link("wan0", &[], None)]) };
        assert!(judge(&unknown).is_empty(), "that is told of its name");
        let filtered = Tried { is_filtered: true, ..silent(None) };
        assert!(judge(&facts(vec![filtered])).is_empty(), "the firewall's rule is told");
    }
}
