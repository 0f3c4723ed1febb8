//! From start to clean end.
//!
//! First what can be refused is asked for and held (the ports, the firewall program, the TUN, the control
//! socket; behind the port the sandbox begins), then the host's network is changed, and only then the first datagram is read: no packet is
//! forwarded before guard, filter and address translation stand. At the end the clients are told, and
//! everything is taken back but the guard (docs/operations/proxy-system.md).

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, anyhow};
use ropewalk_control::api::Role;
use ropewalk_control::config::ConfigFile as _;
use ropewalk_control::server::{self, Server};
use ropewalk_daemon::core::wall_clock;
use ropewalk_daemon::history::{self, Recorder};
use ropewalk_daemon::sandbox::{self, Needs};
use ropewalk_daemon::service::{self, ServiceInputs};
use ropewalk_daemon::writer::Writer;
use ropewalk_daemon::{file, heartbeat, mark, offload};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::cpu;
use ropewalk_link_io::driver::Driver;
use ropewalk_link_io::netlink::{Events, Netlink, PROXY_PROTOCOL};
use ropewalk_link_io::tun::{LinuxTun, TunQueue};
use ropewalk_link_io::udp::Sockets;
use ropewalk_proto::endpoint::{Share, SpeedRules};
use ropewalk_tls::Listener;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::config::Config;
use crate::core;
use crate::daemon::{Command, Daemon, History};
use crate::handover::{Handover, Mailbox};
use crate::host::HostNetwork;
use crate::host::linux::LinuxNetwork;
use crate::host::switched::SwitchedFile;
use crate::leases::Leases;
use crate::network::{Keeper, NetworkRequests};
use crate::overlap;
use crate::registry::Registry;
use crate::registry::etcd::Etcd;
use crate::registry::files::Files;
use crate::registry::peers_file::PeersFile;
use crate::resources::WorkerResources;
use crate::tls;
use crate::worker::Worker;
use crate::worker_group::{WorkerGroup, orders, room_for_others};
use crate::worker_thread::{self, WorkerParts, WorkerThreads};

/// Commands that may wait for the loop. They come from the control server, which bounds its own, and from
/// two tasks that send one at a time.
const WAITING_COMMANDS: usize = 16;

/// Runs the daemon until it is told to stop (SIGTERM, SIGINT, or the end of its terminal). `file` is where the config stands,
/// to be read again when somebody asks (SIGHUP where there is no terminal, `ropewalk reload`). With `drop_leases` clients
/// lose the addresses that they have outside the pools.
///
/// # Errors
/// What is missing, in use or forbidden on this host, and what to do; or the TUN was taken away and cannot be made again. What was
/// changed is taken back before.
pub fn run(config: Config, file: &Path, drop_leases: bool) -> anyhow::Result<()> {
    // Who holds a port is asked of other processes, and these are closed to this one then.
    let resources = WorkerResources::open(&config)?;
    let tls = tls::bind(&config)?;
    let switched = SwitchedFile::of(&config.state_dir);
    sandbox::enter(config.sandbox, &needs(&config, file));
    block_on(serve(config, (resources, tls), switched, file, drop_leases))
}

/// The files that a proxy needs.
fn needs(config: &Config, file: &Path) -> Needs {
    let mut needs = Needs::common(Role::Proxy, file, &config.control);
    needs.keep_in(&config.state_dir, 0o700);
    needs.read.extend(history::read());
    needs
}

/// Takes back everything that a proxy has changed on this host, the guard routes too. `state_dir` is that of its config.
///
/// # Errors
/// A proxy runs, or the system refuses.
pub fn purge(state_dir: &Path) -> anyhow::Result<()> {
    let _only_one = mark::hold(Role::Proxy)?;
    let switched = SwitchedFile::of(state_dir);
    block_on(async { LinuxNetwork::open().await?.remembering(switched).await?.purge().await })
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = service::runtime()?;
    let done = LocalSet::new().block_on(&runtime, work);
    // A supervisor that does not read keeps a thread that cannot be interrupted.
    runtime.shutdown_background();
    done
}

