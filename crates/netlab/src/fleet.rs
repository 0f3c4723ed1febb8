//! A fleet on the emulated Internet: an etcd of three members with TLS, proxies that share it, and clients that joined
//! them, all of them processes of the real programs.
//!
//! ```text
//!  client 0 .. n               internet                   proxy p-0 .. p-n, etcd-0 .. etcd-2
//! ┌──────────────────────┐     ┌────────────┐             ┌─────────────────────┐
//! │ eth0 198.19.x.y      ├─────┤ 198.19.x.z ├─────────────┤ eth0 198.19.x.y     │
//! │ eth1 198.19.x.y      ├─────┤ 198.19.x.z │   server    └─────────────────────┘
//! └──────────────────────┘     │            ├─── 192.0.2.2
//!                              └────────────┘
//! ```
//!
//! Every uplink is a network of its own with four addresses. They have no limits: what is measured here is who has a
//! session where, and not how fast. Those of the proxies may be far away.

mod clients;
pub mod crowd;
mod members;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use toml::Table;

use crate::address::SERVER_V4;
use crate::deployment::PROXY_PORT;
use crate::emulator::Emulator;
use crate::error::LabError;
use crate::http::HttpServer;
use crate::namespace::Namespace;
use crate::netem::Conditions;
use crate::privilege::require_tool;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::stage::CONGESTION;
use crate::tool;
use crate::topology::{Ipv6, Topology, TopologyConfig};

/// Members of the etcd: one may be lost.
pub const MEMBERS: usize = 3;

/// How long a daemon or an election may take; generous for a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Bytes that etcd's database may have: a million clients take half of it. Its own default is 2 GiB.
const QUOTA: u64 = 8 << 30;

/// Where the data of etcd's members is, in the fleet's folder.
const DATA: &str = "etcd";

/// Clients beyond which etcd's data is too much for memory, the usual pool of inner addresses is too small, and one in which they fit.
const LARGE: (usize, &str) = (60_000, "10.64.0.0/10");

/// How often something is looked at that is waited for.
const POLL: Duration = Duration::from_millis(100);

/// Of the emulator, which draws nothing here: it delays, and loses nothing.
const SEED: u64 = 1;

/// What makes a fleet, and Debian's packages.
const TOOLS: [(&str, &str); 2] = [("etcd", "etcd-server"), ("openssl", "openssl")];

/// Makes an authority and one certificate that all hosts of the fleet use. `NAMES` is put in.
const CERTIFICATES: &str = r#"
new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $new -keyout ca.key -out ca.pem -subj /CN=ca -days 2
echo 'subjectAltName=NAMES' > names
openssl req $new -keyout host.key -out host.csr -subj /CN=host
openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out host.pem
chmod 600 host.key
"#;

/// One host with one program.
#[derive(Debug)]
struct Host {
    // Before its network.
    process: Option<Process>,
    name: String,
    /// The uplinks as which its own were made.
    uplinks: Range<u16>,
    address: Ipv4Addr,
    namespace: Namespace,
}

impl Host {
    fn new(name: String, uplinks: Range<u16>, namespace: Namespace) -> Self {
        let address = Topology::uplink_v4(uplinks.start);
        Self { process: None, name, uplinks, address, namespace }
    }
}

/// All of it. Dropped, all processes are killed and their files removed.
#[derive(Debug)]
pub struct Fleet {
    // Before the networks that its devices are in.
    emulator: Option<Emulator>,
    members: Vec<Host>,
    proxies: Vec<Host>,
    clients: Vec<Host>,
    server: HttpServer,
    topology: Topology,
    program: PathBuf,
    /// Most clients that a proxy is told to have; its own default where `None`.
    max_clients: Option<usize>,
    /// The prefixes of proxies that are told one.
    prefixes: BTreeMap<usize, String>,
    /// What members of etcd are told besides.
    etcd_arguments: Vec<String>,
    /// The next uplink that nobody has.
    next_uplink: u16,
    // Last: removed when the processes have ended.
    folder: Scratch,
}

impl Fleet {
    /// Builds the hosts for so many proxies and clients; nothing runs yet. `program` is the `ropewalk` to run.
    ///
    /// # Errors
    /// When a tool is missing, or a step fails.
    pub fn build(program: &Path, proxies: usize, clients: usize) -> Result<Self, LabError> {
        Self::build_of(program, &vec![None; proxies], clients)
    }

