//! What else on this host wants the ports that lead to clients.
//!
//! A packet's destination is translated before this host looks for a program to hand it to. So where one listens, nobody from
//! outside reaches it any more; and where the system gives ports to programs as it likes, one of them may wait in vain.

use std::fmt;

use ropewalk_settings::{PortRange, Text as _};

use super::Ports;
use crate::allow::Transport;
use crate::config::Forward;

/// Something in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// A program listens at a port.
    Listener {
        /// Whose port.
        transport: Transport,
        /// The port.
        port: u16,
        /// The program, where it could be found.
        holder: Option<String>,
    },
    /// Ports lie in the range from which this host gives ports to its programs.
    Ephemeral {
        /// Whose ports.
        transport: Transport,
        /// The ports.
        ports: PortRange,
        /// The range.
        range: PortRange,
        /// What the setting would be that keeps them out of it.
        reserved: String,
    },
}

impl Conflict {
    /// Whether it is about a port of this forward.
    #[must_use]
    pub fn concerns(&self, forward: &Forward) -> bool {
        match self {
            Self::Listener { transport, port, .. } => forward.has(*transport, *port),
            Self::Ephemeral { transport, ports, .. } => forward.has(*transport, ports.first()),
        }
    }

    /// Whether a program loses what reached it until now.
    #[must_use]
    pub const fn is_listener(&self) -> bool {
        matches!(self, Self::Listener { .. })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener { transport, port, holder } => {
                let holder = holder.as_deref().unwrap_or("a program");
                write!(
                    f,
                    "{holder} of this host listens at {} {port}: from outside that port leads to the client and not to it; \
                     forward another port, or end that program",
                    transport.in_capitals()
                )
            }
            Self::Ephemeral { transport, ports, range, reserved } => write!(
                f,
                "{} {ports} is in the range {range}, from which this host gives ports to its programs: what one of them waits for \
                 there would go to the client; take a port below {}, or keep it free: sysctl -w \
                 net.ipv4.ip_local_reserved_ports={reserved}",
                transport.in_capitals(),
                range.first()
            ),
        }
    }
}

/// What was found on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Ports at which a program waits for packets from outside, each with the program, where it could be found.
    pub listeners: Vec<(Transport, u16, Option<String>)>,
    /// The range from which ports are given to programs.
    pub ephemeral: Option<PortRange>,
    /// Ports that are not given to any.
    pub reserved: Vec<PortRange>,
}

impl Facts {
    /// What the settings `ip_local_port_range` and `ip_local_reserved_ports` say.
    #[must_use]
    pub fn with_settings(mut self, range: Option<&str>, reserved: Option<&str>) -> Self {
        let mut bounds = range.unwrap_or_default().split_whitespace().map(str::parse::<u16>);
        if let (Some(Ok(first)), Some(Ok(last))) = (bounds.next(), bounds.next()) {
            self.ephemeral = PortRange::new(first, last);
        }
        let parts = reserved.unwrap_or_default().split(',');
        self.reserved = parts.filter_map(|part| PortRange::from_text(part).ok()).collect();
        self
    }
}

/// What is in the way of these ports.
#[must_use]
pub fn judge(ports: &Ports, facts: &Facts) -> Vec<Conflict> {
    let listeners = facts.listeners.iter().filter_map(|(transport, port, holder)| {
        let (transport, port, holder) = (*transport, *port, holder.clone());
        ports.have(transport, port).then_some(Conflict::Listener { transport, port, holder })
    });
    let given = ports.iter().filter_map(|(transport, ports)| {
        let range = facts.ephemeral.filter(|range| range.overlaps(ports))?;
        let ends = [ports.first(), ports.last()];
        let is_kept = |kept: &PortRange| ends.iter().all(|end| kept.contains(*end));
        if facts.reserved.iter().any(is_kept) {
            return None;
        }
        let all: Vec<_> = facts.reserved.iter().chain([&ports]).map(ToString::to_string).collect();
        Some(Conflict::Ephemeral { transport, ports, range, reserved: all.join(",") })
    });
    listeners.chain(given).collect()
}

/// What is in the way of these ports on this host. It reads files of the kernel, and so may wait; with `holders` it also looks for
/// the programs, as far as this process may see them.
#[cfg(target_os = "linux")]
#[must_use]
pub fn find(ports: &Ports, holders: bool) -> Vec<Conflict> {
    use ropewalk_link_io::sysctl;

    if ports.is_empty() {
        return Vec::new();
    }
    let listeners = crate::port::listeners()
        .into_iter()
        .filter(|listener| ports.have(listener.transport, listener.port))
        .map(|listener| {
            let holder = if holders { listener.holder() } else { None };
            (listener.transport, listener.port, holder.map(|holder| holder.to_string()))
        })
        .collect();
    let read = |key| sysctl::read(key).ok().flatten();
    let facts = Facts { listeners, ..Facts::default() }.with_settings(
        read("net/ipv4/ip_local_port_range").as_deref(),
        read("net/ipv4/ip_local_reserved_ports").as_deref(),
    );
    judge(ports, &facts)
}

/// The ports of all these forwards.
#[must_use]
pub fn ports(forwards: &[Forward]) -> Ports {
    let mut ports = Ports::default();
    for forward in forwards {
        for transport in forward.transports() {
            ports.add(*transport, forward.ports);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(tcp: &str, udp: &str) -> Ports {
        let list = |text: &str| {
            text.split_whitespace().map(|one| PortRange::from_text(one).unwrap()).collect()
        };
        Ports { tcp: list(tcp), udp: list(udp) }
    }

    #[test]
    fn a_program_that_listens_at_a_port_is_named_and_one_of_the_other_protocol_is_not() {
        let sshd = || Some("sshd (process 7)".to_owned());
        let facts = Facts {
            listeners: vec![(Transport::Tcp, 22, sshd()), (Transport::Udp, 22, None)],
            ..Facts::default()
        };
        let found = judge(&ports("20-30", "53"), &facts);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        let said = one.to_string();
        assert!(said.starts_with("sshd (process 7) of this host listens at TCP 22"), "{said}");
        assert!(one.is_listener());
        assert_eq!(judge(&ports("80", "23"), &facts), []);
    }

    #[test]
    fn ports_that_the_system_gives_to_programs_are_told_unless_they_are_kept_free() {
        let facts = |reserved| Facts::default().with_settings(Some("32768\t60999\n"), reserved);
        let told = |tcp: &str, facts: &Facts| -> Vec<String> {
            judge(&ports(tcp, ""), facts).iter().map(ToString::to_string).collect()
        };
        let said = told("40000-40010", &facts(Some("9000,50000-50010\n")));
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("TCP 40000-40010 is in the range 32768-60999"), "{said:?}");
        let end = "ip_local_reserved_ports=9000,50000-50010,40000-40010";
        assert!(said[0].ends_with(end), "{said:?}");
        for (tcp, reserved) in
            [("8443", None), ("40000-40010", Some("40000-40010")), ("40000", Some("39000-41000\n"))]
        {
            assert!(told(tcp, &facts(reserved)).is_empty(), "{tcp} {reserved:?}");
        }
        // A range that is no range says nothing.
        let broken = Facts::default().with_settings(Some("many"), Some("\n"));
        assert_eq!(broken, Facts::default());
        assert!(told("40000", &broken).is_empty());
    }
}
