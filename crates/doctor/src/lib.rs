//! What is wrong with a daemon of Ropewalk and its machine, and what fixes it; before the start and while the daemon runs.
//!
//! Every check is a file of its own: `look` gathers facts, and `judge`, a pure function, makes findings of them.
//!
//! | module | what it has |
//! |---|---|
//! | `client`, `proxy` | what is examined of each, in order; `common`: of both |
//! | [`finding`] | what was found: how bad it is, and what fixes it |
//! | [`fix`] | what `ropewalk doctor --fix` does itself: edits of a config file, and commands |
//! | [`privilege`] | which capabilities a daemon needs |
//! | the others | one check each |
//!
//! An examination changes nothing: what it tries on the network is what [`ropewalk_client::probe`] may ask of a proxy.

mod buffers;
mod chosen;
mod client;
mod clock;
mod common;
mod config;
mod daemon;
mod files;
pub mod finding;
mod firewall;
pub mod fix;
mod forward;
mod forwarding;
mod gateways;
mod kill_switch;
mod leftovers;
mod links;
mod name;
mod near;
mod paths;
mod port;
pub mod privilege;
mod privileges;
mod proxy;
mod quoting;
mod reach;
mod rp_filter;
mod sandbox;
mod tun;
mod vpn;

use std::path::{Path, PathBuf};

use ropewalk_control::api::Role;
use serde::Serialize;

pub use finding::{Finding, Level};
pub use fix::{Fix, Outcome};

/// All findings about one daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// Which daemon.
    pub role: Role,
    /// Its config file.
    pub config: PathBuf,
    /// What was found, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// Examines the daemon of this config file.
#[must_use]
pub fn examine(role: Role, config: &Path) -> Examination {
    let findings = match role {
        Role::Client => client::examine(config),
        Role::Proxy => proxy::examine(config),
    };
    Examination { role, config: config.to_owned(), findings }
}
