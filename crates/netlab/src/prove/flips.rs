//! Recorded datagrams of every type, with each bit flipped in turn, played in from where the true ones
//! come from: nothing changes, and each one is counted.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::Duration;

use ropewalk_proto::wire::header::{Kind, kind_of};
use ropewalk_proto::wire::hello::HelloKind;
use serde_json::Value;

use super::look::{access, drops, until};
use super::stranger::{PROXY, Stranger, ask};
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_V4, ROUTER_WAN, SERVER_V4};
use crate::capture::Capture;
use crate::error::LabError;
use crate::inject::Injector;
use crate::ping::Ping;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// Bits flipped.
pub(super) const FLIPS: Proof = Proof {
    name: "flips",
    shows: "each bit of recorded datagrams of every type flipped and played in: no change, all counted",
    seconds: 60,
    run,
};

/// Datagrams played in before a pause: slower than the access link, so that no queue overflows.
const BURST: usize = 16;
const PAUSE: Duration = Duration::from_millis(4);

/// Recorded datagrams: the first of each type, from small ones (pings), each way.
type Recorded = BTreeMap<(&'static str, Way), (SocketAddrV4, SocketAddrV4, Vec<u8>)>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    ToProxy,
    ToClient,
}

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let config = TopologyConfig { clients: 2, ..TopologyConfig::new(vec![access(50, 10)]) };
    let mut stage = Stage::build(trial.program, &config)?;
    let recorded = record(&mut stage)?;
    let injector = Injector::open(stage.topology.internet())?;
    let mut findings = Vec::new();
    for ((kind, way), (from, to, datagram)) in &recorded {
        let bits = 8 * datagram.len();
        let step = trial.either(1, 7);
        let flipped: Vec<usize> = (0..bits).step_by(step).collect();
        trial.say(&format!("{kind} {way:?}: {} of {bits} bits", flipped.len()));
        let before = state(&stage, *way)?;
        for (number, bit) in flipped.iter().enumerate() {
            let mut altered = datagram.clone();
            altered[bit / 8] ^= 0x80 >> (bit % 8);
            injector.send(*from, *to, &altered).map_err(LabError::io("playing in"))?;
            if number % BURST == 0 {
                thread::sleep(PAUSE);
            }
        }
        let counted = || -> u64 {
            let now = state(&stage, *way);
            now.map_or(0, |now| now.dropped.saturating_sub(before.dropped))
        };
        until(Duration::from_secs(3), || counted() >= flipped.len() as u64);
        thread::sleep(Duration::from_millis(200));
        let after = state(&stage, *way)?;
        let counted = after.dropped - before.dropped;
        let changes = after.changes_since(&before);
        findings.push(Finding::holds(
            format!("{kind} {way:?}, {} bytes: bits flipped, counted; changes", datagram.len()),
            counted == flipped.len() as u64 && changes.is_empty(),
            format!("{}, {counted}; {}", flipped.len(), changes.join(", ")),
            "as many; none",
        ));
    }
    let ping = Ping::new(SERVER_V4.into(), 5).run(stage.topology.client())?;
    findings.push(Finding::at_most("echoes lost afterwards", ping.lost as f64, 0.0, "of 5"));
    for (kind, way) in [
        ("first message", Way::ToProxy),
        ("data", Way::ToProxy),
        ("frames", Way::ToProxy),
        ("response", Way::ToClient),
        ("retry", Way::ToClient),
        ("versions", Way::ToClient),
        ("data", Way::ToClient),
        ("frames", Way::ToClient),
    ] {
        if !recorded.contains_key(&(kind, way)) {
            findings.push(Finding::holds(
                format!("{kind} {way:?}"),
                false,
                "not recorded",
                "recorded",
            ));
        }
    }
    Ok(findings)
}

