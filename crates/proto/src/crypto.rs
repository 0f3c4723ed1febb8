//! What is protected, and against whom.
//!
//! Against anyone on the way, who may read, alter, drop, delay, repeat and invent datagrams: the
//! content and the sender of every packet (AEAD), both ends' identities and past sessions
//! (Noise IKpsk2 with ephemeral keys, and rekeys), repetition (replay windows, timestamps), and the
//! use of a proxy to flood others (no answer is longer than its question). Not against: traffic
//! analysis (sizes, times and the clear eight bytes are visible), an attacker who drops everything,
//! and one who holds an end's private key.
//!
//! * [`aead`] seals and opens one datagram; `replay` remembers numbers; `keys` holds a session's
//!   keys over the epochs.
//! * [`handshake`] makes the first keys, [`rekey`] the following; `noise` is their common ground.
//! * [`mac`], `recent`, `limit`, [`cookie`] and [`freshness`] keep a responder cheap to ask and hard to abuse.
//!
//! Nothing here reads a clock or the system's random numbers: both are arguments.

pub mod aead;
pub mod cookie;
pub mod freshness;
pub mod handshake;
pub(crate) mod keys;
pub(crate) mod limit;
pub mod mac;
mod noise;
pub(crate) mod recent;
pub mod rekey;
pub(crate) mod replay;
mod rotating;
pub mod secret;
mod x25519;

pub use aead::{Capabilities, Cipher, CipherSet, OpenError, SealError};
pub use keys::{EpochKeys, HandshakeRole, KeyRing, Opened};
pub use secret::{DataKey, StaticSecret};
