//! The invitation: one line that lets a client join a proxy, as a person copies it or a phone reads it.
//!
//! ```text
//! ropewalk:afdwsyldp4ad2...
//! ```
//!
//! Behind the word stand bytes in base32 (RFC 4648 §6, without padding), because its letters survive being typed, folded and
//! read aloud, make no shell look twice, and fit the compact mode of a QR code in capitals:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version: 2 if other proxies are named, else 1 |
//! | 5 | when it expires: seconds since 1970 |
//! | 32 | the proxy's public key |
//! | 16 | the token: who shows it first is let in |
//! | 1 | how many addresses follow, 1 to 8 |
//! | each | kind 4: IPv4 (4), port (2); kind 6: IPv6 (16), port (2); kind 1: length (1), name, port (2) |
//! | 1 | version 2: how many other proxies of the fleet follow, 1 to 3 |
//! | each | public key (32), how many addresses follow (1), 1 or 2 of them, each as above |
//! | 4 | checksum over all before |
//!
//! The other proxies are for whoever joins while the first is away. One that is in use tells its clients of all others.
//!
//! The checksum finds damage; it proves nothing. Nobody can read the token out of a QR code or line that was shown
//! without being able to use it: an invitation is a secret until it was used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blake2::digest::Digest as _;
use data_encoding::BASE32_NOPAD;
use zeroize::Zeroizing;

use ropewalk_settings::{
    HostPort, INVITATION_TOKEN_LEN, InvitationToken, KEY_LEN, PublicKey, Text as _, unusable,
};

/// What every invitation begins with.
pub const PREFIX: &str = "ropewalk:";

/// Most addresses of a proxy in one invitation.
pub const MAX_ADDRESSES: usize = 8;

/// Most other proxies in one invitation: they are for the moment in which the first one is away, and the line is to stay short.
pub const MAX_OTHERS: usize = 3;

/// Most addresses of each: one that is IPv4 and one that is IPv6.
pub const MAX_OTHER_ADDRESSES: usize = 2;

/// How long an invitation holds where nothing else is said.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How long it may hold: a forgotten one is a door left open.
pub const LIFETIMES: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(365 * 24 * 60 * 60));

/// Characters of the longest line that is read: eight names of 253 bytes are shorter.
pub const MAX_LINE: usize = 8192;

/// Names one proxy.
const VERSION: u8 = 1;
/// Names others, too. Programs that know only the first version ask for an update.
const VERSION_WITH_OTHERS: u8 = 2;
const CHECKSUM_BYTES: usize = 4;
const KIND_NAME: u8 = 1;
const KIND_V4: u8 = 4;
const KIND_V6: u8 = 6;

/// What a client needs to know to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Where the proxy is; at least one, at most [`MAX_ADDRESSES`].
    pub addresses: Vec<HostPort>,
    /// The proxy's public key.
    pub public_key: PublicKey,
    /// What lets the client in, once.
    pub token: InvitationToken,
    /// When it counts no more, in seconds since 1970.
    pub expires: u64,
    /// Other proxies of the fleet, which let the client in as well; at most [`MAX_OTHERS`].
    pub others: Vec<InvitingProxy>,
}

/// Another proxy that an invitation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitingProxy {
    /// Where it is; at least one, at most [`MAX_OTHER_ADDRESSES`].
    pub addresses: Vec<HostPort>,
    /// Its public key.
    pub public_key: PublicKey,
}

