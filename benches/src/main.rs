//! The runner of the experiments.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to people")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ropewalk_benches::args::{Arguments, Command, Run};
use ropewalk_benches::catalogue::Catalogue;
use ropewalk_benches::error::{BadInput, Outcome};
use ropewalk_benches::plan::{Asked, Plan};
use ropewalk_benches::progress::{expected, human};
use ropewalk_benches::provenance::{Sources, hash};
use ropewalk_benches::results::Mode;
use ropewalk_benches::run::{Means, run};
use ropewalk_benches::store::{Basis, Store};
use ropewalk_benches::throughput::contender::{self, Programs};
use ropewalk_benches::throughput::run::REPETITIONS;
use ropewalk_benches::{precedence, program, report, table, throughput};
use ropewalk_netlab::cores;
use ropewalk_netlab::privilege::{enter_lab, probe};

fn main() -> ExitCode {
    match act(&Arguments::parse()) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("ropewalk-benches: {error:#}");
            Outcome::of(&error).into()
        }
    }
}

fn act(arguments: &Arguments) -> Result<Outcome> {
    let folders = Folders::new(arguments)?;
    let catalogue = Catalogue::open(&folders.scenarios, arguments.traces.as_deref())?;
    match &arguments.command {
        Command::List { json } => list(&catalogue, *json),
        Command::Run(options) => match options.names.iter().position(|one| one == throughput::NAME)
        {
            None => run_all(&catalogue, &folders, options),
            Some(place) => {
                let mut others = options.clone();
                others.names.remove(place);
                let first = match others.names.is_empty() {
                    true => Outcome::Held,
                    false => run_all(&catalogue, &folders, &others)?,
                };
                let second = run_throughput(&folders, options)?;
                Ok(if first == Outcome::Held { second } else { first })
            }
        },
        Command::Report { check } => draw(&folders, *check),
    }
}

/// Where everything is.
struct Folders {
    workspace: PathBuf,
    scenarios: PathBuf,
    peers: PathBuf,
    contenders: PathBuf,
    out: PathBuf,
    /// What the user named for `out`.
    told: Option<PathBuf>,
}

impl Folders {
    fn new(arguments: &Arguments) -> Result<Self> {
        // `cargo run` says where the package is now; a program started by itself knows where it was.
        let package = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let scenarios = arguments.scenarios.clone().unwrap_or_else(|| package.join("scenarios"));
        let told = arguments.out.clone();
        Ok(Self {
            workspace: package.parent().context("the package is in no workspace")?.to_owned(),
            scenarios,
            peers: package.join("peers.toml"),
            contenders: package.join("throughput.toml"),
            out: told.clone().unwrap_or_else(|| package.join("results")),
            told,
        })
    }

    /// What is neither sources nor results.
    fn scratch(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        target.unwrap_or_else(|| self.workspace.join("target")).join("ropewalk-benches")
    }

    /// Where results go. Quick ones do not take the place of others.
    fn results(&self, quick: bool) -> PathBuf {
        match &self.told {
            None if quick => self.scratch().join("quick"),
            _ => self.out.clone(),
        }
    }
}

