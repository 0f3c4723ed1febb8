//! Who is measured: read from `throughput.toml`, and started between client and proxy.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ropewalk_netlab::process::Process;
use ropewalk_netlab::scratch::Scratch;
use ropewalk_netlab::tool;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::crowd::Crowd;
use super::load::Values;
use super::network::{LINKS, Network, PROXY, SERVER};
use super::ropewalk::Deployment;
use super::wireguard::Pair;
use crate::error::BadInput;

/// Sessions of a contender: the proxy's pool has about as many addresses.
const MOST_SESSIONS: u32 = 60_000;

/// The file of all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    contender: Vec<Contender>,
}

/// One of them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// In tables.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Over how many links.
    #[serde(default = "one")]
    pub links: u8,
    /// How many clients the proxy has: all but the one that is measured are idle.
    #[serde(default = "single")]
    pub sessions: u32,
    /// Whether what is measured lies behind the far end, which translates addresses.
    #[serde(default)]
    pub nat: bool,
    /// What is measured.
    #[serde(default = "Part::all")]
    pub loads: BTreeSet<Part>,
    /// Settings of both ends, beside the defaults.
    #[serde(default)]
    pub both: Table,
    /// Settings of the client alone.
    #[serde(default)]
    pub client: Table,
    /// Settings of the proxy alone.
    #[serde(default)]
    pub proxy: Table,
}

/// A kind of contender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// No tunnel.
    Veth,
    /// WireGuard's reference implementation in Go.
    WireguardGo,
    /// Cloudflare's in Rust.
    Boringtun,
    /// Ours.
    Ropewalk,
}

/// A part of the measurements.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// One and four TCP connections, each way.
    Tcp,
    /// UDP of two sizes at several rates, each way.
    Udp,
    /// Round trips on an idle tunnel, and how often its ends wake.
    Ping,
}

impl Part {
    /// All of them, in their order.
    #[must_use]
    pub fn all() -> BTreeSet<Self> {
        [Self::Tcp, Self::Udp, Self::Ping].into()
    }

    /// As on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Ping => "ping",
        }
    }
}

const fn one() -> u8 {
    1
}

const fn single() -> u32 {
    1
}

/// Reads `throughput.toml`.
///
/// # Errors
/// [`BadInput`] with the place of the mistake.
pub fn read(path: &Path) -> Result<Vec<Contender>> {
    let bad = || BadInput(format!("cannot use {}", path.display()));
    let text = std::fs::read_to_string(path).with_context(bad)?;
    let file: File = toml::from_str(&text).with_context(bad)?;
    for (place, contender) in file.contender.iter().enumerate() {
        let Contender { name, kind, links, sessions, .. } = contender;
        ensure!(
            (1..=MOST_SESSIONS).contains(sessions) && (*sessions == 1 || *kind == Kind::Ropewalk),
            BadInput(format!(
                "`{name}`: 1 to {MOST_SESSIONS} sessions, and one for what is no proxy"
            ))
        );
        ensure!(
            (1..=LINKS).contains(links) && (*links == 1 || *kind == Kind::Ropewalk),
            BadInput(format!("`{name}`: 1 to {LINKS} links, and one for what does not bond"))
        );
        ensure!(
            file.contender[..place].iter().all(|other| other.name != *name),
            BadInput(format!("two contenders are called `{name}`"))
        );
    }
    Ok(file.contender)
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Ours.
    pub ropewalk: PathBuf,
    /// A folder with those of others, asked before the search path and the folders of cargo and go.
    pub peers: Option<PathBuf>,
}

