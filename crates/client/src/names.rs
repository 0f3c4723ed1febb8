//! Which name servers this machine asks: the tunnel's while it is up, the user's own otherwise.
//!
//! There are two ways. Where `/etc/resolv.conf` leads to systemd-resolved's own address, the TUN gets the servers and
//! all names ([`Resolved`]); that ends with the TUN, so a crash leaves nothing. Everywhere else the file itself is
//! replaced, and what stood there is kept on disk until it is back ([`ResolvConf`]): by root itself, and for a client of
//! another user by a [`Helper`] of root's, where there is one.

mod helper;
mod resolv_conf;
mod resolved;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::process::geteuid;

use crate::resolve::{self, servers_in};
use crate::split::Rule;

pub use helper::{Helper, HelperError, STATE_DIR as HELPER_STATE_DIR, serve as help};
pub use resolv_conf::{Left, ResolvConf, ResolvConfError};
pub use resolved::{Resolved, ResolvedError};

/// The file that every program reads.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The program that speaks to systemd-resolved.
pub(crate) const RESOLVECTL: &str = "resolvectl";

/// The folder of the files by which names are looked up. Other programs replace them while the client runs.
const ETC: &str = "/etc";

/// Addresses at which systemd-resolved answers on this machine (`systemd-resolved.service(8)`).
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// The hold on the choice of name servers.
#[derive(Debug)]
pub struct Names {
    resolv_conf: ResolvConf,
    resolved: Resolved,
    helper: Helper,
    way: Option<Way>,
    /// The name servers of the file when it was last another's.
    own: Vec<IpAddr>,
    /// The rules by domain since which no answer is kept.
    seen: Vec<Rule>,
}

/// How the servers were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Resolved,
    Helper,
    File,
}

impl Names {
    /// A hold with `state_dir` for what must survive. Nothing is changed yet.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        let resolv_conf = ResolvConf::new(RESOLV_CONF.into(), record_in(state_dir));
        let (resolved, helper) = (Resolved::new(RESOLVECTL), Helper::new(helper::SOCKET.into()));
        Self { resolv_conf, resolved, helper, way: None, own: Vec::new(), seen: Vec::new() }
    }

    /// Whether names are looked up at the tunnel's servers.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.way.is_some()
    }

    /// The name servers that this machine would ask now, had it none of ours: some where they are known.
    pub(crate) fn own(&self) -> Vec<IpAddr> {
        match self.way {
            Some(Way::Resolved) => resolve::name_servers(&resolve::RESOLV_CONF),
            Some(Way::Helper | Way::File) => self.own.clone(),
            None => Vec::new(),
        }
    }

    /// Has names looked up at these servers, by way of `tun`. What stands so already is left alone.
    ///
    /// # Errors
    /// When that is not to be had, for people.
    pub async fn set(&mut self, tun: &str, servers: &[IpAddr]) -> anyhow::Result<()> {
        let way = match self.way {
            Some(way) => way,
            None => self.choose(),
        };
        if way != Way::Resolved {
            self.note_own();
        }
        match way {
            Way::Resolved => self.resolved.set(tun, servers).await?,
            Way::Helper => self.helper.set(servers).await?,
            Way::File => {
                let servers = servers.to_vec();
                self.on_disk(move |conf| conf.set(&servers)).await??;
            }
        }
        self.way = Some(way);
        Ok(())
    }

    /// Empties the cache of systemd-resolved when the rules by domain have changed: nobody learned addresses from the answers in it.
    ///
    /// # Errors
    /// When that is not to be had, for people.
    pub(crate) async fn flush_cache(&mut self, rules: &[Rule]) -> anyhow::Result<()> {
        if self.seen == rules {
            return Ok(());
        }
        if self.way == Some(Way::Resolved) && !rules.is_empty() {
            self.resolved.flush().await.context(
                "names that systemd-resolved has looked up already are led by `domain:` entries only when they are asked for again",
            )?;
        }
        self.seen = rules.to_vec();
        Ok(())
    }

    /// Has names looked up as before this client, or a crashed one before it.
    ///
    /// # Errors
    /// When that is not to be had, for people.
    pub async fn restore(&mut self, tun: &str) -> anyhow::Result<()> {
        let reverted = match self.way {
            Some(Way::Resolved) => self.resolved.revert(tun).await,
            Some(Way::Helper | Way::File) | None => Ok(()),
        };
        let by_helper = self.restore_by_helper().await;
        // A crashed client may have gone the other way; and what resolved refuses keeps no file from being put back.
        let restored = self.on_disk(ResolvConf::restore).await;
        // What was refused is tried again.
        reverted?;
        let by_helper = by_helper?;
        self.way = None;
        match restored??.max(by_helper) {
            Left::Nothing => {}
            Left::Restored => tracing::info!("{RESOLV_CONF} is as it was before"),
            Left::Foreign => tracing::info!(
                "{RESOLV_CONF} was changed by another program while the client ran; it stays as it is"
            ),
        }
        Ok(())
    }

    /// Notes whom the file names, unless it is ours: what another program has written is about to be replaced.
    fn note_own(&mut self) {
        let text = self.text();
        let servers: Vec<IpAddr> = servers_in(&text).collect();
        if !resolv_conf::is_ours(&text) && !servers.is_empty() {
            self.own = servers;
        }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.resolv_conf.file()).unwrap_or_default()
    }

    fn choose(&self) -> Way {
        let text = self.text();
        if leads_to_resolved(&text) {
            Way::Resolved
        } else if !geteuid().is_root() && self.helper.is_there() {
            Way::Helper
        } else {
            Way::File
        }
    }

    /// Has put back what a helper has set: by it, or as root by ourselves, where its client and it ended without.
    async fn restore_by_helper(&mut self) -> anyhow::Result<Left> {
        if !geteuid().is_root() {
            return match self.helper.is_needed() {
                true => Ok(self.helper.restore().await?),
                false => Ok(Left::Nothing),
            };
        }
        let state = Path::new(HELPER_STATE_DIR);
        let record = record_in(state);
        if !record.exists() {
            return Ok(Left::Nothing);
        }
        let restored = tokio::task::spawn_blocking(move || {
            let _only_one = helper::Only::take(state)
                .context("a helper of a client has set the name servers, and still runs")?;
            anyhow::Ok(ResolvConf::new(RESOLV_CONF.into(), record).restore()?)
        });
        restored.await?
    }

    /// Waits for the disk on another thread: packets do not.
    async fn on_disk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut ResolvConf) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let mut conf = self.resolv_conf.clone();
        let (conf, result) = tokio::task::spawn_blocking(move || {
            let result = work(&mut conf);
            (conf, result)
        })
        .await?;
        self.resolv_conf = conf;
        Ok(result)
    }
}

