//! What a secret or an address looks like at the beginning of a text.

use std::iter::successors;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ropewalk_control::invitation::PREFIX;

use super::chosen::{self, Chosen};

/// Letters behind [`PREFIX`] from which on it is an invitation: the shortest has 89, and a part of one is none of anybody's
/// business either.
const LEAST_INVITATION: usize = 16;

/// Characters of a key of 32 bytes in base64, before the `=` behind them.
const KEY_LETTERS: usize = 43;

/// Characters from which on what is drawn at random is a key, though some of it be missing.
const LEAST_DRAWN: usize = 40;

/// How far it is looked for the end of a key, so that no text is slow: a longer one is drawn at random all the more.
const MOST_OF_A_KEY: usize = 256;

/// The longest address as it is written has 45 characters, and some punctuation behind it.
const MOST_OF_AN_ADDRESS: usize = 64;

/// Letters and digits without a pause from which on they are no word: 16 bytes in hexadecimal.
const LEAST_TOKEN: usize = 32;

/// Groups of a hardware address: of Ethernet, and of InfiniBand.
const LEAST_MAC_GROUPS: usize = 6;
const MOST_MAC_GROUPS: usize = 20;

/// What begins a block of a key or certificate (RFC 7468).
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An invitation, or a part of one.
    Invitation,
    /// A block of a key or certificate.
    Pem,
    /// A key of 32 bytes, whose ever.
    Key(String),
    /// Letters and digits that are no word.
    Token(String),
    /// A hardware address, by its digits.
    Mac(String),
    /// The same in the name of an interface, behind its first letters.
    MacInName(String, String),
    /// An address that says where on the Internet somebody is, or which machine it is.
    Address(IpAddr),
    /// A home folder: whose.
    Home,
    /// An address of the web.
    Url(Url),
    /// What tells of the programs and domains that are chosen for a tunnel.
    Chosen(Chosen),
}

/// An address of the web, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: &'static str,
    /// With its port, without user and password.
    pub(super) host: String,
    /// Something follows.
    pub(super) has_more: bool,
}

/// What stands at the beginning of `rest`, and its bytes; `before` is the character in front of it.
pub(super) fn at(before: Option<char>, rest: &str) -> Option<(usize, Shape)> {
    let follows_letters = before.is_some_and(|c| c.is_ascii_alphanumeric());
    if let Some(found) = pem(rest) {
        return Some(found);
    }
    if let Some(found) = key(rest) {
        return Some(found);
    }
    if follows_letters {
        return None;
    }
    invitation(rest)
        .or_else(|| chosen::at(rest).map(|(length, chosen)| (length, Shape::Chosen(chosen))))
        .or_else(|| url(rest))
        .or_else(|| home(before, rest))
        .or_else(|| mac(rest))
        .or_else(|| address(before, rest))
        .or_else(|| mac_in_name(rest))
        .or_else(|| token(rest))
}

/// The bytes at the beginning of a text that fulfil this.
pub(super) fn run(rest: &str, is: impl Fn(u8) -> bool) -> usize {
    run_within(rest, usize::MAX, is)
}

/// The same, counted up to `most`.
pub(super) fn run_within(rest: &str, most: usize, is: impl Fn(u8) -> bool) -> usize {
    rest.bytes().take(most).position(|byte| !is(byte)).unwrap_or(rest.len().min(most))
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/'
}

fn pem(rest: &str) -> Option<(usize, Shape)> {
    if !rest.starts_with(PEM_BEGIN) {
        return None;
    }
    // Without an end all that follows may be of it.
    let end = rest.find(PEM_END).and_then(|at| {
        let after = &rest[at + PEM_END.len()..];
        Some(at + PEM_END.len() + after.find("-----")? + "-----".len())
    });
    Some((end.unwrap_or(rest.len()), Shape::Pem))
}

/// 43 characters and a `=`; what is glued to their front goes with them. A damaged one too, where it is no path.
fn key(rest: &str) -> Option<(usize, Shape)> {
    let length = run_within(rest, MOST_OF_A_KEY, is_base64);
    if length < LEAST_DRAWN {
        return None;
    }
    let (letters, after) = rest.split_at(length);
    let key = || Shape::Key(letters[length.saturating_sub(KEY_LETTERS)..].to_owned());
    if length >= KEY_LETTERS && after.starts_with('=') {
        return Some((length + 1, key()));
    }
    let has = |is: fn(&u8) -> bool| letters.bytes().any(|byte| is(&byte));
    let is_drawn = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let is_drawn = is_drawn && has(u8::is_ascii_digit);
    is_drawn.then(|| (length, key()))
}

fn invitation(rest: &str) -> Option<(usize, Shape)> {
    let (word, body) = rest.split_at_checked(PREFIX.len())?;
    if !word.eq_ignore_ascii_case(PREFIX) {
        return None;
    }
    let length = run(body, |byte| byte.is_ascii_alphabetic() || (b'2'..=b'7').contains(&byte));
    (length >= LEAST_INVITATION).then_some((PREFIX.len() + length, Shape::Invitation))
}

