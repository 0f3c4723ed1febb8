//! The main job: one download over two unequal links behind NAT, with the real daemons, curl, and a
//! real HTTP server whose sockets use cubic.
//!
//! First each link alone through the tunnel, then a file over both, then a UDP stream at the sum of
//! the links. Every figure is what the application sees; rates are payload, so that headers and
//! encryption count against us.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use ropewalk_settings::Bitrate;

use crate::access::Access;
use crate::address::{SERVER_V4, client_interface};
use crate::download::Download;
use crate::emulator::Bound;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::limit::{TCP_HEADERS, payload_share};
use crate::machine;
use crate::ping::Ping;
use crate::stage::{Progress, Stage};
use crate::stats::Percentiles;
use crate::status::Status;
use crate::topology::TopologyConfig;

/// The links: Mbit/s and round-trip milliseconds, NAT on each.
pub const LINKS: [(u32, u64); 2] = [(8, 10), (2, 100)];
/// What each link's queue holds.
pub const QUEUE: Duration = Duration::from_millis(100);
/// How long each link is measured alone, and the UDP stream over both.
const MEASURE: Duration = Duration::from_secs(10);
/// The file for both links: 12 MB, about 10 s.
const FILE_BYTES: u64 = 12_000_000;
const FILE_SEED: u64 = 2;
/// Longer than a file of that size could take over the better link alone.
const FILE_LIMIT: Duration = Duration::from_secs(30);
/// What the resequencer may wait beyond the difference of the links' delays: 20 ms, and for a packet that is sent again 1.25 round
/// trips of the longest link, which are 125 ms, and 25 until a report goes (docs/REPAIR.md).
const WAIT_ALLOWANCE_MS: f64 = 20.0 + 150.0;

/// How often the links' delays are looked at: some 200 times in all, so that the 99th percentile is a
/// difference that lasted, and seldom enough to take nothing from what is measured.
const WATCH: Duration = Duration::from_millis(100);

/// What must be reached, in percent of the sum or of the packets.
const TCP_AIM: f64 = 80.0;
const UDP_AIM: f64 = 90.0;
const IN_ORDER_AIM: f64 = 99.9;
/// What must not be exceeded, in percent of the packets.
pub(crate) const LATE_AIM: f64 = 0.1;

/// The result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Goodput of a download over each link alone.
    pub single_mbit: Vec<f64>,
    /// Configured sum of the links.
    pub sum_mbit: f64,
    /// Goodput of the download over both.
    pub tcp_mbit: f64,
    /// Goodput of the UDP stream over both.
    pub udp_mbit: f64,
    /// The download in percent of the sum.
    pub tcp_percent_of_sum: f64,
    /// The stream in percent of the sum.
    pub udp_percent_of_sum: f64,
    /// The most that TCP payload can have of the sum, after all headers.
    pub limit_percent: f64,
    /// UDP packets that the application received in order, of those received.
    pub in_order_percent: f64,
    /// Median round trip through the tunnel beside the download.
    pub ping_ms_beside: f64,
    /// Whether the file arrived whole.
    pub file_complete: bool,
    /// Whether it arrived whole and unaltered.
    pub sha256_ok: bool,
    /// Packets that the resequencer delivered late or dropped as duplicates, of all, in percent.
    pub late_percent: f64,
    /// 99th percentile of the time that the resequencer held a packet it held.
    pub wait_p99_ms: f64,
    /// 99th percentile of the difference of the links' one-way delays while both were in use, queues
    /// included.
    pub delay_difference_ms: f64,
    /// Why the figures may show this machine and not the tunnel; `None` where it was in time.
    pub machine_late: Option<String>,
}

/// What is to be concluded from a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every aim was reached. A late machine only takes away from the figures.
    Reached,
    /// An aim was missed, and the machine does not explain it.
    Missed,
    /// An aim was missed while the machine was late: worth another run.
    Repeat,
    /// An aim was missed while the machine was late, in the last run too.
    Unknown,
}

