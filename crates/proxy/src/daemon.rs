//! The coordinator: the worker that also has the config, the books, the host and the control socket's ear, and
//! what follows from the events of all workers. With a single worker it is the whole proxy.
//!
//! Nothing here waits: the host's routes are changed by another task, which is told what is wanted
//! ([`Host`]); the books are kept elsewhere ([`Registry`]); the status document is made from what is at hand.

mod books;
mod history;
mod reload;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use ipnet::IpNet;
use ropewalk_control::api::{
    ApiError, ForwardStatus, ForwardsReport, PeersReport, Request, Response,
};
use ropewalk_control::server;
use ropewalk_daemon::reload::{self as reloading, Loaded};
use ropewalk_daemon::status::moved_in_words;
use ropewalk_daemon::{offload, scheduling_status, wakeup};
use ropewalk_link_io::driver::{Driven, Io};
use ropewalk_link_io::udp::{ReceivedDatagram, SendError};
use ropewalk_proto::endpoint::{EndpointEvent, PeerConfig as CorePeer};
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Duration, Instant, earliest};
use ropewalk_proto::tunnel::Flows;
use ropewalk_settings::{PublicKey, Scheduling};
use ropewalk_tls::Sources;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::core::Inside;
use crate::forward::Forwards;
use crate::forward::book::ForwardBook;
use crate::handover::Passed;
use crate::invitation_check::InvitationCheck;
use crate::peers::{PeerBook, RouteChange, down_reason, end_reason};
use crate::registry::{News as RegistryNews, Registry};
use crate::status::{self, Facts, HostFacts};
use crate::worker::{Order, Report, Worker};
use crate::worker_group::{Shown, WorkerGroup};
use crate::worker_thread::News;

pub use history::History;

/// Time for the other workers to end after they were told: a second for their clients, and as long again on a busy
/// machine.
const GROUP_ENDS: Duration = Duration::from_secs(3);

/// The host's network, as the daemon sees it. Calls return at once.
pub trait Host {
    /// Packets to this inner address, or to this network behind a client, go into the TUN if they have at most so many bytes;
    /// `None`: it is unreachable.
    fn route(&self, inner: IpNet, mtu: Option<u16>);

    /// These ports lead to clients from now on, and no others.
    fn forward(&self, forwards: Forwards);

    /// What is known of the host.
    fn facts(&self) -> HostFacts;
}

/// What the other tasks ask of the loop.
#[derive(Debug)]
pub enum Command {
    /// Somebody asks at the control socket.
    Control(server::Command),
    /// The config was read again.
    Loaded(Loaded<Config>),
    /// IPv6 packets of clients can leave by now.
    HandOutIpv6,
    /// Something that the registry waited for.
    Registry(RegistryNews),
    /// Something for this worker came from another one.
    Passed(Passed),
    /// What happened to the clients of another worker.
    News(News),
    /// The other workers' reports are there.
    Gathered(server::Command, Vec<Report>),
    /// What another worker shows of flow routing to one of its clients.
    FlowsShown(server::Command, Shown),
    /// Say goodbye and end.
    Stop,
}

/// The proxy.
pub struct Daemon<H> {
    worker: Worker,
    group: WorkerGroup,
    config: Config,
    /// Where it stands, and who reads it again.
    file: PathBuf,
    reloader: mpsc::Sender<server::Command>,
    registry: Box<dyn Registry>,
    peers: PeerBook,
    forwards: ForwardBook,
    /// What all of them may reach inside the tunnel.
    inside: Inside,
    history: History,
    host: H,
    started: Instant,
    /// Those that clients send to, with their ports.
    sockets: Vec<(SocketId, u16)>,
    /// Whose links come over TLS, where they may.
    tls: Option<Sources>,
    /// When it was told to stop, the time at which it no longer waits for the other workers.
    stop_by: Option<Instant>,
}

