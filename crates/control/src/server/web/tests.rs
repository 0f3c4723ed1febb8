//! The page's port, asked by hand.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use ropewalk_settings::{DeviceSelector, MacAddress};
use tokio::sync::mpsc;

use super::*;
use crate::api::{DeviceLimitStatus, DeviceStatus};
use crate::server::{Access, Command, Options, Server};

const STATUS: &str = include_str!("../../../tests/status/client.json");

#[test]
fn page_numbers_and_status_are_there_for_this_machine() {
    let lab = Lab::start();
    let cases = [
        ("/", "text/html; charset=utf-8", "<title>Ropewalk</title>"),
        (
            "/metrics",
            "text/plain; version=0.0.4; charset=utf-8",
            "\nropewalk_link_sent_bytes_total{link=\"wlan\"} 9000000\n",
        ),
        ("/v1/status", "application/json", "\"name\":\"wwan0\""),
        ("/v1/recent", "application/json", "\"tunnels\":{}"),
        ("/v1/history", "application/json", "\"step_s\":86400"),
        ("/v1/history?since=3600&events=5", "application/json", "\"step_s\":3600"),
        ("/v1/why", "application/json", "\"factor\":"),
        ("/v1/devices", "application/json", "\"name\":\"kids-tablet\""),
    ];
    for (path, kind, text) in cases {
        let answer = lab.get(path, &lab.address.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(answer.contains(&format!("content-type: {kind}\r\n")), "{path}: {answer}");
        assert!(answer.contains(text), "{path}: {answer}");
    }
    let devices = lab.get("/v1/devices", "localhost");
    assert!(devices.contains("192.168.77.20") && !devices.contains("52:54:00"), "{devices}");
    let missing = lab.get("/v1/scheduling", "localhost");
    assert!(missing.starts_with("HTTP/1.1 404"), "what changes things is not served: {missing}");
    lab.end();
}

#[test]
fn only_names_of_this_machine_are_answered() {
    let lab = Lab::start();
    let good =
        ["localhost", "LocalHost:8080", "127.0.0.1", "127.1.2.3:9586", "[::1]", "[::1]:9586"];
    for host in good {
        let answer = lab.get("/v1/status", host);
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    let asked = lab.asked();
    let bad = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:9586",
        "evil@localhost",
        "192.168.1.5",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "",
        "localhost, evil",
    ];
    for host in bad {
        let answer = lab.get("/v1/status", host);
        assert!(answer.starts_with("HTTP/1.1 4"), "{host}: {answer}");
        assert!(!answer.contains("wwan0"), "{host}: {answer}");
    }
    let others = [
        "GET /v1/status HTTP/1.1\r\n\r\n",
        "GET /v1/status HTTP/1.0\r\n\r\n",
        "GET /v1/status HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
        "GET http://evil.example/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    for request in others {
        let answer = lab.raw(request);
        assert!(!answer.contains("wwan0"), "{request}: {answer}");
    }
    assert_eq!(lab.asked(), asked, "the daemon heard of none of them");
    lab.end();
}

#[test]
fn connections_that_say_nothing_make_room_for_those_that_ask() {
    let lab = Lab::start();
    let idle: Vec<_> = (0..200).map(|_| TcpStream::connect(lab.address).unwrap()).collect();
    let started = Instant::now();
    let answer = lab.get("/v1/status", "localhost");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(started.elapsed() < Duration::from_secs(2), "it took {:?}", started.elapsed());
    drop(idle);
    lab.end();
}

#[test]
fn browsers_are_told_to_load_nothing_else_and_to_show_it_to_nobody() {
    let lab = Lab::start();
    for (path, host) in
        [("/", "localhost"), ("/v1/status", "localhost"), ("/nothing", "evil.example")]
    {
        let answer = lab.get(path, host);
        let expected = [
            "content-security-policy: default-src 'none'; script-src 'sha256-",
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
            "x-content-type-options: nosniff\r\n",
            "x-frame-options: DENY\r\n",
            "referrer-policy: no-referrer\r\n",
            "cross-origin-resource-policy: same-origin\r\n",
            "cache-control: no-store\r\n",
        ];
        for header in expected {
            assert!(answer.contains(header), "{path}: no {header} in {answer}");
        }
        let head = answer.split("\r\n\r\n").next().unwrap();
        assert!(!head.contains("unsafe") && !head.contains("access-control"), "{head}");
    }
    lab.end();
}

#[test]
fn the_page_names_no_other_place_and_needs_no_inline_handler() {
    assert_eq!(PAGE.matches("<script").count(), 1);
    assert_eq!(PAGE.matches("<style").count(), 1);
    let script = inside(&PAGE, "script");
    assert!(!script.is_empty() && !inside(&PAGE, "style").is_empty());
    // Its parts are in it.
    assert!(script.contains("/v1/history?") && script.contains("/v1/why"));
    assert!(script.contains("/v1/devices") && !script.contains(".js\n"), "a part is missing");
    assert!(script.contains("link.carried"), "as the terminal has it");
    assert!(script.contains("copies.over_budget"), "as the terminal has it");
    // The name of a vocabulary, which nobody asks for.
    let without_names = PAGE.replace("http://www.w3.org/2000/svg", "");
    for word in [
        "http:",
        "https:",
        "//cdn",
        "src=",
        "@import",
        "url(",
        "onclick",
        " style=",
        "innerHTML",
        "eval(",
    ] {
        assert!(!without_names.contains(word), "{word}");
    }
}

#[test]
fn nothing_is_changed_here() {
    let lab = Lab::start();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for path in ["/", "/metrics", "/v1/status", "/v1/history", "/v1/why", "/v1/devices"] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
            let answer = lab.raw(&request);
            assert!(answer.starts_with("HTTP/1.1 405"), "{method} {path}: {answer}");
        }
    }
    assert_eq!(lab.asked(), 0);
    lab.end();
}

