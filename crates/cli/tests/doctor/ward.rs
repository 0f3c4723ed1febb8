//! Who is examined: a network with a client and a proxy, and what their users type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::process::bound_to_parent;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use serde_json::Value;
use toml::Table;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Longer than a start takes, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Everything that could be `nft` is hidden.
pub(crate) const WITHOUT_NFT: &str = "mount -t tmpfs tmpfs /usr/sbin; PATH=$PATH:/nowhere; ";

/// What follows runs without the right to change the network.
pub(crate) const WITHOUT_RIGHT: &str =
    "exec setpriv --bounding-set -net_admin --inh-caps -net_admin ";

/// One finding, as the JSON document has it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) level: String,
    pub(crate) subject: String,
    pub(crate) found: String,
    pub(crate) advice: String,
    pub(crate) commands: Vec<String>,
    pub(crate) at_proxy: bool,
}

/// A network with a client and a proxy, and what their users type.
pub(crate) struct Ward {
    pub(crate) stage: Stage,
    pub(crate) tools: PathBuf,
}

impl Ward {
    pub(crate) fn open() -> Self {
        let wans = vec![WanConfig::default(); 2];
        let config = TopologyConfig::new(wans);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        let tools = stage.deployment().folder().join("tools");
        fs::create_dir(&tools).unwrap();
        // Everybody here is root already; and `ropewalk` is the program under test.
        let script = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::write(tools.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("sudo", "exec \"$@\"");
        script("ropewalk", &format!("exec {PROGRAM} \"$@\""));
        Self { stage, tools }
    }

    pub(crate) fn file(&mut self, name: &str) -> PathBuf {
        self.stage.deployment().folder().join(name)
    }

    /// Writes the client's config, changed so.
    pub(crate) fn client(&mut self, change: impl FnOnce(&mut Table)) -> PathBuf {
        let mut config = self.stage.deployment().client_config(0).clone();
        change(&mut config);
        self.write("client0.toml", &config)
    }

    fn write(&mut self, name: &str, config: &Table) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, config.to_string()).unwrap();
        file
    }

    pub(crate) fn proxy(&mut self) -> PathBuf {
        let config = self.stage.deployment().proxy_config().clone();
        self.write("proxy.toml", &config)
    }

    /// Runs a shell's script in a namespace, with mounts of its own.
    pub(crate) fn shell(&self, namespace: &Namespace, script: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = bound_to_parent("unshare");
        command.args(["--mount", "sh", "-ec", &format!("mount --make-rprivate /; {script}")]);
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.tools.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        namespace.spawn(command).unwrap().wait_with_output().unwrap()
    }

    /// Examines in a namespace, behind what the script `before` does there.
    pub(crate) fn examine(
        &self,
        namespace: &Namespace,
        file: &Path,
        before: &str,
    ) -> Vec<(String, Found)> {
        let script = format!("{before}{PROGRAM} doctor --json --config {}", file.display());
        let output = self.shell(namespace, &script);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let document: Value =
            serde_json::from_str(&out).unwrap_or_else(|error| unreachable!("{error}: {out}{err}"));
        assert_eq!(document["version"], 1);
        let findings = document["examinations"][0]["findings"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let found: Vec<(String, Found)> = findings
            .iter()
            .map(|one| {
                let commands = one["commands"].as_array().unwrap().iter().map(text).collect();
                let found = Found {
                    level: text(&one["level"]),
                    subject: text(&one["subject"]),
                    found: text(&one["found"]),
                    advice: text(&one["advice"]),
                    commands,
                    at_proxy: one["at_proxy"] == true,
                };
                (text(&one["id"]), found)
            })
            .collect();
        let fails = found.iter().any(|(_, one)| one.level == "fail");
        assert_eq!(output.status.code(), Some(i32::from(fails)), "{out}{err}");
        found
    }

    /// Has the faults fixed without a question, as far as that can be, behind what the script `before` does there.
    pub(crate) fn try_to_fix(&self, namespace: &Namespace, file: &Path, before: &str) -> Output {
        let script = format!("{before}{PROGRAM} doctor --fix --yes --config {}", file.display());
        self.shell(namespace, &script)
    }

    /// The same where all that fails can be fixed.
    pub(crate) fn fix(&self, namespace: &Namespace, file: &Path, before: &str) -> String {
        let output = self.try_to_fix(namespace, file, before);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !out.contains("failed"), "{out}{err}");
        assert!(out.contains("  done") && out.contains("Examined again"), "{out}{err}");
        out
    }

    /// What stands out: no note, and not as it should be.
    pub(crate) fn faults(found: &[(String, Found)]) -> Vec<&str> {
        let stands_out = |(_, one): &&(String, Found)| one.level == "warn" || one.level == "fail";
        found.iter().filter(stands_out).map(|(id, _)| id.as_str()).collect()
    }
}

/// The finding of this kind, which alone must stand out, but for `beside`.
pub(crate) fn only(found: Vec<(String, Found)>, id: &str, beside: &[&str]) -> Found {
    let faults = Ward::faults(&found);
    let others: Vec<_> =
        faults.iter().filter(|one| **one != id && !beside.contains(*one)).collect();
    assert!(faults.contains(&id) && others.is_empty(), "wanted {id} alone: {found:#?}");
    found.into_iter().find(|(one, _)| one == id).unwrap().1
}
