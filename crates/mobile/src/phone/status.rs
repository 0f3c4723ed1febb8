//! The status document: what `ropewalk status --json` prints of a client, as far as an app has it.
//!
//! The `interface` of a link is the app's number for the network. What only a daemon has (allowances, the kill switch, the
//! sandbox, a portal's page) is absent.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ropewalk_control::api::{LinkState, LinkStatus, Role, STATUS_VERSION, StatusReport};
use ropewalk_daemon::client_status::{self, ClientFacts, heard, why_over_tls};
use ropewalk_daemon::status::{self, LinkFacts};
use ropewalk_daemon::way::in_use;
use ropewalk_daemon::{offload, proxies, scheduling_status};
use ropewalk_link_io::driver::Io;
use ropewalk_proto::client::{ClientState, ClientStats};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{LinkState as CoreLinkState, LinkStats};
use ropewalk_settings::{Direction, LinkTerms};

use super::Phone;
use super::networks::Joined;

impl Phone {
    /// The document.
    pub(super) fn report(&self, now: Instant, io: &Io<'_>) -> StatusReport {
        let (state, stats, peer) = (self.client.state(), self.client.stats(), self.peer(now));
        let facts = self.facts(now, io, (&state, &stats, peer.as_str()));
        let links = self.networks.iter().map(|joined| self.link(&facts, joined, io)).collect();
        let known = || self.networks.iter().map(|joined| &joined.network);
        let price = |name: &str| known().find(|one| one.name == name)?.policy.cost.clone();
        let names = known().map(|network| network.name.clone());
        let spending = scheduling_status::spending(names, price, &stats.ledger);
        let warnings = self.displaced.iter().cloned().collect();
        let offload =
            offload::status(&self.config.tunnel.offload, io.tun.offload(), io.sockets.offload());
        let uptime_s = status::seconds(now, self.started);
        let all = Box::new(proxies::report(&self.client, now));
        StatusReport {
            version: STATUS_VERSION,
            daemon: status::daemon(Role::Client, uptime_s, warnings, offload),
            tunnels: vec![client_status::tunnel(&facts, links, spending)],
            drops: BTreeMap::new(),
            proxy: None,
            rules: Vec::new(),
            proxies: Some(all).filter(|report| report.proxies.len() > 1),
        }
    }

    /// Why packets do not pass, if they do not.
    pub(super) fn reason(&self, now: Instant, io: &Io<'_>) -> Option<String> {
        let (state, stats) = (self.client.state(), self.client.stats());
        client_status::reason(&self.facts(now, io, (&state, &stats, "")))
    }

