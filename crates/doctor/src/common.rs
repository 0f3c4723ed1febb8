//! What is looked at for both roles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ropewalk_client::probe;
use ropewalk_control::api::{Request, Response, Role};
use ropewalk_control::client::{ClientError, call_blocking};
use ropewalk_control::config::source::{MAX_FILE_BYTES, MAX_KEY_FILE_BYTES};
use ropewalk_control::config::{ConfigFile, KeyFiles, Source};
use ropewalk_control::folder;
use ropewalk_link_io::netlink::{CLIENT_PROTOCOL, Interface, Kind, PROXY_PROTOCOL};
use ropewalk_settings::PrivateKey;

use super::finding::Finding;
use super::firewall::{self, Nft};
use super::{buffers, clock, config, daemon, files, leftovers, privileges, sandbox, tun};
use crate::privilege::{self, Capability};

/// The config of a daemon, and the daemon itself, as they were found.
pub(super) struct Patient<C> {
    pub(super) role: Role,
    pub(super) file: PathBuf,
    /// What the file means, also where a key file keeps the daemon from reading it.
    pub(super) config: Option<C>,
    /// Whether the daemon can read it.
    state: config::State,
    secrets: Vec<files::Secret>,
    pub(super) daemon: daemon::Answer,
    pub(super) nft: Nft,
}

impl<C: ConfigFile> Patient<C> {
    /// Reads the config and asks the daemon; `socket` is where it answers, `meaning` what the config says in a few words.
    pub(super) fn look(
        role: Role,
        file: &Path,
        socket: impl Fn(Option<&C>) -> PathBuf,
        meaning: impl Fn(&C) -> String,
    ) -> Self {
        let text = text_of(file, MAX_FILE_BYTES).unwrap_or_default();
        let (config, state) = if matches!(file.try_exists(), Ok(false)) {
            (None, config::State::Missing)
        } else {
            match C::load(file) {
                Ok(config) => {
                    let state = config::State::Good(meaning(&config));
                    (Some(config), state)
                }
                Err(error) => (lenient(file, &text), config::State::wrong(&error)),
            }
        };
        let daemon = match call_blocking(&socket(config.as_ref()), &Request::Status) {
            Ok(Response::Status(report)) => daemon::Answer::Status(report),
            Ok(other) => daemon::Answer::Failed(format!("it answered something else: {other:?}")),
            Err(ClientError::NotRunning { .. }) => daemon::Answer::NotRunning,
            Err(error) => daemon::Answer::Failed(error.to_string()),
        };
        Self {
            role,
            file: file.to_owned(),
            config,
            state,
            secrets: files::look(file, &text),
            daemon,
            nft: Nft::of(probe::firewall()),
        }
    }

    /// Whether the daemon answers.
    pub(super) fn runs(&self) -> bool {
        self.daemon.status().is_some()
    }

    /// Config and files, what the daemon says, and the machine itself.
    pub(super) fn examine(&self, needed: &'static [Capability], reached: bool) -> Vec<Finding> {
        let daemon = self.daemon.status().map(|report| report.daemon.pid.to_string());
        let daemon = daemon.and_then(|id| privilege::effective_of(&id));
        let own = privilege::effective_of("self");
        let files = files::judge(&self.secrets);
        // A key file that is open to others is told once, with its name.
        let told = files.iter().any(|one| one.id == "files.open" || one.id == "files.missing");
        let config = config::judge(self.role, &self.file, &self.state);
        let mut findings: Vec<Finding> =
            (!told || config.id != "config.wrong").then_some(config).into_iter().collect();
        findings.extend(files);
        findings.extend(daemon::judge(self.role, &self.daemon, env!("CARGO_PKG_VERSION"), reached));
        let sandbox = self.daemon.status().and_then(|report| report.daemon.sandbox);
        findings.extend(sandbox.map(|status| sandbox::judge(self.role, &self.file, status)));
        findings.push(privileges::judge(&privileges::Facts {
            role: self.role,
            needed,
            daemon,
            own,
        }));
        findings.extend(tun::judge(&tun::look()));
        findings.push(firewall::judge_nft(self.role, &self.nft));
        findings.push(self.clock());
        let may_pass =
            daemon.or(own).is_none_or(|set| privilege::missing(privilege::PURGE, set).is_empty());
        findings.extend(buffers::judge(&buffers::look(may_pass)));
        findings
    }

    fn clock(&self) -> Finding {
        let mut files: Vec<&Path> = vec![&self.file];
        files.extend(self.secrets.iter().map(|secret| secret.path.as_path()));
        clock::judge(&clock::look(&files))
    }

    /// What no running daemon accounts for; `tun` is the name of its TUN, `records` where a client keeps what it must put
    /// back into `/etc/resolv.conf`.
    pub(super) fn leftovers(
        &self,
        tun: &str,
        interfaces: &[Interface],
        records: &[PathBuf],
    ) -> Vec<Finding> {
        let protocol = match self.role {
            Role::Client => CLIENT_PROTOCOL,
            Role::Proxy => PROXY_PROTOCOL,
        };
        let (rules, routes) = probe::own_routing(protocol).unwrap_or_default();
        let has_table = |name: &str| match &self.nft {
            Nft::Rules(rules) => rules.has_table(name),
            _ => false,
        };
        let facts = leftovers::Facts {
            runs: self.runs(),
            rules,
            routes,
            table: has_table(&format!("ropewalk_{}", self.role))
                || (self.role == Role::Client && has_table("ropewalk_split")),
            lock: has_table("ropewalk_lock"),
            names: records.iter().any(|record| record.exists()),
            tun: interfaces.iter().find(|one| one.name == tun).map(|one| leftovers::Tun {
                name: one.name.clone(),
                kind: match &one.kind {
                    Kind::Physical => "physical".to_owned(),
                    Kind::Virtual(kind) => kind.clone(),
                },
                is_held: one.carrier,
            }),
            locked: probe::is_running(self.role),
        };
        leftovers::judge(self.role, &self.file, &facts)
    }
}

/// What a file says; `None` where it cannot be read, is longer, or is no text.
fn text_of(file: &Path, limit: u64) -> Option<String> {
    let content = folder::read(file, limit).ok()?;
    std::str::from_utf8(&content.bytes).ok().map(str::to_owned)
}

/// The config with whatever its key files hold, or with another key in place of one that cannot be read.
fn lenient<C: ConfigFile>(file: &Path, text: &str) -> Option<C> {
    let key = PrivateKey::generate().ok()?.to_base64().to_string();
    let folder = file.parent().unwrap_or(Path::new(""));
    let named = files::names(text).into_iter().map(|name| {
        let there = text_of(&folder.join(&name), MAX_KEY_FILE_BYTES);
        (name, there.unwrap_or_else(|| key.clone()))
    });
    let keys: BTreeMap<PathBuf, String> = named.collect();
    C::parse(&Source::from_text(file, text, KeyFiles::Given(keys))).ok()
}
