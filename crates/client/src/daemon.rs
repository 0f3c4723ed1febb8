//! The client's role in the event loop: the core's client, and what follows from its events.
//!
//! Nothing here waits. What takes time (routes, look-ups) is told to other tasks, whose answers come
//! back as [`Command`]s.
//!
//! | comes | goes |
//! | --- | --- |
//! | news of the host, addresses of the proxy | links are opened, changed, closed |
//! | a session | the TUN gets its inner addresses, and the routes into the tunnel |
//! | an inner MTU | the TUN gets it |
//! | silence of the proxy | its name is looked up again |
//! | silence of one link | it goes over TLS |
//! | a gap in time (sleep) | all links are asked at once |
//!
//! The routes stay while a session is sought again: packets then wait or are dropped, but never go out
//! beside the tunnel because it is away for a moment.

mod budget;
mod control;
mod devices;
mod events;
mod fleet;
mod history;
mod reload;
mod rules;
mod speed_test;
mod tls;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;

use ipnet::IpNet;
use rand::rngs::SmallRng;
use ropewalk_control::api::{EventKind, Request, TunnelState};
use ropewalk_control::server;
use ropewalk_daemon::client_status;
use ropewalk_daemon::gaps::Gaps;
use ropewalk_daemon::held::Held;
use ropewalk_daemon::history::Recorder;
use ropewalk_daemon::links::{Lingering, LinkResources, TlsTerms};
use ropewalk_daemon::patience::Patience;
use ropewalk_daemon::reload::{self as reloading, Loaded};
use ropewalk_daemon::wakeup;
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::{Driven, Io};
use ropewalk_link_io::tun::TunOffload;
use ropewalk_link_io::udp::{ReceivedDatagram, SendError, SendErrorKind};
use ropewalk_proto::client::ClientState;
use ropewalk_proto::event::SessionInfo;
use ropewalk_proto::fleet::{FleetClient, FleetList};
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Duration, Instant, earliest};
use ropewalk_proto::tunnel::LinkState;
use ropewalk_settings::{HostPort, Mtu, is_name_server};
use tokio::sync::{mpsc, watch};

use self::budget::Budget;
use crate::allowance::{self, Counts};
use crate::captive::Question;
use crate::config::{Config, Dns};
use crate::core;
use crate::host::TunDesired;
use crate::household::lan::is_for_hosts;
use crate::links::{Links, Obstacle, decide};
use crate::network::{Counting, DevicesAsked, News, Wanted};
use crate::others::Others;
use crate::resolve::Resolved;
use crate::speed_test::KnownTests;
use crate::udp_again;

/// The MTU of the TUN before the first path was measured: what IPv6 needs (RFC 8200 §5), and less than
/// nearly every path carries.
pub(crate) const FIRST_MTU: u16 = Mtu::MIN;

/// Pause before sockets that could not be opened are tried again; the kernel's news may not tell when
/// the reason is gone.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// How often links without an answer are looked at, for networks that want a sign-in.
const PORTALS_INTERVAL: Duration = Duration::from_secs(1);

/// What other tasks ask of the loop.
#[derive(Debug)]
pub(crate) enum Command {
    /// Somebody asks at the control socket.
    Control(server::Command),
    /// The config was read again.
    Loaded(Loaded<Config>),
    /// The host's network as it is now.
    Network(News),
    /// Where the proxy is.
    Resolved(Resolved),
    /// Where the network of the link in this slot leads those who ask for a page.
    Portal(u16, Option<String>),
    /// The proxy answers by UDP on the link in this slot, which goes over TLS.
    UdpAnswers(u16),
    /// The counts of allowances were written, or why they could not be.
    Counters(Option<String>),
    /// Send what waits, say goodbye, and end.
    Stop,
}

