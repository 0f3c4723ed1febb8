//! The proxy's role in the event loop: the core's endpoint, and what follows from its events.
//!
//! Nothing here waits: the host's routes are changed by another task, which is told what is wanted
//! ([`Host`]); the status document is made from what is at hand.

mod reload;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;

use ropewalk_control::api::{ApiError, PeersReport, Request, Response};
use ropewalk_control::config::Scheduling;
use ropewalk_control::config::scheduler::Direction;
use ropewalk_control::server;
use ropewalk_daemon::core::public_key;
use ropewalk_daemon::rates::{Rates, SAMPLE_INTERVAL};
use ropewalk_daemon::reload::{self as reloading, Loaded};
use ropewalk_daemon::{offload, scheduling, shown};
use ropewalk_link_io::driver::{Io, Role};
use ropewalk_link_io::udp::{Arrival, SendError, SendErrorKind};
use ropewalk_proto::endpoint::{Endpoint, EndpointConfig, EndpointEvent};
use ropewalk_proto::event::Event;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Instant, earliest};
use ropewalk_proto::tunnel::PathRow;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::gate::Gate;
use crate::inviting;
use crate::leases::Leases;
use crate::peers::{PeerBook, RouteChange, down_reason, end_reason};
use crate::register::Register;
use crate::status::{self, Facts, HostFacts};

/// The host's network, as the daemon sees it. Calls return at once.
pub trait Host {
    /// Packets to this inner address go into the TUN if they have at most so many bytes; `None`: it is
    /// unreachable.
    fn route(&self, inner: IpAddr, mtu: Option<u16>);

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
    /// Say goodbye and end.
    Stop,
}

/// The proxy.
pub struct Daemon<H> {
    endpoint: Endpoint,
    config: Config,
    /// Where it stands, and who reads it again.
    file: PathBuf,
    reloader: mpsc::Sender<server::Command>,
    register: Register,
    leases: Leases,
    peers: PeerBook,
    host: H,
    started: Instant,
    rates: Rates<status::Key>,
    /// When the next sample for the rates is due; none without sessions.
    sample_at: Option<Instant>,
    /// Those that clients send to, with their ports.
    sockets: Vec<(SocketId, u16)>,
    send_errors: BTreeMap<&'static str, u64>,
    stopping: bool,
}

impl<H: Host> Daemon<H> {
    /// A proxy for the clients of `config`, which are given IPv6 addresses if `ipv6` says so. `seed` must
    /// be unpredictable; `sockets` are those that clients send to, with their ports; the config stands in `file`, which
    /// `reloader` reads again.
    pub fn new(
        now: Instant,
        (config, file, reloader): (Config, PathBuf, mpsc::Sender<server::Command>),
        (register, leases): (Register, Leases),
        core: EndpointConfig,
        seed: [u8; 32],
        (host, ipv6): (H, bool),
        sockets: Vec<(SocketId, u16)>,
    ) -> Self {
        let (known, passed_over) = register.peers(&config.peers);
        passed_over.iter().for_each(|why| tracing::warn!("{why}"));
        let peers = PeerBook::new(now, &known, &leases, ipv6);
        let mut daemon = Self {
            endpoint: Endpoint::new(now, core, seed),
            config,
            file,
            reloader,
            register,
            leases,
            peers,
            host,
            started: now,
            rates: Rates::new(now),
            sample_at: None,
            sockets,
            send_errors: BTreeMap::new(),
            stopping: false,
        };
        daemon.set_peers(now);
        for peer in daemon.peers.iter() {
            if let Some(why) = daemon.leases.refusal(&peer.config.public_key) {
                tracing::warn!(peer = peer.config.name, "refused: {why}");
            }
        }
        daemon
    }

    /// Tells the core of every peer. One whose addresses changed is asked to connect anew.
    fn set_peers(&mut self, now: Instant) {
        for (key, peer) in self.peers.for_core(&self.config) {
            let name = peer.name.clone();
            if let Err(error) = self.endpoint.set_peer(now, key, peer) {
                tracing::error!(peer = name, %error, "this peer cannot connect");
            }
        }
    }

