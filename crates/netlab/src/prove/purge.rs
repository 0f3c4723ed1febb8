//! A client's user that was taken over, against root who tidies up after it: a client wrote `resolv.conf` and was killed,
//! its user replaces what it recorded, and root runs `ropewalk client --purge`.
//!
//! The machine's own `/etc` is not touched: client and root see a folder in its place.

use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::look::access;
use super::{Finding, Proof, Trial};
use crate::address::SERVER_V4;
use crate::error::LabError;
use crate::stage::{Progress, Stage};
use crate::tool;
use crate::topology::TopologyConfig;

/// Root on a folder of the service's user.
pub(super) const PURGE: Proof = Proof {
    name: "purge",
    shows: "the client's user gains nothing by what it puts where root's --purge reads",
    seconds: 20,
    run,
};

/// The client's user.
const USER: &str = "65534";

/// What stood in the file before.
const BEFORE: &str = "# by hand\nnameserver 192.168.10.1\nsearch lan\n";

/// What is root's alone.
const SECRET: &str = "root's own\n";

/// Runs a program with this folder as its /etc.
const WITH_ETC: &str = "mount --make-rprivate /; mount --bind \"$1\" /etc; shift; exec \"$@\"";

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Longer than a purge takes; one that waits for a FIFO never ends.
const PURGE_TIME: &str = "30";

/// The machine of the client.
struct Machine {
    etc: PathBuf,
    state: PathBuf,
    secret: PathBuf,
}

impl Machine {
    fn prepare(folder: &Path) -> Result<Self, LabError> {
        // The client's user comes as far as its own folder.
        std::fs::set_permissions(folder, Permissions::from_mode(0o755))
            .map_err(LabError::io("opening the folder"))?;
        let folder = folder.join("machine");
        let machine = Self {
            etc: folder.join("etc"),
            state: folder.join("lib/ropewalk-client"),
            secret: folder.join("secret"),
        };
        let made = || {
            std::fs::create_dir_all(&machine.etc)?;
            std::fs::create_dir_all(&machine.state)?;
            for file in ["passwd", "group", "hosts"] {
                let _ = std::fs::copy(Path::new("/etc").join(file), machine.etc.join(file));
            }
            std::fs::write(machine.etc.join("resolv.conf"), BEFORE)?;
            std::fs::write(&machine.secret, SECRET)?;
            std::fs::set_permissions(&machine.secret, Permissions::from_mode(0o600))
        };
        made().map_err(LabError::io("making a machine's folders"))?;
        Ok(machine)
    }

    fn record(&self) -> PathBuf {
        self.state.join("resolv.conf.json")
    }

    fn resolv_conf(&self) -> Vec<u8> {
        std::fs::read(self.etc.join("resolv.conf")).unwrap_or_default()
    }

    /// What the client's user does, in a shell.
    fn attack(&self, script: &str) -> Result<(), LabError> {
        let words = ["--reuid", USER, "--regid", USER, "--clear-groups", "sh", "-ec", script, "sh"];
        let paths = [&self.state, &self.secret].map(|path| path.display().to_string());
        tool::run("setpriv", &[&words[..], &[&paths[0], &paths[1]]].concat()).map(drop)
    }

