//! What the rules of nftables do to a flow, as far as that is certain.
//!
//! nft and the kernel cannot be asked what they would do to a packet: `nft monitor trace` shows only packets that pass, and for those
//! that the firewall of the user would have to be changed (`meta nftrace set 1`). So the rules are read and followed here.
//!
//! The list is nft's JSON (`libnftables-json(5)`). Rules are followed in their order, as the kernel does. A match that is not
//! understood *may* hold: what it would drop is not told, and what it would accept keeps a policy behind it from being told.
//! So nothing is called a fault that might be none. Tables of our own are left out.

use std::collections::BTreeMap;

use serde_json::Value;

/// Rules that are followed for one flow, over all jumps: more than any host has, and an end for a malicious list.
const MOST_STEPS: usize = 100_000;

/// The kernel's own bound of jumps within jumps.
const MOST_JUMPS: usize = 16;

/// Where a packet is when it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Input,
    Output,
    Forward,
}

impl Hook {
    fn of(name: &str) -> Option<Self> {
        match name {
            "input" => Some(Self::Input),
            "output" => Some(Self::Output),
            "forward" => Some(Self::Forward),
            _ => None,
        }
    }
}

/// What the kernel's table of connections says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is the first.
    New,
    /// It answers others.
    Established,
    /// It is not looked up there: a datagram of the tunnel at the proxy.
    Untracked,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Established => "established",
            Self::Untracked => "untracked",
        }
    }
}

/// Packets that are judged alike. What is `None` is of any value, so no rule about it is certain.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) hook: Hook,
    /// IPv4, else IPv6.
    pub(crate) ipv4: bool,
    /// What the kernel's table of connections says of them.
    pub(crate) state: State,
    /// The interfaces by which they come and leave.
    pub(crate) input: Option<String>,
    pub(crate) output: Option<String>,
    /// What has these ports; without a port: any protocol.
    pub(crate) transport: Transport,
    pub(crate) source_port: Option<u16>,
    pub(crate) destination_port: Option<u16>,
    /// The TUN, where it is what they pass.
    pub(crate) tun: Option<String>,
}

impl Flow {
    pub(crate) const fn new(hook: Hook) -> Self {
        Self {
            hook,
            ipv4: true,
            state: State::New,
            input: None,
            output: None,
            transport: Transport::Udp,
            source_port: None,
            destination_port: None,
            tun: None,
        }
    }

    /// Whether its protocol is known.
    fn has_ports(&self) -> bool {
        self.source_port.is_some() || self.destination_port.is_some()
    }
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    /// As nft has it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    /// As the IP header has it.
    const fn number(self) -> u64 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }
}

/// Where packets are dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Drop {
    pub(crate) family: String,
    pub(crate) table: String,
    pub(crate) chain: String,
    /// The rule; none: the policy of the chain.
    pub(crate) handle: Option<u64>,
    /// Docker, or ufw, has chains in that table.
    pub(crate) is_docker: bool,
    pub(crate) is_ufw: bool,
}

/// What becomes of a flow in a chain that the kernel asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passes, or might.
    Passes,
    /// It is dropped for certain.
    Drops(Drop),
}

type Place = (String, String, String);

/// All rules.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    chains: BTreeMap<Place, Chain>,
}

#[derive(Debug, Default)]
struct Chain {
    /// Hook and whether the policy drops; none for a chain that is only jumped to.
    base: Option<(Hook, bool)>,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    handle: u64,
    expressions: Vec<Value>,
}

/// What a rule, or a chain, does with a flow.
#[derive(Debug)]
enum Step {
    /// Nothing: the next one is asked.
    On,
    Accepts,
    Drops(Place, u64),
    Returns,
}

/// How far a match holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    No,
    Maybe,
    Yes,
}

