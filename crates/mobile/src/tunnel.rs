//! A tunnel as its owner has it: one thread with the event loop, and calls from any other.
//!
//! | call | waits for |
//! | --- | --- |
//! | most | nothing: what is said is put into a queue |
//! | [`status`](Tunnel::status) | the loop's next turn, 2 s at most |
//! | [`stop`](Tunnel::stop) | the end of the thread: about a second, for the proxy is told |
//!
//! So all but the last two may be made in a callback, too. No lock is held while a callback runs.

use std::any::Any;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self as reply, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use ropewalk_daemon::{core, offload, service};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::cpu;
use ropewalk_link_io::driver::Driver;
use ropewalk_link_io::tun::InheritedTun;
use ropewalk_link_io::tun::inherited::check;
use ropewalk_link_io::udp::Sockets;
use ropewalk_proto::client::ClientConfig;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_settings::{Direction, InvitationToken, PresharedKey, PrivateKey};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::config::{Config, invitation};
use crate::event::Event;
use crate::log::LogEvents;
use crate::phone::{Command, Phone, Setup};
use crate::{App, Error, Network};

/// Calls that may wait for the loop, which takes 16 in a turn: more than an app makes when it learns of all its networks.
const WAITING_COMMANDS: usize = 256;

/// How long the loop may take to answer. It turns every few milliseconds, unless a callback holds it up.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Pause before a full queue is looked at again.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Most characters of a name, and most addresses of it in one call.
const MAX_NAME: usize = 253;
const MAX_ADDRESSES: usize = 64;

/// What a tunnel is made of.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// This client's key.
    pub secret_key: PrivateKey,
    /// The secret that is shared besides the keys, where there is one.
    pub preshared_key: Option<PresharedKey>,
    /// A [`Config`] as JSON. It may be left out with an invitation, which says as much.
    pub config: Option<&'a str>,
    /// The line that lets this client in, until the proxy knows its key.
    pub invitation: Option<&'a str>,
}

/// A tunnel. Dropped, it is stopped.
pub struct Tunnel {
    commands: mpsc::Sender<Command>,
    stage: Mutex<Stage>,
    /// The thread of the loop, once it was started.
    thread: Arc<OnceLock<ThreadId>>,
}

/// How far it is.
enum Stage {
    Ready(Box<Start>),
    Running(JoinHandle<()>),
    Over,
}

/// What the thread is started with.
struct Start {
    app: Arc<dyn App>,
    config: Config,
    secret_key: PrivateKey,
    preshared_key: PresharedKey,
    invitation: Option<InvitationToken>,
    commands: mpsc::Receiver<Command>,
    /// Into the same queue, for what the loop has others find out.
    own_commands: mpsc::Sender<Command>,
}

impl Tunnel {
    /// A tunnel that is not started yet.
    ///
    /// # Errors
    /// The config or the invitation is not understood, or makes no sense.
    pub fn new(options: &Options<'_>, app: Arc<dyn App>) -> Result<Self, Error> {
        let invited = options.invitation.map(invitation).transpose()?;
        let config = Config::of(options.config, invited.as_ref())?;
        let own = options.secret_key.public_key();
        if config.proxies.iter().any(|proxy| proxy.public_key == own) {
            let problem = "the config: the public key of a proxy is this client's own";
            return Err(Error::Config(problem.to_owned()));
        }
        let (sender, commands) = mpsc::channel(WAITING_COMMANDS);
        let start = Start {
            app,
            config,
            secret_key: options.secret_key.clone(),
            preshared_key: options.preshared_key.clone().unwrap_or(PresharedKey::NONE),
            invitation: invited.map(|invited| invited.token),
            commands,
            own_commands: sender.clone(),
        };
        Ok(Self {
            commands: sender,
            stage: Mutex::new(Stage::Ready(Box::new(start))),
            thread: Arc::default(),
        })
    }

