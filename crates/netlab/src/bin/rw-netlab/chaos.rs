//! The chaos of the library, with its progress and a table.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use ropewalk_netlab::chaos::{self, Kind, Options};
use ropewalk_netlab::stage::Progress;

use crate::args::ChaosArgs;
use crate::prove::program_to_run;

/// Prints the kinds of upheaval.
pub(crate) fn list() {
    for kind in Kind::ALL {
        let within = kind.bound().as_secs();
        let ends = if kind.may_end_connections() { "; may end connections" } else { "" };
        println!("{:<16} whole within {within:>2} s{ends}\n    {}", kind.name(), kind.what());
    }
}

/// Runs it; success only where everything was as it must be.
pub(crate) fn run(options: &ChaosArgs) -> Result<ExitCode> {
    let program = program_to_run(options.program.as_ref())?;
    let seed = options.seed.unwrap_or_else(new_seed);
    let kinds = match options.only.as_slice() {
        [] => Kind::ALL.to_vec(),
        names => names.iter().map(|name| named(name)).collect::<Result<_>>()?,
    };
    let length = Duration::from_secs(options.seconds);
    eprintln!("-- chaos of {} s with --seed {seed}", options.seconds);
    let started = Instant::now();
    let outcome =
        chaos::run(&program, &Options { seed, length, kinds, slack: options.slack }, &Lines)?;
    println!(
        "\nchaos: {:.0} s of upheavals, seed {seed} ({:.0} s in all)\n",
        outcome.seconds,
        started.elapsed().as_secs_f64()
    );
    print!("{}", outcome.table());
    for fault in &outcome.faults {
        println!("  NOT SO: {fault}");
    }
    println!("\n  {}", if outcome.ok() { "all is well" } else { "NOT all is well" });
    if options.json {
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(if outcome.ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One that is easily written down.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_micros())
}

fn named(name: &str) -> Result<Kind> {
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    kind.with_context(|| format!("there is no upheaval `{name}`; see --list"))
}

/// A line for each round.
struct Lines;

impl Progress for Lines {
    fn say(&self, what: &str) {
        eprintln!("-- {what}");
    }
}
