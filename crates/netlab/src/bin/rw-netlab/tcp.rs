//! TCP in virtual time beside the kernel's, as a table.

use std::process::ExitCode;

use anyhow::{Result, bail};
use ropewalk_netlab::compare::{CELLS, Cell, Row};
use ropewalk_netlab::privilege::enter_lab;
use ropewalk_netlab::stage::Progress;

use crate::args::TcpArgs;
use crate::prove::program_to_run;

/// Runs the cells chosen, in virtual time and where asked on the kernel.
pub(crate) fn run(options: &TcpArgs) -> Result<ExitCode> {
    let cells: Vec<_> = CELLS.into_iter().filter(|cell| is_chosen(cell, &options.cells)).collect();
    if cells.is_empty() {
        let names: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        bail!("no cell begins with any of {:?}; there are: {}", options.cells, names.join("; "));
    }
    let program = if options.real {
        enter_lab()?;
        Some(program_to_run(options.program.as_ref())?)
    } else {
        None
    };
    let length = options.duration.into();
    println!("{:<27} {:>9} {:>9} {:>9}", "percent of the sum", "virtual", "kernel", "points");
    for cell in cells {
        let in_virtual_time = (0..options.runs).map(|run| cell.simulate(length, run)).collect();
        let mut on_the_kernel = Vec::new();
        if let Some(program) = &program {
            for run in 0..options.runs {
                eprintln!("-- {}, run {} of {}", cell.name, run + 1, options.runs);
                on_the_kernel.push(cell.measure(length, run, program, &Silent)?);
            }
        }
        let row = Row { cell: cell.name, in_virtual_time, on_the_kernel };
        let told = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        println!(
            "{:<27} {:>9.1} {:>9} {:>9}",
            row.cell,
            row.simulated(),
            told(row.real()),
            told(row.difference())
        );
        if options.json {
            println!("{}", serde_json::to_string(&row)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_chosen(cell: &Cell, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| cell.name.starts_with(name.as_str()))
}

struct Silent;

impl Progress for Silent {
    fn say(&self, _what: &str) {}
}
