//! A peer that holds the keys of a session and says what it likes, to one end whose memory and work are counted.
//!
//! The end under attack is a whole [`Tunnel`], as proxy or as client. All that it asks of the allocator is metered
//! call by call; the attacker's own memory is not. What must hold:
//!
//! * memory: the session never keeps more than [`MOST_BYTES`];
//! * work: at one moment it sends what was waiting and at most [`MOST_ANSWERS`] for each datagram that came, and its
//!   timer goes off at most [`MOST_WAKEUPS`] times in a second;
//! * amplification: an address that never proved that it receives gets at most three times the bytes that came from it.

use std::sync::Arc;

use allocation_counter::measure;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use ropewalk_netlab::direct::Count;
use ropewalk_netlab::inner::{CLIENT, Inner, SERVER};
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::pair::link_config;
use ropewalk_proto::config::{MAX_LINKS, TunnelConfig};
use ropewalk_proto::crypto::rekey::{Identity, RekeyContext, RekeyInitiator, RekeyResponder};
use ropewalk_proto::crypto::{Cipher, DataKey, EpochKeys, HandshakeRole, KeyRing, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::event::Event;
use ropewalk_proto::link::received::{Range, Ranges, Report};
use ropewalk_proto::packet::transport::Transport;
use ropewalk_proto::packet::{PacketView, checksum, protocol};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::TransmitSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{
    Credentials, Established, InnerFilter, Side, SpeedDecision, SpeedPhase, Tunnel,
};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{
    CloseReason, FleetFrame, Frame, Frames, Halt, PacketFrame, SpeedAnswerFrame, SpeedLoad,
    SpeedRequestFrame, emit, emit_report,
};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, SEALED_LEN, Sealed, TAG_LEN};
use ropewalk_settings::{Keepalive, PresharedKey};

use crate::input::Input;

/// What one session may ever keep beside what its links do, bytes. The sum of what SECURITY.md section 5 allows: 8 MiB that
/// wait for a link, 16 MiB kept until they are confirmed, 16 MiB that wait for their order, 16 MiB of TCP acknowledged,
/// 16 MiB kept for packets to come; and 8 MiB for all tables.
const SESSION_BYTES: i64 = 80 << 20;

/// What one link may keep while its window is closed: 6,144 datagrams outside it that nobody confirmed and 16,384 that were
/// lost, of some 140 bytes each, in queues that grow by doubling. An input is too short to open the window far.
const LINK_BYTES: i64 = 3 << 20;

/// What one session may ever keep.
pub const MOST_BYTES: i64 = SESSION_BYTES + LINK_BYTES * MAX_LINKS as i64;

/// Datagrams that one datagram may elicit at once, beside packets that waited: an answer on each of 16 links, and a
/// challenge for each of its 64 frames, or the test data that its owner grants.
pub const MOST_ANSWERS: u64 = 80;

/// Wake-ups in one second of virtual time: 16 links whose timers of 2 ms or more do not go together.
pub const MOST_WAKEUPS: u64 = 8000;

/// Wake-ups at one moment that only a timer that spins can cause.
const SPIN: u32 = 100;

/// Operations of one input, and datagrams and packets of all its bursts.
const MOST_OPERATIONS: usize = 400;
const MOST_CALLS: u64 = 20_000;

/// Datagrams of a flood: enough to fill what is bounded by 16 MiB.
const FLOOD: u64 = 15_000;

/// Kinds of operations, and kinds of frames.
const OPERATIONS: u8 = 16;
pub const FRAME_KINDS: u8 = 25;
/// The operation that sends frames; the others that send something by themselves; and of these the one that has the victim
/// send.
pub const FRAMES: u8 = 0;
pub const FLOODS: [u8; 8] = [1, 7, 8, 9, 10, 13, 14, FROM_TUN];
const FROM_TUN: u8 = 15;

/// Test data that the victim's owner grants at a time, bytes: a part of [`MOST_ANSWERS`] full datagrams.
const TEST_DATA: u64 = 30_000;

