//! Connections that go around the tunnel or through it by user, control group and domain, on the real kernel: every test in network
//! namespaces of its own, with real processes.
//!
//! The host has a link `wan1` (10.1.0.2, 2001:db8:1::2) and in the place of the TUN a line `rope0`. A second namespace is at the
//! other end of both, and has a server (198.51.100.1, 2001:db8:5::1) that says from which address it is asked.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use ropewalk_client::host::linux::LinuxNetwork;
use ropewalk_client::host::{
    Choice, Desired, HostNetwork, LinkDesired, Listed, TunDesired, everything,
};
use ropewalk_client::routes::Numbers;
use ropewalk_client::split::cgroups::Tree;
use ropewalk_client::split::learned::{Answered, MAX_ADDRESSES};
use ropewalk_client::split::{Rule, rules};
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_netlab::privilege::lacking;
use ropewalk_settings::{InterfaceName, NamePattern, Selector, Text as _};

const SERVER: &str = "198.51.100.1";
const SERVER_V6: &str = "2001:db8:5::1";

/// The server's address among the neighbours.
const NEIGHBOUR: &str = "10.1.0.1";

/// The host's addresses as the server sees them: through the tunnel, and around it.
const INSIDE: [&str; 2] = ["10.77.0.2", "fd77::2"];
const OUTSIDE: [&str; 2] = ["10.1.0.2", "2001:db8:1::2"];

/// A user that no machine has, as a prefix of a command.
const STRANGER: &str = "setpriv --reuid 12345 --clear-groups";

const PATIENCE: Duration = Duration::from_secs(10);

struct Lab {
    host: Namespace,
    _world: Namespace,
}

