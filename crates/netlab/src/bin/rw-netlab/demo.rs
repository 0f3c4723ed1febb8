//! The main job, on this machine: one download over two unequal links behind NAT, with the real
//! daemons, curl, and a real HTTP server whose sockets use cubic.
//!
//! First each link alone through the tunnel, then a file over both, then a UDP stream at the sum of
//! the links. Every figure is what the application sees; rates are payload, so that headers and
//! encryption count against us.

use std::io::{IsTerminal, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{SERVER_V4, client_interface};
use ropewalk_netlab::deployment::Deployment;
use ropewalk_netlab::download::{Curl, Download};
use ropewalk_netlab::emulator::Bound;
use ropewalk_netlab::http::{HttpServer, body_sha256};
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::topology::{Topology, TopologyConfig};
use ropewalk_netlab::traffic::{UdpReceived, UdpReceiver, UdpSender};
use ropewalk_proto::units::Bitrate;
use serde::Serialize;

use crate::args::DemoArgs;
use crate::prove::beside_this_program;

/// The links: Mbit/s and round-trip milliseconds, NAT on each, queues of 100 ms.
const LINKS: [(u32, u64); 2] = [(8, 10), (2, 100)];
const QUEUE: Duration = Duration::from_millis(100);
/// The congestion control of the server, read back from its sockets.
const CONGESTION: &str = "cubic";
/// How long each link is measured alone, and the UDP stream over both.
const MEASURE: Duration = Duration::from_secs(10);
/// The file for both links: 12 MB, about 10 s.
const FILE_BYTES: u64 = 12_000_000;
const FILE_SEED: u64 = 2;
/// Longer than a file of that size could take over the better link alone.
const FILE_LIMIT: Duration = Duration::from_secs(30);
/// Headers of inner IPv4 and TCP with timestamps; of inner IPv4 and UDP; and what the tunnel and
/// the outer IPv4 and UDP add to a full packet (PROTOCOL §2).
const TCP_HEADERS: u16 = 52;
const UDP_HEADERS: u16 = 28;
const TUNNEL_OVERHEAD: u16 = 60;
/// The inner MTU over two links with 1500, where the status does not say.
const USUAL_MTU: u16 = 1440;

/// What must be reached, in percent of the sum or of the packets.
const TCP_AIM: f64 = 80.0;
const UDP_AIM: f64 = 90.0;
const IN_ORDER_AIM: f64 = 99.9;

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Outcome {
    /// Goodput of a download over each link alone.
    single_mbit: Vec<f64>,
    /// Configured sum of the links.
    sum_mbit: f64,
    /// Goodput of the download over both.
    tcp_mbit: f64,
    /// Goodput of the UDP stream over both.
    udp_mbit: f64,
    tcp_percent_of_sum: f64,
    udp_percent_of_sum: f64,
    /// The most that TCP payload can have of the sum, after all headers.
    limit_percent: f64,
    /// UDP packets that the application received in order, of those received.
    in_order_percent: f64,
    /// Median round trip through the tunnel beside the download.
    ping_ms_beside: f64,
    /// Whether the file arrived unaltered.
    sha256_ok: bool,
}

/// Runs it; failure where an aim was not reached. With `--json` nothing is printed after the object.
pub(crate) fn run(options: &DemoArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let program = match &options.program {
        Some(program) => program.clone(),
        None => beside_this_program("ropewalk")?,
    };
    let progress = Progress { terminal: std::io::stderr().is_terminal() };
    progress.say("building the network: client, two NAT routers, the Internet, proxy, server");
    let mut stage = Stage::build(&program)?;
    let outcome = stage.measure(&progress)?;
    let void = stage.void_because()?;
    drop(stage);

    print_table(&outcome, started.elapsed());
    let mut failed = outcome.shortfalls();
    failed.extend(void.map(|why| format!("this machine was too busy to tell: {why}")));
    for line in &failed {
        eprintln!("not reached: {line}");
    }
    if options.json {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything that runs.
struct Stage {
    // Daemons end before their network does.
    deployment: Deployment,
    server: HttpServer,
    topology: Topology,
}

impl Stage {
    fn build(program: &Path) -> Result<Self> {
        let wans = LINKS.map(|(mbps, rtt_ms)| {
            let rtt = Duration::from_millis(rtt_ms);
            Access::symmetric(Bitrate::from_mbps(mbps.into()), rtt, QUEUE).into()
        });
        let topology = Topology::build(&TopologyConfig::new(wans.into()))?;
        let listener = topology.server().run(|| TcpListener::bind((SERVER_V4, 80)))??;
        let server = HttpServer::serve(listener, CONGESTION)?;
        let mut deployment = Deployment::prepare(&topology, program)?;
        deployment.start_proxy(&topology)?;
        Ok(Self { deployment, server, topology })
    }

    fn measure(&mut self, progress: &Progress) -> Result<Outcome> {
        let mut single_mbit = Vec::new();
        for (wan, (mbps, rtt)) in (0u8..).zip(LINKS) {
            let interface = client_interface(wan);
            self.connect([wan])?;
            if wan == 0 {
                self.check_congestion(progress)?;
            }
            let what = format!("download over {interface} alone ({mbps} Mbit/s, {rtt} ms)");
            let download = self.download(u64::MAX, 1, MEASURE, &what, progress)?;
            single_mbit.push(download.mbit);
        }

        let mtu = self.connect([0, 1])?;
        let (file, ping_ms_beside) = self.file(progress)?;
        let sum: u32 = LINKS.iter().map(|(mbps, _)| *mbps).sum();
        let sum_mbit = f64::from(sum);
        let udp = self.stream(sum, mtu, progress)?;

        let sha256_ok = file.complete && file.sha256 == body_sha256(FILE_BYTES, FILE_SEED);
        if !file.complete {
            eprintln!("the download broke off after {} bytes: {}", file.bytes, file.message);
        }
        Ok(Outcome {
            single_mbit: single_mbit.into_iter().map(rounded).collect(),
            sum_mbit,
            tcp_mbit: rounded(file.mbit),
            udp_mbit: rounded(udp.mbit),
            tcp_percent_of_sum: rounded(100.0 * file.mbit / sum_mbit),
            udp_percent_of_sum: rounded(100.0 * udp.mbit / sum_mbit),
            limit_percent: rounded(
                100.0 * f64::from(mtu - TCP_HEADERS) / f64::from(mtu + TUNNEL_OVERHEAD),
            ),
            in_order_percent: rounded(udp.in_order_percent),
            ping_ms_beside: rounded(ping_ms_beside),
            sha256_ok,
        })
    }

    /// Starts the client with these links and waits for them; returns the inner MTU.
    fn connect<const N: usize>(&mut self, wans: [u8; N]) -> Result<u16> {
        self.deployment.stop_client(0)?;
        self.deployment.set_links(0, wans);
        self.deployment.start_client(&self.topology, 0)?;
        let status = self.deployment.wait_up(0, N)?;
        let mtu = status["tunnels"][0]["inner_mtu"].as_u64().and_then(|mtu| mtu.try_into().ok());
        // Below it no IPv6 fits, and the figures made from it would mean nothing.
        Ok(mtu.filter(|mtu| *mtu >= 1280).unwrap_or(USUAL_MTU))
    }

    /// Reads back, through the tunnel, what the server's sockets use.
    fn check_congestion(&self, progress: &Progress) -> Result<()> {
        let url = self.server.url(0, 0);
        let head = ["--silent", "--max-time", "10", "--head", "--request", "GET", &url];
        let head = self.topology.client().tool("curl", &head)?;
        let used = head.lines().find_map(|line| line.strip_prefix("X-Tcp-Congestion: "));
        match used.map(str::trim) {
            Some(CONGESTION) => progress.say("the tunnel is up; the server's sockets use cubic"),
            other => bail!("the server's sockets use {other:?} and not {CONGESTION}"),
        }
        Ok(())
    }

    fn download(
        &self,
        bytes: u64,
        seed: u64,
        limit: Duration,
        what: &str,
        progress: &Progress,
    ) -> Result<Download> {
        let curl = Curl { interface: None, limit: Some(limit) };
        let started = Instant::now();
        let url = self.server.url(bytes, seed);
        let client = self.topology.client();
        let download = curl.download(client, &url, |done| progress.show(what, started, done))?;
        progress.finish(&format!("{what}: {:.2} Mbit/s", download.mbit));
        Ok(download)
    }

    /// The file over both links, and a ping beside it.
    fn file(&self, progress: &Progress) -> Result<(Download, f64)> {
        let ping = Ping::new(SERVER_V4.into(), 60);
        let what = format!("a file of {} MB over both links", FILE_BYTES / 1_000_000);
        thread::scope(|scope| {
            let pinging = scope.spawn(|| ping.run(self.topology.client()));
            let file = self.download(FILE_BYTES, FILE_SEED, FILE_LIMIT, &what, progress)?;
            let Ok(pinged) = pinging.join() else { bail!("the ping ended in a panic") };
            Ok((file, pinged?.rtt.p50_ms))
        })
    }

    /// A stream to the client in full packets of payload, as fast as the sum of the links.
    fn stream(&self, mbps: u32, mtu: u16, progress: &Progress) -> Result<UdpReceived> {
        let what = format!("a UDP stream of {mbps} Mbit/s over both links");
        progress.say(&what);
        let near = self.topology.client().run(|| UdpSocket::bind("0.0.0.0:0"))??;
        let far = self.topology.server().run(|| UdpSocket::bind((SERVER_V4, 5000)))??;
        let size = usize::from(mtu - UDP_HEADERS);
        let sender = UdpSender {
            to: None,
            bits_per_second: u64::from(mbps) * 1_000_000,
            size,
            duration: MEASURE,
        };
        let receiver = UdpReceiver {
            hello_to: Some(far.local_addr()?),
            quiet: Duration::from_secs(2),
            limit: MEASURE * 2,
        };
        let received = thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run(&far));
            let received = receiver.run(&near);
            match sending.join() {
                Ok(sent) => sent.and(received),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        progress.finish(&format!("{what}: {:.2} Mbit/s arrived", received.mbit));
        Ok(received)
    }

    fn void_because(&self) -> Result<Option<String>> {
        let Some(emulator) = self.topology.emulator() else { return Ok(None) };
        Ok(emulator.report()?.void_because(&Bound::default()))
    }
}

impl Outcome {
    /// What was promised and not reached, as sentences.
    fn shortfalls(&self) -> Vec<String> {
        let best = self.single_mbit.iter().copied().fold(0.0, f64::max);
        let aims = [
            (self.sha256_ok, "the file arrived altered or not at all".to_owned()),
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
        ];
        aims.into_iter().filter(|(reached, _)| !reached).map(|(_, what)| what).collect()
    }
}

fn print_table(outcome: &Outcome, took: Duration) {
    let row = |what: &str, value: String| println!("  {what:<42} {value}");
    println!("\nRopewalk on an emulated network (payload as the application sees it)\n");
    for ((wan, (mbps, rtt)), mbit) in (0..).zip(LINKS).zip(&outcome.single_mbit) {
        let what = format!("{} alone ({mbps} Mbit/s, {rtt} ms)", client_interface(wan));
        row(&what, format!("{mbit:>6.2} Mbit/s"));
    }
    let of_sum = |mbit: f64, percent: f64| format!("{mbit:>6.2} Mbit/s  {percent:.1} % of the sum");
    row("both, one TCP download (cubic)", of_sum(outcome.tcp_mbit, outcome.tcp_percent_of_sum));
    row("both, UDP stream", of_sum(outcome.udp_mbit, outcome.udp_percent_of_sum));
    row("most that TCP payload can have", format!("{:>6.1} % of the sum", outcome.limit_percent));
    row("UDP packets in order", format!("{:>6.2} %", outcome.in_order_percent));
    row("ping beside the download (median)", format!("{:>6.1} ms", outcome.ping_ms_beside));
    let arrived = if outcome.sha256_ok { "as sent (sha256)" } else { "ALTERED OR INCOMPLETE" };
    row("file", format!("       {arrived}"));
    println!("\n  took {:.0} s", took.as_secs_f64());
}

/// What is going on, on standard error: one line that is rewritten on a terminal, else one line a
/// step.
struct Progress {
    terminal: bool,
}

impl Progress {
    fn say(&self, what: &str) {
        eprintln!("-- {what}");
    }

    fn show(&self, what: &str, started: Instant, bytes: u64) {
        if self.terminal {
            let time = started.elapsed();
            let rate = ropewalk_netlab::stats::mbit(bytes, time);
            eprint!("\r-- {what}: {:4.1} s {rate:5.2} Mbit/s\x1b[K", time.as_secs_f64());
            // Progress that does not show is no harm.
            let _ = std::io::stderr().flush();
        }
    }

    fn finish(&self, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        self.say(what);
    }
}

/// To three decimals, which is more than the measurement is good for.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
