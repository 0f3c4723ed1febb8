//! Ropewalk's experiments: scenario files that run in virtual time and on the real kernel, the results of
//! both, and the tables and pictures drawn from them. `benches/README.md` says how to use it.

pub mod args;
pub mod capacity;
pub mod catalogue;
pub mod compared;
pub mod error;
pub mod experiment;
pub mod file;
pub mod link_figures;
pub mod measure;
pub mod plan;
pub mod precedence;
pub mod program;
pub mod progress;
pub mod provenance;
pub mod real;
pub mod report;
pub mod results;
pub mod run;
pub mod simulate;
pub mod store;
pub mod table;
pub mod throughput;
