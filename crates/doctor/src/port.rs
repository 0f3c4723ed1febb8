//! Whether the proxy's ports are its own, and whether it has what it serves with: uplinks, clients, a way in where UDP
//! is blocked.

use ropewalk_proxy::port::Holder;

use super::finding::Finding;

/// What there is to judge.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The ports, each with who holds it, where no proxy runs.
    pub(super) ports: Vec<(u16, Option<Holder>)>,
    /// The port for links over TLS, where the config takes them, with who else holds it.
    pub(super) tls: Option<(u16, Option<Holder>)>,
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
    findings.extend(tls(facts));
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

/// Whether clients get in where UDP is blocked.
fn tls(facts: &Facts) -> Option<Finding> {
    match &facts.tls {
        None => Some(Finding::note(
            "tls.off",
            "over TLS",
            "clients in networks that let no UDP through cannot connect: [tls] in the config takes links over TLS, at TCP 443",
        )),
        Some((port, Some(holder))) => {
            let found = format!("TCP {port} is held by {holder}");
            let command = format!("sudo kill {}", holder.pid);
            Some(Finding::fail("tls.taken", "over TLS", found, command).advise(
                "end that program, or give links over TLS another port (`listen` of [tls], `tls_port` of each client):",
            ))
        }
        Some((port, None)) => {
            let found = format!("links over TLS are taken at TCP {port}");
            Some(Finding::ok("tls", "over TLS", found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_program_holds_is_told_with_its_name() {
        let holder = || Some(Holder { pid: 7, name: "sipd".into() });
        let table = [
            (holder(), None, vec!["eth0"], 1, vec!["port.taken", "tls.off", "uplinks"]),
            (
                None,
                Some((443, None)),
                vec!["eth0"],
                0,
                vec!["port", "tls", "uplinks", "clients.none"],
            ),
            (None, Some((443, holder())), vec![], 1, vec!["port", "tls.taken", "uplinks.none"]),
        ];
        for (holder, tls, uplinks, clients, ids) in table {
            let uplinks = uplinks.into_iter().map(str::to_owned).collect();
            let facts = Facts { ports: vec![(51900, holder)], tls, uplinks, clients };
            let found: Vec<_> = judge(&facts).into_iter().map(|one| one.id).collect();
            assert_eq!(found, ids);
        }
        let facts = Facts { ports: vec![(51900, holder())], ..Facts::default() };
        let finding = &judge(&facts)[0];
        assert_eq!(finding.found, "UDP 51900 is held by sipd (process 7)");
    }
}
