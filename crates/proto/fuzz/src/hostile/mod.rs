//! A peer that holds the keys of a session and says what it likes, to one end whose memory and work are counted.
//!
//! The end under attack is a whole [`Tunnel`], as proxy or as client. All that it asks of the allocator is metered
//! call by call; the attacker's own memory is not. What must hold:
//!
//! * memory: the session never keeps more than [`MOST_BYTES`];
//! * work: at one moment it sends what was waiting and at most [`MOST_ANSWERS`] for each datagram that came, and its
//!   timer goes off at most [`MOST_WAKEUPS`] times in a second;
//! * amplification: an address that never proved that it receives gets at most three times the bytes that came from it.

mod contents;
mod ends;
mod operations;

use allocation_counter::measure;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ropewalk_netlab::direct::{Batch, Count};
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::pair::link_config;
use ropewalk_proto::config::MAX_LINKS;
use ropewalk_proto::crypto::rekey::{RekeyContext, RekeyInitiator, RekeyResponder};
use ropewalk_proto::crypto::{HandshakeRole, KeyRing};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::event::Event;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{Credentials, SpeedDecision, SpeedPhase, Tunnel};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{Frame, Frames, SpeedLoad, emit};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, SEALED_LEN, Sealed, TAG_LEN};
use ropewalk_settings::Keepalive;

use crate::input::Input;
use contents::written;
use ends::{credentials, identity, keys, tunnel};

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
    /// In memory that is there from the start, so that it is not counted.
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
            out: Batch::default(),
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
            self.out.clear();
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
        for (path, _, datagram) in out.each() {
            count += 1;
            self.seen.sent += 1;
            if let Some(bystander) = bystander(&path) {
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

/// Whose address it is.
fn bystander(path: &Path) -> Option<usize> {
    let std::net::IpAddr::V4(ip) = path.remote.ip() else { return None };
    let [203, 0, 113, last] = ip.octets() else { return None };
    last.checked_sub(100).map(usize::from)
}
