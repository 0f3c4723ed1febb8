//! The helper: starts a `dnsmasq` for each interface that its client wants served, and ends them when the client ends.
//!
//! It is told to end by the end of the connection alone. A terminal's signals, and those of a service manager, are for the
//! client, which ends it in its turn.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ropewalk_control::folder::Folder;
use ropewalk_daemon::sandbox::{self, Needs};
use ropewalk_daemon::service;
use ropewalk_settings::Sandbox;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use tokio::io::BufReader;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use super::leases::{self, Lease};
use super::server::{self, Ended, LEASES, Server};
use super::supervise::{Step, Supervised};
use super::text::Identity;
use super::words::{self, Report, Wish};
use super::{DNSMASQ, Lan, folder};

/// Most interfaces; the config has no more.
const MAX_LANS: usize = 16;

/// Descriptors of a server; `dnsmasq` opens some hundred for questions at most.
const FILES: u64 = 1024;

/// How long the servers may take to end when the client has ended.
const END_TIME: Duration = Duration::from_secs(3);

/// How long changes of the leases are waited for after the first: a device that comes asks twice.
const SETTLE: Duration = Duration::from_millis(100);

/// How often leases are looked at where the kernel does not tell of changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Users as whom it may run: its package's own, or nobody.
const USERS: [&str; 2] = ["dnsmasq", "nobody"];

/// Serves the client at the other end of this connection until it ends. `named` is the folder of its files, by which it is found
/// again after a crash.
///
/// # Errors
/// Another folder is named, or it cannot be had; the client says what is not understood.
pub(crate) fn run(
    client: std::os::unix::net::UnixStream,
    named: &Path,
    sandbox: Sandbox,
) -> anyhow::Result<()> {
    let folder = &folder().context("cannot tell the network namespace")?;
    let shown = folder.display();
    anyhow::ensure!(named == folder, "the folder of this network namespace is {shown}");
    make_folder(folder).with_context(|| format!("cannot make the folder {shown}"))?;
    let identity = identity();
    few_files();
    sandbox::enter_files(sandbox, &needs(folder));
    client.set_nonblocking(true)?;
    service::runtime()?.block_on(async {
        let _deaf = deaf()?;
        let served = serve(UnixStream::from_std(client)?, folder, identity).await;
        // Who comes later finds nothing to tidy up.
        let _ = std::fs::remove_dir_all(folder);
        served
    })
}

/// The folder, in which nobody else makes files: they would be root's word.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    match Folder::make(folder, 0o700)?.is_others() {
        false => Ok(()),
        true => Err(std::io::Error::other("others can change what is in it")),
    }
}

/// Leaves few descriptors to the servers: where it cannot look which are open, `dnsmasq` closes all that could be, one by one.
fn few_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A service manager allows few from the beginning, and lets nobody change it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum });
}

/// Which files the helper and its servers need. None of the client's is among them.
fn needs(folder: &Path) -> Needs {
    let read =
        ["/dev/urandom", "/etc/group", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/passwd"];
    Needs {
        read: read.map(PathBuf::from).into(),
        write: vec!["/dev/null".into()],
        keep: vec![folder.to_owned()],
        programs: vec![DNSMASQ],
        ..Needs::default()
    }
}

/// From now on no signal ends this process that is meant for the client.
fn deaf() -> anyhow::Result<Vec<Signal>> {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::user_defined1(),
    ];
    kinds.into_iter().map(|kind| signal(kind).context("cannot listen to signals")).collect()
}

