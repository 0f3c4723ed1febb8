//! `ropewalk notify` on a bus of its own: a `dbus-daemon`, a program that shows notifications, and a socket that answers as the client.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of the tests fail as the tests do"
)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_control::api::{KillSwitch, Response, StatusReport};
use ropewalk_control::server::{Access, Options, Server};
use ropewalk_netlab::privilege::{lacking, require_tool};
use ropewalk_netlab::process::bound_to_parent;
use serde_json::{Value, json};
use tempfile::TempDir;
use zbus::zvariant::OwnedValue;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// After which what works is known to work, and may be lost.
const KNOWN: Duration = Duration::from_secs(8);

/// What the tests need, and the Debian package that has it.
const BUS_DAEMON: (&str, &str) = ("dbus-daemon", "dbus");

/// A bus for one user: everything is allowed.
const BUS_CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

#[test]
fn a_desktop_is_told_of_a_lost_link_in_one_place_on_the_screen() {
    const NAME: &str = "a_desktop_is_told_of_a_lost_link_in_one_place_on_the_screen";
    if let Err(missing) = require_tool(BUS_DAEMON) {
        return lacking(NAME, &missing.to_string());
    }
    let (bus, folder) = (Bus::start(), tempfile::tempdir().unwrap());
    let screen = Screen::start(&bus);
    let client = Client::start(&folder.path().join("client.sock"));
    client.says("up", &["up", "up"]);
    let notify = bus.notify(&client.socket);
    client.wait_until_asked();
    thread::sleep(KNOWN);

    client.says("up", &["up", "down"]);
    let lost = screen.next();
    assert_eq!((lost.summary.as_str(), lost.replaces), ("wlan <b> is lost", 0));
    // What stands there is text, whatever it looks like.
    assert_eq!(lost.body, "No &lt;carrier&gt;. lte carries on.");
    assert_eq!((lost.program.as_str(), lost.urgency), ("Ropewalk", 1));
    assert!(lost.icon.starts_with("network-"), "{}", lost.icon);
    client.says("up", &["up", "up"]);
    let back = screen.next();
    assert_eq!((back.summary.as_str(), back.replaces), ("wlan <b> is back", lost.id));

    // A second one shows nothing, and says why.
    let second = bus.run(&["notify", "--socket", client.socket.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(0));
    assert!(stdout(&second).contains("Another `ropewalk notify` runs"), "{}", stdout(&second));

    // Who showed it is gone with its number, and another one has come.
    screen.end();
    let screen = Screen::start(&bus);
    client.says("up", &["up", "down"]);
    assert_eq!(screen.next().replaces, 0);

    // With the session's bus it ends, at the next that there is to show.
    drop(bus);
    client.says_that_the_kill_switch_failed();
    let ended = notify.ended();
    assert_eq!(ended.status.code(), Some(5), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("this session has no D-Bus"), "{}", stderr(&ended));
}

#[test]
fn it_waits_for_a_client_and_for_who_shows_notifications() {
    const NAME: &str = "it_waits_for_a_client_and_for_who_shows_notifications";
    if let Err(missing) = require_tool(BUS_DAEMON) {
        return lacking(NAME, &missing.to_string());
    }
    let (bus, folder) = (Bus::start(), tempfile::tempdir().unwrap());
    let socket = folder.path().join("client.sock");
    let notify = bus.notify(&socket);
    thread::sleep(Duration::from_millis(500));
    let client = Client::start(&socket);
    client.says_that_the_kill_switch_failed();
    client.wait_until_asked();
    // It was tried more often than notifications are shown in a minute.
    thread::sleep(Duration::from_secs(1));
    let screen = Screen::start(&bus);
    let failed = screen.next();
    assert_eq!((failed.summary.as_str(), failed.urgency), ("The kill switch is not set", 2));
    client.says("up", &["up", "up"]);
    assert_eq!(screen.closed(), failed.id);
    drop(notify);

    let tried = bus.run(&["notify", "--try"]);
    assert_eq!(tried.status.code(), Some(0), "{}", stderr(&tried));
    assert_eq!(screen.next().summary, "Ropewalk can show notifications");
}

#[test]
fn without_a_desktop_it_says_so_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = format!("unix:path={}", folder.path().join("bus").display());
    for more in [&[][..], &["--try"]] {
        let mut command = ropewalk(&[&["notify"][..], more].concat(), &nowhere);
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(5), "{}", stderr(&ended));
        let told = stderr(&ended);
        assert!(told.contains("error: this session has no D-Bus: "), "{told}");
        assert!(told.contains("as its user and not with sudo"), "{told}");
    }
}