fn draw(folders: &Folders, check: bool) -> Result<Outcome> {
    let drawn = report::Folders {
        results: folders.out.clone(),
        peers: folders.peers.clone(),
        // It tells of the project's own results.
        readme: folders.told.is_none().then(|| folders.workspace.join("README.md")),
    };
    let stale = if check { report::check(&drawn)? } else { report::write(&drawn)? };
    for path in &stale {
        println!("{} {}", if check { "differs:" } else { "drawn:" }, path.display());
    }
    Ok(if check && !stale.is_empty() { Outcome::Failed } else { Outcome::Held })
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn list(catalogue: &Catalogue, json: bool) -> Result<Outcome> {
    let plan = |experiment: &_, mode| {
        Plan::new(Clone::clone(experiment), Asked { mode, quick: false, seed: 1 })
    };
    let experiments = catalogue.choose(&[])?;
    let plans: Vec<[Plan; 2]> =
        experiments.iter().map(|experiment| Mode::ALL.map(|mode| plan(experiment, mode))).collect();
    if json {
        println!("{}", serde_json::to_string_pretty(&table::listed(&plans, threads()))?);
    } else {
        println!("{}", table::list(&plans, threads()));
        println!(
            "{}: how fast, at what cost, beside others; named, on the kernel only",
            throughput::NAME
        );
    }
    Ok(Outcome::Held)
}

fn run_all(catalogue: &Catalogue, folders: &Folders, options: &Run) -> Result<Outcome> {
    let mode = if options.real { Mode::Real } else { Mode::Simulated };
    let asked = Asked { mode, quick: options.quick, seed: options.seed };
    let experiments = catalogue.choose(&options.names)?;
    let plans: Vec<Plan> = experiments.into_iter().map(|one| Plan::new(one, asked)).collect();
    let own = std::env::current_exe().context("finding this program")?;
    let program = match mode {
        Mode::Simulated => None,
        // What is missing is told before the time is spent to build, which needs the network that is
        // not there within a lab.
        Mode::Real => {
            probe()?;
            let program = program::build(&folders.workspace)?;
            enter_lab()?;
            if !precedence::take() {
                eprintln!(
                    "note: runs do not come before this machine's other work, which needs root; keep it idle"
                );
            }
            cores::divide().context("dividing the cores between the emulator and the far end")?;
            Some(program)
        }
    };
    let threads = options.threads.unwrap_or_else(threads);
    say_plan(&plans, threads);
    let sources = Sources::of(&folders.workspace);
    let means = Means {
        threads,
        traces: catalogue.traces(),
        program: program.as_deref(),
        sources: &sources,
    };
    let out = folders.results(options.quick);
    let mut all = Vec::new();
    for plan in &plans {
        let mut made_of: Vec<PathBuf> = vec![own.clone(), catalogue.path(&plan.experiment.name)];
        made_of.extend(program.clone());
        let made_of: Vec<&Path> = made_of.iter().map(PathBuf::as_path).collect();
        let basis = Basis {
            name: plan.experiment.name.clone(),
            mode,
            quick: options.quick,
            seed: options.seed,
            commit: sources.commit.clone(),
            code: hash(&made_of)?,
        };
        let mut store = Store::open(&folders.scratch(), &basis, options.fresh)?;
        let results = run(plan, &mut store, &means)?;
        let path = results.write(&out)?;
        store.remove();
        if !options.json {
            println!("{}", table::results(&results));
        }
        eprintln!("written: {}", path.display());
        all.push(results);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    let mut checks = all.iter().flat_map(|results| &results.cases).flat_map(|case| &case.checks);
    Ok(if checks.all(|check| check.ok) { Outcome::Held } else { Outcome::Failed })
}

/// On the kernel whatever the mode: there is nothing of it in virtual time. Without precedence before the machine's other
/// work, which would let two ends and a generator on two cores starve each other.
fn run_throughput(folders: &Folders, options: &Run) -> Result<Outcome> {
    probe()?;
    let ropewalk = program::build(&folders.workspace)?;
    enter_lab()?;
    let mut contenders = contender::read(&folders.contenders)?;
    for name in &options.contender {
        ensure!(
            contenders.iter().any(|one| one.name == *name),
            BadInput(format!("there is no contender `{name}` in throughput.toml"))
        );
    }
    ensure!(
        options.contender.is_empty() || options.quick || folders.told.is_some(),
        BadInput("--contender needs --out DIR: figures of a few are not those of all".to_owned())
    );
    contenders.retain(|one| options.contender.is_empty() || options.contender.contains(&one.name));
    let sources = Sources::of(&folders.workspace);
    let own = std::env::current_exe().context("finding this program")?;
    let basis = Basis {
        name: throughput::NAME.to_owned(),
        mode: Mode::Real,
        quick: options.quick,
        seed: options.seed,
        commit: sources.commit.clone(),
        code: hash(&[&own, &folders.contenders, &ropewalk])?,
    };
    let mut store = Store::open(&folders.scratch(), &basis, options.fresh)?;
    let usual = if options.quick { 1 } else { REPETITIONS };
    let asked = throughput::run::Asked {
        quick: options.quick,
        repetitions: options.repetitions.map_or(usual, usize::from),
        only: options.only.clone(),
    };
    let programs = Programs { ropewalk, peers: options.peers.clone() };
    let figures = throughput::run::run(&contenders, &asked, &programs, &sources, &mut store)?;
    let path = figures.write(&folders.results(options.quick))?;
    if asked.only.is_empty() {
        store.remove();
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        println!("{}", report::throughput::checks(&figures));
    }
    eprintln!("written: {}", path.display());
    let held = figures.checks.iter().all(|check| check.ok);
    Ok(if held { Outcome::Held } else { Outcome::Failed })
}

fn say_plan(plans: &[Plan], threads: usize) {
    for plan in plans {
        let (cases, runs) = (plan.cases.len(), plan.jobs().len());
        let time = human(expected(plan, threads));
        let (name, mode) = (&plan.experiment.name, plan.asked.mode.as_str());
        eprintln!("{name}: {cases} cases, {runs} runs, {mode}, about {time}");
    }
}