    /// Each file but `resolv.conf`, with owner, mode and content.
    fn rest(&self) -> Vec<(OsString, u32, u32, Vec<u8>)> {
        let list = std::fs::read_dir(&self.etc).into_iter().flatten().flatten();
        let files = list.map(|entry| entry.path()).chain([self.secret.clone()]);
        let files = files.filter(|file| !file.ends_with("resolv.conf"));
        let mut rest: Vec<_> = files
            .filter_map(|file| {
                let found = std::fs::symlink_metadata(&file).ok()?;
                let content = std::fs::read(&file).unwrap_or_default();
                Some((file.into_os_string(), found.uid(), found.mode(), content))
            })
            .collect();
        rest.sort();
        rest
    }
}

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage = Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20)]))?;
    stage.deployment().proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
    stage.start_proxy()?;
    let machine = Machine::prepare(stage.deployment().folder())?;
    let state = machine.state.display().to_string();
    let owner = format!("{USER}:{USER}");
    if tool::run("chown", &[&owner, &state]).is_err() || machine.attack("cd \"$1\"").is_err() {
        return Ok(vec![Finding::not_here("another user's folder of state", "no other user")]);
    }
    let etc = machine.etc.display().to_string();
    let inside = ["unshare", "--mount", "sh", "-ec", WITH_ETC, "sh", &etc];
    let mut config = stage.deployment().client_config(0).clone();
    config.insert("state_dir".into(), state.into());
    let (deployment, topology) = stage.split();
    let client = topology.client();
    let mut process = deployment.start_through(&inside, client, "client", "client0", &config)?;
    let is_set = || machine.resolv_conf().ends_with(format!("nameserver {SERVER_V4}\n").as_bytes());
    process.wait_until("the tunnel's name server", PATIENCE, is_set)?;
    process.kill();
    let config = deployment.folder().join("client0.toml").display().to_string();
    let program = trial.program.display().to_string();
    let bounded = ["timeout", PURGE_TIME, &program, "client", "--purge", "--config", &config];
    let purge = [&inside[1..], &bounded[..]].concat();

    let ours = machine.resolv_conf();
    let recorded = std::fs::read(machine.record()).map_err(LabError::io("reading the record"))?;
    let rest = machine.rest();
    let mut findings = Vec::new();
    let file = |content: &str| json!({ "kind": "file", "content": content, "mode": 0o4755, "uid": 0, "gid": 0 });
    let link = json!({ "kind": "symlink", "target": machine.secret });
    let crafted = |before: serde_json::Value| {
        let written = String::from_utf8_lossy(&ours).into_owned();
        let record = json!({ "before": before, "written": [written], "in_place": false });
        format!("cat >\"$1/r\" <<'END'\n{record}\nEND\nmv -f \"$1/r\" \"$1/resolv.conf.json\"")
    };
    let plant =
        |command: &str| format!("rm -f \"$1/resolv.conf.json\"; {command} \"$1/resolv.conf.json\"");
    let attacks = [
        ("a setuid program as what stood there", crafted(file("\u{7f}ELF\u{2}\u{1}"))),
        ("a script", crafted(file("#!/bin/sh\nid\n"))),
        ("other name servers, setuid", crafted(file("nameserver 198.51.100.6\n"))),
        ("a link to what is root's", crafted(link)),
        ("its record a link", plant("ln -s \"$2\"")),
        ("its record a FIFO", plant("mkfifo")),
        ("its record 1 GB of nothing", plant("truncate -s 1G")),
        ("its record a folder", plant("mkdir")),
    ];
    for (what, script) in attacks {
        trial.say(what);
        put_back(&machine, &ours, &recorded)?;
        machine.attack(&script)?;
        let begun = Instant::now();
        // It says what it could not do: that is no failure of this proof.
        let _ = client.run(|| tool::run("unshare", &purge))?;
        findings.push(judged(what, &machine, &ours, begun.elapsed()));
        if machine.rest() != rest {
            findings.push(Finding::holds(
                format!("{what}: files outside"),
                false,
                "CHANGED".to_owned(),
                "as before",
            ));
        }
    }
    put_back(&machine, &ours, &recorded)?;
    client.run(|| tool::run("unshare", &purge))??;
    let back = machine.resolv_conf() == BEFORE.as_bytes();
    let told = if back { "what stood there before" } else { "something else" };
    findings.push(Finding::holds(
        "an honest record: resolv.conf",
        back,
        told.to_owned(),
        "what stood there before",
    ));
    let same = machine.rest() == rest;
    let told = if same { "as before" } else { "CHANGED" };
    findings.push(Finding::holds(
        "files beside it, at the end",
        same,
        told.to_owned(),
        "as before",
    ));
    Ok(findings)
}

/// As the client's end left it.
fn put_back(machine: &Machine, ours: &[u8], recorded: &[u8]) -> Result<(), LabError> {
    let place = machine.etc.join("resolv.conf");
    let again = || {
        let _ = std::fs::remove_file(&place);
        std::fs::write(&place, ours)?;
        std::fs::set_permissions(&place, Permissions::from_mode(0o644))?;
        let _ = std::fs::remove_dir(machine.record());
        let _ = std::fs::remove_file(machine.record());
        std::fs::write(machine.record(), recorded)
    };
    again().map_err(LabError::io("putting the files back"))
}

/// What stands at the place of `resolv.conf` now.
fn judged(what: &str, machine: &Machine, ours: &[u8], took: Duration) -> Finding {
    let place = machine.etc.join("resolv.conf");
    let must = "root's, 0644, name servers only, at once";
    let Ok(found) = std::fs::symlink_metadata(&place) else {
        return Finding::holds(what, false, "it is gone".to_owned(), must);
    };
    let content = machine.resolv_conf();
    let text = String::from_utf8_lossy(&content);
    let is_text = content == ours
        || text.lines().all(|line| {
            line.starts_with("nameserver ")
                || line.starts_with("# by hand")
                || line.starts_with("search ")
        });
    let ok = found.is_file()
        && found.uid() == 0
        && found.mode() & 0o7777 == 0o644
        && is_text
        && took < Duration::from_secs(20);
    let kind = if content == ours { "the client's text" } else { "another text" };
    let told = format!(
        "uid {}, mode {:04o}, {}, {:.1} s",
        found.uid(),
        found.mode() & 0o7777,
        if is_text { kind } else { "NO NAME SERVERS" },
        took.as_secs_f64()
    );
    Finding::holds(what, ok, told, must)
}
