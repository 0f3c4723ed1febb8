//! Both daemons in their sandbox, at all that touches files, programs and system calls: a start, a download, a config that is
//! read again, links that come and go, name servers, invitations, a TUN that somebody takes away, and the end.
//!
//! The machine's own `/etc` is not touched: the client sees a folder in its place.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use toml::Table;

use super::crash::{is_documented, same};
use super::look::{access, link};
use super::snapshot::Snapshot;
use super::{Finding, Proof, Trial, arrived};
use crate::address::SERVER_V4;
use crate::deployment::CLIENT_TUN;
use crate::error::LabError;
use crate::process::Process;
use crate::stage::{Progress, Stage};
use crate::tool;
use crate::topology::TopologyConfig;

/// The daemons' own walls.
pub(super) const PROOF: Proof = Proof {
    name: "sandbox",
    shows: "both daemons gave up files and system calls, and do all that they did before",
    seconds: 30,
    run,
};

/// What stood in `resolv.conf` before.
const BEFORE: &str = "nameserver 192.168.10.1";

/// Runs a program with this folder as its /etc.
const WITH_ETC: &str = "mount --make-rprivate /; mount --bind \"$1\" /etc; shift; exec \"$@\"";

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// After which a namespace that was just made changes no more.
const SETTLE: Duration = Duration::from_secs(2);

/// A key of which the client was not told at its start.
const OTHER_KEY: &str = "other.key";

const BYTES: u64 = 2_000_000;
const SEED: u64 = 61;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let wans = vec![access(20, 20), access(20, 40)];
    let mut stage = Stage::build(trial.program, &TopologyConfig::new(wans))?;
    stage.deployment().proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
    // Until addresses are usable.
    thread::sleep(SETTLE);
    let untouched = [Snapshot::of(stage.topology.client())?, Snapshot::of(stage.topology.proxy())?];
    stage.start_proxy()?;
    let laptop = Laptop::new(&mut stage)?;
    let mut client = laptop.start(&stage)?;
    let mut findings = closed(&mut stage, &client)?;

    trial.say("a download, name servers, links that come and go");
    let download = stage.get(trial.either(10 * BYTES, BYTES), SEED)?;
    findings.push(arrived("a download", &download, trial.either(10 * BYTES, BYTES), SEED));
    let is_set = || laptop.resolv_conf().ends_with(&format!("nameserver {SERVER_V4}"));
    let set = client.wait_until("the tunnel's name server", PATIENCE, is_set);
    findings.push(Finding::holds(
        "the tunnel's name server",
        set.is_ok(),
        laptop.resolv_conf(),
        "in resolv.conf",
    ));
    findings.extend(links(trial, &stage, &mut client)?);
    findings.extend(reloads(trial, &stage, &mut client)?);
    findings.push(invitation(trial, &stage)?);

    trial.say("the TUN is taken away");
    stage.topology.client().ip(&format!("link del {CLIENT_TUN}"))?;
    let is_back = || stage.topology.client().ip(&format!("link show up {CLIENT_TUN}")).is_ok();
    client.wait_until("another TUN", PATIENCE, is_back)?;
    let download = stage.get(BYTES, SEED)?;
    findings.push(arrived("a download over another TUN", &download, BYTES, SEED));

    trial.say("both are asked to end");
    let ended = client.stop(PATIENCE)?;
    findings.push(Finding::holds("client: its end", ended.success(), ended.to_string(), "success"));
    let left = Snapshot::of(stage.topology.client())?.since(&untouched[0]);
    findings.push(same("client: ended, against before".into(), &left));
    findings.push(Finding::holds(
        "client: resolv.conf",
        laptop.resolv_conf() == BEFORE,
        laptop.resolv_conf(),
        BEFORE,
    ));
    stage.deployment.stop_proxy()?;
    let left = Snapshot::of(stage.topology.proxy())?.since(&untouched[1]);
    let rest: Vec<String> = left.into_iter().filter(|line| !is_documented(line)).collect();
    findings.push(same("proxy: ended, against before, but for what is documented".into(), &rest));
    for (who, log) in [
        ("client", client.log()),
        ("proxy", stage.deployment.proxy().map(|proxy| proxy.log()).unwrap_or_default()),
    ] {
        let denied = log.lines().find(|line| {
            (line.contains("denied") || line.contains("not permitted")) && !line.contains(OTHER_KEY)
        });
        let told = denied.unwrap_or("nothing").to_owned();
        findings.push(Finding::holds(
            format!("{who}: refused without being asked for"),
            denied.is_none(),
            told,
            "nothing",
        ));
    }
    Ok(findings)
}