    /// The same with one proxy for each of these round trips, which is so far away from all others.
    ///
    /// # Errors
    /// The same.
    pub fn build_far(program: &Path, trips: &[Duration], clients: usize) -> Result<Self, LabError> {
        let trips: Vec<_> = trips.iter().copied().map(Some).collect();
        Self::build_of(program, &trips, clients)
    }

    fn build_of(
        program: &Path,
        proxies: &[Option<Duration>],
        clients: usize,
    ) -> Result<Self, LabError> {
        for tool in TOOLS {
            require_tool(tool).map_err(LabError::Missing)?;
        }
        let folder = Scratch::create().map_err(LabError::io("making a temporary folder"))?;
        let config = TopologyConfig { clients: 0, ipv6: Ipv6::Off, ..TopologyConfig::new(vec![]) };
        let topology = Topology::build(&config)?;
        let listener = topology.server().run(|| TcpListener::bind((SERVER_V4, 80)))?;
        let listener = listener.map_err(LabError::io("the HTTP server's socket"))?;
        let server = HttpServer::serve(listener, CONGESTION)?;
        let mut next_uplink = 0;
        let mut take = |count: u16| {
            let first = next_uplink;
            next_uplink += count;
            first..next_uplink
        };
        let near = |name: String, uplinks: Range<u16>| -> Result<Host, LabError> {
            let namespace = topology.add_host(&name, uplinks.clone())?;
            Ok(Host::new(name, uplinks, namespace))
        };
        let members = (0..MEMBERS).map(|at| near(format!("etcd-{at}"), take(1)));
        let members: Vec<_> = members.collect::<Result<_, _>>()?;
        let mut links = Vec::new();
        let proxies = proxies.iter().enumerate().map(|(at, trip)| {
            let (name, uplinks) = (format!("p-{at}"), take(1));
            let Some(trip) = trip else { return near(name, uplinks) };
            let conditions = Conditions { delay: *trip / 2, ..Conditions::default() };
            let (host, link) = topology.add_far_host(&name, uplinks.start, &conditions)?;
            links.push(link);
            Ok(Host::new(name, uplinks, host))
        });
        let proxies: Vec<_> = proxies.collect::<Result<_, LabError>>()?;
        let clients = (0..clients).map(|at| near(format!("client{at}"), take(2)));
        let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
        let is_far = !links.is_empty();
        let emulator = is_far.then(|| Emulator::spawn(links, SEED)).transpose()?;
        for host in proxies.iter().filter(|_| is_far) {
            let made = host.uplinks.start;
            topology.address_uplink(&host.namespace, 0, (made, made))?;
        }
        let names: Vec<_> = members.iter().map(|host| format!("IP:{}", host.address)).collect();
        let script = CERTIFICATES.replace("NAMES", &names.join(","));
        let at = folder.path().display();
        tool::run("sh", &["-ec", &format!("cd {at}\n{script}")])?;
        Ok(Self {
            emulator,
            members,
            proxies,
            clients,
            server,
            topology,
            program: program.to_owned(),
            max_clients: None,
            prefixes: BTreeMap::new(),
            etcd_arguments: Vec::new(),
            next_uplink,
            folder,
        })
    }

    /// Starts etcd and all proxies, and waits until they know each other.
    ///
    /// # Errors
    /// When one ends early, or that does not happen in time.
    pub fn start(&mut self) -> Result<(), LabError> {
        self.start_with(self.proxies.len())
    }

    /// The same with so many of the proxies.
    ///
    /// # Errors
    /// The same.
    pub fn start_with(&mut self, proxies: usize) -> Result<(), LabError> {
        self.make_data_folder()?;
        for member in 0..MEMBERS {
            self.start_member(member)?;
        }
        for member in &mut self.members {
            if let Some(process) = &mut member.process {
                process.wait_for_log("ready to serve client requests", SOON)?;
            }
        }
        for proxy in 0..proxies {
            self.start_proxy(proxy)?;
        }
        self.wait("all proxies in the registry", |fleet| Ok(fleet.listed(0)? == proxies))
    }

    /// Makes the folder of etcd's data: in memory, where it fits. A member waits for the disk at every change, and where something
    /// else writes much, for so long that another one is elected.
    fn make_data_folder(&self) -> Result<(), LabError> {
        let folder = self.folder.path().join(DATA);
        std::fs::create_dir(&folder)
            .map_err(LabError::io(format!("making {}", folder.display())))?;
        if self.max_clients.is_none_or(|most| most <= LARGE.0) {
            let at = folder.display().to_string();
            tool::run("mount", &["-t", "tmpfs", "-o", "mode=700", "tmpfs", &at])?;
        }
        Ok(())
    }

