//! `ropewalk bugreport` as its users run it: what is in a report, and that no secret is, wherever it was.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use ropewalk_control::api::{
    ApiError, DeviceStatus, DevicesReport, DhcpState, ErrorCode, LanStatus, Request, Response,
    RuleStatus, StatusReport,
};
use ropewalk_control::invitation::Invitation;
use ropewalk_control::server::{Access, Options, Server};
use ropewalk_netlab::namespace::{Namespace, next_number};
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::process::bound_to_parent;
use ropewalk_settings::{
    HostPort, InvitationToken, PresharedKey, PrivateKey, PublicKey, Selector, Side, Text as _,
};
use serde_json::Value;
use tempfile::TempDir;

const CLIENT: &str = include_str!("../../control/tests/status/client.json");
const PROXY: &str = include_str!("../../control/tests/status/proxy.json");

/// What is in no report, wherever it stood.
const PASSWORD: &str = "hunter2hunter2";
const NAME: &str = "annas-phone";
const DEVICE: &str = "toms-television";
const HOST: &str = "vps.secret-name.example";
const V4: &str = "198.51.100.77";
const V6: &str = "2001:db8:77::1:2";
const MAC: &str = "00:1b:21:12:34:56";
const DOMAIN: &str = "bank-of-anna.example";
const APP: &str = "chat-of-anna";
const UNIT: &str = "backup-of-anna.service";
const USER: &str = "anna-herself";
const CGROUP: &str = "system.slice/shop-of-anna.service";
/// The number of a rule, of which its entry could be guessed.
const RULE: &str = "0a1f";
const PEM: &str = "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF";

#[test]
fn no_secret_is_in_a_report_wherever_it_was() {
    lab_test("no_secret_is_in_a_report_wherever_it_was", || {
        // Where nothing can be reached, so that `doctor` finds that soon, and asks nobody.
        let namespace = Namespace::create(next_number(), "report").unwrap();
        for role in ["client", "proxy"] {
            let planted = Planted::new(role);
            for more in [&[][..], &["--json"], &["--show-addresses"]] {
                let made = planted.report(&namespace, role, more);
                assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
                let (text, shows) = (stdout(&made), more.contains(&"--show-addresses"));
                for (what, secret) in &planted.secrets {
                    let is_address = ["host", "v4", "v6", "domain"].contains(what);
                    if !(shows && is_address) {
                        assert!(!text.contains(secret), "{role} {more:?}: {what} in {text}");
                        assert!(!stderr(&made).contains(secret), "{role}: {what}");
                    }
                }
                for stands_in in ["<key-1>", "<invitation>", "<mac-1>", "<pem>"] {
                    assert!(text.contains(stands_in), "{role} {more:?}: {stands_in} in {text}");
                }
                // What stands for what is told at the head of a report.
                let told = ["`domain:<host-1>`", "`<host-1>`", "`<v4-1>`", "`<v6-1>`"];
                let body = told.iter().fold(text.clone(), |text, told| text.replace(told, ""));
                for stands_in in ["<v4-1>", "<v6-1>", "<host-1>"] {
                    let is_there = body.contains(stands_in);
                    assert_eq!(is_there, !shows, "{role} {more:?}: {stands_in} in {text}");
                }
                if role == "proxy" {
                    assert!(text.contains("<client-2>"), "{text}");
                    continue;
                }
                assert!(text.contains("<device-2>"), "{text}");
                assert!(text.contains("1 devices, of which 1 say a name"), "{text}");
                for stands_in in ["app:<app-", "unit:<unit-", "user:<user-", "cgroup:<cgroup-"] {
                    let is_there = text.matches(stands_in).count() > 1;
                    assert!(is_there, "{more:?}: {stands_in} in {text}");
                }
            }
        }
    });
}

