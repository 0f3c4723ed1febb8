//! What tests of the host network share.

#[cfg(feature = "testing")]
pub mod testing;
