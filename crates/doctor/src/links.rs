//! Whether there are links at all: interfaces that the config means, each with a way out.

use ropewalk_client::host::{Candidate, NoWay};

use super::finding::Finding;

/// What fixes an interface that is no link now.
fn remedy(interface: &str, why: NoWay) -> (String, &'static str) {
    let up = format!("sudo ip link set dev {interface} up");
    match why {
        NoWay::Missing => ("ip -brief link".to_owned(), "see which interfaces there are:"),
        NoWay::Name => (
            format!("sudo ip link set dev {interface} down name link0 up"),
            "give it a name of letters and digits:",
        ),
        NoWay::Down => (up, ""),
        NoWay::NotMeant => ("sudo ropewalk links".to_owned(), "see which are links now:"),
        NoWay::NoCarrier => {
            (format!("ip link show dev {interface}"), "plug its cable in, or join its network:")
        }
        NoWay::NoAddress => (
            format!("sudo networkctl renew {interface}"),
            "it got no address from its network; ask again (or: sudo dhclient INTERFACE):",
        ),
        NoWay::NoGateway => (
            format!("ip route show default dev {interface}"),
            "no route says where its packets go: name its router as `gateway` of its [[link]], or give it a default route:",
        ),
    }
}

/// Without those that the config switches off.
pub(super) fn judge(candidates: &[Candidate]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = candidates
        .iter()
        .filter_map(|candidate| {
            let why = *candidate.state.as_ref().err()?;
            let (command, advice) = remedy(&candidate.name, why);
            Some(
                Finding::warn("links.none", &*candidate.name, format!("no link: {why}"), command)
                    .advise(advice),
            )
        })
        .collect();
    let usable: Vec<_> = candidates
        .iter()
        .filter(|candidate| candidate.state.is_ok())
        .map(|candidate| candidate.name.as_str())
        .collect();
    findings.push(match usable.as_slice() {
        [] => Finding::fail(
            "links.nothing",
            "links",
            "no interface is a link: none that the config means has an address and a router",
            "ip -brief address; ip route show default",
        )
        .advise("see what there is:"),
        [one] => Finding::note(
            "links.one",
            "links",
            format!("{one} alone: with a second link there is something to bond"),
        ),
        many => Finding::ok("links", "links", format!("{}: {}", many.len(), many.join(", "))),
    });
    findings
}

#[cfg(test)]
mod tests {
    use ropewalk_client::host::Ways;

    use super::*;

    #[test]
    fn interfaces_without_a_way_out_are_told_and_none_at_all_fails() {
        let good = |name: &str| Candidate {
            name: name.into(),
            state: Ok(Ways { index: 1, mtu: 1500, v4: None, v6: None }),
        };
        let bad = |why| Candidate { name: "wan1".into(), state: Err(why) };
        let table = [
            (vec![good("a"), good("b")], vec!["links"]),
            (vec![good("a")], vec!["links.one"]),
            (vec![good("a"), bad(NoWay::Down)], vec!["links.none", "links.one"]),
            (vec![bad(NoWay::NoGateway)], vec!["links.none", "links.nothing"]),
            (vec![], vec!["links.nothing"]),
        ];
        for (candidates, ids) in table {
            let found: Vec<_> = judge(&candidates).into_iter().map(|one| one.id).collect();
            assert_eq!(found, ids);
        }
        for why in [NoWay::Missing, NoWay::Name, NoWay::Down, NoWay::NoCarrier, NoWay::NoAddress] {
            assert!(!judge(&[bad(why)])[0].commands[0].is_empty());
        }
        assert_eq!(judge(&[bad(NoWay::Down)])[0].commands, ["sudo ip link set dev wan1 up"]);
    }
}
