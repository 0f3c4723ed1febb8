//! The demo for a person: progress while it runs, then a table.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use ropewalk_netlab::address::client_interface;
use ropewalk_netlab::demo::{LINKS, Outcome, Verdict, run as run_demo};
use ropewalk_netlab::stage::Progress;
use ropewalk_netlab::stats::mbit;

use crate::args::DemoArgs;
use crate::prove::program_to_run;

/// Runs it, and once more where an aim was not reached while this machine was late; failure where one was
/// not reached in the end. With `--json` nothing is printed after the object.
pub(crate) fn run(options: &DemoArgs) -> Result<ExitCode> {
    let program = program_to_run(options.program.as_ref())?;
    let terminal = Terminal { rewrites: std::io::stderr().is_terminal() };
    let mut outcome = run_once(&program, &terminal)?;
    let mut verdict = outcome.verdict(false);
    if verdict == Verdict::Repeat {
        eprintln!("this run says nothing about the tunnel; running once more");
        outcome = run_once(&program, &terminal)?;
        verdict = outcome.verdict(true);
    }
    if verdict == Verdict::Unknown {
        eprintln!(
            "the machine was late in both runs: what was not reached says nothing about the tunnel; run \
             it again when the machine is less busy"
        );
    }
    if options.json {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(if verdict == Verdict::Reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One run, its table, what was not reached, and whether this machine was late.
fn run_once(program: &Path, progress: &dyn Progress) -> Result<Outcome> {
    let started = Instant::now();
    let outcome = run_demo(program, progress)?;
    print_table(&outcome, started.elapsed());
    for line in outcome.shortfalls() {
        eprintln!("not reached: {line}");
    }
    if let Some(why) = &outcome.machine_late {
        eprintln!("this machine was late, so the figures may be worse than the tunnel: {why}");
    }
    Ok(outcome)
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
    row("late or dropped for order", format!("{:>6.2} %", outcome.late_percent));
    let apart = format!("the links' delays: {:.0} ms apart", outcome.delay_difference_ms);
    row("wait for order (99 % of waits)", format!("{:>6.1} ms  {apart}", outcome.wait_p99_ms));
    row("ping beside the download (median)", format!("{:>6.1} ms", outcome.ping_ms_beside));
    let arrived = if outcome.sha256_ok { "as sent (sha256)" } else { "ALTERED OR INCOMPLETE" };
    row("file", format!("       {arrived}"));
    println!("\n  took {:.0} s", took.as_secs_f64());
}

/// What is going on, on standard error: one line that is rewritten on a terminal, else one line a
/// step.
struct Terminal {
    rewrites: bool,
}

impl Progress for Terminal {
    fn say(&self, what: &str) {
        eprintln!("-- {what}");
    }

    fn show(&self, what: &str, elapsed: Duration, bytes: u64) {
        if self.rewrites {
            let rate = mbit(bytes, elapsed);
            eprint!("\r-- {what}: {:4.1} s {rate:5.2} Mbit/s\x1b[K", elapsed.as_secs_f64());
            // Progress that does not show is no harm.
            let _ = std::io::stderr().flush();
        }
    }

    fn finish(&self, what: &str) {
        if self.rewrites {
            eprint!("\r\x1b[K");
        }
        self.say(what);
    }
}
