//! `ropewalk notify`: looks at the client again and again, and shows what became of its links on this desktop.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{ErrorCode, Request, Response, Role, StatusReport};
use ropewalk_control::client::{ClientError, call};
use rustix::time::{ClockId, clock_gettime};

use super::ask::unasked;
use crate::args::Notify;
use crate::exit::{Failure, print};
use crate::notify::{Act, Desk, Note, Topic, Unshown, Urgency, Watcher};

/// How often it is looked whether the session's bus is there, where nothing is shown.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// Runs until the session ends.
pub(crate) fn run(notify: &Notify) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(async {
        let desk = Desk::open().await.map_err(|why| no_desktop(&why))?;
        match notify.only_try {
            true => try_once(desk).await,
            false => watch(notify, desk).await,
        }
    })
}

/// Shows one notification.
async fn try_once(mut desk: Desk) -> Result<(), Failure> {
    let body = "This is how you hear of your links.";
    let note = Note::new(Topic::Links, Urgency::Normal, "Ropewalk can show notifications", body);
    desk.act(&Act::Show(note)).await.map_err(|why| no_desktop(&why))?;
    print("One notification was shown.\n")
}

async fn watch(notify: &Notify, mut desk: Desk) -> Result<(), Failure> {
    if !desk.is_only().await.map_err(|why| no_desktop(&why))? {
        return print("Another `ropewalk notify` runs in this session: it shows all.\n");
    }
    let socket = notify.daemon.socket.as_deref().unwrap_or(Path::new(CLIENT_SOCKET));
    let mut watcher = Watcher::new(notify.every);
    let (mut told, mut checked) = (false, now());
    loop {
        let seen = look(socket).await?;
        let now = now();
        for act in watcher.look(now, seen.as_ref()) {
            match desk.act(&act).await {
                Ok(()) => told = false,
                Err(gone @ Unshown::Bus(_)) => return Err(no_desktop(&gone)),
                Err(why) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!("{why}; trying again");
                    }
                    watcher.put_back(act);
                }
            }
        }
        if now.saturating_sub(checked) >= CHECK_EVERY {
            checked = now;
            desk.check().await.map_err(|why| no_desktop(&why))?;
        }
        tokio::time::sleep(notify.every).await;
    }
}

/// What the client says; `None`: it does not answer at present.
async fn look(socket: &Path) -> Result<Option<StatusReport>, Failure> {
    match call(socket, &Request::Status).await {
        Ok(Response::Status(report)) if report.daemon.role == Role::Client => Ok(Some(*report)),
        Ok(Response::Status(_)) => Err(Failure::Usage(format!(
            "a proxy answers at {}: notifications are for a client",
            socket.display()
        ))),
        Ok(other) => Err(unasked(&other)),
        Err(ClientError::Permission { .. }) => Err(not_allowed(socket)),
        Err(ClientError::Refused(error)) if error.code == ErrorCode::Forbidden => {
            Err(not_allowed(socket))
        }
        // An upgrade may have replaced this program as well: a service manager starts the new one.
        Err(error @ ClientError::Version { .. }) => Err(error.into()),
        Err(error) => {
            tracing::debug!("{error}");
            Ok(None)
        }
    }
}

fn not_allowed(socket: &Path) -> Failure {
    Failure::Permission(format!(
        "you may not ask the client at {}: its config must name a group (group = \"ropewalk\" in [control], then \
         `sudo systemctl restart ropewalk-client`), and you must be a member of it (`sudo usermod -aG ropewalk $USER`, then log in \
         again)",
        socket.display()
    ))
}

fn no_desktop(why: &Unshown) -> Failure {
    Failure::NoDesktop(format!(
        "{why} (`ropewalk notify` runs in a desktop's session, as its user and not with sudo)"
    ))
}

/// Time that goes on while the machine sleeps.
fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
