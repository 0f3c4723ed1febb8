//! A generated link as a file, and what it is like in a few figures.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use ropewalk_netlab::generate::summary::Summary;
use ropewalk_netlab::generate::{Direction, Draw};
use ropewalk_netlab::trace::Trace;

use crate::args::GenerateArgs;

/// Generates it, writes it where asked, prints the figures.
pub(crate) fn run(options: &GenerateArgs) -> Result<()> {
    let direction = if options.up { Direction::Up } else { Direction::Down };
    let length = Duration::from_secs(options.seconds.into());
    let draw = Draw { seed: options.seed, link: &options.link, direction, length };
    let generated = options.kind.generate(&draw)?;
    if let Some(path) = &options.out {
        write(path, &generated.trace)
            .with_context(|| format!("cannot write the trace {}", path.display()))?;
    }
    let s = Summary::of(&generated.trace);
    println!(
        "{}, {} s, seed {}: mean {:.2} Mbit/s, p5 {:.2}, p95 {:.2}, max {:.2}; {} s below 0.1 Mbit/s",
        options.kind,
        s.seconds,
        options.seed,
        s.mean_mbit,
        s.p5_mbit,
        s.p95_mbit,
        s.max_mbit,
        s.outage_s
    );
    if !generated.delays.is_empty() {
        println!("the delay changes {} times (not part of a trace)", generated.delays.len());
    }
    Ok(())
}

fn write(path: &Path, trace: &Trace) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut encoder = GzEncoder::new(&mut file, Compression::default());
        trace.write(&mut encoder)?;
        encoder.finish()?;
    } else {
        trace.write(&mut file)?;
    }
    file.flush()
}