fn ropewalk(args: &[&str], bus: &str) -> Command {
    let mut command = bound_to_parent(env!("CARGO_BIN_EXE_ropewalk"));
    command.args(args).env("DBUS_SESSION_BUS_ADDRESS", bus).env_remove("ROPEWALK_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A bus in a folder of its own.
struct Bus {
    folder: TempDir,
    daemon: Child,
}

impl Bus {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("bus");
        let config = folder.path().join("bus.conf");
        let text = BUS_CONFIG.replace("SOCKET", socket.to_str().unwrap());
        std::fs::write(&config, text).unwrap();
        let mut command = bound_to_parent("dbus-daemon");
        command.arg(format!("--config-file={}", config.display()));
        command.args(["--nofork", "--nopidfile"]);
        let daemon = command.stdin(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !socket.exists() {
            assert!(begun.elapsed() < PATIENCE, "the bus does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        Self { folder, daemon }
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.folder.path().join("bus").display())
    }

    fn run(&self, args: &[&str]) -> Output {
        ropewalk(args, &self.address()).output().unwrap()
    }

    /// Starts one that looks often.
    fn notify(&self, socket: &Path) -> Running {
        let args = ["notify", "--every", "100ms", "--socket", socket.to_str().unwrap()];
        Running(Some(ropewalk(&args, &self.address()).spawn().unwrap()))
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }
}

/// A `ropewalk notify`.
struct Running(Option<Child>);

impl Running {
    /// What it said, when it has ended by itself.
    fn ended(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("it does not end: {}", stderr(&child.wait_with_output().unwrap()));
            }
            thread::sleep(Duration::from_millis(50));
        }
        child.wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// A socket that answers as the client.
struct Client {
    socket: PathBuf,
    says: Arc<Mutex<StatusReport>>,
    asked: Receiver<()>,
    _server: Server,
}

impl Client {
    fn start(socket: &Path) -> Self {
        let access = Access::new(None).unwrap();
        let options = Options { socket: socket.to_owned(), access, web: None };
        let (server, mut commands) = Server::start(options).unwrap();
        let says = Arc::new(Mutex::new(report("up", &["up", "up"])));
        let said = Arc::clone(&says);
        let (ask, asked) = mpsc::channel();
        thread::spawn(move || {
            while let Some(command) = commands.blocking_recv() {
                let report = said.lock().unwrap().clone();
                command.answer(Ok(Response::Status(Box::new(report))));
                // Nobody may count any more.
                let _ = ask.send(());
            }
        });
        Self { socket: socket.to_owned(), says, asked, _server: server }
    }

    fn wait_until_asked(&self) {
        self.asked.recv_timeout(PATIENCE).unwrap();
    }

    fn says(&self, tunnel: &str, links: &[&str; 2]) {
        *self.says.lock().unwrap() = report(tunnel, links);
    }

    fn says_that_the_kill_switch_failed(&self) {
        self.says.lock().unwrap().daemon.kill_switch = Some(KillSwitch::Failed);
    }
}

/// A client with a tunnel and two links in these states.
fn report(tunnel: &str, [lte, wlan]: &[&str; 2]) -> StatusReport {
    let packets = json!({ "rate_bps": 0.0, "packets": 0, "bytes": 0 });
    let datagrams = json!({ "rate_bps": 0.0, "datagrams": 0, "bytes": 0 });
    let link = |name: &str, state: &str| -> Value {
        json!({ "name": name, "state": state, "reason": "no <carrier>", "state_age_s": 0.0,
            "in_flight": 0, "up": datagrams, "down": datagrams })
    };
    serde_json::from_value(json!({
        "version": 1,
        "daemon": { "role": "client", "program_version": "1", "pid": 7, "uptime_s": 9.0 },
        "tunnels": [{
            "peer": "vps:51900", "state": tunnel, "state_age_s": 0.0,
            "peer_public_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
            "policy": { "scheduler": "x", "controller": "x", "when_closed": "x" },
            "up": packets, "down": packets, "queue": { "packets": 0, "bytes": 0 },
            "resequencer": { "held": 0, "held_bytes": 0, "in_order": 0, "late": 0, "duplicate": 0,
                "skipped_by_proof": 0, "skipped_by_deadline": 0, "released_by_full_buffer": 0 },
            "links": [link("lte", lte), link("wlan <b>", wlan)],
        }],
    }))
    .unwrap()
}

/// What came to the screen.
#[derive(Debug)]
struct Shown {
    program: String,
    replaces: u32,
    icon: String,
    summary: String,
    body: String,
    urgency: u8,
    /// Its number.
    id: u32,
}

/// A program that shows notifications.
struct Screen {
    shown: Receiver<Shown>,
    closed: Receiver<u32>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Screen {
    fn start(bus: &Bus) -> Self {
        let (show, shown) = mpsc::channel();
        let (close, closed) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let address = bus.address();
        let serve = move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let shower = Shower { show, close, last: 1000 };
                let connection = zbus::connection::Builder::address(address.as_str())
                    .unwrap()
                    .serve_at("/org/freedesktop/Notifications", shower)
                    .unwrap()
                    .name("org.freedesktop.Notifications")
                    .unwrap()
                    .build()
                    .await
                    .unwrap();
                begin.send(()).unwrap();
                drop(stopped.await);
                // So that another one may have it at once. The bus may be gone.
                drop(connection.release_name("org.freedesktop.Notifications").await);
            });
        };
        let thread = thread::spawn(serve);
        begun.recv_timeout(PATIENCE).unwrap();
        Self { shown, closed, stop: Some(stop), thread: Some(thread) }
    }

    fn next(&self) -> Shown {
        self.shown.recv_timeout(PATIENCE).unwrap()
    }

    fn closed(&self) -> u32 {
        self.closed.recv_timeout(PATIENCE).unwrap()
    }

    /// Leaves the bus.
    fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Shower {
    show: Sender<Shown>,
    close: Sender<u32>,
    last: u32,
}

#[zbus::interface(name = "org.freedesktop.Notifications")]
impl Shower {
    #[expect(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "the specification has them, and a call brings its own"
    )]
    fn notify(
        &mut self,
        app_name: String,
        replaces_id: u32,
        app_icon: String,
        summary: String,
        body: String,
        _actions: Vec<String>,
        hints: HashMap<String, OwnedValue>,
        _expire_timeout: i32,
    ) -> u32 {
        let urgency = hints.get("urgency").and_then(|value| value.downcast_ref::<u8>().ok());
        if replaces_id == 0 {
            self.last += 1;
        }
        let id = if replaces_id == 0 { self.last } else { replaces_id };
        let shown = Shown {
            program: app_name,
            replaces: replaces_id,
            icon: app_icon,
            summary,
            body,
            urgency: urgency.unwrap_or(u8::MAX),
            id,
        };
        // The test may have seen enough.
        drop(self.show.send(shown));
        id
    }

    fn close_notification(&mut self, id: u32) {
        let _ = self.close.send(id);
    }

    fn get_capabilities(&self) -> Vec<String> {
        vec!["body".to_owned(), "body-markup".to_owned()]
    }
}