/// Bytes of the largest body.
const LARGEST: usize = 1440;

/// Addresses in whose name the attacker sends, and where it does not receive.
const BYSTANDERS: u8 = 4;

/// Datagrams of a batch.
const BATCH: usize = 64;

/// Bytes of the largest datagram, of which the victim looks for room: an Ethernet frame's.
const LARGEST_SENT: usize = 1500;

/// What was seen.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// Most bytes kept at once.
    pub most_bytes: i64,
    /// Bytes kept when all was over and the end had rested.
    pub rest_bytes: i64,
    /// Datagrams that came.
    pub came: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Most sent at one moment after one datagram, while no packet waited.
    pub most_answers: u64,
    /// Packets delivered to the TUN.
    pub delivered: u64,
    /// Epochs of the keys.
    pub epochs: u32,
}

/// Runs the target on one input, and says what was seen.
pub fn run(data: &[u8]) -> Seen {
    let mut input = Input(data);
    let choice = input.byte();
    let victim = if choice & 1 == 0 { Towards::Proxy } else { Towards::Client };
    let mut attack = Attack::begin(victim);
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() || attack.calls > MOST_CALLS || attack.victim.is_closed() {
            break;
        }
        attack.step(&mut input);
    }
    attack.end()
}

/// One kind of operation over and over, of [`FLOODS`], and with [`FRAMES`] of one kind only.
pub fn flood(victim: Towards, operation: u8, kind: u8, rng: &mut StdRng) -> Seen {
    let mut attack = Attack::begin(victim);
    attack.only = Some(kind);
    while attack.calls < MOST_CALLS && attack.seen.came < FLOOD && !attack.victim.is_closed() {
        let mut bytes = [0; 256];
        rng.fill_bytes(&mut bytes);
        let input = &mut Input(&bytes);
        attack.act(operation, LinkId(bytes[255] & 1), 1 << (bytes[254] % 11), bytes[253], input);
        attack.answer();
        if bytes[252].is_multiple_of(8) {
            attack.pass(Duration::from_millis(u64::from(bytes[251])));
        }
        if operation == FROM_TUN && bytes[250].is_multiple_of(4) {
            attack.report(LinkId(bytes[255] & 1), true, input);
        }
    }
    attack.end()
}

struct Attack {
    /// The end under attack.
    victim: Tunnel,
    /// Where datagrams to it go.
    towards: Towards,
    now: Instant,
    tun: Count,
    out: Batch,
    /// Bytes that it keeps.
    live: i64,
    calls: u64,
    /// The attacker's keys.
    keys: KeyRing,
    credentials: Credentials,
    initiator: Option<RekeyInitiator>,
    responder: RekeyResponder,
    rng: StdRng,
    /// Next local number on each link, and the highest that the victim used there.
    numbers: [u64; 256],
    heard: [u64; 256],
    global: u64,
    /// What the attacker says of its own accord with its next datagram: answers to what it was asked.
    replies: Vec<(LinkId, Vec<u8>)>,
    /// Bytes from and to each bystander.
    from_bystander: [u64; BYSTANDERS as usize],
    to_bystander: [u64; BYSTANDERS as usize],
    flow: u16,
    /// The only kind of frames that it sends.
    only: Option<u8>,
    seen: Seen,
}

