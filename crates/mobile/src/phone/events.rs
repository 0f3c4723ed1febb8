//! What follows from the events of the core.

use ropewalk_control::api::LinkState;
use ropewalk_daemon::client_status::end_in_words;
use ropewalk_daemon::proxies::kept;
use ropewalk_link_io::driver::Io;
use ropewalk_proto::client::{ClientEvent, LinkKey};
use ropewalk_proto::event::{DownReason, Event as CoreEvent};
use ropewalk_proto::fleet::{FleetEvent, FleetList};
use ropewalk_proto::time::Instant;

use super::Phone;
use super::tls::carries;
use crate::Network;
use crate::event::Event;

impl Phone {
    pub(super) fn on_event(&mut self, now: Instant, event: FleetEvent, io: &mut Io<'_>) {
        match event {
            FleetEvent::Client(event) => self.on_session_event(now, event),
            FleetEvent::List(list) => self.on_list(now, list, io),
            FleetEvent::Moved { from, to, why } => {
                tracing::info!(%from, %to, "another proxy is in use: {why}");
            }
        }
    }

    fn on_session_event(&mut self, now: Instant, event: ClientEvent) {
        let tells_of_links = matches!(
            event.event,
            CoreEvent::LinkUp(_)
                | CoreEvent::LinkDown(..)
                | CoreEvent::Refused(_)
                | CoreEvent::SessionEnded(_)
        );
        if tells_of_links {
            // It may be what a network waits for that is to go over TLS, or to go no more.
            self.tls_at = Some(now);
        }
        match event.event {
            CoreEvent::LinkUp(_) => {
                if let Some(key) = event.link {
                    self.networks.note_up(key);
                    self.on_link(key, LinkState::Up, None);
                }
            }
            CoreEvent::LinkDown(_, reason) => {
                let reason = match reason {
                    DownReason::NoAnswer => "nothing is confirmed any more",
                    DownReason::Left => "the proxy took it out",
                    // The app's own wish, or told as a trouble.
                    DownReason::Removed => return,
                };
                if let Some(key) = event.link {
                    self.on_link(key, LinkState::Down, Some(reason.to_owned()));
                }
            }
            CoreEvent::InnerMtu(mtu) => {
                tracing::debug!(mtu, "largest packet that fits through all links");
                self.inner.note_mtu(mtu);
                self.tell_tun();
            }
            CoreEvent::Rekeyed(epoch) => {
                tracing::debug!(epoch, "fresh keys are in use");
                self.keys_since = now;
            }
            CoreEvent::SessionEstablished(session) => {
                tracing::info!(cipher = session.cipher.as_str(), "session is established");
                self.keys_since = now;
                self.inner.note_session(&session);
                if std::mem::take(&mut self.is_joining) {
                    Event::Joined.tell(&*self.app);
                }
                self.tell_tun();
            }
            CoreEvent::Displaced(ago) => {
                let warning = format!(
                    "a session with this client's key was in use {:.1} s before this one began: if this app did not \
                     crash just now, another machine has the same key (each needs an invitation of its own)",
                    ago.as_secs_f64()
                );
                tracing::warn!("{warning}");
                self.displaced = Some(warning);
            }
            CoreEvent::SessionEnded(reason) => {
                self.displaced = None;
                tracing::info!("session is over: {}", end_in_words(reason));
            }
            CoreEvent::Refused(refusal) => {
                Event::Refused { reason: refusal.to_string() }.tell(&*self.app);
            }
            CoreEvent::OtherVersions(versions) => {
                tracing::warn!(
                    theirs = ?versions,
                    "the proxy speaks other versions of the protocol"
                );
            }
            // They show in the status.
            CoreEvent::PacketsMoved(_) | CoreEvent::PathMoved(..) => {}
            // The client turns them into the session's end, and into an event of its own.
            CoreEvent::Closed(_) | CoreEvent::Fleet(_) => {}
            // Only a proxy hears of them.
            CoreEvent::Moving | CoreEvent::SpeedWish | CoreEvent::SpeedTest => {}
        }
    }

    fn on_link(&self, key: LinkKey, state: LinkState, reason: Option<String>) {
        let Some(joined) = self.networks.of(key) else { return };
        let Network { id, name, .. } = &joined.network;
        let way = if joined.tls_key() == Some(key) { "over TLS" } else { "by UDP" };
        tracing::info!(network = %name, "network is {state} {way}");
        // While one way takes the other's place the network carries packets all the time.
        let beside = joined.beside(key);
        if !beside.is_some_and(|other| carries(&self.client.stats(), other)) {
            self.tell_link(*id, name, state, reason);
        }
    }

    /// The fleet told of itself.
    fn on_list(&mut self, now: Instant, list: FleetList, io: &mut Io<'_>) {
        let fleet = kept(&list);
        self.client.set_list(now, list, &mut self.held);
        // State and load are told often, and are not kept.
        if self.fleet != fleet {
            self.fleet.clone_from(&fleet);
            Event::Proxies { fleet }.tell(&*self.app);
        }
        self.relink(now, io);
    }
}
