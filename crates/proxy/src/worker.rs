//! What each worker owns: its part of the clients with their sessions, its socket at each port, its queue of the
//! TUN, and its ways to the others. Nothing of this is shared, and no packet waits for another worker.
//!
//! One of them is the coordinator, too ([`Daemon`](crate::daemon::Daemon)); the others are told what to do by
//! its [`Order`]s ([`WorkerRole`](crate::worker_thread::WorkerRole)). Orders that concern clients go to the home of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk_link_io::driver::Io;
use ropewalk_link_io::tun::{TunControl, TunOffload};
use ropewalk_link_io::udp::{OffloadInUse, ReceivedDatagram, SendError, SendErrorKind};
use ropewalk_proto::endpoint::{
    Endpoint, EndpointConfig, EndpointStats, InvitationAuthority, NoInvitations, PeerConfig,
};
use ropewalk_proto::fleet::FleetList;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::Flows;
use ropewalk_settings::{PublicKey, Scheduling, SpeedTests};
use tokio::sync::oneshot;

use crate::handover::{Handover, Homes, Passed};

/// What the coordinator tells a worker, itself included.
#[derive(Debug)]
pub enum Order {
    /// These clients are yours, with these terms.
    SetPeers(Vec<(PublicKey, PeerConfig)>),
    /// This client is none any more.
    RemovePeer(PublicKey),
    /// This client has a newer session with another proxy.
    DisplacePeer(PublicKey),
    /// Take no new sessions, or take them again.
    SetDraining(bool),
    /// Tell your clients of these proxies.
    SetFleet(Arc<FleetList>),
    /// Let your clients test so much.
    SetSpeedTests(SpeedTests),
    /// Send so to all your clients, or to this one.
    Schedule {
        /// The client.
        to: Option<PublicKey>,
        /// How.
        how: Box<Scheduling>,
    },
    /// Inner addresses are served so.
    Homes(Arc<Homes>),
    /// Say how things are.
    Report(oneshot::Sender<Report>),
    /// Show the flows that are sent to this client, at most so many.
    Flows(PublicKey, usize, oneshot::Sender<Option<Flows>>),
    /// This is from another worker.
    Passed(Passed),
    /// Say goodbye to your clients, and end when they know.
    Close,
    /// End at once.
    End,
}

/// How things are at a worker, or at all of them.
#[derive(Clone, Debug)]
pub struct Report {
    /// The core.
    pub stats: EndpointStats,
    /// Drops that the core did not see, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// What is left to the kernel, by all of them.
    pub offload: (TunOffload, OffloadInUse),
}

impl Report {
    /// With that of another worker.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.stats = self.stats.with(other.stats);
        for (reason, count) in other.drops {
            *self.drops.entry(reason).or_default() += count;
        }
        let (tun, udp) = other.offload;
        self.offload = (self.offload.0.and(tun), self.offload.1.and(udp));
        self
    }
}

/// One worker's part of the proxy.
pub struct Worker {
    /// The core: the clients that are served here.
    pub endpoint: Endpoint,
    handover: Handover,
    sockets: Vec<SocketId>,
    send_errors: BTreeMap<&'static str, u64>,
    number: u16,
    /// Whether it was logged that there are too many first messages.
    flooded: bool,
}

impl Worker {
    /// A worker without clients. `seed` must be unpredictable; `sockets` are those that clients send to.
    #[must_use]
    pub fn new(
        now: Instant,
        core: EndpointConfig,
        seed: [u8; 32],
        sockets: Vec<SocketId>,
        handover: Handover,
    ) -> Self {
        let number = core.share.part();
        let endpoint = Endpoint::new(now, core, seed);
        Self { endpoint, handover, sockets, send_errors: BTreeMap::new(), number, flooded: false }
    }