#[test]
fn a_report_has_each_part_and_is_a_file_for_its_owner() {
    lab_test("a_report_has_each_part_and_is_a_file_for_its_owner", || {
        let namespace = Namespace::create(next_number(), "report").unwrap();
        let planted = Planted::new("client");
        let file = planted.folder.path().join("report.md");
        let path = file.to_str().unwrap();
        let made = planted.run(&namespace, "client", &["--output", path]);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        assert!(stdout(&made).starts_with(path) && stdout(&made).contains("Read it through"));
        assert!(stderr(&made).contains("examining the client"), "{}", stderr(&made));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# Ropewalk bug report\n"), "{text}");
        let parts = [
            ("Client: status", "Tunnel with <host-"),
            ("Client: doctor", "ok"),
            ("Client: why", "What limited each link"),
            ("Client: flows", "no tunnel is up"),
            ("Client: config", "[proxy]\naddress = \"<host-"),
            ("Client: log", "session is established"),
            ("Versions", "ropewalk "),
            ("Machine", "memory "),
            ("Interfaces", "LOOPBACK"),
            ("Rules", "lookup main"),
            ("Client: the whole status", "\"program_version\": \"0.1.0\""),
            ("Client: numbers", "ropewalk_build_info"),
        ];
        for (title, content) in parts {
            assert!(text.contains(&format!("| [{title}](#")), "{title} in the table: {text}");
            let heading = format!("\n## {title}\n\n");
            let (_, part) = text.split_once(&heading).unwrap_or_else(|| panic!("no part {title}"));
            let part = part.split("\n## ").next().unwrap();
            assert!(part.contains(content), "{title}: {part}");
        }
        // A second one does not take its place.
        let again = planted.run(&namespace, "client", &["--output", path]);
        assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
        assert!(stderr(&again).contains("exists and stays as it is"), "{}", stderr(&again));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    });
}

#[test]
fn without_a_daemon_or_a_config_a_report_says_what_could_not_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (config, socket) = (at("client.toml"), at("client.sock"));
    let args = ["bugreport", "client", "--config", &config, "--socket", &socket, "--json"];
    let made = ropewalk(&[&args[..], &["--stdout"]].concat()).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let report: Value = serde_json::from_slice(&made.stdout).unwrap();
    let parts = report["parts"].as_array().unwrap();
    let part = |title: &str| parts.iter().find(|part| part["title"] == title).unwrap();
    for (title, why) in
        [("Client: status", "no daemon answers at"), ("Client: config", "there is no")]
    {
        let part = part(title);
        assert!(part["not_had"].as_str().unwrap().contains(why), "{part}");
        assert!(part["text"].is_null(), "{part}");
    }
    assert!(part("Versions")["text"].as_str().unwrap().contains("ropewalk "));
    assert!(part("Client: doctor")["text"].as_str().unwrap().contains("there is no"));
    assert!(report["left_out"].as_array().unwrap().len() > 3);
}

