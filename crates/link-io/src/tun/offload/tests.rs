//! What is joined and parted again is what it was.

use super::coalesce::{Coalescer, FLOWS, Write};
use super::header::{self, Gso, Header, Partial};
use super::split::{Split, SplitError};
use super::testing::{Flow, Shape, is_right, sign};
use proptest::prelude::*;
use ropewalk_proto::packet::checksum::{self, Checksum};
use ropewalk_proto::packet::transport;

/// Parts what is joined, as the kernel would.
#[derive(Default)]
struct Kernel {
    packets: Vec<Vec<u8>>,
    /// Of each call, how many packets.
    calls: Vec<usize>,
}

impl Write for Kernel {
    fn write_single(&mut self, packet: &[u8], partial: Option<Partial>) {
        let mut packet = packet.to_vec();
        if let Some(Partial { start, offset }) = partial {
            assert!(checksum::complete(&mut packet, start.into(), offset.into()));
        }
        self.packets.push(packet);
        self.calls.push(1);
    }

    fn write_joined(&mut self, frame: &mut [u8], packets: usize) {
        let (head, packet) = frame.split_first_chunk_mut().expect("a header");
        let header = Header::read(head).expect("a known kind");
        let parted = split(&header, packet).expect("a super packet");
        assert_eq!(parted.len(), packets);
        self.packets.extend(parted);
        self.calls.push(packets);
    }
}

/// Parts a packet with whole checksums, and with partial ones that are completed then: that must be the same.
fn split(header: &Header, packet: &mut [u8]) -> Result<Vec<Vec<u8>>, SplitError> {
    let mut left = split_to(header, &mut packet.to_vec(), Checksum::Partial)?;
    for (packet, checksum) in &mut left {
        assert!(*checksum == Checksum::Whole || transport::complete(packet));
    }
    let left: Vec<_> = left.into_iter().map(|(packet, _)| packet).collect();
    let whole = split_to(header, packet, Checksum::Whole)?;
    assert!(whole.iter().all(|(_, checksum)| *checksum == Checksum::Whole));
    let whole: Vec<_> = whole.into_iter().map(|(packet, _)| packet).collect();
    assert_eq!(left, whole);
    Ok(whole)
}

fn split_to(
    header: &Header,
    packet: &mut [u8],
    wanted: Checksum,
) -> Result<Vec<(Vec<u8>, Checksum)>, SplitError> {
    let mut split = Split::new(header, packet, wanted)?;
    let mut parted = Vec::new();
    while let Some((range, checksum)) = split.next(packet) {
        parted.push((packet[range.clone()].to_vec(), checksum));
        // What was handed out may be changed.
        packet[range].fill(0xee);
    }
    assert!(split.is_done());
    Ok(parted)
}

fn join(packets: &[Vec<u8>]) -> Kernel {
    let (mut coalescer, mut kernel) = (Coalescer::new(true), Kernel::default());
    packets.iter().for_each(|packet| coalescer.add(packet, Checksum::Whole, &mut kernel));
    coalescer.flush(&mut kernel);
    kernel
}

#[test]
fn packets_in_sequence_are_one_call_and_come_out_as_they_went_in() {
    for shape in Shape::ALL {
        let mut flow = Flow::new(shape);
        let mut packets: Vec<_> = (0..40).map(|_| flow.packet(1300, false)).collect();
        packets.push(flow.packet(77, shape.is_tcp()));
        let kernel = join(&packets);
        assert_eq!(kernel.calls, [41], "{shape:?}");
        assert_eq!(kernel.packets, packets, "{shape:?}");
        assert!(packets.iter().all(|packet| is_right(packet)), "{shape:?}");
    }
}

#[test]
fn a_super_packet_is_no_longer_than_the_longest_packet_and_no_more_than_64() {
    for (payload, expected) in [(1400, [46, 46, 8]), (60_000, [1; 3]), (100, [64, 36, 0])] {
        for shape in [Shape::UdpV4, Shape::TcpV6] {
            let mut flow = Flow::new(shape);
            let calls = expected.iter().filter(|packets| **packets > 0);
            let packets: Vec<_> =
                (0..expected.iter().sum()).map(|_| flow.packet(payload, false)).collect();
            let kernel = join(&packets);
            assert_eq!(kernel.calls, calls.copied().collect::<Vec<usize>>(), "{payload}");
            assert_eq!(kernel.packets, packets);
        }
    }
}