/// Why a line is no invitation. The line is never repeated: it is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationError {
    /// Nothing there.
    #[error(
        "there is no invitation: give the line that `ropewalk peer add NAME` printed on the proxy"
    )]
    Empty,
    /// It is a public key.
    #[error(
        "this is a key, not an invitation: an invitation begins with `{PREFIX}`; `ropewalk peer add NAME` prints one \
         on the proxy"
    )]
    IsKey,
    /// It begins otherwise.
    #[error(
        "an invitation begins with `{PREFIX}` and this does not: copy the whole line that `ropewalk peer add NAME` \
         printed on the proxy"
    )]
    Prefix,
    /// Much too long.
    #[error("this is no invitation: it has {chars} characters; at most {MAX_LINE} are possible")]
    TooLong {
        /// Characters found.
        chars: usize,
    },
    /// A character that none has.
    #[error(
        "the invitation is damaged: `{}` at place {place} never stands in one (only letters and the digits 2 to 7); \
         copy it again", character.escape_debug()
    )]
    Character {
        /// The first one.
        character: char,
        /// Where, counted from 1 without white space.
        place: usize,
    },
    /// Some of it is missing.
    #[error("the invitation is cut off, or damaged at its end: copy the whole line")]
    CutOff,
    /// Another version.
    #[error(
        "the invitation has version {found}, and this program knows versions up to {VERSION_WITH_OTHERS}: update `ropewalk` on this \
         machine"
    )]
    Version {
        /// Its version.
        found: u8,
    },
    /// Something in it was changed.
    #[error(
        "the invitation is damaged: its checksum is wrong, so a character was changed, lost or added; copy it again"
    )]
    Checksum,
    /// The checksum is right, and what it covers makes no sense.
    #[error("the invitation makes no sense ({0}): ask for a new one")]
    Content(String),
}

