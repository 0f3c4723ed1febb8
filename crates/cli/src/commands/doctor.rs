//! `ropewalk doctor`: what is wrong, and what fixes it; before the start and while a daemon runs.
//!
//! Every check is a file of its own: `look` gathers facts and `judge`, a pure function, makes findings of them. What both
//! roles have in common stands in `common`, what each examines in `client` and `proxy`. Nothing is changed: what is tried
//! on the network is what [`ropewalk_client::probe`] may ask of a proxy.

mod buffers;
mod client;
mod clock;
mod common;
mod config;
mod daemon;
mod edit;
mod files;
mod finding;
mod firewall;
mod forwarding;
mod gateways;
mod kill_switch;
mod leftovers;
mod links;
mod name;
mod near;
mod paths;
mod port;
mod privileges;
mod proxy;
mod reach;
mod rp_filter;
mod sandbox;
mod tun;
mod vpn;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use ropewalk_control::api::Role;
use ropewalk_control::config::Source;
use ropewalk_control::{CLIENT_CONFIG, PROXY_CONFIG};
use serde::Serialize;

pub(crate) use finding::{Finding, Level};

use super::check_config::role_of;
use crate::args::{self, Doctor};
use crate::exit::{Failure, print};
use crate::render;

/// The version of the JSON document: it grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// All findings about one daemon.
#[derive(Debug, Serialize)]
pub(crate) struct Examination {
    /// Which daemon.
    pub(crate) role: Role,
    /// Its config file.
    pub(crate) config: PathBuf,
    /// What was found, in the order of the checks.
    pub(crate) findings: Vec<Finding>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    examinations: &'a [Examination],
}

/// Examines what is there, prints the findings, and fails where something does.
pub(crate) fn run(doctor: &Doctor) -> Result<(), Failure> {
    let examinations: Vec<Examination> = patients(doctor)
        .into_iter()
        .map(|(role, config)| {
            let findings = match role {
                Role::Client => client::examine(&config),
                Role::Proxy => proxy::examine(&config),
            };
            Examination { role, config, findings }
        })
        .collect();
    if doctor.json {
        let document = Document { version: VERSION, examinations: &examinations };
        let mut json =
            serde_json::to_string_pretty(&document).context("cannot write the findings as JSON")?;
        json.push('\n');
        print(&json)?;
    } else {
        print(&render::doctor::doctor(&examinations, render::columns()))?;
    }
    let findings = examinations.iter().flat_map(|examination| &examination.findings);
    match findings.filter(|finding| finding.level == Level::Fail).count() {
        0 => Ok(()),
        1 => Err(Failure::Failed(anyhow!("one finding fails"))),
        count => Err(Failure::Failed(anyhow!("{count} findings fail"))),
    }
}

/// Whose config is examined: the one that is named, else those that are there, else what a client's would be.
fn patients(doctor: &Doctor) -> Vec<(Role, PathBuf)> {
    if let Some(file) = &doctor.config {
        let role = doctor.role.map_or_else(|| guess(file), role);
        return vec![(role, file.clone())];
    }
    if let Some(wanted) = doctor.role {
        let (role, file) = match wanted {
            args::RoleArgument::Client => (Role::Client, CLIENT_CONFIG),
            args::RoleArgument::Proxy => (Role::Proxy, PROXY_CONFIG),
        };
        return vec![(role, file.into())];
    }
    let usual = [(Role::Client, CLIENT_CONFIG), (Role::Proxy, PROXY_CONFIG)];
    let mut there: Vec<(Role, PathBuf)> = usual
        .into_iter()
        .map(|(role, file)| (role, PathBuf::from(file)))
        // What cannot be looked at may be there.
        .filter(|(_, file)| !matches!(file.try_exists(), Ok(false)))
        .collect();
    if there.is_empty() {
        there.push((Role::Client, CLIENT_CONFIG.into()));
    }
    there
}

const fn role(of: args::RoleArgument) -> Role {
    match of {
        args::RoleArgument::Client => Role::Client,
        args::RoleArgument::Proxy => Role::Proxy,
    }
}

/// By its keys, else by its name.
fn guess(file: &Path) -> Role {
    let by_keys = Source::read(file).ok().and_then(|source| role_of(&source).ok());
    by_keys.map_or_else(
        || match file.file_name().is_some_and(|name| name.to_string_lossy().contains("proxy")) {
            true => Role::Proxy,
            false => Role::Client,
        },
        role,
    )
}
