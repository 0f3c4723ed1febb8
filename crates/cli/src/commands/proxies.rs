//! `ropewalk proxies` and `ropewalk use`: the proxies that a client knows, and which of them may be used.

use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::ProxiesReport;

use super::ask;
use crate::args::{Proxies, Target, Use};
use crate::exit::{Failure, print};
use crate::render;

/// Shows them.
pub(crate) fn run(proxies: &Proxies) -> Result<(), Failure> {
    show(&ask::proxies(socket(&proxies.daemon), None)?, proxies.json)
}

/// Chooses some, and shows what follows.
pub(crate) fn choose(wanted: &Use) -> Result<(), Failure> {
    show(&ask::proxies(socket(&wanted.daemon), Some(&wanted.name))?, false)
}

/// Only a client knows proxies.
fn socket(target: &Target) -> &Path {
    target.socket.as_deref().unwrap_or(Path::new(CLIENT_SOCKET))
}

fn show(report: &ProxiesReport, json: bool) -> Result<(), Failure> {
    if json {
        let json = serde_json::to_string_pretty(report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&render::proxies(report, render::columns()))
}
