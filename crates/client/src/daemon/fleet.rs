//! The proxies: which are known, which one is used, and why.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ropewalk_control::api::{ApiError, ErrorCode, ProxiesReport, Response};
use ropewalk_daemon::proxies::{self, choice_word, preference};
use ropewalk_link_io::driver::Io;
use ropewalk_proto::fleet::choice::Why;
use ropewalk_proto::fleet::{FleetList, NamedProxy};
use ropewalk_proto::time::Instant;
use ropewalk_settings::PublicKey;

use super::Daemon;
use crate::resolve::MAX_ADDRESSES;

impl Daemon {
    /// The proxies of the config are where their names lead, the others where the fleet says.
    pub(super) fn note_proxies(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut each = self.resolved.each.iter();
        let mut named = Vec::new();
        for (public_key, endpoints) in self.config.proxy.endpoints() {
            let found: BTreeSet<SocketAddr> =
                each.by_ref().take(endpoints.len()).flatten().copied().collect();
            let in_order = self.resolved.addresses.iter().filter(|address| found.contains(address));
            named.push(NamedProxy { public_key, addresses: in_order.copied().collect() });
        }
        self.client.set_named(now, named, &mut self.held);
        let list = self.proxies.borrow().clone();
        self.client.set_list(now, list, &mut self.held);
        self.follow_proxies(now, io);
    }

    /// The fleet told of itself.
    pub(super) fn on_list(&mut self, now: Instant, list: FleetList, io: &mut Io<'_>) {
        tracing::debug!(proxies = list.len(), "the proxy told of its fleet");
        self.client.set_list(now, list.clone(), &mut self.held);
        self.proxies.send_replace(list);
        self.follow_proxies(now, io);
    }

    /// The host's network and the links are to know where proxies are.
    fn follow_proxies(&mut self, now: Instant, io: &mut Io<'_>) {
        let remotes = self.remotes(now);
        self.wanted.send_if_modified(|wanted| {
            let differs = wanted.proxy != remotes;
            wanted.proxy = remotes;
            differs
        });
        self.relink(now, io);
    }

    /// Where proxies are, the one in use first; at most so many that the host's rules stay few.
    pub(super) fn remotes(&self, now: Instant) -> Vec<SocketAddr> {
        let mut proxies = self.client.proxies(now);
        proxies.sort_by_key(|proxy| !proxy.present);
        let mut remotes = Vec::new();
        for address in proxies.into_iter().flat_map(|proxy| proxy.addresses) {
            if !remotes.contains(&address) && remotes.len() < MAX_ADDRESSES {
                remotes.push(address);
            }
        }
        remotes
    }

    pub(super) fn on_moved(&mut self, now: Instant, from: PublicKey, to: PublicKey, why: Why) {
        let (from, to) = (self.name_of(now, from), self.name_of(now, to));
        tracing::info!("the proxy in use is {to}, and not {from} any more: {why}");
    }

    /// The proxy in use, for people.
    pub(super) fn peer(&self, now: Instant) -> String {
        self.name_of(now, self.client.present())
    }

    fn name_of(&self, now: Instant, key: PublicKey) -> String {
        let config = &self.config.proxy;
        let written = config.endpoints().into_iter().find(|(known, _)| *known == key);
        let known = self.client.proxies(now).into_iter().find(|proxy| proxy.key == key);
        let written = written.map(|(_, addresses)| words(addresses));
        let place = written.or_else(|| known.as_ref().map(|known| words(&known.addresses)));
        let place = place.unwrap_or_else(|| key.to_string());
        match known.and_then(|known| known.id) {
            Some(id) => format!("{id} ({place})"),
            None => place,
        }
    }

    /// Which proxies may be used from now on, until the client ends or reads its config again.
    pub(super) fn use_proxy(&mut self, now: Instant, name: &str) -> Result<Response, ApiError> {
        let wanted = preference(name).map_err(|why| ApiError::new(ErrorCode::BadRequest, why))?;
        let before = self.client.preference().clone();
        self.client.set_preference(now, wanted);
        if !self.client.knows_preferred() {
            self.client.set_preference(now, before);
            let name = name.escape_debug();
            let message = format!(
                "no proxy is called {name}: `ropewalk proxies` shows the ID, region and address of each"
            );
            return Err(ApiError::new(ErrorCode::NotFound, message));
        }
        tracing::info!(name, "told which proxy to use");
        Ok(Response::Proxies(self.proxies_report(now)))
    }

    /// That the config asks for a proxy that nobody knows.
    pub(super) fn unknown_choice(&self) -> Option<String> {
        let name = choice_word(self.client.preference()).escape_debug().to_string();
        (!self.client.knows_preferred()).then(|| {
            format!(
                "choose = \"{name}\", but no proxy is called so: all are used. `ropewalk proxies` shows the ID, region and \
                 address of each"
            )
        })
    }

    /// All that are known, and why one of them is in use.
    pub(super) fn proxies_report(&self, now: Instant) -> Box<ProxiesReport> {
        Box::new(proxies::report(&self.client, now))
    }
}

fn words(addresses: &[impl ToString]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
