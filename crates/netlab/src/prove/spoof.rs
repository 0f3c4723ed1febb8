//! Who may not: a client that sends from an address that is not its own, or to another client; a
//! client that the proxy does not know; one that has the wrong key of the proxy; one that speaks
//! another version; one whose clock went back (who may, after one more round trip).

use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use ropewalk_proto::crypto::handshake::Answer;
use ropewalk_proto::wire::hello::{HelloKind, VERSIONS};
use serde_json::Value;

use super::look::{access, dropped, inner_v4, inner_v6, until};
use super::stranger::{PROXY, Stranger, ask};
use super::{Finding, Proof, Trial};
use crate::address::{SERVER_V4, SERVER_V6, UPLINK};
use crate::capture::Capture;
use crate::error::LabError;
use crate::ping::Ping;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// Spoofing and wrong keys.
pub(super) const SPOOF: Proof = Proof {
    name: "spoof",
    shows: "foreign inner sources, other clients, wrong keys and versions are refused as documented",
    seconds: 45,
    run,
};

/// Within the pool, and nobody's.
const FOREIGN_V4: [u8; 4] = [10, 77, 200, 9];
const PORT: u16 = 6300;
const PACKETS: u64 = 10;
/// How long an answer may take; the stranger stands beside the proxy.
const ANSWER: Duration = Duration::from_millis(400);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let wans = vec![access(20, 20), access(20, 20)];
    let config = TopologyConfig { clients: 2, ..TopologyConfig::new(wans) };
    let mut stage = Stage::build(trial.program, &config)?;
    let mut findings = foreign_source(&mut stage)?;
    findings.extend(other_client(&mut stage, trial)?);
    findings.extend(by_hand(&mut stage)?);
    findings.extend(wrong_keys(&mut stage, trial)?);
    Ok(findings)
}

fn foreign_source(stage: &mut Stage) -> Result<Vec<Finding>, LabError> {
    let status = stage.start([0, 1])?.0;
    let from_v4 = IpAddr::from(FOREIGN_V4);
    // The neighbour of the client's own address.
    let from_v6 =
        inner_v6(&status).map(|own| IpAddr::from((u128::from(own) ^ 0x100).to_be_bytes()))?;
    let client = stage.topology.client();
    client.ip(&format!("addr add {from_v4}/32 dev lo"))?;
    client.ip(&format!("addr add {from_v6}/128 dev lo nodad"))?;
    let arrived = Capture::start(stage.topology.server(), UPLINK, 0_u64, |count, frame| {
        *count += u64::from(frame.udp().is_some_and(|udp| udp.to.port() == PORT));
    })?;
    let send = |from: IpAddr, to: IpAddr| -> Result<(), LabError> {
        let failed = || LabError::io(format!("sending from {from}"));
        let socket = client.run(|| UdpSocket::bind((from, 0)))?.map_err(failed())?;
        for _ in 0..PACKETS {
            // A closed port at the server may answer here.
            let _ = socket.send_to(b"spoofed", (to, PORT));
        }
        Ok(())
    };
    let before = dropped(&stage.proxy_status()?.0, "foreign_source");
    send(from_v4, SERVER_V4.into())?;
    send(from_v6, SERVER_V6.into())?;
    let counted = || -> u64 {
        let status = stage.proxy_status().unwrap_or_default();
        dropped(&status.0, "foreign_source") - before
    };
    until(Duration::from_secs(3), || counted() >= 2 * PACKETS);
    let counted = counted();
    let spoofed = arrived.look(std::mem::take);
    send(inner_v4(&status)?.into(), SERVER_V4.into())?;
    until(Duration::from_secs(2), || arrived.look(|count| *count >= PACKETS));
    let own = arrived.look(|count| *count);
    client.ip(&format!("addr del {from_v4}/32 dev lo"))?;
    client.ip(&format!("addr del {from_v6}/128 dev lo"))?;
    Ok(vec![
        Finding::at_least("packets from its own address that pass", own as f64, PACKETS as f64, ""),
        Finding::at_most("packets from foreign inner sources that pass", spoofed as f64, 0.0, ""),
        Finding::holds(
            "of 20 sent, counted as foreign_source by the proxy",
            counted >= 2 * PACKETS,
            counted.to_string(),
            "20",
        ),
    ])
}