/// The client.
pub(crate) struct Daemon {
    config: Config,
    /// Where it stands.
    file: PathBuf,
    client: FleetClient,
    links: Links,
    /// Sockets of links that were taken out.
    lingering: Lingering,
    news: News,
    /// Whether there were any: the host's network is known.
    has_looked: bool,
    resolved: Resolved,
    /// What the host's network is to be.
    wanted: watch::Sender<Wanted>,
    /// Asks for another look-up.
    look_up: mpsc::Sender<()>,
    /// Of these names and addresses.
    endpoints: watch::Sender<Vec<HostPort>>,
    /// Keeps what the fleet told of itself.
    proxies: watch::Sender<FleetList>,
    /// Reads the config again.
    reloader: mpsc::Sender<server::Command>,
    patience: Patience,
    reopen_at: Option<Instant>,
    held: Held,
    others: Others,
    clock: Clock,
    gaps: Gaps,
    /// Asks what was counted of the rules.
    counting: mpsc::Sender<Counting>,
    /// Asks for the devices behind this machine.
    asking_devices: mpsc::Sender<DevicesAsked>,
    /// Whether there is who can hand out addresses to them.
    hands_out: bool,
    /// Asks whether a network wants a sign-in.
    portals: mpsc::Sender<Question>,
    /// When links are looked at for that.
    portals_at: Instant,
    /// Asks whether UDP is answered again on a link that goes over TLS.
    udp_again: mpsc::Sender<udp_again::Question>,
    /// When it is looked at which links are to go over TLS; `None`: when something happens to one.
    tls_at: Option<Instant>,
    budget: Budget,
    /// Remembers what is carried and what happens.
    history: Recorder,
    /// The speed test that goes on or was the last, and the one before.
    speed_tests: KnownTests,
    rng: SmallRng,
    started: Instant,
    state: (TunnelState, Instant),
    keys_since: Instant,
    /// Largest inner packet, once a path was measured.
    inner_mtu: Option<u16>,
    send_errors: BTreeMap<&'static str, u64>,
    /// That another machine may have the same key, while the session lasts that took the place of its.
    displaced: Option<String>,
    /// Datagrams came since the core was last told that a batch ended.
    in_batch: bool,
    stopping: bool,
}

/// What a daemon is made with.
pub(crate) struct Setup {
    pub(crate) config: Config,
    /// Where it stands.
    pub(crate) file: PathBuf,
    pub(crate) clock: Clock,
    /// What the TUN can do.
    pub(crate) tun: TunOffload,
    /// For the core; must be unpredictable.
    pub(crate) seed: [u8; 32],
    /// For pauses.
    pub(crate) rng: SmallRng,
    /// Tells what the host's network is to be.
    pub(crate) wanted: watch::Sender<Wanted>,
    /// Asks for another look-up.
    pub(crate) look_up: mpsc::Sender<()>,
    /// Of these names and addresses.
    pub(crate) endpoints: watch::Sender<Vec<HostPort>>,
    /// Reads the config again.
    pub(crate) reloader: mpsc::Sender<server::Command>,
    /// What the fleet told of itself before; gets what it tells.
    pub(crate) proxies: watch::Sender<FleetList>,
    /// Asks what was counted of the rules.
    pub(crate) counting: mpsc::Sender<Counting>,
    /// Asks for the devices behind this machine.
    pub(crate) asking_devices: mpsc::Sender<DevicesAsked>,
    /// Whether there is who can hand out addresses to them.
    pub(crate) hands_out: bool,
    /// Asks whether a network wants a sign-in.
    pub(crate) portals: mpsc::Sender<Question>,
    /// Asks whether UDP is answered again.
    pub(crate) udp_again: mpsc::Sender<udp_again::Question>,
    /// What the links with an allowance carried before; gets what they carry.
    pub(crate) counts: watch::Sender<Counts>,
    /// Why that is not known.
    pub(crate) counts_trouble: Option<String>,
    /// Remembers what is carried and what happens.
    pub(crate) history: Recorder,
}