async fn serve(
    config: Config,
    (mut resources, tls): (WorkerResources, Option<TcpListener>),
    switched: SwitchedFile,
    file: &Path,
    drop_leases: bool,
) -> anyhow::Result<()> {
    let clock = Clock::start();
    let used = overlap::used(&Netlink::open()?, config.tun_name.as_str()).await?;
    if let Some(overlap) = overlap::judge(&config, &used) {
        return Err(overlap.into());
    }
    let ServiceInputs { stop, reload, reloader } = ServiceInputs::open(file, Config::load)?;

    let sockets = Sockets::with_offload(clock, offload::udp(&config.tunnel.offload))?;
    let _only_one = mark::hold(Role::Proxy)?;
    // Reading files may rewrite them: not while they are another proxy's.
    let files = match &config.registry {
        None => Some(open_files(&config, drop_leases)?),
        Some(_) => None,
    };
    // What comes this way waits in the proxy's own sockets until they are read.
    let tls = tls::start(&config, tls, clock)?;
    let network = LinuxNetwork::open().await?.remembering(switched).await?;
    let queues = resources.open_tun(&config)?;
    let (recorder, remembered) =
        Recorder::start(&config.state_dir, config.history, clock.now(), clock.unix_time())
            .context("cannot start the thread that keeps the history")?;
    let history = History::new(recorder, config.tun_name.as_str());
    let (server, control) = Server::start(server::Options::of_config(&config.control)?)?;
    // Before the state is read for the first time, so that no change falls between.
    let events = Events::open(Some(PROXY_PROTOCOL))?;

    let requests = Rc::new(NetworkRequests::default());
    let (keeper, started) = Keeper::start(network, &config, Rc::clone(&requests)).await;
    if let Err(error) = started {
        return take_back(keeper.release(), Err(error)).await;
    }
    let mut ready = match (&files, &config.registry) {
        (_, Some(registry)) => format!("the fleet `{}` on {}", registry.fleet, config.listen),
        (Some((file, ..)), _) => {
            let (peers, _) = file.peers(&config.peers);
            format!("{} on {}", count_of(peers.len()), config.listen)
        }
        (None, None) => config.listen.to_string(),
    };
    for port in &config.more_ports {
        ready.push_str(&format!(", {port}"));
    }
    if let Some(tls) = &config.tls {
        ready.push_str(&format!(", over TLS on {}", tls.listen));
    }
    let room = WAITING_COMMANDS + room_for_others(resources.workers());
    let (commands, queue) = mpsc::channel(room);
    let registry = match keep_registry(&config, files, &commands) {
        Ok(registry) => registry,
        Err(error) => return take_back(keeper.release(), Err(error)).await,
    };
    let host = (Rc::clone(&requests), keeper.has_ipv6());
    let config = (config, file.to_owned(), reloader);
    let started_workers = start_workers(
        clock,
        (sockets, resources, queues),
        commands.clone(),
        config,
        registry,
        host,
    );
    let (mut driver, mut threads) = match started_workers.and_then(|(own, threads)| {
        let (mut daemon, tun, sockets) = own;
        daemon.remember(history);
        Ok((Driver::new(daemon, tun, sockets, queue, clock)?, threads))
    }) {
        Ok(started_workers) => started_workers,
        Err(error) => return take_back(keeper.release(), Err(error)).await,
    };
    driver.role_mut().set_tls(tls.as_ref().map(Listener::sources));
    spawn_local(service::forward(control, commands.clone(), Command::Control));
    spawn_local(stop.forward(commands.clone(), Command::Stop));
    spawn_local(heartbeat::beat(commands.clone(), Command::Control));
    spawn_local(reload.run(commands.clone(), Command::Loaded));
    let keeper = spawn_local(keeper.keep(events, commands));

    let ran = turn(&mut driver, &mut threads, &ready).await.context("the proxy cannot go on");
    service::tell_stopping().await;
    drop(server);
    requests.stop();
    threads.end().await;
    let network = keeper.await.context("the keeper of the host's network failed")?;
    // The TUN stays until its routes are gone.
    let ended = take_back(network, ran).await;
    drop(driver);
    remembered.wait().await;
    ended
}

/// The files of a proxy that shares no registry: who joined, their addresses, and who writes both.
type OwnFiles = (PeersFile, Leases, Writer);

fn open_files(config: &Config, drop_leases: bool) -> anyhow::Result<OwnFiles> {
    for written in [config.leases_file(), config.registry_file()] {
        // What cannot be tidied up harms nobody.
        let _ = file::sweep(&written);
    }
    let registry = PeersFile::open(config.registry_file())?;
    let (peers, _) = registry.peers(&config.peers);
    let leases = Leases::open(config.leases_file(), config.pools, &peers, drop_leases)?;
    let writer = Writer::start().context("cannot start the thread that writes files")?;
    Ok((registry, leases, writer))
}

/// What keeps the clients: the files, or the registry that is shared.
fn keep_registry(
    config: &Config,
    files: Option<OwnFiles>,
    commands: &mpsc::Sender<Command>,
) -> anyhow::Result<Box<dyn Registry>> {
    if let Some((registry, leases, writer)) = files {
        return Ok(Box::new(Files::new(registry, leases, writer, commands.clone())));
    }
    let shared = config.registry.as_ref().context("there is no registry")?;
    let registry = Etcd::start(config, shared, commands.clone());
    Ok(Box::new(registry.context("cannot start the thread of the registry")?))
}

