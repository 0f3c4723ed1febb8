//! The same download in virtual time and on this machine's kernel, over the same links: how far the model of
//! TCP ([`crate::tcp`]), and all that virtual time leaves out, are from what a kernel does.

use std::fmt::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use serde::Serialize;

use crate::access::Access;
use crate::address::{SERVER_V4, client_interface};
use crate::download::Curl;
use crate::emulator::Bound;
use crate::error::LabError;
use crate::http::HttpServer;
use crate::kernel_run;
use crate::lab::Towards;
use crate::network::Wire;
use crate::scenario::Scenario;
use crate::scenario_report::ScenarioReport;
use crate::stage::{CONGESTION, Progress};
use crate::stream::run_all;
use crate::tcp::{Load, TcpFlow};
use crate::topology::{Topology, TopologyConfig};
use crate::virtual_run;

/// The longest packet of a bare link, in bytes.
const MTU: u16 = 1500;
/// Runs begin at different moments against the clocks of links and timers.
const OFFSET: Duration = Duration::from_millis(13);

/// One link, alike in both directions, with a queue of 100 ms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// Its rate in Mbit/s.
    pub mbit: f64,
    /// Its round-trip time.
    pub rtt_ms: u32,
    /// The share of packets lost in each direction.
    pub loss: f64,
    /// The standard deviation of the delay of each direction.
    pub jitter_ms: u32,
    /// Whether that reorders.
    pub reorder: bool,
}

/// Links, what runs over them, and whether through a tunnel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    /// A short name: Mbit/s and round-trip time in ms of each link, and what else they do.
    pub name: &'static str,
    /// With a tunnel; else the one link is used bare.
    pub tunnel: bool,
    /// From the client in place of to it.
    pub upload: bool,
    /// The links.
    pub links: &'static [Line],
}

/// Bare links, single links through the tunnel, the scenarios A to F in which peers were measured, and an
/// upload.
pub const CELLS: [Cell; 18] = [
    bare("bare 8/10", &[line(8.0, 10)]),
    bare("bare 10/50", &[line(10.0, 50)]),
    bare("bare 2/100", &[line(2.0, 100)]),
    bare("bare 50/20", &[line(50.0, 20)]),
    bare("bare 20/40, 1 % loss", &[Line { loss: 0.01, ..line(20.0, 40) }]),
    bare("bare 50/20, jitter 5", &[Line { jitter_ms: 5, ..line(50.0, 20) }]),
    bare("bare 50/20, reordering 5", &[Line { jitter_ms: 5, reorder: true, ..line(50.0, 20) }]),
    bare("bare 50/20, reordering 20", &[Line { jitter_ms: 20, reorder: true, ..line(50.0, 20) }]),
    tunnel("single 8/10", &[line(8.0, 10)]),
    tunnel("single 10/50", &[line(10.0, 50)]),
    tunnel("single 2/100", &[line(2.0, 100)]),
    tunnel("A 5/10 + 5/10", &[line(5.0, 10), line(5.0, 10)]),
    tunnel("B 8/10 + 2/10", &[line(8.0, 10), line(2.0, 10)]),
    tunnel("C 5/10 + 5/100", &[line(5.0, 10), line(5.0, 100)]),
    tunnel("D 8/10 + 2/100", &[line(8.0, 10), line(2.0, 100)]),
    tunnel("E 40/20 + 20/50", &[line(40.0, 20), line(20.0, 50)]),
    tunnel("F 10/50 + 10/25, 1 % loss", &[line(10.0, 50), Line { loss: 0.01, ..line(10.0, 25) }]),
    Cell { upload: true, ..tunnel("D, upload", &[line(8.0, 10), line(2.0, 100)]) },
];

const fn line(mbit: f64, rtt_ms: u32) -> Line {
    Line { mbit, rtt_ms, loss: 0.0, jitter_ms: 0, reorder: false }
}

