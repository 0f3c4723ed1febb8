//! The C interface without a network: what a faulty app does, the order of calls, threads, and the end.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "the test plays the app, which calls as C does")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_mobile::Code;
use ropewalk_mobile::c::*;
use serde_json::Value;

/// Longer than anything takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);

const KEY: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";

#[test]
fn a_key_pair_is_made_and_its_public_half_is_found_again() {
    let mut keys = [[0_u8; 32]; 3];
    let [secret, public, again] = &mut keys;
    let mut said = no_error();
    // SAFETY: of these and all calls here: what is pointed to is there for the call, and as long as is said.
    let codes = unsafe {
        [
            ropewalk_make_key(secret.as_mut_ptr(), 32, public.as_mut_ptr(), 32, &mut said),
            ropewalk_public_key(secret.as_ptr(), 32, again.as_mut_ptr(), 32, &mut said),
        ]
    };
    assert_eq!((codes, text(&said)), ([Code::Ok; 2], String::new()));
    assert_eq!(public, again);
    assert_ne!(secret, public);
    assert_eq!(ropewalk_interface_version(), 1);
}

#[test]
fn a_pointer_or_length_that_makes_no_sense_is_refused_by_its_name() {
    let phone = Phone::default();
    let tunnel = new(&phone, &config("127.0.0.1:9"));
    let mut key = [0_u8; 32];
    let (mut buffer, mut length) = ([0; 8], 0_usize);
    let mut error = no_error();
    let said: *mut RopewalkError = &mut error;
    let place = key.as_mut_ptr();
    let (line, odd_line) = (c"{}".as_ptr(), c"\xff".as_ptr());
    // Where no structure can be.
    let odd = std::ptr::without_provenance::<RopewalkOptions>(1);
    let mut none: *mut RopewalkTunnel = null_mut();
    let good = phone.options(&[1; 32], "{}");
    // SAFETY: it is there, and nobody else writes it when the call has returned.
    let told = |code: Code| (code, text(unsafe { &*said }));
    // SAFETY: a pointer that makes no sense is not followed.
    let table = unsafe {
        [
            ("secret_key is null", told(ropewalk_make_key(null_mut(), 32, place, 32, said))),
            ("public_key has 31 bytes", told(ropewalk_make_key(place, 32, place, 31, said))),
            ("secret_key has 0 bytes", told(ropewalk_public_key(null(), 0, place, 32, said))),
            (
                "line is null",
                told(ropewalk_read_invitation(null(), 5, null_mut(), 0, &mut length, said)),
            ),
            ("options is null", told(ropewalk_tunnel_new(null(), &mut none, said))),
            ("options is not aligned", told(ropewalk_tunnel_new(odd, &mut none, said))),
            ("tunnel is null", told(ropewalk_tunnel_new(&good, null_mut(), said))),
            ("tunnel is null", told(ropewalk_tunnel_start(null(), said))),
            ("tunnel is null", told(ropewalk_tunnel_set_tun(null(), 0, said))),
            ("tunnel is null", told(ropewalk_tunnel_set_network(null(), line, 2, said))),
            ("tunnel is null", told(ropewalk_tunnel_remove_network(null(), 1, said))),
            ("tunnel is null", told(ropewalk_tunnel_set_addresses(null(), line, 2, line, 2, said))),
            ("tunnel is null", told(ropewalk_tunnel_pause(null(), said))),
            ("tunnel is null", told(ropewalk_tunnel_resume(null(), said))),
            (
                "tunnel is null",
                told(ropewalk_tunnel_status(null(), null_mut(), 0, null_mut(), said)),
            ),
            ("tunnel is null", told(ropewalk_tunnel_stop(null(), said))),
            ("network is null", told(ropewalk_tunnel_set_network(tunnel, null(), 2, said))),
            (
                "network has 2097152 bytes",
                told(ropewalk_tunnel_set_network(tunnel, line, 2 << 20, said)),
            ),
            ("network is not UTF-8", told(ropewalk_tunnel_set_network(tunnel, odd_line, 1, said))),
            ("name is null", told(ropewalk_tunnel_set_addresses(tunnel, null(), 0, line, 2, said))),
            (
                "addresses: `{}` is no address",
                told(ropewalk_tunnel_set_addresses(tunnel, line, 2, line, 2, said)),
            ),
        ]
    };
    for (expected, (code, told)) in table {
        assert_eq!(code, Code::Argument, "{expected}: {told}");
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(none.is_null());
    // Who wants no text gets none, and an error that is not aligned is not written.
    // SAFETY: as above.
    unsafe {
        assert_eq!(ropewalk_tunnel_start(null(), null_mut()), Code::Argument);
        let odd = std::ptr::without_provenance_mut::<RopewalkError>(1);
        assert_eq!(ropewalk_tunnel_start(tunnel, odd), Code::Argument);
        assert_eq!(ropewalk_tunnel_free(null_mut(), null_mut()), Code::Ok);
    }
    // A buffer is looked at only where it has room.
    started(tunnel);
    // SAFETY: as above.
    unsafe {
        let code = ropewalk_tunnel_status(tunnel, null_mut(), 0, &mut length, said);
        assert_eq!((code, length > 100), (Code::TooSmall, true));
        assert!(text(&*said).contains("bytes are needed"), "{}", text(&*said));
        let code = ropewalk_tunnel_status(tunnel, buffer.as_mut_ptr(), 8, &mut length, said);
        assert_eq!((code, buffer), (Code::TooSmall, [0; 8]), "nothing is cut");
        let code = ropewalk_tunnel_status(tunnel, null_mut(), 1 << 20, &mut length, said);
        assert_eq!(code, Code::Argument, "no buffer");
        let code = ropewalk_tunnel_status(tunnel, buffer.as_mut_ptr(), 8, null_mut(), said);
        assert_eq!(code, Code::Argument, "nowhere to write the length");
    }
    free(tunnel);
}

#[test]
fn options_that_make_no_sense_make_no_tunnel() {
    let phone = Phone::default();
    let secret = [7; 32];
    let good = phone.options(&secret, "");
    let with = |change: &dyn Fn(&mut RopewalkOptions)| {
        let mut options = good;
        change(&mut options);
        options
    };
    let mut public = [0; 32];
    // SAFETY: both are there.
    let code =
        unsafe { ropewalk_public_key(secret.as_ptr(), 32, public.as_mut_ptr(), 32, null_mut()) };
    assert_eq!(code, Code::Ok);
    let public = ropewalk_settings::PublicKey::from_bytes(public);
    let own = format!(r#"{{"proxies": [{{"addresses": "a.example", "public_key": "{public}"}}]}}"#);
    let texts = |config: &'static str, invitation: &'static str| {
        with(&|options: &mut RopewalkOptions| {
            if !config.is_empty() {
                (options.config, options.config_length) = (config.as_ptr().cast(), config.len());
            }
            (options.invitation, options.invitation_length) =
                (invitation.as_ptr().cast(), invitation.len());
        })
    };
    let none = with(&|options: &mut RopewalkOptions| options.config = null());
    let table = [
        (with(&|options| options.size -= 8), Code::Argument, "the header of another version"),
        (
            with(&|options| options.secret_key_length = 16),
            Code::Argument,
            "secret_key has 16 bytes",
        ),
        (with(&|options| options.secret_key = null()), Code::Argument, "secret_key is null"),
        (with(&|options| options.bind_socket = None), Code::Argument, "bind_socket"),
        (with(&|options| options.on_event = None), Code::Argument, "on_event"),
        (none, Code::Argument, "neither a config nor an invitation"),
        (good, Code::Config, "EOF"),
        (phone.options(&secret, &own), Code::Config, "this client's own"),
        (texts("", "ropewalk:"), Code::Invitation, "cut off"),
        (texts("{}", "https://example.org"), Code::Invitation, "begins with `ropewalk:`"),
    ];
    for (options, code, expected) in table {
        let (mut tunnel, mut said) = (null_mut(), no_error());
        // SAFETY: they are there.
        let got = unsafe { ropewalk_tunnel_new(&options, &mut tunnel, &mut said) };
        assert_eq!(got, code, "{expected}: {}", text(&said));
        assert!(text(&said).contains(expected), "{expected}: {}", text(&said));
        assert!(tunnel.is_null(), "{expected}");
    }
}

#[test]
fn calls_come_after_the_start_and_before_the_end() {
    let phone = Phone::default();
    let tunnel = new(&phone, &config("127.0.0.1:9"));
    let network = r#"{"id": 1, "name": "wifi"}"#;
    // SAFETY: of all calls here: the tunnel lives until it is freed.
    let all = |tunnel: *mut RopewalkTunnel| unsafe {
        [
            ropewalk_tunnel_set_tun(tunnel, -1, null_mut()),
            set_network(tunnel, network),
            ropewalk_tunnel_remove_network(tunnel, 1, null_mut()),
            ropewalk_tunnel_pause(tunnel, null_mut()),
            ropewalk_tunnel_resume(tunnel, null_mut()),
            status(tunnel).0,
        ]
    };
    assert_eq!(all(tunnel), [Code::Order; 6]);
    assert!(phone.events().is_empty(), "nothing is told before the start");
    started(tunnel);
    // SAFETY: as above.
    assert_eq!(unsafe { ropewalk_tunnel_start(tunnel, null_mut()) }, Code::Order, "twice");
    assert_eq!(all(tunnel), [Code::Ok; 6]);
    // SAFETY: as above.
    for _ in 0..3 {
        assert_eq!(unsafe { ropewalk_tunnel_stop(tunnel, null_mut()) }, Code::Ok);
    }
    assert_eq!(phone.events().last().unwrap()["event"], "stopped");
    assert_eq!(phone.events().last().unwrap().get("reason"), None);
    assert_eq!(all(tunnel), [Code::Stopped; 6]);
    // SAFETY: as above.
    assert_eq!(unsafe { ropewalk_tunnel_start(tunnel, null_mut()) }, Code::Stopped);
    let told = phone.events().len();
    free(tunnel);
    assert_eq!(phone.events().len(), told, "nothing comes after the end");
    // One that never ran is freed like others.
    free(new(&phone, &config("127.0.0.1:9")));
}

#[test]
fn a_call_that_would_wait_for_itself_is_refused_in_a_callback() {
    let phone = Phone::default();
    let tunnel = new(&phone, &config("vps.example.org"));
    phone.reenters.store(tunnel, Ordering::Release);
    started(tunnel);
    phone.wait_for(|event| event["event"] == "resolve");
    let codes = phone.codes.lock().unwrap().clone();
    let expected = [
        ("stop", Code::WrongThread),
        ("free", Code::WrongThread),
        ("status", Code::WrongThread),
        ("start", Code::Order),
        ("pause", Code::Ok),
        ("resume", Code::Ok),
    ];
    assert_eq!(codes, expected);
    free(tunnel);
}

#[test]
fn names_are_looked_up_by_the_app_and_sockets_are_bound_before_anything_is_sent() {
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    proxy.set_read_timeout(Some(LONG)).unwrap();
    let port = proxy.local_addr().unwrap().port();
    let phone = Phone::default();
    let tunnel = new(&phone, &config(&format!("vps.example.org:{port}")));
    started(tunnel);
    let asked = phone.wait_for(|event| event["event"] == "resolve");
    assert_eq!(asked["names"], serde_json::json!(["vps.example.org"]));

    // The app refuses first.
    phone.answer.store(1, Ordering::Release);
    assert_eq!(set_network(tunnel, r#"{"id": 77, "name": "wifi"}"#), Code::Ok);
    assert_eq!(set_addresses(tunnel, "vps.example.org", "127.0.0.1"), Code::Ok);
    let refused = phone.wait_for(|event| event["event"] == "link");
    assert_eq!(refused["network"], 77);
    assert_eq!(refused["state"], "down");
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains("not bound to its network"), "{reason}");
    let (code, document) = status(tunnel);
    assert_eq!(code, Code::Ok);
    let link = &document["tunnels"][0]["links"][0];
    assert_eq!(link["interface"], "77", "{document:#}");
    assert_eq!(link["state"], "down", "{document:#}");

    // Then it binds, and the proxy hears of this client.
    phone.answer.store(0, Ordering::Release);
    let described = r#"{"id": 77, "name": "wifi", "metered": true, "addresses": ["127.0.0.1"]}"#;
    assert_eq!(set_network(tunnel, described), Code::Ok);
    let mut datagram = [0; 2048];
    let (length, from) = proxy.recv_from(&mut datagram).unwrap();
    assert!(length > 100, "a first message");
    let bound = phone.bound.lock().unwrap().clone();
    assert!(bound.len() >= 2 && bound.iter().all(|(fd, id)| *fd > 2 && *id == 77), "{bound:?}");
    let (_, document) = status(tunnel);
    let tunnel_status = &document["tunnels"][0];
    assert_eq!(tunnel_status["state"], "connecting");
    assert_eq!(tunnel_status["links"][0]["local"], from.to_string(), "{document:#}");
    assert_eq!(document["daemon"]["role"], "client");
    assert_eq!(document["daemon"].get("kill_switch"), None);

    // Without the network nothing is sent any more.
    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_remove_network(tunnel, 77, null_mut()) }, Code::Ok);
    phone.wait_for(|event| event["event"] == "state" && event["state"] == "idle");
    free(tunnel);
}

#[test]
fn a_paused_tunnel_sends_nothing_and_asks_at_once_when_it_goes_on() {
    let proxy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let phone = Phone::default();
    let tunnel = new(&phone, &config(&proxy.local_addr().unwrap().to_string()));
    started(tunnel);
    assert_eq!(set_network(tunnel, r#"{"id": 1, "name": "wifi"}"#), Code::Ok);
    let mut datagram = [0; 2048];
    proxy.set_read_timeout(Some(LONG)).unwrap();
    proxy.recv_from(&mut datagram).unwrap();
    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_pause(tunnel, null_mut()) }, Code::Ok);
    // It has answered after the pause began.
    assert_eq!(status(tunnel).1["tunnels"][0]["links"][0]["name"], "wifi");
    proxy.set_nonblocking(true).unwrap();
    while proxy.recv_from(&mut datagram).is_ok() {}
    // A client without an answer asks several times in this time.
    thread::sleep(Duration::from_secs(4));
    assert!(proxy.recv_from(&mut datagram).is_err(), "it was told to pause");
    proxy.set_nonblocking(false).unwrap();
    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_resume(tunnel, null_mut()) }, Code::Ok);
    proxy.recv_from(&mut datagram).unwrap();
    // One that pauses ends like others.
    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_pause(tunnel, null_mut()) }, Code::Ok);
    free(tunnel);
}

