//! The reference model of a tunnel: what went in, and what may come out.
//!
//! It knows nothing of links, windows or keys; only the packets of each direction, the datagrams
//! on the wire and what the emulated network did to them. Checked at every step:
//!
//! - nothing is delivered twice (also what was sent again), altered, or invented; marks (ECN) are set only where they
//!   may be;
//! - within a flow the order is kept, except for packets that the receiver counted as late, and of a call in the order of flows;
//! - what the receiver counts is what it delivered;
//! - no late packet was skipped by proof, unless links reorder or leave: a packet under way on a live
//!   link is never taken for lost;
//! - where nothing was lost, nothing is skipped by proof;
//! - no packet is missing that the sender did not drop and the network did not lose;
//! - memory stays within its bounds;
//! - no nonce (key epoch, link, local number) is used twice by one end.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use ropewalk_proto::config::{MAX_LINKS, TunnelConfig};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::packet::PacketView;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{MAX_PACKETS, TunnelStats};
use ropewalk_proto::wire::header::Clear;
use ropewalk_settings::Order;

use crate::inner::{Inner, number_of};
use crate::lab::Towards;

/// Packets in parts of which the order of flows keeps one half each, at most.
const HALVES: u64 = 16;

/// The flow whose packets come one by one: it has no order where flows have theirs.
pub const CALL: u16 = 79;

/// A rule that was broken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Breach(pub String);

impl Breach {
    /// Its first words, without the figures: which rule it was.
    #[must_use]
    pub fn rule(&self) -> String {
        self.0.chars().filter(|character| character.is_alphabetic()).take(25).collect()
    }
}

/// Breaks with this text unless the rule holds.
pub(crate) fn hold(rule: bool, text: impl FnOnce() -> String) -> Result<(), Breach> {
    if rule { Ok(()) } else { Err(Breach(text())) }
}

/// What the network and the users did to one direction so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disturbance {
    /// Datagrams that the network did not deliver.
    pub lost: u64,
    /// Whether a link may have delivered datagrams in another order than they entered it.
    pub reordered: bool,
    /// Whether a link left or was taken for dead.
    pub interrupted: bool,
    /// Whether datagrams other than the ends' own were played in.
    pub injected: bool,
}

/// A packet that went in.
#[derive(Clone, Copy, Debug)]
struct Sent {
    inner: Inner,
    delivered: bool,
}

/// One direction.
#[derive(Debug)]
pub struct Direction {
    towards: Towards,
    sent: Vec<Sent>,
    delivered: u64,
    disorder: u64,
    /// The same of the call.
    of_call: u64,
    /// The last packet of each flow that came out, and of both families.
    highest: BTreeMap<(u16, bool), u64>,
    /// Answers to the sender of packets that were too big.
    answers: u64,
}

impl Direction {
    fn new(towards: Towards) -> Self {
        let highest = BTreeMap::new();
        Self {
            towards,
            sent: Vec::new(),
            delivered: 0,
            disorder: 0,
            of_call: 0,
            highest,
            answers: 0,
        }
    }

    /// Packets that went in.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Packets that came out.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Packets that came out after one of their flow that went in later, without those of the call.
    #[must_use]
    pub fn disorder(&self) -> u64 {
        self.disorder
    }

    /// A packet to be sent: its flow, length and mark; the number is the model's.
    pub fn next(&mut self, flow: u16, len: usize, ecn: Ecn, v6: bool) -> Vec<u8> {
        let inner = Inner { towards: self.towards, number: self.sent(), flow, len, ecn, v6 };
        self.sent.push(Sent { inner, delivered: false });
        inner.packet()
    }

    /// A packet came out.
    fn take(&mut self, at: Instant, packet: &[u8]) -> Result<(), Breach> {
        let towards = self.towards;
        let Some(number) = number_of(packet) else {
            return Err(Breach(format!("{at:?} {towards:?}: an invented packet {packet:02x?}")));
        };
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(sent) = self.sent.get_mut(place) else {
            return Err(Breach(format!("{at:?} {towards:?}: packet {number} was never sent")));
        };
        hold(!sent.delivered, || format!("{at:?} {towards:?}: packet {number} delivered twice"))?;
        sent.delivered = true;
        let before = sent.inner.ecn;
        let ecn = PacketView::parse(packet).map_or(before, |view| view.ecn());
        let may_be = ecn == before || (before != Ecn::NotEct && ecn == Ecn::Ce);
        hold(may_be, || {
            format!("{at:?} {towards:?}: packet {number} marked {before:?} -> {ecn:?}")
        })?;
        let unaltered = Inner { ecn, ..sent.inner }.packet() == packet;
        hold(unaltered, || format!("{at:?} {towards:?}: packet {number} altered"))?;
        self.delivered += 1;
        let flow = sent.inner.flow;
        let highest = self.highest.entry((flow, sent.inner.v6)).or_insert(number);
        if number < *highest {
            let disorder = if flow == CALL { &mut self.of_call } else { &mut self.disorder };
            *disorder += 1;
        }
        *highest = number.max(*highest);
        Ok(())
    }
}