fn url(rest: &str) -> Option<(usize, Shape)> {
    let is_it =
        |scheme: &str| rest.strip_prefix(scheme).is_some_and(|after| after.starts_with("://"));
    let scheme = ["http", "https"].into_iter().find(|scheme| is_it(scheme))?;
    let body = &rest[scheme.len() + 3..];
    let ends = |c: char| c.is_whitespace() || c.is_control() || "\"'`<>,;()".contains(c);
    let length = body.find(ends).unwrap_or(body.len());
    let body = &body[..length];
    let authority = body.split(['/', '?', '#']).next().unwrap_or_default();
    let has_more = authority.len() < body.len();
    // What is before the last @ is a user, and perhaps a password (RFC 3986 §3.2.1).
    let host = authority.rsplit('@').next().unwrap_or_default().to_owned();
    Some((scheme.len() + 3 + length, Shape::Url(Url { scheme, host, has_more })))
}

fn home(before: Option<char>, rest: &str) -> Option<(usize, Shape)> {
    const HOME: &str = "/home/";

    let name = rest.strip_prefix(HOME).filter(|_| before != Some('/'))?;
    let length = name.find(|c: char| !(c.is_alphanumeric() || "._-@".contains(c)));
    let length = length.unwrap_or(name.len());
    (length > 0).then_some((HOME.len() + length, Shape::Home))
}

/// Groups of two hexadecimal digits with a colon or a hyphen between them.
fn mac(rest: &str) -> Option<(usize, Shape)> {
    let bytes = rest.as_bytes();
    let between = *bytes.get(2).filter(|byte| matches!(**byte, b':' | b'-'))?;
    let is_group = |at: usize| {
        bytes.get(at..at + 2).is_some_and(|group| group.iter().all(u8::is_ascii_hexdigit))
    };
    let mut groups = 0;
    while groups < MOST_MAC_GROUPS && is_group(3 * groups) {
        groups += 1;
        if bytes.get(3 * groups - 1) != Some(&between) {
            break;
        }
    }
    let length = (3 * groups).checked_sub(1)?;
    let goes_on = bytes.get(length).is_some_and(u8::is_ascii_alphanumeric);
    if groups < LEAST_MAC_GROUPS || goes_on {
        return None;
    }
    let digits: String = rest[..length].chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits.to_ascii_lowercase();
    // Nobody's, and everybody's.
    let is_nobodys = digits.bytes().all(|byte| byte == b'0' || byte == b'f');
    (!is_nobodys).then_some((length, Shape::Mac(digits)))
}

/// systemd calls an interface by its hardware address where it has no place in the machine: `enx`, `wlx`, `wwx`.
fn mac_in_name(rest: &str) -> Option<(usize, Shape)> {
    const KIND: usize = 3;
    const DIGITS: usize = 12;

    let length = run(rest, |byte| byte.is_ascii_alphanumeric());
    let (kind, digits) = rest[..length].split_at_checked(KIND)?;
    let is_kind = kind.ends_with('x') && kind.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_mac = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_kind && is_mac)
        .then(|| (length, Shape::MacInName(kind.to_owned(), digits.to_ascii_lowercase())))
}

fn token(rest: &str) -> Option<(usize, Shape)> {
    let length = run(rest, |byte| byte.is_ascii_alphanumeric());
    let letters = &rest[..length];
    let is_token = length >= LEAST_TOKEN && letters.bytes().any(|byte| byte.is_ascii_digit());
    is_token.then(|| (length, Shape::Token(letters.to_owned())))
}