fn other_client(stage: &mut Stage, trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut findings = Vec::new();
    for allowed in [false, true] {
        let config = stage.deployment.proxy_config();
        config.insert("client_to_client".into(), allowed.into());
        stage.start_proxy()?;
        let (deployment, topology) = stage.split();
        for client in [0, 1] {
            deployment.start_client(topology, client)?;
        }
        deployment.wait_up(0, 2)?;
        let neighbour = inner_v4(&deployment.wait_up(1, 2)?)?;
        trial.say(&format!("client_to_client = {allowed}"));
        // The hosts' routes follow the links a moment later.
        thread::sleep(Duration::from_millis(500));
        let ping = Ping { patience: Duration::from_secs(1), ..Ping::new(neighbour.into(), 5) };
        let answered = 5 - ping.run(topology.client())?.lost;
        let refused = dropped(&deployment.proxy_status()?, "refused_destination");
        findings.push(if allowed {
            let what = "client to client, allowed: echoes answered";
            Finding::at_least(what, answered as f64, 5.0, "of 5")
        } else {
            Finding::holds(
                "client to client: echoes answered, refused_destination",
                answered == 0 && refused >= 5,
                format!("{answered}, {refused}"),
                "0, 5",
            )
        });
    }
    stage.deployment.stop_client(1)?;
    Ok(findings)
}

/// Questions by hand, from a host of the Internet, while the client is connected.
fn by_hand(stage: &mut Stage) -> Result<Vec<Finding>, LabError> {
    let socket = stage.topology.internet().run(|| UdpSocket::bind("0.0.0.0:0"))?;
    let socket = socket.map_err(LabError::io("the stranger's socket"))?;
    let mut unknown = Stranger::unknown(&mut stage.deployment, 61)?;
    let handshakes = |stage: &Stage| -> Result<Value, LabError> {
        Ok(stage.proxy_status()?.0["proxy"]["handshakes"].clone())
    };
    let count = |counters: &Value, which: &str| counters[which].as_u64().unwrap_or_default();
    let before = handshakes(stage)?;
    let silence = ask(&socket, unknown.attempt(Duration::ZERO, None).message(), ANSWER)?;
    let after = handshakes(stage)?;
    let counted = count(&after, "unknown_key") - count(&before, "unknown_key");
    let mut findings = vec![Finding::holds(
        "unknown client key: answers, counted as unknown_key",
        silence.is_empty() && counted == 1,
        format!("{}, {counted}", silence.len()),
        "0, 1",
    )];

    let question = unknown.in_version(99);
    let answers = ask(&socket, &question, ANSWER)?;
    let after_version = handshakes(stage)?;
    let counted = count(&after_version, "other_version") - count(&after, "other_version");
    let lists = |answer: &Vec<u8>| {
        answer.first() == Some(&HelloKind::Versions.first_byte())
            && VERSIONS.iter().all(|version| answer.contains(version))
    };
    let longest = answers.iter().map(Vec::len).max().unwrap_or_default();
    findings.push(Finding::holds(
        "version 99, right mac1: answers, their length, counted as other_version",
        answers.len() == 1
            && answers.iter().all(lists)
            && longest <= question.len()
            && counted == 1,
        format!("{}, {longest} bytes, {counted}", answers.len()),
        format!("1 list of versions, <= {} bytes, 1", question.len()),
    ));
    let mut wrong = question;
    wrong[10] ^= 1;
    let answers = ask(&socket, &wrong, ANSWER)?.len();
    findings.push(Finding::at_most("version 99, wrong mac1: answers", answers as f64, 0.0, ""));
    findings.extend(clock_went_back(stage, &socket)?);
    Ok(findings)
}