type Own = (Daemon<Rc<NetworkRequests>>, LinuxTun, Sockets);

/// Gives each worker its resources: the first one's is for the coordinator, in this thread; the others are started.
fn start_workers(
    clock: Clock,
    (mut sockets, resources, queues): (Sockets, WorkerResources, Vec<TunQueue>),
    commands: mpsc::Sender<Command>,
    config: (Config, PathBuf, mpsc::Sender<server::Command>),
    registry: Box<dyn Registry>,
    host: (Rc<NetworkRequests>, bool),
) -> anyhow::Result<(Own, WorkerThreads)> {
    let now = clock.sample();
    let workers = resources.workers();
    let partial_checksums = queues.iter().all(|queue| queue.offload().completes_checksums());
    // The workers share the places for speed tests.
    let speed = SpeedRules::new(config.0.speed_tests);
    let core = |number| {
        let share = Share::new(number, workers).context("there are too many workers")?;
        let (time, aes) = (wall_clock(now), cpu::has_aes());
        let mut core = core::endpoint(&config.0, time, aes, share, speed.clone());
        core.tunnel.partial_checksums = partial_checksums;
        Ok::<_, anyhow::Error>(core)
    };
    let ports: Vec<_> = resources.ports().collect();
    let (orders, taken): (Vec<_>, Vec<_>) = (1..workers).map(|_| orders(workers)).unzip();
    let mailboxes: Vec<_> = std::iter::once(Mailbox::Coordinator(commands.clone()))
        .chain(orders.iter().cloned().map(Mailbox::Worker))
        .collect();
    let handover = |number: u16| {
        let others = (0..).zip(&mailboxes);
        Handover::new(others.map(|(at, mailbox)| (at != number).then(|| mailbox.clone())))
    };

    let mut each_worker = resources.into_sockets().into_iter().zip(queues);
    let (bound, queue) = each_worker.next().context("no worker has sockets and a TUN")?;
    let adopted: Result<Vec<_>, _> = bound.into_iter().map(|bound| sockets.adopt(bound)).collect();
    let ids = adopted?;
    let worker = Worker::new(now.now, core(0)?, service::seed()?, ids.clone(), handover(0));
    let mut threads = WorkerThreads::default();
    for (((number, orders), taken), (bound, queue)) in
        (1..).zip(&orders).zip(taken).zip(each_worker)
    {
        let parts = WorkerParts {
            number,
            sockets: sockets.alike(),
            bound,
            tun: move || Ok(queue.drive()?),
            core: core(number)?,
            seed: service::seed()?,
            handover: handover(number),
            orders: taken,
            news: commands.clone(),
            clock,
        };
        threads.add(orders.clone(), worker_thread::start(parts)?);
    }
    let group = WorkerGroup::new(orders, commands);
    let at_ports = ids.into_iter().zip(ports).collect();
    let daemon = Daemon::new(now.now, config, registry, (worker, group), host, at_ports);
    Ok(((daemon, queue.drive()?, sockets), threads))
}

/// Turns the coordinator's loop until it ends, or another worker does that was not told to.
async fn turn(
    driver: &mut Driver<Daemon<Rc<NetworkRequests>>, LinuxTun>,
    threads: &mut WorkerThreads,
    ready: &str,
) -> anyhow::Result<()> {
    threads.ready().await?;
    match driver.role().workers() {
        1 => tracing::info!("ready for {ready}"),
        workers => tracing::info!("ready for {ready}, with {workers} workers"),
    }
    tokio::select! {
        biased;
        failure = threads.first_failure() => return Err(failure),
        ran = driver.run() => ran?,
    }
    match driver.role().failure() {
        Some(failure) => Err(anyhow!(failure)),
        None => Ok(()),
    }
}

/// The end: the host's network as it was, but for the guard. `result` matters more than how that goes.
async fn take_back(
    mut network: impl HostNetwork,
    result: anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stopped = network.stop().await.context("cannot take back what the proxy changed");
    match (result, stopped) {
        (Ok(()), stopped) => {
            tracing::info!("stopped");
            stopped
        }
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(also)) => {
            tracing::warn!("{also:#}");
            Err(error)
        }
    }
}

fn count_of(peers: usize) -> String {
    match peers {
        0 => "its first peer (`ropewalk peer add NAME` invites one)".to_owned(),
        1 => "1 peer".to_owned(),
        count => format!("{count} peers"),
    }
}