#[test]
fn a_network_on_which_udp_is_not_answered_goes_over_tls_too_and_hangs_up_while_it_pauses() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (port, tls_port) =
        (silent.local_addr().unwrap().port(), listener.local_addr().unwrap().port());
    let proxy = format!(r#"{{"addresses": ["127.0.0.1:{port}"], "public_key": "{KEY}"}}"#);
    let config = format!(r#"{{"proxies": [{proxy}], "tls_port": {tls_port}, "log": "off"}}"#);
    let phone = Phone::default();
    let tunnel = new(&phone, &config);
    started(tunnel);
    assert_eq!(set_network(tunnel, r#"{"id": 77, "name": "wifi"}"#), Code::Ok);
    let mut stream = accept(&listener);
    // What a client of HTTPS says first: a record of the handshake (RFC 8446 section 5.1).
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, [22]);
    let bound = phone.bound.lock().unwrap().clone();
    assert!(bound.len() >= 3 && bound.iter().all(|(_, id)| *id == 77), "{bound:?}");

    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_pause(tunnel, null_mut()) }, Code::Ok);
    stream.read_to_end(&mut Vec::new()).unwrap();

    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_resume(tunnel, null_mut()) }, Code::Ok);
    drop((accept(&listener), listener));
    let begun = Instant::now();
    loop {
        let (_, document) = status(tunnel);
        let reason = document["tunnels"][0]["links"][0]["reason"].as_str().unwrap_or_default();
        if reason.contains("; over TLS: ") && reason.contains(&format!(":{tls_port}")) {
            break;
        }
        assert!(begun.elapsed() < LONG, "{document:#}");
        thread::sleep(Duration::from_millis(50));
    }
    free(tunnel);
}

