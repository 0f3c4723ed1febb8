//! Ports of the proxy that lead to clients, with real daemons on a real kernel: who reaches what, and what becomes of it when
//! the config, the clients or the firewall change.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::cell::OnceCell;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, SERVER_V4, SERVER_V6};
use ropewalk_netlab::deployment::Deployment;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::tool;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Longer than anything here takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// How long an answer may take that comes at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often a service that speaks first says something.
const TICK: Duration = Duration::from_millis(100);

const HTTPS: &str =
    "[[forward]]\nprotocol = \"tcp\"\nport = 8443\nto = \"client0\"\nto_port = 443\n";
const GAME: &str = "[[forward]]\nprotocol = \"udp\"\nport = \"5000-5010\"\nto = \"client0\"\n";
const CLOSED: &str = "[[forward]]\nprotocol = \"tcp\"\nport = 2222\nto = \"client0\"\n\
    to_port = 443\nfrom = [\"198.51.100.0/24\", \"2001:db8:51::/48\"]\n";
const STAYS: &str = "[[forward]]\nprotocol = \"both\"\nport = 7001\nto = \"client0\"\n";
const GOES: &str = "[[forward]]\nprotocol = \"tcp\"\nport = 7000\nto = \"client0\"\n";
const LATE: &str = "[[forward]]\nprotocol = \"tcp\"\nport = 9443\nto = \"late\"\nto_port = 443\n";

#[test]
fn a_stranger_reaches_what_is_forwarded_and_no_more_and_services_see_who_comes() {
    let name = "a_stranger_reaches_what_is_forwarded_and_no_more_and_services_see_who_comes";
    lab_test(name, || {
        let mut world = World::start(&[HTTPS, GAME, CLOSED]);
        let inner = world.start_client();
        let (client, stranger) = (world.topology.client(), world.topology.server());
        for address in inner {
            for port in [443, 8080, 5003] {
                tell(client, SocketAddr::new(address, port));
            }
        }
        for (proxy, own) in ways() {
            let at = |port| SocketAddr::new(proxy, port);
            world.wait_for("it leads there", |_| {
                connects(stranger, at(8443)) == Ok(own.to_string())
            });
            assert_eq!(asks(stranger, None, at(5003)), Some(own.to_string()));
            // Who may not come, and what is not forwarded.
            for port in [2222, 8080, 443] {
                let refused = connects(stranger, at(port));
                assert_eq!(refused, Err(ErrorKind::ConnectionRefused), "{port}");
            }
            assert_eq!(asks(stranger, None, at(8443)), None, "TCP alone is forwarded there");
        }
        // The client itself, which comes out of the tunnel like any other.
        let game = SocketAddr::new(PROXY_V4.into(), 5003);
        assert_eq!(asks(client, Some(inner[0]), game).as_deref(), Some("10.77.0.1"));

        world.wait_for("what was carried is counted", |world| {
            let traffic = world.forward("8443")["traffic"].clone();
            let counted = |key: &str| traffic[key].as_u64() > Some(0);
            counted("connections") && counted("down_bytes") && counted("up_bytes")
        });
        assert_eq!(world.forward("2222")["traffic"]["connections"], 0);
        let shown = world.run(&["forward"]);
        assert!(shown.contains("TCP 8443 to client0 port 443: active"), "{shown}");
        assert!(shown.contains("only from  198.51.100.0/24"), "{shown}");
        let status = world.run(&["status"]);
        assert!(status.contains("3 active (`ropewalk forward` shows them)"), "{status}");

        world.deployment.stop_proxy().unwrap();
        let rules = world.rules();
        assert!(!rules.contains("dnat") && !rules.contains("forwarded_traffic"), "{rules}");
    });
}