impl Holds {
    const fn is(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// One walk through the rules.
struct Walk<'a> {
    rules: &'a Ruleset,
    flow: &'a Flow,
    steps: usize,
    /// A rule that may hold accepts, or does something that is not known here.
    may_accept: bool,
}

impl Ruleset {
    /// Reads `nft --json --handle list ruleset`.
    ///
    /// # Errors
    /// It is not such a list; in words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let list: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let objects = list["nftables"].as_array().ok_or("no list of objects")?;
        let mut rules = Self::default();
        for object in objects {
            if let Some(chain) = object.get("chain") {
                let place = place(chain, "name");
                let drops = chain["policy"] == "drop";
                let hook = chain["hook"].as_str().and_then(Hook::of);
                let filters = chain["type"] == "filter";
                let base = hook.filter(|_| filters).map(|hook| (hook, drops));
                rules.chains.entry(place).or_default().base = base;
            } else if let Some(rule) = object.get("rule") {
                let expressions = rule["expr"].as_array().cloned().unwrap_or_default();
                let handle = rule["handle"].as_u64().unwrap_or_default();
                let chain = rules.chains.entry(place(rule, "chain")).or_default();
                chain.rules.push(Rule { handle, expressions });
            }
        }
        Ok(rules)
    }

    /// Whether a table of this name is there, with a chain that is asked or jumped to.
    pub(crate) fn has_table(&self, name: &str) -> bool {
        self.chains.keys().any(|(_, table, _)| table == name)
    }

    /// What each chain that the kernel asks about this flow does to it.
    pub(crate) fn judge(&self, flow: &Flow) -> Vec<Verdict> {
        let asked = self.chains.iter().filter(|((family, table, _), chain)| {
            let of_family = match family.as_str() {
                "inet" => true,
                "ip" => flow.ipv4,
                "ip6" => !flow.ipv4,
                _ => false,
            };
            let asked = chain.base.is_some_and(|(hook, _)| hook == flow.hook);
            of_family && asked && !table.starts_with("ropewalk")
        });
        asked.map(|(place, chain)| self.verdict(flow, place, chain)).collect()
    }

    /// Whether one of them drops it for certain.
    pub(crate) fn drops(&self, flow: &Flow) -> bool {
        self.judge(flow).iter().any(|verdict| matches!(verdict, Verdict::Drops(_)))
    }

    fn verdict(&self, flow: &Flow, place: &Place, chain: &Chain) -> Verdict {
        let mut walk = Walk { rules: self, flow, steps: 0, may_accept: false };
        match walk.chain(place, 0) {
            Step::Drops(place, handle) => Verdict::Drops(self.drop(&place, Some(handle))),
            Step::Accepts => Verdict::Passes,
            Step::On | Step::Returns => match chain.base {
                Some((_, true)) if !walk.may_accept => Verdict::Drops(self.drop(place, None)),
                _ => Verdict::Passes,
            },
        }
    }

    fn drop(&self, (family, table, chain): &Place, handle: Option<u64>) -> Drop {
        let has = |begin: &str| {
            self.chains
                .keys()
                .any(|(of, at, name)| of == family && at == table && name.starts_with(begin))
        };
        let (is_docker, is_ufw) = (has("DOCKER-USER"), has("ufw"));
        let (family, table, chain) = (family.clone(), table.clone(), chain.clone());
        Drop { family, table, chain, handle, is_docker, is_ufw }
    }
}

fn place(object: &Value, chain: &str) -> Place {
    let word = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    (word("family"), word("table"), word(chain))
}

