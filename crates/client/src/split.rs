//! What goes through the tunnel, and what around it, beyond prefixes: by the program that sends it, and by the name under which
//! its destination was looked up.
//!
//! An entry of `exclude` chooses what goes around the tunnel ([`Side::Outside`]), one of `routes` what goes through it
//! ([`Side::Inside`]). Each is a [`Rule`] with a number of its own.
//!
//! ```text
//!  a connection's first packet ──▶ the rules, those of `exclude` first ──▶ the connection's mark: the rule's number
//!  every packet of it ──▶ the connection's mark ──▶ the packet's mark ──▶ routing rules (`routes`)
//! ```
//!
//! * **A connection stays where it began**, whatever becomes of the rule's users, control groups and addresses: its address is
//!   the tunnel's or a link's, and no other end would know it under another. Where the rule itself is taken out, its
//!   connections are refused, so that programs begin others.
//! * **The source address** is chosen before a mark can lead elsewhere, so it is that of the other side: it is translated
//!   (masquerade), and answers are marked before reverse path filtering asks about them.
//! * **A family without an inner address** is refused to what is to go through the tunnel. For what is to go around it such
//!   packets must come as far as the marks; what has none is refused then.
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`chains`] | the firewall table for it, as text |
//! | [`table`] | that table in the kernel: what is counted, what is learned |
//! | [`users`] | which number a user has |
//! | [`cgroups`] | which control groups run; `watch` tells when others come |
//! | [`answers`] | which addresses an answer of a name server gives to which rule |
//! | [`learned`] | the addresses of domains, for as long as they are good |
//! | [`forwarder`] | hands questions to the name servers, and shows the answers before anybody connects |

pub mod answers;
pub mod cgroups;
pub mod chains;
pub mod forwarder;
pub mod learned;
pub mod table;
pub mod users;
pub(crate) mod watch;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use ropewalk_settings::{Selector, Side};

use crate::routes::Numbers;

/// An entry of `routes` or `exclude` that is no prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number: the same for the same entry, also after a restart, and no other rule's. Never 0.
    pub id: u16,
    /// Where what it chooses goes.
    pub side: Side,
    /// What it chooses.
    pub selector: Selector,
}

impl Rule {
    /// The mark of its connections and their packets.
    #[must_use]
    pub fn mark(&self, numbers: &Numbers) -> u32 {
        numbers.mark_of_side(self.side) + u32::from(self.id)
    }

    /// By this its counter, its chain and its sets are found in the firewall table.
    #[must_use]
    pub fn name(&self) -> String {
        format!("r{:04x}", self.id)
    }
}

/// The rules of these two lists: those of `exclude` first, each once.
#[must_use]
pub fn rules(routes: &[Selector], exclude: &[Selector]) -> Vec<Rule> {
    let mut seen = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let outside = exclude.iter().map(|selector| (Side::Outside, selector));
    let inside = routes.iter().map(|selector| (Side::Inside, selector));
    let all = outside.chain(inside).filter(|(_, selector)| selector.prefix().is_none());
    all.filter(|entry| seen.insert(*entry))
        .map(|(side, selector)| {
            let mut id = digest(side, selector);
            while !ids.insert(id) {
                id = id.checked_add(1).unwrap_or(1);
            }
            Rule { id, side, selector: selector.clone() }
        })
        .collect()
}

/// A number from 1 on that hardly another entry has.
fn digest(side: Side, selector: &Selector) -> u16 {
    let mut hasher = DefaultHasher::new();
    (side, selector.to_string()).hash(&mut hasher);
    let [.., high, low] = hasher.finish().to_be_bytes();
    u16::from_be_bytes([high, low]).max(1)
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleState {
    /// The rule.
    pub rule: Rule,
    /// Of one by control groups: the paths of those that run now.
    pub cgroups: Vec<String>,
    /// Why it chooses nothing at present, or less than is meant, for people.
    pub note: Option<String>,
}

/// What was counted of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that were sent by it.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Of a domain: addresses that are known now.
    pub addresses: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Text as _;

    fn list(entries: &[&str]) -> Vec<Selector> {
        entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
    }

    #[test]
    fn those_of_exclude_come_first_each_once_and_prefixes_are_none() {
        let routes = list(&["0.0.0.0/0", "user:1000", "domain:example.org", "user:1000"]);
        let exclude = list(&["10.0.0.0/8", "app:firefox"]);
        let rules = rules(&routes, &exclude);
        let told: Vec<_> =
            rules.iter().map(|rule| (rule.side, rule.selector.to_string())).collect();
        assert_eq!(
            told,
            [
                (Side::Outside, "app:firefox".to_owned()),
                (Side::Inside, "user:1000".to_owned()),
                (Side::Inside, "domain:example.org".to_owned()),
            ]
        );
    }

    #[test]
    fn a_rule_has_its_number_whatever_stands_beside_it_and_no_two_have_the_same() {
        let alone = rules(&list(&["user:7"]), &[]);
        let among = rules(&list(&["user:8", "user:7"]), &list(&["app:x"]));
        assert!(among.contains(&alone[0]), "{among:?}");
        let many: Vec<Selector> =
            (0..5000).map(|n| list(&[&format!("user:{n}")]).remove(0)).collect();
        let ids: BTreeSet<u16> = rules(&many, &[]).iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), 5000);
        assert!(!ids.contains(&0));
    }

    #[test]
    fn the_marks_of_both_sides_are_told_apart_and_are_none_of_a_link() {
        let numbers = Numbers::default();
        let marks = |rules: &[Rule]| rules[0].mark(&numbers) & 0xffff_0000;
        let outside = marks(&rules(&[], &list(&["user:7"])));
        let inside = marks(&rules(&list(&["user:7"]), &[]));
        assert_eq!([numbers.mark, outside, inside], [0x5257_0000, 0x5258_0000, 0x5259_0000]);
    }
}
