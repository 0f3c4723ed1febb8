//! The Ropewalk tunnel protocol: pure state machines without I/O, clock, threads or async.
//!
//! A laptop has several thin, unequal, unreliable ways to the Internet; this crate makes one tunnel of them.
//! The driver (crate `ropewalk-link-io`, or a simulator) owns sockets, TUN and clock and calls the core;
//! the same core runs in the daemons, in virtual time and under a fuzzer.
//!
//! # Words
//!
//! * **tunnel**: the whole bond between one client and the proxy.
//! * **link**: one of its UDP paths; one physical interface of the client.
//! * **path**: the local socket and remote address that a link uses at present.
//! * **session**: the keys and the state that the two ends share.
//! * **packet**: an inner IP packet, from or to a TUN.
//! * **datagram**: the payload of an outer UDP packet.
//! * **frame**: a part of a datagram that is not a lone packet.
//! * **report**: the receiver's feedback about a link.
//! * **global number**: the order of packets over all links. **local number**: the order of
//!   datagrams on one link.
//! * **downstream**: proxy to client. **upstream**: client to proxy.
//!
//! # Driving it
//!
//! Everything that comes in is a `handle_*` call; everything that is ready is asked for with `poll_*`. Time
//! and randomness are arguments.
//!
//! 1. Datagrams that came: `handle_datagram` for each, then `end_of_batch`.
//! 2. Packets from the TUN: `handle_packet` for each.
//! 3. If the timer is due: `handle_timeout`.
//! 4. `poll_transmit` until it leaves room in the batch; flush the batch.
//! 5. `poll_event` until there is none.
//! 6. Arm one timer with `poll_timeout`; wait for any of these.

pub mod client;
pub mod config;
pub mod congestion;
pub mod crypto;
pub mod ecn;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod link;
pub mod packet;
pub mod path;
pub mod queue;
pub mod reseq;
pub mod sched;
pub mod sink;
pub mod time;
pub mod timer;
pub mod tunnel;
pub mod units;
pub mod wire;
