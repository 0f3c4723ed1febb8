//! First messages and answers into a client and a proxy that are cut off from each other, so that
//! whatever comes of it comes of the input.

use std::time::Duration;

use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::{Strangers, conditions, link_config, strangers};
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::mac::HelloMac;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::{
    FIRST_LEN, Hello, HelloKind, MAC_LEN, VERSION, envelope, set_mac, write_with_proof,
};
use ropewalk_settings::Keepalive;

use crate::input::Input;

/// Datagrams of one input.
const MOST: usize = 30;

/// First messages after which the proxy asks for cookies.
const FLOOD: u32 = 1100;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (mut strangers, question, answer) = asked();
    let mut flooded = false;
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let choice = input.byte();
        match choice % 8 {
            0 => into_proxy(&mut strangers, input.piece()),
            1 => into_client(&mut strangers, input.piece()),
            2 => into_client(&mut strangers, &patched(&answer, &mut input)),
            3 => into_proxy(&mut strangers, &patched(&question, &mut input)),
            // It goes on for longer than an input.
            4 if !flooded => {
                flood(&mut strangers);
                flooded = true;
            }
            5 => {
                let mut with_proof = vec![0; question.len() + MAC_LEN];
                write_with_proof(&mut with_proof, &question, &piece(&mut input));
                into_proxy(&mut strangers, &with_proof);
            }
            // What an observer can make who knows the proxy's public key.
            6 => {
                let forged = cookie(&strangers, &question, &piece(&mut input));
                into_client(&mut strangers, &forged);
            }
            // What anybody can make who knows the proxy's public key.
            _ => {
                let mut forged = patched(&question, &mut input);
                let mac = Hello::parse(&forged)
                    .map(|hello| HelloMac::new(&strangers.proxy_key).first(&hello));
                if let Ok(mac) = mac {
                    set_mac(&mut forged, &mac);
                }
                into_proxy(&mut strangers, &forged);
            }
        }
        let now = strangers.lab.now;
        strangers.lab.run_until(now + Duration::from_millis(u64::from(choice) * 4));
    }
    let stats = strangers.lab.proxy.stats();
    assert_eq!(stats.sessions, 0, "a session without the keys");
    assert!(strangers.lab.client.session().is_none(), "a session that nobody gave");
}

/// A client that has asked, its question, and the answer, which it has not got.
fn asked() -> (Strangers, Vec<u8>, Vec<u8>) {
    let mut strangers = strangers(&TunnelConfig::default(), 1);
    let lab = &mut strangers.lab;
    let cable = conditions(10.0, 20, 50);
    // Nothing comes back.
    let cut = Conditions { cut: Some(Cut::Everything), ..cable.clone() };
    let path = lab.add_link(cut.clone(), cable, 1);
    lab.record = true;
    let link = link_config("wan", path, Keepalive::Off);
    let set =
        lab.with_client(|client, now, sink| client.set_link(now, LinkKey(1), Some(link), sink));
    assert!(set.is_ok(), "one link");
    lab.run_until(Instant::from_millis(60));
    let of = |towards| {
        let found = lab.recorded.iter().find(|(direction, _, _)| *direction == towards);
        found.map(|(_, _, datagram)| datagram.clone()).expect("both have spoken")
    };
    let (question, answer) = (of(Towards::Proxy), of(Towards::Client));
    lab.recorded.clear();
    let now = lab.now;
    lab.links[0].up.handle_change(now, cut);
    (strangers, question, answer)
}

/// `original`, with at least one bit changed.
fn patched(original: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let mut patched = original.to_vec();
    for _ in 0..=input.byte() % 8 {
        let at = usize::from(input.byte()) | usize::from(input.byte() & 1) << 8;
        let len = patched.len();
        patched[at % len] ^= input.byte();
    }
    let cut = usize::from(input.byte());
    if cut > 200 {
        patched.truncate(patched.len() - (cut - 200).min(patched.len()));
    }
    if patched == original {
        patched[original.len() - 1] ^= 1;
    }
    patched
}

/// More first messages than the proxy decrypts, so that it asks for cookies.
fn flood(strangers: &mut Strangers) {
    let mac = HelloMac::new(&strangers.proxy_key);
    for number in 0..FLOOD {
        let mut forged = envelope(HelloKind::First, VERSION, SessionIndex::new(number));
        forged.resize(FIRST_LEN, 0);
        if let Ok(sum) = Hello::parse(&forged).map(|hello| mac.first(&hello)) {
            set_mac(&mut forged, &sum);
        }
        into_proxy(strangers, &forged);
    }
}

/// An answer with a cookie that nobody gave, bound to the question.
fn cookie(strangers: &Strangers, question: &[u8], cookie: &[u8; MAC_LEN]) -> Vec<u8> {
    let Ok(asked) = Hello::parse(question) else { return Vec::new() };
    let mut forged = envelope(HelloKind::Cookie, VERSION, asked.index);
    forged.extend_from_slice(cookie);
    let mac = HelloMac::new(&strangers.proxy_key);
    if let Ok(sum) = Hello::parse(&forged).map(|hello| mac.answer(&asked.mac, &hello)) {
        set_mac(&mut forged, &sum);
    }
    forged
}

fn piece(input: &mut Input<'_>) -> [u8; MAC_LEN] {
    std::array::from_fn(|_| input.byte())
}

fn into_proxy(strangers: &mut Strangers, datagram: &[u8]) {
    let lab = &mut strangers.lab;
    lab.recorded.clear();
    let path = Path { socket: SocketId(0), local: None, remote: lab.links[0].outer };
    lab.inject(Towards::Proxy, path, datagram);
    let answers = lab.recorded.iter().filter(|(towards, _, _)| *towards == Towards::Client);
    let sizes: Vec<usize> = answers.map(|(_, _, answer)| answer.len()).collect();
    assert!(sizes.len() <= 1, "one question, {} answers", sizes.len());
    assert!(sizes.iter().all(|size| *size <= datagram.len()), "{sizes:?} for {}", datagram.len());
}

fn into_client(strangers: &mut Strangers, datagram: &[u8]) {
    let path = Path { socket: SocketId(0), local: None, remote: PROXY };
    strangers.lab.inject(Towards::Client, path, datagram);
}