/// The machine of the client.
struct Laptop {
    etc: PathBuf,
    config: Table,
}

impl Laptop {
    fn new(stage: &mut Stage) -> Result<Self, LabError> {
        let folder = stage.deployment.folder().to_owned();
        let etc = folder.join("etc");
        let made = || {
            std::fs::create_dir(&etc)?;
            for file in ["passwd", "group", "hosts", "ld.so.cache"] {
                let _ = std::fs::copy(Path::new("/etc").join(file), etc.join(file));
            }
            std::fs::write(etc.join("resolv.conf"), BEFORE)
        };
        made().map_err(LabError::io("making a folder for /etc"))?;
        let mut config = stage.deployment.client_config(0).clone();
        config.insert("state_dir".into(), folder.join("client-state").display().to_string().into());
        Ok(Self { etc, config })
    }

    /// Starts the client, and waits until both links are up.
    fn start(&self, stage: &Stage) -> Result<Process, LabError> {
        let etc = self.etc.display().to_string();
        let through = ["unshare", "--mount", "sh", "-ec", WITH_ETC, "sh", &etc];
        let client = stage.topology.client();
        let mut process =
            stage.deployment.start_through(&through, client, "client", NAME, &self.config)?;
        wait_for(&mut process, stage, 2)?;
        Ok(process)
    }

    /// What stands in the file, in one line.
    fn resolv_conf(&self) -> String {
        let text = std::fs::read_to_string(self.etc.join("resolv.conf")).unwrap_or_default();
        text.trim_end().replace('\n', " | ")
    }
}

/// The name of the client's config, socket and log.
const NAME: &str = "client0";

/// Waits until so many links are up, and no more.
fn wait_for(process: &mut Process, stage: &Stage, links: usize) -> Result<(), LabError> {
    process.wait_until(&format!("{links} links up"), PATIENCE, || {
        let status = stage.deployment.client_status(0).unwrap_or_default();
        let all = status["tunnels"][0]["links"].as_array().into_iter().flatten();
        all.filter(|link| link["state"] == "up").count() == links
    })
}

/// What the kernel says of each thread, and the daemons of themselves.
fn closed(stage: &mut Stage, client: &Process) -> Result<Vec<Finding>, LabError> {
    let proxy = stage.deployment.proxy().map(|proxy| proxy.id()).unwrap_or_default();
    let told = [stage.client_status()?.0, stage.proxy_status()?.0];
    let mut findings = Vec::new();
    for ((who, process), status) in
        [("client", client.id()), ("proxy", proxy)].into_iter().zip(told)
    {
        let threads = threads(process).map_err(LabError::io(format!("looking at {who}")))?;
        let open: Vec<&str> =
            threads.iter().filter(|thread| !is_closed(thread)).map(String::as_str).collect();
        let measured = format!("{} of {}", threads.len() - open.len(), threads.len());
        let all = open.is_empty() && !threads.is_empty();
        findings.push(Finding::holds(
            format!("{who}: threads with a filter of system calls"),
            all,
            measured,
            "all",
        ));
        let sandbox: &Value = &status["daemon"]["sandbox"];
        let what = format!("{who}: what it says of its sandbox");
        findings.push(match sandbox["files"] == "unavailable" {
            true => Finding::not_here(what, "a kernel with Landlock"),
            false => Finding::holds(
                what,
                sandbox["files"] != "off" && sandbox["system_calls"] == "on",
                sandbox.to_string(),
                "on",
            ),
        });
    }
    Ok(findings)
}

/// The status of each thread of a process.
fn threads(process: u32) -> std::io::Result<Vec<String>> {
    let list = std::fs::read_dir(format!("/proc/{process}/task"))?;
    list.map(|thread| std::fs::read_to_string(thread?.path().join("status"))).collect()
}

