//! The proxy: its workers on their threads, as `run` starts them, with ends of TUNs in the test's hands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc as wires;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use ropewalk_control::api::{ApiError, OpenInvitation, Request, Response, StatusReport};
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_control::server;
use ropewalk_daemon::core::wall_clock;
use ropewalk_daemon::reload::Loaded;
use ropewalk_daemon::writer::Writer;
use ropewalk_daemon::{file, service};
use ropewalk_fleet::cache::{Change, Client};
use ropewalk_fleet::service::News as FleetNews;
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::Driver;
use ropewalk_link_io::tun::{ChannelEnd, ChannelTun};
use ropewalk_link_io::udp::{Bound, ProxySocket, Sockets, open_group};
use ropewalk_proto::endpoint::{Claim, EndpointStats, Share, SpeedRules};
use ropewalk_proxy::Config;
use ropewalk_proxy::config::PeerConfig;
use ropewalk_proxy::core;
use ropewalk_proxy::daemon::{Command, Daemon, Host};
use ropewalk_proxy::forward::Forwards;
use ropewalk_proxy::handover::{Handover, Mailbox};
use ropewalk_proxy::leases::{LeaseTable, Leases};
use ropewalk_proxy::registry::etcd;
use ropewalk_proxy::registry::files::Files;
use ropewalk_proxy::registry::peers_file::PeersFile;
use ropewalk_proxy::registry::{News, Outcome, Registry};
use ropewalk_proxy::status::HostFacts;
use ropewalk_proxy::worker::{Order, Worker};
use ropewalk_proxy::worker_group::{WorkerGroup, orders, room_for_others};
use ropewalk_proxy::worker_thread::{self, WorkerParts, WorkerThreads};
use ropewalk_settings::{InvitationToken, PrivateKey, PublicKey};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use crate::clients::Crowd;

/// More than this machine may have cores.
pub(crate) const WORKERS: u16 = 3;

/// Longer than anything takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Packets that a TUN's end holds.
const TUN_QUEUE: usize = 4096;

const PRIVATE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

type Routes = Arc<Mutex<BTreeMap<IpAddr, u16>>>;

type Sessions = Arc<Mutex<BTreeSet<PublicKey>>>;

/// An IPv4 packet with a number in it.
pub(crate) fn packet(from: [u8; 4], to: [u8; 4], number: u32) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[0] = 0x45;
    packet[3] = 60;
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The host: the routes that the proxy wants.
struct TestHost(Routes);

impl Host for TestHost {
    fn route(&self, inner: IpNet, mtu: Option<u16>) {
        let mut routes = self.0.lock().unwrap();
        match mtu {
            Some(mtu) => drop(routes.insert(inner.addr(), mtu)),
            None => drop(routes.remove(&inner.addr())),
        }
    }

    fn forward(&self, _forwards: Forwards) {}

    fn facts(&self) -> HostFacts {
        HostFacts::default()
    }
}

/// The files of this proxy, which also hears of clients as of those of a fleet, and the sessions that the fleet would hear of.
#[derive(Debug)]
struct Told(Files, Sessions);

impl Registry for Told {
    fn peers(&self, of_file: &[PeerConfig]) -> (Vec<PeerConfig>, Vec<String>) {
        self.0.peers(of_file)
    }

    fn invitations(&self) -> Vec<OpenInvitation> {
        self.0.invitations()
    }

    fn leases(&self) -> &LeaseTable {
        self.0.leases()
    }

    fn name_of(&self, of_file: &[PeerConfig], key: &PublicKey) -> Option<String> {
        self.0.name_of(of_file, key)
    }

    fn admit(&mut self, of_file: &[PeerConfig]) {
        self.0.admit(of_file);
    }

    fn forget(&mut self, key: &PublicKey) {
        self.0.forget(key);
    }

    fn ask(&mut self, config: &Config, asked: server::Command) {
        self.0.ask(config, asked);
    }

    fn show(&mut self, config: &Config, client: PublicKey, token: &InvitationToken) -> Claim {
        self.0.show(config, client, token)
    }

