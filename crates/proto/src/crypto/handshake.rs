//! How two ends come to share keys: one question, one answer (PROTOCOL §6).
//!
//! ```text
//! client                                                       proxy
//!   | first message: e, s, {timestamp, ciphers, wishes} ------> |  the same bytes over every link
//!   | <----------- response: e, {index, cipher, addresses, …}   |  whichever arrives first
//!   | first datagram under the keys ----------------------->    |  only now the proxy may send
//! ```
//!
//! The proxy goes through the steps in this order, from cheap to costly, and each may end in silence:
//!
//! 1. [`Responder::inspect`]: envelope and mac1 (about a microsecond). Wrong: silence. Right, but in
//!    another version: [`Responder::versions_answer`].
//! 2. `RecentFirstMessages`: a copy gets the same answer again.
//! 3. The caller's rate limit (`TokenBucket`), and where there are too many, a cookie ([`Responder::cookie_answer`]).
//! 4. [`Responder::read`]: two Diffie-Hellman operations; names the client.
//! 5. The caller's table of peers. Unknown key: silence.
//! 6. [`PendingFirst::judge`]: fresh, or [`PendingFirst::retry`].
//! 7. [`PendingFirst::accept`] or [`PendingFirst::refuse`].
//!
//! Every answer is shorter than every question. Nothing before step 7 keeps state, except the
//! client's freshness record (which exists once per known key) and the table of step 2 (bounded). The
//! caller keeps an older session of the client until an authentic datagram came under the new keys.

mod initiator;
pub mod inquiry;
mod responder;

pub use initiator::{Answer, AnswerError, Established, Initiator, InitiatorConfig};
pub use responder::{
    COOKIE_ANSWER_LEN, FirstError, FirstMessage, Inspected, OtherVersion, PendingFirst, Responder,
};

/// What both ends mix into the handshake first: the protocol's name and the clear bytes in front of
/// the mac, which makes version and index authentic.
fn prologue(head: &[u8]) -> Vec<u8> {
    [b"ropewalk handshake", head].concat()
}

#[cfg(test)]
mod tests;
