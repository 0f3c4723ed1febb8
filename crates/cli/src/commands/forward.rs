//! `ropewalk forward`: ports of a proxy that lead to its clients.

use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::PROXY_SOCKET;

use super::ask;
use crate::args::Forward;
use crate::exit::{Failure, print};
use crate::render;

/// Shows them.
pub(crate) fn run(forward: &Forward) -> Result<(), Failure> {
    // Only a proxy forwards.
    let socket = forward.daemon.socket.as_deref().unwrap_or(Path::new(PROXY_SOCKET));
    let report = ask::forwards(socket)?;
    if forward.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&render::forwards(&report, render::columns()))
}
