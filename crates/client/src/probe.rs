//! What `ropewalk doctor` tries from outside of the daemon: which interfaces could be links, whether the proxy answers over
//! them, which sizes pass, and whether a network wants a sign-in.
//!
//! Nothing here changes anything, on this machine or at the proxy: the question is one that a proxy answers to everybody who
//! knows its public key ([`inquiry`](ropewalk_proto::crypto::handshake::inquiry)), a few times a second at most. All
//! functions wait for their answer; each takes a few seconds at most.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ropewalk_control::api::Role;
use ropewalk_daemon::{mark, service};
use ropewalk_link_io::netlink::{
    CLIENT_PROTOCOL, Gateway, Interface, MAIN_TABLE, Netlink, Route, Target,
};
use ropewalk_link_io::nft::{NftError, Table};
use ropewalk_proto::crypto::handshake::inquiry::Inquiry;
use ropewalk_proto::units::SessionIndex;
use ropewalk_settings::PublicKey;
use ropewalk_settings::selector::is_plain_folder;
use ropewalk_tls::{Binding, Dial, DialError, exchange};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, Socket, Type};

use crate::captive;
use crate::config::{Config, TunConfig, prefixes};
use crate::host::{Candidate, LeftOut};
use crate::interfaces;
use crate::links::choice;
use crate::near::{PassedOver, Surroundings, near};
use crate::routes::{MAX_LINKS, Numbers};
use crate::split::cgroups::Tree;

/// How long an answer may take, and how often is asked: a satellite's round trip is 0.6 s.
const PATIENCE: Duration = Duration::from_millis(800);
const TRIES: u32 = 3;

/// For each size, on a way that is known to answer.
const SIZE_TRIES: u32 = 2;

/// Length of a question where the size does not matter.
const SHORT: usize = 64;

/// The smallest path MTU that the tunnel works with, bytes of IP packet (PROTOCOL §7.4).
pub const LEAST_MTU: u16 = 1280;

/// The host's interfaces, and which of them are links by the config.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// Their default ways out, the best first, without those of our own.
    pub gateways: Vec<Gateway>,
    /// The candidates for links.
    pub candidates: Vec<Candidate>,
    /// What may be one and is left out.
    pub left_out: Vec<LeftOut>,
    /// Routes that would lead past the tunnel of this config, and do not.
    pub passed_over: Vec<PassedOver>,
    /// The mark of a client's datagrams on each interface (by its number), where a client has set its routes: with it they
    /// pass its rules, and its kill switch.
    pub marks: BTreeMap<u32, u32>,
}

/// Looks at the host's network; without a config no candidates are found.
///
/// # Errors
/// The kernel's answer fails or cannot be understood.
pub fn survey(config: Option<&Config>) -> anyhow::Result<Survey> {
    let runtime = service::runtime()?;
    runtime.block_on(async {
        let netlink = Netlink::open()?;
        let interfaces = netlink.interfaces().await?;
        let gateways = netlink.gateways(CLIENT_PROTOCOL).await?;
        let (candidates, left_out) = config.map_or_else(Default::default, |config| {
            let (choice, tun) = (choice(&config.links), config.tun.name.as_str());
            (
                interfaces::candidates(&choice, tun, &interfaces, &gateways),
                interfaces::left_out(&choice, tun, &interfaces, &gateways),
            )
        });
        let mut passed_over = Vec::new();
        if let Some(TunConfig { name, routes, exclude, .. }) = config.map(|config| &config.tun) {
            let (interfaces, gateways) = (interfaces.as_slice(), gateways.as_slice());
            let links = candidates.iter().filter(|candidate| candidate.state.is_ok());
            let links: Vec<&str> = links.map(|link| link.name.as_str()).collect();
            let around = Surroundings { tun: name.as_str(), links: &links, interfaces, gateways };
            let main = netlink.routes_in(MAIN_TABLE).await?;
            let lists = [routes, exclude].map(|list| prefixes(list).collect::<Vec<_>>());
            passed_over = near(&main, &around, &lists[0], &lists[1]).passed_over;
        }
        let marks = marks(&netlink.routes_of(CLIENT_PROTOCOL).await?);
        Ok(Survey { interfaces, gateways, candidates, left_out, passed_over, marks })
    })
}