const fn bare(name: &'static str, links: &'static [Line]) -> Cell {
    Cell { name, tunnel: false, upload: false, links }
}

const fn tunnel(name: &'static str, links: &'static [Line]) -> Cell {
    Cell { name, tunnel: true, upload: false, links }
}

/// What came of one download.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// Goodput in percent of the sum of the links' rates.
    pub percent_of_sum: f64,
    /// Goodput of each second, in Mbit/s.
    pub per_second: Vec<f64>,
    /// Why nothing may be concluded from it, if so.
    pub void: Option<String>,
}

/// What came of one cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The cell.
    pub cell: &'static str,
    /// In virtual time.
    pub in_virtual_time: Vec<Run>,
    /// On the kernel; none where it was not asked.
    pub on_the_kernel: Vec<Run>,
}

impl Row {
    /// The median in virtual time, in percent of the sum.
    #[must_use]
    pub fn simulated(&self) -> f64 {
        median(&self.in_virtual_time)
    }

    /// The median on the kernel; `None` where it was not asked or could not be told.
    #[must_use]
    pub fn real(&self) -> Option<f64> {
        let sound = self.on_the_kernel.iter().any(|run| run.void.is_none());
        sound.then(|| median(&self.on_the_kernel))
    }

    /// By how many points virtual time is above the kernel.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        self.real().map(|real| self.simulated() - real)
    }
}

