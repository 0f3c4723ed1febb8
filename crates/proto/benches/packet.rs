//! What a packet costs in each part of the core and in all of it, in time.
//!
//! `cargo bench -p ropewalk-proto --bench packet`. On a busy machine `instructions` tells more.

mod bodies;

use std::time::Duration;

use criterion::measurement::{Measurement, WallTime};
use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("packets");
    for named in bodies::ALL {
        // Built when it is its turn, and only if the filter lets it run.
        let mut body = None;
        group.sample_size(50);
        group.throughput(Throughput::Elements(named.packets.into()));
        group.bench_function(named.name, |bencher| {
            let body = body.get_or_insert_with(named.build);
            bencher.iter_custom(|rounds| {
                let mut time = Duration::ZERO;
                for _ in 0..rounds {
                    body.prepare();
                    let started = WallTime.start();
                    body.work();
                    time += WallTime.end(started);
                }
                time
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
