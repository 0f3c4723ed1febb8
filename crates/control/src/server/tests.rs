//! Server and client over a socket in a temporary folder.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{getegid, geteuid};
use ropewalk_netlab::privilege::skipped;

use super::*;
use crate::api::{
    DEFAULT_FLOWS, DaemonStatus, DeviceLimitChange, EnabledPeer, ErrorCode, HistoryQuery,
    InviteWish, Invited, LinkChange, LinkSettings, MAX_FLOWS, RemovedPeer, Role, RoutesChange,
    STATUS_VERSION, SpeedTestReport, SpeedTestWish, StatusReport,
};
use crate::client::{ClientError, call_blocking};
use ropewalk_settings::{
    DeviceSelector, PublicKey, SchedulerKind, Scheduling, Selector, Side, Text as _,
};

#[test]
fn a_status_goes_from_the_daemon_to_the_tool() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("run/client.sock");
    let (server, commands) = Server::start(options(&socket)).unwrap();
    let daemon = answer(commands, || Ok(Response::Status(Box::new(status()))));

    let Ok(Response::Status(report)) = call_blocking(&socket, &Request::Status) else {
        panic!("no status")
    };
    assert_eq!(*report, status());
    drop(server);
    daemon.join().unwrap();
    assert!(!socket.exists(), "the socket is removed at the end");
}

#[test]
fn the_socket_is_for_owner_and_group_only() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let (_server, _commands) = Server::start(options(&socket)).unwrap();
    let metadata = std::fs::metadata(&socket).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o660);
    assert_eq!(metadata.uid(), geteuid().as_raw());
    assert!(!folder.path().join("client.sock.new").exists());
}

#[test]
fn the_socket_belongs_to_the_configured_group() {
    if !geteuid().is_root() {
        let name = "server::tests::the_socket_belongs_to_the_configured_group";
        return skipped(name, "only root can give a file to another group");
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let access = Access::of_ids(0, Some(4_000_001));
    let (_server, _commands) =
        Server::start(Options { socket: socket.clone(), access, web: None }).unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().gid(), 4_000_001);
}

#[test]
fn a_user_who_is_not_let_in_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    // Whoever runs this test may open the socket, and is nobody this policy knows.
    let access = Access { users: [4_000_000, 4_000_001], group: Some(4_000_002) };
    let bound = socket::Bound::new(&socket, getegid().as_raw()).unwrap();
    let (commands, mut receiver) = mpsc::channel(1);
    let answer_time = Request::answer_time;
    let connection = Connection { commands, access: Arc::new(access), answer_time };
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server =
        std::thread::spawn(move || runtime.block_on(http::serve(bound, None, connection, stopped)));

    let error = call_blocking(&socket, &Request::Status).unwrap_err();
    let expected = format!("the user with uid {} may not talk to this daemon", geteuid());
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(matches!(error, ClientError::Refused(error) if error.code == ErrorCode::Forbidden));
    assert!(raw(&socket, b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").contains("403"));
    assert!(receiver.try_recv().is_err(), "the daemon was not asked");
    drop(stop);
    server.join().unwrap();
}

#[test]
fn the_socket_of_a_dead_daemon_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "a dead daemon leaves its file");
    assert!(matches!(
        call_blocking(&socket, &Request::Status),
        Err(ClientError::NotRunning { .. })
    ));

    let (first, commands) = Server::start(options(&socket)).unwrap();
    let second = Server::start(options(&socket)).unwrap_err();
    assert!(matches!(second, BindError::InUse { .. }), "{second}");
    // The attempt took nothing from the first.
    let daemon = answer(commands, || Ok(Response::Status(Box::new(status()))));
    assert!(call_blocking(&socket, &Request::Status).is_ok());
    drop(first);
    daemon.join().unwrap();
}

#[test]
fn a_server_does_not_remove_the_socket_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let (first, _commands) = Server::start(options(&socket)).unwrap();
    std::fs::remove_file(&socket).unwrap();
    let (_second, _commands) = Server::start(options(&socket)).unwrap();
    drop(first);
    assert!(socket.exists());
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    std::fs::write(&socket, "precious").unwrap();
    let error = Server::start(options(&socket)).unwrap_err();
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