impl<H: Host> Daemon<H> {
    /// A proxy for the clients of `config`, which are given IPv6 addresses if `ipv6` says so. `worker` is the
    /// first one, whose sockets are `sockets`, with their ports, and `group` the others; the config stands in `file`,
    /// which `reloader` reads again.
    pub fn new(
        now: Instant,
        (config, file, reloader): (Config, PathBuf, mpsc::Sender<server::Command>),
        registry: Box<dyn Registry>,
        (worker, group): (Worker, WorkerGroup),
        (host, ipv6): (H, bool),
        sockets: Vec<(SocketId, u16)>,
    ) -> Self {
        let (known, passed_over) = registry.peers(&config.peers);
        passed_over.iter().for_each(|why| tracing::warn!("{why}"));
        let peers = PeerBook::new(now, &known, registry.leases(), ipv6);
        let forwards = ForwardBook::new(&config.forwards);
        let inside = Inside::new(&config.pools, config.client_to_client);
        let mut daemon = Self {
            worker,
            group,
            inside,
            config,
            file,
            reloader,
            registry,
            peers,
            forwards,
            history: History::off(),
            host,
            started: now,
            sockets,
            tls: None,
            stop_by: None,
        };
        daemon.set_peers(now);
        daemon.follow_clients();
        for peer in daemon.peers.iter() {
            if let Some(why) = daemon.registry.leases().refusal(&peer.public_key) {
                tracing::warn!(peer = &*peer.name, "refused: {why}");
            }
        }
        daemon
    }

    /// Links come over TLS, too: these know whose.
    pub fn set_tls(&mut self, tls: Option<Sources>) {
        self.tls = tls;
    }

    /// Remembers what is carried and what happens from now on.
    pub fn remember(&mut self, history: History) {
        self.history = history;
    }

    /// Tells every peer's home of it. One whose addresses changed is asked to connect again.
    fn set_peers(&mut self, now: Instant) {
        let keys: Vec<_> = self.peers.iter().map(|peer| peer.public_key).collect();
        self.tell_homes(now, &keys);
    }

    /// The same for some of them.
    fn tell_homes(&mut self, now: Instant, keys: &[PublicKey]) {
        let mut by_home: BTreeMap<u16, Vec<(PublicKey, CorePeer)>> = BTreeMap::new();
        for peer in keys.iter().filter_map(|key| self.peers.get(key)) {
            let key = peer.public_key;
            let of_home = by_home.entry(self.group.home(&key)).or_default();
            of_home.push((key, peer.for_core(&self.config, &self.inside)));
        }
        for (home, peers) in by_home {
            match home {
                0 => self.worker.set_peers(now, peers),
                home => self.group.order(home, Order::SetPeers(peers)),
            }
        }
    }

    /// The clients, or their addresses, may be others: so may the places that ports lead to.
    fn follow_clients(&mut self) {
        if self.forwards.follow(&self.peers) {
            self.host.forward(self.forwards.forwards());
        }
    }

    /// Ends the session of a client that is none any more, and does what follows while it is still in the book.
    fn end_peer(&mut self, now: Instant, key: PublicKey) {
        match self.group.home(&key) {
            0 => {
                self.worker.endpoint.remove_peer(now, key);
                self.take_events(now);
            }
            home => {
                self.group.order(home, Order::RemovePeer(key));
                // Its home tells of the end when the book does not know the client any more.
                let event = Event::SessionEnded(EndReason::Removed);
                if self.peers.is_connected(&key) {
                    self.handle_event(now, &EndpointEvent { peer: key, event });
                }
            }
        }
    }

