//! Refuses to start a daemon without the capabilities that it needs.

use ropewalk_doctor::privilege::{Capability, complaint, effective_of};

use crate::exit::Failure;

/// Fails with the remedy if this process lacks one of these capabilities. If they cannot be read, the daemon is started, and the
/// system itself says what it refuses.
pub(crate) fn require(command: &str, needed: &[Capability]) -> Result<(), Failure> {
    let Some(effective) = effective_of("self") else { return Ok(()) };
    match complaint(command, needed, effective) {
        Some(message) => Err(Failure::Permission(message)),
        None => Ok(()),
    }
}
