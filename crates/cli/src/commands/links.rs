//! `ropewalk links`: the links in a table, switched on and off, and set.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{LinkChange, LinkSettings, LinkStatus, StatusReport};

use super::ask;
use crate::args::{Links, LinksWhat};
use crate::exit::{Failure, print};
use crate::render;

/// Does what is asked, at once, on the running daemon.
pub(crate) fn run(links: &Links) -> Result<(), Failure> {
    let socket = links.daemon.socket.as_deref();
    let Some(what) = &links.what else {
        if links.save {
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
    if links.save {
        save(&links.config, &settings, &change)?;
    }
    if links.json {
        let json = serde_json::to_string_pretty(&settings).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&said(&settings, links.save.then_some(&links.config)))
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

/// Has the change outlive the client. The file is the one that this command was told of, not one that the daemon names.
fn save(config: &Path, settings: &LinkSettings, change: &LinkChange) -> Result<(), Failure> {
    let file = std::path::absolute(config).context("there is no current folder")?;
    if settings.file != file {
        return Err(Failure::Usage(format!(
            "the change holds now, but is not saved: the running client has its config in {}, not in {}; say which \
             with --config",
            settings.file.display(),
            file.display()
        )));
    }
    ropewalk_client::config::save_link(&file, &settings.interface, &change.values)
        .context("the change holds now, but is not saved")
        .map_err(Failure::Failed)
}

/// What holds for the link, and until when.
fn said(settings: &LinkSettings, saved: Option<&PathBuf>) -> String {
    let values = settings.values.iter().map(|(key, value)| format!("{key} = {value}"));
    let values = values.collect::<Vec<_>>().join(", ");
    let until = match saved {
        Some(file) => format!("This is saved in {}.", file.display()),
        None => "This holds until the client ends or reads its config again; with --save it stays."
            .to_owned(),
    };
    format!("{}: {values}\n{until}\n", settings.name)
}