/// The nonces that one end used.
#[derive(Debug, Default)]
pub struct Nonces {
    epoch: u32,
    seen: HashSet<(u32, u8, u32)>,
}

impl Nonces {
    /// Notes a datagram that the end sent. Epochs only grow; fewer than 16 pass unseen.
    ///
    /// # Errors
    /// The nonce was used before under this key.
    pub fn note(&mut self, datagram: &[u8]) -> Result<(), Breach> {
        let Ok(clear) = Clear::parse(datagram) else { return Ok(()) };
        self.epoch += u32::from(clear.phase).wrapping_sub(self.epoch) % 16;
        // Fewer than 2^24 datagrams are sent on a link of a test: the low bits are the number.
        let nonce = (self.epoch, clear.link.0, clear.number);
        hold(self.seen.insert(nonce), || {
            format!("nonce (epoch, link, number) = {nonce:?} used twice")
        })
    }

    /// How many were used, under how many keys.
    #[must_use]
    pub fn count(&self) -> (usize, u32) {
        (self.seen.len(), self.epoch + 1)
    }
}

/// Both directions and both ends' nonces.
#[derive(Debug)]
pub struct Model {
    /// To the client.
    pub down: Direction,
    /// To the proxy.
    pub up: Direction,
    /// What the client sealed.
    pub of_client: Nonces,
    /// What the proxy sealed.
    pub of_proxy: Nonces,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            down: Direction::new(Towards::Client),
            up: Direction::new(Towards::Proxy),
            of_client: Nonces::default(),
            of_proxy: Nonces::default(),
        }
    }
}

impl Model {
    /// The direction towards this end.
    pub fn towards(&mut self, towards: Towards) -> &mut Direction {
        match towards {
            Towards::Client => &mut self.down,
            Towards::Proxy => &mut self.up,
        }
    }

    /// A packet came out at this end.
    ///
    /// # Errors
    /// It should not have, or not so.
    pub fn take(&mut self, end: Towards, at: Instant, packet: &[u8]) -> Result<(), Breach> {
        // The end's own kernel was told that a packet is too big for all links.
        if PacketView::parse(packet).is_ok_and(|view| matches!(view.protocol(), 1 | 58)) {
            self.towards(end.opposite()).answers += 1;
            return Ok(());
        }
        self.towards(end).take(at, packet)
    }

    /// A datagram was sent towards this end.
    ///
    /// # Errors
    /// Its nonce was used before.
    pub fn note(&mut self, towards: Towards, datagram: &[u8]) -> Result<(), Breach> {
        let nonces = match towards {
            Towards::Client => &mut self.of_proxy,
            Towards::Proxy => &mut self.of_client,
        };
        nonces.note(datagram)
    }

    /// Compares one direction with what its two ends count.
    ///
    /// # Errors
    /// They disagree, or a bound is passed.
    pub fn check(
        &mut self,
        towards: Towards,
        sender: &TunnelStats,
        receiver: &TunnelStats,
        config: &TunnelConfig,
        disturbance: &Disturbance,
    ) -> Result<(), Breach> {
        let direction = self.towards(towards);
        let (reseq, drops) = (&receiver.reseq, &receiver.drops);
        let context = || Context { towards, sender, receiver, disturbance };
        // In the order of flows the receiver knows of the packet before one, not of those before that: when it gives one up,
        // others of the flow may come later that it did not wait for.
        // Nor does the sender say what came before one that it gave up.
        let by_sender = sender.repairs.map_or(0, |repairs| repairs.given_up);
        let given_up = reseq.skipped_by_deadline + reseq.skipped_by_full + by_sender;
        let disorder = match config.order {
            Order::Global => direction.disorder + direction.of_call,
            Order::Flow => direction.disorder,
        };
        let orderly = disorder <= reseq.late || config.order == Order::Flow && given_up > 0;
        hold(orderly, || format!("{disorder} out of order, {}", context()))?;
        let unmarkable = drops.get(DropReason::CongestionMarkedNotCapable);
        let counted = reseq.in_order + reseq.resequenced + reseq.late;
        // Of two parts one is the packet; of a part alone none is.
        let parts = receiver.joined + drops.get(DropReason::PartAlone);
        let expected = direction.delivered + unmarkable + parts;
        // Parts may be waiting for others.
        let waiting = match config.order {
            Order::Global => 1,
            Order::Flow => HALVES,
        };
        hold((expected..=expected + waiting).contains(&counted), || {
            format!("{} delivered, {counted} counted: {}", direction.delivered, context())
        })?;
        // What was sent again may come twice.
        let again = sender.repairs.map_or(0, |repairs| repairs.sent);
        hold(reseq.duplicates + reseq.too_old <= again, || {
            format!("repeated numbers: {}", context())
        })?;
        if !disturbance.reordered && !disturbance.interrupted {
            hold(reseq.late_after_proof == 0, || {
                format!("skipped by proof, then it came: {}", context())
            })?;
            hold(disturbance.lost > 0 || reseq.skipped_by_proof == 0, || {
                format!("nothing was lost, yet a loss was proven: {}", context())
            })?;
        }
        let bounded = reseq.held <= config.reseq.max_packets
            && reseq.held_bytes <= config.reseq.settings.buffer
            && sender.queued.1 <= config.queue.bytes
            && sender.links.len() <= MAX_LINKS
            && receiver.links.len() <= MAX_LINKS;
        hold(bounded, || format!("a bound is passed: {}", context()))
    }

