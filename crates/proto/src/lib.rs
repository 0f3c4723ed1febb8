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
//! and randomness are arguments. Whoever drives an end repeats six steps; here both ends of a pair, over wires that take
//! 5 ms:
//!
//! ```
//! # use ropewalk_netlab::direct::{Count, Direct};
//! # use ropewalk_netlab::lab::PROXY;
//! # use ropewalk_proto::config::TunnelConfig;
//! # use ropewalk_proto::ecn::Ecn;
//! # use ropewalk_proto::path::{Path, SocketId};
//! # use ropewalk_proto::sink::TransmitSink;
//! # use ropewalk_proto::time::{Duration, Instant};
//! # #[derive(Default)]
//! # struct Batch { reserved: Vec<u8>, queued: Vec<Vec<u8>> }
//! # impl TransmitSink for Batch {
//! #     fn reserve(&mut self, _: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
//! #         self.reserved = vec![0; len];
//! #         Some(&mut self.reserved)
//! #     }
//! #     fn has_room(&mut self, _: &[Path], _: usize) -> bool { true }
//! #     fn commit(&mut self, len: usize) {
//! #         self.reserved.truncate(len);
//! #         self.queued.push(std::mem::take(&mut self.reserved));
//! #     }
//! # }
//! # let mut ends = Direct::new(&TunnelConfig::default(), 1, 1).unwrap();
//! # let (mut client, mut proxy) = (ends.clients.remove(0), ends.proxy);
//! # let to_proxy = Path { socket: SocketId(0), local: None, remote: PROXY };
//! # let to_client = Path { remote: "192.0.2.7:4000".parse().unwrap(), ..to_proxy };
//! # let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 2, 198, 51, 100, 1];
//! # let mut now = Instant::ZERO;
//! # let (mut up, mut down): (Vec<Vec<u8>>, Vec<Vec<u8>>) = Default::default();
//! # let (mut at_client, mut at_proxy) = (Count::default(), Count::default());
//! macro_rules! turn {
//!     ($end:ident, $path:ident, $came:ident, $packet:expr, $tun:ident) => {{
//!         // 1. Datagrams that came; then the end of the batch.
//!         for mut datagram in std::mem::take(&mut $came) {
//!             $end.handle_datagram(now, $path, Ecn::NotEct, &mut datagram, &mut $tun);
//!         }
//!         $end.end_of_batch(now);
//!         // 2. Packets from the TUN.
//!         if let Some(packet) = $packet {
//!             $end.handle_packet(now, packet, &mut $tun);
//!         }
//!         // 3. The timer, if it is due.
//!         if $end.poll_timeout().is_some_and(|(at, _why)| at <= now) {
//!             $end.handle_timeout(now, &mut $tun);
//!         }
//!         // 4. What is to be sent. A batch with a bound is flushed and filled until it has room left.
//!         let mut batch = Batch::default();
//!         $end.poll_transmit(now, &mut batch);
//!         // 5. What happened.
//!         while let Some(_event) = $end.poll_event() {}
//!         batch.queued
//!     }};
//! }
//! while at_proxy.packets == 0 && now < Instant::from_millis(1000) {
//!     let has_session = client.session().is_some();
//!     let sent_up = turn!(client, to_proxy, down, has_session.then_some(&packet), at_client);
//!     let sent_down = turn!(proxy, to_client, up, None::<&[u8]>, at_proxy);
//!     (up, down) = (sent_up, sent_down);
//!     // 6. Wait for the timers of both, or for datagrams.
//!     let timers = [client.poll_timeout(), proxy.poll_timeout()].into_iter().flatten();
//!     let due = timers.map(|(at, _why)| at).min();
//!     now = due.map_or(now, |at| at.max(now)).min(now + Duration::from_millis(5));
//! }
//! assert!(at_proxy.packets > 0, "the packet went through the tunnel");
//! ```

pub mod client;
pub mod config;
pub mod congestion;
pub mod crypto;
pub mod ecn;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod fleet;
mod left;
pub mod link;
mod number;
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
