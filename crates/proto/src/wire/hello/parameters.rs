//! What one end wishes or states beside the keys: a list of type, length, value (PROTOCOL §6.1).
//!
//! ```text
//! +------+--------+--- - -
//! | type | length | value        type 0 ends the list; what follows is padding and ignored
//! +------+--------+--- - -
//! ```
//!
//! The rule for growth within a version: an unknown type is skipped by its length; a known type with
//! a wrong length, or twice, breaks the format. So a new parameter needs no new version, as long as
//! an end that does not know it may ignore it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use arrayvec::ArrayVec;

use ropewalk_settings::{INVITATION_TOKEN_LEN, InvitationToken};

/// Wire numbers of the parameters.
const END: u8 = 0;
const REKEY_INTERVAL: u8 = 1;
const INVITATION: u8 = 2;
const YIELDS: u8 = 3;
const DISPLACED: u8 = 4;
const LINKS: u8 = 5;
const NAME_SERVERS_V4: u8 = 6;
const NAME_SERVERS_V6: u8 = 7;
const PARTIAL_CHECKSUMS: u8 = 8;
const ORDERS_FLOWS: u8 = 9;
const SPEED_TESTS: u8 = 10;

/// Most name servers of each family: resolvers ask no more than three altogether.
pub const MAX_NAME_SERVERS: usize = 2;

/// Bytes of the longest list that this version writes into a response, with its end.
pub const MAX_ANSWER_LEN: usize =
    (2 + 4) + (2 + 4) + (2 + MAX_NAME_SERVERS * 4) + (2 + MAX_NAME_SERVERS * 16) + 2 + 2 + 2 + 1;

/// Bytes of all that this version knows, with the end.
pub const MAX_LEN: usize = MAX_ANSWER_LEN + (2 + INVITATION_TOKEN_LEN) + 2 + (2 + 1);

/// Where names are to be looked up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NameServers {
    /// IPv4 addresses, the first one first.
    pub v4: ArrayVec<Ipv4Addr, MAX_NAME_SERVERS>,
    /// IPv6 addresses, the first one first.
    pub v6: ArrayVec<Ipv6Addr, MAX_NAME_SERVERS>,
}

impl NameServers {
    /// The first of these addresses, as many as can be handed out.
    pub fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut servers = Self::default();
        for address in addresses {
            // Those beyond the bound are left out.
            let _ = match address {
                IpAddr::V4(v4) => servers.v4.try_push(v4).is_ok(),
                IpAddr::V6(v6) => servers.v6.try_push(v6).is_ok(),
            };
        }
        servers
    }

    /// All, those of IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.v4.iter().copied().map(IpAddr::V4);
        v4.chain(self.v6.iter().copied().map(IpAddr::V6))
    }
}

/// In a first message: what the client would like. In the response: what holds. `None`: nothing said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// Time between rekeys; on the wire in milliseconds, up to 49 days.
    pub rekey_interval: Option<Duration>,
    /// In a first message: what lets a client come in that the proxy does not know yet.
    pub invitation: Option<InvitationToken>,
    /// In a first message: the client wants no session while another machine uses one with its key.
    pub yields: bool,
    /// In a response: a session of the same key was in use until now, and was heard of so long ago; on the wire in
    /// milliseconds.
    pub displaced: Option<Duration>,
    /// In a first message: how many links the client is about to open.
    pub links: Option<u8>,
    /// In a response: where the client may look up names.
    pub name_servers: NameServers,
    /// Whoever says so completes partial checksums of inner packets: the other may leave them.
    pub partial_checksums: bool,
    /// Whoever says so restores the order within flows: the other may send in it.
    pub orders_flows: bool,
    /// In a response: the proxy knows speed tests, and answers who asks for one.
    pub speed_tests: bool,
}

/// The content of an authentic handshake message breaks the format. Drop, count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the content of the handshake message breaks the format")]
pub struct BadContent;

