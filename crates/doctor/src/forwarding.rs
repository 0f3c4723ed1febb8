//! Whether the kernel forwards what it must.

use ropewalk_control::api::Role;
use ropewalk_link_io::sysctl;

use super::finding::Finding;

/// A setting that forwards, such as `net.ipv4.conf.eth0.forwarding`.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// As `sysctl` writes it.
    pub(super) key: String,
    /// Its value; `None`: this kernel has none.
    pub(super) value: Option<u64>,
    /// Whether it is needed.
    pub(super) needed: bool,
}

/// What there is to judge.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) role: Role,
    pub(super) settings: Vec<Setting>,
    /// Interfaces whose hosts a client shares its tunnel with.
    pub(super) shares: bool,
    /// Whether a daemon runs, which has switched on what it needs.
    pub(super) runs: bool,
    /// Whether `/proc/sys` can be written at all.
    pub(super) writable: bool,
}

/// Reads the switch of each family, and those of the interfaces by which packets come in that are to be forwarded: a proxy's
/// uplinks, or what a client shares its tunnel with.
pub(super) fn look(role: Role, runs: bool, ipv6: bool, interfaces: &[String]) -> Facts {
    let read = |key: String, needed| {
        let value = sysctl::read_number(&key.replace('.', "/")).ok().flatten();
        Setting { key, value, needed }
    };
    let shares = role == Role::Client && !interfaces.is_empty();
    let forwards = role == Role::Proxy || shares;
    let mut settings = vec![
        read("net.ipv4.ip_forward".to_owned(), forwards),
        read("net.ipv6.conf.all.forwarding".to_owned(), forwards && ipv6),
    ];
    // A name with a dot is written otherwise; such an interface is rare, and left out.
    for name in interfaces.iter().filter(|name| !name.contains('.')) {
        settings.push(read(format!("net.ipv4.conf.{name}.forwarding"), runs));
    }
    let writable =
        nix::unistd::access("/proc/sys/net/ipv4/ip_forward", nix::unistd::AccessFlags::W_OK);
    Facts { role, settings, shares, runs, writable: writable != Err(nix::errno::Errno::EROFS) }
}

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let subject = "forwarding";
    let is_on = |key: &str| facts.settings.iter().any(|one| one.key == key && one.value == Some(1));
    if facts.role == Role::Client && !facts.shares {
        let found = match (is_on("net.ipv4.ip_forward"), is_on("net.ipv6.conf.all.forwarding")) {
            (false, false) => {
                return vec![Finding::ok(
                    "forwarding",
                    subject,
                    "this machine forwards for nobody",
                )];
            }
            (true, true) => {
                "this machine forwards IPv4 and IPv6: a network behind it is taken into the tunnel"
            }
            (true, false) => {
                "this machine forwards IPv4: a network behind it is taken into the tunnel; IPv6 is not forwarded"
            }
            (false, true) => "this machine forwards IPv6, and no IPv4",
        };
        return vec![Finding::note("forwarding.shares", subject, found)];
    }
    let whose = if facts.shares { "those who share the tunnel" } else { "clients" };
    let off = |one: &&Setting| one.needed && one.value.is_some_and(|value| value == 0);
    let faults: Vec<Finding> = facts
        .settings
        .iter()
        .filter(off)
        .filter(|_| facts.runs || !facts.writable)
        .map(|one| {
            let found = format!("{} is 0: packets of {whose} are dropped", one.key);
            let command = format!("sudo sysctl -w {}=1", one.key);
            let advice = if facts.writable {
                "the daemon had switched it on; something else switches it off:"
            } else {
                "/proc/sys is read-only here: set it on the host of this container:"
            };
            let fault = Finding::fail("forwarding.off", subject, found, command).advise(advice);
            if facts.writable { fault.automatic() } else { fault }
        })
        .collect();
    if !faults.is_empty() {
        return faults;
    }
    let found = match facts.settings.iter().any(|one| off(&one)) {
        true => "off; the daemon switches it on at its start, and off at its end",
        false => "on",
    };
    vec![Finding::ok("forwarding", subject, found)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(role: Role, v4: u64, runs: bool, writable: bool) -> Facts {
        let setting =
            |key: &str, value| Setting { key: key.into(), value: Some(value), needed: true };
        Facts {
            role,
            settings: vec![
                setting("net.ipv4.ip_forward", v4),
                Setting { key: "net.ipv6.conf.all.forwarding".into(), value: None, needed: true },
            ],
            shares: false,
            runs,
            writable,
        }
    }

    #[test]
    fn a_proxy_that_runs_or_cannot_switch_needs_forwarding() {
        let table = [
            (Role::Proxy, 1, true, true, "forwarding"),
            (Role::Proxy, 0, false, true, "forwarding"),
            (Role::Proxy, 0, true, true, "forwarding.off"),
            (Role::Proxy, 0, false, false, "forwarding.off"),
            (Role::Client, 0, true, true, "forwarding"),
            (Role::Client, 1, true, true, "forwarding.shares"),
        ];
        for (role, v4, runs, writable, id) in table {
            assert_eq!(
                judge(&facts(role, v4, runs, writable))[0].id,
                id,
                "{role} {v4} {runs} {writable}"
            );
        }
        let shares = |runs| Facts { shares: true, ..facts(Role::Client, 0, runs, true) };
        assert_eq!(judge(&shares(true))[0].id, "forwarding.off");
        assert_eq!(judge(&shares(false))[0].id, "forwarding");
        let finding = &judge(&facts(Role::Proxy, 0, true, true))[0];
        assert_eq!(finding.commands, ["sudo sysctl -w net.ipv4.ip_forward=1"]);
    }
}