/// `None` where the calling test is over: it ran in another process, or the machine lacks something.
fn lab(test: &str) -> Option<Lab> {
    let (host, world) = (Namespace::open()?, Namespace::open()?);
    if host.read(&format!("{STRANGER} true 2>/dev/null && echo yes || echo no")).trim() == "no" {
        lacking(test, "another user's program cannot be started; run as root");
        return None;
    }
    for namespace in [&host, &world] {
        namespace.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
    }
    let tid = world.tid();
    host.sh(&format!(
        "ip link add wan1 type veth peer name far1 netns {tid}
         ip addr add 10.1.0.2/24 dev wan1; ip addr add 2001:db8:1::2/64 dev wan1 nodad
         ip link add rope0 type veth peer name far0 netns {tid}
         ip link set wan1 up; ip link set rope0 up"
    ));
    world.sh(&format!(
        "ip addr add {SERVER}/32 dev lo; ip addr add {SERVER_V6}/128 dev lo nodad
         ip addr add {NEIGHBOUR}/24 dev far1; ip addr add 2001:db8:1::1/64 dev far1 nodad
         ip link set far1 up; ip link set far0 up
         ip route add 10.77.0.2/32 dev far0; ip -6 route add fd77::2/128 dev far0
         for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
    ));
    host.sh("ip route add default via 10.1.0.1 dev wan1; ip -6 route add default via 2001:db8:1::1 dev wan1
         for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 > $f; done");
    // Nobody asks for hardware addresses in a tunnel.
    let mac = |namespace: &Namespace, device: &str| {
        let told =
            namespace.read(&format!("ip -o link show {device} | sed 's/.*ether //; s/ .*//'"));
        told.trim().to_owned()
    };
    let (near, far) = (mac(&host, "rope0"), mac(&world, "far0"));
    host.sh(&format!(
        "ip neigh add {SERVER} lladdr {far} dev rope0; ip -6 neigh add {SERVER_V6} lladdr {far} dev rope0"
    ));
    world.sh(&format!(
        "ip neigh add 10.77.0.2 lladdr {near} dev far0; ip -6 neigh add fd77::2 lladdr {near} dev far0"
    ));
    world.run(|| {
        for address in [SERVER, SERVER_V6, NEIGHBOUR] {
            let address: IpAddr = address.parse().unwrap();
            let listener = TcpListener::bind((address, 7)).unwrap();
            std::thread::spawn(move || {
                while let Ok((stream, from)) = listener.accept() {
                    std::thread::spawn(move || serve(&stream, from.ip()));
                }
            });
        }
    });
    Some(Lab { host, _world: world })
}

/// Says who asks, for each line that comes.
fn serve(mut stream: &TcpStream, from: IpAddr) {
    let lines = BufReader::new(stream).lines();
    for _ in lines.map_while(Result::ok) {
        if writeln!(stream, "{from}").is_err() {
            return;
        }
    }
}

/// What a program asks for that says from which address it is seen; nothing where it gets no answer.
fn question(to: &str) -> String {
    format!(
        "bash -c 'exec 3<>/dev/tcp/{to}/7 && echo who >&3 && read -t 3 me <&3 && echo $me' 2>/dev/null"
    )
}

/// From which address the server is asked when this command does it.
fn seen(host: &Namespace, before: &str, to: &str) -> String {
    host.read(&format!("timeout 5 {before} {} || true", question(to))).trim().to_owned()
}

/// The same within an async block of that namespace.
async fn seen_there(script: &str) -> String {
    let output = tokio::process::Command::new("sh").args(["-c", script]).output().await.unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn list(entries: &[&str]) -> Vec<Selector> {
    entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
}

fn chosen(routes: &[&str], exclude: &[&str]) -> Vec<Rule> {
    rules(&list(routes), &list(exclude))
}

/// What a daemon would want with these rules, and everything or nothing routed besides.
async fn wanted(network: &LinuxNetwork, rules: Vec<Rule>, all: bool, inner: &[&str]) -> Desired {
    let listed = Listed {
        name: NamePattern::exact(&InterfaceName::new("wan1").unwrap()),
        gateways: Vec::new(),
        enabled: true,
    };
    let (found, _) = network.candidates(&Choice::list(vec![listed]), "rope0").await.unwrap();
    let links = found.into_iter().filter_map(|found| {
        Some(LinkDesired { name: found.name, slot: 0, ways: found.state.ok()? })
    });
    Desired {
        tun: Some(TunDesired {
            name: "rope0".into(),
            inner: inner.iter().map(|address| address.parse().unwrap()).collect(),
            mtu: 1380,
        }),
        links: links.collect(),
        proxy: vec!["203.0.113.5:4600".parse().unwrap()],
        routed: if all { everything() } else { Vec::new() },
        rules,
        ..Desired::default()
    }
}

async fn open() -> LinuxNetwork {
    LinuxNetwork::open(Numbers::default()).await.unwrap()
}

/// Opens, applies, and lets go without cleaning up, as a crash does.
fn applied(host: &Namespace, rules: Vec<Rule>, all: bool, inner: &'static [&'static str]) {
    host.block_on(async move || {
        let mut network = open().await;
        let desired = wanted(&network, rules, all, inner).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!(outcome.problems, []);
        assert!(!network.apply(&desired).await.unwrap().changed, "twice is once");
    });
}

#[test]
fn a_users_programs_go_around_the_tunnel_with_the_right_address_and_get_their_answers() {
    let test = "a_users_programs_go_around_the_tunnel_with_the_right_address_and_get_their_answers";
    let Some(lab) = lab(test) else { return };
    applied(&lab.host, chosen(&[], &["user:12345"]), true, &INSIDE);
    for (family, to) in [SERVER, SERVER_V6].into_iter().enumerate() {
        assert_eq!(seen(&lab.host, "", to), INSIDE[family], "everybody else");
        assert_eq!(seen(&lab.host, STRANGER, to), OUTSIDE[family], "the user");
        let child =
            format!("{STRANGER} sh -c 'exec {}' &\nwait", question(to).replace('\'', "'\\''"));
        assert_eq!(lab.host.read(&child).trim(), OUTSIDE[family], "a child of the user's");
    }
}

#[test]
fn only_a_users_programs_go_through_the_tunnel() {
    let Some(lab) = lab("only_a_users_programs_go_through_the_tunnel") else { return };
    applied(&lab.host, chosen(&["user:12345"], &[]), false, &INSIDE);
    for (family, to) in [SERVER, SERVER_V6].into_iter().enumerate() {
        assert_eq!(seen(&lab.host, "", to), OUTSIDE[family], "everybody else");
        assert_eq!(seen(&lab.host, STRANGER, to), INSIDE[family], "the user");
    }
}

#[test]
fn what_exclude_says_counts_before_what_routes_say() {
    let Some(lab) = lab("what_exclude_says_counts_before_what_routes_say") else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        let rules = chosen(&["user:12345"], &[]);
        let mut desired = wanted(&network, rules, false, &INSIDE).await;
        desired.excluded = vec!["198.51.100.0/24".parse().unwrap()];
        network.apply(&desired).await.unwrap();
    });
    assert_eq!(seen(&lab.host, STRANGER, SERVER), OUTSIDE[0], "an excluded prefix");
    assert_eq!(seen(&lab.host, STRANGER, SERVER_V6), INSIDE[1]);
    applied(&lab.host, chosen(&["user:12345"], &["domain:example.org"]), false, &INSIDE);
    assert_eq!(seen(&lab.host, STRANGER, SERVER), INSIDE[0]);
}

