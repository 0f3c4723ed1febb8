//! Which networks go over TLS.

use std::net::IpAddr;
use std::sync::Arc;

use rand::Rng as _;
use ropewalk_daemon::client_status::told_to_wait;
use ropewalk_link_io::driver::Io;
use ropewalk_proto::client::{ClientStats, LinkKey};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::LinkState;

use super::Phone;
use super::udp_again::{Question, ask};

impl Phone {
    /// Looks which networks are to go over TLS, if it is time: when one of them came up or went, and when one has been
    /// silent for long enough.
    pub(super) fn look_at_tls(&mut self, now: Instant, io: &mut Io<'_>) {
        if self.is_stopping || self.tls_at.is_none_or(|at| now < at) {
            return;
        }
        let stats = self.client.stats();
        let is_up = |key| carries(&stats, key);
        let wait = told_to_wait(&self.client.state());
        let outlook = self.networks.look_at_tls(now, self.config.tls, wait, is_up);
        self.tls_at = outlook.at;
        for network in outlook.ask {
            self.ask_for_udp(now, network);
        }
        if outlook.changed {
            self.relink(now, io);
        }
    }

    /// Has somebody ask whether UDP is answered again on a network that goes over TLS.
    fn ask_for_udp(&mut self, now: Instant, network: u64) {
        let Some(joined) = self.networks.get(network) else { return };
        let proxy = self.client.present();
        let known = self.client.proxies(now).into_iter().find(|known| known.key == proxy);
        let remotes = known.map(|known| known.addresses).unwrap_or_default();
        let ways = joined.sources().iter().map(|source| {
            let same = remotes.iter().filter(|remote| remote.is_ipv4() == source.is_ipv4());
            (*source, same.copied().collect::<Vec<_>>())
        });
        let ways = ways.filter(|(_, remotes)| !remotes.is_empty()).collect();
        let question = Question { network, ways, proxy, index: self.rng.random() };
        while self.asking.try_join_next().is_some() {}
        let (app, commands) = (Arc::clone(&self.app), self.commands.clone());
        self.asking.spawn(ask(app, question, commands));
    }

    /// The proxy answers by UDP on a network that goes over TLS.
    pub(super) fn on_udp_answer(&mut self, now: Instant, network: u64, io: &mut Io<'_>) {
        if self.networks.note_udp_answer(now, network) {
            self.relink(now, io);
        }
    }

    /// The names by which the config knows addresses of proxies.
    pub(super) fn names_of_proxies(&self) -> Vec<(IpAddr, String)> {
        let found = self.found.iter();
        let named = found.flat_map(|(name, found)| found.iter().map(move |ip| (*ip, name.clone())));
        named.collect()
    }
}

/// Whether a link carries packets.
pub(super) fn carries(stats: &ClientStats, key: LinkKey) -> bool {
    let mut links = stats.links.iter().filter(|link| link.key == key);
    links.any(|link| link.link.as_ref().is_some_and(|link| link.state == LinkState::Up))
}
