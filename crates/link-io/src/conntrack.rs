//! The kernel's table of connections, over ctnetlink: connections are found and forgotten.
//!
//! The kernel decides once, by a connection's first packet, how it is translated. A connection that it has forgotten begins again
//! with its next packet, under the rules of that moment.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rtnetlink::packet_core::{
    NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NlaBuffer, NlasIterator,
};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, TokioSocket};
use rustix::io::Errno;

/// Messages about connections (`NFNL_SUBSYS_CTNETLINK`, linux/netfilter/nfnetlink.h), of which `IPCTNL_MSG_CT_GET` asks and
/// `IPCTNL_MSG_CT_DELETE` takes one out (linux/netfilter/nfnetlink_conntrack.h).
const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;

/// Attributes of a connection (`enum ctattr_type`): the addresses of its first packet, those of its answers, its state, its
/// number, its zone.
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const ID: u16 = 12;
const ZONE: u16 = 18;
/// Within the addresses (`enum ctattr_tuple`, `enum ctattr_ip`, `enum ctattr_l4proto`).
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const V4_SOURCE: u16 = 1;
const V4_DESTINATION: u16 = 2;
const V6_SOURCE: u16 = 3;
const V6_DESTINATION: u16 = 4;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// The states of a connection whose source, or destination, is translated (`IPS_SRC_NAT`, `IPS_DST_NAT`,
/// linux/netfilter/nf_conntrack_common.h).
const IS_SOURCE_TRANSLATED: u32 = 1 << 4;
const IS_DESTINATION_TRANSLATED: u32 = 1 << 5;

/// Bytes of a netlink header, and of what netfilter puts behind it (`struct nfgenmsg`).
const HEADER_LEN: usize = 16;
const FAMILY_LEN: usize = 4;

/// A connection, as its first packet had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The number of its protocol: 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// Where it came from. The port is 0 where the protocol has none.
    pub source: SocketAddr,
    /// Where it went.
    pub destination: SocketAddr,
    /// Whether its packets leave with another source.
    pub is_source_translated: bool,
    /// Where its packets are led, if not where they went.
    pub led_to: Option<SocketAddr>,
}