#[test]
fn a_path_too_long_for_a_socket_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = Server::start(options(&folder.path().join("x".repeat(120)))).unwrap_err();
    assert!(error.to_string().contains("SUN_LEN"), "{error}");
}

#[test]
fn no_daemon_means_saying_how_to_start_one() {
    let error = call_blocking(Path::new("/nowhere/client.sock"), &Request::Status).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning { .. }));
    assert!(error.to_string().contains("ropewalk client --config FILE"), "{error}");
}

#[test]
fn a_daemon_that_does_not_answer_is_called_busy() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let (_server, mut commands) =
        Server::start_with(options(&socket), |_| Duration::from_millis(50)).unwrap();
    let busy = call_blocking(&socket, &Request::Status).unwrap_err();
    assert!(busy.to_string().contains("did not answer in time"), "{busy}");

    // Its answer comes when nobody waits for it.
    commands.try_recv().unwrap().answer(Ok(Response::Status(Box::new(status()))));
    drop(commands);
    let stopping = call_blocking(&socket, &Request::Status).unwrap_err();
    assert!(stopping.to_string().contains("is stopping"), "{stopping}");
}

#[test]
fn more_requests_than_may_wait_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let (server, mut commands) = Server::start(options(&socket)).unwrap();
    let askers: Vec<_> = (0..WAITING_COMMANDS + 3)
        .map(|_| {
            let socket = socket.clone();
            std::thread::spawn(move || call_blocking(&socket, &Request::Status))
        })
        .collect();
    let refused = askers
        .into_iter()
        .map(|asker| asker.join().unwrap())
        .filter(|answer| {
            matches!(answer, Err(ClientError::Refused(error)) if error.code == ErrorCode::Busy
                && error.message.contains("too many"))
        })
        .count();
    assert_eq!(refused, 3);
    drop(server);
    let waiting = std::iter::from_fn(|| commands.try_recv().ok()).count();
    assert_eq!(waiting, WAITING_COMMANDS);
}

/// A user that is not this machine's root, and is in the socket's group.
const MEMBER: u32 = 4_000_003;
/// The group of the socket.
const GROUP: u32 = 4_000_004;
/// Tells a copy of this program that it is the other user, and where the socket is.
const SLOW_TO: &str = "ROPEWALK_SLOW_TO";
const SLOW_CONNECTIONS: usize = 1_000;