    /// Starts the thread. Events come from now on.
    ///
    /// # Errors
    /// It was started before, has ended, or the system has no thread to give.
    pub fn start(&self) -> Result<(), Error> {
        if self.is_own_thread() {
            return Err(Error::StartedBefore);
        }
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Ready(start) => start,
            Stage::Running(thread) => {
                *stage = Stage::Running(thread);
                return Err(Error::StartedBefore);
            }
            Stage::Over => return Err(Error::Stopped),
        };
        let own = Arc::clone(&self.thread);
        let thread = thread::Builder::new().name("ropewalk".to_owned()).spawn(move || {
            // Before anything is told; the caller may not have come so far.
            let _ = own.set(thread::current().id());
            run(*start);
        });
        let thread = thread.map_err(|error| Error::System(format!("no thread: {error}")))?;
        let _ = self.thread.set(thread.thread().id());
        *stage = Stage::Running(thread);
        Ok(())
    }

    /// Hands a TUN over, in place of the one before, which is closed; `None`: there is none.
    ///
    /// # Errors
    /// The descriptor is no TUN, or the tunnel takes no calls; the descriptor is given back then.
    pub fn set_tun(&self, tun: Option<OwnedFd>) -> Result<(), (Error, Option<OwnedFd>)> {
        let checked = tun.as_ref().map(|tun| check(tun.as_fd())).transpose();
        if let Err(error) = checked {
            return Err((error.into(), tun));
        }
        self.send(Command::Tun(tun)).map_err(|(error, command)| match command {
            Command::Tun(tun) => (error, tun),
            _ => (error, None),
        })
    }

    /// A network is there, or has other addresses or terms than before.
    ///
    /// # Errors
    /// The tunnel takes no calls.
    pub fn set_network(&self, network: Network) -> Result<(), Error> {
        self.say(Command::SetNetwork(Box::new(network)))
    }

    /// A network is not there any more. One that is not known is none.
    ///
    /// # Errors
    /// The tunnel takes no calls.
    pub fn remove_network(&self, id: u64) -> Result<(), Error> {
        self.say(Command::RemoveNetwork(id))
    }

    /// Where a name of the config leads.
    ///
    /// # Errors
    /// There are too many, or the tunnel takes no calls.
    pub fn set_addresses(&self, name: &str, addresses: Vec<IpAddr>) -> Result<(), Error> {
        if name.len() > MAX_NAME || addresses.len() > MAX_ADDRESSES {
            return Err(Error::Argument(format!(
                "a name has at most {MAX_NAME} bytes and {MAX_ADDRESSES} addresses"
            )));
        }
        self.say(Command::Addresses(name.to_owned(), addresses))
    }

    /// Stands still until [`resume`](Self::resume): nothing is read, sent or waited for.
    ///
    /// # Errors
    /// The tunnel takes no calls.
    pub fn pause(&self) -> Result<(), Error> {
        self.say(Command::Pause)
    }

    /// Goes on; all links are asked at once.
    ///
    /// # Errors
    /// The tunnel takes no calls.
    pub fn resume(&self) -> Result<(), Error> {
        self.say(Command::Resume)
    }

    /// The status document, as JSON.
    ///
    /// # Errors
    /// The tunnel takes no calls, or does not answer; or this is its own thread.
    pub fn status(&self) -> Result<String, Error> {
        if self.is_own_thread() {
            return Err(Error::WrongThread);
        }
        let (sender, answer) = reply::sync_channel(1);
        self.say(Command::Status(sender))?;
        let report = answer.recv_timeout(ANSWER_TIME).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::NoAnswer,
            // It ended meanwhile.
            RecvTimeoutError::Disconnected => Error::Stopped,
        })?;
        serde_json::to_string(&*report).map_err(|error| Error::Internal(error.to_string()))
    }

    /// Ends the tunnel and waits for the end of its thread. A tunnel that has ended stays so.
    ///
    /// # Errors
    /// This is the tunnel's own thread.
    pub fn stop(&self) -> Result<(), Error> {
        if self.is_own_thread() {
            return Err(Error::WrongThread);
        }
        // One that was not started has room, and one that runs makes some.
        while let Err(TrySendError::Full(_)) = self.commands.try_send(Command::Stop) {
            thread::sleep(FULL_PAUSE);
        }
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Running(thread) = std::mem::replace(&mut *stage, Stage::Over) {
            // It catches its own panics.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Whether this is the thread of the loop: a callback makes the call.
    #[must_use]
    pub fn is_own_thread(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    fn say(&self, command: Command) -> Result<(), Error> {
        self.send(command).map_err(|(error, _)| error)
    }

    /// Puts a command into the queue, or gives it back.
    fn send(&self, command: Command) -> Result<(), (Error, Command)> {
        if self.commands.is_closed() {
            return Err((Error::Stopped, command));
        }
        if self.thread.get().is_none() {
            return Err((Error::NotStarted, command));
        }
        self.commands.try_send(command).map_err(|refused| match refused {
            TrySendError::Full(command) => (Error::Full, command),
            TrySendError::Closed(command) => (Error::Stopped, command),
        })
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if self.stop().is_ok() {
            return;
        }
        // In a callback nobody can wait for the thread, which is the one that would make room: it ends after the callback.
        if let Err(TrySendError::Full(stop)) = self.commands.try_send(Command::Stop) {
            let commands = self.commands.clone();
            thread::spawn(move || commands.blocking_send(stop));
        }
    }
}

/// The thread: the loop from start to end, whatever ends it.
fn run(start: Start) {
    let app = Arc::clone(&start.app);
    let log = LogEvents { app: Arc::clone(&app), most: start.config.log.filter() };
    let ended =
        catch_unwind(AssertUnwindSafe(|| tracing::subscriber::with_default(log, || serve(start))));
    let reason = match ended {
        Ok(Ok(())) => None,
        Ok(Err(reason)) => Some(reason),
        Err(panic) => Some(format!("a fault of the library: {}", words(&*panic))),
    };
    // A panic of the app's own code is not to end the process here either.
    drop(catch_unwind(AssertUnwindSafe(|| Event::Stopped { reason }.tell(&*app))));
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

fn serve(start: Start) -> Result<(), String> {
    let Start { app, config, secret_key, preshared_key, invitation, .. } = start;
    let Start { commands, own_commands, .. } = start;
    let in_words = |error: &dyn std::fmt::Display| error.to_string();
    let runtime = service::runtime().map_err(|error| format!("{error:#}"))?;
    let seed = || service::seed().map_err(|error| format!("{error:#}"));
    let (seed, pauses) = (seed()?, seed()?);
    // For pauses eight bytes are enough; how many a small generator takes is another number on each processor.
    let pauses = pauses.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    runtime.block_on(async {
        let clock = Clock::start();
        let sockets = Sockets::with_offload(clock, offload::udp(&config.tunnel.offload))
            .map_err(|error| in_words(&error))?;
        let core = ClientConfig {
            tunnel: TunnelConfig::new(&config.tunnel, Direction::Up),
            secret: StaticSecret::new(&secret_key),
            proxy: config.proxies[0].public_key,
            psk: preshared_key,
            invitation,
            ciphers: core::ciphers(config.tunnel.cipher, cpu::has_aes()),
            wall_clock: core::wall_clock(clock.sample()),
        };
        let rng = SmallRng::seed_from_u64(pauses);
        let setup = Setup { app, config, core, commands: own_commands, clock, seed, rng };
        let phone = Phone::new(setup);
        let mut driver = Driver::new(phone, InheritedTun::new(), sockets, commands, clock)
            .map_err(|error| in_words(&error))?;
        driver.run().await.map_err(|error| in_words(&error))
    })
}
