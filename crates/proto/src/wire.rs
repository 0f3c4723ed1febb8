//! What stands in datagrams: reading without trust, writing without surprise.

pub mod hello;
