//! What is measured of a contender that is up.
//!
//! | part | what runs | values |
//! | --- | --- | --- |
//! | `tcp` | iperf3, cubic, one and four connections, each way; a ping beside the single download | `gbit`, CPU seconds per GB of each end, what other processes used meanwhile |
//! | `udp` | packets of 1400 and 160 bytes at a ladder of rates, each way | packets that came, loss, CPU per packet of each end; of all rates the highest without loss |
//! | `ping` | round trips on an idle tunnel, then silence | the median, wake-ups a second of each end, what the proxy works |

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::process::Process;
use serde_json::Value;

use super::contender::{Part, Running};
use super::network::Network;
use super::udp::{Counted, Ends, Stream, Way};
use super::usage::{Usage, machine_busy};

/// Values by name.
pub type Values = BTreeMap<String, f64>;

/// A packet size of UDP, with the rates it is sent at.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    /// Bytes of the IP packet.
    pub size: usize,
    /// Thousand packets a second.
    pub rates: &'static [f64],
}

/// 1400 bytes: 0.22, 0.56, 0.92, 1.23 and 1.68 Gbit/s.
pub const FULL: Ladder = Ladder { size: 1400, rates: &[20.0, 50.0, 82.0, 110.0, 150.0] };
/// 160 bytes, a voice call's.
pub const SMALL: Ladder = Ladder { size: 160, rates: &[20.0, 50.0, 92.0, 120.0, 160.0] };

/// Fewer packets missing than this, in percent, is none: one late slot of a generator on a machine that is full.
pub const LOSSLESS_PERCENT: f64 = 0.1;

/// How long things last.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lengths {
    /// A TCP run.
    pub tcp: Duration,
    /// One rate of UDP.
    pub udp: Duration,
    /// Echoes on an idle tunnel, 10 ms apart.
    pub echoes: u32,
    /// Silence in which wake-ups are counted.
    pub silence: Duration,
}

impl Lengths {
    /// For figures, or for a look.
    #[must_use]
    pub const fn new(quick: bool) -> Self {
        if quick {
            Self {
                tcp: Duration::from_secs(2),
                udp: Duration::from_millis(700),
                echoes: 50,
                silence: Duration::from_secs(2),
            }
        } else {
            Self {
                tcp: Duration::from_secs(4),
                udp: Duration::from_millis(1500),
                echoes: 200,
                silence: Duration::from_secs(10),
            }
        }
    }
}

/// Measures one part.
///
/// # Errors
/// When a tool fails, or an end of the tunnel has ended.
pub fn measure(
    part: Part,
    running: &Running,
    network: &Network,
    lengths: Lengths,
) -> Result<Values> {
    let bench = Bench { running, network, lengths };
    let mut values = match part {
        Part::Tcp => bench.tcp(),
        Part::Udp => bench.udp(),
        Part::Ping => bench.idle(),
    }?;
    values.extend(running.notes.clone());
    Ok(values)
}

struct Bench<'a> {
    running: &'a Running,
    network: &'a Network,
    lengths: Lengths,
}

/// What both ends and the machine had used at one moment.
struct Meter {
    near: Usage,
    far: Usage,
    busy: f64,
    at: Instant,
}

/// And from one to another.
struct Used {
    near: Usage,
    far: Usage,
    /// Cores that others kept busy, generators included.
    others: f64,
    seconds: f64,
}

