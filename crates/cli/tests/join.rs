//! From an invitation to a download over both links, by the commands that a person types, on a real kernel.
//!
//! Each machine of the test has folders of its own in place of /etc/ropewalk, /var/lib/ropewalk and /run/ropewalk, so that
//! the commands need no flags.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::{lab_test, lab_test_alone};
use ropewalk_netlab::process::{Process, bound_to_parent};
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Where the transcript of the guide is written, if wanted.
const RECORD: &str = "ROPEWALK_TRANSCRIPT";

const GUIDE: &str = include_str!("../../../docs/operations/set-up.md");

/// Longer than anything a daemon does at once, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Gives a machine its own folders, then runs the program.
const AS_MACHINE: &str = "mount --make-rprivate /
    mount -t tmpfs tmpfs /etc; mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /run
    for place in etc var/lib run; do
        mkdir -p \"$1/$place\" \"/$place/ropewalk\"; mount --bind \"$1/$place\" \"/$place/ropewalk\"
    done
    shift; exec \"$@\"";

#[test]
fn two_commands_on_the_client_lead_from_an_invitation_to_a_bonded_download() {
    let name = "two_commands_on_the_client_lead_from_an_invitation_to_a_bonded_download";
    lab_test_alone(name, || {
        let (stage, folder) = (stage(1), tempfile::tempdir().unwrap());
        let [client] = stage.topology().clients() else { unreachable!("one was asked for") };
        let vps = Machine::new(folder.path(), stage.topology().proxy(), "vps");
        let laptop = Machine::new(folder.path(), client, "laptop");
        let mut transcript = String::new();

        let mut proxy = vps.start("proxy");
        proxy.wait_for_log("ready for", SOON).unwrap();
        transcript += &format!("vps# ropewalk proxy &\n{}", messages(&proxy.log()));
        let (added, line) = vps.invite(&["peer", "add", "laptop"]);
        transcript += &format!("vps# ropewalk peer add laptop\n{added}");

        let joined = laptop.run(&["join", "--link", "wan0", "--link", "wan1", &line]);
        transcript += &format!(
            "\nlaptop# ropewalk join --link wan0 --link wan1 {line}\n{}",
            joined.expect_success()
        );
        for file in ["client.toml", "client.key", "client.invitation"] {
            let mode = fs::metadata(laptop.file(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let mut client = laptop.start("client");
        transcript += "laptop# ropewalk client &\n";
        client.wait_until("both links", SOON, || laptop.links_up() == 2).unwrap();
        client
            .wait_until("the end of joining", SOON, || !laptop.file("client.invitation").exists())
            .unwrap();
        assert!(client.log().contains("the proxy knows this machine's key"), "{}", client.log());
        // Path MTU and windows come to rest, as they do while a person types.
        std::thread::sleep(Duration::from_secs(4));

        let bytes = 8_000_000;
        let url = stage.url(bytes, 7);
        let fetch = format!(
            "curl --no-progress-meter {url} --write-out '%{{stderr}}%{{speed_download}} bytes/s\\n' | sha256sum"
        );
        let fetched = laptop.shell(&fetch).expect_success();
        transcript += &format!("laptop# {fetch}\n{fetched}");
        transcript +=
            &format!("laptop# ropewalk status\n{}", laptop.run(&["status"]).expect_success());
        let list = vps.run(&["peer", "list"]).expect_success();
        transcript += &format!("\nvps# ropewalk peer list\n{list}");
        if let Some(file) = std::env::var_os(RECORD) {
            fs::write(file, &transcript).unwrap();
        }

        assert!(fetched.contains(&body_sha256(bytes, 7)), "{fetched}");
        let speed = fetched.split_whitespace().find_map(|word| word.parse::<f64>().ok()).unwrap();
        // More than the faster link of 8 Mbit/s carries of payload: both were used.
        assert!(speed * 8.0 > 7.8e6, "{fetched}\n{transcript}");
        assert!(list.contains("laptop: up") && list.contains("joined by invitation"), "{list}");
        assert_eq!(commands(&transcript), commands(GUIDE), "record it again: {RECORD}=FILE");
    });
}

#[test]
fn an_invitation_lets_one_machine_in_and_the_owner_can_take_it_back() {
    let name = "an_invitation_lets_one_machine_in_and_the_owner_can_take_it_back";
    lab_test(name, || {
        let (stage, folder) = (stage(2), tempfile::tempdir().unwrap());
        let [first, other] = stage.topology().clients() else { unreachable!("two were asked for") };
        let vps = Machine::new(folder.path(), stage.topology().proxy(), "vps");
        let one = Machine::new(folder.path(), first, "one");
        let two = Machine::new(folder.path(), other, "two");

        // Also while no proxy runs: its first start was stopped again.
        let error = vps.run(&["peer", "list"]).expect_failure(3);
        assert!(error.contains("there is no config /etc/ropewalk/proxy/proxy.toml"), "{error}");
        let mut proxy = vps.start("proxy");
        proxy.wait_for_log("ready for", SOON).unwrap();
        proxy.stop(SOON).unwrap();
        let (said, line) = vps.invite(&["peer", "add", "laptop"]);
        assert!(said.contains("No proxy runs here"), "{said}");
        let (_, unused) = vps.invite(&["peer", "add", "phone"]);
        let list = vps.run(&["peer", "list"]).expect_success();
        assert!(list.contains("No proxy runs") && list.contains("laptop: invited, open"), "{list}");

        // Through standard input; the second time only on purpose, and the first is kept.
        assert!(
            one.pipe(&line, &["join", "--link", "wan0", "--link", "wan1"])
                .expect_success()
                .contains("Ready to join")
        );
        let refused =
            one.pipe(&unused, &["join", "--link", "wan0", "--link", "wan1", "-"]).expect_failure(1);
        assert!(refused.contains("--replace"), "{refused}");
        let key = fs::read_to_string(one.file("client.key")).unwrap();
        let mut config = fs::read_to_string(one.file("client.toml")).unwrap();
        config.push_str("[control]\nweb = \"127.0.0.1:9586\" # mine\n");
        fs::write(one.file("client.toml"), config).unwrap();
        let said = one
            .pipe(&line, &["join", "--link", "wan0", "--link", "wan1", "--replace"])
            .expect_success();
        assert!(said.contains("with the old one's settings"), "{said}");
        let config = fs::read_to_string(one.file("client.toml")).unwrap();
        assert!(config.contains("web = \"127.0.0.1:9586\" # mine"), "{config}");
        assert_eq!(fs::read_to_string(one.file("client.key.old")).unwrap(), key);
        assert!(one.file("client.toml.old").exists());

        // The key is bound before the client hears of it: a kill at that moment changes nothing.
        let mut proxy = vps.start("proxy");
        proxy.wait_for_log("ready for", SOON).unwrap();
        let mut client = one.start("client");
        client.wait_for_log("session is established", SOON).unwrap();
        proxy.kill();
        let proxy = vps.start("proxy");
        // At the proxy: the client itself takes a second to notice that it was away.
        let is_back = || vps.run(&["peer", "list"]).out.contains("laptop: up");
        client.wait_until("the tunnel again", SOON, is_back).unwrap();

        // The same line on another machine.
        two.run(&["join", "--link", "wan0", "--link", "wan1", &line]).expect_success();
        let mut thief = two.start("client");
        thief.wait_until("the refusal", SOON, || two.reason().contains("was used before")).unwrap();
        assert!(proxy.log().contains("the invitation was used before"), "{}", proxy.log());
        // The proxy was heard: its refusal is no sign of a network that blocks UDP.
        let reasons = |machine: &Machine| {
            let status = machine.status();
            let links = status["tunnels"][0]["links"].as_array().cloned().unwrap_or_default();
            links.iter().map(|link| link["reason"].to_string()).collect::<Vec<_>>()
        };
        std::thread::sleep(Duration::from_secs(6));
        let told = reasons(&two);
        assert!(
            told.len() == 2 && told.iter().all(|text| text.contains("refuses this client")),
            "{told:?}"
        );
        assert_eq!(one.state(), "up");
        thief.stop(SOON).unwrap();

        // The same key on another machine: the newest wins, and both are told.
        for file in ["client.toml", "client.key"] {
            fs::copy(one.file(file), two.file(file)).unwrap();
        }
        fs::remove_file(two.file("client.invitation")).unwrap();
        let mut second = two.start("client");
        second.wait_until("its tunnel", SOON, || two.state() == "up").unwrap();
        let warnings = two.status()["daemon"]["warnings"].to_string();
        assert!(warnings.contains("another machine has the same key"), "{warnings}");
        client
            .wait_until("the word", SOON, || one.reason().contains("another machine connected"))
            .unwrap();
        assert!(second.log().contains("another machine has the same key"), "{}", second.log());
        let told = "session is over: another machine connected with the same key";
        assert!(client.log().contains(told), "{}", client.log());
        assert!(
            proxy.log().contains("replaced by a newer session of the same key"),
            "{}",
            proxy.log()
        );

        // A new key for the name: the old one works until the new one is there.
        let (said, line) = vps.invite(&["peer", "rotate", "laptop"]);
        assert!(said.contains("replaces"), "{said}");
        client.stop(SOON).unwrap();
        assert_eq!(two.state(), "up");
        one.run(&["join", "--link", "wan0", "--link", "wan1", "--replace", &line]).expect_success();
        let mut client = one.start("client");
        client.wait_until("its tunnel", SOON, || one.state() == "up").unwrap();
        second
            .wait_until("the word", SOON, || two.reason().contains("took this client's key out"))
            .unwrap();
        let inner = |machine: &Machine| machine.status()["tunnels"][0]["inner_v4"].clone();
        assert_eq!(inner(&one), "10.77.0.2", "the name keeps its address");

        // Disabled, with its key and its address, and let in again.
        let said = vps.run(&["peer", "disable", "laptop"]).expect_success();
        assert!(said.contains("ropewalk peer enable laptop"), "{said}");
        client
            .wait_until("the refusal", SOON, || one.reason().contains("disabled on the proxy"))
            .unwrap();
        let list = vps.run(&["peer", "list"]).expect_success();
        assert!(list.contains("laptop: disabled"), "{list}");
        client.stop(SOON).unwrap();
        let said = vps.run(&["peer", "enable", "laptop"]).expect_success();
        assert!(said.contains("let in again"), "{said}");
        let mut client = one.start("client");
        client.wait_until("its tunnel", SOON, || one.state() == "up").unwrap();
        assert_eq!(inner(&one), "10.77.0.2");

        // Out, at once.
        let asked = Instant::now();
        let removed = vps.run(&["peer", "remove", "laptop"]).expect_success();
        assert!(removed.contains("laptop is out"), "{removed}");
        client
            .wait_until("the word", SOON, || one.reason().contains("took this client's key out"))
            .unwrap();
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        let routes = stage.topology().proxy().tool("ip", &["route"]).unwrap();
        assert!(!routes.contains("10.77.0.2 "), "{routes}");
        let list = vps.run(&["peer", "list", "--json"]).expect_success();
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["peers"], Value::Array(Vec::new()), "{list:#}");
        assert_eq!(list["invitations"][0]["name"], "phone");

        // An invitation that was taken back, and what never was one.
        vps.run(&["peer", "remove", "phone"]).expect_success();
        second.stop(SOON).unwrap();
        two.run(&["join", "--link", "wan0", "--link", "wan1", "--replace", &unused])
            .expect_success();
        let mut late = two.start("client");
        late.wait_until("the refusal", SOON, || two.reason().contains("taken back")).unwrap();
        let file = fs::read_to_string(vps.folder.join("var/lib/peers.json")).unwrap();
        assert!(!file.contains(&line[9..]), "no token is kept");
    });
}

fn stage(clients: u8) -> Stage {
    let wan = |mbit, rtt_ms| {
        let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
        WanConfig::from(Access::symmetric(Bitrate::from_mbps(mbit), rtt, queue))
    };
    let config = TopologyConfig { clients, ..TopologyConfig::new(vec![wan(8, 10), wan(2, 100)]) };
    Stage::build(Path::new(PROGRAM), &config).unwrap()
}

/// A machine: a network namespace, and folders of its own.
struct Machine<'a> {
    namespace: &'a Namespace,
    folder: PathBuf,
}

impl<'a> Machine<'a> {
    fn new(folder: &Path, namespace: &'a Namespace, name: &str) -> Self {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        Self { namespace, folder }
    }

    /// A file of its client's.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join("etc/client").join(name)
    }

    fn through(&self) -> [String; 6] {
        let folder = self.folder.display().to_string();
        ["--mount", "sh", "-ec", AS_MACHINE, "sh", &folder].map(str::to_owned)
    }

    /// Starts a daemon.
    fn start(&self, role: &str) -> Process {
        let mut words = self.through().to_vec();
        words.extend([PROGRAM.to_owned(), role.to_owned()]);
        let log = self.folder.join(format!("{role}.log"));
        drop(fs::remove_file(log));
        Process::start(self.namespace, &self.folder, role, "unshare", &words).unwrap()
    }

    fn run(&self, words: &[&str]) -> Done {
        self.pipe("", words)
    }

    fn pipe(&self, input: &str, words: &[&str]) -> Done {
        let words: Vec<&str> = [PROGRAM].iter().chain(words).copied().collect();
        self.execute(input, &words)
    }

    fn shell(&self, script: &str) -> Done {
        self.execute("", &["sh", "-ec", script])
    }

    fn execute(&self, input: &str, words: &[&str]) -> Done {
        use std::io::Write as _;

        let mut command = bound_to_parent("unshare");
        command.args(self.through()).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.namespace.spawn(command).unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What is said beside an invitation with it, and its line.
    fn invite(&self, words: &[&str]) -> (String, String) {
        let done = self.run(words);
        let line = done.out.trim().to_owned();
        assert!(line.starts_with("ropewalk:") && !line.contains('\n'), "{line:?}");
        (done.expect_success(), line)
    }

    fn status(&self) -> Value {
        let done = self.run(&["status", "--json"]);
        serde_json::from_str(&done.out).unwrap_or(Value::Null)
    }

    fn state(&self) -> String {
        self.status()["tunnels"][0]["state"].as_str().unwrap_or_default().to_owned()
    }

    fn reason(&self) -> String {
        self.status()["tunnels"][0]["reason"].as_str().unwrap_or_default().to_owned()
    }

    fn links_up(&self) -> usize {
        let status = self.status();
        let links = status["tunnels"][0]["links"].as_array().cloned().unwrap_or_default();
        links.iter().filter(|link| link["state"] == "up").count()
    }
}

/// A command that has ended.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Done {
    /// All that it said, as a terminal shows it.
    fn expect_success(&self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        format!("{}{}", self.err, self.out)
    }

    fn expect_failure(&self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err.clone()
    }
}

/// The messages of a log without their times.
fn messages(log: &str) -> String {
    let message =
        |line: &str| line.split_once(" INFO ").map(|(_, rest)| rest.trim_start().to_owned());
    log.lines().filter_map(message).map(|line| format!("{line}\n")).collect()
}

/// The commands of a transcript, without what is another one each time.
fn commands(text: &str) -> Vec<String> {
    let prompt = |line: &&str| line.starts_with("vps# ") || line.starts_with("laptop# ");
    let bare = |line: &str| match line.split_once("ropewalk:") {
        Some((command, _)) => format!("{command}LINE"),
        None => line.to_owned(),
    };
    text.lines().filter(prompt).map(bare).collect()
}