impl Programs {
    /// The first of these names that is there.
    fn find(&self, names: &[&str]) -> Option<PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let folders = [".cargo/bin", "go/bin"].map(|folder| home.join(folder));
        let folders: Vec<PathBuf> = self.peers.iter().cloned().chain(folders).collect();
        names.iter().find_map(|name| {
            let beside = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
            beside.or_else(|| tool::find(name))
        })
    }

    /// The program of a contender, or why it is missing.
    ///
    /// # Errors
    /// What to install.
    pub fn of(&self, kind: Kind) -> Result<PathBuf, String> {
        let (names, remedy): (&[&str], _) = match kind {
            Kind::Veth => return Ok(PathBuf::new()),
            Kind::Ropewalk => return Ok(self.ropewalk.clone()),
            // `go install` names it after the module.
            Kind::WireguardGo => {
                (&["wireguard-go", "wireguard"], "go install golang.zx2c4.com/wireguard@latest")
            }
            Kind::Boringtun => (&["boringtun-cli"], "cargo install boringtun-cli"),
        };
        if tool::find("wg").is_none() {
            return Err("needs `wg`: apt-get install wireguard-tools".to_owned());
        }
        self.find(names).ok_or_else(|| format!("is not installed: {remedy}"))
    }
}

/// A contender that is up. Dropped, it is gone.
#[derive(Debug)]
pub struct Running {
    /// The client's end, if it is a process.
    pub near: Option<Process>,
    /// The other.
    pub far: Option<Process>,
    /// Where the far end of a load is.
    pub target: Ipv4Addr,
    /// Whether that is the server.
    pub nat: bool,
    /// What was measured while it came up.
    pub notes: Values,
    _crowd: Option<Crowd>,
    // Last: removed when the processes have ended.
    _folder: Scratch,
}

impl Contender {
    /// Starts it.
    ///
    /// # Errors
    /// When its tunnel does not come up; with the end of a log.
    pub fn start(&self, network: &Network, program: &Path) -> Result<Running> {
        let folder = Scratch::create().context("making a temporary folder")?;
        let (mut notes, mut crowd) = (Values::new(), None);
        let (near, far, inner) = match self.kind {
            Kind::Veth => (None, None, PROXY),
            Kind::WireguardGo | Kind::Boringtun => {
                let Pair { near, far, inner } =
                    Pair::start(self.kind, program, network, folder.path())?;
                (Some(near), Some(far), inner)
            }
            Kind::Ropewalk => {
                let up = Deployment::start(self, program, network, folder.path())?;
                let Deployment { near, far, inner, .. } = up;
                (notes, crowd) = (up.notes, up.crowd);
                (Some(near), Some(far), inner)
            }
        };
        if self.nat && self.kind != Kind::Ropewalk {
            network.masquerade()?;
        }
        let target = if self.nat { SERVER } else { inner };
        Ok(Running { near, far, target, nat: self.nat, notes, _crowd: crowd, _folder: folder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contenders_of_the_project_can_be_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("throughput.toml");
        let contenders = read(&path).unwrap();
        assert!(contenders.iter().any(|one| one.kind == Kind::Ropewalk && one.links == 2));
        assert_eq!(contenders[0].kind, Kind::Veth);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("throughput.toml");
        for (text, expected) in [
            ("[[contender]]\nname = 'x'\nkind = 'veth'\nlinks = 2", "`x`: 1 to 4 links"),
            ("[[contender]]\nname = 'x'\nkind = 'ropewalk'\nlinks = 5", "`x`: 1 to 4 links"),
            ("[[contender]]\nname = 'x'\nkind = 'veth'\nsessions = 9", "`x`: 1 to 60000 sessions"),
            ("[[contender]]\nname = 'x'\nkind = 'ship'", "ship"),
            ("[[contender]]\nname = 'x'\nkind = 'veth'\nlink = 1", "link"),
            (
                "[[contender]]\nname = 'x'\nkind = 'veth'\n[[contender]]\nname = 'x'\nkind = 'veth'",
                "two contenders",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_peer_that_is_not_installed_is_named_with_its_remedy() {
        let programs = Programs { ropewalk: "ropewalk".into(), peers: None };
        assert_eq!(programs.of(Kind::Ropewalk), Ok("ropewalk".into()));
        if let Err(why) = programs.of(Kind::WireguardGo) {
            assert!(why.contains("install"), "{why}");
        }
    }
}