/// Each link has a table of its own, with a default route by its interface; table and mark have the same number.
fn marks(routes: &[Route]) -> BTreeMap<u32, u32> {
    let numbers = Numbers::default();
    let mark = |route: &Route| {
        let slot = u16::try_from(route.table.checked_sub(numbers.table_of(0))?).ok()?;
        match route.target {
            Target::Interface { index, .. } if slot < MAX_LINKS => {
                Some((index, numbers.mark_of(slot)))
            }
            _ => None,
        }
    };
    routes.iter().filter_map(mark).collect()
}

/// Rules and routes that a client (114) or proxy (115) has made in this network namespace: how many of each.
///
/// # Errors
/// The kernel's answer fails or cannot be understood.
pub fn own_routing(protocol: u8) -> anyhow::Result<(usize, usize)> {
    let runtime = service::runtime()?;
    runtime.block_on(async {
        let netlink = Netlink::open()?;
        Ok((netlink.rules_of(protocol).await?.len(), netlink.routes_of(protocol).await?.len()))
    })
}

/// All rules of the firewall, as `nft` gives them in JSON.
///
/// # Errors
/// When `nft` or the right is missing, or it cannot print them.
pub fn firewall() -> Result<String, NftError> {
    let runtime = service::runtime().map_err(|error| NftError::Io {
        what: "list the rules of the firewall".to_owned(),
        source: io::Error::other(error),
    })?;
    runtime.block_on(Table::new("ropewalk_client").ruleset())
}

/// Whether `nft` and the kernel take a rule by a control group; `None` where there is none to try it with. Nothing is changed.
#[must_use]
pub fn takes_groups() -> Option<Result<(), NftError>> {
    let tree = Tree::mounted()?;
    let mut folders = std::fs::read_dir(tree.root()).ok()?.flatten();
    let group = folders.find_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| is_plain_folder(name))?;
        entry.file_type().is_ok_and(|kind| kind.is_dir()).then_some(name)
    })?;
    let (level, path) = tree.named(&group);
    let body = format!(
        "    chain trial {{\n        type filter hook output priority 0; policy accept;\n        socket cgroupv2 level {level} \"{path}\" accept\n    }}"
    );
    let runtime = service::runtime().ok()?;
    Some(runtime.block_on(Table::new("ropewalk_check").check(&body)))
}

/// Whether a daemon of this role runs in this network namespace, whatever its config.
#[must_use]
pub fn is_running(role: Role) -> bool {
    mark::is_held(role)
}

/// A way to the proxy that is tried.
#[derive(Clone, Debug)]
pub struct Way {
    /// The interface that everything leaves and comes by.
    pub interface: String,
    /// Its address.
    pub source: IpAddr,
    /// The mark that a running client gives its datagrams there.
    pub mark: Option<u32>,
    /// The proxy's, of the same family.
    pub remote: SocketAddr,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A proxy with that public key is there, so far away.
    Answer(Duration),
    /// The machine at that address says that nothing listens at this port.
    Refused,
    /// Nothing came back.
    Silence,
    /// This machine does not let the question out.
    Forbidden,
    /// It has no way there.
    NoWay,
    /// It is too long for the interface, or a router on the path said so.
    TooLong,
    /// Something else, in the system's words.
    Failed(String),
}

/// Asks over this way whether a proxy with this key is there.
#[must_use]
pub fn ask(way: &Way, proxy: &PublicKey) -> Reply {
    inquire(way, proxy, SHORT, TRIES)
}

/// What came of a question over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsReply {
    /// A proxy with that public key is there: so long it took to connect, and to be answered.
    Answer(Duration),
    /// None is, and why.
    No(String),
}

/// Asks over this way whether a proxy with this key takes links over TLS at this TCP port.
#[must_use]
pub fn ask_over_tls(way: &Way, port: u16, proxy: &PublicKey) -> TlsReply {
    let dial = |mark| Dial {
        binding: Binding::Interface { name: way.interface.clone(), mark },
        sources: vec![way.source],
        port,
        names: Vec::new(),
    };
    let mut answered = exchange_question(&dial(way.mark), way.remote.ip(), proxy);
    if let (Err(DialError::Io { source, .. }), Some(_)) = (&answered, way.mark)
        && source.kind() == ErrorKind::PermissionDenied
    {
        // Without the right to mark it is asked without: the rules by address lead there, too.
        answered = exchange_question(&dial(None), way.remote.ip(), proxy);
    }
    match answered {
        Ok(Some(time)) => TlsReply::Answer(time),
        Ok(None) => TlsReply::No(format!(
            "what listens at TCP {port} does not answer to the proxy's public key"
        )),
        Err(error) => TlsReply::No(error.to_string()),
    }
}