impl Daemon {
    /// A client that knows neither its links nor where the proxy is; [`Command`]s tell.
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { config, file, clock, tun, seed, rng, wanted, look_up, .. } = setup;
        let Setup { endpoints, reloader, portals, udp_again, counts, counts_trouble, .. } = setup;
        let Setup { counting, asking_devices, hands_out, proxies, history, .. } = setup;
        let now = clock.now();
        let mut client = FleetClient::new(now, core::client_config(&config, clock, tun), seed);
        client.set_preference(now, config.proxy.choose.clone());
        Self {
            client,
            proxies,
            config,
            file,
            links: Links::default(),
            lingering: Lingering::default(),
            news: News::default(),
            has_looked: false,
            resolved: Resolved::default(),
            wanted,
            look_up,
            endpoints,
            reloader,
            patience: Patience::new(),
            reopen_at: None,
            held: Held::default(),
            others: Others::new(now),
            clock,
            gaps: Gaps::new(now, clock.asleep()),
            counting,
            asking_devices,
            hands_out,
            portals,
            portals_at: now,
            udp_again,
            tls_at: None,
            budget: Budget::new(now, counts, counts_trouble),
            history,
            speed_tests: KnownTests::default(),
            rng,
            started: now,
            state: (TunnelState::Idle, now),
            keys_since: now,
            inner_mtu: None,
            send_errors: BTreeMap::new(),
            displaced: None,
            in_batch: false,
            stopping: false,
        }
    }

    fn on_network(&mut self, now: Instant, news: News, io: &mut Io<'_>) {
        self.has_looked = true;
        let before = std::mem::replace(&mut self.news, news);
        let was_known =
            |interface: &str| before.seats.iter().any(|seat| seat.interface == interface);
        for text in self.news.unknown_interfaces(|interface| !was_known(interface)) {
            tracing::warn!("{text}");
        }
        self.relink(now, io);
    }

    fn on_resolved(&mut self, now: Instant, resolved: Resolved, io: &mut Io<'_>) {
        if let Some(trouble) = &resolved.trouble
            && self.resolved.trouble != resolved.trouble
        {
            tracing::warn!("{trouble}; trying again");
        }
        self.resolved.trouble = resolved.trouble;
        // A look-up that found nothing takes nothing away.
        if resolved.addresses.is_empty() || resolved.addresses == self.resolved.addresses {
            return;
        }
        tracing::info!(addresses = ?resolved.addresses, "the proxy's addresses are known");
        self.resolved = Resolved { trouble: self.resolved.trouble.take(), ..resolved };
        self.note_proxies(now, io);
    }

    /// Counts what the links carried of their allowances, and stops those that may carry no more.
    fn count_allowances(&mut self, now: Instant, io: &mut Io<'_>) {
        let ledger = self.client.stats().ledger;
        let today = allowance::today(io.clock.unix_time());
        let stops = self.budget.count(now, today, |link| ledger.of(link).bytes());
        self.note_allowances(now);
        if stops {
            self.relink(now, io);
        }
    }

    /// Has somebody look whether the network of a link without an answer wants a sign-in first.
    fn look_for_portals(&mut self, now: Instant) {
        if now < self.portals_at {
            return;
        }
        self.portals_at = now + PORTALS_INTERVAL;
        let stats = self.client.stats();
        let is_up = |key| {
            let mut links = stats.links.iter().filter(|link| link.key == key);
            links.any(|link| link.link.as_ref().is_some_and(|link| link.state == LinkState::Up))
        };
        if let Some(question) = self.links.poll_portal(now, is_up) {
            // Full: another link is being asked; this one has its turn next time.
            let _ = self.portals.try_send(question);
        }
    }

    /// Asks all links at once if the machine stood still.
    fn notice_gap(&mut self, now: Instant) {
        let due = self.client.poll_timeout().map(|(at, _)| at);
        let Some(gap) = self.gaps.notice(now, self.clock.asleep(), due) else { return };
        let seconds = gap.as_secs();
        tracing::info!("this machine or process stood still for {seconds} s: asking all links");
        self.history.note(now, EventKind::StoodStill, None, &format!("for {seconds} s"));
        self.client.on_resume(now);
        self.links.forget_fallbacks(now);
        // With the next events: UDP is opened again beside TLS.
        self.reopen_at = self.has_looked.then_some(now);
        // Another look at the host's network, whose timers slept too.
        self.wanted.send_modify(|_| ());
    }

    /// The same at little cost, for all that may move what was due.
    fn look_for_gap(&mut self, now: Instant) {
        if self.gaps.are_possible(now) {
            self.notice_gap(now);
        }
    }

    /// Makes the links what config, host and proxy say.
    fn relink(&mut self, now: Instant, io: &mut Io<'_>) {
        // What is not known yet is not missing.
        if !self.has_looked {
            return;
        }
        let links = &self.config.links;
        let remotes = self.remotes(now);
        let mut decisions = decide(links, &self.news.seats, &remotes);
        let ledger = self.client.stats().ledger;
        let allowances = decisions
            .iter()
            .filter_map(|decision| Some((decision.name.as_str(), decision.allowance?)));
        let today = allowance::today(io.clock.unix_time());
        self.budget.set(now, today, allowances, |link| ledger.of(link).bytes());
        for decision in &mut decisions {
            if let (Ok(_), Some(until)) =
                (&decision.wish, self.budget.stopped_until(&decision.name))
            {
                decision.wish = Err(Obstacle::UsedUp(until));
            }
        }
        let names = self.names_of_proxies();
        let tls = TlsTerms {
            setting: self.config.proxy.tls,
            port: self.config.proxy.tls_port,
            names: &names,
            clock: self.clock,
        };
        let before = self.standing();
        let (sockets, client) = (&mut *io.sockets, &mut self.client);
        let (sink, lingering) = (&mut self.held, &mut self.lingering);
        let mut resources = LinkResources { sockets, client, sink, lingering, tls };
        let done = self.links.reconcile(now, decisions, &mut resources);
        self.reopen_at = (!done).then(|| now + REOPEN_PAUSE);
        self.tls_at = Some(now);
        self.note_links(now, &before);
    }

    /// Tells what the TUN is to be, with the addresses of a new session or those it has.
    fn want_tun(&self, session: Option<&SessionInfo>) {
        self.wanted.send_if_modified(|wanted| {
            let inner = match (session, &wanted.tun) {
                (Some(session), _) => session.own.iter().map(IpNet::addr).collect(),
                (None, Some(tun)) => tun.inner.clone(),
                (None, None) => return false,
            };
            let has_v6 = inner.iter().any(IpAddr::is_ipv6);
            let fits = self.inner_mtu.unwrap_or(FIRST_MTU);
            let mtu = self.config.tun.mtu.of_tun(fits, has_v6);
            let name = self.config.tun.name.to_string();
            let tun = Some(TunDesired { name, inner, mtu: mtu.into() });
            let before = wanted.clone();
            wanted.tun = tun;
            if let Some(session) = session {
                self.want_dns(session, wanted);
                wanted.prefix = session.network.filter(|network| is_for_hosts(*network));
            }
            *wanted != before
        });
    }

    /// Tells where names are to be looked up under this session.
    fn want_dns(&self, session: &SessionInfo, wanted: &mut Wanted) {
        wanted.dns_inside = self.config.dns == Dns::Proxy;
        wanted.dns = match &self.config.dns {
            Dns::Untouched => Vec::new(),
            Dns::Servers(servers) => servers.clone(),
            Dns::Proxy => {
                let handed_out = session.name_servers.iter().copied();
                handed_out.filter(|server| is_name_server(*server)).collect()
            }
        };
    }

    /// Follows the state, and looks for the proxy again while it is silent.
    fn watch_state(&mut self, now: Instant) {
        let state = self.client.state();
        let shown = client_status::tunnel_state(&state, self.is_routed());
        if self.state.0 != shown {
            self.note_tunnel(now, shown);
            self.state = (shown, now);
        }
        let connected = matches!(state, ClientState::Connected { .. });
        self.wanted.send_if_modified(|wanted| {
            wanted.connected = connected;
            false
        });
        let trouble = match state {
            ClientState::Connected { .. } | ClientState::NoLinks | ClientState::Closed => {
                return self.patience.rest();
            }
            ClientState::Joining { .. } => None,
            ClientState::Stalled { trouble, .. }
            | ClientState::Asking { trouble, .. }
            | ClientState::Waiting { trouble, .. } => Some(trouble),
        };
        if self.patience.is_due(now, &mut self.rng) {
            match trouble {
                Some(trouble) => tracing::warn!("not connected: {trouble}; still trying"),
                None => tracing::warn!("not connected: the links cannot be opened; still trying"),
            }
            // Full: a look-up is on its way. Closed: there is no name to look up.
            let _ = self.look_up.try_send(());
        }
    }

    /// Whether the TUN has the addresses of the session, and packets find their way into it.
    fn is_routed(&self) -> bool {
        let session = self.client.session();
        session.is_some_and(|session| {
            session.own.iter().map(IpNet::addr).eq(self.news.inner.iter().copied())
        })
    }

    /// Whether it was told to stop, and the proxy knows or had its time.
    fn has_ended(&self) -> bool {
        self.stopping && self.client.is_closed()
    }
}

