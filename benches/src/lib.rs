//! Ropewalk's experiments: scenario files that run in virtual time and on the real kernel, the results of
//! both, and the tables and pictures drawn from them. `benches/README.md` says how to use it.

pub mod results;
