//! What is measured of the core, once for time (`packet`) and once for instructions (`instructions`): the same bodies.

use ropewalk_netlab::direct::Direct;
use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::DataKey;
use ropewalk_proto::crypto::aead::{Cipher, Opener, Sealer, TAG_LEN};
use ropewalk_proto::link::carried::Carried;
use ropewalk_proto::link::receiver::{LinkReceiver, NumberedDatagram};
use ropewalk_proto::link::sender::{LinkSender, Via};
use ropewalk_proto::link::sent::Sent;
use ropewalk_proto::packet::{FlowKey, Packet};
use ropewalk_proto::reseq::{self, Resequencer};
use ropewalk_proto::sched::{AnyScheduler, LinkView, PacketMeta, Pick, Scheduler};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{Frame, Frames, PacketFrame, emit};
use ropewalk_proto::wire::header::{Clear, Kind, Sealed};
use ropewalk_settings::{ControllerKind, PortRange, Redundant, Scheduling, Text as _};

/// Packets of one piece of work: half of what a driver reads in one turn.
const PACKETS: usize = 32;
/// Bytes of a packet.
const LEN: usize = 1400;
/// Between two packets: at 1 Gbit/s.
const GAP: Duration = Duration::from_nanos(11_500);

/// Something that is measured.
pub(crate) trait Body {
    /// Gets ready for a piece of work; not measured.
    fn prepare(&mut self) {}

    /// The work: [`Named::packets`] packets of it.
    fn work(&mut self);
}

/// A body before it is set up, which may take seconds.
pub(crate) struct Named {
    /// For people and for the file of counts.
    pub(crate) name: &'static str,
    /// Packets of a piece of work.
    pub(crate) packets: u32,
    /// Sets it up.
    pub(crate) build: fn() -> Box<dyn Body>,
}

/// All of them.
pub(crate) const ALL: [Named; 24] = [
    of("wire: write and read a packet's headers", || Box::new(Wire::new())),
    of("seal 1400 B", || Box::new(Seal::new(1400))),
    of("open 1400 B", || Box::new(Open(Seal::new(1400)))),
    of("seal 160 B", || Box::new(Seal::new(160))),
    of("open 160 B", || Box::new(Open(Seal::new(160)))),
    of("scheduler: one of four links", || Box::new(Schedule::new())),
    of("resequencer: in order", || Box::new(Resequence::new(1))),
    of("resequencer: every fourth packet late", || Box::new(Resequence::new(4))),
    of("report: note, write and take", || Box::new(Reporting::new())),
    of("core sends, 1 link", || Box::new(CoreSends(Core::new(1, 1, LEN)))),
    of("core sends, 4 links", || Box::new(CoreSends(Core::new(1, 4, LEN)))),
    of("core receives, 1 link", || Box::new(CoreReceives(Core::new(1, 1, LEN)))),
    of("core receives, 4 links", || Box::new(CoreReceives(Core::new(1, 4, LEN)))),
    of("core sends 160 B, 2 links", || Box::new(CoreSends(Core::new(1, 2, 160)))),
    of("core sends 160 B, 2 links, each alone", || Box::new(CoreSends(Core::alone(1, 2, 160)))),
    of("core receives 160 B, 2 links", || Box::new(CoreReceives(Core::new(1, 2, 160)))),
    of("core receives 160 B, 2 links, each alone", || {
        Box::new(CoreReceives(Core::alone(1, 2, 160)))
    }),
    of("core sends, 2 links, 32 flows", || Box::new(CoreSends(Core::of_flows(32, LEN)))),
    of("core receives, 2 links, 32 flows", || Box::new(CoreReceives(Core::of_flows(32, LEN)))),
    of("core sends 160 B over both of 2 links", || Box::new(CoreSends(Core::redundant(160)))),
    of("core receives 160 B over both of 2 links", || Box::new(CoreReceives(Core::redundant(160)))),
    of("core receives 160 B, 2 links, each alone beside 100 sessions", || {
        Box::new(CoreReceives(Core::alone(101, 2, 160)))
    }),
    Named {
        packets: 1,
        ..of("core takes one of 160 B and returns one", || {
            Box::new(CoreAnswers(Core::new(1, 2, 160)))
        })
    },
    Named {
        packets: 1,
        ..of("core takes one of 160 B and returns one beside 1,000 sessions", || {
            Box::new(CoreAnswers(Core::new(1001, 2, 160)))
        })
    },
];