/// What is read to look names up: `/etc`, and where the choice of name servers is kept by the programs that there are. Where a
/// link leads to what comes later, the folder that is there.
pub(crate) fn read() -> Vec<PathBuf> {
    let target = std::fs::read_link(RESOLV_CONF).map(|target| Path::new(ETC).join(target));
    let folders = target.iter().flat_map(|target| target.ancestors().skip(1));
    let there = folders.filter_map(|folder| folder.canonicalize().ok()).next();
    // Never all files.
    let there = there.filter(|folder| folder.parent().is_some());
    let known = resolv_conf::folders().map(Path::to_owned);
    std::iter::once(ETC.into()).chain(known).chain(there).collect()
}

/// The folder in which this client changes the choice of name servers itself, if it does.
pub(crate) fn written() -> Option<PathBuf> {
    let by_helper = !geteuid().is_root() && Helper::new(helper::SOCKET.into()).is_there();
    (!by_helper).then(|| ETC.into())
}

/// Where the state folder keeps what stood in the file.
#[must_use]
pub fn record_in(state_dir: &Path) -> PathBuf {
    state_dir.join("resolv.conf.json")
}

/// Whether this `resolv.conf` has every name looked up by systemd-resolved.
fn leads_to_resolved(text: &str) -> bool {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let mut servers = servers.map(str::trim).peekable();
    servers.peek().is_some() && servers.all(|server| STUBS.contains(&server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split;
    use ropewalk_settings::{Selector, Text as _};
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn what_resolved_keeps_is_forgotten_once_when_other_domains_are_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("resolvectl");
        let said = folder.path().join("said");
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", said.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let rules = |routes: &[&str], exclude: &[&str]| {
            let list = |entries: &[&str]| -> Vec<Selector> {
                entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
            };
            split::rules(&list(routes), &list(exclude))
        };
        let mut names = Names::new(folder.path());
        names.resolved = Resolved::new(&program);
        for (way, rules, expected) in [
            (Way::File, rules(&["domain:example.org"], &[]), 0),
            (Way::Resolved, rules(&["domain:example.net"], &[]), 1),
            (Way::Resolved, rules(&["domain:example.net"], &[]), 1),
            (Way::Resolved, rules(&["domain:example.net", "domain:example.org"], &[]), 2),
            (Way::Resolved, rules(&["domain:example.net"], &["domain:example.org"]), 3),
            (Way::Resolved, rules(&[], &[]), 3),
        ] {
            names.way = Some(way);
            names.flush_cache(&rules).await.unwrap();
            let told = std::fs::read_to_string(&said).unwrap_or_default();
            assert_eq!(told, "flush-caches\n".repeat(expected), "{rules:?}");
        }
        std::fs::remove_file(program).unwrap();
        let one = rules(&["domain:example.org"], &[]);
        let error = format!("{:#}", names.flush_cache(&one).await.unwrap_err());
        assert!(error.contains("asked for again") && error.contains("resolvectl"), "{error}");
    }

    #[tokio::test]
    async fn whom_the_file_named_before_it_was_ours_is_known_and_follows_what_others_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        let mut names = Names::new(folder.path());
        names.resolv_conf = ResolvConf::new(file.clone(), folder.path().join("record.json"));
        names.way = Some(Way::File);
        let ours: [IpAddr; 1] = ["127.82.87.53".parse().unwrap()];
        for (text, expected) in [
            ("nameserver 192.0.2.53\nnameserver fd00::53\n", &["192.0.2.53", "fd00::53"][..]),
            ("# a resolver of this machine\nnameserver 127.0.0.1\n", &["127.0.0.1"]),
        ] {
            std::fs::write(&file, text).unwrap();
            for _ in 0..2 {
                names.set("rope0", &ours).await.unwrap();
                assert!(std::fs::read_to_string(&file).unwrap().contains("127.82.87.53"));
                let own: Vec<String> = names.own().iter().map(ToString::to_string).collect();
                assert_eq!(own, expected);
            }
        }
    }

    #[test]
    fn only_a_file_that_names_nothing_but_the_stub_leads_to_resolved() {
        for (text, expected) in [
            ("# managed\nnameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n", true),
            ("nameserver 127.0.0.54\n", true),
            ("nameserver 127.0.0.53\nnameserver 192.168.1.1\n", false),
            ("nameserver 127.0.0.1\n", false),
            ("# nameserver 127.0.0.53\n", false),
            ("", false),
        ] {
            assert_eq!(leads_to_resolved(text), expected, "{text}");
        }
    }
}