#[test]
fn wrong_use_is_told_and_makes_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let wrong: [(&[&str], &str); 3] = [
        (&["bugreport", "client", "--peer", "laptop"], "only a proxy has clients"),
        (&["bugreport", "--stdout", "--output", "x.md"], "cannot be used with"),
        (&["bugreport", "server"], "invalid value"),
    ];
    for (args, expected) in wrong {
        let ended = ropewalk(args).current_dir(folder.path()).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {}", stderr(&ended));
        assert!(stderr(&ended).contains(expected), "{args:?}: {}", stderr(&ended));
    }
    let planted = Planted::new("proxy");
    let (config, socket) = (planted.config(), planted.socket());
    let args = ["bugreport", "proxy", "--config", &config, "--socket", &socket, "--peer", "nobody"];
    let ended = ropewalk(&args).current_dir(folder.path()).output().unwrap();
    assert_eq!(ended.status.code(), Some(2), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("there is no peer `nobody`"), "{}", stderr(&ended));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn ropewalk(args: &[&str]) -> Command {
    let mut command = bound_to_parent(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(args).env_remove("ROPEWALK_LOG").stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A daemon of which everything holds secrets: config, files, log, and what it says.
struct Planted {
    folder: TempDir,
    /// Each with what it is.
    secrets: Vec<(&'static str, String)>,
    /// Stands for the daemon's process, whose standard error is the log.
    process: Child,
    _server: Server,
}

impl Planted {
    fn new(role: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let state = path.join("state");
        std::fs::create_dir(&state).unwrap();
        let private = PrivateKey::generate().unwrap().to_base64().to_string();
        let wrong_place = PrivateKey::generate().unwrap().to_base64().to_string();
        let preshared = PresharedKey::generate().unwrap().to_base64().to_string();
        let public = PublicKey::from_bytes([77; 32]).to_string();
        let invitation = Invitation {
            addresses: vec![HostPort { host: HOST.to_owned(), port: 51900 }],
            public_key: PublicKey::from_bytes([77; 32]),
            token: InvitationToken::from_bytes([78; 16]),
            expires: 100_000_000_000,
            others: Vec::new(),
        };
        let invitation = invitation.to_line().to_string();
        let secret = |name: &str, text: &str| {
            let file = path.join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        secret("own.key", &private);
        secret("own.psk", &preshared);
        secret("own.invitation", &invitation);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----\n");
        secret("tls.key", &pem);
        std::fs::write(state.join("peers.json"), format!("{{\"name\":\"{NAME}\"}}")).unwrap();
        let config = match role {
            "client" => format!(
                "private_key_file = \"own.key\"\nstate_dir = {state:?}\npassword = \"{PASSWORD}\"\n# {PASSWORD}\n\
                 [proxy]\naddress = \"{HOST}:51900\"\npublic_key = \"{public}\"\npreshared_key_file = \"own.psk\"\n\
                 invitation_file = \"own.invitation\"\n[[link]]\ninterface = \"{wrong_place}\"\n\
                 name = \"{invitation}\"\n[tun]\nroutes = [\"0.0.0.0/0\", \"app:{APP}\"]\n\
                 exclude = [\"domain:{DOMAIN}\", \"unit:{UNIT}\", \"user:{USER}\", \"cgroup:{CGROUP}\"]\n\
                 [share]\ninterfaces = [\"lan0\"]\n[[share.limit]]\ndevice = \"{NAME}\"\ndown = \"5 Mbit/s\"\n\
                 [[share.limit]]\ndevice = \"{MAC}\"\nup = \"5 Mbit/s\"\n"
            ),
            _ => format!(
                "private_key = \"{private}\"\nstate_dir = {state:?}\npublic_addresses = [\"{HOST}:51900\", \"{V4}\"]\n\
                 extra = [\"{PASSWORD}\"]\n[[peer]]\nname = \"{NAME}\"\npublic_key = \"{public}\"\n\
                 preshared_key_file = \"own.psk\"\n[registry]\nendpoints = [\"https://root:{PASSWORD}@{V4}:2379\"]\n\
                 fleet = \"{wrong_place}\"\nid = \"fra-1\"\ntls_key_file = \"tls.key\"\n"
            ),
        };
        secret("daemon.toml", &config);
        let log = format!(
            "2026-11-27T16:00:00Z INFO session is established addresses={V4} {V6} by enx001b21123456 {MAC}\n\
             2026-11-27T16:00:01Z WARN peer=\"{NAME}\" {invitation} {private} {preshared}\n\
             2026-11-27T16:00:02Z INFO this network may want a sign-in at http://{HOST}/?token={PASSWORD}\n\
             {pem}2026-11-27T16:00:03Z INFO the proxy in use is {HOST}\n\
             2026-11-27T16:00:04Z WARN domain:{DOMAIN}: too many, app:{APP}, {UNIT} of {USER} in {CGROUP}, www.{DOMAIN}\n\
             2026-11-27T16:00:05Z WARN nft says: socket cgroupv2 level 3 \"a/ropewalk-app-{APP}-7.scope\" goto r{RULE}\n\
             2026-11-27T16:00:06Z WARN not giving the name {DEVICE} away\n"
        );
        secret("daemon.log", &log);
        let standard_error = std::fs::OpenOptions::new().append(true).open(path.join("daemon.log"));
        let mut process = bound_to_parent("sleep");
        process.arg("600").stdout(Stdio::null()).stderr(standard_error.unwrap());
        let process = process.spawn().unwrap();

        let text = if role == "client" { CLIENT } else { PROXY };
        let mut status: StatusReport = serde_json::from_str(text).unwrap();
        status.daemon.pid = process.id();
        status.daemon.warnings = vec![format!("{NAME} at {V4}, {HOST}, {invitation}, {private}")];
        let tunnel = &mut status.tunnels[0];
        tunnel.peer = if role == "client" { format!("{HOST}:51900") } else { NAME.to_owned() };
        tunnel.peer_public_key = PublicKey::from_bytes([77; 32]);
        tunnel.reason = Some(format!("not connected to {V6} ({preshared})"));
        tunnel.links[0].remote = Some(format!("{V4}:51900").parse().unwrap());
        if role == "client" {
            status.daemon.warnings.push(format!("unit:{UNIT}: {USER} may not, see {CGROUP}"));
            let entries = [
                format!("domain:{DOMAIN}"),
                format!("app:{APP}"),
                format!("unit:{UNIT}"),
                format!("user:{USER}"),
                format!("cgroup:{CGROUP}"),
            ];
            status.rules = entries.iter().map(|entry| rule(entry)).collect();
        }
        let access = Access::new(None).unwrap();
        let options = Options { socket: path.join("daemon.sock"), access, web: None };
        let (server, mut commands) = Server::start(options).unwrap();
        thread::spawn(move || {
            while let Some(command) = commands.blocking_recv() {
                let answer = match command.request {
                    Request::Status => Ok(Response::Status(Box::new(status.clone()))),
                    Request::Devices => Ok(Response::Devices(Box::new(devices()))),
                    _ => Err(ApiError::new(ErrorCode::NotFound, "there is no such thing")),
                };
                command.answer(answer);
            }
        });
        let token = private[10..40].to_owned();
        let named = [
            ("private key", private),
            ("a part of it", token),
            ("key in a wrong place", wrong_place),
            ("preshared key", preshared),
            ("public key", public),
            ("invitation", invitation["ropewalk:".len()..].to_owned()),
            ("password", PASSWORD.to_owned()),
            ("PEM", PEM[..40].to_owned()),
            ("client or device", NAME.to_owned()),
            ("device", DEVICE.to_owned()),
            ("MAC", MAC.to_owned()),
            ("MAC in a name", "001b21123456".to_owned()),
            ("host", HOST.to_owned()),
            ("v4", V4.to_owned()),
            ("v6", V6.to_owned()),
            ("domain", DOMAIN.to_owned()),
            ("application", APP.to_owned()),
            ("unit", UNIT.to_owned()),
            ("user", USER.to_owned()),
            ("control group", CGROUP.to_owned()),
            ("number of a rule", format!("r{RULE}")),
        ];
        let of_client = [
            "device",
            "domain",
            "application",
            "unit",
            "user",
            "control group",
            "number of a rule",
        ];
        // A proxy knows no devices and chooses nothing: what is called so is a word like others there.
        let secrets =
            named.into_iter().filter(|(what, _)| role == "client" || !of_client.contains(what));
        Self { secrets: secrets.collect(), folder, process, _server: server }
    }

    fn config(&self) -> String {
        self.at("daemon.toml").display().to_string()
    }

    fn socket(&self) -> String {
        self.at("daemon.sock").display().to_string()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A report on standard output.
    fn report(&self, namespace: &Namespace, role: &str, more: &[&str]) -> Output {
        self.run(namespace, role, &[&["--stdout"][..], more].concat())
    }

    fn run(&self, namespace: &Namespace, role: &str, more: &[&str]) -> Output {
        let (config, socket) = (self.config(), self.socket());
        let args = ["bugreport", role, "--config", &config, "--socket", &socket];
        let mut command = ropewalk(&[&args[..], more].concat());
        command.current_dir(Path::new("/"));
        namespace.run(|| command.output()).unwrap().unwrap()
    }
}

/// What a client tells of one device.
fn devices() -> DevicesReport {
    let lan = LanStatus {
        interface: "lan0".to_owned(),
        dhcp: DhcpState::On,
        trouble: None,
        address: Some("192.168.77.1/24".parse().unwrap()),
        prefix: None,
        leases: 1,
    };
    let device = DeviceStatus { name: Some(DEVICE.to_owned()), ..DeviceStatus::default() };
    DevicesReport { lans: vec![lan], devices: vec![device], ..DevicesReport::default() }
}

/// What a client says of an entry, with secrets in all that it says.
fn rule(entry: &str) -> RuleStatus {
    RuleStatus {
        rule: Selector::from_text(entry).unwrap(),
        side: Side::Outside,
        packets: 5,
        bytes: 500,
        cgroups: vec![CGROUP.to_owned()],
        addresses: Some(7),
        note: Some(format!("{entry}: not found by {USER} in {CGROUP}")),
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