#[test]
fn a_family_that_is_not_handed_out_goes_around_only_for_who_is_chosen_and_is_refused_at_once_to_others()
 {
    let test = "a_family_that_is_not_handed_out_goes_around_only_for_who_is_chosen_and_is_refused_at_once_to_others";
    let Some(lab) = lab(test) else { return };
    applied(&lab.host, chosen(&[], &["user:12345"]), true, &INSIDE[..1]);
    assert_eq!(seen(&lab.host, STRANGER, SERVER_V6), OUTSIDE[1]);
    let begun = std::time::Instant::now();
    assert_eq!(seen(&lab.host, "", SERVER_V6), "", "it leaked");
    applied(&lab.host, chosen(&["user:12345"], &[]), false, &INSIDE[..1]);
    assert_eq!(seen(&lab.host, STRANGER, SERVER_V6), "", "it leaked");
    assert!(begun.elapsed() < Duration::from_secs(2), "the refusals took {:?}", begun.elapsed());
    assert_eq!(seen(&lab.host, STRANGER, SERVER), INSIDE[0]);
}

#[test]
fn before_the_first_session_what_is_to_go_through_the_tunnel_goes_nowhere() {
    let test = "before_the_first_session_what_is_to_go_through_the_tunnel_goes_nowhere";
    let Some(lab) = lab(test) else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        let rules = chosen(&["user:12345"], &["user:12346"]);
        let desired = Desired { tun: None, ..wanted(&network, rules, true, &INSIDE).await };
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!(outcome.problems, []);
    });
    assert_eq!(seen(&lab.host, STRANGER, SERVER), "");
    assert_eq!(seen(&lab.host, &STRANGER.replace("12345", "12346"), SERVER), OUTSIDE[0]);
    assert_eq!(seen(&lab.host, "", SERVER), OUTSIDE[0]);
}

#[test]
fn the_kill_switch_lets_out_who_is_excluded_and_nobody_else() {
    let Some(lab) = lab("the_kill_switch_lets_out_who_is_excluded_and_nobody_else") else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        network.lock("rope0").await.unwrap();
        let desired = wanted(&network, chosen(&[], &["user:12345"]), true, &INSIDE).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!((outcome.problems, outcome.unlocked), (vec![], false));
    });
    assert_eq!(seen(&lab.host, "", SERVER), INSIDE[0]);
    assert_eq!(seen(&lab.host, STRANGER, SERVER), OUTSIDE[0]);
    // As after a crash.
    lab.host.sh("ip link del rope0");
    assert_eq!(seen(&lab.host, "", SERVER), "");
    assert_eq!(seen(&lab.host, STRANGER, SERVER), OUTSIDE[0]);
}

#[test]
fn the_kill_switch_lets_into_the_tunnel_what_routes_choose_and_nothing_of_it_elsewhere() {
    let test =
        "the_kill_switch_lets_into_the_tunnel_what_routes_choose_and_nothing_of_it_elsewhere";
    let Some(lab) = lab(test) else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        network.lock("rope0").await.unwrap();
        let desired = wanted(&network, chosen(&["user:12345"], &[]), false, &INSIDE).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!((outcome.problems, outcome.unlocked), (vec![], false));
    });
    for (family, to) in [SERVER, SERVER_V6].into_iter().enumerate() {
        assert_eq!(seen(&lab.host, STRANGER, to), INSIDE[family], "the user");
        assert_eq!(seen(&lab.host, "", to), "", "everybody else");
    }
    assert_eq!(seen(&lab.host, STRANGER, NEIGHBOUR), OUTSIDE[0], "a neighbour");
    // Somebody took away what the marks lead to: they lead nowhere else.
    lab.host.sh("ip rule flush protocol 114; ip -6 rule flush protocol 114");
    for to in [SERVER, SERVER_V6] {
        assert_eq!(seen(&lab.host, STRANGER, to), "", "it leaked to {to}");
    }
}