    fn facts<'a>(
        &'a self,
        now: Instant,
        io: &Io<'_>,
        (state, stats, peer): (&'a ClientState, &'a ClientStats, &'a str),
    ) -> ClientFacts<'a> {
        let unrouted = match (self.is_paused, io.tun.is_open()) {
            (true, _) => Some("the app has it pause"),
            (false, false) => Some("there is no TUN yet"),
            (false, true) => None,
        };
        let is_known = !self.remotes(now).is_empty();
        ClientFacts {
            now,
            settings: &self.config.tunnel,
            peer,
            peer_public_key: self.client.present(),
            state,
            unrouted,
            unresolved: (!is_known).then_some("the app has not said yet where the proxy is"),
            since: self.state.1,
            keys_since: self.keys_since,
            stats,
            tun: io.tun.counters(),
            send_errors: &self.send_errors,
        }
    }

    /// The proxy in use, for people.
    fn peer(&self, now: Instant) -> String {
        let key = self.client.present();
        let known = self.client.proxies(now).into_iter().find(|proxy| proxy.key == key);
        let id = known.as_ref().and_then(|known| known.id.clone());
        let written = self.config.proxies.iter().find(|proxy| proxy.public_key == key);
        let place = match (written, known) {
            (Some(written), _) => words(&written.addresses),
            (None, Some(known)) => words(&known.addresses),
            (None, None) => key.to_string(),
        };
        id.map_or_else(|| place.clone(), |id| format!("{id} ({place})"))
    }

    fn link(&self, facts: &ClientFacts<'_>, joined: &Joined, io: &Io<'_>) -> LinkStatus {
        let way = in_use(joined.key(), joined.tls_key(), facts.stats);
        let over_tls = way.is_some_and(|way| way.over_tls);
        let core = way.and_then(|way| way.core);
        let since = core.map_or(joined.since, |core| core.since.max(joined.since));
        let seconds = status::seconds(facts.now, since);
        let seen = Seen {
            core,
            heard: heard(facts.state),
            over_tls: over_tls.then(|| why_over_tls(self.config.tls)),
            carrier_trouble: joined.tls_socket().and_then(|id| io.sockets.carrier_trouble(id)),
            seconds,
        };
        let (state, reason) = state_of(joined, seen);
        let both = facts.stats.links.iter().filter(|stats| joined.has(stats.key));
        let (sent, received) = both.fold(Default::default(), |(sent, received), stats| {
            (stats.sent.plus(sent), stats.received.plus(received))
        });
        let remote = core.filter(|_| over_tls).map(|core| core.path.remote.ip());
        let [up_bps, down_bps] = core.map(|core| core.rates(facts.now)).unwrap_or_default();
        let scheduler = facts.settings.scheduling.scheduler;
        let all = facts.stats.tunnel.as_ref().map_or(&[][..], |tunnel| &tunnel.links);
        let socket = core.map(|core| core.path.socket).or_else(|| joined.socket());
        let facts = LinkFacts {
            name: joined.network.name.clone(),
            interface: Some(joined.network.id.to_string()),
            state,
            reason,
            sign_in: None,
            state_age_s: seconds,
            local: socket.and_then(|socket| io.sockets.local_addr(socket)),
            remote: remote.map(|ip| SocketAddr::new(ip, self.config.tls_port)),
            over_tls,
            up: status::datagrams(up_bps, sent),
            down: status::datagrams(down_bps, received),
            told: Some(joined.network.policy.terms(Direction::Up))
                .filter(|told| *told != LinkTerms::default()),
            allowance: None,
            limits: core.map(|core| status::limits(facts.now, core)),
            share: core.and_then(|core| scheduling_status::share(scheduler, core, all)),
        };
        status::link(facts, core)
    }
}

/// What is seen of a network that is used.
struct Seen<'a> {
    core: Option<&'a LinkStats>,
    /// The proxy's own word.
    heard: Option<&'static str>,
    /// Why it goes over TLS, where it does.
    over_tls: Option<&'static str>,
    /// What keeps it from that.
    carrier_trouble: Option<String>,
    /// How long it has been so.
    seconds: f64,
}

/// The state of a link and its reason: its sockets first, then the core.
fn state_of(joined: &Joined, seen: Seen<'_>) -> (LinkState, Option<String>) {
    let Seen { core, heard, over_tls, carrier_trouble, seconds } = seen;
    if !joined.is_open() {
        return (LinkState::Down, joined.trouble.clone());
    }
    let silent = || match (joined.key(), carrier_trouble) {
        (Some(_), None) => format!("no answer from the proxy for {seconds:.0} s"),
        (Some(_), Some(why)) => {
            format!("no answer from the proxy for {seconds:.0} s; over TLS: {why}")
        }
        (None, None) => format!("no answer from the proxy over TLS for {seconds:.0} s"),
        (None, Some(why)) => {
            format!("no answer from the proxy over TLS for {seconds:.0} s: {why}")
        }
    };
    let known = joined.refusal().or(heard).map(str::to_owned);
    match core.map(|core| core.state) {
        Some(CoreLinkState::Up) if over_tls.is_some() => {
            (LinkState::Up, over_tls.map(str::to_owned))
        }
        // One family of two may have no socket; that is worth a word even then.
        Some(CoreLinkState::Up) => (LinkState::Up, joined.trouble.clone()),
        Some(CoreLinkState::Joining) | None => {
            (LinkState::Joining, Some(known.unwrap_or_else(silent)))
        }
        Some(CoreLinkState::Down) => (LinkState::Down, Some(known.unwrap_or_else(silent))),
    }
}

fn words(addresses: &[impl ToString]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
