//! What one worker has for another: packets, and first messages.
//!
//! Both are rare. A packet comes by the queue of the worker that serves its client, unless its flow began on our
//! side; a first message is handed on once for each session ([`Share`]). So
//! they go through the channel by which the other worker gets its orders, packets in batches.
//!
//! Nothing waits: each way holds a bounded number of either, and what finds it full is dropped and counted. The
//! places are counted by what takes them, so that orders always find room in the channel.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use ropewalk_proto::endpoint::{Handed, Share};
use tokio::sync::mpsc;

use crate::daemon::Command;
use crate::worker::Order;

/// Packets of one batch: as many as a turn reads from the TUN.
const BATCH_PACKETS: usize = 64;

/// Bytes of one batch; one packet always fits.
const BATCH_BYTES: usize = 128 << 10;

/// Batches on their way from one worker to another: 8 turns, about a millisecond each.
const BATCHES: usize = 8;

/// First messages on their way from one worker to another: a quarter of a second of those that one may decrypt.
const FIRSTS: usize = 128;

/// Most that is on its way to a worker from one other.
pub const PLACES: usize = BATCHES + FIRSTS;

/// Which worker serves an inner address, or one in a network behind a client. Read without a lock: each worker has it from the
/// coordinator, and is given another when it changes.
///
/// Most addresses stand side by side, in blocks of 256, a byte each. A copy shares the blocks, so that a change costs what it
/// touches, and little for each block. It shares the networks, too: they hardly ever change.
#[derive(Clone, Debug, Default)]
pub struct Homes {
    blocks: BTreeMap<u128, Arc<Block>>,
    /// By their first addresses; no two have an address in common.
    networks: Arc<BTreeMap<IpAddr, (IpNet, u16)>>,
}

/// Addresses that differ in their last byte only.
const BLOCK: usize = 256;

/// The worker of each address of a block.
type Block = [u8; BLOCK];

/// In place of a worker: no client has the address.
const NOBODY: u8 = u8::MAX;

const _: () = assert!(Share::MAX_PARTS < 255, "a worker's number is a byte, and not NOBODY");

impl Homes {
    /// The worker that serves an address, if one does.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<u16> {
        self.of_address(address).or_else(|| self.of_network(address))
    }

    fn of_address(&self, address: IpAddr) -> Option<u16> {
        let (block, at) = place(address);
        let home = self.blocks.get(&block)?[at];
        (home != NOBODY).then_some(home.into())
    }

    fn of_network(&self, address: IpAddr) -> Option<u16> {
        let (_, (net, home)) = self.networks.range(..=address).next_back()?;
        net.contains(&address).then_some(*home)
    }

    /// An inner address, or a network behind a client, is served by this worker from now on; `None`: by none.
    pub fn set(&mut self, net: IpNet, home: Option<u16>) {
        if net.prefix_len() == net.max_prefix_len() {
            return self.set_address(net.addr(), home);
        }
        let networks = Arc::make_mut(&mut self.networks);
        match home {
            Some(home) => networks.insert(net.network(), (net, home)),
            None => networks.remove(&net.network()),
        };
    }

    fn set_address(&mut self, address: IpAddr, home: Option<u16>) {
        let (key, at) = place(address);
        let home = home.and_then(|home| u8::try_from(home).ok()).unwrap_or(NOBODY);
        let block = self.blocks.entry(key).or_insert_with(|| Arc::new([NOBODY; BLOCK]));
        Arc::make_mut(block)[at] = home;
        if home == NOBODY && **block == [NOBODY; BLOCK] {
            self.blocks.remove(&key);
        }
    }
}

/// The block of an address, and its place there. IPv4 addresses are those that IPv6 has for them (RFC 4291 section 2.5.5.2).
fn place(address: IpAddr) -> (u128, usize) {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let [.., last] = v6.octets();
    (u128::from(v6) >> 8, usize::from(last))
}

/// What comes from another worker.
#[derive(Debug)]
pub enum Passed {
    /// Packets for clients that are served here.
    Packets(Batch),
    /// A first message that is to be answered here.
    First(Handed, Place),
}

/// A place on the way, taken until this is dropped.
#[derive(Debug)]
pub struct Place(#[expect(dead_code, reason = "counted, not read")] Arc<()>);

/// Packets, one behind the other.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    #[expect(dead_code, reason = "holds the place")]
    place: Place,
}

impl Batch {
    fn new(place: Place) -> Self {
        Self { bytes: Vec::new(), ends: Vec::with_capacity(BATCH_PACKETS), place }
    }

    fn has_room(&self, len: usize) -> bool {
        self.ends.len() < BATCH_PACKETS && self.bytes.len() + len <= BATCH_BYTES
    }

    fn push(&mut self, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        self.ends.push(self.bytes.len());
    }

