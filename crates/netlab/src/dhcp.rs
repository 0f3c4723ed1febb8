//! A device's part of DHCP (RFC 2131), as far as a test needs it: it asks for an address, and is lent one.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::LabError;

/// Where devices and servers listen (RFC 2131 section 4.1).
const DEVICE_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

/// How long an answer is waited for: a server may ask for some seconds whether somebody has the address already.
const ANSWER_TIME: Duration = Duration::from_secs(8);
/// Conversations before it is given up.
const TRIES: u8 = 4;

/// Bytes of a message in front of its options (RFC 2131 section 2), and what these begin with (section 3).
const FIXED: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Bytes of the longest message that fits a packet.
const MAX_LEN: usize = 1500;

/// Operations, and the hardware type of Ethernet with the length of its addresses.
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const ETHERNET: [u8; 2] = [1, 6];

/// Kinds of messages (RFC 2132 section 9.6).
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

/// Options (RFC 2132).
const PAD: u8 = 0;
const MASK: u8 = 1;
const ROUTER: u8 = 3;
const NAME_SERVERS: u8 = 6;
const HOST_NAME: u8 = 12;
const REQUESTED: u8 = 50;
const LEASE_TIME: u8 = 51;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const WANTED: u8 = 55;
const END: u8 = 255;

/// What a device was lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Its address.
    pub address: Ipv4Addr,
    /// The length of its network's prefix.
    pub prefix_len: u8,
    /// The way to everything else.
    pub router: Ipv4Addr,
    /// Where it is to ask for names.
    pub name_server: Ipv4Addr,
    /// For how many seconds it has the address.
    pub seconds: u32,
    /// Who lent it.
    pub server: Ipv4Addr,
}

/// A device that asks.
#[derive(Clone, Copy, Debug)]
struct Device<'a> {
    mac: [u8; 6],
    name: &'a str,
    /// By which answers to it are known.
    conversation: u32,
}

/// Asks for an address by an interface that has none, in the namespace of this thread, as the device with this hardware address
/// that calls itself so.
///
/// # Errors
/// When there is no such interface, the socket fails, or nobody answers.
pub fn ask(interface: &str, mac: [u8; 6], name: &str) -> Result<Lent, LabError> {
    let converse = || -> io::Result<Option<Lent>> {
        let socket = socket(interface)?;
        for number in 1..=TRIES {
            let conversation = u32::from_be_bytes([number, mac[3], mac[4], mac[5]]);
            let device = Device { mac, name, conversation };
            let Some(offered) = exchange(&socket, &device, (DISCOVER, OFFER), &[])? else {
                continue;
            };
            let chosen = [(REQUESTED, offered.address), (SERVER, offered.server)];
            if let Some(lent) = exchange(&socket, &device, (REQUEST, ACK), &chosen)? {
                return Ok(Some(lent));
            }
        }
        Ok(None)
    };
    let lent = converse().map_err(LabError::io(format!("asking for an address by {interface}")))?;
    lent.ok_or_else(|| LabError::TooLate {
        what: format!("an answer to {name}, which asked for an address"),
        seconds: (ANSWER_TIME * u32::from(TRIES)).as_secs_f64(),
        detail: String::new(),
    })
}

fn socket(interface: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Without an address there is no route that says by which.
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEVICE_PORT)).into())?;
    Ok(socket.into())
}

