//! Whether another program serves at an interface already.
//!
//! `dnsmasq` itself would not always say so: two of them can have one port, and then devices are told different things.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::lan::Lan;

/// Where addresses are asked for (RFC 2131 §4.1), and names (RFC 1035 §4.2).
const DHCP: u16 = 67;
const DNS: u16 = 53;

/// What is in the way of serving there, for people; `None`: nothing.
pub(super) fn taken(lan: &Lan) -> Option<String> {
    let own = IpAddr::V4(lan.own.addr());
    let asked = [
        (Protocol::UDP, IpAddr::V4(Ipv4Addr::UNSPECIFIED), DHCP, "hands out addresses"),
        (Protocol::UDP, own, DNS, "answers names"),
        (Protocol::TCP, own, DNS, "answers names"),
    ];
    let is_taken = |(protocol, ip, port, _): &(Protocol, IpAddr, u16, &str)| {
        is_taken(&lan.interface, *protocol, SocketAddr::new(*ip, *port))
    };
    let (protocol, _, port, does) = asked.into_iter().find(is_taken)?;
    let (name, letter) = if protocol == Protocol::TCP { ("TCP", 't') } else { ("UDP", 'u') };
    Some(format!(
        "another program {does} there: it has {name} port {port} (`sudo ss -{letter}lpn sport = {port}` shows it); stop it, or \
         write dhcp = false"
    ))
}

/// Whether a program has this port at the interface, whether it shares it or not. What cannot be found out is not.
fn is_taken(interface: &str, protocol: Protocol, address: SocketAddr) -> bool {
    let kind = if protocol == Protocol::TCP { Type::STREAM } else { Type::DGRAM };
    let bind = || {
        let socket = Socket::new(Domain::IPV4, kind, Some(protocol))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        // Connections of one that ended are in nobody's way; of one that listens it makes no difference.
        socket.set_reuse_address(protocol == Protocol::TCP)?;
        socket.bind(&address.into())
    };
    bind().is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::household::lan::testing::lan;
    use ropewalk_link_io::host::testing::Namespace;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn a_port_is_taken_by_who_has_it_there_or_everywhere_and_by_nobody_elsewhere() {
        let Some(namespace) = Namespace::open() else { return };
        namespace.sh(
            "ip link add lan0 type veth peer name far0; ip link set far0 up; ip link set lan0 up
             ip link add lan1 type veth peer name far1; ip link set far1 up; ip link set lan1 up
             ip addr add 192.168.77.1/24 dev lan0; ip addr add 192.168.78.1/24 dev lan1",
        );
        let found = namespace.run(|| {
            let free = taken(&lan());
            let everywhere = UdpSocket::bind("0.0.0.0:67").unwrap();
            let by_dhcp = taken(&lan());
            drop(everywhere);
            let other = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            other.bind_device(Some(b"lan1")).unwrap();
            other.bind(&SocketAddr::from(([0; 4], 67)).into()).unwrap();
            let elsewhere = taken(&lan());
            let names = TcpListener::bind("192.168.77.1:53").unwrap();
            let by_names = taken(&lan());
            drop(names);
            [free, by_dhcp, elsewhere, by_names]
        });
        assert_eq!((&found[0], &found[2]), (&None, &None));
        let by_dhcp = found[1].as_deref().unwrap();
        assert!(by_dhcp.contains("hands out addresses there: it has UDP port 67"), "{by_dhcp}");
        let by_names = found[3].as_deref().unwrap();
        assert!(by_names.contains("answers names there: it has TCP port 53"), "{by_names}");
    }
}
