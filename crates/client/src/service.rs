//! The daemon from start to clean end.
//!
//! 1. The helper that hands out addresses, if something is shared; then the sandbox, before the first thread.
//! 2. The control socket, and the mark that says "a client runs in this network namespace": whoever comes
//!    second ends here, before anything was touched.
//! 3. The kill switch, if there is one.
//! 4. The TUN. A name that is taken ends here.
//! 5. What a crashed client left behind is removed.
//! 6. The other tasks start (host network, look-up, control, signals), and the event loop runs.
//! 7. At the end, whatever the reason: goodbye to the proxy, the TUN goes with its addresses and routes,
//!    then rules, routes of links and the firewall table.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use ropewalk_control::api::Role;
use ropewalk_control::config::ConfigFile as _;
use ropewalk_control::server::{self, Server};
use ropewalk_daemon::history::Recorder;
use ropewalk_daemon::sandbox::{self, Needs};
use ropewalk_daemon::service::{self, ServiceInputs, StopSignals};
use ropewalk_daemon::{file, heartbeat, mark, offload};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::Driver;
use ropewalk_link_io::tun::{LinuxTun, TunControl as _, TunOptions};
use ropewalk_link_io::udp::Sockets;
use ropewalk_proto::config::MAX_LINKS;
use ropewalk_settings::Sandbox;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::Traces;
use crate::captive::Scout;
use crate::config::{Config, TUN_NAME};
use crate::counters::{self, Keeper};
use crate::daemon::{Command, Daemon, FIRST_MTU, Setup};
use crate::host::linux::{LinuxNetwork, all_of};
use crate::household::handle::{self, Started};
use crate::household::{helper, tidy};
use crate::lock;
use crate::names::{self, Names};
use crate::network::{Asked, End, Network, Wanted};
use crate::proxies;
use crate::resolve::Resolver;
use crate::routes::Numbers;
use crate::split::cgroups::MOUNT;
use crate::udp_again;

/// Commands that may wait for the loop; who sends more waits too.
const WAITING_COMMANDS: usize = 64;

/// Askers that may wait for what was counted of the rules; who comes later is told what is known without.
const WAITING_COUNTS: usize = 4;

/// How long the host's network may take to be as before; it takes a few milliseconds for each rule.
const END_TIME: Duration = Duration::from_secs(10);

/// See [`crate::run`].
pub(crate) fn run(config: Config, file: &Path) -> anyhow::Result<()> {
    let options = server::Options::of_config(&config.control)?;
    let needs = needs(&config, file);
    let helper = helper_of(&config);
    give_up_rights();
    sandbox::enter(config.sandbox, &needs);
    let (server, requests) = Server::start(options)?;
    let _only_one = mark::hold(Role::Client)?;
    let runtime = service::runtime()?;
    let locked = config.kill_switch;
    let result = runtime.block_on(serve(config, file, requests, helper));
    if locked && result.is_err() {
        tracing::warn!("{STAYS_LOCKED}");
    }
    // A look-up may still wait for a name server, or what is told for the supervisor, on a thread that cannot be interrupted.
    runtime.shutdown_background();
    drop(server);
    result
}

/// Starts the helper that hands out addresses, if something is shared. What a crashed client left of one is tidied up before.
fn helper_of(config: &Config) -> Option<Started> {
    // One that runs has its own, and this one ends in a moment.
    if mark::is_held(Role::Client) {
        return None;
    }
    if let Err(error) = tidy::tidy() {
        tracing::warn!("{error:#}");
    }
    if config.share.interfaces.is_empty() {
        return None;
    }
    match handle::start(config.sandbox) {
        Ok(started) => Some(started),
        Err(error) => {
            tracing::warn!("{error:#}");
            None
        }
    }
}

/// Gives up the rights that only the helper needs, if this is not root.
fn give_up_rights() {
    if geteuid().is_root() {
        return;
    }
    let of_helper = CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_RAW;
    let done = capabilities(None).and_then(|mut own| {
        for set in [&mut own.effective, &mut own.permitted, &mut own.inheritable] {
            set.remove(of_helper);
        }
        set_capabilities(None, own)
    });
    if let Err(error) = done {
        tracing::debug!(%error, "rights that only a helper needs are kept");
    }
}

