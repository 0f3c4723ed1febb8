//! Who holds a port that we cannot have, for the error message.
//!
//! Linux: the port's entry in `/proc/net/udp`, or `tcp`, names a socket by its inode, and some process has a file
//! descriptor of that inode. Only processes that we may look into are found.

use std::fmt;
use std::path::Path;

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

/// The process that has a UDP socket at this port in our network namespace, if it can be found.
#[must_use]
pub fn holder(port: u16) -> Option<Holder> {
    holder_by(["udp", "udp6"], port, None)
}

/// The process that takes TCP connections at this port in our network namespace, if it can be found.
#[must_use]
pub fn tcp_holder(port: u16) -> Option<Holder> {
    holder_by(["tcp", "tcp6"], port, Some(LISTENING))
}

/// The state of a TCP socket that takes connections, as these tables write it (`TCP_LISTEN` of `net/tcp_states.h`).
const LISTENING: &str = "0A";

fn holder_by(tables: [&str; 2], port: u16, state: Option<&str>) -> Option<Holder> {
    let inodes: Vec<String> = tables
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok())
        .flat_map(|table| inodes(&table, port, state))
        .collect();
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

/// The inodes of the sockets at `port`, in this state if one is asked for, in a `/proc/net/udp`.
fn inodes(table: &str, port: u16, state: Option<&str>) -> Vec<String> {
    let at_port = |line: &str| {
        let mut words = line.split_whitespace();
        let (_, found) = words.nth(1)?.rsplit_once(':')?;
        let is = words.nth(1)?;
        let inode = words.nth(5)?;
        let meant = u16::from_str_radix(found, 16).ok()? == port;
        (meant && state.is_none_or(|state| state == is)).then(|| inode.to_owned())
    };
    table.lines().skip(1).filter_map(at_port).collect()
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
        assert_eq!(inodes(table, 0xcabc, None), ["34567"]);
        assert_eq!(inodes(table, 0xcabc, Some("07")), ["34567"]);
        assert!(inodes(table, 0xcabc, Some("0A")).is_empty());
        assert!(inodes(table, 1, None).is_empty());
        assert!(inodes("", 1, None).is_empty());
    }
}