#[test]
fn a_thousand_slow_connections_of_another_user_keep_nobody_else_from_an_answer() {
    let name = "server::tests::a_thousand_slow_connections_of_another_user_keep_nobody_else_from_an_answer";
    if !geteuid().is_root() {
        return skipped(name, "only root can act as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("client.sock");
    let access = Access::of_ids(0, Some(GROUP));
    let (server, commands) =
        Server::start(Options { socket: socket.clone(), access, web: None }).unwrap();
    let daemon = answer(commands, || Ok(Response::Status(Box::new(status()))));

    // The way by /proc is open to that user where the folder of this program is not.
    let mut slow = std::process::Command::new("/proc/self/exe")
        .args(["--exact", "server::tests::slow_connections", "--ignored", "--nocapture"])
        .env(SLOW_TO, &socket)
        .uid(MEMBER)
        .gid(GROUP)
        .current_dir("/")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(slow.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("connected")), "they connect");

    let longest = (0..20)
        .map(|_| {
            let started = Instant::now();
            let answer = call_blocking(&socket, &Request::Status);
            let took = started.elapsed();
            assert!(matches!(answer, Ok(Response::Status(_))), "{answer:?} after {took:?}");
            std::thread::sleep(Duration::from_millis(150));
            took
        })
        .max();
    assert!(longest < Some(Duration::from_secs(1)), "an answer took {longest:?}");
    slow.kill().unwrap();
    slow.wait().unwrap();
    drop(server);
    daemon.join().unwrap();
}

/// Not a test of its own: what [`a_thousand_slow_connections_of_another_user_keep_nobody_else_from_an_answer`] starts as
/// another user. One byte a second on each connection; one that is closed comes again.
#[test]
#[ignore = "started by another test"]
fn slow_connections() {
    let Ok(socket) = std::env::var(SLOW_TO) else { return };
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let head = b"GET /v1/status HTTP/1.1\r\nhost: a-name-that-takes-its-time\r\n\r\n";
    let mut connections: Vec<(Option<UnixStream>, usize)> = Vec::new();
    connections.resize_with(SLOW_CONNECTIONS, || (None, 0));
    for turn in 0.. {
        for (connection, sent) in &mut connections {
            let byte = head.get(*sent..=*sent).unwrap_or(b"x");
            let written = connection.as_mut().is_some_and(|stream| stream.write(byte).is_ok());
            if written {
                *sent += 1;
                continue;
            }
            *connection = UnixStream::connect(&socket).ok();
            *sent = 0;
        }
        if turn == 0 {
            println!("connected");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn wrong_requests_get_an_answer_and_reach_no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let (_server, mut commands) = Server::start(options(&socket)).unwrap();
    let long_header =
        format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
    let long_body = format!(
        "GET /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 70000\r\n\r\n{}",
        "y".repeat(70_000)
    );
    let put = |body: &str| {
        let len = body.len();
        format!("PUT /v1/scheduling HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n{body}")
    };
    let post = |body: &str| {
        let len = body.len();
        format!("POST /v1/speedtest HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n{body}")
    };
    let cases = [
        ("GET /v2/status HTTP/1.1\r\nhost: x\r\n\r\n", "404", "GET /v1/status"),
        ("GET /v1/../etc HTTP/1.1\r\nhost: x\r\n\r\n", "404", "GET /v1/status"),
        ("POST /v1/status HTTP/1.1\r\nhost: x\r\n\r\n", "405", "GET"),
        ("garbage\r\n\r\n", "400", ""),
        ("\0\0\0\0\r\n\r\n", "400", ""),
        (&*long_header, "431", ""),
        (&*long_body, "413", ""),
        ("GET /v1/flows?limit=4097 HTTP/1.1\r\nhost: x\r\n\r\n", "400", "from 0 to 4096"),
        ("GET /v1/flows?limit=-1 HTTP/1.1\r\nhost: x\r\n\r\n", "400", "from 0 to 4096"),
        ("GET /v1/flows?top=1 HTTP/1.1\r\nhost: x\r\n\r\n", "400", "`peer`, `limit`"),
        ("GET /v1/history?points=401 HTTP/1.1\r\nhost: x\r\n\r\n", "400", "from 1 to 400"),
        ("GET /v1/history?until=1 HTTP/1.1\r\nhost: x\r\n\r\n", "400", "`since`"),
        ("POST /v1/history HTTP/1.1\r\nhost: x\r\n\r\n", "405", "GET"),
        ("GET /v1/scheduling?pear=a HTTP/1.1\r\nhost: x\r\n\r\n", "400", "`peer`"),
        (&*put("{\"scheduler\":\"natali\"}"), "400", "natalie"),
        (&*put("{\"terms\":{\"a\":{\"weight\":-1}}}"), "400", "link a: weight = -1"),
        (&*put("{\"terms\":{\"a\":{\"weight\":1e999}}}"), "400", "number"),
        (
            &*put("{\"terms\":{\"a\":{\"weight\":0},\"b\":{\"weight\":0}}}"),
            "400",
            "weights are zero",
        ),
        (&*put("{\"terms\":{\"a\":{\"cost\":\"5\"}}}"), "400", "5 EUR/GB"),
        (&*put("{\"terms\":{\"a\":{\"use\":\"sometimes\"}}}"), "400", "when-needed"),
        (
            &*put("{\"terms\":{\"a\":{\"importance\":{\"throughput\":0.5,\"cost\":0.6}}}}"),
            "400",
            "sum to 1",
        ),
        ("PUT /v1/proxies HTTP/1.1\r\nhost: x\r\n\r\n", "400", "?use=NAME"),
        ("DELETE /v1/peers HTTP/1.1\r\nhost: x\r\n\r\n", "400", "?name=NAME"),
        ("POST /v1/peers HTTP/1.1\r\nhost: x\r\n\r\n", "400", "EOF"),
        ("DELETE /v1/scheduling HTTP/1.1\r\nhost: x\r\n\r\n", "405", "PUT"),
        ("GET /v1/speedtest HTTP/1.1\r\nhost: x\r\n\r\n", "400", "?id=ID"),
        ("DELETE /v1/speedtest?id=-1 HTTP/1.1\r\nhost: x\r\n\r\n", "400", "id=-1 is no number"),
        (&*post("{\"seconds\":10,\"down\":false,\"up\":false}"), "400", "neither down nor up"),
        (&*post("{\"seconds\":9000,\"down\":true,\"up\":true}"), "400", "3 to 60 s, not 9000"),
        (
            &*post("{\"seconds\":5,\"down\":true,\"up\":true,\"max_bytes\":9}"),
            "400",
            "less than 1 MB",
        ),
    ];
    for (request, status, text) in cases {
        let shown = &request[..request.len().min(40)];
        let answer = raw(&socket, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{shown:?}: {answer}");
        assert!(answer.contains(text), "{shown:?}: {answer}");
    }
    assert!(commands.try_recv().is_err());
}

#[test]
fn a_change_and_its_peer_reach_the_daemon_as_they_were_sent() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("proxy.sock");
    let (server, mut commands) = Server::start(options(&socket)).unwrap();
    let scheduling =
        Box::new(Scheduling { scheduler: SchedulerKind::Batcp, ..Scheduling::default() });
    let daemon = std::thread::spawn(move || {
        let mut asked = Vec::new();
        while let Some(command) = commands.blocking_recv() {
            let request = command.request.clone();
            asked.push(request.clone());
            command.answer(Ok(match request {
                Request::Status => Response::Status(Box::new(status())),
                Request::Scheduling { .. } => Response::Scheduling(Box::default()),
                Request::SetScheduling { scheduling, .. } => Response::Scheduling(scheduling),
                Request::Flows { .. } => Response::Flows(Box::default()),
                Request::Forwards => Response::Forwards(Box::default()),
                Request::Devices => Response::Devices(Box::default()),
                Request::LimitDevice(_) => Response::DeviceLimit(Box::default()),
                Request::History(_) => Response::History(Box::default()),
                Request::ChangeLink(LinkChange { name, values }) => {
                    Response::Link(Box::new(LinkSettings {
                        name,
                        values,
                        ..LinkSettings::default()
                    }))
                }
                Request::Routes | Request::ChangeRoutes(_) => Response::Routes(Box::default()),
                Request::Proxies | Request::UseProxy { .. } => Response::Proxies(Box::default()),
                Request::StartSpeedTest(_) => Response::SpeedTest(Box::default()),
                Request::SpeedTest { id } | Request::EndSpeedTest { id } => {
                    Response::SpeedTest(Box::new(SpeedTestReport { id, ..Default::default() }))
                }
                Request::Reload => Response::Reloaded(Box::default()),
                Request::Peers => Response::Peers(Box::default()),
                Request::Invite(wish) => Response::Invited(Box::new(invited(&wish.name))),
                Request::RemovePeer { name } => Response::Removed(Box::new(RemovedPeer {
                    name,
                    public_key: None,
                    invitations: 1,
                })),
                Request::EnablePeer { name, enabled } => {
                    Response::Enabled(Box::new(enabled_peer(name, enabled)))
                }
            }));
        }
        asked
    });
    let peer = || Some("Käthes Bus & Bahn".to_owned());
    let requests = [
        Request::Scheduling { peer: None },
        Request::Scheduling { peer: peer() },
        Request::SetScheduling { peer: None, scheduling: scheduling.clone() },
        Request::SetScheduling { peer: peer(), scheduling: scheduling.clone() },
        Request::Flows { peer: None, limit: 0 },
        Request::Flows { peer: peer(), limit: MAX_FLOWS },
        Request::Peers,
        Request::Invite(InviteWish {
            name: "Käthes Bus".to_owned(),
            again: true,
            lifetime_s: 60,
            addresses: vec!["vps.example.org".to_owned()],
        }),
        Request::RemovePeer { name: "a b&c=d/?".to_owned() },
        Request::EnablePeer { name: "a b&c=d/?".to_owned(), enabled: false },
        Request::ChangeLink(LinkChange {
            name: "wlan0".to_owned(),
            values: [("max_up".to_owned(), "5 Mbit/s".to_owned())].into(),
        }),
        Request::Forwards,
        Request::Devices,
        Request::LimitDevice(DeviceLimitChange {
            device: DeviceSelector::from_text("Kids-Tablet").unwrap(),
            down: Some("5 Mbit/s".to_owned()),
            up: None,
        }),
        Request::Routes,
        Request::ChangeRoutes(RoutesChange {
            side: Side::Outside,
            add: ["app:fire-fox", "10.0.0.0/8"]
                .map(|text| Selector::from_text(text).unwrap())
                .into(),
            remove: vec![Selector::Domain("example.org".to_owned())],
        }),
        Request::History(HistoryQuery::default()),
        Request::History(HistoryQuery {
            since_s: 3600,
            points: 60,
            events: 0,
            link: Some("Käthes LTE & more".to_owned()),
        }),
        Request::Proxies,
        Request::UseProxy { name: "Zürich, rack 3 & more".to_owned() },
        Request::StartSpeedTest(SpeedTestWish {
            links: vec!["wlan0".to_owned()],
            seconds: 10,
            down: true,
            up: false,
            max_bytes: Some(50_000_000),
            metered: true,
        }),
        Request::SpeedTest { id: u64::MAX },
        Request::EndSpeedTest { id: 7 },
        Request::Reload,
    ];
    let answers: Vec<_> =
        requests.iter().map(|request| call_blocking(&socket, request).unwrap()).collect();
    assert_eq!(answers[1], Response::Scheduling(Box::default()));
    assert_eq!(answers[3], Response::Scheduling(scheduling));
    assert_eq!(answers[5], Response::Flows(Box::default()));
    assert_eq!(answers[7], Response::Invited(Box::new(invited("Käthes Bus"))));
    let disabled = enabled_peer("a b&c=d/?".to_owned(), false);
    assert_eq!(answers[9], Response::Enabled(Box::new(disabled)));
    let plain = raw(&socket, b"GET /v1/flows HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(plain.starts_with("HTTP/1.1 200"), "{plain}");
    drop(server);
    let mut expected = requests.to_vec();
    expected.push(Request::Flows { peer: None, limit: DEFAULT_FLOWS });
    assert_eq!(daemon.join().unwrap(), expected);
}

#[test]
fn something_else_behind_the_socket_is_not_understood() {
    let cases = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "missing field `version`"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"version\":2}", "version 2"),
        ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", "HTTP status 500"),
        ("SSH-2.0-OpenSSH\r\n", "invalid HTTP"),
        ("", "connection"),
    ];
    for (reply, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("x.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(reply.as_bytes()).unwrap();
        });
        let error = call_blocking(&socket, &Request::Status).unwrap_err().to_string();
        assert!(error.contains(expected), "{reply:?}: {error}");
        other.join().unwrap();
    }
}

fn options(socket: &Path) -> Options {
    let access = Access::of_ids(geteuid().as_raw(), Some(getegid().as_raw()));
    Options { socket: socket.to_path_buf(), access, web: None }
}

/// A daemon that answers every command alike until the server ends.
fn answer(
    mut commands: mpsc::Receiver<Command>,
    mut reply: impl FnMut() -> Result<Response, ApiError> + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(command) = commands.blocking_recv() {
            assert_eq!(command.request, Request::Status);
            command.answer(reply());
        }
    })
}

fn raw(socket: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    // A refusal may come, and the socket close, before all of a long request is written.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn enabled_peer(name: String, enabled: bool) -> EnabledPeer {
    EnabledPeer { name, public_key: PublicKey::from_bytes([7; 32]), enabled, changed: true }
}

fn invited(name: &str) -> Invited {
    Invited {
        name: name.to_owned(),
        invitation: "ropewalk:a".to_owned(),
        expires: 1,
        addresses: Vec::new(),
        proxy_public_key: PublicKey::from_bytes([7; 32]),
        replaces: None,
        notes: Vec::new(),
    }
}

fn status() -> StatusReport {
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus {
            role: Role::Client,
            program_version: "0.1.0".to_owned(),
            pid: 7,
            uptime_s: 1.5,
            warnings: vec!["a warning".to_owned()],
            offload: None,
            kill_switch: None,
            sandbox: None,
            history: None,
        },
        tunnels: Vec::new(),
        drops: [("not authentic".to_owned(), 3)].into(),
        proxy: None,
        rules: Vec::new(),
        proxies: None,
    }
}
