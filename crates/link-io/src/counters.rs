//! What the kernel counts on each interface, whoever's packets they are.
//!
//! Read from `/proc/thread-self/net/dev`, which is kept open: one read tells of all interfaces of the network namespace
//! in which it was opened. Netlink's statistics take the kernel's lock of the network configuration, for which a
//! loop that carries packets must not wait, and a question for each interface; `/sys/class/net` shows the
//! namespace of whoever mounted it. An interface that is gone or renamed has no line under its name any more.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Linux's list. The thread's own, for namespaces belong to threads.
const LIST: &str = "/proc/thread-self/net/dev";

/// A longer list is not read: 5,000 interfaces.
const LONGEST: usize = 1 << 20;

/// Bytes read at a time: the kernel gives a page.
const PIECE: usize = 4096;

/// Bytes since the interface was made, with its link-level headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterfaceBytes {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
}

/// Reads the counters of interfaces.
#[derive(Debug)]
pub struct InterfaceCounters {
    list: File,
    text: Vec<u8>,
}

impl InterfaceCounters {
    /// Of the network namespace of this thread.
    ///
    /// # Errors
    /// The system has no such list.
    pub fn open() -> io::Result<Self> {
        Ok(Self { list: File::open(LIST)?, text: Vec::new() })
    }

    /// The counters as they are now, by interface. Memory is kept from one call to the next.
    ///
    /// # Errors
    /// The list cannot be read, or is absurdly long.
    pub fn read(&mut self) -> io::Result<impl Iterator<Item = (&str, InterfaceBytes)>> {
        let mut len = 0;
        loop {
            if len >= LONGEST {
                return Err(io::Error::other("the list of interfaces is too long"));
            }
            self.text.resize(self.text.len().max(len + PIECE), 0);
            match self.list.read_at(&mut self.text[len..], len as u64)? {
                0 => break,
                more => len += more,
            }
        }
        Ok(parse(&self.text[..len]))
    }
}

/// The interfaces of a list; a line that is none is left out.
fn parse(text: &[u8]) -> impl Iterator<Item = (&str, InterfaceBytes)> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(|line| parse_line(str::from_utf8(line).ok()?))
}

/// `name: ` and 16 counters: received bytes first, sent bytes ninth.
fn parse_line(line: &str) -> Option<(&str, InterfaceBytes)> {
    // A name may hold a colon (an alias); a counter does not.
    let (name, counters) = line.rsplit_once(':')?;
    let mut counters = counters.split_ascii_whitespace().map(str::parse);
    let received = counters.next()?.ok()?;
    let sent = counters.nth(7)?.ok()?;
    Some((name.trim_ascii_start(), InterfaceBytes { sent, received }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  1200      10    0    0    0     0          0         0     1200      10    0    0    0     0       0          0
wlan0.7:18446744073709551615 9 0 0 0 0 0 0 7 1 0 0 0 0 0 0
  eth0:5 1 0 0
  tap9: many 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
";

    #[test]
    fn bytes_are_read_by_interface_and_broken_lines_are_left_out() {
        let found: Vec<_> = parse(TEXT.as_bytes()).collect();
        let bytes = |sent, received| InterfaceBytes { sent, received };
        assert_eq!(found, [("lo", bytes(1200, 1200)), ("wlan0.7", bytes(7, u64::MAX))]);
        for cut in 0..TEXT.len() {
            parse(&TEXT.as_bytes()[..cut]).for_each(drop);
        }
        assert_eq!(parse(b"\xff\xfe: 1 2\n:").count(), 0);
    }

    #[test]
    fn this_machines_list_is_read_again_and_again() {
        let mut counters = InterfaceCounters::open().unwrap();
        for _ in 0..3 {
            assert!(counters.read().unwrap().any(|(name, _)| name == "lo"));
        }
    }
}