impl Parameters {
    /// Appends the list and its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        if let Some(interval) = self.rekey_interval {
            out.extend_from_slice(&[REKEY_INTERVAL, 4]);
            out.extend_from_slice(&millis(interval).to_be_bytes());
        }
        if let Some(token) = &self.invitation {
            out.extend_from_slice(&[INVITATION, INVITATION_TOKEN_LEN as u8]);
            out.extend_from_slice(token.as_bytes());
        }
        if self.yields {
            out.extend_from_slice(&[YIELDS, 0]);
        }
        if let Some(ago) = self.displaced {
            out.extend_from_slice(&[DISPLACED, 4]);
            out.extend_from_slice(&millis(ago).to_be_bytes());
        }
        if let Some(links) = self.links {
            out.extend_from_slice(&[LINKS, 1, links]);
        }
        let NameServers { v4, v6 } = &self.name_servers;
        if !v4.is_empty() {
            out.extend_from_slice(&[NAME_SERVERS_V4, (v4.len() * 4) as u8]);
            v4.iter().for_each(|address| out.extend_from_slice(&address.octets()));
        }
        if !v6.is_empty() {
            out.extend_from_slice(&[NAME_SERVERS_V6, (v6.len() * 16) as u8]);
            v6.iter().for_each(|address| out.extend_from_slice(&address.octets()));
        }
        if self.partial_checksums {
            out.extend_from_slice(&[PARTIAL_CHECKSUMS, 0]);
        }
        if self.orders_flows {
            out.extend_from_slice(&[ORDERS_FLOWS, 0]);
        }
        if self.speed_tests {
            out.extend_from_slice(&[SPEED_TESTS, 0]);
        }
        out.push(END);
    }

    /// Reads a list up to its end (a type 0, or the end of `bytes`).
    ///
    /// # Errors
    /// [`BadContent`] if a value is cut off, has a wrong length, or comes twice.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, BadContent> {
        let mut parameters = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind == END {
                break;
            }
            let (&len, rest) = rest.split_first().ok_or(BadContent)?;
            let (value, rest) = rest.split_at_checked(usize::from(len)).ok_or(BadContent)?;
            bytes = rest;
            match kind {
                REKEY_INTERVAL => once(&mut parameters.rekey_interval, read_millis(value)?)?,
                INVITATION => once(&mut parameters.invitation, read_token(value)?)?,
                YIELDS => word(&mut parameters.yields, value)?,
                DISPLACED => once(&mut parameters.displaced, read_millis(value)?)?,
                LINKS => {
                    let &[links] = value else { return Err(BadContent) };
                    once(&mut parameters.links, links)?;
                }
                NAME_SERVERS_V4 => read_servers(&mut parameters.name_servers.v4, value)?,
                NAME_SERVERS_V6 => read_servers(&mut parameters.name_servers.v6, value)?,
                PARTIAL_CHECKSUMS => word(&mut parameters.partial_checksums, value)?,
                ORDERS_FLOWS => word(&mut parameters.orders_flows, value)?,
                SPEED_TESTS => word(&mut parameters.speed_tests, value)?,
                _ => {}
            }
        }
        Ok(parameters)
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), BadContent> {
    if place.replace(value).is_some() { Err(BadContent) } else { Ok(()) }
}

/// Reads what says all by being there.
fn word(place: &mut bool, value: &[u8]) -> Result<(), BadContent> {
    if std::mem::replace(place, true) || !value.is_empty() { Err(BadContent) } else { Ok(()) }
}

