//! What a user can get wrong, or what a machine lacks: a clear message and exit code, and nothing left
//! behind; and what comes and goes while the client runs: it goes on, and says so.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use toml::Table;

use super::look::{access, link, until};
use super::snapshot::Snapshot;
use super::{Finding, Proof, Trial};
use crate::address::{ROUTER_WAN, client_v4, gateway_v4};
use crate::capture::Capture;
use crate::deployment::{CLIENT_TUN, PROXY_PORT, PROXY_TUN};
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::stage::{Progress, Stage};
use crate::topology::{Ipv6, TopologyConfig};

/// Wrong input and missing things.
pub(super) const BAD_INPUT: Proof = Proof {
    name: "bad-input",
    shows: "wrong configs, missing rights, tools and interfaces end in a clear message, nothing is left",
    seconds: 60,
    run,
};

/// How long a daemon that cannot work may take to say so.
const PATIENCE: Duration = Duration::from_secs(10);
/// Exit codes, as `ropewalk --help` documents them.
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const PERMISSION: i32 = 4;

/// Runs what follows where there is no `nft`: an empty folder over the usual one, and no search path.
const WITHOUT_NFT: [&str; 5] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    r#"mount -t tmpfs tmpfs /usr/sbin && PATH=/nowhere exec "$0" "$@""#,
];

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let wans = vec![access(20, 20), access(20, 20)];
    let config = TopologyConfig { clients: 2, ipv6: Ipv6::Off, ..TopologyConfig::new(wans) };
    let mut stage = Stage::build(trial.program, &config)?;
    let mut findings = refused_starts(&mut stage)?;
    findings.extend(pool_exhausted(&mut stage)?);
    trial.say("an interface that is not there, one that goes and returns");
    findings.extend(interfaces(&mut stage)?);
    trial.say("a proxy that is not there");
    findings.extend(unreachable(&mut stage, trial)?);
    Ok(findings)
}

/// One daemon that must not start.
struct Refused<'a> {
    what: &'a str,
    role: &'a str,
    through: &'a [&'a str],
    config: Table,
    code: i32,
    /// What the message must say.
    says: &'a [&'a str],
}

fn refused_starts(stage: &mut Stage) -> Result<Vec<Finding>, LabError> {
    let (client, proxy) =
        (stage.deployment.client_config(0).clone(), stage.deployment.proxy_config().clone());
    let mut typo = client.clone();
    typo.insert("keepaliv".into(), "15s".into());
    let port = PROXY_PORT.to_string();
    let in_use = [port.as_str(), "use"];
    let plain = |what, role, through, code, says| Refused {
        what,
        role,
        through,
        config: if role == "client" { client.clone() } else { proxy.clone() },
        code,
        says,
    };
    let drop_admin = ["setpriv", "--bounding-set=-net_admin"];
    let cases = [
        Refused {
            config: typo,
            ..plain(
                "config typo",
                "client",
                &[],
                USAGE,
                &["toml:1:1:", "keepaliv", "did you mean `keepalive`"],
            )
        },
        plain("client without a right", "client", &drop_admin, PERMISSION, &["CAP_NET_ADMIN"]),
        plain("proxy without a right", "proxy", &drop_admin, PERMISSION, &["CAP_NET_ADMIN"]),
        plain("proxy without nft", "proxy", &WITHOUT_NFT, FAILED, &["nft", "nftables"]),
    ];
    let mut findings = Vec::new();
    for case in &cases {
        findings.push(refused(stage, case)?);
    }

    let taken = stage.topology.proxy().run(|| UdpSocket::bind(("0.0.0.0", PROXY_PORT)))?;
    let taken = taken.map_err(LabError::io("taking the proxy's port"))?;
    let case = plain("proxy's port in use", "proxy", &[], FAILED, &in_use);
    findings.push(refused(stage, &case)?);
    drop(taken);

    let names = [CLIENT_TUN, PROXY_TUN];
    let namespaces = [stage.topology.client(), stage.topology.proxy()];
    for ((role, namespace), tun) in ["client", "proxy"].into_iter().zip(namespaces).zip(&names) {
        namespace.ip(&format!("link add {tun} type veth peer name other"))?;
        let case = plain("TUN name taken", role, &[], FAILED, std::slice::from_ref(tun));
        findings.push(refused(stage, &case)?);
        namespace.ip(&format!("link del {tun}"))?;
    }
    Ok(findings)
}

