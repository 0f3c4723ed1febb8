//! The proxies: which are known, which one is used, and why.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ropewalk_control::api::{ApiError, ErrorCode, EventKind, ProxiesReport, Response};
use ropewalk_daemon::proxies::{self, choice_word, preference};
use ropewalk_link_io::driver::Io;
use ropewalk_proto::fleet::choice::Why;
use ropewalk_proto::fleet::{FleetList, MAX_PROXIES, NamedProxy};
use ropewalk_proto::time::Instant;
use ropewalk_settings::PublicKey;

use super::Daemon;
use crate::resolve::MAX_ADDRESSES;

/// Most addresses of proxies that the host's rules and the kill switch know: those that the config's names lead to, and two of each
/// proxy of the largest fleet, so that none that is known is left out.
const MAX_REMOTES: usize = MAX_ADDRESSES + 2 * MAX_PROXIES;

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

    /// Where proxies are, the one in use first.
    pub(super) fn remotes(&self, now: Instant) -> Vec<SocketAddr> {
        let proxies = self.client.proxies(now).into_iter();
        in_turns(proxies.map(|proxy| (proxy.present, proxy.addresses)))
    }

    pub(super) fn on_moved(&mut self, now: Instant, from: PublicKey, to: PublicKey, why: Why) {
        let (from, to) = (self.name_of(now, from), self.name_of(now, to));
        tracing::info!("the proxy in use is {to}, and not {from} any more: {why}");
        let text = format!("{to}, and not {from} any more: {why}");
        self.history.note(now, EventKind::ProxyChanged, None, &text);
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

/// Where proxies are, each told with whether it is the one in use: that one's addresses, then one IPv4 and one IPv6 address of each
/// other, then what else they have, as long as there is room.
fn in_turns(proxies: impl IntoIterator<Item = (bool, Vec<SocketAddr>)>) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for (present, addresses) in proxies {
        let mut before = [0_usize; 2];
        for address in addresses {
            let of_its_kind = &mut before[usize::from(address.is_ipv6())];
            let turn = if present { 0 } else { 1 + *of_its_kind };
            *of_its_kind += 1;
            all.push((turn, address));
        }
    }
    all.sort_by_key(|(turn, _)| *turn);
    let mut remotes = Vec::new();
    for (_, address) in all {
        if remotes.len() < MAX_REMOTES && !remotes.contains(&address) {
            remotes.push(address);
        }
    }
    remotes
}

fn words(addresses: &[impl ToString]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_OTHER_PROXIES;
    use ropewalk_proto::fleet::MAX_PROXY_ADDRESSES;

    /// The addresses of a proxy: so many of IPv4, and as many of IPv6 behind them.
    fn proxy(number: u8, each: u16) -> Vec<SocketAddr> {
        let v4 = (0..each).map(|port| SocketAddr::from(([198, 51, 100, number], 1 + port)));
        let v6 = (0..each).map(|port| {
            SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)], 1 + port))
        });
        v4.chain(v6).collect()
    }

    #[test]
    fn each_proxy_that_can_be_known_is_told_of_with_an_address_of_each_kind() {
        let most = u8::try_from(MAX_PROXIES + 1 + MAX_OTHER_PROXIES).unwrap();
        let each = u16::try_from(MAX_PROXY_ADDRESSES / 2).unwrap();
        for present in [0, most / 2, most - 1] {
            let proxies = (0..most).map(|number| (number == present, proxy(number, each)));
            let remotes = in_turns(proxies);
            assert_eq!(remotes.len(), MAX_REMOTES);
            assert_eq!(remotes[..usize::from(2 * each)], proxy(present, each), "the one in use");
            for number in 0..most {
                for address in proxy(number, 1) {
                    assert!(remotes.contains(&address), "{address}");
                }
            }
        }
    }

    #[test]
    fn few_proxies_are_told_of_whole_and_each_address_once() {
        let told = in_turns([(false, proxy(1, 2)), (true, proxy(2, 2)), (false, proxy(2, 2))]);
        assert_eq!(told.len(), 8);
        assert_eq!(told[..4], proxy(2, 2));
        assert_eq!(told[4..6], proxy(1, 1));
    }
}
