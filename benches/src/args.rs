//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::throughput::contender::Part;

/// Ropewalk's experiments, in virtual time and on the real kernel.
#[derive(Debug, Parser)]
#[command(name = "ropewalk-benches", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The folder of experiment files.
    #[arg(long, global = true, value_name = "DIR")]
    pub scenarios: Option<PathBuf>,
    /// The folder of recorded links (NAME.mm.gz); without it, links that vary are generated.
    #[arg(long, global = true, value_name = "DIR", env = "ROPEWALK_TRACES")]
    pub traces: Option<PathBuf>,
    /// The folder of results; `benches/results` if absent, and for quick runs one below `target`.
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The experiments: what each shows, how many runs it has, and how long they take.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Runs experiments and writes their results. Exit status: 0 all that had to hold did, 1 a check
    /// failed, 2 bad input, 3 it cannot run here.
    Run(Run),
    /// Draws tables and pictures from the results.
    Report {
        /// Changes nothing; exit status 1 where something is not as it would be drawn.
        #[arg(long)]
        check: bool,
    },
}

/// How to run.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// Experiments; all if none is named. `throughput`, which only the kernel has, runs when it is named.
    pub names: Vec<String>,
    /// In virtual time (the default).
    #[arg(long, conflicts_with = "real")]
    pub simulated: bool,
    /// On this machine's kernel, with the real daemons in network namespaces.
    #[arg(long)]
    pub real: bool,
    /// One short run of each case: for a look, not for figures.
    #[arg(long)]
    pub quick: bool,
    /// Prints the results as JSON.
    #[arg(long)]
    pub json: bool,
    /// What the seeds of the runs begin with.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Forgets the finished runs of an interrupted call.
    #[arg(long)]
    pub fresh: bool,
    /// Threads of simulated runs; as many as there are cores if absent.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// `throughput`: this part only; may be given again. What another call with the same programs measured of the other parts
    /// stays.
    #[arg(long, value_name = "PART", value_enum)]
    pub only: Vec<Part>,
    /// `throughput`: this contender only, by its name in throughput.toml; may be given again. With --out or --quick, so that what
    /// was measured of all stays.
    #[arg(long, value_name = "NAME")]
    pub contender: Vec<String>,
    /// `throughput`: how often each contender is measured.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub repetitions: Option<u8>,
    /// `throughput`: a folder with the programs of others, asked before the search path.
    #[arg(long, value_name = "DIR")]
    pub peers: Option<PathBuf>,
}
