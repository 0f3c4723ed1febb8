//! Who holds a port: one that we cannot have, for the error message, or one that is to lead to a client.
//!
//! Linux: the port's entry in `/proc/net/udp` or `/proc/net/tcp` names a socket by its inode, and some process has a file
//! descriptor of that inode. Only processes that we may look into are found.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use crate::allow::Transport;

/// A process that holds a port.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// A socket at which a program waits for packets from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Whose port.
    pub transport: Transport,
    /// The port.
    pub port: u16,
    inode: String,
}

impl Listener {
    /// The process that has it, if it can be found.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        holder_of(&[&self.inode])
    }
}

/// The process that has a UDP socket at this port in our network namespace, if it can be found.
#[must_use]
pub fn holder(port: u16) -> Option<Holder> {
    holder_among(sockets(Transport::Udp), port)
}

/// The process that takes TCP connections at this port in our network namespace, if it can be found.
#[must_use]
pub fn tcp_holder(port: u16) -> Option<Holder> {
    let mut sockets = sockets(Transport::Tcp);
    sockets.retain(|socket| socket.state == LISTENS);
    holder_among(sockets, port)
}

fn holder_among(mut sockets: Vec<Socket>, port: u16) -> Option<Holder> {
    sockets.retain(|socket| socket.port == port);
    holder_of(&sockets.iter().map(|socket| socket.inode.as_str()).collect::<Vec<_>>())
}

/// The sockets in our network namespace at which programs wait for packets from outside.
#[must_use]
pub fn listeners() -> Vec<Listener> {
    let of = |transport: Transport| {
        let waiting = sockets(transport).into_iter().filter(move |one| one.waits(transport));
        waiting.map(move |one| Listener { transport, port: one.port, inode: one.inode })
    };
    of(Transport::Tcp).chain(of(Transport::Udp)).collect()
}

fn holder_of(inodes: &[&str]) -> Option<Holder> {
    if inodes.is_empty() {
        return None;
    }
    let sockets: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        has_any(&process.path(), &sockets).then(|| {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            Holder { pid, name: name.trim().to_owned() }
        })
    })
}

fn has_any(process: &Path, sockets: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let target = std::fs::read_link(descriptor.path());
        target
            .is_ok_and(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })
}

/// A socket as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    /// Its state, by the numbers of TCP, which the kernel has for UDP, too.
    state: u8,
    inode: String,
}

/// A socket of TCP that listens, and one of UDP that is connected to nobody (`TCP_LISTEN`, `TCP_CLOSE`,
/// include/net/tcp_states.h).
const LISTENS: u8 = 10;
const IS_UNCONNECTED: u8 = 7;

impl Socket {
    /// Whether packets from outside may begin something there.
    fn waits(&self, transport: Transport) -> bool {
        let state = match transport {
            Transport::Tcp => LISTENS,
            Transport::Udp => IS_UNCONNECTED,
        };
        self.state == state && !self.address.to_canonical().is_loopback()
    }
}

/// All sockets of a protocol in our network namespace.
fn sockets(transport: Transport) -> Vec<Socket> {
    let name = transport.as_str();
    let tables = [name.to_owned(), format!("{name}6")]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok());
    tables.flat_map(|table| parse(&table)).collect()
}

/// The sockets in a `/proc/net/udp` or `/proc/net/tcp`.
fn parse(table: &str) -> Vec<Socket> {
    table.lines().skip(1).filter_map(socket).collect()
}

fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_whitespace();
    let (place, port) = words.nth(1)?.rsplit_once(':')?;
    let state = words.nth(1)?;
    let inode = words.nth(5)?;
    Some(Socket {
        address: address(place)?,
        port: u16::from_str_radix(port, 16).ok()?,
        state: u8::from_str_radix(state, 16).ok()?,
        inode: inode.to_owned(),
    })
}

/// An address as words of four bytes, each written as the number that it is on this machine.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (part, at) in bytes.chunks_exact_mut(4).zip((0..).step_by(8)) {
                part.copy_from_slice(&word(at)?);
            }
            Some(IpAddr::from(bytes))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_port_of_our_own_is_ours() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            let found = holder(socket.local_addr().unwrap().port());
            assert_eq!(found.map(|holder| holder.pid), Some(std::process::id()));
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let found = tcp_holder(at.port());
        assert_eq!(found.map(|holder| holder.pid), Some(std::process::id()));
        let connection = TcpStream::connect(at).unwrap();
        assert_eq!(tcp_holder(connection.local_addr().unwrap().port()), None);
    }

    #[test]
    fn the_table_of_the_kernel_is_read() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n \
            6183: 00000000:CABC 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 34567 2 0000000000000000 0\n \
            6184: 00000000:CABD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 34568 2 0000000000000000 0\n  \
            damaged\n";
        let found: Vec<_> =
            parse(table).into_iter().map(|one| (one.port, one.state, one.inode)).collect();
        let expected = [(0xcabc, 7, "34567".to_owned()), (0xcabd, 7, "34568".to_owned())];
        assert_eq!(found, expected);
        assert!(parse("").is_empty());
    }

    #[test]
    fn only_sockets_that_are_open_to_the_outside_listen() {
        let open = TcpListener::bind("0.0.0.0:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port_of = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let found = listeners();
        let listens = |transport, port| {
            found.iter().find(|one| one.transport == transport && one.port == port)
        };
        let own = listens(Transport::Tcp, port_of(&open)).unwrap();
        assert_eq!(own.holder().map(|holder| holder.pid), Some(std::process::id()));
        assert_eq!(listens(Transport::Tcp, port_of(&closed)), None);
        let udp = datagrams.local_addr().unwrap().port();
        assert!(listens(Transport::Udp, udp).is_some());
    }

    #[test]
    fn an_address_is_read_as_the_kernel_writes_it() {
        // What the kernel writes on a machine whose least byte comes first.
        if cfg!(target_endian = "big") {
            return;
        }
        let mapped = "0000000000000000FFFF00000100007F";
        for (text, expected) in [
            ("0100007F", Some("127.0.0.1")),
            ("0200CB71", Some("113.203.0.2")),
            (mapped, Some("::ffff:127.0.0.1")),
            ("B80D0120000000000000000002000000", Some("2001:db8::2")),
            ("0100007", None),
            ("0100007G", None),
        ] {
            assert_eq!(address(text), expected.map(|text| text.parse().unwrap()), "{text}");
        }
    }
}
