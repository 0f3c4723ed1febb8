//! What the sandbox adds to a system call: `cargo bench -p ropewalk-daemon --bench sandbox`.
//!
//! It is entered for good, so processes of their own time the calls, in turn without it and in it. The least of many rounds
//! counts, so that a machine with other work to do changes little.

#![expect(clippy::print_stdout, reason = "its result is for people")]

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use ropewalk_control::api::Role;
use ropewalk_control::config::ControlConfig;
use ropewalk_daemon::sandbox::{self, Needs};
use ropewalk_settings::Sandbox;
use rustix::io::ioctl_fionbio;
use rustix::process::getppid;

/// Processes of each kind, rounds of each of them, and calls in a round.
const TURNS: usize = 8;
const ROUNDS: u32 = 100;
const CALLS: u32 = 2_000;

/// What is timed.
const NAMES: [&str; 3] =
    ["getppid", "sendto and recvfrom, a pair", "ioctl (its arguments are looked at)"];

/// What a process that times is started with.
const KINDS: [&str; 2] = ["without", "in"];

fn main() -> anyhow::Result<()> {
    let kind = std::env::args().nth(1);
    match KINDS.iter().position(|known| kind.as_deref() == Some(*known)) {
        Some(kind) => time(Sandbox(kind == 1)),
        None => compare(),
    }
}

fn compare() -> anyhow::Result<()> {
    let mut least = [[f64::INFINITY; NAMES.len()]; KINDS.len()];
    for _ in 0..TURNS {
        for (kind, least) in KINDS.into_iter().zip(&mut least) {
            let output = Command::new(std::env::current_exe()?).arg(kind).output()?;
            let text = String::from_utf8(output.stdout)?;
            for (least, line) in least.iter_mut().zip(text.lines()) {
                *least = least.min(line.parse()?);
            }
        }
    }
    println!("nanoseconds of a call, the least of {TURNS} processes");
    let [without, within] = least;
    for ((name, without), within) in NAMES.into_iter().zip(without).zip(within) {
        println!("{name:<36} {without:>8.1} without {within:>8.1} in the sandbox");
    }
    Ok(())
}

/// Prints nanoseconds, a line for each call.
fn time(sandbox: Sandbox) -> anyhow::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let here = socket.local_addr()?;
    let folder = std::env::temp_dir();
    let socket_file = folder.join("sandbox-bench.sock");
    let control = ControlConfig { socket: socket_file, group: None, web: None };
    sandbox::enter(sandbox, &Needs::common(Role::Client, &folder.join("none.toml"), &control));
    let mut buffer = [0; 64];
    let times = [
        least(|| {
            let _ = getppid();
        }),
        least(|| drop(socket.send_to(&[0; 32], here).and_then(|_| socket.recv_from(&mut buffer)))),
        least(|| {
            let _ = ioctl_fionbio(&socket, false);
        }),
    ];
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}

/// Nanoseconds of one call.
fn least(mut call: impl FnMut()) -> f64 {
    let mut round = || {
        let started = Instant::now();
        (0..CALLS).for_each(|_| call());
        started.elapsed()
    };
    let least = (0..ROUNDS).map(|_| round()).min().unwrap_or(Duration::ZERO);
    least.as_secs_f64() * 1e9 / f64::from(CALLS)
}
