//! Frames: everything but a single packet (PROTOCOL §4). A datagram with frames holds one or more,
//! to its end. A type below 0x40 that is not known spoils the rest of the datagram; from 0x40 on a
//! type is followed by a two-byte length and may be skipped, so that later versions can add hints.

mod fleet;
mod policy;
mod report;
mod speed;

use ropewalk_settings::InterfaceName;

pub use fleet::{FLEET_HEAD, FleetFrame, emit_proxy};
pub use policy::PolicyFrame;
pub use report::{ReportFrame, bitmap_len, emit_report, report_room};
pub use speed::{
    FILLER_HEAD, MAX_REQUEST_LINKS, SpeedAnswerFrame, SpeedLoad, SpeedRefusal, SpeedRequestFrame,
    emit_links,
};

use super::cursor::{Reader, Truncated, Writer};
use crate::units::LinkId;

/// Most bytes of a link's name: as long as a Linux interface name.
pub const MAX_NAME: usize = InterfaceName::MAX_BYTES;

/// One frame, as parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// Zero bytes, as many as there are; one is written. They fill a probe.
    Padding,
    /// An inner packet that shares its datagram.
    Packet(PacketFrame<'a>),
    /// The receiver's feedback about a link.
    Report(ReportFrame<'a>),
    /// Asks for a report at once; also the keepalive.
    Ping,
    /// The client opens this link; the name is for people.
    Join {
        /// The client's name of the link, UTF-8.
        name: &'a [u8],
    },
    /// The proxy has taken the link.
    JoinAck,
    /// The sender will send nothing more on `link`.
    Leave(Halt),
    /// The sender gives up what is in flight on `link`, until a later datagram shows it alive.
    Down(Halt),
    /// Asks whoever has this address to prove it can receive here.
    PathChallenge([u8; 8]),
    /// The proof.
    PathResponse([u8; 8]),
    /// The session ends.
    Close(CloseReason),
    /// First message of a rekey.
    RekeyFirst(&'a [u8]),
    /// Its answer.
    RekeyResponse(&'a [u8]),
    /// The proxy asks the client to rekey.
    RekeyRequest,
    /// Asks for an [`Echo`](Frame::Echo) after a silence, to find how long a NAT holds (§9).
    EchoAfter {
        /// Returned as it is.
        token: u32,
        /// The silence, in milliseconds.
        delay_ms: u32,
    },
    /// The path MTU of the direction from the sender fell to this, in bytes at IP level. The other direction may
    /// go the same way, and carry nothing large that would show it.
    MtuHint(u16),
    /// What others receive on the sender's interface of this link, in units of 1,000 bit/s. The receiver of the frame,
    /// who sends on the link, cannot count it.
    Others(u32),
    /// What the owner of this link says of it: the client tells the proxy.
    Policy(PolicyFrame<'a>),
    /// Proxies of the fleet: the proxy tells the client.
    Fleet(FleetFrame<'a>),
    /// The client moves to another proxy of the fleet, and wants to keep this session for the flows that began in it.
    Moving,
    /// The client asks for a phase of a speed test, or for more of it, or says that the test is over.
    SpeedRequest(SpeedRequestFrame<'a>),
    /// What the proxy says to that.
    SpeedAnswer(SpeedAnswerFrame),
    /// Test data: so many bytes that mean nothing.
    Filler(u16),
    /// The sender keeps this link back: no packet is under way on it, and none will be until a datagram without this frame.
    Resting,
    /// The answer after the silence.
    Echo {
        /// From the question.
        token: u32,
    },
}

/// An inner packet inside a datagram with frames; the fields are those of the sealed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketFrame<'a> {
    /// Low 24 bits of the packet's global number.
    pub global: u32,
    /// Distance to the previous global number on this link; 0: none or too far.
    pub previous_on_link: u8,
    /// Distance to the previous packet of the same flow; 0: none or too far.
    pub previous_of_flow: u8,
    /// The packet.
    pub packet: &'a [u8],
}

impl PacketFrame<'_> {
    /// In the order of flows: what both distances are together. 0: none, or too far.
    #[must_use]
    pub const fn distance_in_flow(&self) -> u16 {
        u16::from_be_bytes([self.previous_on_link, self.previous_of_flow])
    }
}

/// Bytes in front of a packet in its frame.
pub const PACKET_FRAME_HEADER: usize = 8;

/// Where a link's numbers stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halt {
    /// The link.
    pub link: LinkId,
    /// Low 32 bits of the next local number on it: all below may have been sent.
    pub next: u32,
}

/// Why a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The daemon stops.
    Shutdown,
    /// The same key has a newer session.
    Replaced,
    /// The proxy's owner took the key out of the table.
    Removed,
    /// One that this version does not know.
    Other(u8),
}

impl CloseReason {
    const fn code(self) -> u8 {
        match self {
            Self::Shutdown => 0,
            Self::Replaced => 1,
            Self::Removed => 2,
            Self::Other(code) => code,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Shutdown,
            1 => Self::Replaced,
            2 => Self::Removed,
            code => Self::Other(code),
        }
    }
}

mod kind {
    pub(super) const PADDING: u8 = 0x00;
    pub(super) const PACKET: u8 = 0x01;
    pub(super) const REPORT: u8 = 0x02;
    pub(super) const PING: u8 = 0x03;
    pub(super) const JOIN: u8 = 0x04;
    pub(super) const JOIN_ACK: u8 = 0x05;
    pub(super) const LEAVE: u8 = 0x06;
    pub(super) const DOWN: u8 = 0x07;
    pub(super) const PATH_CHALLENGE: u8 = 0x08;
    pub(super) const PATH_RESPONSE: u8 = 0x09;
    pub(super) const CLOSE: u8 = 0x0a;
    pub(super) const REKEY_FIRST: u8 = 0x0b;
    pub(super) const REKEY_RESPONSE: u8 = 0x0c;
    pub(super) const REKEY_REQUEST: u8 = 0x0d;
    pub(super) const ECHO_AFTER: u8 = 0x0e;
    pub(super) const ECHO: u8 = 0x0f;
    pub(super) const SKIPPABLE: u8 = 0x40;
    pub(super) const MTU_HINT: u8 = 0x40;
    pub(super) const OTHERS: u8 = 0x41;
    pub(super) const POLICY: u8 = 0x42;
    pub(super) const RESTING: u8 = 0x43;
    pub(super) const REPORT_BITMAP: u8 = 0x44;
    pub(super) const FLEET: u8 = 0x45;
    pub(super) const MOVING: u8 = 0x46;
    pub(super) const SPEED_REQUEST: u8 = 0x47;
    pub(super) const SPEED_ANSWER: u8 = 0x48;
    pub(super) const FILLER: u8 = 0x49;
}

/// The frames of a datagram, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    /// Reads frames from what follows the sealed header.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }

    fn parse(reader: &mut Reader<'a>) -> Result<Frame<'a>, Truncated> {
        let mut kind = reader.u8()?;
        while kind >= kind::SKIPPABLE {
            let len = reader.u16()?;
            let mut value = Reader::new(reader.bytes(usize::from(len))?);
            match kind {
                kind::MTU_HINT => return Ok(Frame::MtuHint(value.u16()?)),
                kind::OTHERS => return Ok(Frame::Others(value.u32()?)),
                kind::POLICY => return Ok(Frame::Policy(PolicyFrame::parse(&mut value)?)),
                kind::RESTING => return Ok(Frame::Resting),
                kind::REPORT_BITMAP => {
                    return Ok(Frame::Report(ReportFrame::parse_bitmap(&mut value)?));
                }
                kind::MOVING => return Ok(Frame::Moving),
                kind::SPEED_REQUEST => {
                    return Ok(Frame::SpeedRequest(SpeedRequestFrame::parse(&mut value)?));
                }
                kind::SPEED_ANSWER => {
                    return Ok(Frame::SpeedAnswer(SpeedAnswerFrame::parse(&mut value)?));
                }
                kind::FILLER => return Ok(Frame::Filler(len)),
                kind::FLEET => {
                    if let Some(frame) = FleetFrame::parse(&mut value)? {
                        return Ok(Frame::Fleet(frame));
                    }
                }
                _ => {}
            }
            if reader.rest().is_empty() {
                return Ok(Frame::Padding);
            }
            kind = reader.u8()?;
        }
        Ok(match kind {
            kind::PADDING => {
                reader.skip_zeros();
                Frame::Padding
            }
            kind::PACKET => {
                let len = reader.u16()?;
                Frame::Packet(PacketFrame {
                    global: reader.u24()?,
                    previous_on_link: reader.u8()?,
                    previous_of_flow: reader.u8()?,
                    packet: reader.bytes(usize::from(len))?,
                })
            }
            kind::REPORT => Frame::Report(ReportFrame::parse_ranges(reader)?),
            kind::PING => Frame::Ping,
            kind::JOIN => {
                let len = usize::from(reader.u8()?);
                if len > MAX_NAME {
                    return Err(Truncated);
                }
                Frame::Join { name: reader.bytes(len)? }
            }
            kind::JOIN_ACK => Frame::JoinAck,
            kind::LEAVE => Frame::Leave(halt(reader)?),
            kind::DOWN => Frame::Down(halt(reader)?),
            kind::PATH_CHALLENGE => Frame::PathChallenge(reader.array()?),
            kind::PATH_RESPONSE => Frame::PathResponse(reader.array()?),
            kind::CLOSE => Frame::Close(CloseReason::from_code(reader.u8()?)),
            kind::REKEY_FIRST => Frame::RekeyFirst(message(reader)?),
            kind::REKEY_RESPONSE => Frame::RekeyResponse(message(reader)?),
            kind::REKEY_REQUEST => Frame::RekeyRequest,
            kind::ECHO_AFTER => Frame::EchoAfter { token: reader.u32()?, delay_ms: reader.u32()? },
            kind::ECHO => Frame::Echo { token: reader.u32()? },
            _ => return Err(Truncated),
        })
    }
}

fn halt(reader: &mut Reader<'_>) -> Result<Halt, Truncated> {
    Ok(Halt { link: LinkId(reader.u8()?), next: reader.u32()? })
}

fn message<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Truncated> {
    let len = reader.u16()?;
    reader.bytes(usize::from(len))
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.rest().is_empty() {
            return None;
        }
        let frame = Self::parse(&mut self.0);
        if frame.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(frame)
    }
}

/// Writes a frame.
///
/// # Errors
/// It does not fit; what was written of it is to be discarded with the datagram.
pub fn emit(writer: &mut Writer<'_>, frame: &Frame<'_>) -> Result<(), Truncated> {
    match frame {
        Frame::Padding => writer.u8(kind::PADDING),
        Frame::Packet(frame) => {
            writer.u8(kind::PACKET)?;
            writer.u16(u16::try_from(frame.packet.len()).map_err(|_| Truncated)?)?;
            writer.u24(frame.global)?;
            writer.u8(frame.previous_on_link)?;
            writer.u8(frame.previous_of_flow)?;
            writer.bytes(frame.packet)
        }
        Frame::Report(frame) => frame.emit(writer),
        Frame::Ping => writer.u8(kind::PING),
        Frame::Join { name } => {
            let name = name.get(..name.len().min(MAX_NAME)).unwrap_or_default();
            writer.u8(kind::JOIN)?;
            writer.u8(u8::try_from(name.len()).map_err(|_| Truncated)?)?;
            writer.bytes(name)
        }
        Frame::JoinAck => writer.u8(kind::JOIN_ACK),
        Frame::Leave(halt) => emit_halt(writer, kind::LEAVE, *halt),
        Frame::Down(halt) => emit_halt(writer, kind::DOWN, *halt),
        Frame::PathChallenge(token) => {
            writer.u8(kind::PATH_CHALLENGE)?;
            writer.bytes(token)
        }
        Frame::PathResponse(token) => {
            writer.u8(kind::PATH_RESPONSE)?;
            writer.bytes(token)
        }
        Frame::Close(reason) => {
            writer.u8(kind::CLOSE)?;
            writer.u8(reason.code())
        }
        Frame::RekeyFirst(message) => emit_message(writer, kind::REKEY_FIRST, message),
        Frame::RekeyResponse(message) => emit_message(writer, kind::REKEY_RESPONSE, message),
        Frame::RekeyRequest => writer.u8(kind::REKEY_REQUEST),
        Frame::EchoAfter { token, delay_ms } => {
            writer.u8(kind::ECHO_AFTER)?;
            writer.u32(*token)?;
            writer.u32(*delay_ms)
        }
        Frame::Echo { token } => {
            writer.u8(kind::ECHO)?;
            writer.u32(*token)
        }
        Frame::MtuHint(mtu) => {
            writer.u8(kind::MTU_HINT)?;
            writer.u16(2)?;
            writer.u16(*mtu)
        }
        Frame::Others(kbps) => {
            writer.u8(kind::OTHERS)?;
            writer.u16(4)?;
            writer.u32(*kbps)
        }
        Frame::Policy(frame) => {
            writer.u8(kind::POLICY)?;
            frame.emit(writer)
        }
        Frame::Fleet(frame) => {
            writer.u8(kind::FLEET)?;
            frame.emit(writer)
        }
        Frame::Moving => {
            writer.u8(kind::MOVING)?;
            writer.u16(0)
        }
        Frame::SpeedRequest(frame) => {
            writer.u8(kind::SPEED_REQUEST)?;
            frame.emit(writer)
        }
        Frame::SpeedAnswer(frame) => {
            writer.u8(kind::SPEED_ANSWER)?;
            frame.emit(writer)
        }
        Frame::Filler(len) => {
            writer.u8(kind::FILLER)?;
            writer.u16(*len)?;
            writer.zeros(usize::from(*len))
        }
        Frame::Resting => {
            writer.u8(kind::RESTING)?;
            writer.u16(0)
        }
    }
}

fn emit_halt(writer: &mut Writer<'_>, kind: u8, halt: Halt) -> Result<(), Truncated> {
    writer.u8(kind)?;
    writer.u8(halt.link.0)?;
    writer.u32(halt.next)
}

fn emit_message(writer: &mut Writer<'_>, kind: u8, message: &[u8]) -> Result<(), Truncated> {
    writer.u8(kind)?;
    writer.u16(u16::try_from(message.len()).map_err(|_| Truncated)?)?;
    writer.bytes(message)
}

/// The low 32 bits of a number, as in [`Halt`] and reports.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what travels")]
pub const fn low32(number: u64) -> u32 {
    number as u32
}

/// The low 24 bits of a number, as in headers.
#[must_use]
pub const fn low24(number: u64) -> u32 {
    low32(number & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(frame: &Frame<'_>) -> Vec<u8> {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer);
        emit(&mut writer, frame).unwrap();
        let len = writer.len();
        buffer[..len].to_vec()
    }

    fn every_frame() -> Vec<Frame<'static>> {
        vec![
            Frame::Padding,
            Frame::Packet(PacketFrame {
                global: 0xff_fffe,
                previous_on_link: 3,
                previous_of_flow: 255,
                packet: b"packet",
            }),
            Frame::Ping,
            Frame::Join { name: b"wlan0" },
            Frame::JoinAck,
            Frame::Leave(Halt { link: LinkId(3), next: u32::MAX }),
            Frame::Down(Halt { link: LinkId(255), next: 0 }),
            Frame::PathChallenge(*b"whereami"),
            Frame::PathResponse(*b"overhere"),
            Frame::Close(CloseReason::Replaced),
            Frame::RekeyFirst(b"first"),
            Frame::RekeyResponse(b""),
            Frame::RekeyRequest,
            Frame::EchoAfter { token: 1, delay_ms: 30_000 },
            Frame::Echo { token: 1 },
            Frame::MtuHint(1300),
            Frame::Others(u32::MAX),
            Frame::Fleet(FleetFrame::new(1, 0, 0, &[])),
            Frame::Moving,
            Frame::SpeedRequest(SpeedRequestFrame::new(1, 2, Some(SpeedLoad::Up), &[4; 9])),
            Frame::SpeedAnswer(SpeedAnswerFrame { phase: 1, turn: 2, refusal: None, wait_s: 0 }),
            Frame::Filler(9),
            Frame::Resting,
        ]
    }

    #[test]
    fn every_frame_survives_the_wire_alone_and_in_a_row() {
        let mut row = Vec::new();
        for frame in every_frame() {
            let bytes = written(&frame);
            let parsed: Vec<_> = Frames::new(&bytes).collect();
            assert_eq!(parsed, [Ok(frame)]);
            row.extend(bytes);
        }
        let parsed: Result<Vec<_>, _> = Frames::new(&row).collect();
        assert_eq!(parsed, Ok(every_frame()));
    }

    #[test]
    fn a_frame_cut_short_at_any_byte_is_an_error_and_ends_the_datagram() {
        for frame in every_frame() {
            let bytes = written(&frame);
            for len in 1..bytes.len() {
                let parsed: Vec<_> = Frames::new(&bytes[..len]).collect();
                assert_eq!(parsed, [Err(Truncated)], "{frame:?} cut to {len}");
            }
        }
    }

    #[test]
    fn padding_is_one_frame_however_long_it_is() {
        for len in [1, 2, 1452] {
            let mut bytes = vec![kind::PADDING; len];
            assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::Padding)], "{len}");
            bytes.push(kind::PING);
            let parsed: Vec<_> = Frames::new(&bytes).collect();
            assert_eq!(parsed, [Ok(Frame::Padding), Ok(Frame::Ping)], "{len}");
        }
    }

    #[test]
    fn a_hint_of_a_later_version_is_skipped_and_an_unknown_frame_is_not() {
        let bytes = [0x7f, 0, 2, 9, 9, kind::PING, 0x7e, 0, 0];
        let parsed: Vec<_> = Frames::new(&bytes).collect();
        assert_eq!(parsed, [Ok(Frame::Ping), Ok(Frame::Padding)]);
        let parsed: Vec<_> = Frames::new(&[0x3f, kind::PING]).collect();
        assert_eq!(parsed, [Err(Truncated)]);
    }

    #[test]
    fn what_others_receive_is_laid_out_as_the_protocol_says_and_may_grow() {
        let bytes = [0x41, 0, 4, 0, 0, 0x13, 0x88];
        assert_eq!(written(&Frame::Others(5000)), bytes);
        let longer = [0x41, 0, 6, 0, 0, 0x13, 0x88, 7, 7, kind::PING];
        let parsed: Vec<_> = Frames::new(&longer).collect();
        assert_eq!(parsed, [Ok(Frame::Others(5000)), Ok(Frame::Ping)]);
        let shorter: Vec<_> = Frames::new(&[0x41, 0, 3, 0, 0, 0, kind::PING]).collect();
        assert_eq!(shorter, [Err(Truncated)]);
    }

    #[test]
    fn a_rest_is_laid_out_as_the_protocol_says() {
        assert_eq!(written(&Frame::Resting), [0x43, 0, 0]);
    }

    proptest! {
        #[test]
        fn no_input_panics_and_frames_always_end(bytes: Vec<u8>, next: u64) {
            for frame in Frames::new(&bytes).flatten() {
                if let Frame::Report(report) = frame {
                    let _ = report.expand(next);
                }
            }
        }
    }
}