    /// The packets, in order.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

/// Where a worker takes what others have for it.
#[derive(Clone, Debug)]
pub enum Mailbox {
    /// The coordinator's.
    Coordinator(mpsc::Sender<Command>),
    /// Another worker's.
    Worker(mpsc::Sender<Order>),
}

impl Mailbox {
    fn put(&self, passed: Passed) -> bool {
        match self {
            Self::Coordinator(commands) => commands.try_send(Command::Passed(passed)).is_ok(),
            Self::Worker(orders) => orders.try_send(Order::Passed(passed)).is_ok(),
        }
    }
}

/// The way to one other worker.
#[derive(Debug)]
struct Way {
    mailbox: Mailbox,
    filling: Option<Batch>,
    batches: Arc<()>,
    firsts: Arc<()>,
}

/// What did not find room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets.
    pub packets: u64,
    /// First messages; their clients ask again.
    pub firsts: u64,
}

/// A worker's ways to the others.
#[derive(Debug)]
pub struct Handover {
    /// By worker; none to itself.
    ways: Vec<Option<Way>>,
    homes: Arc<Homes>,
    lost: Lost,
}

impl Handover {
    /// The ways of the worker that has no mailbox among these, which stand in the order of the workers.
    #[must_use]
    pub fn new(mailboxes: impl IntoIterator<Item = Option<Mailbox>>) -> Self {
        let way =
            |mailbox| Way { mailbox, filling: None, batches: Arc::new(()), firsts: Arc::new(()) };
        let ways = mailboxes.into_iter().map(|mailbox| mailbox.map(way)).collect();
        Self { ways, homes: Arc::default(), lost: Lost::default() }
    }

    /// Of a worker that is the only one.
    #[must_use]
    pub fn none() -> Self {
        Self::new([None])
    }

    /// From now on the addresses are served so.
    pub fn set_homes(&mut self, homes: Arc<Homes>) {
        self.homes = homes;
    }

    /// What did not find room so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Takes a packet to this address if it is another worker's.
    pub fn take(&mut self, to: IpAddr, packet: &[u8]) -> bool {
        let Some(home) = self.homes.get(to) else { return false };
        let Some(Some(way)) = self.ways.get_mut(usize::from(home)) else { return false };
        if way.filling.as_ref().is_some_and(|batch| !batch.has_room(packet.len())) {
            self.lost.packets += way.send();
        }
        if way.filling.is_none() {
            way.filling = take_place(&way.batches, BATCHES).map(Batch::new);
        }
        match &mut way.filling {
            Some(batch) => batch.push(packet),
            None => self.lost.packets += 1,
        }
        true
    }

    /// WorkerThreads on a first message. `false`: there is no room, and it is counted.
    pub fn pass(&mut self, handed: Handed) -> bool {
        let way = self.ways.get(usize::from(handed.to)).and_then(Option::as_ref);
        let sent = way.and_then(|way| {
            let place = take_place(&way.firsts, FIRSTS)?;
            way.mailbox.put(Passed::First(handed, place)).then_some(())
        });
        self.lost.firsts += u64::from(sent.is_none());
        sent.is_some()
    }

    /// Sends the batches of this turn.
    pub fn flush(&mut self) {
        for way in self.ways.iter_mut().flatten() {
            self.lost.packets += way.send();
        }
    }
}

impl Way {
    /// Returns how many packets were lost.
    fn send(&mut self) -> u64 {
        let Some(batch) = self.filling.take() else { return 0 };
        let packets = batch.ends.len() as u64;
        if self.mailbox.put(Passed::Packets(batch)) { 0 } else { packets }
    }
}

