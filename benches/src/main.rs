//! The runner of the experiments.

fn main() {}
