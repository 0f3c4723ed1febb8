//! What follows from the events of the core.

use std::path::Path;

use ropewalk_control::api::EventKind;
use ropewalk_control::folder;
use ropewalk_daemon::client_status::end_in_words;
use ropewalk_daemon::status;
use ropewalk_link_io::driver::Io;
use ropewalk_proto::client::ClientEvent;
use ropewalk_proto::event::{DownReason, Event};
use ropewalk_proto::fleet::FleetEvent;
use ropewalk_proto::time::Instant;

use super::Daemon;

impl Daemon {
    pub(super) fn on_event(&mut self, now: Instant, event: FleetEvent, io: &mut Io<'_>) {
        match event {
            FleetEvent::Client(event) => self.on_session_event(now, event),
            FleetEvent::List(list) => self.on_list(now, list, io),
            FleetEvent::Moved { from, to, why } => self.on_moved(now, from, to, why),
        }
    }

    fn on_session_event(&mut self, now: Instant, event: ClientEvent) {
        let link = event.link.and_then(|key| self.links.name_of(key)).unwrap_or_default();
        let tells_of_links = matches!(
            event.event,
            Event::LinkUp(_) | Event::LinkDown(..) | Event::Refused(_) | Event::SessionEnded(_)
        );
        if tells_of_links {
            // It may be what a link waits for that is to go over TLS, or to go no more.
            self.tls_at = Some(now);
        }
        match event.event {
            Event::LinkUp(id) => {
                match event.link.is_some_and(|key| self.links.is_over_tls(key)) {
                    true => tracing::info!(link, %id, "link is up, over TLS"),
                    false => tracing::info!(link, %id, "link is up"),
                }
                self.history.note(now, EventKind::LinkUp, Some(link), "");
                if let Some(key) = event.link {
                    self.links.note_up(key);
                }
            }
            Event::LinkDown(_, DownReason::NoAnswer) => {
                let why = "nothing is confirmed any more";
                tracing::info!(link, "link is down: {why}");
                self.history.note(now, EventKind::LinkDown, Some(link), why);
            }
            Event::LinkDown(_, DownReason::Left) => {
                let why = "the proxy took it out";
                tracing::info!(link, "link is down: {why}");
                self.history.note(now, EventKind::LinkDown, Some(link), why);
            }
            // Our own doing, logged where it was decided.
            Event::LinkDown(_, DownReason::Removed) => {}
            Event::PacketsMoved(outage) => {
                tracing::info!(link = %outage.name, "{}", status::moved_in_words(&outage));
            }
            Event::PathMoved(_, path) => tracing::info!(link, remote = %path.remote, "path moved"),
            Event::InnerMtu(mtu) => {
                tracing::info!(mtu, "largest packet that fits through all links");
                self.inner_mtu = Some(mtu);
                self.want_tun(None);
            }
            Event::Rekeyed(epoch) => {
                tracing::debug!(epoch, "fresh keys are in use");
                self.keys_since = now;
            }
            Event::SessionEstablished(session) => {
                let (own, cipher) = (&session.own, session.cipher.as_str());
                tracing::info!(addresses = ?own, cipher, "session is established");
                self.keys_since = now;
                self.want_tun(Some(&session));
                self.finish_joining();
            }
            Event::Displaced(ago) => {
                let warning = format!(
                    "a session with this client's key was in use {:.1} s before this one began: if this client did \
                     not crash just now, another machine has the same key (each needs an invitation of its own)",
                    ago.as_secs_f64()
                );
                tracing::warn!("{warning}");
                self.displaced = Some(warning);
            }
            Event::SessionEnded(reason) => {
                self.displaced = None;
                let why = end_in_words(reason);
                tracing::info!("session is over: {why}");
                if !self.stopping {
                    self.history.note(now, EventKind::SessionEnded, None, why);
                }
            }
            Event::Refused(refusal) => tracing::warn!("no session: {refusal}"),
            Event::OtherVersions(versions) => {
                tracing::warn!(
                    theirs = ?versions,
                    "the proxy speaks other versions of the protocol: update the older end"
                );
            }
            // The client turns them into the session's end, and into an event of its own.
            Event::Closed(_) | Event::Fleet(_) => {}
            // Only a proxy hears of them.
            Event::Moving | Event::SpeedWish | Event::SpeedTest => {}
        }
    }

    /// The proxy knows this client's key: the invitation is used up.
    fn finish_joining(&mut self) {
        let Some(pending) = self.config.proxy.invitation.take() else { return };
        // Beside the packets, which wait for no disk.
        drop(tokio::task::spawn_blocking(move || remove_invitation(&pending.file)));
    }
}

fn remove_invitation(file: &Path) {
    match folder::remove(file) {
        Ok(()) => tracing::info!("joined: the proxy knows this machine's key from now on"),
        Err(error) => tracing::info!(
            "joined: the proxy knows this machine's key from now on; the invitation {} is used up and can be \
             removed, which did not work: {error}",
            file.display()
        ),
    }
}