impl Walk<'_> {
    fn chain(&mut self, place: &Place, jumps: usize) -> Step {
        let rules = self.rules;
        let Some(chain) = rules.chains.get(place).filter(|_| jumps <= MOST_JUMPS) else {
            self.may_accept = true;
            return Step::On;
        };
        for rule in &chain.rules {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                self.may_accept = true;
                return Step::On;
            }
            match self.rule(place, rule, jumps) {
                Step::On => {}
                Step::Returns => return Step::On,
                end => return end,
            }
        }
        Step::On
    }

    fn rule(&mut self, place: &Place, rule: &Rule, jumps: usize) -> Step {
        let mut holds = Holds::Yes;
        for expression in &rule.expressions {
            let Some((name, content)) = expression.as_object().and_then(|one| one.iter().next())
            else {
                holds = holds.min(Holds::Maybe);
                continue;
            };
            let step = match name.as_str() {
                "match" => {
                    holds = holds.min(self.holds(content));
                    if holds == Holds::No {
                        return Step::On;
                    }
                    continue;
                }
                "counter" | "log" | "comment" | "mangle" | "notrack" | "meta" | "ct" => continue,
                "accept" => Step::Accepts,
                "drop" | "reject" => Step::Drops(place.clone(), rule.handle),
                "return" => Step::Returns,
                "jump" | "goto" => {
                    let (family, table, _) = place;
                    let target = content["target"].as_str().unwrap_or_default();
                    let target = (family.clone(), table.clone(), target.to_owned());
                    let step = self.chain(&target, jumps + 1);
                    match (name.as_str(), step) {
                        // Behind a `goto` nothing more of this chain is asked.
                        ("goto", Step::On) => Step::Returns,
                        (_, step) => step,
                    }
                }
                // A limit, a set, what another program added: it may hold or not.
                _ => {
                    holds = holds.min(Holds::Maybe);
                    continue;
                }
            };
            return match (holds, step) {
                (Holds::Yes, step) => step,
                (_, Step::Accepts | Step::Returns) => {
                    self.may_accept = true;
                    Step::On
                }
                (_, Step::On | Step::Drops(..)) => Step::On,
            };
        }
        Step::On
    }

    fn holds(&self, content: &Value) -> Holds {
        let flow = self.flow;
        let right = &content["right"];
        let left = &content["left"];
        let found = if let Some(payload) = left.get("payload") {
            let (protocol, field) = (payload["protocol"].as_str(), payload["field"].as_str());
            match (protocol, field) {
                // A rule about another protocol.
                (Some(other @ ("udp" | "tcp" | "icmp" | "icmpv6" | "sctp" | "dccp")), _)
                    if flow.has_ports() && other != flow.transport.as_str() =>
                {
                    return Holds::No;
                }
                (Some("udp" | "tcp" | "th"), Some("dport")) => port(flow.destination_port, right),
                (Some("udp" | "tcp" | "th"), Some("sport")) => port(flow.source_port, right),
                (Some("ip"), _) if !flow.ipv4 => return Holds::No,
                (Some("ip6"), _) if flow.ipv4 => return Holds::No,
                (Some("ip"), Some("protocol")) => self.protocol(right),
                _ => None,
            }
        } else if let Some(meta) = left.get("meta") {
            match meta["key"].as_str() {
                Some("l4proto") => self.protocol(right),
                Some("iifname" | "iif") => name(flow.input.as_deref(), right),
                Some("oifname" | "oif") => name(flow.output.as_deref(), right),
                Some("nfproto") => word(Some(if flow.ipv4 { "ipv4" } else { "ipv6" }), right),
                _ => None,
            }
        } else if left["ct"]["key"] == "state" {
            word(Some(flow.state.as_str()), right)
        } else {
            None
        };
        match (found, content["op"].as_str()) {
            (None, _) => Holds::Maybe,
            (Some(equal), Some("==" | "in")) => Holds::is(equal),
            (Some(equal), Some("!=")) => Holds::is(!equal),
            _ => Holds::Maybe,
        }
    }

    fn protocol(&self, right: &Value) -> Option<bool> {
        if !self.flow.has_ports() {
            return None;
        }
        let transport = self.flow.transport;
        match right.as_u64() {
            Some(number) => Some(number == transport.number()),
            None => word(Some(transport.as_str()), right),
        }
    }
}

/// Whether a value is one of those on the right: a value, a set of them, or a list of words. `None`: not known.
fn among(right: &Value, is: &dyn Fn(&Value) -> Option<bool>) -> Option<bool> {
    let set = right.get("set").unwrap_or(right);
    let Some(list) = set.as_array() else { return is(set) };
    let mut known = true;
    for one in list {
        match is(one) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => known = false,
        }
    }
    known.then_some(false)
}

fn port(port: Option<u16>, right: &Value) -> Option<bool> {
    let port = u64::from(port?);
    among(right, &|one| match one.get("range").and_then(Value::as_array) {
        Some(range) => match range.as_slice() {
            [low, high] => Some((low.as_u64()?..=high.as_u64()?).contains(&port)),
            _ => None,
        },
        None => one.as_u64().map(|one| one == port),
    })
}

