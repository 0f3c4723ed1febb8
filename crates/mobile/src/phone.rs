//! The client's role in the event loop, for an app: what it says comes as [`Command`]s, what happens goes to it as events.
//!
//! | comes | goes |
//! | --- | --- |
//! | a network, or its end | its sockets, bound by the app; its link |
//! | addresses of a proxy's name | the links lead there |
//! | a session | `tun`: the app opens a TUN with these addresses, and hands it over |
//! | a TUN | packets pass |
//! | silence of the proxy | `resolve`: the app looks the names up again |
//! | silence of one network | it goes over TLS |
//! | a gap in time (sleep), or the end of a pause | all links are asked at once |
//!
//! Nothing of the host is asked or changed here. While the app has it pause, nothing is read, sent or waited for: to the
//! proxy it is as if the phone slept.

mod events;
mod inner;
mod networks;
mod status;
mod tls;
mod udp_again;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use rand::rngs::SmallRng;
use ropewalk_control::api::{LinkState, StatusReport, TunnelState};
use ropewalk_daemon::client_status;
use ropewalk_daemon::gaps::Gaps;
use ropewalk_daemon::held::Held;
use ropewalk_daemon::links::{Lingering, LinkResources, TlsTerms};
use ropewalk_daemon::patience::Patience;
use ropewalk_daemon::proxies::{KeptProxy, kept};
use ropewalk_daemon::wakeup;
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::{Driven, Io};
use ropewalk_link_io::udp::{ReceivedDatagram, SendError, SendErrorKind};
use ropewalk_proto::client::{ClientConfig, ClientState};
use ropewalk_proto::fleet::{FleetClient, NamedProxy};
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Duration, Instant, earliest};
use ropewalk_settings::{HostPort, unusable};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::event::Event;
use crate::{App, Config, Network};
use inner::Inner;
use networks::{Networks, Resources};

/// Pause before networks that could not be used are tried again; nothing may tell when the reason is gone.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);

/// Most addresses kept of one name: more than any proxy has.
const MAX_ADDRESSES: usize = 16;

/// What the app says.
#[derive(Debug)]
pub(crate) enum Command {
    /// This is the TUN from now on; `None`: there is none.
    Tun(Option<OwnedFd>),
    /// A network is there, or its description has changed.
    SetNetwork(Box<Network>),
    /// A network is not there any more.
    RemoveNetwork(u64),
    /// Where a name leads.
    Addresses(String, Vec<IpAddr>),
    /// The proxy answers by UDP on this network, which goes over TLS.
    UdpAnswers(u64),
    /// Stand still.
    Pause,
    /// Go on.
    Resume,
    /// How is it?
    Status(SyncSender<Box<StatusReport>>),
    /// Say goodbye, and end.
    Stop,
}

/// The client of an app.
pub(crate) struct Phone {
    app: Arc<dyn App>,
    config: Config,
    client: FleetClient,
    networks: Networks,
    /// Sockets of ways that were given up for another.
    lingering: Lingering,
    /// When it is looked at which networks are to go over TLS; `None`: when something happens to one.
    tls_at: Option<Instant>,
    /// Those who ask whether UDP is answered again.
    asking: JoinSet<()>,
    /// What they find.
    commands: mpsc::Sender<Command>,
    /// Where the names of the config lead, as the app said.
    found: BTreeMap<String, Vec<IpAddr>>,
    /// The fleet as the app has it.
    fleet: Vec<KeptProxy>,
    inner: Inner,
    held: Held,
    /// Whether an invitation is not used up yet, as far as this end knows.
    is_joining: bool,
    has_tun: bool,
    is_paused: bool,
    is_stopping: bool,
    reopen_at: Option<Instant>,
    patience: Patience,
    gaps: Gaps,
    clock: Clock,
    rng: SmallRng,
    started: Instant,
    state: (TunnelState, Instant),
    keys_since: Instant,
    send_errors: BTreeMap<&'static str, u64>,
    /// That another machine may have the same key, while the session lasts that took the place of its.
    displaced: Option<String>,
    /// Datagrams came since the core was last told that a batch ended.
    in_batch: bool,
}

/// What a client is made with.
pub(crate) struct Setup {
    pub(crate) app: Arc<dyn App>,
    pub(crate) config: Config,
    pub(crate) core: ClientConfig,
    /// Into the loop's own queue.
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) clock: Clock,
    /// For the core; must be unpredictable.
    pub(crate) seed: [u8; 32],
    /// For pauses.
    pub(crate) rng: SmallRng,
}

