//! The addresses of domains, for as long as they are good: what the kernel's sets hold, with where the kernel is not asked.
//!
//! An address is good for as long as the answer may be kept by whoever asked (its TTL), and some time more: programs connect
//! again without asking. It is forgotten by the kernel itself. Of each rule a bounded number is known; beyond that, those that
//! were answered longest ago go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Rule;
use super::chains::set_of;

/// Most addresses of one rule.
pub const MAX_ADDRESSES: usize = 4096;

/// How long an address is good at least, and at most. Many answers may be kept for less than a minute, and browsers keep them for
/// one all the same; what is kept for longer than a day is asked again with the next day's addresses.
const GOOD: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(86_400));

/// An address that an answer gave to a name that a rule means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The number of the rule.
    pub rule: u16,
    /// The address.
    pub address: IpAddr,
    /// How long the answer may be kept.
    pub ttl: Duration,
}

/// The addresses of all rules.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    of: BTreeMap<u16, Known>,
}

/// Those of one rule.
#[derive(Clone, Debug, Default)]
struct Known {
    until: BTreeMap<IpAddr, Instant>,
    /// The same by when they were answered last.
    order: BTreeSet<(u64, IpAddr)>,
    last: BTreeMap<IpAddr, u64>,
    answers: u64,
    /// So many were forgotten because there were too many.
    forgotten: u64,
    /// When it was looked for the last time what is over.
    swept: Option<Instant>,
}

/// What is over is looked for among all addresses of a rule, so no more often than this, however fast others come.
const SWEEP: Duration = Duration::from_secs(1);

/// What is to be changed in the kernel's sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// To be there for so long, each with its rule.
    add: Vec<(u16, IpAddr, Duration)>,
    /// Of these: there already, for less long.
    again: Vec<(u16, IpAddr, Duration)>,
    /// Not to be there any more.
    remove: Vec<(u16, IpAddr)>,
}

impl Learned {
    /// Keeps only what these rules learned.
    pub fn retain(&mut self, rules: &[Rule]) {
        self.of.retain(|id, _| rules.iter().any(|rule| rule.id == *id));
    }

    /// Notes what answers gave, and says what of it the kernel does not have yet.
    pub fn note(&mut self, now: Instant, answered: &[Answered]) -> Change {
        let mut change = Change::default();
        let mut rules = BTreeSet::new();
        for Answered { rule, address, ttl } in answered.iter().copied() {
            self.of.entry(rule).or_default().note(now, rule, address, ttl, &mut change);
            rules.insert(rule);
        }
        for rule in rules {
            self.of.entry(rule).or_default().forget(now, rule, &mut change);
        }
        // What went and came again stays, and what came and went was never there.
        let is_known = |rule: &u16, address: &IpAddr| {
            self.of.get(rule).is_some_and(|known| known.until.contains_key(address))
        };
        change.remove.retain(|(rule, address)| !is_known(rule, address));
        let gone: BTreeSet<_> = change.remove.iter().copied().collect();
        let stays =
            |(rule, address, _): &(u16, IpAddr, Duration)| !gone.contains(&(*rule, *address));
        change.add.retain(stays);
        change.again.retain(stays);
        change
    }

    /// How many addresses of a rule are known now. All of them are looked at.
    #[must_use]
    pub fn count(&self, now: Instant, rule: u16) -> usize {
        let known = self.of.get(&rule);
        known.map_or(0, |known| known.until.values().filter(|until| **until > now).count())
    }

    /// How many addresses of a rule were forgotten because there were too many.
    #[must_use]
    pub fn forgotten(&self, rule: u16) -> u64 {
        self.of.get(&rule).map_or(0, |known| known.forgotten)
    }

    /// All that is good now, to be put into new sets.
    #[must_use]
    pub fn all(&self, now: Instant) -> Change {
        let add = self.of.iter().flat_map(|(rule, known)| {
            let good = known.until.iter().filter(|(_, until)| **until > now);
            good.map(|(address, until)| (*rule, *address, until.duration_since(now)))
        });
        Change { add: add.collect(), ..Change::default() }
    }
}

impl Known {
    fn note(
        &mut self,
        now: Instant,
        rule: u16,
        address: IpAddr,
        ttl: Duration,
        change: &mut Change,
    ) {
        self.answers += 1;
        if let Some(before) = self.last.insert(address, self.answers) {
            self.order.remove(&(before, address));
        }
        self.order.insert((self.answers, address));
        let good = (2 * ttl).clamp(GOOD.0, GOOD.1);
        match self.until.get(&address).copied() {
            // Whoever has this answer asks again before it is over.
            Some(until) if until >= now + ttl.min(GOOD.1 / 2) && until > now => return,
            // The kernel forgets it at that moment, by its own clock.
            Some(_) => change.again.push((rule, address, good)),
            None => change.add.push((rule, address, good)),
        }
        self.until.insert(address, now + good);
    }