/// Sends a message of the one kind, and waits for an answer of the other.
fn exchange(
    socket: &UdpSocket,
    device: &Device<'_>,
    (kind, expected): (u8, u8),
    more: &[(u8, Ipv4Addr)],
) -> io::Result<Option<Lent>> {
    let until = Instant::now() + ANSWER_TIME;
    socket.send_to(&message(kind, device, more), (Ipv4Addr::BROADCAST, SERVER_PORT))?;
    let mut buffer = [0; MAX_LEN];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(len) => {
                let answer = read(&buffer[..len], device.conversation, expected);
                if answer.is_some() {
                    return Ok(answer);
                }
            }
            Err(error) if is_of_time(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_of_time(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn message(kind: u8, device: &Device<'_>, more: &[(u8, Ipv4Addr)]) -> Vec<u8> {
    let mut message = vec![0; FIXED];
    message[0] = QUESTION;
    message[1..3].copy_from_slice(&ETHERNET);
    message[4..8].copy_from_slice(&device.conversation.to_be_bytes());
    // The answer is to come to everybody: it has no address yet.
    message[10] = 0x80;
    message[28..34].copy_from_slice(&device.mac);
    message.extend_from_slice(&COOKIE);
    message.extend_from_slice(&[KIND, 1, kind]);
    let name = &device.name.as_bytes()[..device.name.len().min(63)];
    message.extend_from_slice(&[HOST_NAME, name.len() as u8]);
    message.extend_from_slice(name);
    message.extend_from_slice(&[WANTED, 4, MASK, ROUTER, NAME_SERVERS, LEASE_TIME]);
    for (option, address) in more {
        message.extend_from_slice(&[*option, 4]);
        message.extend_from_slice(&address.octets());
    }
    message.push(END);
    message
}

/// What an answer of this kind in this conversation lends; `None`: it is none, or says too little.
fn read(message: &[u8], conversation: u32, kind: u8) -> Option<Lent> {
    let (fixed, rest) = message.split_at_checked(FIXED)?;
    let is_ours = fixed[0] == ANSWER && fixed[4..8] == conversation.to_be_bytes();
    let options = options(rest.strip_prefix(&COOKIE)?);
    let number = |option: u8| {
        let value = options.get(&option)?;
        value.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
    };
    let is_kind = options.get(&KIND).is_some_and(|said| **said == [kind]);
    if !is_ours || !is_kind {
        return None;
    }
    Some(Lent {
        address: Ipv4Addr::from(*fixed[16..].first_chunk::<4>()?),
        prefix_len: u8::try_from(number(MASK)?.leading_ones()).ok()?,
        router: number(ROUTER)?.into(),
        name_server: number(NAME_SERVERS)?.into(),
        seconds: number(LEASE_TIME)?,
        server: number(SERVER)?.into(),
    })
}

/// The options up to the end, or to the first one that is cut off.
fn options(mut bytes: &[u8]) -> BTreeMap<u8, &[u8]> {
    let mut options = BTreeMap::new();
    while let [option, rest @ ..] = bytes {
        if *option == END {
            break;
        }
        if *option == PAD {
            bytes = rest;
            continue;
        }
        let Some((len, rest)) = rest.split_first() else { break };
        let Some((value, rest)) = rest.split_at_checked(usize::from(*len)) else { break };
        options.insert(*option, value);
        bytes = rest;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device<'_> =
        Device { mac: [0x52, 0x54, 0, 0, 0, 1], name: "tv", conversation: 0x0102_0304 };

    #[test]
    fn a_question_says_who_asks_and_what_was_chosen() {
        let chosen = Ipv4Addr::new(192, 168, 77, 20);
        let message = message(REQUEST, &DEVICE, &[(REQUESTED, chosen)]);
        assert_eq!((message[..3].to_vec(), &message[4..8]), (vec![1, 1, 6], &[1, 2, 3, 4][..]));
        assert_eq!(message[28..34], DEVICE.mac);
        let options = options(message[FIXED..].strip_prefix(&COOKIE).unwrap());
        assert_eq!((options[&KIND], options[&HOST_NAME]), (&[REQUEST][..], &b"tv"[..]));
        assert_eq!(options[&REQUESTED], chosen.octets());
    }

    #[test]
    fn an_answer_is_of_this_conversation_and_says_all_that_a_device_needs() {
        let mut answer = message(OFFER, &DEVICE, &[]);
        answer[0] = ANSWER;
        answer[16..20].copy_from_slice(&[192, 168, 77, 20]);
        answer.pop();
        answer.extend_from_slice(&[PAD, MASK, 4, 255, 255, 255, 0, LEASE_TIME, 4, 0, 0, 14, 16]);
        for option in [ROUTER, NAME_SERVERS, SERVER] {
            answer.extend_from_slice(&[option, 4, 192, 168, 77, 1]);
        }
        let router = Ipv4Addr::new(192, 168, 77, 1);
        let expected = Lent {
            address: [192, 168, 77, 20].into(),
            prefix_len: 24,
            router,
            name_server: router,
            seconds: 3600,
            server: router,
        };
        assert_eq!(read(&answer, DEVICE.conversation, OFFER), Some(expected));
        assert_eq!(read(&answer, DEVICE.conversation, ACK), None);
        assert_eq!(read(&answer, 7, OFFER), None);
        for len in 0..answer.len() {
            assert_eq!(read(&answer[..len], DEVICE.conversation, OFFER), None, "{len} bytes");
        }
    }
}