fn refused(stage: &Stage, case: &Refused<'_>) -> Result<Finding, LabError> {
    let Refused { what, role, through, config, code, says } = case;
    let namespace: &Namespace =
        if *role == "client" { stage.topology.client() } else { stage.topology.proxy() };
    let before = Snapshot::of(namespace)?;
    let name = format!("{role} {what}").replace([' ', '\''], "-");
    let mut process = stage.deployment.start_through(through, namespace, role, &name, config)?;
    let ended = process.wait(PATIENCE).ok().and_then(|status| status.code());
    process.kill();
    let log = process.log();
    let left = Snapshot::of(namespace)?.since(&before);
    let right = says.iter().all(|part| log.contains(part));
    let left_text = if left.is_empty() { String::new() } else { format!("; left: {left:?}") };
    Ok(Finding::holds(
        format!("{role}, {what}"),
        ended == Some(*code) && right && left.is_empty(),
        format!("exit {}: {}{left_text}", ended.unwrap_or(-1), said(&log)),
        format!("exit {code}, says {}, nothing left", says.join(", ")),
    ))
}

/// A pool with room for one client and three peers.
fn pool_exhausted(stage: &mut Stage) -> Result<Vec<Finding>, LabError> {
    let mut config = stage.deployment.proxy_config().clone();
    config.insert("pool_v4".into(), "10.77.0.0/30".into());
    // Leases of the other pool would keep it from starting.
    let state = stage.deployment.folder().join("state of the small pool");
    config.insert("state_dir".into(), state.display().to_string().into());
    let mut peers = config["peer"].as_array().cloned().unwrap_or_default();
    let mut third = peers[0].clone();
    if let Some(third) = third.as_table_mut() {
        third.insert("name".into(), "third".into());
        third.insert("public_key".into(), "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=".into());
    }
    peers.push(third);
    config.insert("peer".into(), peers.into());
    let namespace = stage.topology.proxy();
    let mut process =
        stage.deployment.start_through(&[], namespace, "proxy", "exhausted", &config)?;
    process.wait_until("an answer", PATIENCE, || stage.deployment.proxy_status().is_ok())?;
    stage.deployment.start_client(&stage.topology, 1)?;
    let mut reason = String::new();
    until(PATIENCE, || {
        let status = stage.deployment.client_status(1).unwrap_or_default();
        reason = status["tunnels"][0]["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("no inner address left")
    });
    stage.deployment.stop_client(1)?;
    process.stop(PATIENCE)?;
    let log = process.log();
    Ok(vec![
        Finding::holds(
            "address pool exhausted: the proxy runs on and says",
            log.contains("10.77.0.0/30") && log.contains("exhausted"),
            said(&log),
            "the pool, and what helps",
        ),
        Finding::holds(
            "the client without an address is told",
            reason.contains("no inner address left"),
            &*reason,
            "that there is no address",
        ),
    ])
}

fn interfaces(stage: &mut Stage) -> Result<Vec<Finding>, LabError> {
    stage.deployment.set_links(0, [0, 1, 7]);
    stage.start_proxy()?;
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 0)?;
    let status = deployment.wait_up(0, 2)?;
    let absent = link(&status, "wan7").clone();
    let reason = absent["reason"].as_str().unwrap_or_default().to_owned();
    let mut findings = vec![Finding::holds(
        "unknown interface: its state and reason, while the others are up",
        absent["state"] == "down" && !reason.is_empty(),
        format!("{}: {reason}", absent["state"]),
        "down, with a reason",
    )];

    // Away into another namespace: for the client it is gone, as a modem that is pulled out.
    let elsewhere = topology.internet();
    let client = topology.client();
    client.ip(&format!("link set wan1 netns {}", elsewhere.name()))?;
    let state = |wanted: &str| {
        until(Duration::from_secs(5), || {
            let status = deployment.client_status(0).unwrap_or_default();
            link(&status, "wan1")["state"] == wanted
        })
    };
    let gone = state("down");
    let status = deployment.client_status(0)?;
    let reason = link(&status, "wan1")["reason"].as_str().unwrap_or_default().to_owned();
    findings.push(Finding::holds(
        "an interface disappears: told after, with the reason",
        gone.is_some() && !reason.is_empty(),
        format!("{:.1?}: {reason}", gone.unwrap_or(Duration::MAX)),
        "down within 5 s",
    ));
    let other = link(&status, "wan0")["state"].to_string();
    findings.push(Finding::holds("the other link meanwhile", other == "\"up\"", other, "up"));
    elsewhere.ip(&format!("link set wan1 netns {}", client.name()))?;
    client.ip(&format!(
        "addr add {}/24 dev wan1\nlink set wan1 up\nroute add default via {} dev wan1 metric 200",
        client_v4(0, 1),
        gateway_v4(0, 1)
    ))?;
    let back = state("up").map_or(f64::INFINITY, |back| back.as_secs_f64());
    findings.push(Finding::at_most("it returns: up again after", back, 2.0, "s"));
    deployment.stop_client(0)?;
    deployment.stop_proxy()?;
    deployment.set_links(0, [0, 1]);
    Ok(findings)
}