#[test]
fn a_reload_adds_and_ends_forwards_and_what_stays_outlives_restart_and_flush() {
    let name = "a_reload_adds_and_ends_forwards_and_what_stays_outlives_restart_and_flush";
    lab_test(name, || {
        let mut world = World::start(&[STAYS, GOES]);
        let inner = world.start_client();
        let (client, proxy) = (world.topology.client(), PROXY_V4.into());
        let at = |port| SocketAddr::new(proxy, port);
        echo(client, SocketAddr::new(inner[0], 7001));
        let told = tick(client, SocketAddr::new(inner[0], 7000));
        tell(client, SocketAddr::new(inner[0], 443));
        let open = |world: &World, port| {
            let connect = || TcpStream::connect_timeout(&at(port), PATIENCE).ok();
            let stream = OnceCell::new();
            world.wait_for("it leads there", |world| {
                let connected = world.topology.server().run(connect).unwrap();
                connected.is_some_and(|connected| stream.set(connected).is_ok())
            });
            stream.into_inner().unwrap()
        };
        let (mut stays, mut goes) = (open(&world, 7001), open(&world, 7000));
        assert!(talks(&mut stays) && hears(&mut goes));

        let said = world.reload(&[STAYS, GOES, HTTPS]);
        assert!(said.contains("forward.TCP 8443"), "{said}");
        let reaches = |world: &World| connects(world.topology.server(), at(8443)).is_ok();
        world.wait_for("the new port leads to the client", reaches);
        assert!(talks(&mut stays) && hears(&mut goes), "and the others as before");

        let before = world.proxy_id();
        world.reload(&[STAYS, HTTPS]);
        // Both ends of the connection learn it: the client's would otherwise go on sending.
        let why = told.recv_timeout(SOON).expect("the service is told");
        assert!(why.contains("reset") || why.contains("pipe"), "{why}");
        assert!(is_over(&mut goes));
        let refused = connects(world.topology.server(), at(7000));
        assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
        assert!(talks(&mut stays), "what stays is not touched");
        assert_eq!(world.proxy_id(), before);

        // Nobody else has a way in any more.
        let narrow = format!("{HTTPS}from = \"198.51.100.0/24\"\n");
        world.reload(&[STAYS, &narrow]);
        world.wait_for("the source is refused", |world| !reaches(world));
        world.reload(&[STAYS, HTTPS]);
        world.wait_for("the source is let in again", reaches);

        world.deployment.stop_proxy().unwrap();
        world.start_proxy();
        world.deployment.wait_up(0, 1).unwrap();
        assert!(talks(&mut stays), "an open connection goes on after a restart");
        world.wait_for("the port leads to the client again", reaches);

        world.topology.proxy().nft("flush ruleset").unwrap();
        world.wait_for("the rules are put back", reaches);
        assert_eq!(world.state("8443"), "active");
    });
}

#[test]
fn a_forward_waits_for_a_client_that_joins_later_and_ends_with_it() {
    lab_test("a_forward_waits_for_a_client_that_joins_later_and_ends_with_it", || {
        let mut world = World::start(&[HTTPS, LATE]);
        let inner = world.start_client();
        for address in inner {
            tell(world.topology.client(), SocketAddr::new(address, 443));
        }
        let waiting = world.forward("9443");
        assert_eq!(waiting["state"], "waiting");
        assert!(waiting["reason"].as_str().unwrap().contains("no client is called late"));
        let late_port = SocketAddr::new(PROXY_V4.into(), 9443);
        let stranger = |world: &World| connects(world.topology.server(), late_port);
        assert_eq!(stranger(&world), Err(ErrorKind::ConnectionRefused));

        // It joins by an invitation, as a person would have it.
        let (socket, config) = (world.socket(), world.file("late.toml").display().to_string());
        let address = format!("{PROXY_V4}:51900");
        let invite = ["peer", "--socket", &socket, "add", "late", "--address", &address];
        let line = tool::run(PROGRAM, &invite).unwrap();
        assert!(world.forward("9443")["reason"].as_str().unwrap().contains("is invited"));
        let join = ["join", line.trim(), "--config", &config, "--link", "wan0"];
        tool::run(PROGRAM, &join).unwrap();
        let mut joined: Table = std::fs::read_to_string(&config).unwrap().parse().unwrap();
        let control = format!("[control]\nsocket = \"{}\"", world.file("late.sock").display());
        joined.extend(parsed(&control));
        let late = &world.topology.clients()[1];
        let mut process =
            world.deployment.start_through(&[], late, "client", "late", &joined).unwrap();
        let is_active = || world.state("9443") == "active";
        process.wait_until("the forward is active", SOON, is_active).unwrap();

        let addresses = world.forward("9443")["inner"].clone();
        for address in addresses.as_array().unwrap() {
            let address: IpAddr = address.as_str().unwrap().parse().unwrap();
            process.wait_until("its address", SOON, || has(late, address)).unwrap();
            tell(late, SocketAddr::new(address, 443));
        }
        world.wait_for("it leads there", |world| stranger(world) == Ok(SERVER_V4.to_string()));
        // Clients are kept apart, and reach each other's open ports as everybody does.
        for (proxy, _) in ways() {
            let seen = connects(late, SocketAddr::new(proxy, 8443)).unwrap();
            assert!(seen == "10.77.0.1" || seen.ends_with("::1"), "{seen}");
        }
        assert!(connects(late, SocketAddr::new(inner[0], 443)).is_err());

        tool::run(PROGRAM, &["peer", "--socket", &socket, "remove", "late"]).unwrap();
        world.wait_for("it waits again", |world| {
            world.state("9443") == "waiting" && stranger(world).is_err()
        });
        assert!(connects(world.topology.server(), SocketAddr::new(PROXY_V4.into(), 8443)).is_ok());
    });
}