#[test]
fn what_differs_in_anything_that_counts_is_not_joined() {
    type Change = fn(&mut Vec<u8>);
    let table: [(&str, Shape, Change); 19] = [
        ("TOS", Shape::TcpV4, |p| p[1] = 1),
        ("identification", Shape::TcpV4, |p| p[5] ^= 1),
        ("DF", Shape::TcpV4, |p| p[6] = 0x40),
        ("reserved bit", Shape::UdpV4, |p| p[6] = 0x80),
        ("time to live", Shape::TcpV4, |p| p[8] = 63),
        ("options of IPv4", Shape::TcpV4Options, |p| p[21] ^= 1),
        ("acknowledgement", Shape::TcpV4, |p| p[31] ^= 1),
        ("reserved bits", Shape::TcpV4, |p| p[32] |= 1),
        ("FIN", Shape::TcpV4, |p| p[33] |= 1),
        ("SYN", Shape::TcpV4, |p| p[33] |= 2),
        ("URG", Shape::TcpV6, |p| p[53] |= 0x20),
        ("ECE", Shape::TcpV6, |p| p[53] |= 0x40),
        ("CWR", Shape::TcpV6, |p| p[53] |= 0x80),
        ("window", Shape::TcpV4, |p| p[34] ^= 1),
        ("timestamp", Shape::TcpV6, |p| p[65] ^= 1),
        ("sequence", Shape::TcpV6, |p| p[47] ^= 1),
        ("flow label", Shape::TcpV6, |p| p[3] ^= 1),
        ("hop limit", Shape::UdpV6, |p| p[7] = 1),
        ("port", Shape::UdpV6, |p| p[41] ^= 1),
    ];
    for (name, shape, change) in table {
        let mut flow = Flow::new(shape);
        let mut packets = [flow.packet(500, false), flow.packet(500, false)];
        assert_eq!(join(&packets).calls, [2], "{name}");
        change(&mut packets[1]);
        sign(&mut packets[1]);
        let kernel = join(&packets);
        assert_eq!(kernel.calls, [1, 1], "{name}");
        assert_eq!(kernel.packets, packets, "{name}");
    }
}

#[test]
fn a_broken_packet_stays_broken() {
    for shape in Shape::ALL {
        for broken in 0..3 {
            // The last byte, which only the transport's checksum covers.
            let mut flow = Flow::new(shape);
            let mut packets: Vec<_> = (0..3).map(|_| flow.packet(500, false)).collect();
            *packets[broken].last_mut().expect("a payload") ^= 4;
            let kernel = join(&packets);
            assert_eq!(kernel.packets, packets, "{shape:?}");
            assert!(!is_right(&kernel.packets[broken]));
        }
    }
    let mut flow = Flow::new(Shape::TcpV4);
    let mut packets = [flow.packet(500, false), flow.packet(500, false)];
    packets[1][10] ^= 1;
    assert_eq!(join(&packets).packets, packets, "the IP header's checksum");
}

#[test]
fn the_identification_of_what_may_not_be_fragmented_means_nothing() {
    let mut flow = Flow::new(Shape::UdpV4);
    let packets = [(); 3].map(|()| {
        let mut packet = flow.packet(500, false);
        (packet[4], packet[5], packet[6]) = (0, 0, 0x40);
        sign(&mut packet);
        packet
    });
    assert_eq!(join(&packets).calls, [3]);
}

#[test]
fn a_push_or_a_shorter_packet_ends_a_super_packet_and_a_longer_one_begins_another() {
    type Case<'a> = (&'a [(usize, bool)], &'a [usize]);
    let table: [Case<'_>; 6] = [
        (&[(500, false), (500, true), (500, false), (500, false)], &[2, 2]),
        (&[(500, true), (500, true)], &[1, 1]),
        (&[(500, false), (400, false), (400, false)], &[2, 1]),
        (&[(400, false), (500, false), (500, false)], &[1, 2]),
        (&[(500, false), (0, false), (500, false)], &[1, 1, 1]),
        (&[(500, false), (31, false), (31, false)], &[1, 1, 1]),
    ];
    for (sizes, calls) in table {
        let mut flow = Flow::new(Shape::TcpV4);
        let packets: Vec<_> = sizes.iter().map(|(size, push)| flow.packet(*size, *push)).collect();
        let kernel = join(&packets);
        assert_eq!((&kernel.calls[..], &kernel.packets), (calls, &packets), "{sizes:?}");
    }
}