/// Records a session's beginning and some pings, and asks for the answers that a client seldom gets.
fn record(stage: &mut Stage) -> Result<Recorded, LabError> {
    let wan = stage.topology.routers()[0].namespace();
    let seen = Capture::start(wan, ROUTER_WAN, Recorded::new(), |recorded, frame| {
        let Some(udp) = frame.udp() else { return };
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (udp.from, udp.to) else { return };
        let way = if udp.to == PROXY { Way::ToProxy } else { Way::ToClient };
        if let Some(kind) = udp.payload.first().and_then(|first| name_of(*first)) {
            // The latest: its session lives.
            recorded.insert((kind, way), (from, to, udp.payload.to_vec()));
        }
    })?;
    stage.start([0])?;
    // Small packets ride on reports, larger ones go alone.
    for size in [56, 600] {
        Ping { size, ..Ping::new(SERVER_V4.into(), 5) }.run(stage.topology.client())?;
    }
    thread::sleep(Duration::from_millis(700));
    let mut recorded = seen.look(|recorded| recorded.clone());

    let socket = stage.topology.internet().run(|| UdpSocket::bind("0.0.0.0:0"))?;
    let socket = socket.map_err(LabError::io("the stranger's socket"))?;
    let mut client = Stranger::with_key_of(&mut stage.deployment, 1)?;
    let behind = Duration::from_secs(3600);
    let questions = [client.attempt(behind, None).message().to_vec(), client.in_version(99)];
    let to_client = recorded
        .iter()
        .find_map(|((_, way), (from, to, _))| (*way == Way::ToClient).then_some((*from, *to)));
    let Some((from, to)) = to_client else { return Ok(recorded) };
    for question in questions {
        for answer in ask(&socket, &question, Duration::from_millis(400))? {
            if let Some(kind) = answer.first().and_then(|first| name_of(*first)) {
                recorded.insert((kind, Way::ToClient), (from, to, answer));
            }
        }
    }
    debug_assert!(recorded.values().all(|(_, to, _)| *to.ip() == PROXY_V4 || to.ip() != from.ip()));
    Ok(recorded)
}

fn name_of(first: u8) -> Option<&'static str> {
    match (HelloKind::from_first_byte(first), kind_of(first)) {
        (Some(HelloKind::First), _) => Some("first message"),
        (Some(HelloKind::Response), _) => Some("response"),
        (Some(HelloKind::Retry), _) => Some("retry"),
        (Some(HelloKind::Versions), _) => Some("versions"),
        (Some(HelloKind::Cookie), _) => Some("cookie"),
        (None, Some(Kind::Data | Kind::FlowData)) => Some("data"),
        (None, Some(Kind::Frames | Kind::FlowFrames)) => Some("frames"),
        (None, None) => None,
    }
}

/// What a datagram that is not authentic must not change, at the end that gets it.
struct State {
    /// Counted because a *datagram* was wrong; packets of the host's own are another matter.
    dropped: u64,
    facts: BTreeMap<&'static str, String>,
}

/// Reasons that are about packets.
const OF_PACKETS: [&str; 12] = [
    "packet_malformed",
    "packet_too_big",
    "foreign_source",
    "refused_destination",
    "unknown_destination",
    "no_session",
    "congestion_marked_not_capable",
    "queue_full",
    "queue_timeout",
    "queue_standing",
    "no_room",
    "handshake_stale",
];

fn state(stage: &Stage, way: Way) -> Result<State, LabError> {
    let status = match way {
        Way::ToProxy => stage.proxy_status()?.0,
        Way::ToClient => stage.client_status()?.0,
    };
    let counted = drops(&status);
    let dropped = counted.iter().filter(|(reason, _)| !OF_PACKETS.contains(&reason.as_str()));
    let tunnels = status["tunnels"].as_array().cloned().unwrap_or_default();
    let each = |fact: &dyn Fn(&Value) -> String| -> String {
        tunnels.iter().map(fact).collect::<Vec<_>>().join("; ")
    };
    let links = |fact: &dyn Fn(&Value) -> String| -> String {
        each(&|tunnel| {
            let links = tunnel["links"].as_array().into_iter().flatten();
            links.map(fact).collect::<Vec<_>>().join(", ")
        })
    };
    let delivered = match way {
        Way::ToProxy => "up",
        Way::ToClient => "down",
    };
    let facts = [
        ("tunnel states", each(&|tunnel| tunnel["state"].to_string())),
        (
            "session",
            each(&|tunnel| {
                let session = &tunnel["session"];
                if session.is_null() {
                    return "none".to_owned();
                }
                // The age grows; its beginning does not.
                let age = session["age_s"].as_f64().unwrap_or_default();
                let began = status["daemon"]["uptime_s"].as_f64().unwrap_or_default() - age;
                format!("{} rekeys {} began {:.0}", session["cipher"], session["rekeys"], began)
            }),
        ),
        ("packets delivered", each(&|tunnel| tunnel[delivered]["packets"].to_string())),
        (
            "resequencer",
            each(&|tunnel| {
                let counts = &tunnel["resequencer"];
                format!("{} {} {}", counts["late"], counts["duplicate"], counts["held"])
            }),
        ),
        ("links", links(&|link| format!("{} {} {}", link["id"], link["name"], link["state"]))),
        ("paths", links(&|link| format!("{} {}", link["local"], link["remote"]))),
    ];
    Ok(State { dropped: dropped.map(|(_, count)| count).sum(), facts: facts.into() })
}

impl State {
    fn changes_since(&self, before: &Self) -> Vec<String> {
        let changed = self.facts.iter().filter(|(fact, now)| before.facts.get(*fact) != Some(now));
        changed
            .map(|(fact, now)| format!("{fact}: {:?} -> {now:?}", before.facts.get(fact)))
            .collect()
    }
}