/// The links of the demo as a network to build.
#[must_use]
pub fn network() -> TopologyConfig {
    let wans = LINKS.map(|(mbps, rtt_ms)| {
        let rtt = Duration::from_millis(rtt_ms);
        Access::symmetric(Bitrate::from_mbps(mbps.into()), rtt, QUEUE).into()
    });
    TopologyConfig::new(wans.into())
}

/// Runs it with the `ropewalk` at `program`.
///
/// # Errors
/// When it could not be run to its end.
pub fn run(program: &Path, progress: &dyn Progress) -> Result<Outcome, LabError> {
    progress.say("building the network: client, two NAT routers, the Internet, proxy, server");
    let mut stage = Stage::build(program, &network())?;
    let (outcome, machine) = machine::watched(|| measure(&mut stage, progress));
    let outcome = outcome?;
    let bound = Bound::default();
    let machine_late = machine.late_because(stage.void_because(&bound)?, &bound);
    Ok(Outcome { machine_late, ..outcome })
}

fn measure(stage: &mut Stage, progress: &dyn Progress) -> Result<Outcome, LabError> {
    let mut single_mbit = Vec::new();
    stage.start_proxy()?;
    for (wan, (mbps, rtt)) in (0u8..).zip(LINKS) {
        let interface = client_interface(wan);
        stage.connect([wan])?;
        if wan == 0 {
            stage.check_congestion()?;
            progress.say("the tunnel is up; the server's sockets use cubic");
        }
        let what = format!("download over {interface} alone ({mbps} Mbit/s, {rtt} ms)");
        let download = stage.download(u64::MAX, 1, MEASURE, &what, progress)?;
        single_mbit.push(download.mbit);
    }

    stage.connect([0, 1])?;
    let mtu = stage.settled_mtu()?;
    let sum: u32 = LINKS.iter().map(|(mbps, _)| *mbps).sum();
    let sum_mbit = f64::from(sum);
    let stage = &*stage;
    let (((file, ping_ms_beside), udp), difference_ms) = watched(stage, || {
        let file = file(stage, progress)?;
        let what = format!("a UDP stream of {sum} Mbit/s over both links");
        progress.say(&what);
        let udp = stage.stream_down(u64::from(sum) * 1_000_000, mtu, MEASURE)?;
        progress.finish(&format!("{what}: {:.2} Mbit/s arrived", udp.mbit));
        Ok((file, udp))
    })?;

    let sha256_ok = file.complete && file.sha256 == body_sha256(FILE_BYTES, FILE_SEED);
    if !file.complete {
        let Download { bytes, message, .. } = &file;
        progress.say(&format!("the download broke off after {bytes} bytes: {message}"));
    }
    let status = stage.client_status()?;
    Ok(Outcome {
        single_mbit: single_mbit.into_iter().map(rounded).collect(),
        sum_mbit,
        tcp_mbit: rounded(file.mbit),
        udp_mbit: rounded(udp.mbit),
        tcp_percent_of_sum: rounded(100.0 * file.mbit / sum_mbit),
        udp_percent_of_sum: rounded(100.0 * udp.mbit / sum_mbit),
        limit_percent: rounded(100.0 * payload_share(mtu, TCP_HEADERS)),
        in_order_percent: rounded(udp.in_order_percent),
        ping_ms_beside: rounded(ping_ms_beside),
        file_complete: file.complete,
        sha256_ok,
        late_percent: rounded(late_percent(&status)),
        wait_p99_ms: rounded(status.resequencer("wait_p99_ms")),
        delay_difference_ms: rounded(difference_ms),
        machine_late: None,
    })
}

/// Does `work` and meanwhile watches how far apart the links' delays to the client are, queues included.
/// Returns their difference in milliseconds, from the proxy's smoothed round-trip times without the way
/// back, whose queues are empty.
fn watched<T>(
    stage: &Stage,
    work: impl FnOnce() -> Result<T, LabError>,
) -> Result<(T, f64), LabError> {
    let [near, far] = LINKS.map(|(_, rtt_ms)| Duration::from_millis(rtt_ms) / 2);
    let back_ms = far.abs_diff(near).as_secs_f64() * 1e3;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let status = stage.proxy_status()?;
                let [near, far] = [0, 1].map(|wan| status.srtt_ms(&client_interface(wan)));
                seen.push(far - near - back_ms);
                thread::sleep(WATCH);
            }
            Ok(difference_ms(&seen))
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        let seen = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((done?, seen?))
    })
}