impl Bench<'_> {
    fn far_host(&self) -> &ropewalk_netlab::namespace::Namespace {
        if self.running.nat { &self.network.server } else { &self.network.proxy }
    }

    fn meter(&self) -> Result<Meter> {
        let of = |process: &Option<Process>| {
            process.as_ref().map_or(Ok(Usage::default()), |process| Usage::of(process.id()))
        };
        let (near, far) = (of(&self.running.near), of(&self.running.far));
        Ok(Meter {
            near: near.context("the client's end has ended")?,
            far: far.context("the proxy's end has ended")?,
            busy: machine_busy(),
            at: Instant::now(),
        })
    }

    /// What `work` made both ends use.
    fn metered<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Used)> {
        let before = self.meter()?;
        let done = work()?;
        let after = self.meter()?;
        let seconds = (after.at - before.at).as_secs_f64();
        let (near, far) = (after.near.since(before.near), after.far.since(before.far));
        let ours = (near.cpu + far.cpu).as_secs_f64();
        let others = ((after.busy - before.busy - ours) / seconds).max(0.0);
        Ok((done, Used { near, far, others, seconds }))
    }

    /// Adds what both ends used, by `per` things that passed, under these names.
    fn costs(&self, values: &mut Values, used: &Used, per: f64, (near, far): (String, String)) {
        if self.running.near.is_some() && per > 0.0 {
            values.insert(near, used.near.cpu.as_secs_f64() / per);
            values.insert(far, used.far.cpu.as_secs_f64() / per);
        }
    }

    fn tcp(&self) -> Result<Values> {
        let mut values = Values::new();
        let target = self.running.target.to_string();
        let folder = ropewalk_netlab::scratch::Scratch::create()?;
        let mut server = Process::start(
            self.far_host(),
            folder.path(),
            "iperf3",
            "iperf3",
            &["-s", "--forceflush", "-B", &target],
        )?;
        server
            .wait_for_log("listening", Duration::from_secs(10))
            .context("iperf3 does not start (apt-get install iperf3)")?;
        for connections in [1_u8, 4] {
            for way in Way::ALL {
                let name = |value: &str| format!("tcp{connections}-{}.{value}", way.as_str());
                let beside = connections == 1 && way == Way::Down;
                let (run, used) = self.metered(|| {
                    thread::scope(|scope| {
                        let pinging = beside.then(|| scope.spawn(|| self.ping_beside()));
                        let came = self
                            .iperf(connections, way, &target)
                            .with_context(|| format!("-P {connections}, {}", way.as_str()))?;
                        let pinged = pinging.map(thread::ScopedJoinHandle::join);
                        Ok((came, pinged))
                    })
                })?;
                let (came, pinged) = run;
                if let Some(pinged) = pinged {
                    let pinged = pinged.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                    values.insert("ping-beside.p50_ms".into(), pinged.rtt.p50_ms);
                    values.insert("ping-beside.p99_ms".into(), pinged.rtt.p99_ms);
                }
                values.insert(name("gbit"), came.gbit);
                values.insert(name("others_cores"), used.others);
                let per = (name("near_s_per_gb"), name("far_s_per_gb"));
                self.costs(&mut values, &used, came.gigabytes, per);
            }
        }
        Ok(values)
    }

    /// While a download of the same length runs, without its first and last moments.
    fn ping_beside(&self) -> Result<ropewalk_netlab::ping::Pinged> {
        const APART: Duration = Duration::from_millis(20);
        const EDGE: Duration = Duration::from_millis(500);
        thread::sleep(EDGE);
        let length = self.lengths.tcp.saturating_sub(2 * EDGE).as_millis() / APART.as_millis();
        let mut ping = Ping::new(self.running.target.into(), u32::try_from(length)?);
        (ping.interval, ping.patience) = (APART, EDGE);
        Ok(ping.run(&self.network.client)?)
    }

    fn iperf(&self, connections: u8, way: Way, target: &str) -> Result<Came> {
        let seconds = self.lengths.tcp.as_secs().to_string();
        let connections = connections.to_string();
        let mut words =
            vec!["-c", target, "-C", "cubic", "-t", &seconds, "-P", &connections, "--json"];
        words.extend((way == Way::Down).then_some("-R"));
        let started = Instant::now();
        loop {
            let said = self.network.client.tool("iperf3", &words);
            // The server is busy with the last connection for a moment; it says so, or resets the connection, which the
            // client calls a success with an error in its JSON.
            match said.map_err(Into::into).and_then(|text| Came::read(&text)) {
                Err(_) if started.elapsed() < Duration::from_secs(2) => {
                    thread::sleep(Duration::from_millis(200));
                }
                outcome => return outcome,
            }
        }
    }

    fn udp(&self) -> Result<Values> {
        let mut values = Values::new();
        let (near, far) = (&self.network.client, self.far_host());
        let ends = Ends::open(near, far, self.running.target)?;
        for ladder in [FULL, SMALL] {
            for way in Way::ALL {
                let mut lossless = 0.0_f64;
                for rate in ladder.rates {
                    let stream =
                        Stream { size: ladder.size, rate: rate * 1e3, length: self.lengths.udp };
                    let (counted, used) = self.metered(|| ends.run(way, stream))?;
                    let name = |value: &str| at_rate(ladder, way, *rate, value);
                    let Counted { sent, received } = counted;
                    let (sent, received) = (to_f64(sent), to_f64(received));
                    let kpps = received / self.lengths.udp.as_secs_f64() / 1e3;
                    let lost = if sent > 0.0 { 100.0 * (1.0 - received / sent) } else { 100.0 };
                    if lost < LOSSLESS_PERCENT {
                        lossless = lossless.max(kpps);
                    }
                    values.insert(name("kpps"), kpps);
                    values.insert(name("lost_percent"), lost.max(0.0));
                    let per = (name("near_us"), name("far_us"));
                    self.costs(&mut values, &used, received / 1e6, per);
                }
                let name = format!("udp{}-{}.lossless_kpps", ladder.size, way.as_str());
                values.insert(name, lossless);
            }
        }
        Ok(values)
    }

    fn idle(&self) -> Result<Values> {
        let mut ping = Ping::new(self.running.target.into(), self.lengths.echoes);
        ping.interval = Duration::from_millis(10);
        let pinged = ping.run(&self.network.client)?;
        if pinged.lost == pinged.sent {
            bail!("no echo came back from {}", self.running.target);
        }
        let ((), used) = self.metered(|| {
            thread::sleep(self.lengths.silence);
            Ok(())
        })?;
        let mut values = Values::from([("idle.p50_ms".to_owned(), pinged.rtt.p50_ms)]);
        if self.running.near.is_some() {
            values.insert("idle.near_sleeps".into(), to_f64(used.near.sleeps) / used.seconds);
            values.insert("idle.far_sleeps".into(), to_f64(used.far.sleeps) / used.seconds);
            let cores = used.far.cpu.as_secs_f64() / used.seconds;
            values.insert("idle.far_core_percent".into(), 100.0 * cores);
        }
        Ok(values)
    }
}

