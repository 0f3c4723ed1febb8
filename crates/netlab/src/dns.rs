//! A small name server that knows one name (RFC 1035 over UDP), and remembers who asked.
//!
//! What is no single question is not answered. Never to be exposed.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::LabError;

/// Bytes of the longest question over UDP without extensions (RFC 1035 section 2.3.4).
const MAX_QUESTION: usize = 512;
/// Bytes of a message's header.
const HEADER: usize = 12;
/// How long the thread may take to see that it is over.
const POLL: Duration = Duration::from_millis(100);
/// Seconds for which an answer may be kept: none, so that every look-up is seen.
const TTL: u32 = 0;
/// The class of the Internet.
const CLASS_IN: u16 = 1;

/// The type of an IPv4 address.
pub const TYPE_A: u16 = 1;
/// The type of an IPv6 address.
pub const TYPE_AAAA: u16 = 28;

/// A question that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who asked.
    pub from: SocketAddr,
    /// For what, such as [`TYPE_A`].
    pub kind: u16,
}

/// A running name server; dropped, it ends.
#[derive(Debug)]
pub struct NameServer {
    addresses: Arc<Mutex<Vec<IpAddr>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Answers at `socket` (made in the namespace it is for): `name` has these addresses, and there is no
    /// other name.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn serve(socket: UdpSocket, name: &str, addresses: Vec<IpAddr>) -> Result<Self, LabError> {
        let failed = LabError::io("the name server's socket");
        socket.set_read_timeout(Some(POLL)).map_err(failed)?;
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let over = Arc::<AtomicBool>::default();
        let addresses = Arc::new(Mutex::new(addresses));
        let (log, end, name) = (Arc::clone(&asked), Arc::clone(&over), name.to_owned());
        let known = Arc::clone(&addresses);
        let thread = thread::Builder::new()
            .name("name server".to_owned())
            .spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    // Nothing came, or the kernel tells of an answer that nobody took.
                    let Ok((question, from)) = receive(&socket) else { continue };
                    let answered = answer(&question, &name, &lock(&known));
                    let Some((kind, answer)) = answered else {
                        continue;
                    };
                    lock(&log).push(Asked { from, kind });
                    // Who gets no answer asks again.
                    let _ = socket.send_to(&answer, from);
                }
            })
            .map_err(LabError::io("starting a thread"))?;
        Ok(Self { addresses, asked, over, thread: Some(thread) })
    }

    /// The name has these addresses from now on.
    pub fn set_addresses(&self, addresses: Vec<IpAddr>) {
        *lock(&self.addresses) = addresses;
    }

    /// All questions until now.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn receive(socket: &UdpSocket) -> io::Result<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; MAX_QUESTION];
    let (length, from) = socket.recv_from(&mut buffer)?;
    Ok((buffer[..length].to_vec(), from))
}

/// What was asked for, and the answer; `None` for what is no single question.
fn answer(message: &[u8], name: &str, addresses: &[IpAddr]) -> Option<(u16, Vec<u8>)> {
    let header = message.get(..HEADER)?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_question = header[2] & 0x80 == 0;
    if !is_question || number(4) != 1 {
        return None;
    }
    let (asked, end) = read_name(message)?;
    let rest = message.get(end..end + 4)?;
    let (kind, class) =
        (u16::from_be_bytes([rest[0], rest[1]]), u16::from_be_bytes([rest[2], rest[3]]));
    let is_ours = asked.eq_ignore_ascii_case(name) && class == CLASS_IN;
    let mut records = Vec::new();
    let mut count: u16 = 0;
    for address in addresses.iter().filter(|_| is_ours) {
        let data = match (kind, address) {
            (TYPE_A, IpAddr::V4(address)) => address.octets().to_vec(),
            (TYPE_AAAA, IpAddr::V6(address)) => address.octets().to_vec(),
            _ => continue,
        };
        count += 1;
        // The name is that of the question.
        records.extend([0xc0, u8::try_from(HEADER).ok()?]);
        records.extend(kind.to_be_bytes());
        records.extend(CLASS_IN.to_be_bytes());
        records.extend(TTL.to_be_bytes());
        records.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        records.extend(data);
    }
    let no_such_name = if is_ours { 0 } else { 3 };
    let mut answer = header[..2].to_vec();
    // An answer, with authority, recursion as wished and available.
    answer.extend([0x84 | (header[2] & 1), 0x80 | no_such_name]);
    answer.extend([0, 1]);
    answer.extend(count.to_be_bytes());
    answer.extend([0; 4]);
    answer.extend(&message[HEADER..end + 4]);
    answer.extend(records);
    Some((kind, answer))
}

/// The name of the first question, and where it ends.
fn read_name(message: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels.join("."), at)),
            1..=63 => {
                let label = message.get(at..at + length)?;
                labels.push(String::from_utf8_lossy(label).into_owned());
                at += length;
            }
            // A pointer: no question needs one.
            _ => return None,
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A list is whole after a panic elsewhere.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        message
    }

    #[test]
    fn the_one_name_has_its_addresses_by_type_and_no_other_exists() {
        let addresses: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        for (name, kind, records, data, code) in [
            ("proxy.lab", TYPE_A, 1, 4, 0),
            ("PROXY.lab", TYPE_AAAA, 1, 16, 0),
            ("proxy.lab", 16, 0, 0, 0),
            ("other.lab", TYPE_A, 0, 0, 3),
        ] {
            let asked = question(name, kind);
            let (seen, answer) = answer(&asked, "proxy.lab", &addresses).unwrap();
            assert_eq!(seen, kind);
            assert_eq!(answer[..4], [0xab, 0xcd, 0x85, 0x80 | code], "{name} {kind}");
            assert_eq!(answer[4..12], [0, 1, 0, records, 0, 0, 0, 0], "{name} {kind}");
            let record = if records == 0 { 0 } else { 12 + data };
            assert_eq!(answer.len(), asked.len() + record, "{name} {kind}");
        }
    }

    #[test]
    fn what_is_no_question_gets_no_answer() {
        let whole = question("proxy.lab", TYPE_A);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], "proxy.lab", &[]), None, "{length}");
        }
        let mut reply = whole.clone();
        reply[2] |= 0x80;
        let mut pointer = whole;
        pointer[HEADER] = 0xc0;
        for message in [reply, pointer] {
            assert_eq!(answer(&message, "proxy.lab", &[]), None);
        }
    }
}