/// How far apart the delays were, of samples at even intervals: their 99th percentile, whichever link was
/// the slower one.
///
/// Why that: a packet waits at most for as long as the links are apart *at the time*. Queues fill and
/// drain, so the difference is no constant, and nearly all waiting is done while it is large. Against the
/// 99th percentile of the waits stands the same of the differences: the median would ask for waits
/// shorter than the way of the packet waited for, and the maximum would let one outlier widen the bound.
fn difference_ms(seen: &[f64]) -> f64 {
    // What is not known yet is no time.
    let apart = seen.iter().filter_map(|ms| Duration::try_from_secs_f64(ms.abs() / 1e3).ok());
    Percentiles::of(apart.collect()).p99_ms
}

/// The file over both links, and a ping beside it.
fn file(stage: &Stage, progress: &dyn Progress) -> Result<(Download, f64), LabError> {
    let ping = Ping::new(SERVER_V4.into(), 60);
    let what = format!("a file of {} MB over both links", FILE_BYTES / 1_000_000);
    thread::scope(|scope| {
        let client = stage.topology().client();
        let pinging = scope.spawn(|| ping.run(client));
        let file = stage.download(FILE_BYTES, FILE_SEED, FILE_LIMIT, &what, progress)?;
        match pinging.join() {
            Ok(pinged) => Ok((file, pinged?.rtt.p50_ms)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// What the resequencer delivered late or dropped, in percent of all it delivered.
#[must_use]
pub fn late_percent(status: &Status) -> f64 {
    let [in_order, late, duplicate] =
        ["in_order", "late", "duplicate"].map(|figure| status.resequencer(figure));
    100.0 * (late + duplicate) / (in_order + late)
}

impl Outcome {
    /// The longest time for which the resequencer may hold 99 of 100 of the packets it holds.
    #[must_use]
    pub fn wait_aim_ms(&self) -> f64 {
        self.delay_difference_ms + WAIT_ALLOWANCE_MS
    }

    /// The best of the links alone.
    #[must_use]
    pub fn best_single_mbit(&self) -> f64 {
        self.single_mbit.iter().copied().fold(0.0, f64::max)
    }

    /// Whether the file arrived whole, but not as sent.
    fn altered(&self) -> bool {
        self.file_complete && !self.sha256_ok
    }

    /// What is to be concluded; `last` where there will be no other run. That a machine is late excuses
    /// no altered file.
    #[must_use]
    pub fn verdict(&self, last: bool) -> Verdict {
        if self.shortfalls().is_empty() {
            Verdict::Reached
        } else if self.machine_late.is_none() || self.altered() {
            Verdict::Missed
        } else if last {
            Verdict::Unknown
        } else {
            Verdict::Repeat
        }
    }

    /// What was promised and not reached, as sentences.
    #[must_use]
    pub fn shortfalls(&self) -> Vec<String> {
        let best = self.best_single_mbit();
        let aims = [
            (self.file_complete, "the file did not arrive whole".to_owned()),
            (!self.altered(), "the file arrived altered".to_owned()),
            (
                self.tcp_mbit > best,
                format!("{} Mbit/s over both, {best} over the best alone", self.tcp_mbit),
            ),
            (
                self.tcp_percent_of_sum >= TCP_AIM,
                format!("TCP {} % of the sum; the aim is {TCP_AIM} %", self.tcp_percent_of_sum),
            ),
            (
                self.udp_percent_of_sum >= UDP_AIM,
                format!("UDP {} % of the sum; the aim is {UDP_AIM} %", self.udp_percent_of_sum),
            ),
            (
                self.in_order_percent >= IN_ORDER_AIM,
                format!("{} % in order; the aim is {IN_ORDER_AIM} %", self.in_order_percent),
            ),
            (
                self.late_percent <= LATE_AIM,
                format!(
                    "{} % late or dropped by the resequencer; {LATE_AIM} % may be",
                    self.late_percent
                ),
            ),
            (
                self.wait_p99_ms <= self.wait_aim_ms(),
                format!(
                    "99 % of what waits for order waits up to {} ms; the links were {} ms apart, and \
                     {WAIT_ALLOWANCE_MS} ms more may be for what is sent again",
                    self.wait_p99_ms, self.delay_difference_ms
                ),
            ),
        ];
        aims.into_iter().filter(|(reached, _)| !reached).map(|(_, what)| what).collect()
    }
}

/// To three decimals, which is more than the measurement is good for.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached() -> Outcome {
        Outcome {
            single_mbit: vec![7.4, 1.7],
            sum_mbit: 10.0,
            tcp_mbit: 8.6,
            udp_mbit: 9.3,
            tcp_percent_of_sum: 86.0,
            udp_percent_of_sum: 93.0,
            limit_percent: 92.5,
            in_order_percent: 100.0,
            ping_ms_beside: 70.0,
            file_complete: true,
            sha256_ok: true,
            late_percent: 0.1,
            wait_p99_ms: 255.0,
            delay_difference_ms: 85.0,
            machine_late: None,
        }
    }

    #[test]
    fn each_aim_that_is_missed_is_named() {
        assert!(reached().shortfalls().is_empty());
        let missed: [(&str, Outcome); 9] = [
            ("whole", Outcome { file_complete: false, sha256_ok: false, ..reached() }),
            ("altered", Outcome { sha256_ok: false, ..reached() }),
            ("best alone", Outcome { single_mbit: vec![8.7, 1.7], ..reached() }),
            ("TCP", Outcome { tcp_percent_of_sum: 79.9, ..reached() }),
            ("UDP", Outcome { udp_percent_of_sum: 89.9, ..reached() }),
            ("in order", Outcome { in_order_percent: 99.8, ..reached() }),
            ("late or dropped", Outcome { late_percent: 0.101, ..reached() }),
            ("waits for order", Outcome { wait_p99_ms: 255.1, ..reached() }),
            ("waits for order", Outcome { wait_p99_ms: f64::NAN, ..reached() }),
        ];
        for (expected, outcome) in missed {
            let told = outcome.shortfalls();
            assert!(told.len() == 1 && told[0].contains(expected), "{expected}: {told:?}");
        }
    }

    #[test]
    fn only_a_late_machine_is_a_reason_to_repeat_and_only_once() {
        let slow = Outcome { udp_percent_of_sum: 45.586, ..reached() };
        let broken_off = Outcome { file_complete: false, sha256_ok: false, ..reached() };
        let altered = Outcome { sha256_ok: false, ..reached() };
        let late = |outcome: &Outcome| Outcome {
            machine_late: Some("an ordinary thread woke up late".to_owned()),
            ..outcome.clone()
        };
        for (outcome, first, last) in [
            (reached(), Verdict::Reached, Verdict::Reached),
            (late(&reached()), Verdict::Reached, Verdict::Reached),
            (slow.clone(), Verdict::Missed, Verdict::Missed),
            (late(&slow), Verdict::Repeat, Verdict::Unknown),
            (broken_off.clone(), Verdict::Missed, Verdict::Missed),
            (late(&broken_off), Verdict::Repeat, Verdict::Unknown),
            (altered.clone(), Verdict::Missed, Verdict::Missed),
            (late(&altered), Verdict::Missed, Verdict::Missed),
        ] {
            assert_eq!(
                [outcome.verdict(false), outcome.verdict(true)],
                [first, last],
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn links_are_as_far_apart_as_they_were_for_a_while() {
        let steady = [45.0; 200];
        assert_eq!(difference_ms(&steady), 45.0);
        let mut outlier = steady;
        outlier[7] = 300.0;
        assert_eq!(difference_ms(&outlier), 45.0);
        // 1 s of 20, with the other link behind; and a moment at which nothing is known.
        let mut queue = steady;
        queue[50..60].fill(-80.0);
        queue[0] = f64::NAN;
        assert_eq!(difference_ms(&queue), 80.0);
        assert_eq!(difference_ms(&[]), 0.0);
    }
}
