//! The same bodies as `packet`, for callgrind: instructions do not depend on what else the machine does.
//! `scripts/instructions` runs it and compares with what is committed.
//!
//! Without an argument it prints the names; with one it does that work [`ROUNDS`] times, all of it within
//! `counted`, on whose name callgrind switches its count on and off.

#![expect(clippy::print_stdout, reason = "scripts/instructions reads it")]

mod bodies;

/// Enough for rare work, such as a report, to have its share.
const ROUNDS: u32 = 64;

fn main() {
    // Cargo adds `--bench`.
    let asked = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(asked) = asked else {
        for named in &bodies::ALL {
            println!("{}\t{}", named.name, named.packets * ROUNDS);
        }
        return;
    };
    let named = bodies::ALL.iter().find(|named| named.name == asked).expect("one of the names");
    let mut body = (named.build)();
    for _ in 0..ROUNDS {
        body.prepare();
        counted(&mut *body);
    }
}

#[inline(never)]
fn counted(body: &mut dyn bodies::Body) {
    body.work();
    // Keeps this call from being the last thing, which would leave no frame to count in.
    std::hint::black_box(());
}