/// The files that a client needs.
fn needs(config: &Config, file: &Path) -> Needs {
    let mut needs = Needs::common(Role::Client, file, &config.control);
    needs.keep_in(&config.state_dir, 0o700);
    needs.keep_beside(&config.counters_file, Some(0o700));
    // Allowances begin again at this machine's midnight.
    needs.read.push("/usr/share/zoneinfo".into());
    needs.read.extend(names::read());
    // Which control groups run, also for `nft`; rules by them may come while the client runs.
    needs.read.push(MOUNT.into());
    needs.keep.extend(names::written());
    needs.programs.push(names::RESOLVECTL);
    needs
}

/// What to do about a kill switch that no client stands behind.
const STAYS_LOCKED: &str = "the kill switch is set: nothing leaves this machine outside the tunnel until the client runs and is \
                            stopped, or until `sudo ropewalk client --purge`";

/// See [`crate::lock_without_config`].
pub(crate) fn lock_without_config(file: &Path) -> anyhow::Result<bool> {
    let Ok(config) = std::fs::read(file) else { return Ok(false) };
    if !lock::is_asked_for(&String::from_utf8_lossy(&config)) {
        return Ok(false);
    }
    let _only_one = mark::hold(Role::Client)?;
    service::runtime()?.block_on(lock_first(TUN_NAME))?;
    tracing::warn!("{STAYS_LOCKED}");
    Ok(true)
}

/// Sets the kill switch before anything else is tried, so that it stands whatever fails then.
async fn lock_first(tun: &str) -> anyhow::Result<()> {
    let done = LinuxNetwork::lock_alone(Numbers::default(), tun).await;
    done.context("the kill switch (kill_switch = true) cannot be set")
}

/// See [`crate::purge`].
pub(crate) fn purge(left: &Traces) -> anyhow::Result<()> {
    let _only_one = mark::hold(Role::Client)?;
    service::runtime()?.block_on(async {
        let network = LinuxNetwork::purge(Numbers::default()).await;
        let names = Names::new(&left.state_dir).restore(&left.tun).await;
        all_of([network, names, tidy::tidy()])
    })
}

/// See [`crate::help_with_names`].
pub(crate) fn help_with_names(client: std::os::unix::net::UnixStream) -> anyhow::Result<()> {
    client.set_nonblocking(true)?;
    service::runtime()?.block_on(async {
        let mut ended = signal(SignalKind::terminate())?;
        let stop = async {
            let _ = ended.recv().await;
        };
        names::help(UnixStream::from_std(client)?, stop).await
    })
}

/// See [`crate::help_with_lans`].
pub(crate) fn help_with_lans(
    client: std::os::unix::net::UnixStream,
    folder: &Path,
    sandbox: Sandbox,
) -> anyhow::Result<()> {
    helper::run(client, folder, sandbox)
}

/// Ends the daemon when told that another start follows, and notes that.
async fn note_restart(
    signal: StopSignals,
    restarts: Arc<AtomicBool>,
    commands: mpsc::Sender<Command>,
) {
    let (came, mut coming) = mpsc::channel(1);
    tokio::spawn(signal.forward(came, ()));
    if coming.recv().await.is_some() {
        restarts.store(true, Ordering::Release);
        // An error means that the loop is over already.
        drop(commands.send(Command::Stop).await);
    }
}

/// How long the last counts of allowances may take to be written.
const KEEPER_TIME: Duration = Duration::from_secs(2);