async fn serve(client: UnixStream, folder: &Path, identity: Identity) -> anyhow::Result<()> {
    let (from, mut to) = client.into_split();
    let (wishes, mut wished) = mpsc::channel(1);
    let reader = tokio::spawn(read(from, wishes));
    let (ends, mut ended) = mpsc::channel(MAX_LANS);
    let watch = LeaseWatch::of(folder);
    let mut house = House {
        folder: folder.to_owned(),
        identity,
        ends,
        lans: BTreeMap::new(),
        leases: Vec::new(),
        read_at: None,
        told: None,
    };
    loop {
        house.take_steps();
        if let Some(report) = house.news() {
            // A client that is gone is heard of by the other half.
            let _ = words::write(&mut to, &report).await;
        }
        let due = house.poll_timeout();
        let timer = async {
            match due {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            wish = wished.recv() => match wish {
                Some(wish) => house.want(wish),
                None => break,
            },
            Some(end) = ended.recv() => house.note_end(end),
            () = watch.changed() => house.note_leases(),
            () = timer => {}
        }
    }
    house.end(&mut ended).await;
    // Why it ended: the client did, or said what is not understood.
    reader.await?
}

/// Hands on what the client says.
async fn read(from: OwnedReadHalf, wishes: mpsc::Sender<Wish>) -> anyhow::Result<()> {
    let mut from = BufReader::new(from);
    while let Some(wish) = words::read(&mut from).await.context("the client is not understood")? {
        if wishes.send(wish).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// All interfaces.
struct House {
    folder: PathBuf,
    identity: Identity,
    ends: mpsc::Sender<Ended>,
    lans: BTreeMap<String, (Supervised, Option<Server>)>,
    leases: Vec<Lease>,
    /// When the leases are to be read.
    read_at: Option<Instant>,
    told: Option<Report>,
}

impl House {
    /// All that is to be served from now on; what is not sound is not.
    fn want(&mut self, wish: Wish) {
        let mut wanted: BTreeMap<String, Lan> = BTreeMap::new();
        for lan in wish.lans.into_iter().take(MAX_LANS) {
            if lan.is_sound() {
                wanted.insert(lan.interface.clone(), lan);
            } else {
                tracing::error!(interface = lan.interface, "this cannot be served, and is not");
            }
        }
        for (interface, (supervised, _)) in &mut self.lans {
            supervised.want(wanted.remove(interface));
        }
        for (interface, lan) in wanted {
            let mut supervised = Supervised::new(&interface);
            supervised.want(Some(lan));
            self.lans.insert(interface, (supervised, None));
        }
        self.note_leases();
    }

    /// Does what is due.
    fn take_steps(&mut self) {
        let now = Instant::now();
        for (supervised, server) in self.lans.values_mut() {
            match supervised.step(now) {
                Step::Rest => {}
                Step::End => *server = None,
                Step::Start(lan) => {
                    let ends = self.ends.clone();
                    let started = Server::start(&self.folder, &lan, &self.identity, ends);
                    let started = started.map(|started| *server = Some(started));
                    supervised.note_start(now, lan, started);
                }
            }
        }
        self.lans.retain(|_, (supervised, _)| !supervised.is_over());
        if self.read_at.is_some_and(|at| at <= now) {
            self.read_at = None;
            let read = |interface: &String| {
                let file = server::leases_file(&self.folder, interface);
                leases::read(interface, &std::fs::read_to_string(file).unwrap_or_default())
            };
            self.leases = self.lans.keys().flat_map(read).collect();
        }
    }

    fn note_end(&mut self, Ended { interface, why }: Ended) {
        if let Some((supervised, server)) = self.lans.get_mut(&interface) {
            *server = None;
            supervised.note_end(Instant::now(), why);
        }
    }

    fn note_leases(&mut self) {
        self.read_at.get_or_insert_with(|| Instant::now() + SETTLE);
    }

    /// How it is, where that was not told yet.
    fn news(&mut self) -> Option<Report> {
        let now = Instant::now();
        let lans = self.lans.values().filter_map(|(supervised, _)| supervised.report(now));
        let report = Report { lans: lans.collect(), leases: self.leases.clone() };
        if self.told.as_ref() == Some(&report) {
            return None;
        }
        self.told = Some(report.clone());
        Some(report)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let now = Instant::now();
        let lans = self.lans.values().filter_map(|(supervised, _)| supervised.poll_timeout(now));
        lans.chain(self.read_at).min()
    }

    /// Ends all, and waits for it.
    async fn end(mut self, ended: &mut mpsc::Receiver<Ended>) {
        let running = self.lans.values().filter(|(_, server)| server.is_some()).count();
        self.lans.clear();
        let all = async {
            for _ in 0..running {
                if ended.recv().await.is_none() {
                    return;
                }
            }
        };
        if timeout(END_TIME, all).await.is_err() {
            tracing::warn!("a dnsmasq has not ended in time");
        }
    }
}

/// Tells when a file of leases changes (`inotify(7)`).
enum LeaseWatch {
    Told(AsyncFd<OwnedFd>),
    /// The kernel has no more room for that.
    Looked,
}

impl LeaseWatch {
    fn of(folder: &Path) -> Self {
        let watch = || -> std::io::Result<AsyncFd<OwnedFd>> {
            let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            inotify::add_watch(&inotify, folder, WatchFlags::MODIFY)?;
            #[expect(unsafe_code, reason = "tokio's safe constructor is deprecated")]
            // SAFETY: it is open, and stays so as long as the `AsyncFd` that owns it.
            unsafe { AsyncFd::register(inotify) }.map_err(|error| error.into_parts().1)
        };
        watch().map_or(Self::Looked, Self::Told)
    }

    /// Waits for a change; it may be one that changes nothing.
    async fn changed(&self) {
        let Self::Told(inotify) = self else {
            return tokio::time::sleep(LOOK_INTERVAL).await;
        };
        loop {
            // Without the kernel's word there is nothing to wait for.
            let Ok(mut ready) = inotify.readable().await else {
                return std::future::pending().await;
            };
            if drain(inotify.get_ref()) {
                return;
            }
            ready.clear_ready();
        }
    }
}

/// Reads all events; whether one is of a file of leases.
fn drain(inotify: &OwnedFd) -> bool {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(inotify, &mut buffer);
    let mut is_of_leases = false;
    while let Ok(event) = reader.next() {
        let name = event.file_name().and_then(|name| name.to_str().ok());
        is_of_leases |= name.is_some_and(|name| name.ends_with(LEASES));
    }
    is_of_leases
}

/// As whom the servers run: root gives its rights up where there is somebody else to be.
fn identity() -> Identity {
    if !geteuid().is_root() {
        return Identity::AsStarted;
    }
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let may_change = read("/proc/self/setgroups").trim() != "deny";
    let (users, groups) = (read("/etc/passwd"), read("/etc/group"));
    let known = USERS.iter().find_map(|user| user_of(&users, &groups, user));
    match known {
        Some((user, group, id)) if may_change && is_mapped(&read("/proc/self/uid_map"), id) => {
            Identity::Become { user, group }
        }
        _ => Identity::Root,
    }
}

/// The user of this name with the name of its group, and its number; of these `passwd(5)` and `group(5)`.
fn user_of(passwd: &str, group: &str, name: &str) -> Option<(String, String, u32)> {
    let fields = |line: &'_ str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let user = passwd.lines().map(fields).find(|user| user.first().is_some_and(|it| it == name))?;
    let (id, group_id) = (user.get(2)?.parse().ok()?, user.get(3)?);
    let group = group.lines().map(fields).find(|group| group.get(2) == Some(group_id))?;
    Some((name.to_owned(), group.first()?.clone(), id))
}

/// Whether there is a user of this number here, by the `uid_map` of `user_namespaces(7)`.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (words.next(), words.next(), words.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_with_its_group() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
        let group = "root:x:0:\nnogroup:x:65534:\n";
        let nobody = user_of(passwd, group, "nobody").unwrap();
        assert_eq!(nobody, ("nobody".to_owned(), "nogroup".to_owned(), 65534));
        assert_eq!(user_of(passwd, group, "dnsmasq"), None);
        assert_eq!(user_of(passwd, "", "nobody"), None);
    }

    #[test]
    fn in_a_user_namespace_of_one_there_is_nobody_else() {
        let whole = "         0          0 4294967295\n";
        assert!(is_mapped(whole, 0) && is_mapped(whole, 65534));
        let one = "         0       1000          1\n";
        assert!(is_mapped(one, 0) && !is_mapped(one, 65534));
        assert!(!is_mapped("", 0) && !is_mapped("nonsense\n", 0));
    }

    #[test]
    fn the_clients_key_is_none_of_the_files_that_it_keeps_open() {
        let needs = needs(Path::new("/run/ropewalk/client/lan-7"));
        let all = needs.read.iter().chain(&needs.write).chain(&needs.keep);
        let keys = Path::new("/etc/ropewalk");
        for path in all {
            assert!(!path.starts_with(keys) && !keys.starts_with(path), "{}", path.display());
        }
    }

    #[tokio::test]
    async fn a_change_of_leases_is_told_and_none_of_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["lan0.leases", "lan0.conf"] {
            std::fs::write(file(name), "").unwrap();
        }
        let watch = LeaseWatch::of(folder.path());
        std::fs::write(file("lan0.conf"), "changed").unwrap();
        assert!(timeout(Duration::from_millis(100), watch.changed()).await.is_err());
        std::fs::write(file("lan0.leases"), "changed").unwrap();
        timeout(Duration::from_secs(10), watch.changed()).await.unwrap();
    }
}
