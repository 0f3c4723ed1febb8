//! What the devices behind a client are handed out: addresses by DHCP, answers to questions for names, and IPv6 by a prefix that
//! the proxy routes here. All of it is done by `dnsmasq`, one for each shared interface.
//!
//! `dnsmasq` needs two rights that the client does not (low ports, raw packets), and the client's sandbox is too narrow for it.
//! So it is not the client that starts it, but a helper: the same program, started before the client enters its sandbox and gives
//! those rights up. The helper closes to itself and to every `dnsmasq` all files but the few that they need (Landlock), the
//! client's key among them. It takes nothing from the client but what is to be served ([`Lan`]), writes the configs itself, and
//! ends with the client, however that ends: by the end of their connection.
//!
//! ```text
//!  client ──── lines: what is to be served ────▶ helper ──┬─ dnsmasq of lan0
//!         ◀─── lines: what runs, and leases ────          └─ dnsmasq of lan1
//! ```
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`lan`] | what is to be served behind an interface: from the config and what the interface has |
//! | [`text`] | the config of a `dnsmasq` |
//! | [`words`] | the lines between client and helper |
//! | [`supervise`] | when one is started, and started again |
//! | `helper` | the helper |
//! | `server` | one `dnsmasq`, from its start to its end |
//! | [`leases`] | which addresses are lent to whom |
//! | `ports` | whether another program serves there already |
//! | `tidy` | what a crash left |
//! | `handle` | the client's end |

pub(crate) mod handle;
pub(crate) mod helper;
pub mod lan;
pub mod leases;
mod ports;
mod server;
pub mod supervise;
pub mod text;
pub(crate) mod tidy;
pub mod words;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ropewalk_control::api::Role;
use ropewalk_control::runtime_folder;
use rustix::process::geteuid;

pub use lan::Lan;

/// The program that does it.
pub const DNSMASQ: &str = "dnsmasq";

/// What to do where it is not there.
pub const NO_DNSMASQ: &str = "the program `dnsmasq` is not there: install the package dnsmasq-base (Debian, Ubuntu: apt install \
                              dnsmasq-base)";

/// The helper's command: `ropewalk lan-servers FOLDER`, with the client at standard input.
pub const HELPER: &str = "lan-servers";

/// The helper's option without which it closes files to itself.
pub const NO_SANDBOX: &str = "--no-sandbox";

/// Where packages put it; a user's PATH often lacks these.
const USUAL_PLACES: [&str; 2] = ["/usr/sbin/dnsmasq", "/sbin/dnsmasq"];

/// Whether it is there.
#[must_use]
pub fn has_dnsmasq() -> bool {
    find_dnsmasq().is_some()
}

/// Where it is.
fn find_dnsmasq() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(DNSMASQ));
    in_path.chain(USUAL_PLACES.map(PathBuf::from)).find(|place| place.is_file())
}

/// The folder of the files of this network namespace's client: each has one of its own. Root's stands where nobody else makes
/// files.
///
/// # Errors
/// There is no /proc.
fn folder() -> std::io::Result<PathBuf> {
    let [of_root, of_others] = folders()?;
    Ok(if geteuid().is_root() { of_root } else { of_others })
}

/// The same for a client that root runs, and for one of another user.
fn folders() -> std::io::Result<[PathBuf; 2]> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    let of_clients = Path::new(runtime_folder(Role::Client));
    let of_root = of_clients.parent().unwrap_or(of_clients);
    Ok([of_root, of_clients].map(|folder| folder.join(format!("lan-{namespace}"))))
}
