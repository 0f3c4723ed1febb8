//! The `ropewalk` program.
fn main() {}
