//! Speed tests (PROTOCOL §4.3): what the client asks for, and what the proxy says to it.

use super::super::cursor::{Reader, Truncated, Writer};
use crate::config::MAX_LINKS;
use crate::units::LinkId;

/// Bytes of a request before its links.
const REQUEST_HEAD: usize = 18;

/// Bytes of a link in a request.
const LINK_LEN: usize = 9;

/// Bytes of the links of the longest request.
pub const MAX_REQUEST_LINKS: usize = LINK_LEN * MAX_LINKS;

/// Bytes of an answer.
const ANSWER_LEN: u16 = 11;

/// Bytes of test data in front of what fills it: type and length.
pub const FILLER_HEAD: usize = 3;

const OVER: u8 = 0;
const IDLE: u8 = 1;
const DOWN: u8 = 2;
const UP: u8 = 3;

/// Who fills the links in a phase of a speed test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpeedLoad {
    /// Nobody: round trips are measured, or the links come to rest.
    Idle,
    /// The proxy.
    Down,
    /// The client.
    Up,
}

/// What the client asks for, from now on and until its time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpeedRequestFrame<'a> {
    /// Which phase it is about; of each the number is higher than that of the one before.
    pub phase: u32,
    /// Which request of the phase it is, from 0.
    pub turn: u16,
    /// Who fills the links; `None`: the test is over.
    pub load: Option<SpeedLoad>,
    /// How long it holds, in ms.
    pub lifetime_ms: u16,
    /// Most bytes of test data of the phase on all links, with IP and UDP headers.
    pub bytes: u64,
    /// The links, as they are written.
    links: &'a [u8],
}

impl<'a> SpeedRequestFrame<'a> {
    /// A request about the links that [`emit_links`] wrote, which holds for no time and allows nothing yet.
    #[must_use]
    pub const fn new(phase: u32, turn: u16, load: Option<SpeedLoad>, links: &'a [u8]) -> Self {
        Self { phase, turn, load, lifetime_ms: 0, bytes: 0, links }
    }

    /// The same, for so long, and with so many bytes of test data at most.
    #[must_use]
    pub const fn allowing(self, lifetime_ms: u16, bytes: u64) -> Self {
        Self { lifetime_ms, bytes, ..self }
    }

    /// The links, each with the most bytes of test data on it.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, u64)> + use<'a> {
        let (links, _) = self.links.as_chunks::<LINK_LEN>();
        links.iter().map(|[id, bytes @ ..]| (LinkId(*id), u64::from_be_bytes(*bytes)))
    }

    pub(super) fn parse(value: &mut Reader<'a>) -> Result<Self, Truncated> {
        let (phase, turn) = (value.u32()?, value.u16()?);
        let load = match value.u8()? {
            OVER => None,
            DOWN => Some(SpeedLoad::Down),
            UP => Some(SpeedLoad::Up),
            // What a later version may ask for is not done.
            _ => Some(SpeedLoad::Idle),
        };
        let (lifetime_ms, bytes) = (value.u16()?, value.u64()?);
        let count = usize::from(value.u8()?);
        let links = value.bytes(count * LINK_LEN)?;
        Ok(Self { phase, turn, load, lifetime_ms, bytes, links })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let len = REQUEST_HEAD + self.links.len();
        writer.u16(u16::try_from(len).map_err(|_| Truncated)?)?;
        writer.u32(self.phase)?;
        writer.u16(self.turn)?;
        writer.u8(match self.load {
            None => OVER,
            Some(SpeedLoad::Idle) => IDLE,
            Some(SpeedLoad::Down) => DOWN,
            Some(SpeedLoad::Up) => UP,
        })?;
        writer.u16(self.lifetime_ms)?;
        writer.u64(self.bytes)?;
        writer.u8(u8::try_from(self.links.len() / LINK_LEN).map_err(|_| Truncated)?)?;
        writer.bytes(self.links)
    }
}

/// Writes links as [`SpeedRequestFrame`] has them, each with the most bytes of test data on it.
///
/// # Errors
/// They do not fit: there are more than a tunnel has.
pub fn emit_links(
    writer: &mut Writer<'_>,
    links: impl IntoIterator<Item = (LinkId, u64)>,
) -> Result<(), Truncated> {
    links.into_iter().try_for_each(|(id, bytes)| {
        writer.u8(id.0)?;
        writer.u64(bytes)
    })
}

/// What the proxy says to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpeedAnswerFrame {
    /// That of the request.
    pub phase: u32,
    /// That of the request.
    pub turn: u16,
    /// Why it is refused; `None`: it is granted.
    pub refusal: Option<SpeedRefusal>,
    /// After how many seconds it may be asked again; 0: nothing is said of that.
    pub wait_s: u32,
}

