//! From start to clean end.
//!
//! First what can be refused is asked for and held (the port, the firewall program, the TUN, the control
//! socket), then the host's network is changed, and only then the first datagram is read: no packet is
//! forwarded before guard, filter and address translation stand. At the end the clients are told, and
//! everything is taken back but the guard (docs/OPERATIONS.md).

use std::io::IsTerminal as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_control::api::Role;
use ropewalk_control::config::ConfigFile as _;
use ropewalk_control::server::{self, Server};
use ropewalk_daemon::core::wall_clock;
use ropewalk_daemon::reload::{self, Reloader};
use ropewalk_daemon::service::{self, StopSignals};
use ropewalk_daemon::{file, heartbeat, mark, offload};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::cpu;
use ropewalk_link_io::driver::Driver;
use ropewalk_link_io::netlink::Events;
use ropewalk_link_io::tun::{LinuxTun, TunOptions};
use ropewalk_link_io::udp::{OpenError, ProxySocket, Sockets};
use ropewalk_proto::path::SocketId;
use sd_notify::NotifyState;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::config::Config;
use crate::core;
use crate::daemon::{Command, Daemon};
use crate::host::HostNetwork;
use crate::host::linux::LinuxNetwork;
use crate::leases::Leases;
use crate::network::{Desk, Keeper, TUN_MTU};
use crate::port;
use crate::register::Register;

/// Commands that may wait for the loop. They come from the control server, which bounds its own, and from
/// two tasks that send one at a time.
const WAITING_COMMANDS: usize = 16;

/// How often, and after which pauses, a port that is in use is asked for again: a proxy that was killed in the moment in
/// which it started a program (`nft`) holds it for some milliseconds more.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Runs the daemon until it is told to stop (SIGTERM, SIGINT, or the end of its terminal). `file` is where the config stands,
/// to be read again when somebody asks (SIGHUP where there is no terminal, `ropewalk reload`).
///
/// # Errors
/// What is missing, in use or forbidden on this host, and what to do; or the TUN was taken away. What was
/// changed is taken back before.
pub fn run(config: Config, file: &Path) -> anyhow::Result<()> {
    block_on(serve(config, file))
}

/// Takes back everything that a proxy has changed on this host, the guard routes too.
///
/// # Errors
/// A proxy runs, or the system refuses.
pub fn purge() -> anyhow::Result<()> {
    let _only_one = mark::hold(Role::Proxy)?;
    block_on(async { LinuxNetwork::open().await?.purge().await })
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    LocalSet::new().block_on(&service::runtime()?, work)
}

async fn serve(config: Config, file: &Path) -> anyhow::Result<()> {
    let clock = Clock::start();
    let at_terminal = std::io::stdin().is_terminal();
    let mut ends = vec![SignalKind::terminate(), SignalKind::interrupt()];
    ends.extend(at_terminal.then_some(SignalKind::hangup()));
    let stop = StopSignals::listen(&ends)?;
    let (reloader, asked) = mpsc::channel(reload::WAITING);
    let reload = Reloader::new(file, Config::load, !at_terminal, asked)?;
    let seed = service::seed()?;

    let mut sockets = Sockets::with_offload(clock, offload::udp(&config.tunnel.offload))?;
    let socket = open_socket(&mut sockets, &config, config.listen.port())?;
    let mut at_ports = vec![(socket, config.listen.port())];
    for port in &config.more_ports {
        at_ports.push((open_socket(&mut sockets, &config, *port)?, *port));
    }
    let _only_one = mark::hold(Role::Proxy)?;
    for written in [config.leases_file(), config.register_file()] {
        // What cannot be tidied up harms nobody.
        let _ = file::sweep(&written);
    }
    // Reading them may rewrite their file: not while it is another proxy's.
    let register = Register::open(config.register_file())?;
    let (peers, _) = register.peers(&config.peers);
    let leases = Leases::open(config.leases_file(), config.pools, &peers)?;
    let network = LinuxNetwork::open().await?;
    let tun = LinuxTun::open(&TunOptions {
        name: config.tun_name.as_str().to_owned(),
        mtu: TUN_MTU,
        offload: offload::tun(&config.tunnel.offload),
    })?;
    let (server, control) = Server::start(server::Options::of_config(&config.control)?)?;
    // Before the state is read for the first time, so that no change falls between.
    let events = Events::open()?;

    let desk = Rc::new(Desk::default());
    let (keeper, started) = Keeper::start(network, &config, Rc::clone(&desk)).await;
    if let Err(error) = started {
        return take_back(keeper.release(), Err(error)).await;
    }
    let (commands, queue) = mpsc::channel(WAITING_COMMANDS);
    let now = clock.sample();
    let core = core::endpoint(&config, wall_clock(now), cpu::has_aes());
    let ipv6 = keeper.has_ipv6();
    let mut ready = format!("{} on {}", count_of(peers.len()), config.listen);
    for port in &config.more_ports {
        ready.push_str(&format!(", {port}"));
    }
    let (books, host) = ((register, leases), (Rc::clone(&desk), ipv6));
    let config = (config, file.to_owned(), reloader);
    let daemon = Daemon::new(now.now, config, books, core, seed, host, at_ports);
    let mut driver = match Driver::new(daemon, tun, sockets, queue, clock) {
        Ok(driver) => driver,
        Err(error) => return take_back(keeper.release(), Err(error.into())).await,
    };
    spawn_local(service::forward(control, commands.clone(), Command::Control));
    spawn_local(stop.forward(commands.clone(), Command::Stop));
    spawn_local(heartbeat::beat(commands.clone(), Command::Control));
    spawn_local(reload.run(commands.clone(), Command::Loaded));
    let keeper = spawn_local(keeper.keep(events, commands));
    tracing::info!("ready for {ready}");

    let ran = driver.run().await.context("the proxy cannot go on");
    service::notify(&[NotifyState::Stopping]);
    drop(server);
    desk.stop();
    let network = keeper.await.context("the keeper of the host's network failed")?;
    // The TUN stays until its routes are gone.
    let ended = take_back(network, ran).await;
    drop(driver);
    ended
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

fn open_socket(sockets: &mut Sockets, config: &Config, port: u16) -> anyhow::Result<SocketId> {
    let address = config.listen.ip();
    // The unspecified IPv6 address means both families, whatever the host's settings are.
    let every = address.is_unspecified() && address.is_ipv6();
    let options = ProxySocket { address: (!every).then_some(address), port };
    let mut opened = sockets.open_proxy(&options);
    for _ in 1..TRIES {
        if !matches!(opened, Err(OpenError::InUse { .. })) {
            break;
        }
        std::thread::sleep(PAUSE);
        opened = sockets.open_proxy(&options);
    }
    opened.map_err(|error| {
        let holder = match error {
            OpenError::InUse { .. } => port::holder(port),
            _ => None,
        };
        match holder {
            Some(holder) => anyhow::Error::new(error).context(format!("{holder} holds the port")),
            None => error.into(),
        }
    })
}

fn count_of(peers: usize) -> String {
    match peers {
        0 => "its first peer (`ropewalk peer add NAME` invites one)".to_owned(),
        1 => "1 peer".to_owned(),
        count => format!("{count} peers"),
    }
}
