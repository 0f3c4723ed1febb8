//! Network namespaces: made, entered, and gone without a trace.
//!
//! A namespace has a name (`rw<pid>-<number>-<role>`) under `/run/netns`, so that one can look into
//! it by hand (`ip netns exec`). Three rules keep the machine clean:
//!
//! * dropping a [`Namespace`] kills what runs in it and removes it;
//! * SIGINT and SIGTERM remove all namespaces and temporary folders of this process, then end it;
//! * the name carries the owner's process id: what a killed owner left is removed when the next
//!   process makes its first namespace ([`remove_stale`]).
//!
//! Nothing of the initial namespace is changed: interfaces are created inside the new namespaces
//! from the start.
//!
//! Two ways lead inside. [`Namespace::run`] runs a closure on a fresh thread that has entered the
//! namespace; a socket made there belongs to the namespace for ever, wherever it is used later.
//! [`Namespace::spawn`] starts a process from one resident thread per namespace: the kernel ends
//! such a process when the *thread* that started it dies, so a short-lived thread would not do.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use signal_hook::consts::signal::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::LabError;
use crate::{cores, scratch, tool};

/// Where `ip netns` keeps the names.
const NETNS_FOLDER: &str = "/run/netns";

/// The names that this process has made and not removed, for the signal handler.
static LIVE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
static CLEANING: Once = Once::new();
/// Set once a signal ends this process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Which cores the programs of a namespace may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cores {
    /// Those of the thread that makes the namespace.
    OfItsMaker,
    /// All, where [`cores::divide`] left some to others.
    All,
}

/// One network namespace, owned: removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    /// Kept open so that entering needs no path and works while the name is being removed.
    handle: File,
    starter: Option<Starter>,
}

/// The thread inside the namespace that starts processes.
#[derive(Debug)]
struct Starter {
    requests: mpsc::Sender<Request>,
    thread: JoinHandle<()>,
}

struct Request {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// A number for the names of one set of namespaces of this process, so that several networks can
/// live at the same time.
#[must_use]
pub fn next_number() -> u32 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Namespace {
    /// Makes the namespace `rw<pid>-<number>-<role>` with its loopback interface up.
    ///
    /// # Errors
    /// When the user may not make one, or it cannot be entered.
    pub fn create(number: u32, role: &str) -> Result<Self, LabError> {
        Self::create_on(Cores::OfItsMaker, number, role)
    }

    /// As [`Self::create`], with the cores that programs use which are started in it.
    ///
    /// # Errors
    /// As there.
    pub fn create_on(cores: Cores, number: u32, role: &str) -> Result<Self, LabError> {
        CLEANING.call_once(|| {
            remove_stale();
            scratch::remove_stale();
            remove_all_on_signals();
        });
        let name = format!("rw{}-{number}-{role}", std::process::id());
        live().insert(name.clone());
        let made = tool::run("ip", &["netns", "add", &name]).and_then(|_| Self::open(cores, &name));
        match made {
            Ok(namespace) => {
                namespace.ip("link set lo up")?;
                Ok(namespace)
            }
            Err(error) => {
                remove(&name);
                Err(error)
            }
        }
    }

    fn open(cores: Cores, name: &str) -> Result<Self, LabError> {
        let path = Path::new(NETNS_FOLDER).join(name);
        let handle =
            File::open(&path).map_err(LabError::io(format!("opening {}", path.display())))?;
        let inside = handle.try_clone().map_err(LabError::io("copying a namespace handle"))?;
        let (requests, inbox) = mpsc::channel::<Request>();
        let thread = thread::Builder::new()
            .name(format!("{name} starter"))
            .spawn(move || {
                if cores == Cores::All {
                    cores::use_all();
                }
                let entered = enter(&inside);
                for Request { mut command, reply } in inbox {
                    let result = match &entered {
                        Ok(()) => command.spawn(),
                        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                    };
                    // A caller that has gone away has no child to lose: it waits for this reply.
                    let _ = reply.send(result);
                }
            })
            .map_err(LabError::io("starting a thread"))?;
        Ok(Self { name: name.to_owned(), handle, starter: Some(Starter { requests, thread }) })
    }

    /// The name under `/run/netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for the namespace.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(NETNS_FOLDER).join(&self.name)
    }

