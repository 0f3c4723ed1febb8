//! What the sandbox adds to a system call: `cargo bench -p ropewalk-daemon --bench sandbox`.
//!
//! Each is timed before and after this process enters, in turn with itself: the least of many rounds counts, so that a machine
//! with other work to do changes little.

#![expect(clippy::print_stdout, reason = "its result is for people")]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ropewalk_control::config::ControlConfig;
use ropewalk_daemon::sandbox::{self, Needs};
use ropewalk_settings::Sandbox;
use rustix::io::ioctl_fionbio;
use rustix::process::getppid;

/// Rounds, and calls in each.
const ROUNDS: u32 = 400;
const CALLS: u32 = 2_000;

fn main() -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let here = socket.local_addr()?;
    let mut buffer = [0; 64];
    let mut measure = || {
        [
            least(|| {
                let _ = getppid();
            }),
            least(|| {
                drop(socket.send_to(&[0; 32], here).and_then(|_| socket.recv_from(&mut buffer)))
            }),
            least(|| {
                let _ = ioctl_fionbio(&socket, false);
            }),
        ]
    };
    let before = measure();
    let folder = std::env::temp_dir();
    let control =
        ControlConfig { socket: folder.join("sandbox-bench.sock"), group: None, web: None };
    sandbox::enter(Sandbox::default(), &Needs::common(&folder.join("none.toml"), &control));
    let after = measure();
    let state = sandbox::status().map(|status| status.to_string()).unwrap_or_default();
    println!("sandbox: {state}; nanoseconds of a call, the least of {ROUNDS} rounds");
    let calls = ["getppid", "sendto and recvfrom, a pair", "ioctl (its arguments are looked at)"];
    for ((call, before), after) in calls.into_iter().zip(before).zip(after) {
        println!("{call:<36} {before:>8.1} before {after:>8.1} after");
    }
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