    /// What happened to the clients that this worker serves.
    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.worker.endpoint.poll_event() {
            self.handle_event(now, &event);
        }
    }

    fn handle_event(&mut self, now: Instant, event: &EndpointEvent) {
        let EndpointEvent { peer: key, event } = event;
        let Some((peer, change)) = self.peers.note(now, key, event) else { return };
        log(&peer.name, event);
        match event {
            Event::SessionEstablished(_) => self.registry.note_session(*key, true),
            // The newer session was told of before.
            Event::SessionEnded(EndReason::Replaced) => {}
            Event::SessionEnded(_) => self.registry.note_session(*key, false),
            Event::Moving => self.registry.keep_session(*key),
            _ => {}
        }
        let mtu = match change {
            RouteChange::Keep => return,
            RouteChange::Route(mtu) => Some(mtu),
            RouteChange::Remove => None,
        };
        peer.networks().for_each(|inner| self.host.route(inner, mtu));
    }

    /// Somebody asked at the control socket: answered at once, or when the workers have said what is needed.
    fn handle_request(&mut self, now: Instant, command: server::Command, io: &Io<'_>) {
        match &command.request {
            Request::Reload => return reloading::ask(&self.reloader, command),
            Request::History(_) => return self.history.ask(now, io.clock.unix_time(), command),
            Request::Invite(_) | Request::RemovePeer { .. } | Request::EnablePeer { .. } => {
                return self.registry.ask(&self.config, command);
            }
            Request::Status | Request::Peers if self.group.is_empty() => {
                return self.handle_reports(now, command, &self.worker.report(io));
            }
            Request::Status | Request::Peers => return self.group.gather(command),
            Request::Flows { peer, limit } => {
                // Whose flows are not known, or this worker's own, are answered below.
                let (client, limit) = (self.flows_of(peer.as_deref()), *limit);
                if let Some(key) = client.ok().filter(|key| self.group.home(key) != 0) {
                    return self.group.ask_flows(key, limit, command);
                }
            }
            _ => {}
        }
        let answer = self.answer(now, command.request.clone());
        command.answer(answer);
    }

    /// The reports of all workers are there.
    fn handle_reports(&self, now: Instant, command: server::Command, report: &Report) {
        let answer = match &command.request {
            Request::Peers => Response::Peers(Box::new(self.peers_report(now, report))),
            _ => self.report(now, report),
        };
        command.answer(Ok(answer));
    }

    /// What somebody asked at the control socket that takes no reports.
    fn answer(&mut self, now: Instant, request: Request) -> Result<Response, ApiError> {
        match request {
            // Dealt with before.
            Request::Status
            | Request::Peers
            | Request::Reload
            | Request::History(_)
            | Request::Invite(_)
            | Request::RemovePeer { .. }
            | Request::EnablePeer { .. } => Err(reloading::is_busy()),
            Request::Scheduling { peer } => self.scheduling(peer.as_deref()),
            Request::SetScheduling { peer, scheduling } => {
                self.set_scheduling(now, peer.as_deref(), *scheduling)?;
                self.scheduling(peer.as_deref())
            }
            Request::Flows { peer, limit } => {
                let key = self.flows_of(peer.as_deref())?;
                let flows = self.worker.endpoint.flows(now, &key, limit);
                self.flows(peer.as_deref(), flows.as_ref())
            }
            Request::Forwards => {
                let forwards = self.forward_status(&self.host.facts());
                Ok(Response::Forwards(Box::new(ForwardsReport { forwards })))
            }
            Request::Devices | Request::LimitDevice(_) => Err(scheduling_status::has_no_devices()),
            Request::Proxies | Request::UseProxy { .. } => Err(scheduling_status::has_no_proxies()),
            Request::Routes | Request::ChangeRoutes(_) => Err(scheduling_status::has_no_routes()),
            Request::ChangeLink(change) => Err(scheduling_status::no_links(&change.name)),
            Request::StartSpeedTest(_)
            | Request::SpeedTest { .. }
            | Request::EndSpeedTest { .. } => Err(scheduling_status::tests_no_links()),
        }
    }

    fn peers_report(&self, now: Instant, report: &Report) -> PeersReport {
        let mut peers =
            status::peers(now, &self.config, &self.peers, &report.stats, &*self.registry);
        for remote in peers.iter_mut().flat_map(|peer| &mut peer.remotes) {
            *remote = self.tls.as_ref().and_then(|tls| tls.of(*remote)).unwrap_or(*remote);
        }
        PeersReport { running: true, peers, invitations: self.registry.invitations() }
    }

    fn forward_status(&self, host: &HostFacts) -> Vec<ForwardStatus> {
        if self.config.forwards.is_empty() {
            return Vec::new();
        }
        let proxy_of = |client: &PublicKey| self.registry.proxy_of(client);
        self.forwards.report(&self.peers, &self.registry.invitations(), &proxy_of, host)
    }

    fn scheduling(&mut self, peer: Option<&str>) -> Result<Response, ApiError> {
        let scheduling = match peer {
            Some(name) => status::scheduling(&self.config, self.peers.named(name)?),
            None => &self.config.tunnel.scheduling,
        };
        Ok(Response::Scheduling(Box::new(scheduling.clone())))
    }

    fn set_scheduling(
        &mut self,
        now: Instant,
        peer: Option<&str>,
        scheduling: Scheduling,
    ) -> Result<(), ApiError> {
        match peer {
            Some(name) => {
                let scheduler = scheduling.scheduler;
                let peer = self.peers.named(name)?;
                let key = peer.public_key;
                peer.set_scheduling(scheduling.clone());
                match self.group.home(&key) {
                    0 => self.worker.schedule(now, Some(key), &scheduling),
                    home => {
                        let order = Order::Schedule { to: Some(key), how: Box::new(scheduling) };
                        self.group.order(home, order);
                    }
                }
                tracing::info!(peer = name, %scheduler, "told how to schedule to a client");
            }
            None => self.schedule_all(now, scheduling),
        }
        Ok(())
    }

    fn schedule_all(&mut self, now: Instant, scheduling: Scheduling) {
        self.worker.schedule(now, None, &scheduling);
        self.group.order_all(|| Order::Schedule { to: None, how: Box::new(scheduling.clone()) });
        tracing::info!(scheduler = %scheduling.scheduler, "told how to schedule");
        self.config.tunnel.scheduling = scheduling;
        self.peers.schedule_alike();
    }

    /// Whose flows are asked for.
    fn flows_of(&mut self, peer: Option<&str>) -> Result<PublicKey, ApiError> {
        let peer = match peer {
            Some(name) => &*self.peers.named(name)?,
            None => self.peers.only()?,
        };
        Ok(peer.public_key)
    }

    fn flows(&mut self, peer: Option<&str>, flows: Option<&Flows>) -> Result<Response, ApiError> {
        let peer = match peer {
            Some(name) => &*self.peers.named(name)?,
            None => self.peers.only()?,
        };
        let scheduler = status::scheduling(&self.config, peer).scheduler;
        let known = |_, name: &str| (name.to_owned(), None);
        let name = peer.name.to_string();
        let report = scheduling_status::flows(name, scheduler, flows, known);
        Ok(Response::Flows(Box::new(report)))
    }

    /// Whether it was told to stop, and every client knows or had its time.
    fn has_ended(&self) -> bool {
        self.stop_by.is_some() && self.worker.endpoint.is_closed() && self.group.have_ended()
    }

    /// How many workers there are, this one included.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.group.workers()
    }

    /// Why it ended although nobody told it to.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.group.hangs().map(|worker| {
            format!("worker {worker} of {} takes no orders: it hangs", self.group.workers())
        })
    }

    fn report(&self, now: Instant, report: &Report) -> Response {
        let host = self.host.facts();
        Response::Status(Box::new(status::report(&Facts {
            now,
            started: self.started,
            config: &self.config,
            sockets: &self.sockets,
            tls: self.tls.as_ref(),
            peers: &self.peers,
            leased: self.registry.leased(),
            forwards: self.forward_status(&host),
            registry: self.registry.status(self.peers.len()),
            stats: &report.stats,
            host: &host,
            history: self.history.status(),
            driver_drops: &report.drops,
            offload: offload::status(
                &self.config.tunnel.offload,
                report.offload.0,
                report.offload.1,
            ),
        })))
    }
}