/// The name of a value of one rate.
#[must_use]
pub fn at_rate(ladder: Ladder, way: Way, rate: f64, value: &str) -> String {
    format!("udp{}-{}@{rate}.{value}", ladder.size, way.as_str())
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

/// What iperf3 says of what came.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Came {
    gbit: f64,
    gigabytes: f64,
}

impl Came {
    fn read(text: &str) -> Result<Self> {
        let said: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
        let received = &said["end"]["sum_received"];
        let figure = |name: &str| received[name].as_f64();
        let (Some(rate), Some(bytes)) = (figure("bits_per_second"), figure("bytes")) else {
            bail!("iperf3: {}", said["error"].as_str().unwrap_or("no figures"));
        };
        Ok(Self { gbit: rate / 1e9, gigabytes: bytes / 1e9 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_read_from_iperf3_and_its_errors_are_told() {
        let came = Came::read(
            r#"{"end": {"sum_sent": {"bytes": 1}, "sum_received": {"bytes": 5e8, "bits_per_second": 2e9}}}"#,
        );
        assert_eq!(came.unwrap(), Came { gbit: 2.0, gigabytes: 0.5 });
        let error = Came::read(r#"{"error": "unable to connect", "end": {}}"#).unwrap_err();
        assert!(error.to_string().contains("unable to connect"), "{error}");
    }

    #[test]
    fn a_rate_is_part_of_the_name_of_its_values() {
        assert_eq!(at_rate(SMALL, Way::Down, 92.0, "far_us"), "udp160-down@92.far_us");
    }
}
