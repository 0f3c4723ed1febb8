//! One TCP connection through a tunnel that acknowledges it locally, over links that fail: whatever its sender sends in whatever
//! order, and however long its receiver says nothing, what was acknowledged arrives.

use std::collections::BTreeMap;

use ropewalk_netlab::inner::{CLIENT, SERVER};
use ropewalk_netlab::lab::{Delivered, Towards};
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::packet::transport::Transport;
use ropewalk_proto::packet::{PacketView, checksum, protocol};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::Keepalive;

use crate::input::Input;

/// Steps of one input.
const MOST: usize = 300;

/// First numbers of both ends: the near end's wraps within a kilobyte.
const NEAR: u32 = u32::MAX - 999;
const FAR: u32 = 70_000;

/// Bytes that the near end may have sent that the far one has not: what its windows allow at most, and one more.
const AHEAD: u32 = 100_000;

/// How long healed links have until all that was acknowledged must have arrived. The far end's silence doubles the pauses
/// between two attempts.
const HEALING: Duration = Duration::from_secs(90);

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut story = Story::begin(input.byte());
    for _ in 0..MOST {
        if input.is_empty() || story.is_reset {
            break;
        }
        story.step(&mut input);
    }
    story.end();
}

struct Story {
    lab: TunnelLab,
    /// What the two links were like at first.
    healthy: Conditions,
    /// Where the sender is.
    near: Towards,
    with_times: bool,
    /// Bytes of the stream from its begin on that the near end has sent without a gap, and pieces behind.
    sent: Pieces,
    /// And that the far end has.
    received: Pieces,
    /// The near end was told that the far one has so many.
    acknowledged: u32,
    window: u16,
    is_reset: bool,
}