    /// Once nothing is under way: what is missing was dropped by the sender or lost by the network.
    ///
    /// # Errors
    /// Something vanished, or still waits.
    pub fn check_rest(
        &mut self,
        towards: Towards,
        sender: &TunnelStats,
        receiver: &TunnelStats,
        disturbance: &Disturbance,
    ) -> Result<(), Breach> {
        let direction = self.towards(towards);
        let context = || Context { towards, sender, receiver, disturbance };
        hold(sender.queued == (0, 0), || format!("packets wait for a link: {}", context()))?;
        hold(receiver.reseq.held == 0, || format!("packets wait for others: {}", context()))?;
        for link in &sender.links {
            let in_flight = link.sender.in_flight;
            hold(in_flight == 0, || format!("{}: {in_flight} in flight: {}", link.id, context()))?;
        }
        let refused = sender.drops.get(DropReason::PacketTooBig);
        let accepted = sender.accepted.datagrams;
        hold(direction.sent() <= accepted + refused, || {
            format!("{} packets went in: {}", direction.sent(), context())
        })?;
        // Those that the links outgrew while they waited were accepted before.
        let outgrown = accepted + refused - direction.sent();
        let dropped: u64 = [
            DropReason::QueueFull,
            DropReason::QueueTimeout,
            DropReason::QueueStanding,
            DropReason::NoRoom,
        ]
        .iter()
        .map(|reason| sender.drops.get(*reason))
        .sum::<u64>()
            + receiver.drops.get(DropReason::CongestionMarkedNotCapable)
            + outgrown;
        let missing = accepted.saturating_sub(direction.delivered + dropped);
        hold(direction.delivered + dropped <= accepted, || format!("too many: {}", context()))?;
        // A link that the client took out while it was the only one: the proxy could not be told.
        let unknown = receiver.drops.get(DropReason::UnknownLink);
        hold(unknown == 0 || disturbance.interrupted, || format!("unknown links: {}", context()))?;
        // Two parts of one packet may have found others between them where links reorder.
        let alone = receiver.drops.get(DropReason::PartAlone);
        let alone = if disturbance.reordered { alone } else { 0 };
        // With a lost datagram all its packets are, of which it has one unless they were bundled.
        let more = sender.bundled.packets - sender.bundled.datagrams;
        let more = more.min((disturbance.lost + unknown) * (MAX_PACKETS as u64 - 1));
        hold(missing <= disturbance.lost + unknown + alone + more, || {
            format!(
                "{missing} packets vanished, {} datagrams lost: {}",
                disturbance.lost,
                context()
            )
        })
    }
}

/// What a breach says of the moment.
struct Context<'a> {
    towards: Towards,
    sender: &'a TunnelStats,
    receiver: &'a TunnelStats,
    disturbance: &'a Disturbance,
}

impl fmt::Display for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drops = |stats: &TunnelStats| stats.drops.iter().collect::<Vec<_>>();
        writeln!(f, "towards {:?}, {:?}", self.towards, self.disturbance)?;
        writeln!(
            f,
            "  sender: accepted {:?} drops {:?}",
            self.sender.accepted,
            drops(self.sender)
        )?;
        for link in &self.sender.links {
            let (s, r) = (&link.sender, &link.receiver);
            writeln!(
                f,
                "    {} {:?} mtu {} window {} in flight {} sent {} lost {} timeouts {} srtt {:?} | {r:?}",
                link.id,
                link.state,
                link.path_mtu,
                s.window,
                s.in_flight,
                s.sent,
                s.lost,
                s.timeouts,
                s.srtt,
            )?;
        }
        writeln!(f, "  receiver: drops {:?} {:?}", drops(self.receiver), self.receiver.reseq)
    }
}
