//! The bodies of the fuzz targets. They panic when a rule is broken.

pub mod config;
pub mod datagram;
pub mod handshake;
pub mod hostile;
mod input;
pub mod invitation;
pub mod operations;
pub mod packets;
pub mod segments;
