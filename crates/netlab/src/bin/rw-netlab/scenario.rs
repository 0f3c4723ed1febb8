//! A scenario file on the kernel or in virtual time, with its checks as a table.

use std::process::ExitCode;

use anyhow::Result;
use ropewalk_netlab::kernel_run;
use ropewalk_netlab::prove::finding::table;
use ropewalk_netlab::scenario::Scenario;
use ropewalk_netlab::stage::Progress;
use ropewalk_netlab::virtual_run;

use crate::args::ScenarioArgs;
use crate::prove::program_to_run;

/// Runs it; success only where every check held.
pub(crate) fn run(options: &ScenarioArgs) -> Result<ExitCode> {
    let scenario = Scenario::open_with(&options.file, options.traces.as_deref())?;
    let report = if options.in_virtual_time {
        virtual_run::run(&scenario)?
    } else {
        let program = program_to_run(options.program.as_ref())?;
        kernel_run::run(&scenario, &program, &Lines)?
    };
    let findings = report.findings(&scenario);
    println!("\n{}: {}\n\n{}", scenario.name, scenario.description, table(&findings));
    for trace in &report.traces {
        println!("{trace}");
    }
    if let Some(why) = &report.void {
        eprintln!("this machine was too busy to tell: {why}");
    }
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    let held = findings.iter().all(|finding| finding.ok);
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Lines;

impl Progress for Lines {
    fn say(&self, what: &str) {
        eprintln!("-- {what}");
    }
}