impl Attack {
    fn begin(towards: Towards) -> Self {
        let mut victim = None;
        let made = measure(|| {
            victim = Some(tunnel(towards));
        });
        let (live, credentials) = (made.bytes_current, credentials(towards));
        let mut attack = Self {
            victim: victim.expect("made above"),
            towards,
            now: Instant::from_millis(1),
            tun: Count::default(),
            out: Batch::new(),
            live,
            calls: 0,
            // It waits for nobody before it sends.
            keys: KeyRing::new(HandshakeRole::Initiator, &keys(towards)),
            responder: RekeyResponder::new(credentials.context),
            credentials,
            initiator: None,
            rng: StdRng::seed_from_u64(1),
            numbers: [0; 256],
            heard: [0; 256],
            global: 0,
            replies: Vec::new(),
            from_bystander: [0; BYSTANDERS as usize],
            to_bystander: [0; BYSTANDERS as usize],
            flow: 80,
            only: None,
            seen: Seen::default(),
        };
        match towards {
            Towards::Proxy => (0..2).for_each(|link| attack.join(LinkId(link), 0)),
            Towards::Client => {
                for link in 0..2 {
                    let path = Path { socket: SocketId(link), local: None, remote: PROXY };
                    let config = link_config("wan", path, Keepalive::Every(Duration::from_secs(1)));
                    let now = attack.now;
                    attack.counted(|attack| {
                        assert!(attack.victim.add_link(now, &config).is_ok(), "few links");
                    });
                }
                // It tests how fast they are, all the time.
                let until = attack.now + Duration::from_secs(3600);
                let links = [0, 1].map(|link| (LinkId(link), u64::MAX)).into_iter().collect();
                let phase = SpeedPhase { links, bytes: TEST_DATA, load: SpeedLoad::Up, until };
                let now = attack.now;
                attack.counted(|attack| {
                    assert!(attack.victim.begin_speed_phase(now, phase).is_ok(), "it may ask");
                });
            }
        }
        attack.drain();
        attack.answer();
        attack
    }

    /// Ends the attack: what was kept for the session's traffic is given back when none comes.
    fn end(mut self) -> Seen {
        (0..30).for_each(|_| self.pass(Duration::from_secs(1)));
        self.seen.rest_bytes = self.live;
        self.seen.delivered = self.tun.packets;
        self.seen.epochs = self.keys.newest_epoch();
        self.seen
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let burst = 1_u64 << (input.byte() % 11);
        let link = LinkId(if choice & 128 == 0 { choice >> 6 & 1 } else { input.byte() % 20 });
        let place = input.byte();
        self.act(choice % OPERATIONS, link, burst, place, input);
        self.answer();
    }

    fn act(&mut self, operation: u8, link: LinkId, burst: u64, place: u8, input: &mut Input<'_>) {
        match operation {
            FRAMES | 4..=6 => {
                let body = frames(input, self);
                for _ in 0..burst.min(64) {
                    self.say(link, Kind::Frames, place, &body);
                }
            }
            1..=3 => self.packets(input, link, burst, place),
            7 => {
                let body = input.piece().to_vec();
                let kind = [Kind::Frames, Kind::Data, Kind::FlowFrames, Kind::FlowData];
                self.say(link, kind[usize::from(place % 4)], place, &body);
            }
            8 => self.report(link, place & 1 == 0, input),
            9 => self.join(LinkId(input.byte()), place),
            10 => self.rekey(link, place),
            11 => {
                let jump = 1_u64 << (input.byte() % 22);
                self.numbers[usize::from(link.0)] += jump;
            }
            12 => self.pass(Duration::from_micros(u64::from(input.byte()).pow(3))),
            13 => self.segments(input, burst, link, place),
            14 => {
                self.pass(Duration::from_millis(u64::from(place)));
                self.answer();
                for link in 0..2 {
                    self.report(LinkId(link), true, input);
                }
            }
            _ => self.packets_of_the_tun(input, burst),
        }
    }

    /// Packets with numbers that step or jump.
    fn packets(&mut self, input: &mut Input<'_>, link: LinkId, burst: u64, place: u8) {
        let (step, len) = (u64::from(input.byte()), 56 + usize::from(input.byte()) * 5);
        let kind = if place & 1 == 0 { Kind::Data } else { Kind::FlowData };
        let mut packet = Inner::plain(self.towards, self.global, len);
        for number in 0..burst {
            packet.number = self.global;
            packet.flow = if step & 128 == 0 { 80 } else { number as u16 };
            let bytes = packet.packet();
            self.say(link, kind, place & 0xf0, &bytes);
            self.global += step & 15;
        }
        self.global += step << 4 & 0xf00;
    }