#[test]
fn udp_is_joined_only_where_that_is_safe() {
    let packets = |port: u16, change: fn(&mut Vec<u8>)| {
        let mut flow = Flow { port, ..Flow::new(Shape::UdpV4) };
        [(); 2].map(|()| {
            let mut packet = flow.packet(500, false);
            change(&mut packet);
            packet
        })
    };
    assert_eq!(join(&packets(5000, |_| {})).calls, [2]);
    for tunnel in [4789, 8472, 6081] {
        assert_eq!(join(&packets(tunnel, |_| {})).calls, [1, 1], "{tunnel}");
    }
    assert_eq!(join(&packets(5000, |p| p[26..28].fill(0))).calls, [1, 1], "without a checksum");
    let (mut coalescer, mut kernel) = (Coalescer::new(false), Kernel::default());
    packets(5000, |_| {})
        .iter()
        .for_each(|packet| coalescer.add(packet, Checksum::Whole, &mut kernel));
    assert_eq!(kernel.calls, [1, 1], "a kernel that takes none");
}

#[test]
fn a_fragment_comes_after_what_is_held_between_the_same_hosts() {
    let mut flow = Flow::new(Shape::UdpV4);
    let mut packets: Vec<_> = (0..3).map(|_| flow.packet(500, false)).collect();
    packets[2][6] = 0x20;
    let (mut coalescer, mut kernel) = (Coalescer::new(true), Kernel::default());
    let other = Flow { port: 1, ..Flow::new(Shape::UdpV6) }.packet(500, false);
    coalescer.add(&other, Checksum::Whole, &mut kernel);
    packets.iter().for_each(|packet| coalescer.add(packet, Checksum::Whole, &mut kernel));
    assert_eq!(kernel.packets, packets, "the other hosts' is held still");
    coalescer.add(b"no packet", Checksum::Whole, &mut kernel);
    assert_eq!(kernel.packets[3..], [other, b"no packet".to_vec()], "it may be of any flow");
}

#[test]
fn more_flows_than_are_held_go_the_oldest_first() {
    let (mut coalescer, mut kernel) = (Coalescer::new(true), Kernel::default());
    let mut flows: Vec<_> = (0..=9).map(|port| Flow { port, ..Flow::new(Shape::UdpV4) }).collect();
    let packets: Vec<_> = flows.iter_mut().map(|flow| flow.packet(500, false)).collect();
    packets.iter().for_each(|packet| coalescer.add(packet, Checksum::Whole, &mut kernel));
    assert_eq!(kernel.packets, packets[..packets.len() - FLOWS]);
    coalescer.flush(&mut kernel);
    assert_eq!(kernel.packets, packets);
    coalescer.flush(&mut kernel);
    assert_eq!(kernel.packets.len(), packets.len(), "nothing is written twice");
}

#[test]
fn flags_of_a_super_packet_go_where_the_kernel_would_put_them() {
    let mut packet = Flow::new(Shape::TcpV4).packet(1000, true);
    // FIN and CWR.
    packet[33] |= 0x81;
    let partial = Some(Partial { start: 20, offset: 16 });
    partial_checksum(&mut packet);
    let header = Header { partial, gso: Some((Gso::TcpV4, 400)), headers: 52 };
    let parted = split(&header, &mut packet).expect("a super packet");
    let flags: Vec<_> = parted.iter().map(|packet| packet[33]).collect();
    assert_eq!(flags, [0x90, 0x10, 0x19]);
    let lens: Vec<_> = parted.iter().map(Vec::len).collect();
    assert_eq!(lens, [452, 452, 252]);
    assert!(parted.iter().all(|packet| is_right(packet)));
}

#[test]
fn segments_shorter_than_their_headers_and_the_longest_packet_are_parted_in_place() {
    for (shape, payload, size) in [
        (Shape::TcpV6, 100, 1),
        (Shape::TcpV4Options, 1001, 33),
        (Shape::UdpV4, 65_535 - 28, 1400),
        (Shape::TcpV4, 65_535 - 52, 65_535),
    ] {
        let mut packet = Flow::new(shape).packet(payload, true);
        let bytes = packet[shape.headers()..].to_vec();
        let (start, offset, gso) = match shape {
            Shape::TcpV6 => (40, 16, Gso::TcpV6),
            Shape::TcpV4Options => (28, 16, Gso::TcpV4),
            Shape::TcpV4 => (20, 16, Gso::TcpV4),
            Shape::UdpV4 | Shape::UdpV6 => (20, 6, Gso::Udp),
        };
        partial_checksum(&mut packet);
        let partial = Some(Partial { start, offset });
        let header = Header { partial, gso: Some((gso, size)), headers: 0 };
        let parted = split(&header, &mut packet).expect("a super packet");
        assert_eq!(parted.len(), payload.div_ceil(size.into()));
        let again: Vec<u8> =
            parted.iter().flat_map(|packet| packet[shape.headers()..].to_vec()).collect();
        assert_eq!(again, bytes, "{shape:?}");
        assert!(parted.iter().all(|packet| is_right(packet)), "{shape:?}");
    }
}