/// The second client's key with a clock that is an hour behind: a retry, then a session.
fn clock_went_back(stage: &mut Stage, socket: &UdpSocket) -> Result<Vec<Finding>, LabError> {
    let mut client = Stranger::with_key_of(&mut stage.deployment, 1)?;
    let hour = Duration::from_secs(3600);
    let mut first = client.attempt(hour, None);
    let answers = ask(socket, first.message(), ANSWER)?;
    let read = answers.first().map(|answer| first.handle_answer(answer));
    let retried = matches!(read, Some(Ok(Answer::Retry(_))));
    let mut findings = vec![Finding::holds(
        "clock an hour behind: the first answer, its length",
        retried && answers.len() == 1 && answers[0].len() <= first.message().len(),
        format!("{} of {:?} bytes", kind(&answers), answers.first().map(Vec::len)),
        format!("a retry, <= {} bytes", first.message().len()),
    )];
    if let Some(Ok(Answer::Retry(token))) = read {
        let mut second = client.attempt(hour, Some(token));
        let answers = ask(socket, second.message(), ANSWER)?;
        let read = answers.first().map(|answer| second.handle_answer(answer));
        findings.push(Finding::holds(
            "with the token of the retry",
            matches!(read, Some(Ok(Answer::Established(_)))),
            kind(&answers),
            "a session",
        ));
    }
    Ok(findings)
}

fn kind(answers: &[Vec<u8>]) -> String {
    let first = answers.first().and_then(|answer| answer.first());
    match first.and_then(|byte| HelloKind::from_first_byte(*byte)) {
        Some(kind) => format!("{kind:?}"),
        None => "nothing".into(),
    }
}

fn wrong_keys(stage: &mut Stage, trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let peers = stage.deployment.proxy_config()["peer"].clone();
    let first = peers.as_array().map(|peers| peers[..1].to_vec()).unwrap_or_default();
    stage.deployment.proxy_config().insert("peer".into(), first.into());
    stage.start_proxy()?;
    let mut findings = Vec::new();
    trial.say("a client that the proxy does not know");
    let (reason, answers) = told(stage, 1)?;
    let counted = dropped(&stage.proxy_status()?.0, "handshake_unknown_client");
    let counters = stage.proxy_status()?.0["proxy"]["handshakes"]["unknown_key"].as_u64();
    let mentions = |reason: &str| reason.contains("key") && reason.contains("address");
    findings.push(Finding::holds(
        "client unknown to the proxy: answers, counted",
        answers == 0 && (counted > 0 || counters > Some(0)),
        format!("{answers}, {counted}, {counters:?}"),
        "0, some",
    ));
    findings.push(Finding::holds(
        "its status says what may be wrong",
        mentions(&reason),
        &*reason,
        "address, keys",
    ));

    trial.say("a client with another proxy's key");
    let other = stage.deployment.client_config(1)["proxy"]["public_key"].clone();
    let (_, wrong) = (other, STRANGE_KEY);
    if let Some(proxy) = stage.deployment.client_config(0)["proxy"].as_table_mut() {
        proxy.insert("public_key".into(), wrong.into());
    }
    stage.deployment.stop_client(0)?;
    let (reason, answers) = told(stage, 0)?;
    let counted = dropped(&stage.proxy_status()?.0, "handshake_wrong_mac");
    findings.push(Finding::holds(
        "wrong key of the proxy: answers, counted as handshake_wrong_mac",
        answers == 0 && counted > 0,
        format!("{answers}, {counted}"),
        "0, some",
    ));
    findings.push(Finding::holds(
        "its status says what may be wrong",
        mentions(&reason),
        &*reason,
        "address, keys",
    ));
    Ok(findings)
}

/// A public key that nobody here has the other half of (that of RFC 7748 section 6.1, Bob's).
const STRANGE_KEY: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

/// Starts a client that cannot connect; what its status gives as the reason, and how many datagrams of
/// the proxy reached it.
fn told(stage: &mut Stage, client: u8) -> Result<(String, u64), LabError> {
    let namespace = &stage.topology.clients()[usize::from(client)];
    let answers = Capture::start(namespace, "wan0", 0_u64, |count, frame| {
        *count += u64::from(frame.udp().is_some_and(|udp| udp.from == PROXY));
    })?;
    stage.deployment.start_client(&stage.topology, client)?;
    let mut reason = String::new();
    until(Duration::from_secs(15), || {
        let status = stage.deployment.client_status(client).unwrap_or_default();
        reason = status["tunnels"][0]["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("key")
    });
    thread::sleep(Duration::from_millis(300));
    Ok((reason, answers.look(|count| *count)))
}