#[test]
fn a_port_at_which_a_program_of_the_proxy_listens_is_told_of() {
    lab_test("a_port_at_which_a_program_of_the_proxy_listens_is_told_of", || {
        let mut world = World::new(&[HTTPS]);
        let at = SocketAddr::from(([0; 4], 8443));
        let listens = world.topology.proxy().run(|| TcpListener::bind(at).unwrap()).unwrap();
        world.start_proxy();
        let inner = world.start_client();
        tell(world.topology.client(), SocketAddr::new(inner[0], 443));
        let port = SocketAddr::new(PROXY_V4.into(), 8443);
        world.wait_for("it leads there", |world| {
            connects(world.topology.server(), port) == Ok(SERVER_V4.to_string())
        });
        let note = world.forward("8443")["notes"][0].as_str().unwrap_or_default().to_owned();
        assert!(note.contains("listens at TCP 8443"), "{note}");
        let file = world.file("proxy.toml").display().to_string();
        let check = || world.topology.proxy().tool(PROGRAM, &["check-config", &file]).unwrap();
        let said = check();
        assert!(said.contains("forward     TCP 8443 to client0 port 443"), "{said}");
        let own = format!("(process {}) of this host listens at TCP 8443", std::process::id());
        assert!(said.contains("warning") && said.contains(&own), "{said}");
        drop(listens);
        assert!(!check().contains("warning"), "{}", check());
    });
}

/// Both families: the proxy's address, and that of the stranger who comes.
fn ways() -> [(IpAddr, IpAddr); 2] {
    [(PROXY_V4.into(), SERVER_V4.into()), (PROXY_V6.into(), SERVER_V6.into())]
}

fn parsed(text: &str) -> Table {
    text.parse().unwrap()
}

/// A proxy, a client whose own routes lead into the tunnel nothing but what names it, and a machine that may become one.
struct World {
    // Daemons end before their network does.
    deployment: Deployment,
    topology: Topology,
}

impl World {
    /// With these forwards; nothing runs yet.
    fn new(forwards: &[&str]) -> Self {
        let network = TopologyConfig::new(vec![WanConfig::default()]);
        let topology = Topology::build(&TopologyConfig { clients: 2, ..network }).unwrap();
        let mut deployment = Deployment::prepare(&topology, Path::new(PROGRAM)).unwrap();
        deployment.client_config(0).extend(parsed("[tun]\nroutes = []"));
        let mut world = Self { deployment, topology };
        world.set_forwards(forwards);
        world
    }

    /// The same with the proxy running.
    fn start(forwards: &[&str]) -> Self {
        let mut world = Self::new(forwards);
        world.start_proxy();
        world
    }

    fn start_proxy(&mut self) {
        self.deployment.start_proxy(&self.topology).unwrap();
    }

    /// Starts the first client; its inner addresses, IPv4 first.
    fn start_client(&mut self) -> [IpAddr; 2] {
        self.deployment.start_client(&self.topology, 0).unwrap();
        let status = self.deployment.wait_up(0, 1).unwrap();
        let inner = ["inner_v4", "inner_v6"]
            .map(|key| status["tunnels"][0][key].as_str().unwrap().parse().unwrap());
        for address in inner {
            self.wait_for("the inner address", |world| has(world.topology.client(), address));
        }
        inner
    }

    fn set_forwards(&mut self, forwards: &[&str]) {
        let config = self.deployment.proxy_config();
        config.remove("forward");
        config.extend(parsed(&forwards.concat()));
    }