    /// Starts a proxy (again) and waits until it answers.
    ///
    /// # Errors
    /// When it ends early or does not answer in time; with the end of its log.
    pub fn start_proxy(&mut self, at: usize) -> Result<(), LabError> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let host = &self.proxies[at];
        let name = host.name.clone();
        let key = file(&format!("{name}.key"));
        if !Path::new(&key).exists() {
            tool::run(&self.program.display().to_string(), &["keygen", &key])?;
        }
        let endpoints =
            self.members.iter().map(|member| format!("https://{}:2379", member.address));
        let text = |text: String| toml::Value::from(text);
        let mut registry = Table::from_iter([
            ("endpoints".to_owned(), endpoints.collect::<Vec<_>>().into()),
            ("fleet".to_owned(), text("lab".to_owned())),
            ("id".to_owned(), text(name.clone())),
            ("region".to_owned(), text(format!("region {at}"))),
            ("tls_ca_file".to_owned(), text(file("ca.pem"))),
            ("tls_certificate_file".to_owned(), text(file("host.pem"))),
            ("tls_key_file".to_owned(), text(file("host.key"))),
        ]);
        registry.extend(self.prefixes.get(&at).map(|it| ("prefix".to_owned(), text(it.clone()))));
        let control =
            Table::from_iter([("socket".to_owned(), text(file(&format!("{name}.sock"))))]);
        let mut config = Table::from_iter([
            ("private_key_file".to_owned(), text(key)),
            ("listen".to_owned(), text(format!("{}:{PROXY_PORT}", host.address))),
            ("state_dir".to_owned(), text(file(&format!("{name}.state")))),
            ("registry".to_owned(), registry.into()),
            ("control".to_owned(), control.into()),
        ]);
        if let Some(most) = self.max_clients.and_then(|most| i64::try_from(most).ok()) {
            config.insert("max_peers".to_owned(), most.into());
        }
        let (many, pool) = LARGE;
        if self.max_clients.is_some_and(|most| most > many) {
            config.insert("pool_v4".to_owned(), pool.into());
        }
        let written = self.write(&name, &config)?;
        let mut process = self.run_daemon(&self.proxies[at], "proxy", &written)?;
        process.wait_until("an answer to `status`", SOON, || self.status(&name).is_ok())?;
        self.proxies[at].process = Some(process);
        Ok(())
    }

    /// Proxies are told to have so many clients at most, from their next start on.
    pub fn allow_clients(&mut self, most: usize) {
        self.max_clients = Some(most);
    }

    /// A proxy looks for its fleet below this prefix, from its next start on.
    pub fn use_prefix(&mut self, at: usize, prefix: &str) {
        self.prefixes.insert(at, prefix.to_owned());
    }

    /// What `ropewalk status --json` says of a proxy.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn proxy_status(&self, at: usize) -> Result<Value, LabError> {
        self.status(&self.proxies[at].name)
    }

    /// How many clients have a session at a proxy, as it says itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connected_to(&self, at: usize) -> Result<usize, LabError> {
        let status = self.proxy_status(at)?;
        let tunnels = status["tunnels"].as_array().into_iter().flatten();
        Ok(tunnels.filter(|tunnel| tunnel["state"] == "up" || tunnel["state"] == "stalled").count())
    }

    /// The process of a proxy.
    pub fn proxy(&mut self, at: usize) -> Option<&mut Process> {
        self.proxies[at].process.as_mut()
    }

    /// Kills a proxy without a word.
    pub fn kill_proxy(&mut self, at: usize) {
        if let Some(process) = &mut self.proxies[at].process {
            process.kill();
        }
    }

    /// Ends a proxy, as for an upgrade: its clients are told.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop_proxy(&mut self, at: usize) -> Result<(), LabError> {
        match &mut self.proxies[at].process {
            Some(process) => process.stop(SOON).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The way to a proxy of [`build_far`](Self::build_far) has this round trip from now on.
    ///
    /// # Errors
    /// When no way of this fleet is emulated.
    pub fn set_trip(&self, at: usize, trip: Duration) -> Result<(), LabError> {
        let none = || LabError::Unsupported("no way of this fleet is emulated".to_owned());
        let emulator = self.emulator.as_ref().ok_or_else(none)?;
        emulator.update_both(at, move |conditions| conditions.delay = trip / 2)
    }

    /// Has proxy `at` do or say something: `ropewalk WORDS --config FILE` on its host.
    ///
    /// # Errors
    /// With what it said, when it refused.
    pub fn ask(&self, at: usize, words: &[&str]) -> Result<String, LabError> {
        let host = &self.proxies[at];
        let file = self.folder.path().join(format!("{}.toml", host.name)).display().to_string();
        let arguments: Vec<&str> = words.iter().copied().chain(["--config", &file]).collect();
        host.namespace.tool(&self.program.display().to_string(), &arguments)
    }

    /// What `ropewalk fleet --json` says at proxy `at`.
    ///
    /// # Errors
    /// When the registry does not answer.
    pub fn report(&self, at: usize) -> Result<Value, LabError> {
        read(self.ask(at, &["fleet", "--json"])?, "the output of `ropewalk fleet`")
    }

    /// How many proxies the registry has, as proxy `at` sees it.
    ///
    /// # Errors
    /// When the registry does not answer.
    pub fn listed(&self, at: usize) -> Result<usize, LabError> {
        Ok(self.report(at)?["proxies"].as_array().map_or(0, Vec::len))
    }

    /// How many sessions the registry has of proxy `of`, as the last proxy sees it.
    ///
    /// # Errors
    /// When the registry does not answer.
    pub fn sessions_of(&self, of: usize) -> Result<usize, LabError> {
        self.sessions_at(self.proxies.len() - 1, of)
    }

    /// The same, as proxy `at` sees it.
    ///
    /// # Errors
    /// The same.
    pub fn sessions_at(&self, at: usize, of: usize) -> Result<usize, LabError> {
        let report = self.report(at)?;
        let proxies = report["proxies"].as_array().into_iter().flatten();
        let mut found = proxies.filter(|proxy| proxy["id"] == self.proxies[of].name.as_str());
        let sessions = found.next().and_then(|proxy| proxy["sessions"].as_u64());
        Ok(sessions.and_then(|sessions| usize::try_from(sessions).ok()).unwrap_or_default())
    }

    /// The URL of a body on the server.
    #[must_use]
    pub fn url(&self, bytes: u64, seed: u64) -> String {
        self.server.url(bytes, seed)
    }

    /// Waits until something is so.
    ///
    /// # Errors
    /// When that does not happen in time, with the last error, if there was one.
    pub fn wait(
        &self,
        what: &str,
        is_so: impl FnMut(&Self) -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        self.wait_for(what, SOON, is_so)
    }

    /// The same, for so long.
    ///
    /// # Errors
    /// The same.
    pub fn wait_for(
        &self,
        what: &str,
        time: Duration,
        mut is_so: impl FnMut(&Self) -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let started = Instant::now();
        loop {
            let seen = is_so(self);
            if matches!(seen, Ok(true)) {
                return Ok(());
            }
            if started.elapsed() > time {
                let detail = seen.err().map(|error| format!(": {error}")).unwrap_or_default();
                let seconds = time.as_secs_f64();
                return Err(LabError::TooLate { what: what.to_owned(), seconds, detail });
            }
            thread::sleep(POLL);
        }
    }

    /// The folder in which a proxy keeps its state.
    fn state_of(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("{}.state", self.proxies[at].name))
    }

    fn socket(&self, name: &str) -> String {
        self.folder.path().join(format!("{name}.sock")).display().to_string()
    }

    fn status(&self, name: &str) -> Result<Value, LabError> {
        let program = self.program.display().to_string();
        let text = tool::run(&program, &["status", "--json", "--socket", &self.socket(name)])?;
        read(text, "the output of `ropewalk status`")
    }

    fn write(&self, name: &str, config: &Table) -> Result<PathBuf, LabError> {
        let file = self.folder.path().join(format!("{name}.toml"));
        let written = std::fs::write(&file, config.to_string());
        written.map_err(LabError::io(format!("writing {}", file.display())))?;
        Ok(file)
    }

    fn run_daemon(&self, host: &Host, role: &str, file: &Path) -> Result<Process, LabError> {
        let arguments = [role.as_ref(), "--config".as_ref(), file.as_os_str()];
        Process::start(&host.namespace, self.folder.path(), &host.name, &self.program, &arguments)
    }
}

fn read(text: String, what: &'static str) -> Result<Value, LabError> {
    serde_json::from_str(&text).map_err(|_| LabError::Malformed { what, text })
}
