//! `ropewalk fleet`: the proxies that share one registry.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use ropewalk_control::PROXY_CONFIG;
use ropewalk_control::config::ConfigFile as _;
use ropewalk_proxy::Config;
use ropewalk_proxy::fleet::{Fleet as Shared, Imported};
use serde_json::json;

use crate::args::{Fleet, FleetWhat};
use crate::exit::{Failure, print};
use crate::live::Live;
use crate::render::{self, clean};

/// Does it, and says what was done.
pub(crate) fn run(fleet: &Fleet) -> Result<(), Failure> {
    let file = fleet.config.as_deref().unwrap_or(Path::new(PROXY_CONFIG));
    let config = Config::load(file)?;
    let shared = Shared::open(&config)?;
    match &fleet.what {
        None => {
            let report = shared.report()?;
            match fleet.json {
                true => json(&serde_json::to_value(&report).context("cannot write it as JSON")?),
                false => print(&render::fleet(&report, render::columns())),
            }
        }
        Some(FleetWhat::Drain { id }) => drain(fleet, &shared, id, true),
        Some(FleetWhat::Undrain { id }) => drain(fleet, &shared, id, false),
        Some(FleetWhat::Import) => import(fleet, &shared, &config),
        Some(FleetWhat::Export { replace }) => export(fleet, &shared, &config, *replace),
    }
}

fn drain(fleet: &Fleet, shared: &Shared, id: &str, drain: bool) -> Result<(), Failure> {
    let is_new = shared.drain(id, drain)?;
    if fleet.json {
        return json(&json!({ "id": id, "draining": drain, "changed": is_new }));
    }
    let said = match (drain, is_new) {
        (true, true) => format!("{id} takes no new sessions from now on.\n"),
        (true, false) => format!("{id} drains already.\n"),
        (false, true) => format!("{id} takes new sessions again.\n"),
        (false, false) => format!("{id} does not drain.\n"),
    };
    print(&said)
}

fn import(fleet: &Fleet, shared: &Shared, config: &Config) -> Result<(), Failure> {
    let (mut live, begun) = (Live::start(), Instant::now());
    let progress = |settled, of| {
        live.show(|| render::import_progress(settled, of, begun.elapsed()));
    };
    let imported = shared.import(config, progress);
    drop(live);
    let Imported { added, known, refused } = imported?;
    if fleet.json {
        json(&json!({ "added": added, "known": known, "refused": refused }))?;
    } else {
        let mut said =
            format!("Brought {added} clients into the registry; {known} were there already.\n");
        for why in &refused {
            said.push_str(&format!("not brought in: {}\n", clean(why)));
        }
        print(&said)?;
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(anyhow::anyhow!("{} clients were not brought in", refused.len())))
}

fn export(fleet: &Fleet, shared: &Shared, config: &Config, replace: bool) -> Result<(), Failure> {
    let (clients, passed_over) = shared.export(config, replace)?;
    let [peers, leases] = [config.registry_file(), config.leases_file()];
    if fleet.json {
        let files = [peers, leases];
        json(&json!({ "clients": clients, "files": files, "passed_over": passed_over }))?;
    } else {
        let mut said = format!(
            "Wrote {clients} clients to {} and {}.\nInvitations stay in the registry: give new ones.\n",
            peers.display(),
            leases.display()
        );
        for why in &passed_over {
            said.push_str(&format!("not written: {}\n", clean(why)));
        }
        print(&said)?;
    }
    if passed_over.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(anyhow::anyhow!("{} values cannot be read", passed_over.len())))
}

fn json(document: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{document:#}\n"))
}