    /// Packets that the victim is to send.
    fn packets_of_the_tun(&mut self, input: &mut Input<'_>, burst: u64) {
        let away = self.towards.opposite();
        let (flows, len) = (u64::from(input.byte()), 56 + usize::from(input.byte()) * 5);
        for number in 0..burst {
            let mut packet = Inner::plain(away, number, len);
            packet.flow = (number % (flows + 1)) as u16;
            self.read(&packet.packet());
        }
    }

    /// TCP of many connections, of which the victim may take over the acknowledgements.
    fn segments(&mut self, input: &mut Input<'_>, burst: u64, link: LinkId, place: u8) {
        let (away, towards) = (self.towards.opposite(), self.towards);
        for _ in 0..burst {
            self.flow = self.flow.wrapping_add(1);
            let (near, far) = (1000 + u32::from(self.flow), 5000);
            // Opened by the peer's side, then data from the victim's TUN that the peer never confirms.
            self.say(link, Kind::FlowData, place & 0xf0, &tcp(towards, self.flow, 2, far, 0, 0));
            self.read(&tcp(away, self.flow, 18, near, far + 1, 0));
            let ack = tcp(towards, self.flow, 16, far + 1, near + 1, 0);
            self.say(link, Kind::FlowData, place & 0xf0, &ack);
            let mut seq = near + 1;
            for _ in 0..input.byte() % 8 {
                self.read(&tcp(away, self.flow, 16, seq, far + 1, 1200));
                seq += 1200;
            }
        }
    }

    fn report(&mut self, link: LinkId, honest: bool, input: &mut Input<'_>) {
        let heard = self.heard[usize::from(link.0)];
        let mut ranges = Ranges::new();
        if honest {
            ranges.push(Range { first: 0, last: heard });
        } else {
            let mut last = heard.saturating_sub(u64::from(input.byte()));
            // More than 32 travel as a bitmap.
            for _ in 0..=input.byte() % 80 {
                let first = last.saturating_sub(u64::from(input.byte()));
                ranges.push(Range { first, last });
                last = first.saturating_sub(2 + u64::from(input.byte()));
                if first < 2 {
                    break;
                }
            }
        }
        let delay_us = u32::from(input.byte()) << (input.byte() % 25);
        let report = Report { link, delay_us, ce_count: input.byte().into(), ranges };
        let body = written(|writer| emit_report(writer, &report).is_ok());
        self.say(link, Kind::Frames, 0, &body);
    }

    fn join(&mut self, link: LinkId, place: u8) {
        let body = written(|writer| emit(writer, &Frame::Join { name: b"wan" }).is_ok());
        self.say(link, Kind::Frames, place, &body);
    }

    /// Begins a rekey, as the client; asks for one, as the proxy.
    fn rekey(&mut self, link: LinkId, place: u8) {
        if self.towards == Towards::Client {
            let body = written(|writer| emit(writer, &Frame::RekeyRequest).is_ok());
            return self.say(link, Kind::Frames, place, &body);
        }
        if place & 1 == 0 || self.initiator.is_none() {
            let identity = identity(&self.credentials);
            let context = &self.credentials.context;
            self.initiator = Some(RekeyInitiator::start(&identity, context, &mut self.rng));
        }
        let message = self.initiator.as_ref().map(|rekey| rekey.message().to_vec());
        let message = message.unwrap_or_default();
        let body = written(|writer| emit(writer, &Frame::RekeyFirst(&message)).is_ok());
        self.say(link, Kind::Frames, place, &body);
    }

    /// Says what the victim asked for.
    fn answer(&mut self) {
        for (link, body) in std::mem::take(&mut self.replies) {
            self.say(link, Kind::Frames, 0, &body);
        }
        // What they brought about is answered with the next.
        self.replies.truncate(64);
    }