/// How long it took until an answer came, if one did.
fn exchange_question(
    dial: &Dial,
    at: IpAddr,
    proxy: &PublicKey,
) -> Result<Option<Duration>, DialError> {
    let unusable = |error: anyhow::Error| DialError::Io {
        address: SocketAddr::new(at, dial.port),
        source: io::Error::other(error),
    };
    let runtime = service::runtime().map_err(unusable)?;
    let Some(index) = indices(1).next() else { return Ok(None) };
    let inquiry = Inquiry::new(proxy, index, SHORT);
    let is_answer = |datagram: &[u8]| inquiry.is_answer(datagram);
    let begun = Instant::now();
    let asked = exchange(dial, at, inquiry.datagram(), PATIENCE, is_answer);
    let answered = runtime.block_on(asked)?;
    Ok(answered.then(|| begun.elapsed()))
}

/// The path MTU upstream of a way on which the proxy answers: how large an IP packet may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The largest that was seen to pass, bytes; `None`: not even [`LEAST_MTU`] did.
    pub passes: Option<u16>,
    /// Whether somebody said that larger ones are too large. If nobody did, and larger ones do not pass, there is a black
    /// hole.
    pub told: bool,
}

/// Looks for the largest size that passes, at most the interface's `mtu`. Questions that get lost for another reason make
/// it too small, so each is repeated.
#[must_use]
pub fn path_mtu(way: &Way, proxy: &PublicKey, mtu: u16) -> PathMtu {
    let headers = if way.remote.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let mut told = false;
    let mut passes = |size: u16| {
        let reply = inquire(way, proxy, usize::from(size.saturating_sub(headers)), SIZE_TRIES);
        told |= reply == Reply::TooLong;
        matches!(reply, Reply::Answer(_))
    };
    let found = largest(mtu, &mut passes);
    PathMtu { passes: found, told }
}

/// Sizes that networks have, bytes of IP packet: Ethernet, PPPoE, tunnels over both families, WireGuard, LTE.
const USUAL: [u16; 12] = [1500, 1492, 1480, 1472, 1460, 1440, 1430, 1420, 1400, 1380, 1358, 1320];

/// The largest usual size that passes, by halving; sizes are taken to be ordered.
fn largest(mtu: u16, passes: &mut impl FnMut(u16) -> bool) -> Option<u16> {
    if mtu < LEAST_MTU {
        return None;
    }
    if passes(mtu) {
        return Some(mtu);
    }
    if !passes(LEAST_MTU) {
        return None;
    }
    let sizes: Vec<u16> = USUAL.into_iter().filter(|size| *size < mtu).collect();
    // The index of the largest that passes: all before `low` do not, all from `high` on do.
    let (mut low, mut high) = (0, sizes.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if passes(sizes[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(sizes.get(high).copied().unwrap_or(LEAST_MTU))
}

fn inquire(way: &Way, proxy: &PublicKey, len: usize, tries: u32) -> Reply {
    let socket = match open(way) {
        Ok(socket) => socket,
        Err(error) => return failed(&error),
    };
    let mut reply = Reply::Silence;
    for index in indices(tries) {
        let inquiry = Inquiry::new(proxy, index, len);
        let begun = Instant::now();
        if let Err(error) = socket.send(inquiry.datagram()) {
            // The first send after an ICMP message tells of it, too.
            reply = failed(&error);
            if reply != Reply::Refused {
                return reply;
            }
        }
        while let Some(left) = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
        {
            let mut buffer = [0; 2048];
            let received =
                socket.set_read_timeout(Some(left)).and_then(|()| socket.recv(&mut buffer));
            match received {
                Ok(len) if inquiry.is_answer(&buffer[..len]) => {
                    return Reply::Answer(begun.elapsed());
                }
                // Somebody else's datagram, or an answer to the try before.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    reply = failed(&error);
                    match reply {
                        // Asked again: it may have been a router's, of a moment ago.
                        Reply::Refused | Reply::NoWay => break,
                        _ => return reply,
                    }
                }
            }
        }
    }
    reply
}

/// As many as tries, drawn at random: who does not read along cannot forge an answer.
fn indices(tries: u32) -> impl Iterator<Item = SessionIndex> {
    // Without randomness the answers could be guessed, no more.
    let [a, b, c, d, ..] = service::seed().unwrap_or_default();
    let first = u32::from_be_bytes([a, b, c, d]);
    (0..tries).map(move |more| SessionIndex::new(first.wrapping_add(more)))
}

/// A socket that sends to the proxy only, by this interface only, and whose datagrams are never cut in pieces.
fn open(way: &Way) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(way.remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(way.interface.as_bytes()))?;
    if let Some(mark) = way.mark {
        // Without the right it is asked without it: the rules by address lead there, too.
        let _ = socket.set_mark(mark);
    }
    socket.bind(&SocketAddr::new(way.source, 0).into())?;
    match way.remote {
        SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    socket.connect(&way.remote.into())?;
    Ok(socket.into())
}

/// What an error of a socket says of the way.
fn failed(error: &io::Error) -> Reply {
    match error.kind() {
        ErrorKind::ConnectionRefused => Reply::Refused,
        ErrorKind::PermissionDenied => Reply::Forbidden,
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Reply::NoWay,
        _ if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
            Reply::TooLong
        }
        _ => Reply::Failed(error.to_string()),
    }
}

/// What answers at TCP port 80 of the proxy's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Web {
    /// A page that leads elsewhere: this network wants a sign-in there.
    SignIn(String),
    /// The machine is there: it refused, or answered something else.
    There,
    /// Nothing.
    Silence,
}