impl Story {
    /// The connection is open, over two links.
    fn begin(choice: u8) -> Self {
        let config = TunnelConfig::default();
        let mut lab = tunnels(&config, &config, u64::from(choice));
        let healthy = conditions(20.0, 20, 100);
        for place in 0..2 {
            let path = lab.add_link(healthy.clone(), healthy.clone(), u64::from(choice) + place);
            let name = format!("link{place}");
            let added =
                lab.client.add_link(lab.now, &link_config(&name, path, Keepalive::default()));
            added.expect("a link");
        }
        lab.run_until(Instant::ZERO + Duration::from_secs(1));
        let mut story = Self {
            lab,
            healthy,
            near: if choice & 1 == 0 { Towards::Proxy } else { Towards::Client },
            with_times: choice & 2 == 0,
            sent: Pieces::default(),
            received: Pieces::default(),
            acknowledged: 0,
            window: 1000,
            is_reset: false,
        };
        let (near, far) = (story.near, story.near.opposite());
        story.say(far, SYN, (FAR, 0), &[]);
        story.wait(Duration::from_millis(40));
        story.say(near, SYN | ACK, (NEAR, FAR + 1), &[]);
        story.wait(Duration::from_millis(40));
        story.say(far, ACK, (FAR + 1, NEAR.wrapping_add(1)), &[]);
        story.wait(Duration::from_millis(40));
        story
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..=7 => self.send_some(input),
            8..=11 => self.wait(Duration::from_micros(u64::from(input.byte()).pow(2) * 8)),
            12 | 13 => {
                self.window = u16::from(input.byte()) * 16;
                self.confirm();
            }
            14 => {
                let choice = input.byte();
                let loss = [0.0, 0.1, 0.5, 1.0][usize::from(choice >> 6)];
                self.lose(usize::from(choice & 1), loss);
            }
            _ => {
                let wrong = u32::from(input.byte());
                self.near_says(ACK, wrong * 400, &[0x55; 100], Some(usize::from(input.byte())));
            }
        }
    }

    /// A piece of the stream: new, again, overlapping, or behind a gap.
    fn send_some(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let end = self.sent.whole;
        let from = match choice & 3 {
            0 => end.saturating_sub(u32::from(input.byte()) * 64),
            1 => end + u32::from(input.byte()) * 16,
            _ => end,
        };
        let len = u32::from(choice >> 2) * 22;
        let from = from.min(self.received.whole + AHEAD);
        let piece: Vec<u8> = (from..from + len).map(byte_at).collect();
        self.sent.add(from, len);
        self.near_says(ACK, from, &piece, None);
    }

    /// The near end's segment. `broken`: a bit of it, after its checksum was made.
    fn near_says(&mut self, flags: u8, from: u32, piece: &[u8], broken: Option<usize>) {
        let seq = NEAR.wrapping_add(1).wrapping_add(from);
        let mut packet = self.packet(self.near, flags, (seq, FAR + 1), piece);
        if let Some(bit) = broken {
            let at = packet.len() - 1 - (bit / 8) % 100;
            packet[at] ^= 1 << (bit % 8);
        }
        self.lab.send(self.near, &packet);
        self.take();
    }

    /// The far end says what it has, and no more.
    fn confirm(&mut self) {
        let ack = NEAR.wrapping_add(1).wrapping_add(self.received.whole);
        self.say(self.near.opposite(), ACK, (FAR + 1, ack), &[]);
    }

    fn say(&mut self, from: Towards, flags: u8, numbers: (u32, u32), payload: &[u8]) {
        let packet = self.packet(from, flags, numbers, payload);
        self.lab.send(from, &packet);
        self.take();
    }

    fn wait(&mut self, time: Duration) {
        self.lab.run_until(self.lab.now + time);
        self.take();
    }

    fn lose(&mut self, link: usize, loss: f64) {
        let loss = if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None };
        let conditions = Conditions { loss, ..self.healthy.clone() };
        let now = self.lab.now;
        let link = &mut self.lab.links[link];
        for way in [&mut link.down, &mut link.up] {
            way.plan_change(now, conditions.clone());
        }
    }

    /// What came out of both TUNs.
    fn take(&mut self) {
        for Delivered { packet, .. } in self.lab.delivered(self.near.opposite()) {
            // A far end takes nothing that was broken before the tunnel.
            let Some(segment) = Segment::read(&packet) else { continue };
            if segment.flags & SYN == 0 && !segment.payload.is_empty() {
                let from = segment.seq.wrapping_sub(NEAR.wrapping_add(1));
                let is_right = (from..).zip(segment.payload).all(|(at, byte)| byte_at(at) == *byte);
                assert!(is_right, "other bytes than were sent, from {from}");
                self.received.add(from, segment.payload.len() as u32);
            }
        }
        for Delivered { packet, .. } in self.lab.delivered(self.near) {
            // Links that fail may carry less afterwards, which a router says by ICMP.
            let view = PacketView::parse(&packet).expect("a packet");
            if view.protocol() == protocol::ICMP {
                continue;
            }
            let segment = Segment::read(&packet).expect("what is said to the near end is whole");
            self.is_reset |= segment.flags & RST != 0;
            assert_eq!(segment.flags & FIN, 0, "an end that nobody said");
            if segment.flags & (SYN | RST) == 0 {
                let acknowledged = segment.ack.wrapping_sub(NEAR.wrapping_add(1));
                assert!(acknowledged <= self.sent.whole, "{acknowledged} is more than was sent");
                self.acknowledged = self.acknowledged.max(acknowledged);
            }
        }
        let kept = self.lab.proxy.stats().local_acks.kept_bytes
            + self.lab.client.stats().local_acks.kept_bytes;
        let owed = self.acknowledged.saturating_sub(self.received.whole);
        assert!(self.is_reset || owed as usize <= kept, "{owed} acknowledged, {kept} kept");
    }

    /// The links are whole again, and the far end answers.
    fn end(&mut self) {
        (0..2).for_each(|link| self.lose(link, 0.0));
        let until = self.lab.now + HEALING;
        self.window = u16::MAX;
        while self.lab.now < until && !self.is_reset && self.received.whole < self.acknowledged {
            self.confirm();
            self.wait(Duration::from_millis(100));
        }
        let (has, owed) = (self.received.whole, self.acknowledged);
        assert!(self.is_reset || has >= owed, "{owed} acknowledged, {has} arrived");
    }

    fn packet(&self, from: Towards, flags: u8, (seq, ack): (u32, u32), payload: &[u8]) -> Vec<u8> {
        let mut options = Vec::new();
        if flags & SYN != 0 {
            options.extend([2, 4, 5, 0x64, 4, 2, 3, 3, 7, 1, 1, 1]);
        }
        if self.with_times {
            let clock = (self.lab.now.as_micros() / 1000 + 1) as u32;
            options.extend([1, 1, 8, 10]);
            options.extend(clock.to_be_bytes());
            options.extend(if flags == SYN { [0; 4] } else { [0, 0, 0, 1] });
        }
        let header = 20 + options.len();
        let total = (20 + header + payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, protocol::TCP, 0, 0]);
        let (client, server): ([u8; 4], [u8; 4]) = (CLIENT.0.octets(), SERVER.0.octets());
        let is_client = from == Towards::Client;
        let (source, target) = if is_client { (client, server) } else { (server, client) };
        packet.extend(source.into_iter().chain(target));
        let checksum = !checksum::fold(checksum::sum(0, &packet));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let (mine, other): (u16, u16) = if is_client { (40_000, 443) } else { (443, 40_000) };
        packet.extend(mine.to_be_bytes().into_iter().chain(other.to_be_bytes()));
        packet.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
        packet.extend([(header as u8 / 4) << 4, flags]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(options);
        packet.extend(payload);
        let transport = Transport::of(&PacketView::parse(&packet).expect("a packet")).expect("TCP");
        let partial = transport.partial(&packet).to_be_bytes();
        packet[36..38].copy_from_slice(&partial);
        transport.complete(&mut packet);
        packet
    }
}

/// A byte of the stream follows from its place.
fn byte_at(at: u32) -> u8 {
    at.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]
}

/// What is known of a stream: all below `whole`, and pieces behind (begin, end).
#[derive(Default)]
struct Pieces {
    whole: u32,
    behind: BTreeMap<u32, u32>,
}

impl Pieces {
    fn add(&mut self, from: u32, len: u32) {
        let end = self.behind.entry(from).or_default();
        *end = (*end).max(from + len);
        while let Some(piece) = self.behind.first_entry().filter(|piece| *piece.key() <= self.whole)
        {
            self.whole = self.whole.max(piece.remove());
        }
    }
}

/// What a segment says.
struct Segment<'a> {
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// `None`: no TCP of this connection, or broken.
    fn read(packet: &'a [u8]) -> Option<Self> {
        let view = PacketView::parse(packet).ok()?;
        let transport = Transport::of(&view)?;
        if view.protocol() != protocol::TCP || !transport.is_right(packet) {
            return None;
        }
        let tcp = packet.get(transport.start..)?;
        let word = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
        let payload = packet.get(transport.payload..)?;
        Some(Self { seq: word(4)?, ack: word(8)?, flags: *tcp.get(13)?, payload })
    }
}