impl<H: Host> Driven for Daemon<H> {
    type Command = Command;

    fn handle_command(&mut self, now: Instant, command: Command, io: &mut Io<'_>) {
        match command {
            Command::Control(command) => self.handle_request(now, command, io),
            Command::Loaded(loaded) => {
                let (file, unix) = (self.file.clone(), io.clock.unix_time());
                loaded.settle(&file, |config| self.take_over(now, unix, config));
            }
            Command::HandOutIpv6 => {
                self.peers.hand_out_ipv6();
                self.set_peers(now);
                self.follow_clients();
            }
            Command::Registry(news) => self.handle_registry(now, news),
            Command::Passed(passed) => {
                let Self { worker, config, registry, .. } = self;
                let mut check = InvitationCheck { config, registry: &mut **registry };
                worker.handle_passed(now, passed, io, &mut check);
            }
            Command::News(News { events, ended }) => {
                events.iter().for_each(|event| self.handle_event(now, event));
                if ended {
                    self.group.note_end();
                }
            }
            Command::Gathered(command, reports) => {
                let report = reports.into_iter().fold(self.worker.report(io), Report::with);
                self.handle_reports(now, command, &report);
            }
            Command::FlowsShown(command, flows) => {
                let peer = match &command.request {
                    Request::Flows { peer, .. } => peer.clone(),
                    _ => None,
                };
                let answer = self.flows(peer.as_deref(), flows.as_deref());
                command.answer(answer);
            }
            Command::Stop => {
                self.worker.endpoint.close(now);
                self.group.order_all(|| Order::Close);
                if self.stop_by.is_none() {
                    self.history.stop(now, io.clock.unix_time());
                }
                self.stop_by = Some(now + GROUP_ENDS);
            }
        }
    }

    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.worker.handle_packet(now, packet, sink);
    }

    fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.worker.handle_partial(now, packet, sink);
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        let Self { worker, config, registry, .. } = self;
        let mut check = InvitationCheck { config, registry: &mut **registry };
        worker.handle_datagram(now, arrival, datagram, sink, &mut check);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        wakeup::trace(now, || self.worker.endpoint.poll_timeout());
        self.worker.endpoint.handle_timeout(now, sink);
    }

    fn handle_send_error(&mut self, _now: Instant, path: Path, error: SendError) {
        self.worker.note_send_error(path, error);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        self.worker.endpoint.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ended = self.has_ended().then_some(Instant::ZERO);
        let core = self.worker.endpoint.poll_timeout().map(|(at, _)| at);
        earliest(earliest(ended, self.stop_by), earliest(core, self.history.poll_timeout()))
    }

    fn handle_events(&mut self, now: Instant, io: &mut Io<'_>) -> ControlFlow<()> {
        self.worker.tend_queue(io);
        // Before what is for other workers leaves: they are told of a client first.
        if let Some(homes) = self.group.publish_homes(self.peers.take_moved()) {
            self.worker.set_homes(homes);
        }
        self.worker.end_of_batch(now);
        self.take_events(now);
        self.history.look(now, || io.clock.unix_time());
        let late = self.stop_by.is_some_and(|stop_by| stop_by <= now);
        if self.has_ended() || late || self.group.hangs().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// One line for each thing that happened to a client.
fn log(peer: &str, event: &Event) {
    match event {
        Event::SessionEstablished(info) => {
            let (cipher, links) = (info.cipher.as_str(), info.links);
            tracing::info!(peer, cipher, links, "connected");
        }
        Event::SessionEnded(reason) => {
            tracing::info!(peer, "disconnected: {}", end_reason(*reason));
        }
        Event::LinkUp(link) => tracing::info!(peer, link = link.0, "link up"),
        Event::LinkDown(link, reason) => {
            tracing::info!(peer, link = link.0, "link down: {}", down_reason(*reason));
        }
        Event::PacketsMoved(outage) => {
            tracing::info!(peer, link = %outage.name, "{}", moved_in_words(outage));
        }
        Event::PathMoved(link, path) if path.remote.ip().is_loopback() => {
            tracing::info!(peer, link = link.0, "the link has another connection over TLS");
        }
        Event::PathMoved(link, path) => {
            tracing::info!(peer, link = link.0, to = %path.remote, "the link's address changed");
        }
        Event::InnerMtu(mtu) => tracing::debug!(peer, mtu, "inner MTU"),
        Event::Rekeyed(epoch) => tracing::debug!(peer, epoch, "fresh keys"),
        Event::Moving => tracing::info!(peer, "moves to another proxy; flows that began here stay"),
        Event::SpeedTest => tracing::info!(peer, "tests how fast its links are"),
        // Only a client's, or told of as the end of a session.
        Event::Closed(_)
        | Event::Refused(_)
        | Event::Displaced(_)
        | Event::OtherVersions(_)
        | Event::Fleet(_)
        | Event::SpeedWish => {}
    }
}