/// Asks for a page there, as the daemon does where a link has no answer.
///
/// # Errors
/// No runtime can be made.
pub fn web(way: &Way) -> anyhow::Result<Web> {
    let question = captive::Question {
        slot: 0,
        interface: way.interface.clone(),
        source: way.source,
        proxy: way.remote.ip(),
    };
    let runtime = service::runtime().context("cannot ask for a page")?;
    let asked = runtime
        .block_on(async { tokio::time::timeout(captive::PATIENCE, captive::ask(&question)).await });
    Ok(match asked {
        Ok(Ok(Some(page))) => Web::SignIn(page),
        Ok(Ok(None)) => Web::There,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Web::There,
        Ok(Err(_)) | Err(_) => Web::Silence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_that_passes_is_found_with_few_questions() {
        let table = [
            (1500, 1500, Some(1500)),
            (1500, 9000, Some(1500)),
            (9000, 1500, Some(1500)),
            (1500, 1492, Some(1492)),
            (1500, 1399, Some(1380)),
            (1500, 1320, Some(1320)),
            (1500, 1319, Some(1280)),
            (1400, 1340, Some(1320)),
            (1280, 1500, Some(1280)),
            (1500, 1279, None),
            (1000, 1500, None),
        ];
        for (mtu, path, expected) in table {
            let mut asked = 0;
            let found = largest(mtu, &mut |size| {
                asked += 1;
                size <= path
            });
            assert_eq!(found, expected, "interface {mtu}, path {path}");
            assert!(asked <= 6, "{asked} questions for interface {mtu}, path {path}");
        }
    }

    #[test]
    fn the_mark_of_a_link_is_that_of_its_table() {
        let route = |table, index| Route {
            destination: "0.0.0.0/0".parse().unwrap(),
            table,
            metric: 0,
            target: Target::Interface { index, gateway: None, onlink: false },
            protocol: CLIENT_PROTOCOL,
            mtu: None,
        };
        let found = marks(&[route(7700, 9), route(7701, 3), route(7703, 4), route(7800, 5)]);
        assert_eq!(found, BTreeMap::from([(3, 0x5257_0001), (4, 0x5257_0003)]));
    }

    #[test]
    fn a_port_where_nothing_listens_refuses_and_one_that_does_not_know_the_question_is_silent() {
        let key = ropewalk_settings::PrivateKey::generate().unwrap().public_key();
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let way = |remote| Way {
            interface: "lo".to_owned(),
            source: "127.0.0.1".parse().unwrap(),
            mark: None,
            remote,
        };
        let at = silent.local_addr().unwrap();
        assert_eq!(ask(&way(at), &key), Reply::Silence);
        drop(silent);
        assert_eq!(ask(&way(at), &key), Reply::Refused);
        let nowhere = Way { interface: "no-such".to_owned(), ..way(at) };
        assert!(matches!(ask(&nowhere, &key), Reply::Failed(_)));
    }
}