    /// One datagram to the victim.
    fn say(&mut self, link: LinkId, kind: Kind, place: u8, body: &[u8]) {
        self.calls += 1;
        let number = self.numbers[usize::from(link.0)];
        self.numbers[usize::from(link.0)] += 1;
        let clear = Clear {
            kind,
            phase: self.keys.send_phase().unwrap_or(0),
            link,
            receiver: SessionIndex::new(9),
            number: number as u32 & 0xff_ffff,
        };
        let clear = clear.to_bytes();
        let mut datagram = [0; CLEAR_LEN + SEALED_LEN + LARGEST + TAG_LEN];
        let mut writer = Writer::new(&mut datagram);
        let sealed = Sealed {
            send_time: (self.now.as_micros() / 4) as u32 ^ u32::from(place & 2) << 20,
            global: self.global as u32,
            previous_on_link: 0,
            previous_of_flow: if place & 4 == 0 { 0 } else { place },
        };
        let body = &body[..body.len().min(LARGEST)];
        let fits = writer.bytes(&clear).is_ok()
            && sealed.emit(&mut writer).is_ok()
            && writer.bytes(body).is_ok();
        assert!(fits, "room for the largest");
        let len = writer.len() + TAG_LEN;
        let datagram = &mut datagram[..len];
        if self.keys.seal(link, number, &clear, &mut datagram[CLEAR_LEN..]).is_err() {
            return;
        }
        let path = self.path(link, place);
        if let Some(bystander) = bystander(&path) {
            self.from_bystander[bystander] += datagram.len() as u64;
        }
        let waited = self.victim.stats().queued.0 > 0;
        let (now, sent) = (self.now, self.seen.sent);
        self.counted(|attack| {
            attack.victim.handle_datagram(now, path, Ecn::NotEct, datagram, &mut attack.tun);
            attack.victim.end_of_batch(now);
        });
        self.seen.came += 1;
        self.drain();
        let answers = self.seen.sent - sent;
        if !waited {
            self.seen.most_answers = self.seen.most_answers.max(answers);
        }
        assert!(waited || answers <= MOST_ANSWERS, "{answers} datagrams for one");
    }

    /// Where the attacker sends from: its own address, or in a bystander's name.
    fn path(&self, link: LinkId, place: u8) -> Path {
        let remote = match self.towards {
            Towards::Client => PROXY,
            Towards::Proxy if place & 0xc0 == 0xc0 => {
                ([203, 0, 113, 100 + place % BYSTANDERS], 9).into()
            }
            Towards::Proxy => ([192, 0, 2, 7], 4000 + u16::from(link.0)).into(),
        };
        Path { socket: SocketId(u16::from(link.0 & 1)), local: None, remote }
    }

    /// A packet from the victim's TUN.
    fn read(&mut self, packet: &[u8]) {
        self.calls += 1;
        let now = self.now;
        self.counted(|attack| attack.victim.handle_packet(now, packet, &mut attack.tun));
        self.drain();
    }