    /// Forgets what is over, and what is too much.
    fn forget(&mut self, now: Instant, rule: u16, change: &mut Change) {
        if self.until.len() <= MAX_ADDRESSES {
            return;
        }
        if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
            self.swept = Some(now);
            let over: Vec<IpAddr> =
                self.until.iter().filter(|(_, until)| **until <= now).map(|(ip, _)| *ip).collect();
            for address in over {
                self.drop(address);
            }
        }
        while self.until.len() > MAX_ADDRESSES
            && let Some((_, oldest)) = self.order.first().copied()
        {
            self.drop(oldest);
            self.forgotten += 1;
            change.remove.push((rule, oldest));
        }
    }

    fn drop(&mut self, address: IpAddr) {
        self.until.remove(&address);
        if let Some(last) = self.last.remove(&address) {
            self.order.remove(&(last, address));
        }
    }
}

impl Change {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.again.is_empty() && self.remove.is_empty()
    }

    /// As commands of `nft` for the table of this name; what is no address of one of these rules is left out.
    ///
    /// An element that is there keeps its time when it is added (by older kernels), and one that is not there cannot be deleted;
    /// so what may or may not be there is added, deleted, and added again, in one transaction.
    #[must_use]
    pub fn commands(&self, table: &str, rules: &[Rule]) -> String {
        let set = |id: u16, address: IpAddr| {
            rules.iter().find(|rule| rule.id == id).map(|rule| set_of(rule, address))
        };
        let timed = |(id, address, time): &(u16, IpAddr, Duration)| {
            Some((set(*id, *address)?, format!("{address} timeout {}s", time.as_secs().max(1))))
        };
        let bare = |(id, address): (u16, IpAddr)| Some((set(id, address)?, address.to_string()));
        let again = || self.again.iter().map(|(id, address, _)| (*id, *address));
        let gone = || self.remove.iter().copied().chain(again());
        let soon = Duration::from_secs(1);
        let leaving: Vec<_> =
            self.remove.iter().map(|(id, address)| (*id, *address, soon)).collect();
        let there = self.add.iter().chain(&self.again).chain(&leaving);
        let mut text = String::new();
        command(&mut text, "add", table, there.filter_map(timed));
        command(&mut text, "delete", table, gone().filter_map(bare));
        command(&mut text, "add", table, self.again.iter().filter_map(timed));
        text
    }
}