    fn hear(&mut self, config: &Config, news: News) -> Vec<Outcome> {
        match news {
            News::Fleet(FleetNews::Changes(changes)) => vec![etcd::changed(changes)],
            news => self.0.hear(config, news),
        }
    }

    fn note_session(&mut self, client: PublicKey, is_up: bool) {
        let mut sessions = self.1.lock().unwrap();
        match is_up {
            true => sessions.insert(client),
            false => sessions.remove(&client),
        };
    }
}

/// A client with this key and inner address came.
fn came(key: &PrivateKey, address_v4: [u8; 4]) -> Change {
    let (name, address_v4) = ("of the fleet".into(), address_v4.into());
    Change::Came(key.public_key(), Client { name, address_v4, address_v6: None, disabled: false })
}

/// The proxy.
pub(crate) struct Bed {
    pub(crate) port: u16,
    commands: mpsc::Sender<Command>,
    orders: Vec<mpsc::Sender<Order>>,
    tuns: Vec<Option<ChannelEnd>>,
    routes: Routes,
    sessions: Sessions,
    ended: wires::Receiver<Result<(), String>>,
    thread: Option<JoinHandle<()>>,
    folder: TempDir,
    /// Whoever holds it holds up what the running proxy writes.
    disk: Arc<Mutex<()>>,
}

/// What the coordinator's thread begins with.
struct Start {
    config: Config,
    clock: Clock,
    sockets: Vec<Vec<Bound>>,
    tuns: Vec<ChannelTun>,
    queue: mpsc::Receiver<Command>,
    commands: mpsc::Sender<Command>,
    orders: Vec<(mpsc::Sender<Order>, mpsc::Receiver<Order>)>,
    routes: Routes,
    sessions: Sessions,
    writer: Writer,
}

fn config(peers: &[PrivateKey], folder: &Path) -> Config {
    let mut text = format!(
        "private_key = \"{PRIVATE}\"\npublic_addresses = [\"192.0.2.1:1\"]\nstate_dir = \"{}\"\n\
         [tunnel]\nrekey_after = \"1s\"\n",
        folder.join("state").display()
    );
    for key in peers {
        let key = key.public_key();
        write!(text, "[[peer]]\nname = \"{key}\"\npublic_key = \"{key}\"\n").unwrap();
    }
    Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
}

impl Bed {
    /// A proxy for the clients with these keys.
    pub(crate) fn new(peers: &[PrivateKey]) -> Self {
        let folder = TempDir::new().unwrap();
        let group = open_group(&ProxySocket { address: None, port: 0 }, WORKERS).unwrap();
        let port = group[0].address().port();
        let (tuns, ends): (Vec<_>, Vec<_>) = (0..WORKERS)
            .map(|worker| ChannelTun::new(&format!("rw{worker}"), 1440, TUN_QUEUE))
            .unzip();
        let (commands, queue) = mpsc::channel(16 + room_for_others(WORKERS));
        let (orders, taken): (Vec<_>, Vec<_>) = (1..WORKERS).map(|_| orders(WORKERS)).unzip();
        let (routes, sessions) = (Routes::default(), Sessions::default());
        let disk = Arc::new(Mutex::new(()));
        let slow = Arc::clone(&disk);
        let writer = Writer::writing(move |path, content| {
            let _free = slow.lock().unwrap();
            file::replace(path, content)
        });
        let start = Start {
            config: config(peers, folder.path()),
            clock: Clock::start(),
            sockets: group.into_iter().map(|bound| vec![bound]).collect(),
            tuns,
            queue,
            commands: commands.clone(),
            orders: orders.iter().cloned().zip(taken).collect(),
            routes: Arc::clone(&routes),
            sessions: Arc::clone(&sessions),
            writer: writer.unwrap(),
        };
        let (say_ready, ready) = wires::channel();
        let (say_ended, ended) = wires::channel();
        let thread = std::thread::spawn(move || {
            let result =
                LocalSet::new().block_on(&service::runtime().unwrap(), serve(start, say_ready));
            drop(say_ended.send(result.map_err(|error| format!("{error:#}"))));
        });
        ready.recv_timeout(SOON).expect("the workers start");
        let tuns = ends.into_iter().map(Some).collect();
        let thread = Some(thread);
        Self { port, commands, orders, tuns, routes, sessions, ended, thread, folder, disk }
    }