/// Of those that are not void.
fn median(runs: &[Run]) -> f64 {
    let sound = runs.iter().filter(|run| run.void.is_none());
    let mut values: Vec<f64> = sound.map(|run| run.percent_of_sum).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Cell {
    /// The sum of the links' rates, Mbit/s.
    #[must_use]
    pub fn sum_mbit(&self) -> f64 {
        self.links.iter().map(|line| line.mbit).sum()
    }

    /// A transfer of this length as a scenario file; each `run` is another.
    #[must_use]
    pub fn file(&self, length: Duration, run: u32) -> String {
        let (seed, start) = (run + 1, (OFFSET * run).as_secs_f64());
        let mut file = format!("name = \"{}\"\nseed = {seed}\n", self.name);
        // Writing to a string cannot fail.
        for (number, line) in self.links.iter().enumerate() {
            let Line { mbit, rtt_ms, loss, jitter_ms, reorder } = line;
            let _ = write!(
                file,
                "[[links]]\nname = \"link{number}\"\nrtt_ms = {rtt_ms}\nboth = {{ \
                 rate_mbit = {mbit:?}, queue_ms = 100, loss = {loss:?}, jitter_ms = {jitter_ms}, \
                 reorder = {reorder} }}\n"
            );
        }
        let length = length.as_secs_f64();
        let direction = if self.upload { "up" } else { "down" };
        let _ = write!(
            file,
            "[[traffic]]\nkind = \"tcp\"\ndirection = \"{direction}\"\n\
             duration_s = {length:?}\nstart_s = {start:?}\n"
        );
        file
    }

    /// Transfers for `length` in virtual time.
    ///
    /// # Panics
    /// Never: the cells are valid scenarios.
    #[must_use]
    pub fn simulate(&self, length: Duration, run: u32) -> Run {
        self.simulate_with(length, run, |config| config)
    }

    /// The same with the settings of the tunnel changed as `set` does.
    ///
    /// # Panics
    /// Never: the cells are valid scenarios.
    #[must_use]
    pub fn simulate_with(
        &self,
        length: Duration,
        run: u32,
        set: impl Fn(TunnelConfig) -> TunnelConfig,
    ) -> Run {
        let scenario = self.scenario(length, run);
        if self.tunnel {
            let report = virtual_run::run_with(&scenario, set).expect("no setting is unknown");
            return of_report(&report);
        }
        let link = &scenario.links[0];
        let (down, up) = (link.downstream.initial.clone(), link.upstream.initial.clone());
        let mut wire = Wire::new(down, up, scenario.seed);
        let start = Instant::ZERO + OFFSET * run;
        let mut flows = [TcpFlow::new(Towards::Client, Load::For(length), MTU, start)];
        run_all(&mut wire, &mut [], &mut flows, start + length);
        let [flow] = flows;
        Run {
            percent_of_sum: 100.0 * flow.mbit() / self.sum_mbit(),
            per_second: flow.per_second().mbit(whole_seconds(length)),
            void: None,
        }
    }

    /// Transfers for `length` on this machine's kernel, with the `ropewalk` at `program`.
    ///
    /// # Errors
    /// When the network or the daemons cannot be started, or a tool fails.
    pub fn measure(
        &self,
        length: Duration,
        run: u32,
        program: &Path,
        progress: &dyn Progress,
    ) -> Result<Run, LabError> {
        let scenario = self.scenario(length, run);
        if self.tunnel {
            return kernel_run::run(&scenario, program, progress).map(|report| of_report(&report));
        }
        let link = &scenario.links[0];
        let access = Access {
            upstream: link.upstream.initial.clone(),
            downstream: link.downstream.initial.clone(),
        };
        let config =
            TopologyConfig { seed: scenario.seed, ..TopologyConfig::new(vec![access.into()]) };
        let topology = Topology::build(&config)?;
        let listener = topology.server().run(|| TcpListener::bind((SERVER_V4, 80)))?;
        let listener = listener.map_err(LabError::io("the HTTP server's socket"))?;
        let server = HttpServer::serve(listener, CONGESTION)?;
        let curl = Curl { interface: Some(client_interface(0)), limit: Some(length) };
        let done = curl.download(topology.client(), &server.url(u64::MAX, 1), |_| {})?;
        let void = match topology.emulator() {
            Some(emulator) => emulator.report()?.void_because(&Bound::default()),
            None => None,
        };
        Ok(Run {
            percent_of_sum: 100.0 * done.mbit / self.sum_mbit(),
            per_second: done.per_second.mbit(whole_seconds(length)),
            void,
        })
    }

    fn scenario(&self, length: Duration, run: u32) -> Scenario {
        Scenario::parse(&self.file(length, run), Path::new("."))
            .expect("a cell is a valid scenario")
    }
}

fn of_report(report: &ScenarioReport) -> Run {
    Run {
        percent_of_sum: report.value("tcp_percent_of_sum"),
        per_second: report.per_second.get("tcp").cloned().unwrap_or_default(),
        void: report.void.clone(),
    }
}

fn whole_seconds(length: Duration) -> usize {
    usize::try_from(length.as_secs()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_runs_in_virtual_time_and_comes_near_its_limit_where_links_are_plain() {
        for cell in CELLS {
            let is_plain = |line: &Line| line.loss == 0.0 && line.jitter_ms == 0;
            let run = cell.simulate(Duration::from_secs(10), 0);
            let least = if cell.links.iter().all(is_plain) { 75.0 } else { 1.0 };
            assert!((least..97.0).contains(&run.percent_of_sum), "{}: {run:?}", cell.name);
            assert!(cell.upload || run.per_second.len() >= 9, "{}: {run:?}", cell.name);
        }
    }

    #[test]
    fn a_row_tells_the_median_of_what_is_sound() {
        let run = |percent_of_sum, void: Option<&str>| Run {
            percent_of_sum,
            per_second: Vec::new(),
            void: void.map(str::to_owned),
        };
        let row = Row {
            cell: "x",
            in_virtual_time: vec![run(80.0, None), run(90.0, None), run(85.0, None)],
            on_the_kernel: vec![run(10.0, Some("busy")), run(83.0, None)],
        };
        assert_eq!((row.simulated(), row.real(), row.difference()), (85.0, Some(83.0), Some(2.0)));
        let void = Row { on_the_kernel: vec![run(10.0, Some("busy"))], ..row };
        assert_eq!(void.difference(), None);
    }
}
