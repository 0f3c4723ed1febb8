//! The proofs of the library, one after the other, with a table of each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ropewalk_netlab::prove::{Finding, PROOFS, Proof, Trial, finding};
use serde::Serialize;

use crate::args::ProveArgs;

/// What `--json` prints for each proof.
#[derive(Serialize)]
struct Proven<'a> {
    name: &'a str,
    ok: bool,
    seconds: f64,
    /// Why it could not be run.
    error: Option<String>,
    findings: Vec<Finding>,
}

/// Prints the names and what each shows.
pub(crate) fn list() {
    for Proof { name, shows, seconds, .. } in PROOFS {
        println!("{name:<12} {seconds:>4} s  {shows}");
    }
}

/// Runs the proofs named, or all; success only where everything held.
pub(crate) fn run(options: &ProveArgs) -> Result<ExitCode> {
    let program = program_to_run(options.program.as_ref())?;
    let mut all_held = true;
    for proof in chosen(&options.names)? {
        let proven = prove(proof, &program, options);
        all_held &= proven.ok;
        println!("\n{}: {} ({:.0} s)\n", proof.name, proof.shows, proven.seconds);
        print!("{}", finding::table(&proven.findings));
        if let Some(error) = &proven.error {
            println!("  could not be run: {error}");
        }
        if options.json {
            println!("{}", serde_json::to_string(&proven)?);
        }
    }
    Ok(if all_held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The `ropewalk` told, or the one in the folder of this program.
pub(crate) fn program_to_run(told: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(program) = told {
        return Ok(program.clone());
    }
    let own = std::env::current_exe().context("finding this program")?;
    let program = own.with_file_name("ropewalk");
    if !program.is_file() {
        bail!(
            "there is no {}: build it with `cargo build --release -p ropewalk-cli`",
            program.display()
        );
    }
    Ok(program)
}

fn prove<'a>(proof: &'a Proof, program: &Path, options: &ProveArgs) -> Proven<'a> {
    let started = Instant::now();
    let say = |line: &str| eprintln!("-- {}: {line}", proof.name);
    say(proof.shows);
    let trial = Trial { program, short: options.short, runs: options.runs, say: &say };
    let outcome = (proof.run)(&trial);
    let seconds = started.elapsed().as_secs_f64();
    let (findings, error) = match outcome {
        Ok(findings) => (findings, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let ok = error.is_none() && findings.iter().all(|finding| finding.ok);
    Proven { name: proof.name, ok, seconds, error, findings }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Proof>> {
    if names.is_empty() {
        return Ok(PROOFS.iter().collect());
    }
    let find = |name: &String| {
        Proof::named(name).with_context(|| format!("there is no proof `{name}`; see --list"))
    };
    names.iter().map(find).collect()
}