#[test]
fn a_descriptor_that_is_no_tun_stays_the_apps() {
    let phone = Phone::default();
    let tunnel = new(&phone, &config("127.0.0.1:9"));
    started(tunnel);
    let file = File::open("/dev/null").unwrap();
    let mut said = no_error();
    // SAFETY: the tunnel lives; the descriptor is given back, since it is none.
    let code = unsafe { ropewalk_tunnel_set_tun(tunnel, file.as_raw_fd(), &mut said) };
    assert_eq!(code, Code::Descriptor, "{}", text(&said));
    assert!(text(&said).contains("is no TUN"), "{}", text(&said));
    assert!(file.metadata().is_ok(), "it is open still");
    free(tunnel);
}

#[test]
fn any_thread_may_call_and_tunnels_know_nothing_of_each_other() {
    let phones = [Phone::default(), Phone::default()];
    let tunnels = phones.each_ref().map(|phone| new(phone, &config("127.0.0.1:9")));
    tunnels.iter().for_each(|tunnel| started(*tunnel));
    // They are not freed before all threads have ended.
    let addresses = tunnels.map(|tunnel| tunnel as usize);
    thread::scope(|scope| {
        for number in 0..8_u64 {
            scope.spawn(move || {
                for round in 0..50_usize {
                    let tunnel = addresses[round % 2] as *mut RopewalkTunnel;
                    let network = format!(r#"{{"id": {number}, "name": "n{number}"}}"#);
                    let taken = [Code::Ok, Code::Busy];
                    assert!(taken.contains(&set_network(tunnel, &network)));
                    // SAFETY: the tunnel lives.
                    let code =
                        unsafe { ropewalk_tunnel_remove_network(tunnel, number, null_mut()) };
                    assert!(taken.contains(&code));
                    assert!(taken.contains(&status(tunnel).0));
                }
            });
        }
    });
    // The first ends while several threads ask for it, and the other goes on.
    thread::scope(|scope| {
        for _ in 0..4 {
            // SAFETY: the tunnel lives.
            scope.spawn(|| unsafe {
                let tunnel = addresses[0] as *mut RopewalkTunnel;
                assert_eq!(ropewalk_tunnel_stop(tunnel, null_mut()), Code::Ok);
            });
        }
    });
    assert_eq!(status(tunnels[0]).0, Code::Stopped);
    assert_eq!(status(tunnels[1]).0, Code::Ok);
    let ended = |phone: &Phone| phone.events().iter().filter(|e| e["event"] == "stopped").count();
    assert_eq!(phones.each_ref().map(ended), [1, 0]);
    tunnels.into_iter().for_each(free);
}

/// The app: what it was told, and what it answers.
#[derive(Default)]
struct Phone {
    events: Mutex<Vec<Value>>,
    came: Condvar,
    bound: Mutex<Vec<(c_int, u64)>>,
    /// Of `bind_socket`.
    answer: AtomicI32,
    /// Calls are made in the callback for this tunnel, once.
    reenters: AtomicPtr<RopewalkTunnel>,
    codes: Mutex<Vec<(&'static str, Code)>>,
}

impl Phone {
    fn options(&self, secret: &[u8; 32], config: &str) -> RopewalkOptions {
        RopewalkOptions {
            size: size_of::<RopewalkOptions>(),
            secret_key: secret.as_ptr(),
            secret_key_length: secret.len(),
            preshared_key: null(),
            preshared_key_length: 0,
            config: config.as_ptr().cast(),
            config_length: config.len(),
            invitation: null(),
            invitation_length: 0,
            bind_socket: Some(bind_socket),
            on_event: Some(on_event),
            context: std::ptr::from_ref(self).cast_mut().cast(),
        }
    }

    fn events(&self) -> Vec<Value> {
        self.events.lock().unwrap().clone()
    }

    /// The first event like this, now or later.
    fn wait_for(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        let mut events = self.events.lock().unwrap();
        loop {
            if let Some(event) = events.iter().find(|event| is_wanted(event)) {
                return event.clone();
            }
            assert!(begun.elapsed() < LONG, "waited in vain; there were {events:#?}");
            events = self.came.wait_timeout(events, Duration::from_millis(100)).unwrap().0;
        }
    }

    /// What a callback may not do, and what it may.
    fn reenter(&self) {
        let tunnel = self.reenters.swap(null_mut(), Ordering::AcqRel);
        if tunnel.is_null() {
            return;
        }
        // SAFETY: the tunnel lives: freeing it is refused here.
        let codes = unsafe {
            [
                ("stop", ropewalk_tunnel_stop(tunnel, null_mut())),
                ("free", ropewalk_tunnel_free(tunnel, null_mut())),
                ("status", status(tunnel).0),
                ("start", ropewalk_tunnel_start(tunnel, null_mut())),
                ("pause", ropewalk_tunnel_pause(tunnel, null_mut())),
                ("resume", ropewalk_tunnel_resume(tunnel, null_mut())),
            ]
        };
        self.codes.lock().unwrap().extend(codes);
    }
}

unsafe extern "C" fn bind_socket(context: *mut c_void, socket: c_int, network: u64) -> c_int {
    // SAFETY: the phone lives longer than its tunnels.
    let phone = unsafe { &*context.cast::<Phone>() };
    phone.bound.lock().unwrap().push((socket, network));
    phone.answer.load(Ordering::Acquire)
}

unsafe extern "C" fn on_event(context: *mut c_void, event: *const c_char, length: usize) {
    // SAFETY: the same; the text has a final zero behind its length.
    let (phone, event) = unsafe { (&*context.cast::<Phone>(), CStr::from_ptr(event)) };
    assert_eq!(event.to_bytes().len(), length);
    phone.reenter();
    let event = serde_json::from_slice(event.to_bytes()).expect("JSON");
    phone.events.lock().unwrap().push(event);
    phone.came.notify_all();
}

/// The next connection.
fn accept(listener: &TcpListener) -> TcpStream {
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                return stream;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < LONG, "nobody connects");
        thread::sleep(Duration::from_millis(10));
    }
}