    fn handle_event(&mut self, now: Instant, event: &EndpointEvent) {
        let EndpointEvent { peer: key, event } = event;
        let Some((peer, change)) = self.peers.note(now, key, event) else { return };
        log(&peer.config.name, event);
        let mtu = match change {
            RouteChange::Keep => return,
            RouteChange::Route(mtu) => Some(mtu),
            RouteChange::Remove => None,
        };
        peer.addresses().for_each(|inner| self.host.route(inner, mtu));
    }

    fn sample(&mut self, now: Instant) {
        let stats = self.endpoint.stats();
        self.rates.sample(now, status::totals(&stats));
        self.sample_at = (stats.sessions > 0).then(|| now + SAMPLE_INTERVAL);
    }

    /// What somebody asked at the control socket.
    fn answer(
        &mut self,
        now: Instant,
        request: Request,
        io: &Io<'_>,
    ) -> Result<Response, ApiError> {
        match request {
            Request::Status => Ok(self.report(now, io)),
            Request::Scheduling { peer } => self.scheduling(peer.as_deref()),
            Request::SetScheduling { peer, scheduling } => {
                self.set_scheduling(now, peer.as_deref(), *scheduling)?;
                self.scheduling(peer.as_deref())
            }
            Request::Flows { peer, limit } => self.flows(peer.as_deref(), limit),
            Request::ChangeLink(change) => Err(shown::no_links(&change.name)),
            Request::Reload => Err(reloading::is_busy()),
            Request::Peers => Ok(Response::Peers(Box::new(self.peers_report(now)))),
            Request::Invite(wish) => {
                let invited = inviting::invite(&self.config, &mut self.register, &wish)?;
                tracing::info!(peer = invited.name, again = wish.again, "invited");
                Ok(Response::Invited(Box::new(invited)))
            }
            Request::RemovePeer { name } => self.remove_peer(now, &name),
        }
    }

    /// Takes a client out at once: out of the book, then its session, then what is shown of it.
    fn remove_peer(&mut self, now: Instant, name: &str) -> Result<Response, ApiError> {
        let removed = inviting::remove(&self.config, &mut self.register, name)?;
        if let Some(key) = &removed.public_key {
            let core_key = public_key(key);
            self.endpoint.remove_peer(now, core_key);
            while let Some(event) = self.endpoint.poll_event() {
                self.handle_event(now, &event);
            }
            self.peers.remove(&core_key);
            if let Err(error) = self.leases.forget(key) {
                tracing::warn!("its addresses stay leased until the next start: {error}");
            }
        }
        tracing::info!(peer = name, "removed");
        Ok(Response::Removed(Box::new(removed)))
    }

    fn peers_report(&self, now: Instant) -> PeersReport {
        let stats = self.endpoint.stats();
        PeersReport {
            running: true,
            peers: status::peers(now, &self.config, &self.peers, &stats),
            invitations: inviting::invitations(&self.register),
        }
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
                let core = scheduling::scheduler(&scheduling);
                let terms = scheduling::terms(&scheduling, Direction::Down);
                let scheduler = scheduling.scheduler;
                let peer = self.peers.named(name)?;
                let key = public_key(&peer.config.public_key);
                peer.scheduling = Some(scheduling);
                self.endpoint.set_peer_scheduling(now, key, &core, &terms);
                tracing::info!(peer = name, %scheduler, "told how to schedule to a client");
            }
            None => self.schedule_all(now, scheduling),
        }
        Ok(())
    }

    fn schedule_all(&mut self, now: Instant, scheduling: Scheduling) {
        let core = scheduling::scheduler(&scheduling);
        let terms = scheduling::terms(&scheduling, Direction::Down);
        self.endpoint.set_scheduling(now, &core, &terms);
        tracing::info!(scheduler = %scheduling.scheduler, "told how to schedule");
        self.config.tunnel.scheduling = scheduling;
        self.peers.schedule_alike();
    }

    fn flows(&mut self, peer: Option<&str>, limit: usize) -> Result<Response, ApiError> {
        let peer = match peer {
            Some(name) => &*self.peers.named(name)?,
            None => self.peers.only()?,
        };
        let key = public_key(&peer.config.public_key);
        let tables = self.endpoint.flow_tables(&key, limit);
        let scheduler = status::scheduling(&self.config, peer).scheduler;
        let known = |row: &PathRow| (row.name.to_string(), None);
        let report = shown::flows(peer.config.name.clone(), scheduler, tables.as_ref(), known);
        Ok(Response::Flows(Box::new(report)))
    }

    /// Whether it was told to stop, and every client knows or had its time.
    fn has_ended(&self) -> bool {
        self.stopping && self.endpoint.is_closed()
    }

    fn report(&self, now: Instant, io: &Io<'_>) -> Response {
        let mut driver_drops = self.send_errors.clone();
        driver_drops.insert("tun_refused", io.tun.counters().dropped_out);
        let counters = self.sockets.iter().filter_map(|(id, _)| io.sockets.counters(*id));
        driver_drops.insert("receive_error", counters.map(|socket| socket.errors_in).sum());
        Response::Status(Box::new(status::report(&Facts {
            now,
            started: self.started,
            config: &self.config,
            sockets: &self.sockets,
            peers: &self.peers,
            leases: &self.leases,
            stats: &self.endpoint.stats(),
            span: self.rates.until(now),
            host: &self.host.facts(),
            driver_drops: &driver_drops,
            offload: offload::status(
                &self.config.tunnel.offload,
                io.tun.offload(),
                io.sockets.offload(),
            ),
        })))
    }
}