#[test]
fn a_single_packet_gets_its_checksum() {
    for shape in Shape::ALL {
        let whole = Flow::new(shape).packet(333, false);
        let mut packet = whole.clone();
        let partial = partial_checksum(&mut packet);
        assert_ne!(packet, whole);
        let header = Header { partial: Some(partial), ..Header::default() };
        assert_eq!(split(&header, &mut packet), Ok(vec![whole.clone()]), "{shape:?}");
        let mut packet = whole.clone();
        assert_eq!(split(&Header::default(), &mut packet), Ok(vec![whole]), "{shape:?}");
    }
}

#[test]
fn packets_with_partial_checksums_are_joined_without_being_summed() {
    for shape in Shape::ALL {
        let mut flow = Flow::new(shape);
        let whole: Vec<_> = (0..5).map(|_| flow.packet(900, false)).collect();
        let (mut coalescer, mut kernel) = (Coalescer::new(true), Kernel::default());
        for packet in &whole {
            let mut packet = packet.clone();
            partial_checksum(&mut packet);
            coalescer.add(&packet, Checksum::Partial, &mut kernel);
        }
        coalescer.flush(&mut kernel);
        assert_eq!((kernel.calls, kernel.packets), (vec![5], whole.clone()), "{shape:?}");
        // One whose field holds anything else is not joined, and is completed to what it says.
        let (mut coalescer, mut kernel) = (Coalescer::new(true), Kernel::default());
        coalescer.add(&whole[0], Checksum::Whole, &mut kernel);
        coalescer.add(&whole[1], Checksum::Partial, &mut kernel);
        coalescer.flush(&mut kernel);
        assert_eq!(kernel.calls, [1, 1], "{shape:?}");
    }
}

#[test]
fn a_checksum_is_left_only_where_the_packet_itself_says_that_it_is() {
    let whole = Flow::new(Shape::TcpV6).packet(333, false);
    let mut tcp = whole.clone();
    let partial = partial_checksum(&mut tcp);
    let header = |partial| Header { partial: Some(partial), ..Header::default() };
    let left = split_to(&header(partial), &mut tcp.clone(), Checksum::Partial);
    assert_eq!(left, Ok(vec![(tcp.clone(), Checksum::Partial)]));
    // An extension header: where the kernel says, but not by the strict reading.
    let mut extended = tcp.clone();
    extended.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    extended[6] = 60;
    extended[5] += 8;
    let Partial { start, offset } = partial;
    let moved = header(Partial { start: start + 8, offset });
    let left = split_to(&moved, &mut extended, Checksum::Partial).expect("one packet");
    assert_eq!(left[0].1, Checksum::Whole);
    assert_eq!(left[0].0[48..], whole[40..], "completed");
}

#[test]
fn a_header_that_does_not_fit_its_packet_is_an_error() {
    let partial = |start, offset| Some(Partial { start, offset });
    let table = [
        (partial(20, 16), Some((Gso::TcpV4, 0)), SplitError::Size),
        (None, Some((Gso::TcpV4, 100)), SplitError::Checksum),
        (partial(20, 6), Some((Gso::TcpV4, 100)), SplitError::Checksum),
        (partial(20, 16), Some((Gso::Udp, 100)), SplitError::Checksum),
        (partial(0, 16), Some((Gso::TcpV4, 100)), SplitError::Headers),
        (partial(19, 16), Some((Gso::TcpV4, 100)), SplitError::Headers),
        (partial(552, 16), Some((Gso::TcpV4, 100)), SplitError::Headers),
        (partial(u16::MAX, 6), Some((Gso::Udp, 100)), SplitError::Headers),
        (partial(300, 6), Some((Gso::Udp, 100)), SplitError::Headers),
        (partial(20, u16::MAX), None, SplitError::Checksum),
        (partial(553, 0), None, SplitError::Checksum),
    ];
    for (partial, gso, error) in table {
        let mut packet = Flow::new(Shape::TcpV4).packet(500, false);
        let header = Header { partial, gso, headers: 0 };
        assert_eq!(split(&header, &mut packet), Err(error), "{header:?}");
    }
}