fn config(address: &str) -> String {
    let proxy = format!(r#"{{"addresses": ["{address}"], "public_key": "{KEY}"}}"#);
    format!(r#"{{"proxies": [{proxy}], "log": "off"}}"#)
}

fn new(phone: &Phone, config: &str) -> *mut RopewalkTunnel {
    let (mut tunnel, mut said) = (null_mut(), no_error());
    let secret = [7; 32];
    // SAFETY: all is there.
    let code =
        unsafe { ropewalk_tunnel_new(&phone.options(&secret, config), &mut tunnel, &mut said) };
    assert_eq!(code, Code::Ok, "{}", text(&said));
    tunnel
}

fn started(tunnel: *mut RopewalkTunnel) {
    // SAFETY: the tunnel lives.
    assert_eq!(unsafe { ropewalk_tunnel_start(tunnel, null_mut()) }, Code::Ok);
}

fn free(tunnel: *mut RopewalkTunnel) {
    // SAFETY: each test frees its tunnels once, and last.
    assert_eq!(unsafe { ropewalk_tunnel_free(tunnel, null_mut()) }, Code::Ok);
}

fn set_network(tunnel: *mut RopewalkTunnel, network: &str) -> Code {
    // SAFETY: the tunnel lives.
    unsafe {
        ropewalk_tunnel_set_network(tunnel, network.as_ptr().cast(), network.len(), null_mut())
    }
}

fn set_addresses(tunnel: *mut RopewalkTunnel, name: &str, addresses: &str) -> Code {
    let (name, name_length) = (name.as_ptr().cast(), name.len());
    let (addresses, length) = (addresses.as_ptr().cast(), addresses.len());
    // SAFETY: the tunnel lives.
    unsafe {
        ropewalk_tunnel_set_addresses(tunnel, name, name_length, addresses, length, null_mut())
    }
}

fn status(tunnel: *mut RopewalkTunnel) -> (Code, Value) {
    let (mut buffer, mut length) = (vec![0_u8; 1 << 17], 0);
    let place = buffer.as_mut_ptr().cast();
    // SAFETY: the tunnel lives, and the buffer is as large as is said.
    let code =
        unsafe { ropewalk_tunnel_status(tunnel, place, buffer.len(), &mut length, null_mut()) };
    let document = match code {
        Code::Ok => serde_json::from_slice(&buffer[..length]).expect("JSON"),
        _ => Value::Null,
    };
    (code, document)
}

fn no_error() -> RopewalkError {
    RopewalkError { code: Code::Internal, message: [1; ERROR_BYTES] }
}

fn text(error: &RopewalkError) -> String {
    // SAFETY: the library ends each text within the array.
    let text = unsafe { CStr::from_ptr(error.message.as_ptr()) };
    text.to_str().expect("UTF-8").to_owned()
}