/// A control group of the test's own, gone with it.
struct Group {
    folder: PathBuf,
    path: String,
}

impl Group {
    /// `None` where the calling test is over.
    fn make(test: &str) -> Option<Self> {
        let path = format!("ropewalk-test-{}-{test:.40}", std::process::id());
        let Some(tree) = Tree::mounted() else {
            lacking(test, "there are no control groups of version 2");
            return None;
        };
        let group = Self { folder: tree.root().join(&path), path };
        match std::fs::create_dir(&group.folder) {
            Ok(()) => Some(group),
            Err(error) => {
                lacking(test, &format!("no control group can be made ({error}); run as root"));
                None
            }
        }
    }

    /// This script of a shell, which enters the group first.
    fn with(&self, script: &str) -> String {
        format!("echo $$ > {}/cgroup.procs; {script}", self.folder.display())
    }

    fn entry(&self) -> String {
        format!("cgroup:{}", self.path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn a_program_in_a_control_group_and_its_children_go_around_the_tunnel() {
    let test = "a_program_in_a_control_group_and_its_children_go_around_the_tunnel";
    let (Some(lab), Some(group)) = (lab(test), Group::make(test)) else { return };
    applied(&lab.host, chosen(&[], &[&group.entry()]), true, &INSIDE);
    for (family, to) in [SERVER, SERVER_V6].into_iter().enumerate() {
        assert_eq!(seen(&lab.host, "", to), INSIDE[family], "outside of the group");
        let own = group.with(&format!("exec timeout 5 {}", question(to)));
        assert_eq!(lab.host.read(&own).trim(), OUTSIDE[family], "in the group");
        let child = group.with(&format!("(timeout 5 {}) & wait", question(to)));
        assert_eq!(lab.host.read(&child).trim(), OUTSIDE[family], "a child");
    }
}

#[test]
fn a_control_group_that_begins_later_is_followed_also_when_it_begins_again() {
    let test = "a_control_group_that_begins_later_is_followed_also_when_it_begins_again";
    let (Some(lab), Some(group)) = (lab(test), Group::make(test)) else { return };
    std::fs::remove_dir(&group.folder).unwrap();
    let (folder, entry) = (group.folder.clone(), group.entry());
    let own = group.with(&format!("exec timeout 5 {}", question(SERVER)));
    lab.host.block_on(async move || {
        let mut network = open().await;
        let desired = wanted(&network, chosen(&[], &[&entry]), true, &INSIDE).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!(outcome.problems, []);
        assert_eq!(outcome.rules[0].note.as_deref(), Some("not running"));
        for round in 0..2 {
            std::fs::create_dir(&folder).unwrap();
            tokio::time::timeout(PATIENCE, network.news_of_groups()).await.unwrap();
            let (states, _) = network.follow_groups().await.unwrap().expect("another group");
            assert_eq!((states[0].cgroups.len(), &states[0].note), (1, &None), "round {round}");
            assert_eq!(seen_there(&own).await, OUTSIDE[0], "round {round}");
            // The kernel lets go of a group when its last process is gone for good.
            let gone = async {
                while std::fs::remove_dir(&folder).is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(PATIENCE, gone).await.unwrap();
            tokio::time::timeout(PATIENCE, network.news_of_groups()).await.unwrap();
            let (states, _) = network.follow_groups().await.unwrap().expect("no group");
            assert_eq!(states[0].note.as_deref(), Some("not running"), "round {round}");
        }
        // What it counted survives that the table was replaced.
        let tallies = network.tallies().await;
        assert!(tallies.values().all(|tally| tally.packets >= 6), "{tallies:?}");
    });
}

/// Addresses of a domain, one after the other.
fn answered(rule: &Rule, from: u32, count: u32) -> Vec<Answered> {
    let address = |n: u32| IpAddr::from(Ipv4Addr::from(0xc612_0000 + n));
    let ttl = Duration::from_secs(60);
    (from..from + count).map(|n| Answered { rule: rule.id, address: address(n), ttl }).collect()
}

#[test]
fn addresses_of_a_domain_go_around_the_tunnel_and_of_thousands_the_newest_are_known() {
    let test = "addresses_of_a_domain_go_around_the_tunnel_and_of_thousands_the_newest_are_known";
    let Some(lab) = lab(test) else { return };
    let rules = chosen(&[], &["domain:example.org"]);
    let rule = rules[0].clone();
    lab.host.block_on(async move || {
        let mut network = open().await;
        let desired = wanted(&network, rules, true, &INSIDE).await;
        network.apply(&desired).await.unwrap();
        assert_eq!(seen_there(&question(SERVER)).await, INSIDE[0], "before it is known");
        let ttl = Duration::from_secs(60);
        let of = |address: &str| Answered { rule: rule.id, address: address.parse().unwrap(), ttl };
        assert!(network.place(&[of(SERVER), of(SERVER_V6)]).await);
        assert_eq!(seen_there(&question(SERVER)).await, OUTSIDE[0]);
        assert_eq!(seen_there(&question(SERVER_V6)).await, OUTSIDE[1]);

        for from in (0..5000).step_by(100) {
            assert!(network.place(&answered(&rule, from, 100)).await, "from {from}");
        }
        let count = "nft -j list table inet ropewalk_split | grep -o '198\\.18\\.[0-9.]*' | sort -u | wc -l";
        assert_eq!(seen_there(count).await, MAX_ADDRESSES.to_string());
        assert_eq!(network.tallies().await[&rule.id].addresses, MAX_ADDRESSES);
        assert_eq!(seen_there(&question(SERVER)).await, INSIDE[0], "answered longest ago");
        // Another look changes nothing of them, and one that replaces the table keeps them.
        let outcome = network.apply(&desired).await.unwrap();
        assert!(!outcome.changed);
        assert!(outcome.rules[0].note.is_some(), "{outcome:?}");
        assert!(network.place(&[of(SERVER)]).await);
        let more = Desired { excluded: vec!["203.0.113.0/24".parse().unwrap()], ..desired };
        assert!(network.apply(&more).await.unwrap().changed);
        assert_eq!(seen_there(count).await, (MAX_ADDRESSES - 1).to_string());
        assert_eq!(seen_there(&question(SERVER)).await, OUTSIDE[0], "after it was replaced");
        // Even where somebody took it away.
        seen_there("nft delete table inet ropewalk_split").await;
        assert!(network.place(&answered(&rule, 6000, 1)).await);
        assert_eq!(seen_there(&question(SERVER)).await, OUTSIDE[0], "after it was taken away");
    });
}

#[test]
fn a_connection_stays_where_it_began_and_ends_with_its_rule() {
    let Some(lab) = lab("a_connection_stays_where_it_began_and_ends_with_its_rule") else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        let of_all = chosen(&[], &["user:0"]);
        let desired = wanted(&network, of_all, true, &INSIDE).await;
        let before = TcpStream::connect((SERVER, 7)).unwrap();
        assert_eq!(ask(&before).unwrap(), OUTSIDE[0], "without a tunnel");
        network.apply(&desired).await.unwrap();
        let during = TcpStream::connect((SERVER, 7)).unwrap();
        assert_eq!(ask(&during).unwrap(), OUTSIDE[0]);

        // Another rule beside it changes nothing for it.
        let both = Desired { rules: chosen(&[], &["user:0", "user:7"]), ..desired.clone() };
        network.apply(&both).await.unwrap();
        assert_eq!(ask(&during).unwrap(), OUTSIDE[0]);

        // Without its rule it would have the wrong address.
        let other = Desired { rules: chosen(&[], &["user:7"]), ..desired };
        network.apply(&other).await.unwrap();
        assert!(ask(&during).is_err(), "it goes on");
        let after = TcpStream::connect((SERVER, 7)).unwrap();
        assert_eq!(ask(&after).unwrap(), INSIDE[0]);
        // That which began before any rule is nobody's.
        assert_eq!(ask(&before).unwrap(), OUTSIDE[0]);
    });
}

#[test]
fn nothing_of_a_connection_leaves_around_the_tunnel_when_its_rule_was_the_last_one() {
    let test = "nothing_of_a_connection_leaves_around_the_tunnel_when_its_rule_was_the_last_one";
    let Some(lab) = lab(test) else { return };
    lab.host.sh("nft -f - <<'END'
table inet seen {
    counter around { }
    chain out {
        type filter hook postrouting priority 300; policy accept;
        oifname \"wan1\" tcp dport 7 counter name around
    }
}
END");
    lab.host.block_on(async || {
        let around = "nft list counter inet seen around | grep -c 'packets 0 ' || true";
        let mut network = open().await;
        let desired = wanted(&network, chosen(&["user:0"], &[]), false, &INSIDE).await;
        network.apply(&desired).await.unwrap();
        let during = TcpStream::connect((SERVER, 7)).unwrap();
        assert_eq!(ask(&during).unwrap(), INSIDE[0]);
        assert_eq!(seen_there(around).await, "1");
        let none = Desired { rules: Vec::new(), ..desired };
        network.apply(&none).await.unwrap();
        assert!(ask(&during).is_err(), "it goes on");
        assert_eq!(seen_there(around).await, "1", "it left around the tunnel");
        let after = TcpStream::connect((SERVER, 7)).unwrap();
        assert_eq!(ask(&after).unwrap(), OUTSIDE[0]);
        assert_eq!(seen_there(around).await, "0", "the count sees nothing at all");
    });
}

/// From which address this connection is seen.
fn ask(mut stream: &TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.write_all(b"who\n")?;
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim().to_owned()),
    }
}

#[test]
fn a_crash_and_another_start_leave_nothing_and_neither_does_an_end() {
    let Some(lab) = lab("a_crash_and_another_start_leave_nothing_and_neither_does_an_end") else {
        return;
    };
    let state = || {
        lab.host.read(
            "ip rule; ip -6 rule; ip route show table all proto 114; ip -6 route show table all proto 114
             nft list ruleset; grep . /proc/sys/net/ipv4/conf/*/src_valid_mark",
        )
    };
    let before = state();
    let both =
        || chosen(&["user:12345", "domain:example.net"], &["domain:example.org", "unit:a.service"]);
    applied(&lab.host, both(), true, &INSIDE);
    let left = state();
    assert!(
        left.contains("ropewalk_split") && left.contains("fwmark 0x52580000/0xffff0000"),
        "{left}"
    );
    assert!(
        left.contains("wan1/src_valid_mark:1") && left.contains("rope0/src_valid_mark:1"),
        "{left}"
    );
    lab.host.block_on(async || drop(open().await));
    assert_eq!(state(), before, "after a crash");
    lab.host.block_on(async move || {
        let mut network = open().await;
        let desired = wanted(&network, both(), true, &INSIDE).await;
        // Without rules there is no table, until there was one.
        let none = Desired { rules: Vec::new(), ..desired.clone() };
        network.apply(&none).await.unwrap();
        assert!(!seen_there("nft list ruleset").await.contains("ropewalk_split"));
        network.apply(&desired).await.unwrap();
        network.apply(&none).await.unwrap();
        let left = seen_there("nft list table inet ropewalk_split").await;
        assert!(left.contains("chain known") && !left.contains("vmap"), "{left}");
        assert!(!network.apply(&none).await.unwrap().changed, "twice is once");
        network.apply(&desired).await.unwrap();
        network.remove().await.unwrap();
    });
    // The addresses go with the TUN.
    lab.host.sh("ip addr flush dev rope0 scope global");
    assert_eq!(state(), before, "after an end");
}

#[test]
fn users_that_nobody_knows_choose_nothing_and_are_told() {
    let Some(lab) = lab("users_that_nobody_knows_choose_nothing_and_are_told") else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        let rules = chosen(&[], &["user:nobody-of-this-name", "user:12345"]);
        let desired = wanted(&network, rules, true, &INSIDE).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!(outcome.problems, []);
        assert!(
            outcome.warnings.iter().any(|one| one.contains("nobody-of-this-name")),
            "{outcome:?}"
        );
        assert!(outcome.rules[0].note.is_some() && outcome.rules[1].note.is_none());
    });
    assert_eq!(seen(&lab.host, STRANGER, SERVER), OUTSIDE[0]);
}