const fn of(name: &'static str, build: fn() -> Box<dyn Body>) -> Named {
    Named { name, packets: 32, build }
}

struct Wire {
    buffer: Vec<u8>,
    packet: Vec<u8>,
}

impl Wire {
    fn new() -> Self {
        Self { buffer: vec![0; 1500], packet: vec![7; LEN] }
    }
}

impl Body for Wire {
    fn work(&mut self) {
        for number in 0..32 {
            let clear = Clear {
                kind: Kind::Frames,
                phase: 3,
                link: LinkId(1),
                receiver: SessionIndex::new(77),
                number,
            };
            let sealed = Sealed {
                send_time: number,
                global: number,
                previous_on_link: 1,
                previous_of_flow: 1,
            };
            let (head, rest) = self.buffer.split_at_mut(8);
            head.copy_from_slice(&clear.to_bytes());
            let mut writer = Writer::new(rest);
            let packet = Frame::Packet(PacketFrame {
                global: number,
                previous_on_link: 1,
                previous_of_flow: 1,
                packet: &self.packet,
            });
            let written = sealed.emit(&mut writer).and_then(|()| emit(&mut writer, &packet));
            written.expect("there is room");
            let clear = Clear::parse(&self.buffer).expect("as written");
            let (sealed, frames) = Sealed::parse(&self.buffer[8..]).expect("as written");
            std::hint::black_box((clear, sealed, Frames::new(frames).next()));
        }
    }
}

/// Datagrams sealed one behind the other.
struct Seal {
    sealer: Sealer,
    opener: Opener,
    number: u64,
    buffers: Vec<Vec<u8>>,
}

impl Seal {
    fn new(len: usize) -> Self {
        let (cipher, key) = (Cipher::Aes256Gcm, DataKey::from_bytes([1; 32]));
        Self {
            sealer: Sealer::new(cipher, &key),
            opener: Opener::new(cipher, &key),
            number: 0,
            buffers: vec![vec![7; len + TAG_LEN]; PACKETS],
        }
    }
}

impl Body for Seal {
    fn work(&mut self) {
        for buffer in &mut self.buffers {
            self.number += 1;
            self.sealer.seal(LinkId(0), self.number, &[0; 8], buffer).expect("within the limits");
        }
    }
}

struct Open(Seal);

impl Body for Open {
    fn prepare(&mut self) {
        self.0.work();
    }

    fn work(&mut self) {
        let Seal { opener, number, buffers, .. } = &mut self.0;
        let first = *number - buffers.len() as u64;
        for (number, buffer) in (first + 1..).zip(buffers) {
            let opened = opener.open(LinkId(0), number, &[0; 8], buffer);
            std::hint::black_box(opened.expect("as sealed").len());
        }
    }
}

struct Schedule {
    scheduler: AnyScheduler,
    links: [LinkView; 4],
    packet: PacketMeta,
    now: Instant,
}

impl Schedule {
    fn new() -> Self {
        let links = [0, 1, 2, 3].map(|id| LinkView::of_room(LinkId(id), 20 + u32::from(id)));
        let packet = PacketMeta { flow: FlowKey(9), ..PacketMeta::of_len(1400) };
        let scheduler = AnyScheduler::new(Instant::ZERO, &Scheduling::default());
        Self { scheduler, links, packet, now: Instant::ZERO }
    }
}

impl Body for Schedule {
    fn work(&mut self) {
        for _ in 0..PACKETS {
            self.now += GAP;
            let pick =
                self.scheduler.pick(self.now, &self.packet, std::hint::black_box(&self.links));
            if let Pick::Send(index) = pick {
                self.scheduler.on_sent(self.now, &self.packet, self.links[index].id);
            }
        }
    }
}

