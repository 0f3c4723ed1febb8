//! `ropewalk peer`: at the running proxy, else in the book that its next start reads.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ropewalk_control::api::{
    EnabledPeer, InviteWish, Invited, PeersReport, RemovedPeer, Request, Response,
};
use ropewalk_control::client::{ClientError, call_blocking};
use ropewalk_control::config::ConfigFile as _;
use ropewalk_control::invitation::Invitation;
use ropewalk_control::{PROXY_CONFIG, PROXY_SOCKET};
use ropewalk_proxy::Config;
use ropewalk_proxy::offline::Offline;
use serde::Serialize;
use zeroize::Zeroizing;

use super::ask::unasked;
use crate::args::{Invite, Peer, PeerWhat};
use crate::exit::{Failure, plain, print};
use crate::{qr, render};

/// Does it, and says what was done.
pub(crate) fn run(peer: &Peer) -> Result<(), Failure> {
    match &peer.what {
        PeerWhat::Add(invite) => self::invite(peer, invite, false),
        PeerWhat::Rotate(invite) => self::invite(peer, invite, true),
        PeerWhat::List => list(peer),
        PeerWhat::Remove { name } => remove(peer, name),
        PeerWhat::Disable { name } => enable(peer, name, false),
        PeerWhat::Enable { name } => enable(peer, name, true),
    }
}

/// Standard output holds the line and nothing else, so that it can be piped into `ropewalk join`.
fn invite(peer: &Peer, invite: &Invite, again: bool) -> Result<(), Failure> {
    let wish = InviteWish {
        name: invite.name.clone(),
        again,
        lifetime_s: invite.expires.as_secs(),
        addresses: invite.address.clone(),
    };
    let invited = match call(peer, &Request::Invite(wish.clone()))? {
        Some(Response::Invited(invited)) => *invited,
        Some(other) => return Err(unasked(&other)),
        None => {
            let invited = offline(peer)?.invite(&wish)?;
            tell("No proxy runs here: the invitation counts from its next start on.");
            invited
        }
    };
    if peer.json {
        return json(&invited);
    }
    tell(&plain(&render::invited(&invited, render::columns())));
    if invite.qr || std::io::stderr().is_terminal() {
        draw(&invited)?;
    }
    print(&format!("{}\n", invited.invitation))
}

fn draw(invited: &Invited) -> Result<(), Failure> {
    let invitation: Invitation =
        invited.invitation.parse().context("the proxy's invitation is not understood")?;
    let code = qr::drawn(&invitation.to_capitals(), std::io::stderr().is_terminal())?;
    tell(&Zeroizing::new(code));
    Ok(())
}

fn list(peer: &Peer) -> Result<(), Failure> {
    let report: PeersReport = match call(peer, &Request::Peers)? {
        Some(Response::Peers(report)) => *report,
        Some(other) => return Err(unasked(&other)),
        None => offline(peer)?.report(),
    };
    if peer.json { json(&report) } else { print(&render::peers(&report, render::columns())) }
}

fn remove(peer: &Peer, name: &str) -> Result<(), Failure> {
    let removed: RemovedPeer = match call(peer, &Request::RemovePeer { name: name.to_owned() })? {
        Some(Response::Removed(removed)) => *removed,
        Some(other) => return Err(unasked(&other)),
        None => offline(peer)?.remove(name)?,
    };
    if peer.json { json(&removed) } else { print(&render::removed(&removed, render::columns())) }
}

fn enable(peer: &Peer, name: &str, enabled: bool) -> Result<(), Failure> {
    let request = Request::EnablePeer { name: name.to_owned(), enabled };
    let enabled: EnabledPeer = match call(peer, &request)? {
        Some(Response::Enabled(enabled)) => *enabled,
        Some(other) => return Err(unasked(&other)),
        None => offline(peer)?.enable(name, enabled)?,
    };
    if peer.json { json(&enabled) } else { print(&render::enabled(&enabled, render::columns())) }
}

/// What the running proxy answers; `None`: none runs.
fn call(peer: &Peer, request: &Request) -> Result<Option<Response>, Failure> {
    match call_blocking(&socket(peer)?, request) {
        Ok(response) => Ok(Some(response)),
        Err(ClientError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The socket that was said, else that of the config that was said, else the usual one.
fn socket(peer: &Peer) -> Result<PathBuf, Failure> {
    Ok(match (&peer.socket, &peer.config) {
        (Some(socket), _) => socket.clone(),
        (None, Some(config)) => Config::load(config)?.control.socket,
        (None, None) => PathBuf::from(PROXY_SOCKET),
    })
}

fn offline(peer: &Peer) -> Result<Offline, Failure> {
    let file = peer.config.as_deref().unwrap_or(Path::new(PROXY_CONFIG));
    if peer.config.is_none() && matches!(file.try_exists(), Ok(false)) {
        return Err(Failure::NoDaemon(format!(
            "no proxy runs here, and there is no config {PROXY_CONFIG}: start it with `ropewalk proxy`, which makes one \
             the first time; if its config or its [control] socket is another one, say --config or --socket"
        )));
    }
    Ok(Offline::open(Config::load(file)?, file)?)
}

fn json(document: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(document).context("cannot write it as JSON")?;
    print(&(json + "\n"))
}

/// For people.
fn tell(text: &str) {
    drop(writeln!(std::io::stderr(), "{}", text.trim_end_matches('\n')));
}