    /// Does what concerns its clients; the rest is the loop's.
    pub fn carry_out(&mut self, now: Instant, order: Order, io: &mut Io<'_>) {
        match order {
            Order::SetPeers(peers) => self.set_peers(now, peers),
            Order::RemovePeer(key) => {
                self.endpoint.remove_peer(now, key);
            }
            Order::DisplacePeer(key) => self.endpoint.displace_peer(now, key),
            Order::SetDraining(draining) => self.endpoint.set_draining(draining),
            Order::SetFleet(list) => self.endpoint.set_fleet(&list),
            Order::SetSpeedTests(limits) => self.endpoint.set_speed_tests(limits),
            Order::Schedule { to, how } => {
                self.schedule(now, to, &how);
            }
            Order::Homes(homes) => self.handover.set_homes(homes),
            // Whoever asked may be gone.
            Order::Report(reply) => drop(reply.send(self.report(io))),
            Order::Flows(key, limit, reply) => {
                drop(reply.send(self.endpoint.flows(now, &key, limit)));
            }
            Order::Passed(passed) => self.handle_passed(now, passed, io, &mut NoInvitations),
            Order::Close => self.endpoint.close(now),
            Order::End => {}
        }
    }

    /// Takes these clients in, or changes them. One whose addresses changed is asked to connect again.
    pub fn set_peers(&mut self, now: Instant, peers: Vec<(PublicKey, PeerConfig)>) {
        for peer in self.endpoint.set_peers(now, peers) {
            tracing::error!(
                peer = &*peer,
                "this peer cannot connect: another one has its inner address, or addresses of the network behind it. If \
                 that stays so, take one of the two out (`ropewalk peer remove NAME`)"
            );
        }
    }

    /// Sends so from now on, to all clients or to one.
    pub fn schedule(&mut self, now: Instant, to: Option<PublicKey>, how: &Scheduling) {
        match to {
            Some(key) => {
                self.endpoint.set_peer_scheduling(now, key, how);
            }
            None => self.endpoint.set_scheduling(now, how),
        }
    }

    /// Inner addresses are served so.
    pub fn set_homes(&mut self, homes: Arc<Homes>) {
        self.handover.set_homes(homes);
    }

    /// A worker without clients could only hand on what comes by its queue of the TUN: it leaves that to the others. A client
    /// that is taken in has no session yet, so that the queue is attached before anything is written to it.
    pub fn tend_queue(&self, io: &mut Io<'_>) {
        io.tun.set_attached(self.endpoint.has_peers());
    }