/// A place, if fewer than `most` are taken.
fn take_place(taken: &Arc<()>, most: usize) -> Option<Place> {
    (Arc::strong_count(taken) <= most).then(|| Place(Arc::clone(taken)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ways of worker 0 of three, and what comes to the others.
    fn ways() -> (Handover, Vec<mpsc::Receiver<Order>>) {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel(PLACES)).unzip();
        let others = senders.into_iter().map(|orders| Some(Mailbox::Worker(orders)));
        let mut handover = Handover::new(std::iter::once(None).chain(others));
        let mut homes = Homes::default();
        (0..3).for_each(|home| homes.set(address(home).into(), Some(home)));
        handover.set_homes(Arc::new(homes));
        (handover, receivers)
    }

    fn address(home: u16) -> IpAddr {
        IpAddr::from([10, 77, 0, u8::try_from(home).unwrap()])
    }

    fn packets(orders: &mut mpsc::Receiver<Order>) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Ok(order) = orders.try_recv() {
            let Order::Passed(Passed::Packets(batch)) = order else { panic!("{order:?}") };
            packets.extend(batch.packets().map(<[u8]>::to_vec));
        }
        packets
    }

    #[test]
    fn an_address_is_served_by_the_worker_that_was_named_last_and_copies_share_what_is_the_same() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let net = |text: &str| IpNet::from(address(text));
        let all = ["10.77.0.0", "10.77.0.255", "10.77.1.0", "fd00::1", "fd00::101"];
        let mut homes = Homes::default();
        for (home, text) in (0..).zip(all) {
            assert_eq!(homes.get(address(text)), None);
            homes.set(net(text), Some(home));
        }
        let before = homes.clone();
        homes.set(net(all[1]), Some(63));
        homes.set(net(all[2]), None);
        let served = |homes: &Homes| all.map(|text| homes.get(address(text)));
        assert_eq!(served(&before), [Some(0), Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(served(&homes), [Some(0), Some(63), None, Some(3), Some(4)]);
        let (block, _) = place(address(all[3]));
        assert!(Arc::ptr_eq(&before.blocks[&block], &homes.blocks[&block]));
        all.iter().for_each(|text| homes.set(net(text), None));
        assert!(homes.blocks.is_empty());
    }

    #[test]
    fn a_packet_goes_to_the_worker_that_serves_its_address() {
        let (mut handover, mut others) = ways();
        assert!(!handover.take(address(9), b"nobody's"));
        assert!(!handover.take(address(0), b"our own, without a session"));
        let sent: Vec<_> =
            (0..200_u8).map(|number| vec![number; usize::from(number) + 1]).collect();
        for packet in &sent {
            assert!(handover.take(address(1), packet));
        }
        assert!(handover.take(address(2), b"another's"));
        handover.flush();
        assert_eq!(packets(&mut others[0]), sent, "in order, whole, once");
        assert_eq!(packets(&mut others[1]), [b"another's"]);
        handover.flush();
        assert!(packets(&mut others[0]).is_empty());
        assert_eq!(handover.lost(), Lost::default());
    }

    #[test]
    fn an_address_in_a_network_behind_a_client_is_served_where_the_client_is() {
        let mut homes = Homes::default();
        let network = "2001:db8:7:100::/56".parse().unwrap();
        homes.set("10.77.0.2/32".parse().unwrap(), Some(1));
        homes.set("fd77::2/128".parse().unwrap(), Some(1));
        homes.set(network, Some(2));
        for (address, expected) in [
            ("10.77.0.2", Some(1)),
            ("10.77.0.3", None),
            ("fd77::2", Some(1)),
            ("2001:db8:7:100::", Some(2)),
            ("2001:db8:7:1ff::20", Some(2)),
            ("2001:db8:7:200::", None),
            ("2001:db8:7:ff::1", None),
        ] {
            assert_eq!(homes.get(address.parse().unwrap()), expected, "{address}");
        }
        let before = homes.clone();
        homes.set("10.77.0.2/32".parse().unwrap(), Some(2));
        assert!(Arc::ptr_eq(&before.networks, &homes.networks), "what is the same is shared");
        homes.set(network, None);
        let inside = "2001:db8:7:1ff::20".parse().unwrap();
        assert_eq!((before.get(inside), homes.get(inside)), (Some(2), None));
    }

    #[test]
    fn what_finds_the_way_full_is_dropped_and_counted_and_room_comes_back() {
        let (mut handover, mut others) = ways();
        let fits = BATCHES * BATCH_PACKETS;
        for _ in 0..fits + 10 {
            assert!(handover.take(address(1), b"packet"));
        }
        handover.flush();
        assert_eq!(handover.lost().packets, 10);
        // The way to another worker is its own.
        assert!(handover.take(address(2), b"packet"));
        handover.flush();
        assert_eq!(handover.lost().packets, 10);
        assert_eq!(packets(&mut others[0]).len(), fits);
        assert!(handover.take(address(1), b"packet"));
        handover.flush();
        assert_eq!(packets(&mut others[0]).len(), 1);
    }

    #[test]
    fn a_batch_holds_few_large_packets() {
        let (mut handover, mut others) = ways();
        for _ in 0..5 {
            handover.take(address(1), &[7; 60_000]);
        }
        handover.flush();
        let mut batches = 0;
        while let Ok(Order::Passed(Passed::Packets(batch))) = others[0].try_recv() {
            assert!(batch.bytes.len() <= BATCH_BYTES);
            batches += 1;
        }
        assert_eq!((batches, handover.lost().packets), (3, 0));
    }

    #[test]
    fn a_worker_that_is_gone_takes_nothing() {
        let (mut handover, others) = ways();
        drop(others);
        assert!(handover.take(address(1), b"packet"));
        handover.flush();
        assert_eq!(handover.lost().packets, 1);
    }
}