/// Has the kernel forget the connections that `is_unwanted` picks, in the network namespace of this thread. Returns how many it
/// forgot.
///
/// # Errors
/// When the kernel does not show its connections, or the right is missing.
pub async fn forget(is_unwanted: impl Fn(&Connection) -> bool) -> io::Result<usize> {
    let mut socket = open()?;
    let mut unwanted = Vec::new();
    look(&mut socket, |found| {
        if is_unwanted(&found.connection) {
            unwanted.push(found.deletion);
        }
    })
    .await?;
    let mut forgotten = 0;
    for deletion in unwanted {
        socket.send(&deletion).await?;
        match receive(&socket, |_| {}).await {
            Ok(()) => forgotten += 1,
            // It ended meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(forgotten)
}

/// The connections that `is_wanted` picks, in the network namespace of this thread.
///
/// # Errors
/// As [`forget`].
pub async fn find(is_wanted: impl Fn(&Connection) -> bool) -> io::Result<Vec<Connection>> {
    let mut wanted = Vec::new();
    look(&mut open()?, |found| {
        if is_wanted(&found.connection) {
            wanted.push(found.connection);
        }
    })
    .await?;
    Ok(wanted)
}

fn open() -> io::Result<TokioSocket> {
    let mut socket: TokioSocket = AsyncSocket::new(NETLINK_NETFILTER)?;
    socket.socket_mut().bind_auto()?;
    Ok(socket)
}

/// Hands each connection of the kernel's table on.
async fn look(socket: &mut TokioSocket, mut each: impl FnMut(Found)) -> io::Result<()> {
    socket.send(&request(GET, NLM_F_DUMP, 0, &[])).await?;
    let note = |message: &[u8]| {
        if let Some(found) = parse(message) {
            each(found);
        }
    };
    receive(socket, note).await
}

/// Hands each message of an answer on, until the answer is over.
async fn receive(socket: &TokioSocket, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    loop {
        let (bytes, _from) = socket.recv_from_full().await?;
        let mut rest = bytes.as_slice();
        while let Ok(message) = NetlinkBuffer::new_checked(rest) {
            match message.message_type() {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return outcome(message.payload()),
                _ => each(message.payload()),
            }
            let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// What an acknowledgement says: a negative error number, or 0.
fn outcome(payload: &[u8]) -> io::Result<()> {
    let code = payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) }
}

struct Found {
    connection: Connection,
    /// The request that ends it, and no connection of the same addresses that began later.
    deletion: Vec<u8>,
}

/// A connection as the kernel describes it; `None` if it is of neither IPv4 nor IPv6.
fn parse(message: &[u8]) -> Option<Found> {
    let family = *message.first()?;
    let attributes = message.get(FAMILY_LEN..)?;
    let sent = Tuple::parse(attribute(attributes, TUPLE_ORIG)?.value())?;
    let status = attribute(attributes, STATUS)?.value().try_into().ok()?;
    let status = u32::from_be_bytes(status);
    let answered = attribute(attributes, TUPLE_REPLY)
        .filter(|_| status & IS_DESTINATION_TRANSLATED != 0)
        .and_then(|tuple| Tuple::parse(tuple.value()));
    let connection = Connection {
        protocol: sent.protocol,
        source: sent.source,
        destination: sent.destination,
        is_source_translated: status & IS_SOURCE_TRANSLATED != 0,
        led_to: answered.map(|answers| answers.source),
    };
    let named: Vec<_> = [TUPLE_ORIG | NLA_F_NESTED, ID, ZONE]
        .into_iter()
        .filter_map(|kind| Some((kind, attribute(attributes, kind & !NLA_F_NESTED)?)))
        .collect();
    Some(Found { connection, deletion: request(DELETE, NLM_F_ACK, family, &named) })
}

/// The addresses of the packets of one direction.
struct Tuple {
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
}

impl Tuple {
    fn parse(tuple: &[u8]) -> Option<Self> {
        let addresses = attribute(tuple, TUPLE_IP)?;
        let v4 = |kind| {
            let bytes: [u8; 4] = attribute(addresses.value(), kind)?.value().try_into().ok()?;
            Some(IpAddr::from(Ipv4Addr::from(bytes)))
        };
        let v6 = |kind| {
            let bytes: [u8; 16] = attribute(addresses.value(), kind)?.value().try_into().ok()?;
            Some(IpAddr::from(Ipv6Addr::from(bytes)))
        };
        // ICMP and others have no ports.
        let protocol = attribute(tuple, TUPLE_PROTOCOL);
        let of_protocol = |kind| protocol.as_ref().and_then(|of| attribute(of.value(), kind));
        let port = |kind| {
            let bytes: [u8; 2] = of_protocol(kind)?.value().try_into().ok()?;
            Some(u16::from_be_bytes(bytes))
        };
        let number = of_protocol(PROTOCOL_NUMBER).and_then(|one| one.value().first().copied());
        let source = v4(V4_SOURCE).or_else(|| v6(V6_SOURCE))?;
        let destination = v4(V4_DESTINATION).or_else(|| v6(V6_DESTINATION))?;
        Some(Self {
            protocol: number.unwrap_or(0),
            source: SocketAddr::new(source, port(SOURCE_PORT).unwrap_or(0)),
            destination: SocketAddr::new(destination, port(DESTINATION_PORT).unwrap_or(0)),
        })
    }
}

fn attribute(attributes: &[u8], kind: u16) -> Option<NlaBuffer<&[u8]>> {
    NlasIterator::new(attributes).map_while(Result::ok).find(|found| found.kind() == kind)
}

/// A request with these attributes.
fn request(kind: u16, flags: u16, family: u8, attributes: &[(u16, NlaBuffer<&[u8]>)]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    // Version 0, of no resource.
    bytes.extend([family, 0, 0, 0]);
    for (kind, attribute) in attributes {
        bytes.extend(attribute.length().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(attribute.value());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut header = NetlinkBuffer::new(&mut bytes);
    header.set_length(length);
    header.set_message_type(kind);
    header.set_flags(NLM_F_REQUEST | flags);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in attributes {
            bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    /// The addresses of one direction, with their ports.
    fn tuple([from, to]: [[u8; 4]; 2], [source, destination]: [u16; 2]) -> Vec<u8> {
        let addresses = with(&[(V4_SOURCE, &from), (V4_DESTINATION, &to)]);
        let ports = [source, destination].map(u16::to_be_bytes);
        let protocol = with(&[
            (PROTOCOL_NUMBER, &[17]),
            (SOURCE_PORT, &ports[0]),
            (DESTINATION_PORT, &ports[1]),
        ]);
        with(&[(TUPLE_IP | NLA_F_NESTED, &addresses), (TUPLE_PROTOCOL | NLA_F_NESTED, &protocol)])
    }

    fn described(status: u32) -> Vec<u8> {
        let sent = tuple([[10, 77, 0, 2], [192, 0, 2, 2]], [4000, 53]);
        let answered = tuple([[10, 77, 0, 9], [203, 0, 113, 2]], [5353, 4000]);
        let mut message = vec![2, 0, 0, 0];
        message.extend(with(&[
            (TUPLE_ORIG | NLA_F_NESTED, &sent),
            (TUPLE_REPLY | NLA_F_NESTED, &answered),
            (STATUS, &status.to_be_bytes()),
            (ID, &[1, 2, 3, 4]),
        ]));
        message
    }

    #[test]
    fn a_connection_is_read_and_its_deletion_names_it_by_addresses_and_number() {
        for (status, is_source_translated, is_led) in
            [(0x18e, false, false), (0x19e, true, false), (0x1ae, false, true)]
        {
            let message = described(status);
            let found = parse(&message).unwrap();
            let expected = Connection {
                protocol: 17,
                source: ([10, 77, 0, 2], 4000).into(),
                destination: ([192, 0, 2, 2], 53).into(),
                is_source_translated,
                led_to: is_led.then(|| ([10, 77, 0, 9], 5353).into()),
            };
            assert_eq!(found.connection, expected);
            let deletion = NetlinkBuffer::new_checked(&found.deletion[..]).unwrap();
            assert_eq!(deletion.message_type(), DELETE);
            let named = &deletion.payload()[FAMILY_LEN..];
            for kind in [TUPLE_ORIG, ID] {
                let of = |bytes| attribute(bytes, kind).unwrap().value().to_vec();
                assert_eq!(of(named), of(&message[FAMILY_LEN..]), "{kind}");
            }
            assert!(attribute(named, STATUS).is_none());
        }
    }

    #[test]
    fn a_connection_without_ports_is_read_too() {
        let addresses = with(&[(V4_SOURCE, &[10, 77, 0, 2]), (V4_DESTINATION, &[192, 0, 2, 2])]);
        let protocol = with(&[(PROTOCOL_NUMBER, &[1])]);
        let sent = with(&[(TUPLE_IP, &addresses), (TUPLE_PROTOCOL, &protocol)]);
        let mut message = vec![2, 0, 0, 0];
        message.extend(with(&[(TUPLE_ORIG, &sent), (STATUS, &0_u32.to_be_bytes())]));
        let connection = parse(&message).unwrap().connection;
        assert_eq!((connection.protocol, connection.source.port()), (1, 0));
        assert_eq!(connection.led_to, None);
    }

    #[test]
    fn what_is_cut_short_anywhere_is_no_connection_and_no_panic() {
        let message = described(0);
        for length in 0..message.len() {
            // A number that is missing only names it less exactly.
            let found = parse(&message[..length]);
            assert!(found.is_none() || length >= message.len() - 8, "{length}");
        }
    }
}
