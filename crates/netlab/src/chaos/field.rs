//! Where it happens: a network with three links behind NAT, both daemons with all that belongs to them, and the upheavals as
//! they are done to it.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::daemon::Daemon;
use super::disk::Disk;
use super::upheaval::{Kind, Upheaval};
use crate::address::{
    PROXY_GATEWAY_V4, PROXY_V4, SERVER_V4, UPLINK, client_interface, client_v4, client_v6,
    gateway_v4, gateway_v6,
};
use crate::deployment::{CLIENT_TUN, PROXY_PORT, PROXY_TUN};
use crate::dns::NameServer;
use crate::error::LabError;
use crate::loss::{GilbertElliott, Loss};
use crate::namespace::Namespace;
use crate::prove::snapshot::Snapshot;
use crate::stage::Stage;
use crate::tool;
use crate::topology::TopologyConfig;

/// What the proxy is called.
const NAME: &str = "proxy.chaos.test";
/// The proxy's other address; it has one at a time.
const MOVED_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 3);
/// The host part of a link's other address.
const OTHER_HOST: u8 = 7;
/// What an interface is called meanwhile.
const RENAMED: &str = "renamed0";
/// Interfaces of a storm, every other one with an address.
const STORM: u32 = 200;
/// Losses of a burst, and how many follow each other.
const LOST: (f64, f64) = (0.4, 8.0);
/// An hour, and a year, in seconds.
const JUMPS: [i64; 4] = [3_600, 31_536_000, 100, 86_400];

/// Seconds in which a proxy answers, if it does at all.
const ASK_FOR: &str = "1";

/// Path MTUs are searched for again after an upheaval, queues of a TUN come and go with their users, and a TAP says of its
/// state that it is unknown until it was down once.
const UNSTEADY: [&str; 4] = ["mtu", "numqueues", "numdisabled", "operstate"];

/// Gives the program a name server of its own: files for /etc/resolv.conf and /etc/nsswitch.conf, then the program. (Another
/// source of names than DNS would ask elsewhere.)
const WITH_NAME_SERVER: &str = "mount --make-rprivate /; mount --bind \"$1\" /etc/resolv.conf
    if test -e /etc/nsswitch.conf; then mount --bind \"$2\" /etc/nsswitch.conf; fi
    shift 2; exec \"$@\"";

/// Client and proxy, in this order.
const ENDS: [usize; 2] = [0, 1];

/// The field.
pub(super) struct Field {
    daemons: [Daemon; 2],
    names: NameServer,
    disks: [Disk; 2],
    moved: bool,
    wans: u8,
    stage: Stage,
    program: String,
}

impl Field {
    /// Builds it; nothing is started.
    pub(super) fn build(program: &Path, config: &TopologyConfig) -> Result<Self, LabError> {
        let mut stage = Stage::build(program, config)?;
        let folder = stage.deployment().folder().to_owned();
        let socket = stage.topology().server().run(|| UdpSocket::bind((SERVER_V4, 53)))?;
        let socket = socket.map_err(LabError::io("the name server's socket"))?;
        let names = NameServer::serve(socket, NAME, vec![PROXY_V4.into()])?;
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(LabError::io("writing a file"))?;
            Ok::<_, LabError>(path.display().to_string())
        };
        let servers = file("resolv.conf", format!("nameserver {SERVER_V4}\n"))?;
        let sources = file("nsswitch.conf", "hosts: files dns\n".to_owned())?;
        let through = ["unshare", "--mount", "sh", "-ec", WITH_NAME_SERVER, "sh"];
        let through = through.iter().map(|word| (*word).to_owned()).chain([servers, sources]);