    /// Time passes, timer by timer.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let (mut wakeups, mut spins) = (0, 0);
        while let Some((at, why)) = self.victim.poll_timeout().filter(|(at, _)| *at <= end) {
            spins = if at > self.now { 0 } else { spins + 1 };
            assert!(spins < SPIN, "{why:?} spins");
            self.now = self.now.max(at);
            wakeups += 1;
            let now = self.now;
            self.counted(|attack| attack.victim.handle_timeout(now, &mut attack.tun));
            self.drain();
        }
        self.now = end;
        let allowed = MOST_WAKEUPS * (1 + time.as_secs());
        assert!(wakeups <= allowed, "{wakeups} wake-ups in {time:?}");
    }

    /// All that the victim has to send, and to tell.
    fn drain(&mut self) {
        loop {
            self.out.entries.clear();
            let now = self.now;
            self.counted(|attack| {
                while let Some(event) = attack.victim.poll_event() {
                    attack.decide(&event);
                }
                attack.victim.poll_transmit(now, &mut attack.out);
            });
            if self.overhear() == 0 {
                break;
            }
        }
        for (to, from) in self.to_bystander.iter().zip(&self.from_bystander) {
            assert!(*to <= 3 * from, "{to} bytes to who sent {from}");
        }
    }

    /// The victim's owner grants speed tests.
    fn decide(&mut self, event: &Event) {
        if *event == Event::SpeedWish {
            let (now, time) = (self.now, Duration::from_secs(1));
            let granted = SpeedDecision::Granted { time, bytes: TEST_DATA, place: None };
            self.victim.take_speed_use(now);
            self.victim.decide_speed_test(now, granted);
        }
    }

    /// The attacker reads what was sent, and thinks of answers.
    fn overhear(&mut self) -> usize {
        let Self { out, keys, now, heard, replies, to_bystander, .. } = self;
        let mut count = 0;
        let mut rekeys = Vec::new();
        let places = out.bytes.chunks_mut(LARGEST_SENT);
        for ((path, len), place) in out.entries.iter().zip(places) {
            let datagram = &mut place[..*len];
            count += 1;
            self.seen.sent += 1;
            if let Some(bystander) = bystander(path) {
                to_bystander[bystander] += datagram.len() as u64;
                continue;
            }
            let Ok(clear) = Clear::parse(datagram) else { continue };
            let Some((head, sealed)) = datagram.split_first_chunk_mut::<CLEAR_LEN>() else {
                continue;
            };
            let number = u64::from(clear.number);
            let Ok(opened) = keys.open(*now, clear.link, number, clear.phase, head, sealed) else {
                continue;
            };
            let place = &mut heard[usize::from(clear.link.0)];
            *place = (*place).max(number);
            if clear.kind.is_packet() {
                continue;
            }
            let Ok((_, frames)) = Sealed::parse(opened.plaintext) else { continue };
            for frame in Frames::new(frames).map_while(Result::ok) {
                let reply = match frame {
                    Frame::PathChallenge(token) => Frame::PathResponse(token),
                    Frame::Join { .. } => Frame::JoinAck,
                    Frame::RekeyFirst(message) | Frame::RekeyResponse(message) => {
                        rekeys.push((clear.link, message.to_vec()));
                        continue;
                    }
                    _ => continue,
                };
                if replies.len() < 64 {
                    replies.push((clear.link, written(|writer| emit(writer, &reply).is_ok())));
                }
            }
        }
        rekeys.into_iter().for_each(|(link, message)| self.on_rekey(link, &message));
        count
    }

    /// A message of a rekey came.
    fn on_rekey(&mut self, link: LinkId, message: &[u8]) {
        let keys = match &mut self.initiator {
            Some(rekey) => rekey.finish(message).ok(),
            None if self.towards == Towards::Client => {
                let identity = identity(&self.credentials);
                let answered = self.responder.respond(&identity, message, &mut self.rng);
                let Ok((answer, keys)) = answered else { return };
                let answer = Frame::RekeyResponse(answer);
                self.replies.push((link, written(|writer| emit(writer, &answer).is_ok())));
                keys
            }
            None => None,
        };
        let Some(keys) = keys else { return };
        self.initiator = None;
        self.credentials.context = RekeyContext::from(&keys);
        self.keys.handle_timeout(self.now);
        // It answers under the keys before: the other end does not have the new ones yet.
        self.answer();
        let _ = self.keys.install(self.now, &keys, []);
    }

    /// Counts what `work` asks of the allocator.
    fn counted(&mut self, work: impl FnOnce(&mut Self)) {
        let asked = measure(|| work(self));
        self.seen.most_bytes = self.seen.most_bytes.max(self.live + asked.bytes_max.cast_signed());
        self.live += asked.bytes_current;
        assert!(self.seen.most_bytes <= MOST_BYTES, "{} bytes for a session", self.seen.most_bytes);
    }
}

