//! Three devices at a switch `lan0` of the client's machine, which has two links to the emulated Internet.

use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::SERVER_V4;
use ropewalk_netlab::dhcp::{self, Lent};
use ropewalk_netlab::dns::NameServer;
use ropewalk_netlab::download::{Curl, Download};
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::namespace::{Namespace, next_number};
use ropewalk_netlab::privilege::{lab_test_alone, lacking, require_tool};
use ropewalk_netlab::process::Process;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_settings::Bitrate;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use toml::Table;

/// Longer than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Seed of every body that is carried.
pub(crate) const SEED: u64 = 7;

/// A name of the Internet.
pub(crate) const NAME: &str = "www.lab.test";

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Of each link.
const MBIT: u64 = 15;

/// Everything that a client may change, as the system's own tools print it.
const STATE: &str =
    "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset
    ip -o addr; ip -o link | cut -d' ' -f2; tc qdisc show
    grep . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/ipv6/conf/*/accept_ra \
      /proc/sys/net/ipv4/conf/*/src_valid_mark /proc/sys/net/ipv4/conf/*/rp_filter";

/// Takes `dnsmasq` away from what is started with it, wherever it is.
pub(crate) const HIDES_DNSMASQ: &str =
    "for file in /usr/sbin/dnsmasq /sbin/dnsmasq \"$(command -v dnsmasq || true)\"; do
        if test -f \"$file\"; then mount --bind /dev/null \"$file\"; fi
    done";

/// Whether the program is there that hands out addresses; if not, the rest of the test counts as skipped.
pub(crate) fn has_dnsmasq(test: &str) -> bool {
    match require_tool(("dnsmasq", "dnsmasq-base")) {
        Ok(()) => true,
        Err(missing) => {
            lacking(test, &missing.to_string());
            false
        }
    }
}

/// A test of a household with this in its client's config, where addresses can be handed out; see [`lab_test_alone`].
pub(crate) fn household_test(test: &str, config: &str, body: impl FnOnce(Household)) {
    lab_test_alone(test, || {
        if has_dnsmasq(test) {
            body(Household::build(config));
        }
    });
}

/// A device of the household.
pub(crate) struct Device {
    pub(crate) namespace: Namespace,
    /// As it calls itself.
    pub(crate) name: &'static str,
    mac: [u8; 6],
}

impl Device {
    /// Plugged in, with no address yet.
    fn at(router: &Namespace, number: u8, name: &'static str) -> Self {
        let namespace = Namespace::create(next_number(), name).unwrap();
        namespace
            .sysctl(&[
                // What comes from a network in which it has no address is for it all the same.
                ("net.ipv4.conf.default.rp_filter", "0"),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.ping_group_range", "0 2147483647"),
                ("net.ipv6.conf.default.accept_dad", "0"),
                ("net.ipv6.conf.default.accept_ra", "1"),
                ("net.ipv6.conf.default.autoconf", "1"),
                ("net.ipv6.conf.default.use_tempaddr", "0"),
            ])
            .unwrap();
        let device = Self { namespace, name, mac: [0x52, 0x54, 0, 0, 0, number] };
        router
            .ip(&format!(
                "link add to-{name} type veth peer name eth0 netns {}\nlink set dev to-{name} master lan0\n\
                 link set dev to-{name} up",
                device.namespace.name()
            ))
            .unwrap();
        let mac = device.mac_in_words();
        device
            .namespace
            .ip(&format!("link set dev eth0 address {mac}\nlink set dev eth0 up"))
            .unwrap();
        device
    }

    pub(crate) fn mac_in_words(&self) -> String {
        let [a, b, c, d, e, f] = self.mac;
        format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }

    /// Asks for an address, and takes what it is lent.
    pub(crate) fn join(&self) -> Lent {
        let (mac, name) = (self.mac, self.name);
        let lent = self.namespace.run(|| dhcp::ask("eth0", mac, name)).unwrap().unwrap();
        let Lent { address, prefix_len, router, .. } = &lent;
        self.namespace
            .ip(&format!(
                "addr replace {address}/{prefix_len} dev eth0\nroute replace default via {router}"
            ))
            .unwrap();
        lent
    }

    /// Its address that begins so, without the length of the prefix, when it may be used.
    pub(crate) fn address_in(&self, begin: &str) -> Option<String> {
        let list = ["-6", "-o", "addr", "show", "dev", "eth0", "scope", "global"];
        let said = self.namespace.tool("ip", &list).unwrap();
        let usable = said.lines().filter(|line| !line.contains("tentative"));
        let mut words = usable.flat_map(str::split_whitespace);
        let found = words.find(|word| word.starts_with(begin))?;
        found.split('/').next().map(str::to_owned)
    }
}

/// All of it.
pub(crate) struct Household {
    pub(crate) devices: Vec<Device>,
    /// The name server that the proxy names.
    pub(crate) names: NameServer,
    folder: PathBuf,
    /// Stands for the /etc of the client's machine.
    etc: PathBuf,
    // Last: its network goes when all in it are gone.
    stage: Stage,
}

impl Household {
    /// With this in the client's config. Nothing is started.
    pub(crate) fn build(config: &str) -> Self {
        let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
        let wan = || Access::symmetric(Bitrate::from_mbps(MBIT), rtt, queue).into();
        let network = TopologyConfig::new(vec![wan(), wan()]);
        let mut stage = Stage::build(Path::new(PROGRAM), &network).unwrap();
        let config: Table = config.parse().unwrap();
        stage.deployment().client_config(0).extend(config);
        stage.deployment().proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
        let addresses = vec![[192, 0, 2, 99].into()];
        let serve =
            || NameServer::serve(UdpSocket::bind((SERVER_V4, 53)).unwrap(), NAME, addresses);
        let names = stage.topology().server().run(serve).unwrap().unwrap();
        let folder = stage.deployment().folder().to_owned();
        let etc = etc(&folder.join("etc"), "192.168.10.1");
        let router = stage.topology().client();
        router.sysctl(&[("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
        router.ip("link add lan0 type bridge\nlink set dev lan0 up").unwrap();
        let device = |(name, number)| Device::at(router, number, name);
        let devices = ["tv", "phone", "laptop"].into_iter().zip(1..).map(device).collect();
        Self { devices, names, folder, etc, stage }
    }

    pub(crate) fn router(&self) -> &Namespace {
        self.stage.topology().client()
    }

    pub(crate) fn internet(&self) -> &Namespace {
        self.stage.topology().internet()
    }

    pub(crate) fn server(&self) -> &Namespace {
        self.stage.topology().server()
    }

    pub(crate) fn start_proxy(&mut self) {
        self.stage.start_proxy().unwrap();
    }

    /// From its next start on the proxy routes this network to the client.
    pub(crate) fn route_prefix(&mut self, prefix: &str) {
        let config = self.stage.deployment().proxy_config();
        let peers = config.get_mut("peer").and_then(toml::Value::as_array_mut).unwrap();
        peers[0].as_table_mut().unwrap().insert("prefix_v6".into(), prefix.into());
    }

    /// Starts the client with an /etc of its own, after this was done in a shell that has it.
    pub(crate) fn start(&mut self, first: &str) -> Process {
        let script = script(first);
        let etc = self.etc.display().to_string();
        let through = ["unshare", "--mount", "sh", "-ec", &script, "sh", &etc];
        let (deployment, topology) = self.stage.split();
        let config = deployment.client_config(0).clone();
        let namespace = topology.client();
        deployment.start_through(&through, namespace, "client", "client0", &config).unwrap()
    }

    /// Takes away what a client has left.
    pub(crate) fn purge(&self) {
        let (script, etc) = (script(""), self.etc.display().to_string());
        let file = self.config_file();
        let words = ["--mount", "sh", "-ec", &script, "sh", &etc, PROGRAM, "client", "--purge"];
        let words = [&words[..], &["--config", &file]].concat();
        self.router().tool("unshare", &words).unwrap();
    }

    pub(crate) fn config_file(&self) -> String {
        self.folder.join("client0.toml").display().to_string()
    }

    /// Asks the client by this program; what it prints.
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let said = self.asked(words);
        assert!(said.is_ok(), "{words:?}: {said:?}");
        said.unwrap()
    }

    fn asked(&self, words: &[&str]) -> Result<String, String> {
        let socket = self.folder.join("client0.sock");
        let mut command = Command::new(PROGRAM);
        command.args(words).arg("--socket").arg(socket).env_remove("ROPEWALK_LOG");
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// What a command of the program tells as JSON; nothing while nobody answers.
    fn json(&self, words: &[&str]) -> Value {
        let said = self.asked(words).unwrap_or_default();
        serde_json::from_str(&said).unwrap_or_default()
    }

    /// What the client tells of the devices.
    pub(crate) fn told(&self) -> Value {
        self.json(&["devices", "--json"])
    }

    pub(crate) fn trouble(&self) -> String {
        self.told()["lans"][0]["trouble"].as_str().unwrap().to_owned()
    }

    pub(crate) fn warnings(&self) -> String {
        self.json(&["status", "--json"])["daemon"]["warnings"].to_string()
    }

    pub(crate) fn wait_up(&self, client: &mut Process) {
        let is_up = || {
            let status = self.json(&["status", "--json"]);
            let tunnel = &status["tunnels"][0];
            let links = tunnel["links"].as_array().into_iter().flatten();
            tunnel["state"] == "up" && links.filter(|link| link["state"] == "up").count() == 2
        };
        client.wait_until("two links up", PATIENCE, is_up).unwrap();
    }

    /// Waits until addresses are handed out, or are not, as this word says.
    pub(crate) fn wait_for_dhcp(&self, client: &mut Process, state: &str) {
        let is_so = || self.told()["lans"][0]["dhcp"] == state;
        client.wait_until(&format!("DHCP {state}"), PATIENCE, is_so).unwrap();
    }

    /// Waits until what leaves by this interface may have to wait for its turn.
    pub(crate) fn wait_for_lane(&self, client: &mut Process, interface: &str) {
        let show = ["class", "show", "dev", interface];
        let is_there = || self.router().tool("tc", &show).unwrap().contains("class htb");
        client.wait_until("a lane", PATIENCE, is_there).unwrap();
    }

    /// What this device finds under a name.
    pub(crate) fn resolve(&self, device: &Device, name: &str) -> String {
        let etc = etc(&self.folder.join(format!("etc-{}", device.name)), "192.168.77.1");
        let (script, etc) = (script(""), etc.display().to_string());
        let words = ["--mount", "sh", "-ec", &script, "sh", &etc, "getent", "ahostsv4", name];
        device.namespace.tool("unshare", &words).unwrap()
    }

    /// Where a body of this length is.
    pub(crate) fn url(&self, bytes: u64) -> String {
        self.stage.url(bytes, SEED)
    }

    pub(crate) fn url_v6(&self, bytes: u64) -> String {
        self.stage.url_v6(bytes, SEED).unwrap()
    }

    /// What the client could have changed.
    pub(crate) fn state(&self) -> String {
        self.router().tool("sh", &["-c", STATE]).unwrap()
    }

    /// The folder of the files of what runs for this client.
    pub(crate) fn folder(&self) -> PathBuf {
        let namespace = std::fs::metadata(self.router().path()).unwrap().ino();
        PathBuf::from(format!("/run/ropewalk/lan-{namespace}"))
    }

    /// What runs for this client: numbers, and words.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let folder = self.folder().display().to_string();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let words = |number: i32| {
            let words = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
            Some((number, String::from_utf8_lossy(&words).replace('\0', " ")))
        };
        let of_ours = |(_, words): &(i32, String)| words.contains(&folder);
        numbers.filter_map(words).filter(of_ours).collect()
    }

    /// The process that runs `dnsmasq`.
    pub(crate) fn helper(&self) -> Option<i32> {
        self.process("lan-servers")
    }

    pub(crate) fn dnsmasq(&self) -> Option<i32> {
        self.process("--conf-file=")
    }

    fn process(&self, word: &str) -> Option<i32> {
        let found = self.processes().into_iter().find(|(_, words)| words.contains(word));
        found.map(|(number, _)| number)
    }

    pub(crate) fn kill(&self, process: i32) {
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    }
}

/// Downloads so many bytes; they are right.
pub(crate) fn download(device: &Device, url: &str, bytes: u64) -> Download {
    let curl = Curl { interface: None, limit: Some(PATIENCE) };
    let download = curl.download(&device.namespace, url, |_| ()).unwrap();
    assert!(download.complete, "{}: {}", device.name, download.message);
    assert_eq!((download.bytes, &download.sha256), (bytes, &body_sha256(bytes, SEED)));
    download
}

/// What is told of the device of this name.
pub(crate) fn of_device<'a>(told: &'a Value, name: &str) -> &'a Value {
    let mut devices = told["devices"].as_array().into_iter().flatten();
    devices.find(|device| device["name"] == name).unwrap_or(&Value::Null)
}

/// What a shell does whose first argument stands for /etc, before it becomes the rest of them.
fn script(first: &str) -> String {
    format!("mount --make-rprivate /\nmount --bind \"$1\" /etc\n{first}\nshift\nexec \"$@\"")
}

/// A folder that stands for /etc, where names are asked at this server.
fn etc(folder: &Path, name_server: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    for file in ["passwd", "group", "hosts"] {
        let _ = std::fs::copy(Path::new("/etc").join(file), folder.join(file));
    }
    std::fs::write(folder.join("nsswitch.conf"), "hosts: files dns\n").unwrap();
    std::fs::write(folder.join("resolv.conf"), format!("nameserver {name_server}\n")).unwrap();
    folder.to_owned()
}