/// Reads one or more addresses of `N` bytes each into a list that is empty yet.
fn read_servers<A: From<[u8; N]>, const N: usize>(
    list: &mut ArrayVec<A, MAX_NAME_SERVERS>,
    value: &[u8],
) -> Result<(), BadContent> {
    let (addresses, rest) = value.as_chunks::<N>();
    if !list.is_empty() || addresses.is_empty() || !rest.is_empty() {
        return Err(BadContent);
    }
    for address in addresses {
        list.try_push((*address).into()).map_err(|_| BadContent)?;
    }
    Ok(())
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn read_millis(value: &[u8]) -> Result<Duration, BadContent> {
    let bytes = value.try_into().map_err(|_| BadContent)?;
    Ok(Duration::from_millis(u64::from(u32::from_be_bytes(bytes))))
}

fn read_token(value: &[u8]) -> Result<InvitationToken, BadContent> {
    value.try_into().map(InvitationToken::from_bytes).map_err(|_| BadContent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Parameters {
        Parameters {
            rekey_interval: Some(Duration::from_secs(120)),
            invitation: Some(InvitationToken::from_bytes([7; INVITATION_TOKEN_LEN])),
            yields: true,
            displaced: Some(Duration::from_millis(400)),
            links: Some(3),
            name_servers: NameServers::of(
                ["192.0.2.53", "2001:db8::53", "9.9.9.9", "1.1.1.1", "2620:fe::fe"]
                    .map(|address| address.parse().unwrap()),
            ),
            partial_checksums: true,
            orders_flows: true,
            speed_tests: true,
        }
    }

    fn written(parameters: &Parameters) -> Vec<u8> {
        let mut out = Vec::new();
        parameters.write(&mut out);
        out
    }

    #[test]
    fn a_list_reads_back_as_written_and_padding_is_ignored() {
        for parameters in [all(), Parameters::default()] {
            let mut bytes = written(&parameters);
            assert!(bytes.len() <= MAX_LEN);
            bytes.extend_from_slice(b"\xff\xff padding");
            assert_eq!(Parameters::parse(&bytes), Ok(parameters));
        }
        assert_eq!(written(&all()).len(), MAX_LEN);
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let (rekey, token) = ([1, 4, 0, 1, 0xd4, 0xc0], [7; INVITATION_TOKEN_LEN]);
        let displaced = [4, 4, 0, 0, 1, 0x90];
        let v4 = [6, 8, 192, 0, 2, 53, 9, 9, 9, 9];
        let [first, second] = ["2001:db8::53", "2620:fe::fe"]
            .map(|address| address.parse::<Ipv6Addr>().unwrap().octets());
        let parts = [
            &rekey[..],
            &[2, 16],
            &token,
            &[3, 0],
            &displaced,
            &[5, 1, 3],
            &v4,
            &[7, 32],
            &first,
            &second,
            &[8, 0],
            &[9, 0],
            &[10, 0],
            &[0],
        ];
        assert_eq!(written(&all()), parts.concat());
    }

    #[test]
    fn an_unknown_parameter_is_skipped() {
        let bytes = [b"\x63\x03abc\x00".as_slice(), &written(&all())].concat();
        assert_eq!(Parameters::parse(&bytes), Ok(Parameters::default()));
        let bytes = [b"\x63\x03abc".as_slice(), &written(&all())].concat();
        assert_eq!(Parameters::parse(&bytes), Ok(all()));
    }

    #[test]
    fn broken_lists_are_refused() {
        for (name, bytes) in [
            ("no length", [1].as_slice()),
            ("cut off", &[1, 4, 0, 0, 0]),
            ("unknown and cut off", &[99, 4, 0]),
            ("too short a value", &[1, 3, 0, 0, 0]),
            ("too long a value", &[1, 5, 0, 0, 0, 0, 0]),
            ("twice", &[1, 4, 0, 0, 5, 0, 1, 4, 0, 0, 5, 0]),
            ("half a token", &[2, 8, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("a word with a value", &[3, 1, 1]),
            ("a word twice", &[3, 0, 3, 0]),
            ("another word with a value", &[8, 1, 0]),
            ("another word twice", &[8, 0, 8, 0, 0]),
            ("too short a time", &[4, 2, 1, 1]),
            ("no number of links", &[5, 0, 0]),
            ("a number of links in two bytes", &[5, 2, 0, 1, 0]),
            ("links twice", &[5, 1, 3, 5, 1, 3, 0]),
            ("no name server", &[6, 0, 0]),
            ("a name server and a half", &[6, 6, 1, 1, 1, 1, 8, 8]),
            ("three name servers", &[6, 12, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]),
            ("name servers twice", &[6, 4, 1, 1, 1, 1, 6, 4, 1, 1, 1, 1]),
            ("an IPv4 address for IPv6", &[7, 4, 1, 1, 1, 1]),
        ] {
            assert_eq!(Parameters::parse(bytes), Err(BadContent), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_not_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(parameters) = Parameters::parse(&bytes) {
                prop_assert_eq!(Parameters::parse(&written(&parameters)), Ok(parameters));
            }
        }
    }
}