/// The keys of the end that sends `towards`.
fn keys(towards: Towards) -> EpochKeys {
    let (up, down) = (DataKey::from_bytes([1; 32]), DataKey::from_bytes([2; 32]));
    let (send, receive) = match towards {
        Towards::Client => (down, up),
        Towards::Proxy => (up, down),
    };
    let cipher = Cipher::ChaCha20Poly1305;
    EpochKeys { epoch: 0, cipher, send, receive, binding: [7; 32] }
}

/// What the end that sends `towards` makes rekeys with.
fn credentials(towards: Towards) -> Credentials {
    let (client, proxy) = (StaticSecret::from_bytes([3; 32]), StaticSecret::from_bytes([4; 32]));
    let (local, remote) = match towards {
        Towards::Proxy => (client, proxy),
        Towards::Client => (proxy, client),
    };
    Credentials {
        local: Arc::new(local),
        remote: remote.public(),
        psk: PresharedKey::NONE,
        context: RekeyContext::from(&keys(towards)),
    }
}

/// The end to which datagrams go `towards`.
fn tunnel(towards: Towards) -> Tunnel {
    let (side, role) = match towards {
        Towards::Client => (Side::Client, HandshakeRole::Initiator),
        Towards::Proxy => (Side::Proxy, HandshakeRole::Responder),
    };
    let away = towards.opposite();
    let session = Established {
        side,
        keys: KeyRing::new(role, &keys(away)),
        peer: SessionIndex::new(9),
        rekey: credentials(away),
        gateways: vec![[10, 77, 0, 1].into()],
        peer_completes: false,
        peer_orders_flows: true,
        peer_tests_speed: true,
    };
    Tunnel::new(Instant::ZERO, TunnelConfig::default(), InnerFilter::default(), session, [5; 32])
}

/// Datagrams in memory that is there from the start, so that it is not counted.
struct Batch {
    bytes: Box<[u8]>,
    entries: Vec<(Path, usize)>,
    reserved: Option<Path>,
}

impl Batch {
    fn new() -> Self {
        let bytes = vec![0; BATCH * LARGEST_SENT].into_boxed_slice();
        Self { bytes, entries: Vec::with_capacity(BATCH), reserved: None }
    }
}

impl TransmitSink for Batch {
    fn reserve(&mut self, path: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
        let at = self.entries.len();
        if at == BATCH || len > LARGEST_SENT {
            return None;
        }
        self.reserved = Some(path);
        self.bytes.get_mut(at * LARGEST_SENT..at * LARGEST_SENT + len)
    }

    fn has_room(&mut self, paths: &[Path], len: usize) -> bool {
        self.entries.len() + paths.len() <= BATCH && len <= LARGEST_SENT
    }

    fn commit(&mut self, len: usize) {
        if let Some(path) = self.reserved.take() {
            self.entries.push((path, len));
        }
    }
}