async fn serve(
    config: Config,
    file: &Path,
    requests: mpsc::Receiver<server::Command>,
    helper: Option<Started>,
) -> anyhow::Result<()> {
    // First, so that a signal during the start ends it cleanly too.
    let ServiceInputs { stop, reload, reloader } = ServiceInputs::open(file, Config::load)?;
    let restart = StopSignals::listen(&[SignalKind::user_defined1()])?;
    if config.kill_switch {
        lock_first(config.tun.name.as_str()).await?;
    }
    let clock = Clock::start();
    let name = config.tun.name.to_string();
    let sockets = Sockets::with_offload(clock, offload::udp(&config.tunnel.offload))?;
    let tun =
        LinuxTun::open(&TunOptions { name, mtu: FIRST_MTU, offload: config.tunnel.offload.tun })?;
    let (commands, waiting) = mpsc::channel(WAITING_COMMANDS);
    let tls_port = config.proxy.tls_port_in_use();
    let (wanted, to_network) = watch::channel(Wanted { tls_port, ..Wanted::default() });
    let (bypass, bypasses) = mpsc::channel(1);
    let (counting, to_count) = mpsc::channel(WAITING_COUNTS);
    let (asking_devices, to_tell) = mpsc::channel(WAITING_COUNTS);
    let asked = Asked { bypass: bypasses, counting: to_count, devices: to_tell };
    let hands_out = helper.is_some();
    let network = Network::open(&config, to_network, asked, helper, commands.clone()).await?;

    let (look_up, wishes) = mpsc::channel(1);
    let (endpoints, to_resolver) = watch::channel(config.proxy.all_addresses());
    let resolver = Resolver {
        endpoints: to_resolver,
        wishes,
        bypass,
        locked: config.kill_switch,
        daemon: commands.clone(),
        rng: SmallRng::from_seed(service::seed()?),
    };
    // What cannot be tidied up harms nobody.
    let _ = file::sweep(&config.counters_file);
    let (known, counts_trouble) = counters::load(&config.counters_file)?;
    if let Some(trouble) = &counts_trouble {
        tracing::warn!("{trouble}");
    }
    let (counts, to_keeper) = watch::channel(known);
    let keeper =
        Keeper { path: config.counters_file.clone(), counts: to_keeper, daemon: commands.clone() };
    let known = proxies::load(&config.state_dir, &config.proxy);
    let (proxies, lists) = watch::channel(known);
    let proxies_keeper = proxies::Keeper::new(&config.state_dir, &config.proxy, lists);
    let (history, remembered) =
        Recorder::start(&config.state_dir, config.history, clock.now(), clock.unix_time())
            .context("cannot start the thread that keeps the history")?;
    let (portals, questions) = mpsc::channel(1);
    let scout = Scout { questions, daemon: commands.clone() };
    // All links may be due at the same moment, and one after the other is asked.
    let (udp_again, questions) = mpsc::channel(MAX_LINKS);
    let udp_scout = udp_again::Scout { questions, daemon: commands.clone() };
    let setup = Setup {
        proxies,
        counting,
        asking_devices,
        hands_out,
        portals,
        udp_again,
        counts,
        counts_trouble,
        history,
        config,
        file: file.to_owned(),
        clock,
        tun: tun.offload(),
        seed: service::seed()?,
        rng: SmallRng::from_seed(service::seed()?),
        wanted,
        look_up,
        endpoints,
        reloader,
    };
    let mut driver = Driver::new(Daemon::new(setup), tun, sockets, waiting, clock)
        .context("cannot start the event loop")?;

    // From here on nothing returns early: the network is to be left as it was.
    let (stop_network, stopped) = oneshot::channel();
    let network = tokio::spawn(network.run(stopped));
    let (stop_keeper, keeper_stopped) = oneshot::channel();
    let keeper = tokio::spawn(keeper.run(keeper_stopped));
    tokio::spawn(resolver.run());
    tokio::spawn(scout.run());
    tokio::spawn(udp_scout.run());
    tokio::spawn(proxies_keeper.run());
    tokio::spawn(reload.run(commands.clone(), Command::Loaded));
    tokio::spawn(service::forward(requests, commands.clone(), Command::Control));
    tokio::spawn(stop.forward(commands.clone(), Command::Stop));
    let restarts = Arc::new(AtomicBool::new(false));
    tokio::spawn(note_restart(restart, Arc::clone(&restarts), commands.clone()));
    tokio::spawn(heartbeat::beat(commands.clone(), Command::Control));
    tracing::info!("the client runs");

    let result = driver.run().await;
    // The TUN first: packets have the host's own way again before the rules are gone one by one.
    drop(driver);
    // An end that nobody wished for is no reason to let packets out, and neither is one before the next start.
    let stays_locked = result.is_err() || restarts.load(Ordering::Acquire);
    let end = if stays_locked { End::KeepLock } else { End::InOrder };
    // Before anything is waited for: without the driver, a network task that was told nothing keeps the lock.
    let _ = stop_network.send(end);
    drop(stop_keeper);
    service::tell_stopping().await;
    // A disk that hangs must not keep the network from being as before.
    let _ = tokio::time::timeout(KEEPER_TIME, keeper).await;
    remembered.wait().await;
    let removed = match tokio::time::timeout(END_TIME, network).await {
        Ok(Ok(removed)) => removed,
        Ok(Err(panicked)) => Err(panicked.into()),
        Err(late) => Err(late.into()),
    };
    result?;
    removed.context("cannot take back all routes and rules; the next start will")?;
    tracing::info!("the client has ended");
    Ok(())
}