impl Driven for Daemon {
    type Command = Command;

    fn handle_command(&mut self, now: Instant, command: Command, io: &mut Io<'_>) {
        match command {
            Command::Control(asked) if asked.request == Request::Reload => {
                reloading::ask(&self.reloader, asked);
            }
            Command::Loaded(loaded) => {
                let file = self.file.clone();
                loaded.settle(&file, |config| self.take_over(now, config, io));
            }
            Command::Control(asked) if matches!(asked.request, Request::History(_)) => {
                let seen = self.seen(now);
                self.history.ask(asked, seen);
            }
            Command::Control(asked) if asked.request == Request::Devices => {
                self.tell_devices(asked);
            }
            Command::Control(asked) => {
                if let Request::LimitDevice(change) = asked.request.clone() {
                    return self.limit_device(&change, asked);
                }
                let answer = self.answer(now, asked.request.clone(), io);
                self.count_and_answer(asked, answer);
            }
            Command::Network(news) => {
                self.notice_gap(now);
                self.on_network(now, news, io);
            }
            Command::Resolved(resolved) => self.on_resolved(now, resolved, io),
            Command::Portal(slot, page) => self.links.note_portal(slot, page),
            Command::UdpAnswers(slot) => self.on_udp_answer(now, slot, io),
            Command::Counters(trouble) => self.budget.note_written(trouble),
            Command::Stop => {
                self.client.close(now);
                if !std::mem::replace(&mut self.stopping, true) {
                    let seen = self.seen(now);
                    self.history.stop(seen);
                }
            }
        }
    }

    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.client.handle_packet(now, packet, sink);
    }

    fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.client.handle_partial(now, packet, sink);
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        self.held.release(sink);
        self.look_for_gap(now);
        self.in_batch = true;
        self.client.handle_datagram(now, arrival.path, arrival.ecn, datagram, sink);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.held.release(sink);
        self.notice_gap(now);
        wakeup::trace(now, || self.client.poll_timeout());
        self.client.handle_timeout(now, sink);
    }

    fn handle_send_error(&mut self, now: Instant, path: Path, error: SendError) {
        let counted = self.send_errors.entry(error.kind.counter()).or_default();
        *counted += error.datagrams as u64;
        if error.kind != SendErrorKind::TooBig {
            self.links.note_send_error(path, error.kind);
        }
        if error.kind.is_dead_end() {
            self.client.on_send_refused(now, path);
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        self.client.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let at_once = !self.held.is_empty() || self.has_ended();
        let at_once = at_once.then_some(Instant::ZERO);
        let lingers = self.lingering.poll_timeout();
        let own = earliest(earliest(self.reopen_at, lingers), self.patience.poll_timeout());
        let own = earliest(own, self.tls_at.filter(|_| !self.stopping));
        let own = earliest(own, self.speed_tests.poll_timeout());
        // While nothing goes, only the calendar moves.
        let calendar = earliest(self.budget.poll_timeout(), self.history.poll_timeout());
        let core = self.client.poll_timeout().map(|(at, _)| at);
        earliest(at_once, earliest(earliest(own, calendar), core))
    }

    fn handle_events(&mut self, now: Instant, io: &mut Io<'_>) -> ControlFlow<()> {
        // It may have stood still in the middle of a turn.
        self.look_for_gap(now);
        if std::mem::take(&mut self.in_batch) {
            self.client.end_of_batch(now);
        }
        self.lingering.close_due(now, io.sockets);
        if self.reopen_at.is_some_and(|at| at <= now) {
            self.relink(now, io);
        }
        while let Some(event) = self.client.poll_event() {
            self.on_event(now, event, io);
        }
        self.watch_state(now);
        self.look_at_tls(now, io);
        self.others.count(now, &self.links, &mut self.client);
        self.look_for_portals(now);
        self.remember(now);
        self.tick_speed_test(now);
        if self.budget.is_due(now) || self.has_ended() {
            self.count_allowances(now, io);
        }
        if self.has_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