/// Frames as the input draws them.
fn frames(input: &mut Input<'_>, attack: &Attack) -> Vec<u8> {
    let count = 1 + usize::from(input.byte() % 70);
    let noise = input.bytes(64).to_vec();
    written(|writer| {
        for _ in 0..count {
            let link = LinkId(input.byte() % 4);
            let word: u32 = input.random();
            let halt = Halt { link, next: word >> (input.byte() % 32) };
            let frame = match attack.only.unwrap_or_else(|| input.byte() % FRAME_KINDS) {
                0 => Frame::Ping,
                1 => Frame::Join { name: &noise[..noise.len().min(15)] },
                2 => Frame::JoinAck,
                3 => Frame::Leave(halt),
                4 => Frame::Down(halt),
                5 => Frame::PathChallenge(u64::from(word).to_be_bytes()),
                6 => Frame::PathResponse(u64::from(word).to_be_bytes()),
                7 => Frame::RekeyFirst(&noise),
                8 => Frame::RekeyResponse(&noise),
                9 => Frame::RekeyRequest,
                10 | 11 => Frame::EchoAfter { token: word, delay_ms: word >> (word & 31) },
                12 => Frame::Echo { token: word },
                13 => Frame::MtuHint(word as u16),
                14 => Frame::Others(word),
                15 => Frame::Resting,
                16 if word & 0xff == 0 => Frame::Close(CloseReason::Other(word as u8)),
                17 => {
                    // The policy frame, with any bytes.
                    let len = noise.len().min(40) as u8;
                    let raw = [0x42, 0, len];
                    if writer.bytes(&raw).and_then(|()| writer.bytes(&noise[..len.into()])).is_err()
                    {
                        break;
                    }
                    continue;
                }
                18 => {
                    // A part of a fleet's list, with any bytes.
                    let len = noise.len().min(60);
                    Frame::Fleet(FleetFrame::new(word & 3, 2, (word >> 8) as u8 & 1, &noise[..len]))
                }
                19 => Frame::Moving,
                20 => {
                    let loads = [SpeedLoad::Down, SpeedLoad::Up, SpeedLoad::Idle];
                    let load = loads.get((word & 3) as usize).copied();
                    let links = &noise[..noise.len().min(18) / 9 * 9];
                    let (phase, turn) = (word >> 2 & 0xff, (word >> 10) as u16);
                    let request = SpeedRequestFrame::new(phase, turn, load, links);
                    Frame::SpeedRequest(request.allowing((word >> 16) as u16, u64::MAX))
                }
                21 => Frame::SpeedAnswer(SpeedAnswerFrame {
                    phase: word & 3,
                    turn: 0,
                    refusal: None,
                    wait_s: word,
                }),
                22 => Frame::Filler((word & 0x1ff) as u16),
                _ => Frame::Packet(PacketFrame {
                    global: (attack.global as u32).wrapping_add(word & 0xfff),
                    previous_on_link: word as u8,
                    previous_of_flow: (word >> 8) as u8,
                    packet: &noise,
                }),
            };
            if emit(writer, &frame).is_err() {
                break;
            }
        }
        true
    })
}

/// What `write` wrote.
fn written(write: impl FnOnce(&mut Writer<'_>) -> bool) -> Vec<u8> {
    let mut buffer = [0; LARGEST];
    let mut writer = Writer::new(&mut buffer);
    let len = if write(&mut writer) { writer.len() } else { 0 };
    buffer[..len].to_vec()
}

fn identity(credentials: &Credentials) -> Identity<'_> {
    let Credentials { local, remote, psk, .. } = credentials;
    Identity { local, remote, psk }
}

/// Whose address it is.
fn bystander(path: &Path) -> Option<usize> {
    let std::net::IpAddr::V4(ip) = path.remote.ip() else { return None };
    let [203, 0, 113, last] = ip.octets() else { return None };
    last.checked_sub(100).map(usize::from)
}

/// A TCP segment of one of many connections, with right checksums.
fn tcp(towards: Towards, flow: u16, flags: u8, seq: u32, ack: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((40 + len as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol::TCP, 0, 0]);
    let (client, server): ([u8; 4], [u8; 4]) = (CLIENT.0.octets(), SERVER.0.octets());
    let is_client = towards == Towards::Proxy;
    let (source, target) = if is_client { (client, server) } else { (server, client) };
    packet.extend(source.into_iter().chain(target));
    let sum = !checksum::fold(checksum::sum(0, &packet));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let (mine, other) = if is_client { (flow, 443) } else { (443, flow) };
    packet.extend(mine.to_be_bytes().into_iter().chain(other.to_be_bytes()));
    packet.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
    packet.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.resize(40 + len, 0x55);
    let transport = Transport::of(&PacketView::parse(&packet).expect("a packet")).expect("TCP");
    let partial = transport.partial(&packet).to_be_bytes();
    packet[36..38].copy_from_slice(&partial);
    transport.complete(&mut packet);
    packet
}