/// Whether a thread's system calls are filtered, and no program gives it more rights.
fn is_closed(thread: &str) -> bool {
    ["Seccomp:\t2", "NoNewPrivs:\t1"]
        .iter()
        .all(|wanted| thread.lines().any(|line| line == *wanted))
}

/// A link that is switched off and on by hand.
fn links(trial: &Trial<'_>, stage: &Stage, client: &mut Process) -> Result<Vec<Finding>, LabError> {
    let socket = stage.deployment.folder().join(format!("{NAME}.sock")).display().to_string();
    let program = trial.program.display().to_string();
    let mut findings = Vec::new();
    for (word, up) in [("disable", 1), ("enable", 2)] {
        tool::run(&program, &["links", word, "wan1", "--socket", &socket])?;
        let changed = wait_for(client, stage, up);
        let state = link(&stage.deployment.client_status(0)?, "wan1")["state"].to_string();
        findings.push(Finding::holds(
            format!("a link, {word}d"),
            changed.is_ok(),
            state,
            format!("{up} links up"),
        ));
    }
    Ok(findings)
}

/// The config read again: with a link less, as before, and with a key of which the client was not told at its start.
fn reloads(
    trial: &Trial<'_>,
    stage: &Stage,
    client: &mut Process,
) -> Result<Vec<Finding>, LabError> {
    let folder = stage.deployment.folder();
    let (file, socket) = (folder.join(format!("{NAME}.toml")), folder.join(format!("{NAME}.sock")));
    let program = trial.program.display().to_string();
    let read = || std::fs::read_to_string(&file).map_err(LabError::io("reading a config"));
    let write = |text: &str| std::fs::write(&file, text).map_err(LabError::io("writing a config"));
    let reload = || tool::run(&program, &["reload", "--socket", &socket.display().to_string()]);
    let before = read()?;
    let parsed: Table = before
        .parse()
        .map_err(|_| LabError::Malformed { what: "a config", text: before.clone() })?;
    let mut findings = Vec::new();

    let mut fewer = parsed.clone();
    if let Some(links) = fewer.get_mut("link").and_then(toml::Value::as_array_mut) {
        links.truncate(1);
    }
    for (what, config, up) in [("with a link less", &fewer, 1), ("as before", &parsed, 2)] {
        write(&config.to_string())?;
        reload()?;
        let changed = wait_for(client, stage, up);
        findings.push(Finding::holds(
            format!("the config read again, {what}"),
            changed.is_ok(),
            changed
                .err()
                .map(|error| error.to_string())
                .unwrap_or_else(|| format!("{up} links up")),
            format!("{up} links up"),
        ));
    }

    let elsewhere = tempfile::tempdir().map_err(LabError::io("making a folder"))?;
    let key = elsewhere.path().join(OTHER_KEY);
    let copied = std::fs::copy(folder.join(format!("{NAME}.key")), &key);
    copied.map_err(LabError::io("copying a key"))?;
    let mut other = parsed;
    other.insert("private_key_file".into(), key.display().to_string().into());
    write(&other.to_string())?;
    let said =
        reload().map_or_else(|error| error.to_string(), |taken| format!("taken over: {taken}"));
    findings.push(Finding::holds(
        "the config read again, with a key elsewhere",
        said.contains("closed to files outside"),
        said.lines().last().unwrap_or_default(),
        "refused, with what to do",
    ));
    write(&before)?;
    Ok(findings)
}

/// An invitation, which the proxy writes down.
fn invitation(trial: &Trial<'_>, stage: &Stage) -> Result<Finding, LabError> {
    let folder = stage.deployment.folder();
    let socket = folder.join("proxy.sock").display().to_string();
    let program = trial.program.display().to_string();
    let arguments = ["peer", "add", "guest", "--address", "203.0.113.2", "--socket", &socket];
    let added = tool::run(&program, &arguments);
    let book = std::fs::read_to_string(folder.join("state/peers.json")).unwrap_or_default();
    let measured = added.as_ref().map_or_else(ToString::to_string, |_| "written".to_owned());
    Ok(Finding::holds(
        "an invitation",
        added.is_ok() && book.contains("guest"),
        measured,
        "written",
    ))
}