fn unreachable(stage: &mut Stage, trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let wan = stage.topology.routers()[0].namespace();
    let asked = Capture::start(wan, ROUTER_WAN, Vec::new(), |asked: &mut Vec<Instant>, frame| {
        if frame.udp().is_some_and(|udp| udp.to.port() == PROXY_PORT) {
            asked.push(frame.at);
        }
    })?;
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 0)?;
    thread::sleep(Duration::from_secs(trial.either(25, 8)));
    let status = deployment.client_status(0)?;
    let tunnel = &status["tunnels"][0];
    let reason = tunnel["reason"].as_str().unwrap_or_default().to_owned();
    let asked = asked.look(std::mem::take);
    let gaps: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (first, last) = (gaps.first(), gaps.iter().max());
    let backs_off = first.zip(last).is_some_and(|(first, last)| *last > 2 * *first);
    deployment.start_proxy(topology)?;
    let came = until(Duration::from_secs(40), || {
        let status = deployment.client_status(0).unwrap_or_default();
        status["tunnels"][0]["state"] == "up"
    });
    let without_nft = client_without_nft(stage)?;
    Ok(vec![
        Finding::holds(
            "proxy unreachable: state and reason",
            tunnel["state"] == "connecting" && !reason.is_empty(),
            format!("{}: {reason}", tunnel["state"]),
            "connecting, with a reason",
        ),
        Finding::holds(
            "it is asked again with back-off: times, first and longest pause",
            asked.len() >= 4 && backs_off,
            format!(
                "{}, {:.1?}, {:.1?}",
                asked.len(),
                first.copied().unwrap_or_default(),
                last.copied().unwrap_or_default()
            ),
            "growing",
        ),
        Finding::at_most(
            "the proxy comes: connected after",
            came.map_or(f64::INFINITY, |came| came.as_secs_f64()),
            30.0,
            "s",
        ),
        without_nft,
    ])
}

/// The client works without `nft`, and says what it cannot do.
fn client_without_nft(stage: &mut Stage) -> Result<Finding, LabError> {
    stage.deployment.stop_client(0)?;
    let config = stage.deployment.client_config(0).clone();
    let namespace = stage.topology.client();
    let before = Snapshot::of(namespace)?;
    let mut process =
        stage.deployment.start_through(&WITHOUT_NFT, namespace, "client", "client0", &config)?;
    let mut status = Value::Null;
    until(PATIENCE, || {
        status = stage.deployment.client_status(0).unwrap_or_default();
        status["tunnels"][0]["state"] == "up"
    });
    let warnings = status["daemon"]["warnings"].to_string();
    let up = status["tunnels"][0]["state"] == "up";
    process.stop(PATIENCE)?;
    let left = Snapshot::of(namespace)?.since(&before);
    Ok(Finding::holds(
        "client without nft",
        up && warnings.contains("nft") && left.is_empty(),
        format!("{}: {}; left: {left:?}", status["tunnels"][0]["state"], shortened(&warnings, 80)),
        "up, with a warning, nothing left",
    ))
}

/// What a log says, in one line that fits a table: from the first error or refusal on, else its end.
fn said(log: &str) -> String {
    /// Enough to see that it is the right message; the rest repeats the remedy.
    const CHARACTERS: usize = 110;
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let telling = |line: &&str| line.contains("error:") || line.contains("refused:");
    let from = lines.iter().position(telling).unwrap_or(lines.len().saturating_sub(1));
    shortened(&lines[from..].join(" / "), CHARACTERS)
}

fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