/// One command for each set that elements are for.
fn command(
    text: &mut String,
    word: &str,
    table: &str,
    elements: impl Iterator<Item = (String, String)>,
) {
    let mut by_set: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (set, element) in elements {
        by_set.entry(set).or_default().push(element);
    }
    for (set, elements) in by_set {
        writeln!(text, "{word} element inet {table} {set} {{ {} }}", elements.join(", "))
            .expect("writing to a string");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::rules;
    use ropewalk_settings::{Selector, Text as _};

    fn domain() -> Rule {
        rules(&[], &[Selector::from_text("domain:example.org").unwrap()]).remove(0)
    }

    fn answered(rule: &Rule, address: &str, ttl: u64) -> Answered {
        let ttl = Duration::from_secs(ttl);
        Answered { rule: rule.id, address: address.parse().unwrap(), ttl }
    }

    fn commands(rule: &Rule, change: &Change) -> String {
        change.commands("t", std::slice::from_ref(rule)).replace(&rule.name(), "r")
    }

    #[test]
    fn an_address_is_good_for_twice_its_time_within_bounds_and_told_again_before_that_is_over() {
        let (rule, mut learned, start) = (domain(), Learned::default(), Instant::now());
        let mut at = |second: u64, address: &str, ttl: u64| {
            let now = start + Duration::from_secs(second);
            commands(&rule, &learned.note(now, &[answered(&rule, address, ttl)]))
        };
        let add = |address: &str, family: u8, time: u64| {
            format!("add element inet t r_{family} {{ {address} timeout {time}s }}\n")
        };
        assert_eq!(at(0, "192.0.2.1", 60), add("192.0.2.1", 4, 300));
        assert_eq!(at(0, "2001:db8::1", 3600), add("2001:db8::1", 6, 7200));
        assert_eq!(at(0, "192.0.2.2", 10_000_000), add("192.0.2.2", 4, 86_400));
        assert_eq!(at(0, "192.0.2.3", 0), add("192.0.2.3", 4, 300));
        // Still good for as long as this answer, or for half a day.
        assert_eq!(at(240, "192.0.2.1", 60), "");
        assert_eq!(at(3600, "192.0.2.2", 10_000_000), "");
        // Good for less long than that; the kernel may have forgotten it.
        let again = |address: &str, time: u64| {
            let added = add(address, 4, time);
            format!("{added}delete element inet t r_4 {{ {address} }}\n{added}")
        };
        assert_eq!(at(241, "192.0.2.1", 60), again("192.0.2.1", 300));
        assert_eq!(at(5000, "192.0.2.1", 60), again("192.0.2.1", 300));
        assert_eq!(at(50_000, "192.0.2.2", 10_000_000), again("192.0.2.2", 86_400));
    }

    #[test]
    fn of_addresses_without_end_those_answered_longest_ago_are_forgotten() {
        let (rule, mut learned, now) = (domain(), Learned::default(), Instant::now());
        let address = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(0xc612_0000 + n));
        let many = 5000;
        let ttl = Duration::from_secs(60);
        let answer = |n: u32| Answered { rule: rule.id, address: address(n), ttl };
        let id = rule.id;
        let counts = |learned: &Learned, at| (learned.count(at, id), learned.forgotten(id));
        for from in (0..many).step_by(100) {
            let answers: Vec<Answered> = (from..from + 100).map(answer).collect();
            // One that is asked for all the time stays.
            learned.note(now, &[answer(0)]);
            learned.note(now, &answers);
        }
        assert_eq!(counts(&learned, now), (MAX_ADDRESSES, 904));
        let kept: BTreeSet<IpAddr> = learned.all(now).add.iter().map(|(_, ip, _)| *ip).collect();
        assert!(kept.contains(&address(0)) && kept.contains(&address(many - 1)));
        assert!(!kept.contains(&address(1)) && !kept.contains(&address(904)));
        assert!(kept.contains(&address(905)));
        let change = learned.note(now, &[answer(many)]);
        let expected = format!(
            "add element inet t r_4 {{ {} timeout 300s, {} timeout 1s }}\ndelete element inet t r_4 {{ {} }}\n",
            address(many),
            address(905),
            address(905)
        );
        assert_eq!(commands(&rule, &change), expected);
        // What is over makes room first.
        let later = now + Duration::from_secs(1000);
        learned.note(later, &[answer(many + 1)]);
        assert_eq!(counts(&learned, later), (1, 905));
    }

    #[test]
    fn an_answer_with_more_than_there_is_room_for_leaves_its_last_ones() {
        let (rule, mut learned, now) = (domain(), Learned::default(), Instant::now());
        let address = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(0xc612_0000 + n));
        let answers: Vec<Answered> = (0..5000)
            .map(|n| Answered { rule: rule.id, address: address(n), ttl: Duration::ZERO })
            .collect();
        let change = learned.note(now, &answers);
        assert_eq!(change.add.len(), MAX_ADDRESSES);
        assert!(change.add.iter().all(|(_, ip, _)| *ip >= address(904)));
        assert_eq!(learned.count(now, rule.id), MAX_ADDRESSES);
        assert_eq!(learned.forgotten(rule.id), 904);
    }

    #[test]
    fn of_a_rule_that_is_full_a_long_answer_takes_little_time() {
        let (rule, mut learned, now) = (domain(), Learned::default(), Instant::now());
        let ttl = Duration::from_secs(60);
        let answer = |n: u32| {
            let address = std::net::Ipv4Addr::from(0xc612_0000 + n).into();
            Answered { rule: rule.id, address, ttl }
        };
        let begun = Instant::now();
        for from in (0..500_000).step_by(5000) {
            let answers: Vec<Answered> = (from..from + 5000).map(answer).collect();
            assert_eq!(learned.note(now, &answers).add.len(), MAX_ADDRESSES);
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_a_rule_learned_goes_with_it_and_all_of_the_others_is_put_into_new_sets() {
        let mut learned = Learned::default();
        let now = Instant::now();
        let both = ["domain:example.org", "domain:example.net"]
            .map(|text| Selector::from_text(text).unwrap());
        let both = rules(&both, &[]);
        for rule in &both {
            learned
                .note(now, &[answered(rule, "192.0.2.1", 60), answered(rule, "2001:db8::1", 60)]);
        }
        assert_eq!(learned.all(now).commands("t", &both).lines().count(), 4);
        learned.retain(&both[..1]);
        let rest = learned.all(now + Duration::from_secs(100)).commands("t", &both);
        let name = both[0].name();
        assert_eq!(
            rest,
            format!(
                "add element inet t {name}_4 {{ 192.0.2.1 timeout 200s }}\n\
                 add element inet t {name}_6 {{ 2001:db8::1 timeout 200s }}\n"
            )
        );
        assert!(learned.all(now + Duration::from_secs(301)).is_empty());
    }
}