impl<H: Host> Role for Daemon<H> {
    type Command = Command;

    fn handle_command(&mut self, now: Instant, command: Command, io: &mut Io<'_>) {
        match command {
            Command::Control(command) if command.request == Request::Reload => {
                reloading::ask(&self.reloader, command);
            }
            Command::Loaded(loaded) => {
                let file = self.file.clone();
                loaded.settle(&file, |config| self.take_over(now, config));
            }
            Command::Control(command) => {
                let answer = self.answer(now, command.request.clone(), io);
                command.answer(answer);
            }
            Command::HandOutIpv6 => {
                self.peers.hand_out_ipv6(&self.leases);
                self.set_peers(now);
            }
            Command::Stop => {
                self.endpoint.close(now);
                self.stopping = true;
            }
        }
    }

    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.endpoint.handle_packet(now, packet, sink);
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: Arrival,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        let Self { config, register, leases, peers, .. } = self;
        let mut gate = Gate { now, config, register, leases, peers };
        let (path, ecn) = (arrival.path, arrival.ecn);
        self.endpoint.handle_datagram_inviting(now, path, ecn, datagram, sink, &mut gate);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.endpoint.handle_timeout(now, sink);
        if self.sample_at.is_some_and(|at| at <= now) {
            self.sample(now);
        }
    }

    fn handle_send_error(&mut self, _now: Instant, path: Path, error: SendError) {
        // The core finds out by itself: what did not leave is not confirmed.
        tracing::trace!(?path, ?error, "not sent");
        *self.send_errors.entry(send_error(error.kind)).or_default() += error.datagrams as u64;
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        self.endpoint.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ended = self.has_ended().then_some(Instant::ZERO);
        earliest(ended, earliest(self.endpoint.poll_timeout(), self.sample_at))
    }

    fn handle_events(&mut self, now: Instant, _io: &mut Io<'_>) -> ControlFlow<()> {
        self.endpoint.end_of_batch(now);
        while let Some(event) = self.endpoint.poll_event() {
            self.handle_event(now, &event);
            if self.sample_at.is_none() && matches!(event.event, Event::SessionEstablished(_)) {
                self.sample(now);
            }
        }
        if self.has_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
        Event::PathMoved(link, path) => {
            tracing::info!(peer, link = link.0, to = %path.remote, "the link's address changed");
        }
        Event::InnerMtu(mtu) => tracing::debug!(peer, mtu, "inner MTU"),
        Event::Rekeyed(epoch) => tracing::debug!(peer, epoch, "fresh keys"),
        // Only a client's, or told of as the end of a session.
        Event::Closed(_) | Event::Refused(_) | Event::Displaced(_) | Event::OtherVersions(_) => {}
    }
}

/// The name of a counter.
fn send_error(kind: SendErrorKind) -> &'static str {
    match kind {
        SendErrorKind::TooBig => "send_too_big",
        SendErrorKind::Unreachable => "send_unreachable",
        SendErrorKind::InterfaceDown | SendErrorKind::InterfaceGone => "send_interface_down",
        SendErrorKind::AddressGone => "send_address_gone",
        SendErrorKind::Forbidden => "send_forbidden",
        SendErrorKind::Full => "send_buffer_full",
        _ => "send_error",
    }
}