#[test]
fn however_many_ask_the_daemon_is_asked_four_times_a_second_at_most() {
    let lab = Lab::start();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for path in ["/v1/status", "/metrics"].iter().cycle().take(20) {
                    assert!(lab.get(path, "localhost").starts_with("HTTP/1.1 200"));
                }
            });
        }
    });
    let most = 1 + started.elapsed().as_millis() / LEAST_AGE.as_millis();
    assert!((lab.asked() as u128) <= most, "{} in {:?}", lab.asked(), started.elapsed());
    lab.end();
}

#[test]
fn the_past_is_asked_for_four_times_a_second_at_most_and_only_as_it_can_be() {
    let lab = Lab::start();
    let wrong = lab.get("/v1/history?since=1", "localhost");
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("from 60 to"), "{wrong}");
    let unknown = lab.get("/v1/history?link=lost", "localhost");
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
    assert!(unknown.contains("nothing is known of a link `lost`"), "{unknown}");
    assert_eq!(lab.asked(), 1);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let lab = &lab;
            scope.spawn(move || {
                for n in 0..2 {
                    let path = format!("/v1/history?since={}", 3600 + reader * 100 + n);
                    assert!(lab.get(&path, "localhost").starts_with("HTTP/1.1 200"));
                }
            });
        }
    });
    let most = 2 + started.elapsed().as_millis() / LEAST_AGE.as_millis();
    assert!((lab.asked() as u128) <= most, "{} in {:?}", lab.asked(), started.elapsed());
    // The same question has the same answer for a while.
    let before = lab.asked();
    for _ in 0..5 {
        lab.get("/v1/history?since=7777", "localhost");
    }
    // One of them, and perhaps a look of the page's own.
    assert!(lab.asked() - before <= 2, "{}", lab.asked() - before);
    lab.end();
}

#[test]
fn idle_connections_leave_the_control_socket_alone() {
    let lab = Lab::start();
    // More than there are places for: they say nothing and hold on.
    let idle: Vec<_> =
        (0..2 * PLACES.others).map(|_| TcpStream::connect(lab.address).unwrap()).collect();
    let answer = crate::client::call_blocking(&lab.socket, &Request::Status);
    assert!(matches!(answer, Ok(Response::Status(_))), "{answer:?}");
    drop(idle);
    assert!(lab.get("/v1/status", "localhost").starts_with("HTTP/1.1 200"), "there is room again");
    lab.end();
}

#[test]
fn a_port_that_is_taken_is_named_and_the_control_socket_is_not_left_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let access = Access::of_ids(0, None);
    let error =
        Server::start(Options { socket: socket.clone(), access, web: Some(address) }).unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(!socket.exists());
}

/// A server whose daemon counts how often it was asked.
struct Lab {
    server: Server,
    daemon: JoinHandle<()>,
    asked: Arc<AtomicUsize>,
    address: SocketAddr,
    socket: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Lab {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("client.sock");
        let access = Access::new(None).expect("no group to look up");
        let web = Some(([127, 0, 0, 1], 0).into());
        let options = Options { socket: socket.clone(), access, web };
        let (server, commands) = Server::start(options).expect("the server starts");
        let address = server.web_address().expect("the page is served");
        let asked = Arc::new(AtomicUsize::new(0));
        let daemon = daemon(commands, Arc::clone(&asked));
        Self { server, daemon, asked, address, socket, _folder: folder }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn get(&self, path: &str, host: &str) -> String {
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
    }

    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the page's port is open");
        stream.write_all(request.as_bytes()).expect("it takes a request");
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn end(self) {
        drop(self.server);
        self.daemon.join().expect("the daemon ends");
    }
}

fn daemon(mut commands: mpsc::Receiver<Command>, asked: Arc<AtomicUsize>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(command) = commands.blocking_recv() {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = match &command.request {
                Request::History(HistoryQuery { link: Some(link), .. }) => {
                    let message = format!("nothing is known of a link `{link}`");
                    Err(ApiError::new(ErrorCode::NotFound, message))
                }
                Request::History(query) => {
                    let report = HistoryReport { step_s: query.since_s, ..Default::default() };
                    Ok(Response::History(Box::new(report)))
                }
                Request::Devices => Ok(Response::Devices(Box::new(devices()))),
                _ => {
                    let report = serde_json::from_str(STATUS).expect("a status document");
                    Ok(Response::Status(Box::new(report)))
                }
            };
            command.answer(answer);
        }
    })
}

/// One device behind the client, with a limit by its hardware address.
fn devices() -> DevicesReport {
    let mac = MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    let limit = DeviceLimitStatus {
        device: Some(DeviceSelector::Mac(mac)),
        down_bps: Some(5_000_000),
        up_bps: None,
    };
    let device = DeviceStatus {
        name: Some("kids-tablet".to_owned()),
        mac: Some(mac),
        addresses: vec![[192, 168, 77, 20].into()],
        limit: Some(limit),
        ..DeviceStatus::default()
    };
    DevicesReport { devices: vec![device], ..DevicesReport::default() }
}