    /// A packet came by this worker's queue of the TUN: to a session here, or to the worker that serves its
    /// destination.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl PacketSink) {
        let Self { endpoint, handover, .. } = self;
        endpoint.handle_packet_or(now, packet, sink, |to| handover.take(to, packet));
    }

    /// The same for a TCP or UDP packet whose checksum is partial; to another worker it goes completed.
    pub fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        if !self.endpoint.handle_partial(now, packet, sink) {
            self.handle_packet(now, packet, sink);
        }
    }

    /// A datagram came from a socket of this worker.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
        authority: &mut impl InvitationAuthority,
    ) {
        let (path, ecn) = (arrival.path, arrival.ecn);
        self.endpoint.handle_datagram_inviting(now, path, ecn, datagram, sink, authority);
    }

    /// Something came from another worker.
    pub fn handle_passed(
        &mut self,
        now: Instant,
        passed: Passed,
        io: &mut Io<'_>,
        authority: &mut impl InvitationAuthority,
    ) {
        match passed {
            Passed::Packets(batch) => {
                let mut sink = ToTun(io.tun);
                for packet in batch.packets() {
                    // Never handed on: the client may have gone meanwhile.
                    self.endpoint.handle_packet(now, packet, &mut sink);
                }
            }
            Passed::First(handed, _place) => self.endpoint.handle_handed(now, handed, authority),
        }
    }

    /// All that came in this turn is in: what is for others goes to them.
    pub fn end_of_batch(&mut self, now: Instant) {
        self.endpoint.end_of_batch(now);
        while let Some(handed) = self.endpoint.poll_handed() {
            let digest = handed.digest();
            if !self.handover.pass(handed)
                && let Some(digest) = digest
            {
                self.endpoint.note_lost(now, &digest);
            }
        }
        self.handover.flush();
        self.log_flood();
    }

    fn log_flood(&mut self) {
        let flooded = self.endpoint.is_asking_for_cookies();
        if flooded == self.flooded {
            return;
        }
        self.flooded = flooded;
        let worker = self.number;
        if flooded {
            tracing::warn!(
                worker,
                "flood of first messages: each new client is asked for a cookie, which shows that it receives at \
                 its address"
            );
        } else {
            tracing::info!(worker, "the flood of first messages is over: no cookies are asked for");
        }
    }

    /// The kernel refused datagrams. The core finds out by itself: what did not leave is not confirmed.
    pub fn note_send_error(&mut self, path: Path, error: SendError) {
        tracing::trace!(?path, ?error, "not sent");
        *self.send_errors.entry(send_error(error.kind)).or_default() += error.datagrams as u64;
    }

    /// How things are.
    #[must_use]
    pub fn report(&self, io: &Io<'_>) -> Report {
        let mut drops = self.send_errors.clone();
        drops.extend(io.tun.counters().drops());
        let counters = self.sockets.iter().filter_map(|id| io.sockets.counters(*id));
        drops.insert("receive_error", counters.map(|socket| socket.errors_in).sum());
        let lost = self.handover.lost();
        drops.insert("handover_full", lost.packets);
        drops.insert("handshake_handover_full", lost.firsts);
        let offload = (io.tun.offload(), io.sockets.offload());
        Report { stats: self.endpoint.stats(), drops, offload }
    }
}

/// Answers to the senders of packets, written to this worker's queue of the TUN.
struct ToTun<'a>(&'a mut dyn TunControl);

impl PacketSink for ToTun<'_> {
    fn deliver(&mut self, packet: Packet<'_>) {
        if let Some(packet) = packet.completed() {
            self.0.deliver(&packet);
        }
    }
}

/// The name of a counter.
fn send_error(kind: SendErrorKind) -> &'static str {
    match kind {
        SendErrorKind::TooBig => "send_too_big",
        SendErrorKind::Unreachable => "send_unreachable",
        SendErrorKind::InterfaceDown | SendErrorKind::InterfaceGone => "send_interface_down",
        SendErrorKind::AddressGone => "send_address_gone",
        SendErrorKind::Forbidden => "send_forbidden",
        SendErrorKind::Full => "send_buffer_full",
        _ => "send_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_proto::endpoint::AdmissionCounters;
    use ropewalk_proto::error::DropCounters;

    fn report(drops: &[(&'static str, u64)], offload: [bool; 4]) -> Report {
        let [reads, writes, gso, gro] = offload;
        Report {
            stats: EndpointStats {
                peers: Vec::new(),
                sessions: 3,
                pending: 1,
                recent: 0,
                admission: AdmissionCounters::default(),
                drops: DropCounters::default(),
            },
            drops: drops.iter().copied().collect(),
            offload: (TunOffload { reads, writes }, OffloadInUse { gso, gro }),
        }
    }

    #[test]
    fn reports_add_up_and_an_offload_that_one_worker_lacks_is_not_in_use() {
        let all = [true; 4];
        for lacking in [[true, false, true, true], [true, true, false, true]] {
            for [one, other] in [[all, lacking], [lacking, all]] {
                let (a, b) = (report(&[("tun_refused", 2)], one), report(&[], other));
                let both = a.with(report(&[("tun_refused", 3), ("tun_malformed", 1)], all)).with(b);
                assert_eq!((both.stats.sessions, both.stats.pending), (9, 3));
                let expected = BTreeMap::from([("tun_malformed", 1), ("tun_refused", 5)]);
                assert_eq!(both.drops, expected);
                assert_eq!(both.offload, report(&[], lacking).offload);
            }
        }
    }
}