/// Takes packets and forgets them.
struct Nowhere;

impl PacketSink for Nowhere {
    fn deliver(&mut self, packet: Packet<'_>) {
        std::hint::black_box(packet);
    }
}

struct Resequence {
    resequencer: Resequencer,
    now: Instant,
    next: u64,
    local: [u64; 2],
    /// The first of so many comes after the others, on a link of its own; 1: none does.
    every: u64,
    packet: Vec<u8>,
}

impl Resequence {
    fn new(every: u64) -> Self {
        let mut resequencer = Resequencer::new(reseq::Config::default(), 0);
        resequencer.link_added(LinkId(0), 0);
        resequencer.link_added(LinkId(1), 0);
        Self {
            resequencer,
            now: Instant::from_millis(1),
            next: 0,
            local: [0; 2],
            every,
            packet: vec![7; LEN],
        }
    }

    fn offer(&mut self, link: usize, global: u64) {
        self.now += GAP;
        let arrival = reseq::Evidence {
            link: LinkId(u8::from(link == 1)),
            local: self.local[link],
            sent_us: i64::try_from(self.now.as_nanos() / 1000).unwrap_or_default(),
            global,
            kind: reseq::EvidenceKind::Data { prev_on_link: None },
        };
        self.local[link] += 1;
        self.resequencer.offer(self.now, &arrival, Packet::whole(&self.packet), &mut Nowhere);
    }
}

impl Body for Resequence {
    fn work(&mut self) {
        for _ in 0..PACKETS as u64 / self.every {
            let first = self.next;
            self.next += self.every;
            for global in first + 1..self.next {
                self.offer(0, global);
            }
            self.offer(usize::from(self.every > 1), first);
        }
    }
}

struct Reporting {
    sender: LinkSender,
    receiver: LinkReceiver,
    now: Instant,
}

impl Reporting {
    fn new() -> Self {
        Self {
            sender: LinkSender::new(ControllerKind::default(), 0),
            receiver: LinkReceiver::new(LinkId(0), 0),
            now: Instant::ZERO,
        }
    }
}

impl Body for Reporting {
    fn work(&mut self) {
        for _ in 0..PACKETS {
            self.now += GAP;
            let sent = Sent {
                size: 1432,
                header: 28,
                places: 1,
                eliciting: true,
                window_limited: true,
                window_full: true,
                paced: false,
                carried: Carried::default(),
            };
            let number = self.sender.on_sent(self.now, sent);
            let arrival = NumberedDatagram { number, size: 1432, eliciting: 1, ce: false };
            self.receiver.on_datagram(self.now, arrival);
        }
        self.receiver.end_of_batch(self.now);
        self.now += Duration::from_millis(1);
        let Some(report) =
            self.receiver.poll_report(self.now).or(self.receiver.poll_ride(self.now))
        else {
            return;
        };
        let token = self.receiver.report_sent(self.now, &report);
        self.receiver.on_report_confirmed(self.now, token);
        let sealed_us = i64::try_from(self.now.as_micros()).unwrap_or(i64::MAX);
        let taken = self.sender.on_report(self.now, &report, Via::Own, sealed_us, |settled| {
            std::hint::black_box(settled);
        });
        std::hint::black_box(taken).expect("an honest report");
    }
}

/// Clients and a proxy; the first client is the busy one.
struct Core {
    ends: Direct,
    /// They take turns.
    packets: Vec<Vec<u8>>,
    /// One of the other direction.
    answer: Vec<u8>,
}

impl Core {
    fn new(clients: u32, links: u8, len: usize) -> Self {
        Self::with(&TunnelConfig::default(), clients, links, len)
    }

    /// No two packets share a datagram.
    fn alone(clients: u32, links: u8, len: usize) -> Self {
        let config = TunnelConfig { bundle: false, ..TunnelConfig::default() };
        Self::with(&config, clients, links, len)
    }