    /// Writes these forwards into the proxy's config and has it read that again; what is said of it.
    fn reload(&mut self, forwards: &[&str]) -> String {
        self.set_forwards(forwards);
        let text = self.deployment.proxy_config().to_string();
        std::fs::write(self.file("proxy.toml"), text).unwrap();
        self.run(&["reload"])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.deployment.folder().join(name)
    }

    fn socket(&self) -> String {
        self.file("proxy.sock").display().to_string()
    }

    /// What a command says that asks the proxy.
    fn run(&self, words: &[&str]) -> String {
        let socket = self.socket();
        let words: Vec<&str> = words.iter().copied().chain(["--socket", &socket]).collect();
        tool::run(PROGRAM, &words).unwrap()
    }

    /// What is shown of the forward of this port.
    fn forward(&self, port: &str) -> Value {
        let report: Value = serde_json::from_str(&self.run(&["forward", "--json"])).unwrap();
        let all = report["forwards"].as_array().unwrap();
        all.iter().find(|one| one["port"] == port).cloned().unwrap_or_default()
    }

    fn state(&self, port: &str) -> String {
        self.forward(port)["state"].as_str().unwrap_or_default().to_owned()
    }

    fn proxy_id(&mut self) -> u32 {
        self.deployment.proxy().unwrap().id()
    }

    fn rules(&self) -> String {
        self.topology.proxy().tool("nft", &["list", "ruleset"]).unwrap()
    }

    /// A status may be ahead of the firewalls of both ends: what leads to a client does so a moment later.
    fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let said = || format!("{}\n{}", self.run(&["forward"]), self.rules());
            assert!(begun.elapsed() < SOON, "waited in vain: {what}\n{}", said());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Whether a machine has this address.
fn has(namespace: &Namespace, address: IpAddr) -> bool {
    namespace.run(|| UdpSocket::bind((address, 0)).is_ok()).unwrap()
}

/// Tells everybody who connects to this place, or sends a datagram there, as whom he came.
fn tell(namespace: &Namespace, at: SocketAddr) {
    let bind = || (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
    let (listener, socket) = namespace.run(bind).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let from = stream.peer_addr().map(|from| from.ip().to_string());
            let _ = stream.write_all(from.unwrap_or_default().as_bytes());
        }
    });
    thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(from.ip().to_string().as_bytes(), from);
        }
    });
}

/// Says again what it hears.
fn echo(namespace: &Namespace, at: SocketAddr) {
    let listener = namespace.run(|| TcpListener::bind(at).unwrap()).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// Says something to everybody who connects, without end; tells why somebody got no more.
fn tick(namespace: &Namespace, at: SocketAddr) -> mpsc::Receiver<String> {
    let listener = namespace.run(|| TcpListener::bind(at).unwrap()).unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let tell = tell.clone();
            thread::spawn(move || {
                let error = loop {
                    if let Err(error) = stream.write_all(b".") {
                        break error;
                    }
                    thread::sleep(TICK);
                };
                let _ = tell.send(error.kind().to_string());
            });
        }
    });
    told
}

/// As whom one comes who connects, or what became of it.
fn connects(from: &Namespace, to: SocketAddr) -> Result<String, ErrorKind> {
    let connect = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    from.run(connect).unwrap().map_err(|error| error.kind())
}

/// The same by a datagram, from an address or any; a few are sent, as one may be lost.
fn asks(from: &Namespace, source: Option<IpAddr>, to: SocketAddr) -> Option<String> {
    let any: IpAddr = match to.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let ask = || {
        let socket = UdpSocket::bind((source.unwrap_or(any), 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut buffer = [0; 64];
        (0..5).find_map(|_| {
            let _ = socket.send_to(b"who am I", to);
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        })
    };
    from.run(ask).unwrap()
}

/// Whether what is said comes back.
fn talks(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

/// Whether what is sent from now on arrives.
fn hears(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    // What is there already says nothing of now.
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    while stream.read(&mut buffer).is_ok_and(|length| length > 1) {}
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (0..3).all(|_| stream.read(&mut buffer).is_ok_and(|length| length > 0))
}

/// Whether this end of a connection is told that it is over when it says something.
fn is_over(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(TICK)).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        if stream.write_all(b"x").is_err() {
            return true;
        }
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return true,
            _ => {}
        }
    }
    false
}