/// Why a proxy serves no speed test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpeedRefusal {
    /// The owner wants none.
    #[error("the proxy's owner allows no speed tests")]
    Forbidden,
    /// Others test.
    #[error("the proxy serves as many speed tests of others as it may at a time")]
    Busy,
    /// The client has had what it may in an hour.
    #[error("this client has used up what the proxy lets it test in an hour")]
    UsedUp,
    /// A reason that this version does not know.
    #[error("the proxy refuses, for reason {0}, which this version does not know")]
    Other(u8),
}

impl SpeedAnswerFrame {
    pub(super) fn parse(value: &mut Reader<'_>) -> Result<Self, Truncated> {
        let (phase, turn) = (value.u32()?, value.u16()?);
        let refusal = match value.u8()? {
            0 => None,
            1 => Some(SpeedRefusal::Forbidden),
            2 => Some(SpeedRefusal::Busy),
            3 => Some(SpeedRefusal::UsedUp),
            code => Some(SpeedRefusal::Other(code)),
        };
        Ok(Self { phase, turn, refusal, wait_s: value.u32()? })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        writer.u16(ANSWER_LEN)?;
        writer.u32(self.phase)?;
        writer.u16(self.turn)?;
        writer.u8(match self.refusal {
            None => 0,
            Some(SpeedRefusal::Forbidden) => 1,
            Some(SpeedRefusal::Busy) => 2,
            Some(SpeedRefusal::UsedUp) => 3,
            Some(SpeedRefusal::Other(code)) => code,
        })?;
        writer.u32(self.wait_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{Frame, Frames, emit};

    fn written(frame: &Frame<'_>) -> Vec<u8> {
        let mut buffer = [0; 256];
        let mut writer = Writer::new(&mut buffer);
        emit(&mut writer, frame).unwrap();
        let len = writer.len();
        buffer[..len].to_vec()
    }

    #[test]
    fn a_request_is_laid_out_as_the_protocol_says_and_may_grow() {
        let mut links = [0; MAX_REQUEST_LINKS];
        let mut writer = Writer::new(&mut links);
        let named = [(LinkId(3), 0x0102_0304_0506), (LinkId(255), u64::MAX)];
        emit_links(&mut writer, named).unwrap();
        let len = writer.len();
        let request = SpeedRequestFrame::new(7, 9, Some(SpeedLoad::Down), &links[..len]);
        let request = request.allowing(800, 1 << 40);
        let mut bytes = written(&Frame::SpeedRequest(request));
        let expected = [
            &[0x47, 0, 36, 0, 0, 0, 7, 0, 9, 2, 3, 0x20][..],
            &[0, 0, 1, 0, 0, 0, 0, 0, 2],
            &[3, 0, 0, 1, 2, 3, 4, 5, 6],
            &[255; 9],
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::SpeedRequest(request))]);
        assert_eq!(request.links().collect::<Vec<_>>(), named);
        bytes[2] += 2;
        bytes.extend([7, 7]);
        assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::SpeedRequest(request))]);
    }

    #[test]
    fn a_request_that_names_more_links_than_it_has_ends_the_datagram() {
        let mut bytes = written(&Frame::SpeedRequest(SpeedRequestFrame::new(1, 0, None, &[])));
        *bytes.last_mut().unwrap() = 1;
        assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Err(Truncated)]);
    }

    #[test]
    fn an_answer_is_laid_out_as_the_protocol_says_with_each_reason() {
        let reasons = [
            (0, None),
            (1, Some(SpeedRefusal::Forbidden)),
            (2, Some(SpeedRefusal::Busy)),
            (3, Some(SpeedRefusal::UsedUp)),
            (77, Some(SpeedRefusal::Other(77))),
        ];
        for (code, refusal) in reasons {
            let answer = SpeedAnswerFrame { phase: 7, turn: 9, refusal, wait_s: 300 };
            let bytes = written(&Frame::SpeedAnswer(answer));
            assert_eq!(bytes, [0x48, 0, 11, 0, 0, 0, 7, 0, 9, code, 0, 0, 1, 44]);
            assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::SpeedAnswer(answer))]);
        }
    }

    #[test]
    fn test_data_is_as_long_as_it_says_and_holds_only_zeros() {
        for len in [0, 1, 200] {
            let bytes = written(&Frame::Filler(len));
            assert_eq!(bytes.len(), FILLER_HEAD + usize::from(len));
            assert!(bytes[FILLER_HEAD..].iter().all(|byte| *byte == 0));
            assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::Filler(len))]);
        }
    }
}