#[test]
fn a_super_packet_that_was_cut_short_is_dropped_whole() {
    for shape in Shape::ALL {
        let mut packet = Flow::new(shape).packet(40_000, false);
        let partial = partial_checksum(&mut packet);
        let gso = match (shape.is_tcp(), partial.start) {
            (false, _) => Gso::Udp,
            (true, 40) => Gso::TcpV6,
            (true, _) => Gso::TcpV4,
        };
        let header = Header { partial: Some(partial), gso: Some((gso, 1000)), headers: 0 };
        assert_eq!(split(&header, &mut packet.clone()).map(|parted| parted.len()), Ok(40));
        for len in [packet.len() - 1, packet.len() - 1000, shape.headers() + 1] {
            let cut = split(&header, &mut packet[..len].to_vec());
            assert_eq!(cut, Err(SplitError::Length), "{shape:?}, {len} bytes");
        }
    }
}

/// Makes the transport's checksum partial, and says where it is.
fn partial_checksum(packet: &mut [u8]) -> Partial {
    use ropewalk_proto::packet::{PacketView, transport::Transport};
    let view = PacketView::parse(packet).expect("a packet");
    let transport = Transport::of(&view).expect("TCP or UDP");
    let (start, offset) = (transport.start, transport.kind.checksum_offset());
    let partial = transport.partial(packet).to_be_bytes();
    packet[start + offset..start + offset + 2].copy_from_slice(&partial);
    let word = |place: usize| u16::try_from(place).expect("small");
    Partial { start: word(start), offset: word(offset) }
}

/// What happens to one packet on its way to be joined.
#[derive(Clone, Debug)]
struct Step {
    flow: usize,
    payload: usize,
    push: bool,
    /// One in a few is changed: which byte, and how.
    broken: Option<(usize, u8)>,
    flush: bool,
    partial: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let payload = prop_oneof![4 => Just(1200_usize), 2 => Just(400), 1 => 0..1500_usize];
    let broken = prop_oneof![9 => Just(None), 1 => any::<(usize, u8)>().prop_map(Some)];
    let (push, flush) = (prop::bool::weighted(0.1), prop::bool::weighted(0.05));
    let step = (0..12_usize, payload, push, broken, flush, any::<bool>());
    let step = step.prop_map(|(flow, payload, push, broken, flush, partial)| Step {
        flow,
        payload,
        push,
        broken,
        flush,
        partial,
    });
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_flows_come_out_unchanged_and_each_in_its_order(steps in steps()) {
        let mut flows: Vec<_> = (0..12_u16)
            .map(|port| Flow { port, ..Flow::new(Shape::ALL[usize::from(port) % Shape::ALL.len()]) })
            .collect();
        let (mut coalescer, mut kernel) = (Coalescer::new(true), Kernel::default());
        let mut sent = vec![Vec::new(); flows.len()];
        let mut all = Vec::new();
        for step in steps {
            let mut packet = flows[step.flow].packet(step.payload, step.push);
            let is_whole = step.broken.is_none();
            if let Some((at, bit)) = step.broken {
                let at = at % packet.len();
                packet[at] ^= 1 << (bit % 8);
            }
            // A packet that was never broken may come with its checksum partial.
            if is_whole && step.partial {
                let mut partial = packet.clone();
                partial_checksum(&mut partial);
                coalescer.add(&partial, Checksum::Partial, &mut kernel);
            } else {
                coalescer.add(&packet, Checksum::Whole, &mut kernel);
            }
            if is_whole {
                sent[step.flow].push(packet.clone());
            }
            all.push(packet);
            if step.flush {
                coalescer.flush(&mut kernel);
            }
        }
        coalescer.flush(&mut kernel);
        for (flow, sent) in flows.iter().zip(&sent) {
            let of_flow = |packet: &&Vec<u8>| sent.contains(*packet);
            let came: Vec<_> = kernel.packets.iter().filter(of_flow).collect();
            prop_assert_eq!(came, sent.iter().collect::<Vec<_>>(), "{:?}", flow);
        }
        let mut came = kernel.packets;
        came.sort();
        all.sort();
        prop_assert_eq!(came, all, "nothing is lost, changed or added");
    }

    #[test]
    fn no_bytes_make_it_panic(
        mut packet in prop::collection::vec(any::<u8>(), 0..300),
        head: [u8; header::LEN],
        first: u8,
    ) {
        if let Some(byte) = packet.first_mut() {
            *byte = [0x45, 0x46, 0x60, first][usize::from(first % 4)];
        }
        let mut again = packet.clone();
        if let Ok(header) = Header::read(&head) {
            let _ = split(&header, &mut packet);
        }
        if let Ok(len) = u16::try_from(again.len()) && len >= 40 {
            let (at, length) = if again[0] >> 4 == 6 { (4, len - 40) } else { (2, len) };
            again[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
        prop_assert_eq!(join(&[again.clone(), again.clone()]).packets, [again.clone(), again]);
    }
}