    /// Its state folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whoever holds this holds up what it writes.
    pub(crate) fn disk(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.disk)
    }

    pub(crate) fn share(&self) -> Share {
        Share::new(0, WORKERS).unwrap()
    }

    /// The worker that serves the client with this key.
    pub(crate) fn home(&self, key: &PublicKey) -> u16 {
        self.share().home(key)
    }

    /// Where a client finds the proxy.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [([127, 0, 0, 1], self.port).into(), ([0, 0, 0, 0, 0, 0, 0, 1_u16], self.port).into()]
    }

    pub(crate) fn proxy_key() -> PublicKey {
        PRIVATE.parse::<PrivateKey>().unwrap().public_key()
    }

    fn command(&self, command: Command) {
        self.commands.blocking_send(command).expect("the coordinator runs");
    }

    /// Asks as somebody does at the control socket.
    pub(crate) fn ask(&self, request: Request) -> Result<Response, ApiError> {
        self.begin(request).blocking_recv().expect("an answer")
    }

    /// The same for who does not wait for the answer.
    pub(crate) fn begin(&self, request: Request) -> oneshot::Receiver<Result<Response, ApiError>> {
        let (command, answer) = server::Command::new(request);
        self.command(Command::Control(command));
        answer
    }

    pub(crate) fn status(&self) -> StatusReport {
        let Ok(Response::Status(report)) = self.ask(Request::Status) else { panic!("no status") };
        *report
    }

    /// The core of each worker but the coordinator.
    pub(crate) fn stats_of_others(&self) -> Vec<EndpointStats> {
        let stats = self.orders.iter().map(|orders| {
            let (reply, answer) = oneshot::channel();
            orders.blocking_send(Order::Report(reply)).expect("the worker runs");
            answer.blocking_recv().expect("a report").stats
        });
        stats.collect()
    }

    /// From now on the config names the clients with these keys.
    pub(crate) fn reload(&mut self, peers: &[PrivateKey]) {
        let config = config(peers, self.folder.path());
        self.command(Command::Loaded(Loaded { config: Ok(Box::new(config)), asker: None }));
    }

    /// As the registry of a fleet has it, there is a client with this key and inner address.
    pub(crate) fn tell_of(&self, key: &PrivateKey, address_v4: [u8; 4]) {
        self.tell(vec![came(key, address_v4)]);
    }

    /// The same, and between two looks at the registry it was taken out and came in again.
    pub(crate) fn tell_of_again(&self, key: &PrivateKey, address_v4: [u8; 4]) {
        self.tell(vec![Change::Gone(key.public_key()), came(key, address_v4)]);
    }

    fn tell(&self, changes: Vec<Change>) {
        self.command(Command::Registry(News::Fleet(FleetNews::Changes(changes))));
    }

    /// A packet comes by the queue of this worker.
    pub(crate) fn send(&self, worker: u16, packet: Vec<u8>) {
        let end = self.tuns[usize::from(worker)].as_ref().expect("it has a TUN");
        end.packets.blocking_send(packet).expect("the worker runs");
    }

    /// What this worker wrote to its queue since.
    pub(crate) fn delivered(&mut self, worker: u16) -> Vec<Vec<u8>> {
        let end = self.tuns[usize::from(worker)].as_mut().expect("it has a TUN");
        std::iter::from_fn(|| end.delivered.try_recv().ok()).collect()
    }

    /// Somebody deletes the TUN under this worker.
    pub(crate) fn take_tun_from(&mut self, worker: u16) {
        self.tuns[usize::from(worker)] = None;
    }

    /// The routes that the proxy wants.
    pub(crate) fn routes(&self) -> BTreeMap<IpAddr, u16> {
        self.routes.lock().unwrap().clone()
    }

    /// Whose sessions the registry of a fleet would know of.
    pub(crate) fn sessions(&self) -> BTreeSet<PublicKey> {
        self.sessions.lock().unwrap().clone()
    }

    /// Waits until there are routes to the IPv4 addresses of so many clients.
    pub(crate) fn wait_for_routes(&self, crowd: &mut Crowd, clients: usize) {
        crowd.run_until("the routes are as they should", |_| {
            self.routes().keys().filter(|inner| inner.is_ipv4()).count() == clients
        });
    }

    /// Stops it, and waits until every worker has ended.
    pub(crate) fn stop(&mut self, crowd: &mut Crowd) {
        self.command(Command::Stop);
        let ended = &self.ended;
        let mut result = None;
        crowd.run_until("it has ended", |_| {
            result = ended.try_recv().ok();
            result.is_some()
        });
        assert_eq!(result, Some(Ok(())));
        self.thread.take().expect("it ran").join().expect("no panic");
    }

    /// Why it ends, though nobody told it to.
    pub(crate) fn failure(&self, within: Duration) -> String {
        let ended = self.ended.recv_timeout(within).expect("it ends");
        ended.expect_err("an error")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        drop(self.commands.try_send(Command::Stop));
        // A failed test leaves clients that do not answer: not for ever.
        let late = Instant::now() + Duration::from_secs(10);
        while !thread.is_finished() && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// As `run` does it, without a host.
async fn serve(start: Start, ready: wires::Sender<()>) -> anyhow::Result<()> {
    let Start { config, clock, sockets: bound, tuns, queue, commands, orders, .. } = start;
    let Start { routes, sessions, writer, .. } = start;
    let now = clock.sample();
    let speed = SpeedRules::new(config.speed_tests);
    let core = |number| {
        let share = Share::new(number, WORKERS).unwrap();
        core::endpoint(&config, wall_clock(now), true, share, speed.clone())
    };
    let mailboxes: Vec<_> = std::iter::once(Mailbox::Coordinator(commands.clone()))
        .chain(orders.iter().map(|(orders, _)| Mailbox::Worker(orders.clone())))
        .collect();
    let handover = |number| {
        let others = (0..).zip(&mailboxes);
        Handover::new(others.map(|(at, mailbox)| (at != number).then(|| mailbox.clone())))
    };
    let registry = PeersFile::open(config.registry_file())?;
    let (peers, _) = registry.peers(&config.peers);
    let leases = Leases::open(config.leases_file(), config.pools, &peers, false)?;

    let mut resources = bound.into_iter().zip(tuns);
    let (own, tun) = resources.next().unwrap();
    let mut sockets = Sockets::new(clock);
    let ids: Vec<_> = own.into_iter().map(|bound| sockets.adopt(bound).unwrap()).collect();
    let worker = Worker::new(now.now, core(0), service::seed()?, ids.clone(), handover(0));
    let mut hands = WorkerThreads::default();
    let group = WorkerGroup::new(
        orders.iter().map(|(orders, _)| orders.clone()).collect(),
        commands.clone(),
    );
    for ((number, (orders, taken)), (bound, tun)) in (1..).zip(orders).zip(resources) {
        let outfit = WorkerParts {
            number,
            sockets: sockets.alike(),
            bound,
            tun: move || Ok(tun),
            core: core(number),
            seed: service::seed()?,
            handover: handover(number),
            orders: taken,
            news: commands.clone(),
            clock,
        };
        hands.add(orders, worker_thread::start(outfit)?);
    }
    let file = PathBuf::from("proxy.toml");
    let (reloader, _) = mpsc::channel(1);
    let ports = ids.into_iter().map(|id| (id, 0)).collect();
    let daemon = Daemon::new(
        now.now,
        (config, file, reloader),
        Box::new(Told(Files::new(registry, leases, writer, commands), sessions)),
        (worker, group),
        (TestHost(routes), true),
        ports,
    );
    let mut driver = Driver::new(daemon, tun, sockets, queue, clock)?;
    hands.ready().await?;
    let _ = ready.send(());
    let ran = tokio::select! {
        failure = hands.first_failure() => Err(failure),
        ran = driver.run() => Ok(ran?),
    };
    hands.end().await;
    ran
}
