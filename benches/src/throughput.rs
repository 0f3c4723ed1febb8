//! How fast the machine lets a tunnel be, and what that costs: the daemons and others' between veth pairs without limits.
//!
//! Everything stands on one machine, so that figures of different machines or days say little; contenders
//! take turns within one run, and what counts is the ratio of two that followed each other.

pub mod contender;
pub mod crowd;
pub mod figures;
pub mod load;
pub mod network;
pub mod plan;
pub mod ropewalk;
pub mod run;
pub mod targets;
pub mod udp;
pub mod usage;
pub mod wireguard;

/// As it is named on the command line, and its folder of results.
pub const NAME: &str = "throughput";
