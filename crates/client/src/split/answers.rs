//! Which addresses an answer of a name server gives to which rule (RFC 1035).
//!
//! A rule means the addresses of a question for its domain or a name below it, and those of any name to which such a question
//! leads by aliases (CNAME), or which is an alias of one. So it is the name that was asked for, or any on the way to the address,
//! that counts. Nothing is believed that does not follow from the question: a name server may add what it likes.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder};
use domain::rdata::{A, Aaaa, Cname};
use ropewalk_settings::unusable;

use super::Rule;
use super::learned::Answered;

/// Most aliases of one answer that are followed: resolvers follow fewer.
const MAX_ALIASES: usize = 32;

/// What this answer gives to these rules; nothing if it is none, or is damaged.
#[must_use]
pub fn answered(message: &[u8], rules: &[Rule]) -> Vec<Answered> {
    read(message, rules).unwrap_or_default()
}

fn read(message: &[u8], rules: &[Rule]) -> Option<Vec<Answered>> {
    let message = Message::from_octets(message).ok()?;
    let question = plain(message.sole_question().ok()?.qname())?;
    let aliases = message.answer().ok()?.limit_to::<Cname<_>>().flatten().take(MAX_ALIASES);
    let aliases: Vec<(String, String, u32)> = aliases
        .filter_map(|record| {
            let ttl = record.ttl().as_secs();
            Some((plain(record.owner())?, plain(record.data().cname())?, ttl))
        })
        .collect();
    let names = way(question, &aliases);
    let is_meant = |rule: &&Rule| names.iter().any(|(name, _)| rule.selector.means_domain(name));
    let meant: Vec<u16> = rules.iter().filter(is_meant).map(|rule| rule.id).collect();
    if meant.is_empty() {
        return None;
    }
    let v4 = message.answer().ok()?.limit_to::<A>().flatten().map(|record| {
        let address = IpAddr::from(record.data().addr());
        (plain(record.owner()), address, record.ttl().as_secs())
    });
    let v6 = message.answer().ok()?.limit_to::<Aaaa>().flatten().map(|record| {
        let address = IpAddr::from(record.data().addr());
        (plain(record.owner()), address, record.ttl().as_secs())
    });
    let mut answered = Vec::new();
    for (owner, address, ttl) in v4.chain(v6) {
        let way = names.iter().find(|(name, _)| Some(name) == owner.as_ref());
        let (Some((_, least)), true) = (way, is_usable(address)) else { continue };
        let ttl = Duration::from_secs(u64::from(ttl.min(*least)));
        answered.extend(meant.iter().map(|rule| Answered { rule: *rule, address, ttl }));
    }
    Some(answered)
}

/// The names from the question on, by way of aliases, each with how long the way to it may be kept.
fn way(question: String, aliases: &[(String, String, u32)]) -> Vec<(String, u32)> {
    let mut names = vec![(question, u32::MAX)];
    loop {
        let step = aliases.iter().find_map(|(owner, target, ttl)| {
            let (_, least) = names.iter().find(|(name, _)| name == owner)?;
            let is_new = names.iter().all(|(name, _)| name != target);
            is_new.then(|| (target.clone(), *ttl.min(least)))
        });
        match step {
            Some(step) => names.push(step),
            None => return names,
        }
    }
}

/// A name in lower case without a dot at its end; none if one of its labels holds what is none of a host's.
fn plain(name: &impl Display) -> Option<String> {
    let name = name.to_string().to_ascii_lowercase();
    let bare = name.strip_suffix('.').unwrap_or(&name);
    (!bare.contains('\\')).then(|| bare.to_owned())
}

/// Whether packets to this address can be led anywhere.
fn is_usable(address: IpAddr) -> bool {
    unusable(address).is_none() && !address.to_canonical().is_loopback()
}

/// Whether this is a question.
#[must_use]
pub fn is_question(message: &[u8]) -> bool {
    Message::from_octets(message).is_ok_and(|message| !message.header().qr())
}