fn word(word: Option<&str>, right: &Value) -> Option<bool> {
    let word = word?;
    among(right, &|one| match one.as_str() {
        // A named set.
        Some(one) if one.starts_with('@') => None,
        Some(one) => Some(one == word),
        None => None,
    })
}

/// Names of interfaces: a `*` at the end stands for anything.
fn name(name: Option<&str>, right: &Value) -> Option<bool> {
    let name = name?;
    among(right, &|one| match one.as_str() {
        Some(one) if one.starts_with('@') => None,
        Some(one) => {
            Some(one.strip_suffix('*').map_or(one == name, |begin| name.starts_with(begin)))
        }
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of this hook and policy with these rules, each a list of expressions; and the chain `deep`.
    fn rules(hook: &str, policy: &str, rules: &[&str], deep: &[&str]) -> Ruleset {
        let mut objects = vec![
            format!(
                r#"{{"chain": {{"family": "inet", "table": "t", "name": "base", "type": "filter", "hook": "{hook}", "policy": "{policy}"}}}}"#
            ),
            r#"{"chain": {"family": "inet", "table": "t", "name": "deep"}}"#.to_owned(),
        ];
        let mut handle = 10;
        for (chain, rules) in [("base", rules), ("deep", deep)] {
            for rule in rules {
                objects.push(format!(
                    r#"{{"rule": {{"family": "inet", "table": "t", "chain": "{chain}", "handle": {handle}, "expr": [{rule}]}}}}"#
                ));
                handle += 1;
            }
        }
        Ruleset::parse(&format!("{{\"nftables\": [{}]}}", objects.join(", "))).unwrap()
    }

    fn matching(left: &str, op: &str, right: &str) -> String {
        format!(r#"{{"match": {{"op": "{op}", "left": {left}, "right": {right}}}}}"#)
    }

    /// To UDP 51900, by eth0.
    fn flow(hook: Hook) -> Flow {
        Flow { destination_port: Some(51900), input: Some("eth0".into()), ..Flow::new(hook) }
    }

    fn dropped(rules: &Ruleset, flow: &Flow) -> Option<Option<u64>> {
        rules.judge(flow).into_iter().find_map(|verdict| match verdict {
            Verdict::Drops(place) => Some(place.handle),
            Verdict::Passes => None,
        })
    }

    const DPORT: &str = r#"{"payload": {"protocol": "udp", "field": "dport"}}"#;
    const TCP: &str = r#"{"payload": {"protocol": "tcp", "field": "dport"}}"#;
    const STATE: &str = r#"{"ct": {"key": "state"}}"#;
    const IIF: &str = r#"{"meta": {"key": "iifname"}}"#;
    const MARK: &str = r#"{"meta": {"key": "mark"}}"#;

    #[test]
    fn only_what_drops_for_certain_is_told() {
        let drop =
            |matched: String| format!("{matched}, {{\"counter\": {{}}}}, {{\"drop\": null}}");
        let accept = |matched: String| format!("{matched}, {{\"accept\": null}}");
        let first = Some(Some(10));
        let policy = Some(None);
        let table = [
            ("accept", Vec::<String>::new(), None),
            ("drop", vec![], policy),
            ("accept", vec![drop(matching(DPORT, "==", "51900"))], first),
            ("accept", vec![drop(matching(DPORT, "==", "443"))], None),
            ("accept", vec![drop(matching(DPORT, "!=", "443"))], first),
            ("accept", vec![drop(matching(DPORT, "==", r#"{"range": [0, 65535]}"#))], first),
            ("accept", vec![drop(matching(DPORT, "==", r#"{"set": [443, 51900]}"#))], first),
            (
                "accept",
                vec![drop(matching(DPORT, "==", r#"{"set": [443, {"range": [1, 9]}]}"#))],
                None,
            ),
            ("accept", vec![drop(matching(DPORT, "==", "\"@ports\""))], None),
            ("accept", vec![drop(matching(TCP, "==", "51900"))], None),
            ("accept", vec![drop(matching(MARK, "==", "1"))], None),
            ("accept", vec![drop(matching(IIF, "==", "\"eth*\""))], first),
            ("drop", vec![accept(matching(STATE, "in", r#"["established", "related"]"#))], policy),
            ("drop", vec![accept(matching(STATE, "==", r#"{"set": ["new"]}"#))], None),
            // It may hold.
            ("drop", vec![accept(matching(MARK, "==", "1"))], None),
            ("drop", vec![accept(matching(DPORT, "==", "51900"))], None),
            ("accept", vec!["{\"reject\": {}}".to_owned()], first),
        ];
        for (row, (policy, list, expected)) in table.into_iter().enumerate() {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            let rules = rules("input", policy, &list, &[]);
            assert_eq!(dropped(&rules, &flow(Hook::Input)), expected, "row {row}");
            assert_eq!(dropped(&rules, &flow(Hook::Forward)), None, "another hook");
        }
    }

    #[test]
    fn datagrams_that_are_not_tracked_are_neither_new_nor_established() {
        let accept =
            |states: &str| format!("{}, {{\"accept\": null}}", matching(STATE, "in", states));
        let untracked = Flow { state: State::Untracked, ..flow(Hook::Input) };
        for (states, passes_new, passes_untracked) in [
            (r#"["established", "related"]"#, false, false),
            (r#"["new"]"#, true, false),
            (r#"["new", "untracked"]"#, true, true),
        ] {
            let rules = rules("input", "drop", &[&accept(states)], &[]);
            assert_eq!(dropped(&rules, &flow(Hook::Input)).is_none(), passes_new, "{states}");
            assert_eq!(dropped(&rules, &untracked).is_none(), passes_untracked, "{states}");
        }
    }

    #[test]
    fn jumps_are_followed_and_come_back() {
        let jump = r#"{"jump": {"target": "deep"}}"#;
        let goto = r#"{"goto": {"target": "deep"}}"#;
        let drop = "{\"drop\": null}";
        let table = [
            ("accept", vec![jump], vec![drop], Some(Some(11))),
            ("drop", vec![jump], vec!["{\"accept\": null}"], None),
            ("accept", vec![jump, drop], vec!["{\"return\": null}"], Some(Some(11))),
            ("accept", vec![goto, drop], vec![], None),
            ("drop", vec![goto], vec![], Some(None)),
            ("drop", vec![r#"{"jump": {"target": "nowhere"}}"#], vec![], None),
            // For ever.
            ("drop", vec![jump], vec![jump], None),
        ];
        for (row, (policy, list, deep, expected)) in table.into_iter().enumerate() {
            let rules = rules("input", policy, &list, &deep);
            assert_eq!(dropped(&rules, &flow(Hook::Input)), expected, "row {row}");
        }
    }

    #[test]
    fn the_other_family_and_our_own_tables_are_left_out() {
        let list = |family: &str, table: &str| {
            let chain = format!(
                r#"{{"nftables": [{{"chain": {{"family": "{family}", "table": "{table}", "name": "c",
                "type": "filter", "hook": "input", "policy": "drop"}}}}]}}"#
            );
            Ruleset::parse(&chain).unwrap()
        };
        let v6 = Flow { ipv4: false, ..flow(Hook::Input) };
        assert_eq!(dropped(&list("ip6", "t"), &flow(Hook::Input)), None);
        assert_eq!(dropped(&list("ip6", "t"), &v6), Some(None));
        assert_eq!(dropped(&list("ip", "t"), &v6), None);
        assert_eq!(dropped(&list("bridge", "t"), &v6), None);
        assert_eq!(dropped(&list("inet", "ropewalk_client"), &v6), None);
    }

    #[test]
    fn what_is_no_list_is_told_and_breaks_nothing() {
        for text in ["", "{}", "[]", "{\"nftables\": 3}"] {
            assert!(Ruleset::parse(text).is_err(), "{text}");
        }
        let odd = r#"{"nftables": [{}, 3, {"rule": {}}, {"chain": {"hook": 3}}, {"rule": {"expr": [3, {}]}}]}"#;
        assert!(Ruleset::parse(odd).unwrap().judge(&flow(Hook::Input)).is_empty());
    }
}