fn address(before: Option<char>, rest: &str) -> Option<(usize, Shape)> {
    if before == Some('.') {
        return None;
    }
    let is_of_v6 = |byte: u8| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.';
    let of_v6 = run_within(rest, MOST_OF_AN_ADDRESS, is_of_v6);
    let of_v4 = run_within(rest, MOST_OF_AN_ADDRESS, |byte| byte.is_ascii_digit() || byte == b'.');
    let (length, address) = match parsed::<Ipv6Addr>(&rest[..of_v6]) {
        Some((length, v6)) => (length, IpAddr::V6(v6)),
        None => {
            let (length, v4) = parsed::<Ipv4Addr>(&rest[..of_v4])?;
            (length, IpAddr::V4(v4))
        }
    };
    let goes_on = rest[length..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    (!goes_on && tells(address)).then_some((length, Shape::Address(address)))
}

/// An address, without the punctuation behind it: no more than an ellipsis.
fn parsed<A: FromStr>(text: &str) -> Option<(usize, A)> {
    let mut texts = successors(Some(text), |text| text.strip_suffix(['.', ':'])).take(4);
    texts.find_map(|text| Some((text.len(), text.parse().ok()?)))
}

/// Whether an address says where on the Internet somebody is, or which machine it is. Those of private networks, of a
/// carrier's own (RFC 6598) and those with a meaning of their own do not.
fn tells(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let is_carriers = first == 100 && (64..128).contains(&second);
            let is_special = first == 0 || first >= 224 || v4.is_loopback() || v4.is_link_local();
            !(v4.is_private() || is_carriers || is_special)
        }
        IpAddr::V6(v6) => {
            if let Some(v4) = v6.to_ipv4_mapped() {
                return tells(IpAddr::V4(v4));
            }
            let octets = v6.octets();
            // Made of a hardware address (RFC 4291, appendix A).
            let has_mac = octets[11..13] == [0xff, 0xfe];
            let is_special = v6.is_unspecified() || v6.is_loopback() || v6.is_multicast();
            let is_near = v6.is_unicast_link_local() || v6.is_unique_local();
            !is_special && (has_mac || !is_near)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_say_where_or_who_somebody_is_are_found() {
        let kept = "10.77.0.2 172.31.255.1 192.168.1.1 100.64.0.9 127.0.0.1 169.254.3.4 0.0.0.0 \
            255.255.255.0 224.0.0.251 :: ::1 fe80::1 fd12:3456:789a::2 ff02::fb ::ffff:10.0.0.1";
        for kept in kept.split_whitespace() {
            assert_eq!(at(None, kept), None, "{kept}");
        }
        let hidden = "8.8.8.8 203.0.113.7 100.128.0.1 172.32.0.1 2001:db8::1 2a02::5 \
            ::ffff:9.9.9.9 fe80::21b:21ff:fe12:3456 fd00::21b:21ff:fe12:3456";
        for hidden in hidden.split_whitespace() {
            let expected = Shape::Address(hidden.parse().unwrap());
            assert_eq!(at(None, hidden), Some((hidden.len(), expected)), "{hidden}");
        }
    }

    #[test]
    fn what_only_looks_alike_is_left() {
        let left = "1.2.3 1.2.3.4.5 16:32:00 2026-11-27T16:32:00 6.18.44 cafe ::x ropewalk: \
            ropewalk:client aa:bb:cc:dd:ee 00:00:00:00:00:00 ff:ff:ff:ff:ff:ff enx00112233445 \
            an_ordinary_name_of_a_test_that_is_very_long -----END http:/x \
            /usr/lib/systemd/system/ropewalk-client.service";
        for text in left.split_whitespace() {
            assert_eq!(at(None, text), None, "{text}");
        }
        // Behind letters nothing begins but a key.
        assert_eq!(at(Some('v'), "1.2.3.4"), None);
        assert_eq!(at(Some('.'), "9.9.9.9"), None);
    }

    #[test]
    fn each_shape_ends_where_it_ends() {
        let key = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk";
        let hex = "0123456789abcdef0123456789abcdef";
        let invitation = format!("ROPEWALK:{}", "AEAG5".repeat(20));
        let url = |host: &str, has_more| {
            Shape::Url(Url { scheme: "https", host: host.to_owned(), has_more })
        };
        let table = [
            (format!("{key}=\""), 44, Shape::Key(key.to_owned())),
            (format!("/{key}= x"), 45, Shape::Key(key.to_owned())),
            (format!("{key} x"), 43, Shape::Key(key.to_owned())),
            (format!("{} x", &key[..41]), 41, Shape::Key(key[..41].to_owned())),
            (format!("{invitation}, x"), invitation.len(), Shape::Invitation),
            ("9.9.9.9:53".to_owned(), 7, Shape::Address("9.9.9.9".parse().unwrap())),
            ("9.9.9.9.".to_owned(), 7, Shape::Address("9.9.9.9".parse().unwrap())),
            ("2a02::5: no".to_owned(), 7, Shape::Address("2a02::5".parse().unwrap())),
            ("2a02::/16".to_owned(), 6, Shape::Address("2a02::".parse().unwrap())),
            ("00:1B:21:12:34:56 b".to_owned(), 17, Shape::Mac("001b21123456".to_owned())),
            ("00-1b-21-12-34-56".to_owned(), 17, Shape::Mac("001b21123456".to_owned())),
            (
                "enx001b21123456: x".to_owned(),
                15,
                Shape::MacInName("enx".to_owned(), "001b21123456".to_owned()),
            ),
            ("/home/anna/x".to_owned(), 10, Shape::Home),
            ("https://u:p@a.example:2379/v3?x=1 b".to_owned(), 33, url("a.example:2379", true)),
            ("https://[2a02::5]:2379,".to_owned(), 22, url("[2a02::5]:2379", false)),
            (
                "-----BEGIN PRIVATE KEY-----\nMC4\n-----END PRIVATE KEY-----\nx".to_owned(),
                57,
                Shape::Pem,
            ),
            ("-----BEGIN PRIVATE KEY-----\nMC4".to_owned(), 31, Shape::Pem),
            (format!("{hex}."), 32, Shape::Token(hex.to_owned())),
        ];
        for (text, length, shape) in table {
            assert_eq!(at(None, &text), Some((length, shape)), "{text}");
        }
    }
}