    /// One client's packets are of so many flows.
    fn of_flows(flows: u16, len: usize) -> Self {
        let of = |flow| Inner { flow, ..Inner::plain(Towards::Proxy, 1, len) }.packet();
        Self::carrying(&TunnelConfig::default(), 1, 2, (1..=flows).map(of).collect())
    }

    /// One client's packets go over both of two links.
    fn redundant(len: usize) -> Self {
        let ports = vec![PortRange::from_text("80").expect("a port")];
        let budget = *Redundant::BUDGET.end();
        let redundant = Redundant { ports, budget, ..Redundant::off() };
        let scheduling = Scheduling { redundant, ..Scheduling::default() };
        let config = TunnelConfig { scheduling, ..TunnelConfig::default() };
        let core = Self::with(&config, 1, 2, len);
        let redundancy = core.ends.clients[0].stats().tunnel.and_then(|tunnel| tunnel.redundancy);
        assert!(redundancy.is_some_and(|twice| twice.packets > 0), "they go over both");
        core
    }

    fn with(config: &TunnelConfig, clients: u32, links: u8, len: usize) -> Self {
        let packet = Inner::plain(Towards::Proxy, 1, len).packet();
        Self::carrying(config, clients, links, vec![packet])
    }

    fn carrying(config: &TunnelConfig, clients: u32, links: u8, packets: Vec<Vec<u8>>) -> Self {
        let mut ends = Direct::new(config, clients, links).expect("there is room");
        ends.connect().expect("everybody is known");
        let answer = Inner::plain(Towards::Client, 1, packets[0].len()).packet();
        let mut core = Self { ends, packets, answer };
        // Until windows and memory have their sizes: more than is sent later, and what has no room waits.
        for _ in 0..400 {
            core.offer();
            core.offer();
            core.offer_back();
            core.offer_back();
            core.ends.exchange(0);
        }
        let before = [core.ends.at_proxy.packets, core.ends.at_clients.packets];
        core.send();
        core.receive();
        core.offer_back();
        core.ends.proxy_sends();
        core.ends.client_receives();
        let after = [core.ends.at_proxy.packets, core.ends.at_clients.packets];
        let all = before.map(|packets| packets + PACKETS as u64);
        assert_eq!(after, all, "the windows let all pass in one batch");
        core.ends.exchange(0);
        core
    }

    fn offer_back(&mut self) {
        for _ in 0..PACKETS {
            self.ends.packet_down(&self.answer);
        }
    }

    fn offer(&mut self) {
        for packet in self.packets.iter().cycle().take(PACKETS) {
            self.ends.packet_up(0, packet);
        }
    }

    /// The packets go into the client and out as one batch.
    fn send(&mut self) {
        self.offer();
        assert!(self.ends.client_sends(0) > 0, "there is something to send");
    }

    fn receive(&mut self) {
        self.ends.proxy_receives(0);
    }

    /// They come, and are reported.
    fn settle(&mut self) {
        self.receive();
        self.ends.exchange(0);
    }
}

struct CoreSends(Core);

impl Body for CoreSends {
    fn prepare(&mut self) {
        self.0.settle();
    }

    fn work(&mut self) {
        self.0.send();
    }
}

struct CoreReceives(Core);

impl Body for CoreReceives {
    fn prepare(&mut self) {
        self.0.ends.exchange(0);
        self.0.send();
    }

    fn work(&mut self) {
        self.0.receive();
    }
}

/// The proxy takes a packet, and sends one: the dearest turn, as nothing is shared by the packets of a batch.
struct CoreAnswers(Core);

impl Body for CoreAnswers {
    fn prepare(&mut self) {
        self.0.ends.client_receives();
        self.0.ends.exchange(0);
        self.0.ends.packet_up(0, &self.0.packets[0]);
        assert!(self.0.ends.client_sends(0) > 0, "there is something to send");
    }

    fn work(&mut self) {
        self.0.receive();
        self.0.ends.packet_down(&self.0.answer);
        assert!(self.0.ends.proxy_sends() > 0, "there is something to send");
        std::hint::black_box(self.0.ends.proxy.poll_timeout());
    }
}
