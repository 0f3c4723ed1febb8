//! Whether the proxy's ports are its own, and whether it has what it serves with: uplinks, clients.

use ropewalk_proxy::port::Holder;

use super::finding::Finding;

/// What there is to judge.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The ports, each with who holds it, where no proxy runs.
    pub(super) ports: Vec<(u16, Option<Holder>)>,
    /// Interfaces with a default route.
    pub(super) uplinks: Vec<String>,
    /// Clients that may connect, and open invitations.
    pub(super) clients: usize,
}

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let taken = facts.ports.iter().filter_map(|(port, holder)| {
        let holder = holder.as_ref()?;
        let found = format!("UDP {port} is held by {holder}");
        Some(
            Finding::fail("port.taken", "port", found, format!("sudo kill {}", holder.pid))
                .advise("end that program, or give the proxy another port (`listen`):"),
        )
    });
    let mut findings: Vec<Finding> = taken.collect();
    if findings.is_empty() && !facts.ports.is_empty() {
        let ports: Vec<_> = facts.ports.iter().map(|(port, _)| port.to_string()).collect();
        findings.push(Finding::ok("port", "port", format!("UDP {} is free", ports.join(", "))));
    }
    findings.push(match facts.uplinks.as_slice() {
        [] => Finding::fail(
            "uplinks.none",
            "uplinks",
            "no interface has a default route: packets of clients lead nowhere",
            "ip route show default",
        )
        .advise("see what there is:"),
        names => Finding::ok("uplinks", "uplinks", names.join(", ")),
    });
    if facts.clients == 0 {
        findings.push(Finding::note(
            "clients.none",
            "clients",
            "nobody may connect yet: sudo ropewalk peer add NAME",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_program_holds_is_told_with_its_name() {
        let holder = || Some(Holder { pid: 7, name: "sipd".into() });
        let table = [
            (holder(), vec!["eth0"], 1, vec!["port.taken", "uplinks"]),
            (None, vec!["eth0"], 0, vec!["port", "uplinks", "clients.none"]),
            (None, vec![], 1, vec!["port", "uplinks.none"]),
        ];
        for (holder, uplinks, clients, ids) in table {
            let uplinks = uplinks.into_iter().map(str::to_owned).collect();
            let facts = Facts { ports: vec![(51900, holder)], uplinks, clients };
            let found: Vec<_> = judge(&facts).into_iter().map(|one| one.id).collect();
            assert_eq!(found, ids);
        }
        let facts = Facts { ports: vec![(51900, holder())], ..Facts::default() };
        let finding = &judge(&facts)[0];
        assert_eq!(finding.found, "UDP 51900 is held by sipd (process 7)");
    }
}
