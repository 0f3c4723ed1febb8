//! Flows for the tests: packets as a kernel would send them, and an independent look at their checksums.

/// What a flow is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    TcpV4,
    TcpV4Options,
    TcpV6,
    UdpV4,
    UdpV6,
}

impl Shape {
    pub(crate) const ALL: [Self; 5] =
        [Self::TcpV4, Self::TcpV4Options, Self::TcpV6, Self::UdpV4, Self::UdpV6];

    pub(crate) const fn is_tcp(self) -> bool {
        matches!(self, Self::TcpV4 | Self::TcpV4Options | Self::TcpV6)
    }

    const fn ip_header(self) -> usize {
        match self {
            Self::TcpV4 | Self::UdpV4 => 20,
            Self::TcpV4Options => 28,
            Self::TcpV6 | Self::UdpV6 => 40,
        }
    }

    /// Where the payload begins.
    pub(crate) const fn headers(self) -> usize {
        self.ip_header() + if self.is_tcp() { 32 } else { 8 }
    }
}

/// A flow, of which packets are made in sequence.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) shape: Shape,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) identification: u16,
    /// Last byte of payload, which counts on over the packets.
    pub(crate) byte: u8,
}

impl Flow {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, port: 5000, sequence: 0xffff_ff00, identification: 0xfffe, byte: 0 }
    }

    /// The next packet, with whole checksums.
    pub(crate) fn packet(&mut self, payload: usize, push: bool) -> Vec<u8> {
        let (start, headers) = (self.shape.ip_header(), self.shape.headers());
        let mut packet = vec![0; headers + payload];
        let total = u16::try_from(packet.len()).expect("a packet");
        let is_v4 = start < 40;
        let protocol = if self.shape.is_tcp() { 6 } else { 17 };
        if is_v4 {
            packet[0] = 0x40 | u8::try_from(start / 4).expect("small");
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[4..6].copy_from_slice(&self.identification.to_be_bytes());
            (packet[8], packet[9]) = (64, protocol);
            packet[12..20].copy_from_slice(&[10, 9, 0, 2, 10, 9, 0, 1]);
            if start > 20 {
                // Router alert, and the end.
                packet[20..28].copy_from_slice(&[0x94, 4, 0, 0, 0, 0, 0, 0]);
            }
        } else {
            packet[..4].copy_from_slice(&[0x60, 3, 2, 1]);
            packet[4..6].copy_from_slice(&(total - 40).to_be_bytes());
            (packet[6], packet[7]) = (protocol, 64);
            packet[8..40].copy_from_slice(&[0x2a; 32]);
            packet[39] = 9;
        }
        packet[start..start + 2].copy_from_slice(&self.port.to_be_bytes());
        packet[start + 2..start + 4].copy_from_slice(&[0, 80]);
        if self.shape.is_tcp() {
            packet[start + 4..start + 8].copy_from_slice(&self.sequence.to_be_bytes());
            packet[start + 8..start + 12].copy_from_slice(&[7; 4]);
            (packet[start + 12], packet[start + 13]) = (0x80, if push { 0x18 } else { 0x10 });
            packet[start + 14..start + 16].copy_from_slice(&[2, 1]);
            // Two bytes of padding and timestamps.
            packet[start + 20..start + 24].copy_from_slice(&[1, 1, 8, 10]);
        } else {
            let length = u16::try_from(8 + payload).expect("a datagram");
            packet[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
        }
        for byte in &mut packet[headers..] {
            self.byte = self.byte.wrapping_add(89);
            *byte = self.byte;
        }
        self.sequence = self.sequence.wrapping_add(u32::try_from(payload).expect("small"));
        self.identification = self.identification.wrapping_add(1);
        sign(&mut packet);
        packet
    }
}

/// Writes the right checksums.
pub(crate) fn sign(packet: &mut [u8]) {
    let (start, at) = places(packet);
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let checksum = 0xffff - remainder(&packet[..start]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet[at..at + 2].fill(0);
    let checksum = match 0xffff - remainder(&covered(packet)) {
        0 => 0xffff,
        checksum => checksum,
    };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Whether both checksums are right.
pub(crate) fn is_right(packet: &[u8]) -> bool {
    let (start, _) = places(packet);
    let ip = packet[0] >> 4 == 6 || remainder(&packet[..start]) == 0;
    ip && remainder(&covered(packet)) == 0
}

/// Where the transport header begins, and where its checksum is.
fn places(packet: &[u8]) -> (usize, usize) {
    let (start, protocol) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 0x0f) * 4, packet[9]),
        _ => (40, packet[6]),
    };
    (start, start + if protocol == 6 { 16 } else { 6 })
}

/// What the transport's checksum covers, with the pseudo-header.
fn covered(packet: &[u8]) -> Vec<u8> {
    let (start, _) = places(packet);
    let (addresses, protocol) = match packet[0] >> 4 {
        4 => (&packet[12..20], packet[9]),
        _ => (&packet[8..40], packet[6]),
    };
    let length = u32::try_from(packet.len() - start).expect("small").to_be_bytes();
    [addresses, &length, &[0, 0, 0, protocol], &packet[start..]].concat()
}

/// The bytes as one long number, modulo 0xffff: what a one's complement sum is, byte by byte.
fn remainder(bytes: &[u8]) -> u16 {
    let odd = [0][..bytes.len() % 2].iter();
    let rest =
        bytes.iter().chain(odd).fold(0_u32, |rest, byte| (rest * 256 + u32::from(*byte)) % 0xffff);
    u16::try_from(rest).expect("below 0xffff")
}
