//! `ropewalk speedtest`: have the client test its links, and show meanwhile how far it is.
//!
//! The test goes on for as long as this program asks: however that ends, nothing is sent any more some seconds later.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{Request, SpeedTestState, SpeedTestWish};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::ask;
use crate::args::Speedtest;
use crate::exit::{Failure, print};
use crate::live::Live;
use crate::render;

/// How often it is asked for.
const EVERY: Duration = Duration::from_millis(250);

/// Tests, and prints what was found; a signal ends it, and what was found by then is printed.
pub(crate) fn run(test: &Speedtest) -> Result<(), Failure> {
    // Only a client has links of its own.
    let socket = test.daemon.socket.as_deref().unwrap_or(Path::new(CLIENT_SOCKET));
    let told_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&told_to_end))
            .context("cannot listen to signals")?;
    }
    let mut report = ask::speed_test(socket, &Request::StartSpeedTest(wish(test)))?;
    let mut live = Live::start();
    while report.state == SpeedTestState::Running {
        if let Some(progress) = &report.phase {
            live.show(|| render::speed_progress(progress));
        }
        thread::sleep(EVERY);
        let id = report.id;
        let request = match told_to_end.load(Ordering::Relaxed) {
            true => Request::EndSpeedTest { id },
            false => Request::SpeedTest { id },
        };
        report = ask::speed_test(socket, &request)?;
    }
    drop(live);
    if test.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        print(&(json + "\n"))?;
    } else {
        print(&render::speed_test(&report, render::columns()))?;
    }
    match report.trouble {
        None => Ok(()),
        Some(why) => Err(Failure::Failed(anyhow::anyhow!("the test ended early: {why}"))),
    }
}

fn wish(test: &Speedtest) -> SpeedTestWish {
    let both = test.down == test.up;
    SpeedTestWish {
        links: test.links.clone(),
        seconds: test.seconds,
        down: test.down || both,
        up: test.up || both,
        max_bytes: test.max,
        metered: test.metered,
    }
}
