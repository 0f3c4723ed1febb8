//! `ropewalk links`: the links in a table, switched on and off, and set.

use std::path::Path;

use anyhow::Context as _;
use ropewalk_client::config::save_link;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{LinkChange, LinkSettings, LinkStatus, StatusReport};

use super::{ask, saving};
use crate::args::{Links, LinksWhat, Saving};
use crate::exit::{Failure, print};
use crate::render;

/// Does what is asked, at once, on the running daemon.
pub(crate) fn run(links: &Links) -> Result<(), Failure> {
    let socket = links.daemon.socket.as_deref();
    let Some(what) = &links.what else {
        if links.saving.save {
            return Err(Failure::Usage("--save goes with a change of a link".to_owned()));
        }
        return show(links);
    };
    let enabled = |on: bool| vec![("enabled".to_owned(), on.to_string())];
    let (name, values) = match what {
        LinksWhat::Enable { name } => (name, enabled(true)),
        LinksWhat::Disable { name } => (name, enabled(false)),
        LinksWhat::Set { name, values } => {
            if values.iter().any(|(key, _)| key == "enabled") {
                return Err(Failure::Usage(format!(
                    "a link is switched on and off with `ropewalk links enable {name}` and `ropewalk links disable {name}`"
                )));
            }
            (name, values.clone())
        }
    };
    let change = LinkChange { name: name.clone(), values: values.into_iter().collect() };
    // Only a client has links of its own.
    let settings = ask::change_link(socket.unwrap_or(Path::new(CLIENT_SOCKET)), change.clone())?;
    saving::save(&links.saving, &settings.file, |file| {
        save_link(file, &settings.interface, &change.values)
    })?;
    if links.json {
        let json = serde_json::to_string_pretty(&settings).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&said(&settings, &links.saving))
}

/// The links of a daemon, by tunnel.
#[derive(serde::Serialize)]
struct OfTunnel<'a> {
    peer: &'a str,
    links: &'a [LinkStatus],
}

fn show(links: &Links) -> Result<(), Failure> {
    let report: StatusReport = ask::status(links.daemon.socket.as_deref())?;
    if !links.json {
        return print(&render::links(&report, render::columns()));
    }
    let tunnels: Vec<_> = report
        .tunnels
        .iter()
        .map(|tunnel| OfTunnel { peer: &tunnel.peer, links: &tunnel.links })
        .collect();
    let json = serde_json::to_string_pretty(&tunnels).context("cannot write it as JSON")?;
    print(&(json + "\n"))
}

/// What holds for the link, and until when.
fn said(settings: &LinkSettings, saving: &Saving) -> String {
    let values = settings.values.iter().map(|(key, value)| format!("{key} = {value}"));
    let values = values.collect::<Vec<_>>().join(", ");
    format!("{}: {values}\n{}\n", settings.name, saving::until(saving))
}