/// The name that is asked for, in lower case and without a dot at its end.
#[must_use]
pub fn name_of(question: &[u8]) -> Option<String> {
    let question = Message::from_octets(question).ok()?;
    plain(question.sole_question().ok()?.qname())
}

/// Whether this message answers this question: the same number and the same name and type.
#[must_use]
pub fn is_answer_to(question: &[u8], message: &[u8]) -> bool {
    match (Message::from_octets(question), Message::from_octets(message)) {
        (Ok(question), Ok(message)) => message.is_answer(&question),
        _ => false,
    }
}

/// The answer that a question cannot be answered now (SERVFAIL).
#[must_use]
pub fn failure(question: &[u8]) -> Option<Vec<u8>> {
    let question = Message::from_octets(question).ok()?;
    let answer = MessageBuilder::new_vec().start_answer(&question, Rcode::SERVFAIL).ok()?;
    Some(answer.finish())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::split::rules;
    use ropewalk_settings::{Selector, Text as _};

    /// Types of records: an IPv4 address, an alias, an IPv6 address.
    const KINDS: [u16; 3] = [1, 5, 28];

    fn name(text: &str) -> Vec<u8> {
        let labels = text.split('.').filter(|label| !label.is_empty());
        let mut bytes: Vec<u8> = labels
            .flat_map(|label| {
                [&[u8::try_from(label.len()).unwrap()][..], label.as_bytes()].concat()
            })
            .collect();
        bytes.push(0);
        bytes
    }

    /// A question for the address of this name.
    pub(crate) fn question(id: u16, asked: &str) -> Vec<u8> {
        let mut message = id.to_be_bytes().to_vec();
        message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend(name(asked));
        message.extend([0, 1, 0, 1]);
        message
    }

    /// An answer to that: owner, how long it may be kept, and an address or another name.
    pub(crate) fn answer(id: u16, asked: &str, records: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut message = question(id, asked);
        message[2..4].copy_from_slice(&[0x81, 0x80]);
        message[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        for (owner, ttl, data) in records {
            let (kind, data) = match data.parse() {
                Ok(IpAddr::V4(address)) => (KINDS[0], address.octets().to_vec()),
                Ok(IpAddr::V6(address)) => (KINDS[2], address.octets().to_vec()),
                Err(_) => (KINDS[1], name(data)),
            };
            message.extend(name(owner));
            message.extend(kind.to_be_bytes());
            message.extend([0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            message.extend(data);
        }
        message
    }

    fn domains(names: &[&str]) -> Vec<Rule> {
        let list = names.iter().map(|name| Selector::from_text(&format!("domain:{name}")).unwrap());
        rules(&[], &list.collect::<Vec<_>>())
    }

    fn told(message: &[u8], rules: &[Rule]) -> Vec<String> {
        let found = answered(message, rules);
        let place = |id: u16| rules.iter().position(|rule| rule.id == id).unwrap();
        found
            .iter()
            .map(|one| format!("{} {} {}", place(one.rule), one.address, one.ttl.as_secs()))
            .collect()
    }

    #[test]
    fn addresses_are_those_of_the_question_and_of_what_it_leads_to() {
        let rules = domains(&["example.org", "cdn.test"]);
        /// The question, the records of the answer, and what is learned.
        type Case<'a> = (&'a str, &'a [(&'a str, u32, &'a str)], &'a [&'a str]);
        let table: [Case<'_>; 9] = [
            ("example.org", &[("example.org", 60, "192.0.2.1")], &["0 192.0.2.1 60"]),
            ("WWW.Example.ORG", &[("www.example.org", 60, "2001:db8::1")], &["0 2001:db8::1 60"]),
            ("example.net", &[("example.net", 60, "192.0.2.1")], &[]),
            ("notexample.org", &[("notexample.org", 60, "192.0.2.1")], &[]),
            // An alias out of the domain, by two steps, in any order: what may be kept least counts.
            (
                "www.example.org",
                &[
                    ("b.other.test", 90, "192.0.2.7"),
                    ("a.other.test", 30, "b.other.test"),
                    ("www.example.org", 300, "a.other.test"),
                    ("b.other.test", 20, "192.0.2.8"),
                ],
                &["0 192.0.2.7 30", "0 192.0.2.8 20"],
            ),
            // One into another domain that is meant, too.
            (
                "shop.example.net",
                &[("shop.example.net", 300, "x.cdn.test"), ("x.cdn.test", 30, "192.0.2.9")],
                &["1 192.0.2.9 30"],
            ),
            // What the question does not lead to is not believed.
            (
                "example.net",
                &[("example.net", 60, "192.0.2.1"), ("example.org", 60, "192.0.2.66")],
                &[],
            ),
            (
                "example.org",
                &[("example.org", 60, "example.org"), ("bank.test", 60, "192.0.2.66")],
                &[],
            ),
            // What leads nowhere.
            (
                "example.org",
                &[
                    ("example.org", 60, "0.0.0.0"),
                    ("example.org", 60, "127.0.0.1"),
                    ("example.org", 60, "::1"),
                    ("example.org", 60, "ff02::1"),
                ],
                &[],
            ),
        ];
        for (asked, records, expected) in table {
            assert_eq!(told(&answer(7, asked, records), &rules), expected, "{asked} {records:?}");
        }
    }

    #[test]
    fn an_answer_of_thousands_of_addresses_and_one_of_aliases_without_end_are_read() {
        let rules = domains(&["example.org"]);
        let addresses: Vec<String> =
            (0..4000_u32).map(|n| std::net::Ipv4Addr::from(0xc612_0000 + n).to_string()).collect();
        let records: Vec<_> = addresses.iter().map(|ip| ("example.org", 60, ip.as_str())).collect();
        assert_eq!(told(&answer(7, "example.org", &records), &rules).len(), 4000);
        let names: Vec<String> = (0..200).map(|n| format!("n{n}.test")).collect();
        let mut records: Vec<(&str, u32, &str)> =
            names.windows(2).map(|pair| (pair[0].as_str(), 60, pair[1].as_str())).collect();
        records.insert(0, ("example.org", 60, "n0.test"));
        records.push(("n199.test", 60, "192.0.2.1"));
        assert_eq!(told(&answer(7, "example.org", &records), &rules), [""; 0]);
    }

    #[test]
    fn what_is_damaged_gives_nothing() {
        let rules = domains(&["example.org"]);
        let whole = answer(7, "example.org", &[("example.org", 60, "192.0.2.1")]);
        assert_eq!(told(&whole, &rules).len(), 1);
        for length in 0..whole.len() {
            assert_eq!(told(&whole[..length], &rules), [""; 0], "{length}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            // Whatever it says, reading it ends.
            let _ = answered(&changed, &rules);
        }
        // A name that leads to itself.
        let mut looped = question(7, "example.org");
        looped[12..14].copy_from_slice(&[0xc0, 12]);
        assert_eq!(told(&looped, &rules), [""; 0]);
    }

    #[test]
    fn an_answer_belongs_to_its_question_and_a_failure_is_one() {
        let asked = question(7, "example.org");
        assert!(is_question(&asked) && !is_question(&[0; 4]));
        assert_eq!(name_of(&question(7, "WWW.Example.ORG")).unwrap(), "www.example.org");
        assert_eq!(name_of(&[0; 4]), None);
        let right = answer(7, "example.org", &[]);
        for (message, expected) in [
            (right.clone(), true),
            (answer(8, "example.org", &[]), false),
            (answer(7, "example.net", &[]), false),
            (asked.clone(), false),
            (Vec::new(), false),
        ] {
            assert_eq!(is_answer_to(&asked, &message), expected);
        }
        let failed = failure(&asked).unwrap();
        assert!(is_answer_to(&asked, &failed));
        assert_eq!(failed[3] & 0xf, 2);
        assert_eq!(failure(&[0; 3]), None);
    }
}