impl Phone {
    /// A client that knows no network yet. The app is asked to look names up.
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup { app, config, core, commands, clock, seed, rng } = setup;
        let now = clock.now();
        let is_joining = core.invitation.is_some();
        let mut client = FleetClient::new(now, core, seed);
        client.set_preference(now, config.choose.clone());
        let fleet = kept(&config.fleet);
        let mut phone = Self {
            app,
            client,
            networks: Networks::default(),
            lingering: Lingering::default(),
            tls_at: None,
            asking: JoinSet::new(),
            commands,
            found: BTreeMap::new(),
            fleet,
            inner: Inner::default(),
            held: Held::default(),
            is_joining,
            has_tun: false,
            is_paused: false,
            is_stopping: false,
            reopen_at: None,
            patience: Patience::new(),
            gaps: Gaps::new(now, clock.asleep()),
            clock,
            rng,
            started: now,
            state: (TunnelState::Idle, now),
            keys_since: now,
            send_errors: BTreeMap::new(),
            displaced: None,
            in_batch: false,
            config,
        };
        let list = phone.config.fleet.clone();
        phone.client.set_list(now, list, &mut phone.held);
        phone.note_proxies(now);
        phone.ask_for_addresses();
        phone
    }

    /// The proxies of the config are where their names lead, the others where the fleet says.
    fn note_proxies(&mut self, now: Instant) {
        let named = self.config.proxies.iter().map(|proxy| NamedProxy {
            public_key: proxy.public_key,
            addresses: proxy.addresses.iter().flat_map(|at| self.addresses_of(at)).collect(),
        });
        let named = named.collect();
        self.client.set_named(now, named, &mut self.held);
    }

    fn addresses_of(&self, endpoint: &HostPort) -> Vec<SocketAddr> {
        if let Some(address) = endpoint.address() {
            return vec![address];
        }
        let found = self.found.get(&endpoint.host).into_iter().flatten();
        found.map(|ip| SocketAddr::new(*ip, endpoint.port)).collect()
    }

    /// The names that somebody has to look up.
    fn names(&self) -> Vec<&str> {
        let endpoints = self.config.proxies.iter().flat_map(|proxy| &proxy.addresses);
        let named = endpoints.filter(|endpoint| endpoint.address().is_none());
        let mut names: Vec<_> = named.map(|endpoint| endpoint.host.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn ask_for_addresses(&self) {
        let names = self.names();
        if !names.is_empty() {
            Event::Resolve { names }.tell(&*self.app);
        }
    }

    fn on_addresses(&mut self, now: Instant, name: String, found: Vec<IpAddr>, io: &mut Io<'_>) {
        if !self.names().contains(&name.as_str()) {
            let name = name.escape_debug();
            return tracing::warn!("{name} is no name of the config: its addresses say nothing");
        }
        let mut usable = Vec::new();
        for address in found {
            let address = address.to_canonical();
            let is_new = unusable(address).is_none() && !usable.contains(&address);
            if is_new && usable.len() < MAX_ADDRESSES {
                usable.push(address);
            }
        }
        // A look-up that found nothing takes nothing away.
        if usable.is_empty() {
            return tracing::warn!("{name} has no usable address");
        }
        self.found.insert(name, usable);
        self.note_proxies(now);
        self.relink(now, io);
    }

    /// Where proxies are.
    fn remotes(&self, now: Instant) -> Vec<SocketAddr> {
        self.client.proxies(now).into_iter().flat_map(|proxy| proxy.addresses).collect()
    }

    /// Does something to the networks, with all that is changed with them.
    fn with_networks<T>(
        &mut self,
        io: &mut Io<'_>,
        act: impl FnOnce(&mut Networks, &mut Resources<'_>) -> T,
    ) -> T {
        let names = self.names_of_proxies();
        let tls = TlsTerms {
            setting: self.config.tls,
            port: self.config.tls_port,
            names: &names,
            clock: self.clock,
        };
        let links = LinkResources {
            sockets: &mut *io.sockets,
            client: &mut self.client,
            sink: &mut self.held,
            lingering: &mut self.lingering,
            tls,
        };
        let mut resources = Resources { links, app: &self.app };
        act(&mut self.networks, &mut resources)
    }

    /// Makes the links what the app and the proxies say.
    fn relink(&mut self, now: Instant, io: &mut Io<'_>) {
        let remotes = self.remotes(now);
        let troubled = self
            .with_networks(io, |networks, resources| networks.reconcile(now, &remotes, resources));
        self.reopen_at = self.networks.have_trouble().then(|| now + REOPEN_PAUSE);
        self.tls_at = Some(now);
        for joined in troubled.into_iter().filter_map(|id| self.networks.get(id)) {
            let name = &joined.network.name;
            let trouble = joined.trouble.as_deref().unwrap_or_default();
            tracing::warn!(network = %name, "the network cannot be used as it should: {trouble}");
            if !joined.is_open() {
                let reason = joined.trouble.clone();
                self.tell_link(joined.network.id, name, LinkState::Down, reason);
            }
        }
    }

    fn tell_link(&self, network: u64, name: &str, state: LinkState, reason: Option<String>) {
        Event::Link { network, name, state, reason }.tell(&*self.app);
    }

    fn set_network(&mut self, now: Instant, network: Network, io: &mut Io<'_>) {
        let (id, name) = (network.id, network.name.clone());
        match self.networks.set(now, network) {
            Ok(()) => self.relink(now, io),
            Err(reason) => self.tell_link(id, &name, LinkState::Down, Some(reason)),
        }
    }

    fn remove_network(&mut self, now: Instant, id: u64, io: &mut Io<'_>) {
        self.with_networks(io, |networks, resources| networks.remove(now, id, resources));
    }

    fn set_tun(&mut self, fd: Option<OwnedFd>, io: &mut Io<'_>) {
        if let Err(error) = io.tun.replace(fd) {
            Event::TunLost { reason: error.to_string() }.tell(&*self.app);
        }
        self.has_tun = io.tun.is_open();
    }

    /// Tells the app if the TUN went by itself.
    fn watch_tun(&mut self, io: &Io<'_>) {
        if self.has_tun && !io.tun.is_open() {
            self.has_tun = false;
            let reason = "the system closed it".to_owned();
            Event::TunLost { reason }.tell(&*self.app);
            self.inner.forget();
            self.tell_tun();
        }
    }

    /// Tells the app what the TUN is to be, if that is news.
    fn tell_tun(&mut self) {
        if let Some(wish) = self.inner.news() {
            Event::Tun(wish).tell(&*self.app);
        }
    }

    fn set_paused(&mut self, now: Instant, paused: bool, io: &mut Io<'_>) {
        if self.is_paused == paused {
            return;
        }
        self.is_paused = paused;
        io.tun.set_attached(!paused);
        if paused {
            self.networks.hang_up(io.sockets);
            self.asking.abort_all();
        } else {
            self.gaps = Gaps::new(now, self.clock.asleep());
            self.networks.on_resume(now);
            self.client.on_resume(now);
            self.relink(now, io);
        }
    }

    /// Whether it does nothing until it is told to.
    const fn rests(&self) -> bool {
        self.is_paused && !self.is_stopping
    }

    /// Asks all links at once if the machine stood still.
    fn notice_gap(&mut self, now: Instant) {
        let due = self.client.poll_timeout().map(|(at, _)| at);
        let Some(gap) = self.gaps.notice(now, self.clock.asleep(), due) else { return };
        tracing::debug!(seconds = gap.as_secs(), "this phone stood still: asking all links");
        if self.networks.on_resume(now) {
            self.reopen_at = Some(now);
        }
        self.client.on_resume(now);
    }

    /// The same at little cost, for all that may move what was due.
    fn look_for_gap(&mut self, now: Instant) {
        if self.gaps.are_possible(now) {
            self.notice_gap(now);
        }
    }

    /// Follows the state, and has the names looked up again while the proxy is silent.
    fn watch_state(&mut self, now: Instant, io: &Io<'_>) {
        let state = self.client.state();
        let shown = client_status::tunnel_state(&state, io.tun.is_open());
        if self.state.0 != shown {
            self.state = (shown, now);
            let reason = self.reason(now, io);
            Event::State { state: shown, reason }.tell(&*self.app);
        }
        let is_silent = matches!(
            state,
            ClientState::Stalled { .. } | ClientState::Asking { .. } | ClientState::Waiting { .. }
        );
        if !is_silent {
            return self.patience.rest();
        }
        if self.patience.is_due(now, &mut self.rng) {
            self.ask_for_addresses();
        }
    }

    /// Whether it was told to stop, and the proxy knows or had its time.
    fn has_ended(&self) -> bool {
        self.is_stopping && self.client.is_closed()
    }
}

impl Driven for Phone {
    type Command = Command;

    fn handle_command(&mut self, now: Instant, command: Command, io: &mut Io<'_>) {
        match command {
            Command::Tun(fd) => self.set_tun(fd, io),
            Command::SetNetwork(network) => self.set_network(now, *network, io),
            Command::RemoveNetwork(id) => self.remove_network(now, id, io),
            Command::Addresses(name, found) => self.on_addresses(now, name, found, io),
            Command::UdpAnswers(id) => self.on_udp_answer(now, id, io),
            Command::Pause => self.set_paused(now, true, io),
            Command::Resume => self.set_paused(now, false, io),
            // Who asked may have given up.
            Command::Status(reply) => drop(reply.try_send(Box::new(self.report(now, io)))),
            Command::Stop => {
                self.client.close(now);
                self.is_stopping = true;
            }
        }
    }

    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.client.handle_packet(now, packet, sink);
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        if self.rests() {
            return;
        }
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
            self.networks.note_send_error(path, error.kind);
        }
        if error.kind.is_dead_end() {
            self.client.on_send_refused(now, path);
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        if !self.rests() {
            self.client.poll_transmit(now, out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.rests() {
            return None;
        }
        let at_once = !self.held.is_empty() || self.has_ended();
        let at_once = at_once.then_some(Instant::ZERO);
        let lingers = self.lingering.poll_timeout();
        let own = earliest(earliest(self.reopen_at, lingers), self.patience.poll_timeout());
        let own = earliest(own, self.tls_at.filter(|_| !self.is_stopping));
        let core = self.client.poll_timeout().map(|(at, _)| at);
        earliest(at_once, earliest(own, core))
    }

    fn handle_events(&mut self, now: Instant, io: &mut Io<'_>) -> ControlFlow<()> {
        self.watch_tun(io);
        if self.rests() {
            return ControlFlow::Continue(());
        }
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
        self.watch_state(now, io);
        self.look_at_tls(now, io);
        if self.has_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
