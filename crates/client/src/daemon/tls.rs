//! Which links go over TLS.

use std::net::IpAddr;

use ropewalk_daemon::client_status::told_to_wait;
use ropewalk_link_io::driver::Io;
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::time::{Instant, earliest};
use ropewalk_proto::tunnel::LinkState;
use tokio::sync::mpsc::error::TrySendError;

use super::Daemon;

impl Daemon {
    /// Looks which links are to go over TLS, if it is time: when one of them came up or went, and when one has been
    /// silent for long enough.
    pub(super) fn look_at_tls(&mut self, now: Instant, io: &mut Io<'_>) {
        if self.stopping || self.tls_at.is_none_or(|at| now < at) {
            return;
        }
        let stats = self.client.stats();
        let is_up = |key: LinkKey| {
            let mut links = stats.links.iter().filter(|link| link.key == key);
            links.any(|link| link.link.as_ref().is_some_and(|link| link.state == LinkState::Up))
        };
        let wait = told_to_wait(&self.client.state());
        let (setting, proxy) = (self.config.proxy.tls, self.client.present());
        let outlook = self.links.look_at_tls(now, setting, is_up, wait, proxy);
        self.tls_at = outlook.at;
        for question in outlook.ask {
            // Closed: this daemon ends.
            if let Err(TrySendError::Full(question)) = self.udp_again.try_send(question) {
                let soon = self.links.ask_soon(now, question.slot);
                self.tls_at = earliest(self.tls_at, soon);
            }
        }
        if outlook.changed {
            self.relink(now, io);
        }
    }

    /// The proxy answers by UDP on a link that goes over TLS.
    pub(super) fn on_udp_answer(&mut self, now: Instant, slot: u16, io: &mut Io<'_>) {
        if self.links.note_udp_answer(now, slot) {
            self.relink(now, io);
        }
    }

    /// The names by which the config knows addresses of proxies.
    pub(super) fn names_of_proxies(&self) -> Vec<(IpAddr, String)> {
        let endpoints = self.config.proxy.all_addresses();
        let found = endpoints.into_iter().zip(&self.resolved.each);
        let named = found.filter(|(endpoint, _)| endpoint.address().is_none());
        let each = named.flat_map(|(endpoint, addresses)| {
            addresses.iter().map(move |address| (address.ip(), endpoint.host.clone()))
        });
        each.collect()
    }
}