/// An invitation is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the invitation expired {} ago by this machine's clock: if the clock is right, ask for a new one (`ropewalk peer \
     add NAME` on the proxy)",
    humantime::format_duration(*ago)
)]
pub struct Expired {
    /// How long ago.
    pub ago: Duration,
}

impl Invitation {
    /// The line, for people.
    #[must_use]
    pub fn to_line(&self) -> Zeroizing<String> {
        let body = Zeroizing::new(BASE32_NOPAD.encode(&self.to_bytes()));
        let mut line = Zeroizing::new(String::with_capacity(PREFIX.len() + body.len()));
        line.push_str(PREFIX);
        line.push_str(&body);
        line.make_ascii_lowercase();
        line
    }

    /// The line in capitals, which make a smaller QR code and are read alike.
    #[must_use]
    pub fn to_capitals(&self) -> Zeroizing<String> {
        Zeroizing::new(self.to_line().to_ascii_uppercase())
    }

    /// Whether it still counts, by this machine's clock.
    ///
    /// # Errors
    /// It does not.
    pub fn check_expiry(&self, now: SystemTime) -> Result<(), Expired> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match now.checked_sub(self.expires) {
            Some(ago) => Err(Expired { ago: Duration::from_secs(ago) }),
            None => Ok(()),
        }
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // As long as it can become: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_LINE));
        let others = &self.others[..self.others.len().min(MAX_OTHERS)];
        bytes.push(if others.is_empty() { VERSION } else { VERSION_WITH_OTHERS });
        bytes.extend_from_slice(&self.expires.to_be_bytes()[3..]);
        bytes.extend_from_slice(self.public_key.as_bytes());
        bytes.extend_from_slice(self.token.as_bytes());
        write_addresses(&mut bytes, &self.addresses, MAX_ADDRESSES);
        if !others.is_empty() {
            bytes.push(u8::try_from(others.len()).unwrap_or(u8::MAX));
        }
        for other in others {
            bytes.extend_from_slice(other.public_key.as_bytes());
            write_addresses(&mut bytes, &other.addresses, MAX_OTHER_ADDRESSES);
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, InvitationError> {
        match bytes.first() {
            None => return Err(InvitationError::CutOff),
            Some(&(VERSION | VERSION_WITH_OTHERS)) => {}
            Some(&found) => return Err(InvitationError::Version { found }),
        }
        let (body, sum) =
            bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(InvitationError::CutOff)?;
        if checksum(body) != *sum {
            // The fields say themselves how long the whole is.
            let short = matches!(read(bytes), Err(Unread::Ends));
            return Err(if short { InvitationError::CutOff } else { InvitationError::Checksum });
        }
        match read(body) {
            Ok((invitation, [])) => Ok(invitation),
            Ok(_) => Err(InvitationError::Content("something follows its end".to_owned())),
            Err(Unread::Ends) => Err(InvitationError::Content("it ends too soon".to_owned())),
            Err(Unread::Nonsense(what)) => Err(InvitationError::Content(what)),
        }
    }
}

impl FromStr for Invitation {
    type Err = InvitationError;

    /// Reads a line, in small letters or capitals; white space within it is passed over, for mail programs fold lines.
    fn from_str(line: &str) -> Result<Self, InvitationError> {
        if line.len() > MAX_LINE {
            return Err(InvitationError::TooLong { chars: line.chars().count() });
        }
        let packed = |c: &char| !c.is_whitespace();
        // As long as it can become: a text that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(line.len()));
        text.extend(line.chars().filter(packed));
        let Some((word, body)) = text.split_at_checked(PREFIX.len()) else {
            return Err(if text.is_empty() { InvitationError::Empty } else { other(&text) });
        };
        if !word.eq_ignore_ascii_case(PREFIX) {
            return Err(other(&text));
        }
        let known = |c: char| c.is_ascii_alphabetic() || ('2'..='7').contains(&c);
        if let Some((at, character)) = body.chars().enumerate().find(|(_, c)| !known(*c)) {
            return Err(InvitationError::Character { character, place: PREFIX.len() + at + 1 });
        }
        let capitals = Zeroizing::new(body.to_ascii_uppercase());
        let bytes = BASE32_NOPAD.decode(capitals.as_bytes()).map(Zeroizing::new);
        // Each letter is one of the alphabet: the length is none that base32 has, or the last letter is none that ends.
        let bytes = bytes.map_err(|error| match error.kind {
            data_encoding::DecodeKind::Length | data_encoding::DecodeKind::Trailing => {
                InvitationError::CutOff
            }
            _ => InvitationError::Checksum,
        })?;
        Self::from_bytes(&bytes)
    }
}

/// What a text is that does not begin as an invitation does.
fn other(text: &str) -> InvitationError {
    if text.parse::<PublicKey>().is_ok() { InvitationError::IsKey } else { InvitationError::Prefix }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = blake2::Blake2s256::new();
    hash.update(b"ropewalk invitation");
    hash.update(bytes);
    let hash: [u8; 32] = hash.finalize().into();
    [hash[0], hash[1], hash[2], hash[3]]
}

/// Why fields cannot be read.
enum Unread {
    /// The bytes end before the fields do.
    Ends,
    /// A field makes no sense.
    Nonsense(String),
}

/// Reads all up to the checksum; what is left is the caller's to judge.
fn read(bytes: &[u8]) -> Result<(Invitation, &[u8]), Unread> {
    let (&version, rest) = bytes.split_first().ok_or(Unread::Ends)?;
    let (expires, rest) = rest.split_first_chunk::<5>().ok_or(Unread::Ends)?;
    let (public_key, rest) = read_key(rest)?;
    let (token, rest) = rest.split_first_chunk::<INVITATION_TOKEN_LEN>().ok_or(Unread::Ends)?;
    let (addresses, rest) = read_addresses(rest, MAX_ADDRESSES)?;
    let (others, rest) = match version {
        VERSION_WITH_OTHERS => read_others(rest, public_key)?,
        _ => (Vec::new(), rest),
    };
    let [a, b, c, d, e] = *expires;
    let invitation = Invitation {
        addresses,
        public_key,
        token: InvitationToken::from_bytes(*token),
        expires: u64::from_be_bytes([0, 0, 0, a, b, c, d, e]),
        others,
    };
    Ok((invitation, rest))
}

/// Reads the other proxies, none of which has the key of the first or of another.
fn read_others(bytes: &[u8], first: PublicKey) -> Result<(Vec<InvitingProxy>, &[u8]), Unread> {
    let (&count, mut rest) = bytes.split_first().ok_or(Unread::Ends)?;
    if !(1..=MAX_OTHERS).contains(&usize::from(count)) {
        return Err(Unread::Nonsense(format!("it names {count} other proxies")));
    }
    let mut others: Vec<InvitingProxy> = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (public_key, after) = read_key(rest)?;
        let (addresses, after) = read_addresses(after, MAX_OTHER_ADDRESSES)?;
        let is_known = others.iter().any(|other| other.public_key == public_key);
        if public_key == first || is_known {
            return Err(Unread::Nonsense("two proxies have the same key".to_owned()));
        }
        others.push(InvitingProxy { addresses, public_key });
        rest = after;
    }
    Ok((others, rest))
}

fn read_key(bytes: &[u8]) -> Result<(PublicKey, &[u8]), Unread> {
    let (key, rest) = bytes.split_first_chunk::<KEY_LEN>().ok_or(Unread::Ends)?;
    if *key == [0; KEY_LEN] {
        return Err(Unread::Nonsense("a proxy's key is all zeros".to_owned()));
    }
    Ok((PublicKey::from_bytes(*key), rest))
}

/// Writes how many there are, and the first `most` of them.
fn write_addresses(bytes: &mut Vec<u8>, addresses: &[HostPort], most: usize) {
    let addresses = &addresses[..addresses.len().min(most)];
    bytes.push(u8::try_from(addresses.len()).unwrap_or(u8::MAX));
    for address in addresses {
        match address.address().map(|address| address.ip()) {
            Some(IpAddr::V4(ip)) => {
                bytes.push(KIND_V4);
                bytes.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                bytes.push(KIND_V6);
                bytes.extend_from_slice(&ip.octets());
            }
            None => {
                let name = address.host.as_bytes();
                let name = &name[..name.len().min(usize::from(u8::MAX))];
                bytes.push(KIND_NAME);
                bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
                bytes.extend_from_slice(name);
            }
        }
        bytes.extend_from_slice(&address.port.to_be_bytes());
    }
}

fn read_addresses(bytes: &[u8], most: usize) -> Result<(Vec<HostPort>, &[u8]), Unread> {
    let (&count, mut rest) = bytes.split_first().ok_or(Unread::Ends)?;
    if !(1..=most).contains(&usize::from(count)) {
        return Err(Unread::Nonsense(format!("a proxy has {count} addresses")));
    }
    let mut addresses = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let (address, after) = read_address(rest)?;
        addresses.push(address);
        rest = after;
    }
    Ok((addresses, rest))
}

fn read_address(bytes: &[u8]) -> Result<(HostPort, &[u8]), Unread> {
    let (&kind, rest) = bytes.split_first().ok_or(Unread::Ends)?;
    let (host, rest) = match kind {
        KIND_V4 => {
            let (ip, rest) = rest.split_first_chunk::<4>().ok_or(Unread::Ends)?;
            (Ok(IpAddr::V4(Ipv4Addr::from(*ip))), rest)
        }
        KIND_V6 => {
            let (ip, rest) = rest.split_first_chunk::<16>().ok_or(Unread::Ends)?;
            (Ok(IpAddr::V6(Ipv6Addr::from(*ip))), rest)
        }
        KIND_NAME => {
            let (&len, rest) = rest.split_first().ok_or(Unread::Ends)?;
            let (name, rest) = rest.split_at_checked(usize::from(len)).ok_or(Unread::Ends)?;
            (Err(name), rest)
        }
        other => return Err(Unread::Nonsense(format!("an address of kind {other}"))),
    };
    let (port, rest) = rest.split_first_chunk::<2>().ok_or(Unread::Ends)?;
    let port = u16::from_be_bytes(*port);
    if port == 0 {
        return Err(Unread::Nonsense("an address with port 0".to_owned()));
    }
    let address = match host {
        Ok(ip) => match unusable(ip) {
            Some(why) => {
                return Err(Unread::Nonsense(format!("an address that cannot be sent to: {why}")));
            }
            None => {
                let address = SocketAddr::new(ip, port);
                HostPort { host: address.ip().to_string(), port }
            }
        },
        Err(name) => {
            let name = std::str::from_utf8(name).unwrap_or_default();
            let read = HostPort::from_text(&format!("{name}:{port}"));
            match read {
                Ok(read) if read.address().is_none() => read,
                _ => return Err(Unread::Nonsense("an address that is no name".to_owned())),
            }
        }
    };
    Ok((address, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn invitation() -> Invitation {
        let address = |text| HostPort::from_text(text).expect("an address");
        Invitation {
            addresses: vec![
                address("203.0.113.7:51900"),
                address("[2001:db8::7]:443"),
                address("vps.example.org:51900"),
            ],
            public_key: PublicKey::from_bytes([0xa5; KEY_LEN]),
            token: InvitationToken::from_bytes([0x3c; INVITATION_TOKEN_LEN]),
            expires: 1_900_000_000,
            others: Vec::new(),
        }
    }

    fn with_others(count: u8) -> Invitation {
        let other = |number| InvitingProxy {
            addresses: vec![HostPort::from_text(&format!("198.51.100.{number}:51900")).unwrap()],
            public_key: PublicKey::from_bytes([number; KEY_LEN]),
        };
        Invitation { others: (1..=count).map(other).collect(), ..invitation() }
    }

    /// The line of these bytes, with a right checksum.
    fn line_of(mut body: Vec<u8>) -> String {
        let sum = checksum(&body);
        body.extend_from_slice(&sum);
        format!("{PREFIX}{}", BASE32_NOPAD.encode(&body))
    }

    #[test]
    fn a_line_reads_back_as_written_in_any_case_and_folded() {
        let line = invitation().to_line();
        assert!(line.starts_with("ropewalk:a"), "{}", *line);
        assert!(!line.contains(|c: char| c.is_whitespace()));
        let (head, tail) = line.split_at(70);
        let ways = [
            line.to_string(),
            format!("  {}\n", *line),
            invitation().to_capitals().to_string(),
            format!("{head}\r\n   {tail}"),
        ];
        for way in ways {
            assert_eq!(way.parse::<Invitation>(), Ok(invitation()), "{way}");
        }
        // One IPv4 and one IPv6 address make a QR code that fits a terminal of 80 by 24.
        let mut usual = invitation();
        usual.addresses.truncate(2);
        assert!(usual.to_line().len() <= 154, "{}", usual.to_line().len());
    }

    #[test]
    fn other_proxies_of_the_fleet_are_read_back_and_one_alone_is_written_as_ever() {
        for count in 0..=3 {
            let line = with_others(count).to_line();
            assert_eq!(line.parse::<Invitation>(), Ok(with_others(count)));
            let bytes = BASE32_NOPAD.decode(line[PREFIX.len()..].to_ascii_uppercase().as_bytes());
            assert_eq!(bytes.unwrap()[0], if count == 0 { 1 } else { 2 });
        }
        let mut one_too_many = with_others(3);
        one_too_many.others.push(one_too_many.others[0].clone());
        assert_eq!(one_too_many.to_line().parse::<Invitation>(), Ok(with_others(3)));
    }

    #[test]
    fn other_proxies_that_make_no_sense_are_refused_with_a_sentence() {
        // Where the others begin: after the first proxy's three addresses.
        const OTHERS: usize = 1 + 5 + 32 + 16 + 1 + 7 + 19 + 19;
        let whole = with_others(2).to_bytes();
        let others = whole.len() - CHECKSUM_BYTES - 2 * 40 - 1;
        assert_eq!((others, whole[others]), (OTHERS, 2));
        type Change = fn(&mut [u8]);
        let table: [(Change, &str); 8] = [
            (|others| others[0] = 0, "it names 0 other proxies"),
            (|others| others[0] = 4, "it names 4 other proxies"),
            (|others| others[0] = 3, "it ends too soon"),
            (|others| others[0] = 1, "something follows its end"),
            (|others| others[1..33].fill(0), "a proxy's key is all zeros"),
            (|others| others[1..33].fill(0xa5), "two proxies have the same key"),
            (|others| others[1..33].fill(2), "two proxies have the same key"),
            (|others| others[33] = 3, "a proxy has 3 addresses"),
        ];
        for (change, expected) in table {
            let mut bytes = whole[..whole.len() - CHECKSUM_BYTES].to_vec();
            change(&mut bytes[others..]);
            let error = line_of(bytes).parse::<Invitation>().unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn every_single_change_is_found() {
        let line = invitation().to_line().to_string();
        for at in 0..line.len() {
            let mut other = line.clone().into_bytes();
            for replacement in *b"a7x" {
                other[at] = replacement;
                let text = String::from_utf8(other.clone()).unwrap();
                if text != line {
                    assert!(text.parse::<Invitation>().is_err(), "{at}: {text}");
                }
            }
            let mut lost = line.clone();
            lost.remove(at);
            assert!(lost.parse::<Invitation>().is_err(), "{lost}");
            let error = line[..at].parse::<Invitation>().unwrap_err();
            if at > PREFIX.len() {
                let cut = matches!(error, InvitationError::CutOff | InvitationError::Checksum);
                assert!(cut, "{at}: {error}");
            }
        }
    }

    #[test]
    fn every_damage_says_what_to_do() {
        let line = invitation().to_line().to_string();
        let swapped = {
            let mut bytes = line.clone().into_bytes();
            let at = (20..).find(|&at| bytes[at] != bytes[at + 1]).unwrap();
            bytes.swap(at, at + 1);
            String::from_utf8(bytes).unwrap()
        };
        let newer = {
            let mut bytes = invitation().to_bytes().to_vec();
            bytes[0] = 3;
            format!("{PREFIX}{}", BASE32_NOPAD.encode(&bytes))
        };
        let body = |change: fn(&mut Vec<u8>)| {
            let mut bytes = invitation().to_bytes().to_vec();
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            change(&mut bytes);
            line_of(bytes)
        };
        const COUNT: usize = 1 + 5 + 32 + 16;
        let table: Vec<(String, &str)> = vec![
            (String::new(), "there is no invitation"),
            (" \n".to_owned(), "there is no invitation"),
            ("rope".to_owned(), "begins with `ropewalk:`"),
            ("https://example.org/invitation".to_owned(), "begins with `ropewalk:`"),
            ("zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=".to_owned(), "this is a key"),
            (line[9..].to_owned(), "begins with `ropewalk:`"),
            ("ropewalk:".to_owned(), "cut off"),
            (line[..line.len() - 1].to_owned(), "cut off"),
            (line[..40].to_owned(), "cut off"),
            (line.replacen('a', "0", 1), "begins with"),
            (format!("{}0{}", &line[..20], &line[21..]), "`0` at place 21 never stands"),
            (format!("{}\u{7f}{}", &line[..20], &line[21..]), "`\\u{7f}` at place 21"),
            (format!("{}é{}", &line[..20], &line[21..]), "`é` at place 21"),
            (swapped, "checksum is wrong"),
            (format!("{line}aaaaaaaa"), "checksum is wrong"),
            (newer, "has version 3"),
            ("a".repeat(MAX_LINE + 1), "8193 characters"),
            (body(|bytes| bytes[6..38].fill(0)), "all zeros"),
            (body(|bytes| bytes[COUNT] = 0), "a proxy has 0 addresses"),
            (body(|bytes| bytes[COUNT] = 9), "a proxy has 9 addresses"),
            (body(|bytes| bytes[COUNT] = 4), "it ends too soon"),
            (body(|bytes| bytes[COUNT] = 2), "something follows its end"),
            (body(|bytes| bytes[COUNT + 1] = 5), "an address of kind 5"),
            (body(|bytes| bytes[COUNT + 2..COUNT + 6].fill(0)), "no machine's address"),
            (body(|bytes| bytes[COUNT + 6..COUNT + 8].fill(0)), "port 0"),
            (body(|bytes| *bytes.iter_mut().rfind(|b| **b == b'v').unwrap() = b' '), "no name"),
        ];
        for (text, expected) in table {
            let error = text.parse::<Invitation>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_expired_one_says_since_when_and_by_which_clock() {
        let invitation = invitation();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(invitation.check_expiry(at(1_899_999_999)), Ok(()));
        let error = invitation.check_expiry(at(1_900_007_200)).unwrap_err().to_string();
        assert!(error.contains("expired 2h ago by this machine's clock"), "{error}");
    }

    #[test]
    fn no_error_and_no_debug_output_repeats_the_secret() {
        let shown = format!("{:?}", invitation());
        assert!(!shown.contains("60") && shown.contains("InvitationToken(secret)"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,300}") {
            let _ = text.parse::<Invitation>();
            let _ = format!("{PREFIX}{text}").parse::<Invitation>();
        }

        #[test]
        fn any_bytes_with_a_right_checksum_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            for version in [VERSION, VERSION_WITH_OTHERS] {
                let mut first = vec![version];
                first.extend(&body);
                if let Ok(read) = line_of(first).parse::<Invitation>() {
                    prop_assert_eq!(read.to_line().parse::<Invitation>(), Ok(read.clone()));
                }
            }
        }
    }
}