        let disks =
            [Disk::mount(folder.join("client-disk"))?, Disk::mount(folder.join("proxy-disk"))?];
        let [client_disk, proxy_disk] =
            [0, 1].map(|end: usize| disks[end].path().display().to_string());
        let mut client = Daemon::new(
            "client",
            "client0",
            stage.deployment().client_config(0).clone(),
            through.collect(),
        );
        let config = client.config();
        config.insert("state_dir".into(), client_disk.clone().into());
        config.insert("counters_file".into(), format!("{client_disk}/counters.json").into());
        if let Some(proxy) = config["proxy"].as_table_mut() {
            proxy.insert("address".into(), format!("{NAME}:{PROXY_PORT}").into());
        }
        // Something to be written.
        if let Some(link) = config["link"].as_array_mut().and_then(|links| links[0].as_table_mut())
        {
            link.insert("allowance".into(), "900 GB".into());
        }
        let mut proxy =
            Daemon::new("proxy", "proxy", stage.deployment().proxy_config().clone(), Vec::new());
        proxy.config().insert("state_dir".into(), proxy_disk.into());
        // An address that replaces another must survive the removal of the first.
        stage.topology().proxy().sysctl(&[("net.ipv4.conf.all.promote_secondaries", "1")])?;
        stage.topology().client().sysctl(&[("net.ipv4.conf.all.promote_secondaries", "1")])?;
        let wans = u8::try_from(stage.topology().routers().len()).unwrap_or(u8::MAX);
        let program = program.display().to_string();
        Ok(Self { daemons: [client, proxy], names, disks, moved: false, wans, stage, program })
    }

    pub(super) const fn wans(&self) -> u8 {
        self.wans
    }

    pub(super) fn client(&self) -> &Namespace {
        self.stage.topology().client()
    }

    pub(super) fn server(&self) -> &Namespace {
        self.stage.topology().server()
    }

    fn proxy(&self) -> &Namespace {
        self.stage.topology().proxy()
    }

    pub(super) fn daemons(&mut self) -> &mut [Daemon; 2] {
        &mut self.daemons
    }

    /// Starts one of them.
    fn start(&mut self, end: usize, before: &[&str]) -> Result<(), LabError> {
        let (deployment, topology) = self.stage.split();
        let namespace = [topology.client(), topology.proxy()][end];
        self.daemons[end].start(deployment, namespace, before)
    }

    /// Starts both.
    pub(super) fn start_both(&mut self) -> Result<(), LabError> {
        ENDS.iter().rev().try_for_each(|end| self.start(*end, &[]))
    }

    /// Starts again what ended by itself, and says what did.
    pub(super) fn supervise(&mut self) -> Result<Vec<String>, LabError> {
        let (deployment, topology) = self.stage.split();
        let namespaces = [topology.client(), topology.proxy()];
        let mut ended = Vec::new();
        for (daemon, namespace) in self.daemons.iter_mut().zip(namespaces) {
            ended.extend(daemon.supervise(deployment, namespace)?);
        }
        Ok(ended)
    }

    /// How many links the client has up.
    pub(super) fn links_up(&self) -> usize {
        let status = self.stage.client_status().unwrap_or_default();
        (0..self.wans).filter(|wan| status.is_up(&client_interface(*wan))).count()
    }

    /// What both hosts' networks are like, as far as it is the same whenever all is well.
    pub(super) fn look(&self) -> Result<[Snapshot; 2], LabError> {
        let look = |namespace| Snapshot::without(namespace, &UNSTEADY);
        let [first, second] = [PROXY_V4.to_string(), MOVED_V4.to_string()];
        let read = |snapshot: Snapshot| snapshot.reading(&second, &first);
        Ok([read(look(self.client())?), read(look(self.proxy())?)])
    }

    /// The names in the disks of state.
    pub(super) fn files(&self) -> [Vec<String>; 2] {
        [self.disks[0].names(), self.disks[1].names()]
    }

    /// Takes away what the proxy leaves on purpose.
    pub(super) fn purge(&self) -> Result<(), LabError> {
        let config = self.stage.deployment.folder().join("proxy.toml").display().to_string();
        let words = ["proxy", "--purge", "--config", &config];
        self.proxy().run(|| tool::run(&self.program, &words))?.map(drop)
    }

    /// Asks the proxy for an invitation, and takes it back where there was one. What it answers is its own affair: it may have no
    /// disk, no file descriptor, or not run.
    fn invite(&self) {
        let config = self.stage.deployment.folder().join("proxy.toml").display().to_string();
        let ask = |what: &[&str]| {
            let words = [ASK_FOR, &self.program, "peer"].into_iter().chain(what.iter().copied());
            let words: Vec<_> = words.chain(["--config", &config]).collect();
            self.proxy().run(|| tool::run("timeout", &words))
        };
        if let Ok(Ok(_)) = ask(&["add", "guest", "--address", "203.0.113.2"]) {
            // One that cannot be taken back is replaced by the next.
            drop(ask(&["remove", "guest"]));
        }
    }

    /// Does what is drawn.
    pub(super) fn begin(&mut self, upheaval: &Upheaval) -> Result<(), LabError> {
        let Upheaval { kind, wan, variant, .. } = *upheaval;
        let interface = client_interface(wan);
        match kind {
            Kind::KillClient | Kind::Clock => self.daemons[0].kill(),
            Kind::KillProxy => self.daemons[1].kill(),
            Kind::PauseClient => self.daemons[0].signal(Signal::STOP),
            Kind::PauseProxy => self.daemons[1].signal(Signal::STOP),
            Kind::FirewallClient => flush(self.client(), "ropewalk_client", variant),
            Kind::FirewallProxy => flush(self.proxy(), "ropewalk_proxy", variant),
            Kind::TunClient => delete(self.client(), CLIENT_TUN),
            Kind::TunProxy => delete(self.proxy(), PROXY_TUN),
            Kind::RoutesClient => remove_routes(self.client(), 114),
            Kind::RoutesProxy => remove_routes(self.proxy(), 115),
            Kind::Address => self.client().ip(&format!(
                "addr add {other}/24 dev {interface}\naddr del {own}/24 dev {interface}\n\
                 route replace default via {gateway} dev {interface} metric {metric}",
                other = other_v4(wan),
                own = client_v4(0, wan),
                gateway = gateway_v4(0, wan),
                metric = metric(wan),
            ))?,
            Kind::Rename => {
                self.client().ip(&format!("link set {interface} down\nlink set {interface} name {RENAMED}{wan}\nlink set {RENAMED}{wan} up"))?;
            }
            Kind::Interface => self.client().ip(&format!("link set {interface} down"))?,
            Kind::StormClient => storm(self.client(), upheaval.lasts)?,
            Kind::StormProxy => storm(self.proxy(), upheaval.lasts)?,
            Kind::DiskFull => {
                self.disks.iter_mut().try_for_each(|disk| disk.set_full(true))?;
                self.invite();
            }
            Kind::DiskReadOnly => {
                self.disks.iter_mut().try_for_each(|disk| disk.set_writable(false))?;
                self.invite();
            }
            Kind::FilesClient => {
                self.daemons[0].limit_files(true)?;
                self.client().ip(&format!("link set {interface} down"))?;
                self.restore(wan)?;
            }
            Kind::FilesProxy => {
                self.daemons[1].limit_files(true)?;
                self.invite();
            }
            Kind::Move => self.change_proxy_address()?,
            Kind::Rebind => {
                let router = self.stage.topology_mut().router_mut(wan);
                match variant % 2 {
                    0 => router.rebind()?,
                    _ => router.change_public_address()?,
                }
            }
            Kind::Loss => {
                let loss = GilbertElliott::from_mean_and_burst(LOST.0, LOST.1);
                let loss = loss.map_or(Loss::Bernoulli(LOST.0), Loss::GilbertElliott);
                self.stage.topology().change_both(0, wan, move |link| link.loss = loss)?;
            }
            Kind::Cut => {
                self.each_cut(upheaval, |field, wan| field.stage.topology().cut(0, wan))?;
            }
        }
        Ok(())
    }

    /// Takes back what lasts.
    pub(super) fn end(&mut self, upheaval: &Upheaval) -> Result<(), LabError> {
        let Upheaval { kind, wan, variant, .. } = *upheaval;
        let interface = client_interface(wan);
        match kind {
            Kind::KillClient if self.daemons[0].is_killed() => self.start(0, &[])?,
            Kind::KillProxy => self.start(1, &[])?,
            Kind::Clock if self.daemons[0].is_killed() => {
                let jump = JUMPS[variant as usize % JUMPS.len()].to_string();
                self.start(0, &["unshare", "--time", "--boottime", &jump, "--monotonic", &jump])?;
            }
            Kind::PauseClient => self.daemons[0].signal(Signal::CONT),
            Kind::PauseProxy => self.daemons[1].signal(Signal::CONT),
            Kind::Address => {
                self.client().ip(&format!(
                    "addr add {own}/24 dev {interface}\naddr del {other}/24 dev {interface}",
                    other = other_v4(wan),
                    own = client_v4(0, wan),
                ))?;
                self.restore(wan)?;
            }
            Kind::Rename => {
                self.client().ip(&format!(
                    "link set {RENAMED}{wan} down\nlink set {RENAMED}{wan} name {interface}"
                ))?;
                self.restore(wan)?;
            }
            Kind::Interface => self.restore(wan)?,
            Kind::DiskFull => {
                self.disks.iter_mut().try_for_each(|disk| disk.set_full(false))?;
            }
            Kind::DiskReadOnly => {
                self.disks.iter_mut().try_for_each(|disk| disk.set_writable(true))?;
            }
            Kind::FilesClient => self.daemons[0].limit_files(false)?,
            Kind::FilesProxy => self.daemons[1].limit_files(false)?,
            Kind::Loss => {
                self.stage.topology().change_both(0, wan, |link| link.loss = Loss::None)?;
            }
            Kind::Cut => {
                self.each_cut(upheaval, |field, wan| field.stage.topology().restore(0, wan))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Does something to the link that is cut; every third time to all.
    fn each_cut(
        &self,
        upheaval: &Upheaval,
        work: impl Fn(&Self, u8) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        match upheaval.variant % 3 {
            0 => (0..self.wans).try_for_each(|wan| work(self, wan)),
            _ => work(self, upheaval.wan),
        }
    }

    /// Brings an interface up with all that the host's network service gives it.
    fn restore(&self, wan: u8) -> Result<(), LabError> {
        let (interface, metric) = (client_interface(wan), metric(wan));
        self.client().ip(&format!(
            "addr replace {}/24 dev {interface}\nlink set {interface} up\n\
             addr replace {}/64 dev {interface} nodad\n\
             route replace default via {} dev {interface} metric {metric}\n\
             route replace default via {} dev {interface} metric {metric}",
            client_v4(0, wan),
            client_v6(0, wan),
            gateway_v4(0, wan),
            gateway_v6(0, wan),
        ))
    }

    /// Gives the proxy its other address in place of the one it has.
    fn change_proxy_address(&mut self) -> Result<(), LabError> {
        let (old, new) = if self.moved { (MOVED_V4, PROXY_V4) } else { (PROXY_V4, MOVED_V4) };
        self.proxy().ip(&format!(
            "addr add {new}/24 dev {UPLINK}\naddr del {old}/24 dev {UPLINK}\n\
             route replace default via {PROXY_GATEWAY_V4} dev {UPLINK}"
        ))?;
        self.moved = !self.moved;
        self.names.set_addresses(vec![IpAddr::V4(new)]);
        Ok(())
    }
}

/// An address of the same network.
const fn other_v4(wan: u8) -> Ipv4Addr {
    let [a, b, c, _] = client_v4(0, wan).octets();
    Ipv4Addr::new(a, b, c, OTHER_HOST)
}

/// That of the default route over a link.
const fn metric(wan: u8) -> u32 {
    100 * (wan as u32 + 1)
}

fn flush(namespace: &Namespace, table: &str, variant: u32) {
    let script = match variant % 2 {
        0 => "flush ruleset\n".to_owned(),
        _ => format!("delete table inet {table}\n"),
    };
    // A table that is not there (its daemon is down) cannot be deleted.
    let _ = namespace.nft(&script);
}

fn delete(namespace: &Namespace, tun: &str) {
    // One whose daemon is down is not there.
    let _ = namespace.ip(&format!("link del {tun}"));
}

fn remove_routes(namespace: &Namespace, protocol: u32) {
    for family in ["-4", "-6"] {
        let protocol = protocol.to_string();
        // Both fail where there is nothing to remove.
        let _ = namespace.tool("ip", &[family, "rule", "flush", "protocol", &protocol]);
        let _ =
            namespace.tool("ip", &[family, "route", "flush", "table", "all", "proto", &protocol]);
    }
}

/// Interfaces with addresses come and go, again and again.
fn storm(namespace: &Namespace, lasts: Duration) -> Result<(), LabError> {
    let (mut come, mut go) = (String::new(), String::new());
    // In pairs, which every kernel has that the laboratory runs on.
    for number in (0..STORM).step_by(2) {
        let (high, low) = (number / 250, number % 250 + 1);
        come.push_str(&format!(
            "link add storm{number} type veth peer name storm{}\naddr add 100.64.{high}.{low}/32 dev storm{number}\n\
             link set storm{number} up\n",
            number + 1
        ));
        go.push_str(&format!("link del storm{number}\n"));
    }
    let until = Instant::now() + lasts;
    loop {
        namespace.ip(&come)?;
        namespace.ip(&go)?;
        if Instant::now() >= until {
            return Ok(());
        }
    }
}