    /// Runs `work` on a thread inside the namespace and waits for it. Sockets made there stay in
    /// the namespace. A panic of `work` continues in the caller.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let outcome = thread::scope(|scope| {
            scope
                .spawn(|| {
                    enter(&self.handle)
                        .map_err(LabError::io(format!("entering {}", self.name)))
                        .map(|()| work())
                })
                .join()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// What a thread needs that is to make sockets here for as long as it lives.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub fn entry(&self) -> Result<Entry, LabError> {
        let handle = self.handle.try_clone().map_err(LabError::io("copying a namespace handle"))?;
        Ok(Entry { name: self.name.clone(), handle })
    }

    /// Starts `command` inside the namespace. The kernel ends it when this process ends or the
    /// namespace is dropped, if the command asks for that (`setpriv --pdeathsig`).
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, command: Command) -> Result<Child, LabError> {
        let what = format!("starting {} in {}", command.get_program().display(), self.name);
        let gone = || io::Error::other("the namespace's thread has ended");
        let (reply, answer) = mpsc::channel();
        self.starter
            .as_ref()
            .ok_or_else(gone)
            .and_then(|s| s.requests.send(Request { command, reply }).map_err(|_| gone()))
            .and_then(|()| answer.recv().map_err(|_| gone()))
            .and_then(|started| started)
            .map_err(LabError::io(what))
    }

    /// Runs `ip` lines (one command a line, without the word `ip`) in one batch.
    ///
    /// # Errors
    /// With the first line that failed.
    pub fn ip(&self, lines: &str) -> Result<(), LabError> {
        tool::feed("ip", &["-n", &self.name, "-batch", "-"], &format!("{lines}\n")).map(|_| ())
    }

    /// Runs a tool inside and returns its standard output.
    ///
    /// # Errors
    /// As [`tool::run`].
    pub fn tool(&self, program: &str, arguments: &[&str]) -> Result<String, LabError> {
        self.run(|| tool::run(program, arguments))?
    }

    /// Applies an nftables script.
    ///
    /// # Errors
    /// With the line that `nft` refuses.
    pub fn nft(&self, script: &str) -> Result<(), LabError> {
        self.run(|| tool::feed("nft", &["-f", "-"], script))?.map(|_| ())
    }

    /// Sets kernel parameters of this namespace, such as `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// When the kernel has no such parameter or refuses the value.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<(), LabError> {
        self.run(|| {
            settings.iter().try_for_each(|(name, value)| {
                // An interface name may hold no dot here: ours have none.
                let file = format!("/proc/sys/{}", name.replace('.', "/"));
                std::fs::write(&file, value).map_err(LabError::io(format!("{name} = {value}")))
            })
        })?
    }
}

/// A way into a namespace, for a thread.
#[derive(Debug)]
pub struct Entry {
    name: String,
    handle: File,
}

impl Entry {
    /// Moves the calling thread there, for good.
    ///
    /// # Errors
    /// When it cannot be entered.
    pub fn enter(&self) -> Result<(), LabError> {
        enter(&self.handle).map_err(LabError::io(format!("entering {}", self.name)))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        leave_to_the_signal();
        remove(&self.name);
        if let Some(Starter { requests, thread }) = self.starter.take() {
            drop(requests);
            // It only waits for requests, so it ends at once; a panic there was reported already.
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into the namespace; its later sockets and children are born there.
fn enter(handle: &File) -> io::Result<()> {
    move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Removes what owners that no longer live have left; returns the names.
pub fn remove_stale() -> Vec<String> {
    let names = std::fs::read_dir(NETNS_FOLDER).into_iter().flatten().flatten();
    let stale: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            owner_of(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        })
        .collect();
    stale.iter().for_each(|name| remove(name));
    stale
}

/// The process id in a namespace's name, if the name is one of ours.
fn owner_of(name: &str) -> Option<u32> {
    name.strip_prefix("rw")?.split_once('-')?.0.parse().ok()
}

/// Ends the processes inside and removes the name; the kernel removes the interfaces with it.
fn remove(name: &str) {
    live().remove(name);
    if !Path::new(NETNS_FOLDER).join(name).exists() {
        return;
    }
    let own = std::process::id();
    let inside = tool::run("ip", &["netns", "pids", name]).unwrap_or_default();
    inside
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid| u32::try_from(*pid).is_ok_and(|pid| pid != own))
        .filter_map(Pid::from_raw)
        .for_each(|pid| {
            // One that ended meanwhile is what we want.
            let _ = kill_process(pid, Signal::KILL);
        });
    // Another process may have removed the same stale name first.
    let _ = tool::run("ip", &["netns", "delete", name]);
}

fn remove_all_on_signals() {
    // Without the handler a signal leaves namespaces that the next process removes.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            ENDING.store(true, Ordering::Release);
            let names: Vec<String> = live().iter().cloned().collect();
            names.iter().for_each(|name| remove(name));
            scratch::remove_all();
            // The shell's convention for a program ended by a signal.
            std::process::exit(128 + signal);
        }
    });
}

/// Does not return where a signal ends this process: who finds daemons and networks gone then is not to
/// report that, and not to end the process before all is removed.
pub(crate) fn leave_to_the_signal() {
    while ENDING.load(Ordering::Acquire) {
        thread::park();
    }
}

fn live() -> std::sync::MutexGuard<'static, BTreeSet<String>> {
    // The set is valid after a panic elsewhere: every change is one insertion or removal.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_an_owner() {
        for (name, owner) in [
            ("rw12-0-client", Some(12)),
            ("rw4294967295-1-x", Some(u32::MAX)),
            ("rwx-0-client", None),
            ("rw-0-client", None),
            ("rw12", None),
            ("docker-12", None),
        ] {
            assert_eq!(owner_of(name), owner, "{name}");
        }
    }
}
