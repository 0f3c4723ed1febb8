//! Reports on the wire (PROTOCOL §4, §7.2).
//!
//! | form | what came | used |
//! | --- | --- | --- |
//! | ranges | lengths and gaps, as varints | up to [`MAX_REPORT_RANGES`] ranges |
//! | bitmap | a bit for each number below the highest range | more ranges: a link that reorders has one for almost every datagram, and a bit is shorter than a range |

use super::super::cursor::{Reader, Truncated, Writer};
use super::super::expand;
use super::{kind, low32};
use crate::link::received::{MAX_BITMAP, MAX_REPORT_RANGES, Range, Ranges, Report};
use crate::units::LinkId;

/// Most bytes of a bitmap.
const MAX_BITMAP_BYTES: usize = MAX_BITMAP / 8;

/// Most bytes of a report's fields beside its ranges: type and length, link, largest, delay, CE count, and the count of ranges
/// or the length of the highest one.
const HEAD: usize = 3 + 1 + 4 + 5 + 4 + 5;

/// Most bytes of a range: a gap and a length of four bytes as varints, which exceed the number space.
const RANGE: usize = 8;

/// A report on the wire: numbers are low bits until [`ReportFrame::expand`] restores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportFrame<'a> {
    /// The link reported on.
    pub link: LinkId,
    /// Low 32 bits of the largest number received.
    largest: u32,
    delay_us: u32,
    ce_count: u32,
    received: Received<'a>,
}

/// What came, highest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Received<'a> {
    Ranges {
        /// 1 to [`MAX_REPORT_RANGES`].
        count: u8,
        /// Each a varint of its length less one, with a varint of the gap above it before all but the first.
        bytes: &'a [u8],
    },
    Bitmap {
        /// The length of the highest range, less one.
        more: u64,
        /// The lowest bit of the first byte is the second number below that range: the first did not come.
        bits: &'a [u8],
    },
}

impl<'a> ReportFrame<'a> {
    /// The report with full numbers, given the next number we will send on that link. `None`: it
    /// names numbers below zero or that were never sent.
    #[must_use]
    pub fn expand(&self, next: u64) -> Option<Report> {
        let largest = expand(next, u64::from(self.largest), 32);
        if largest >= next {
            return None;
        }
        let ranges = match self.received {
            Received::Ranges { count, bytes } => from_ranges(largest, count, bytes)?,
            Received::Bitmap { more, bits } => from_bitmap(largest, more, bits)?,
        };
        Some(Report { link: self.link, delay_us: self.delay_us, ce_count: self.ce_count, ranges })
    }

    pub(super) fn parse_ranges(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        let mut frame = Self::parse_head(reader)?;
        let count = reader.u8()?;
        if count == 0 || usize::from(count) > MAX_REPORT_RANGES {
            return Err(Truncated);
        }
        let mut rest = *reader;
        for _ in 1..2 * count {
            rest.varint()?;
        }
        let bytes = reader.bytes(reader.rest().len() - rest.rest().len())?;
        frame.received = Received::Ranges { count, bytes };
        Ok(frame)
    }

    /// Reads the value of the frame, which ends with it.
    pub(super) fn parse_bitmap(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        let mut frame = Self::parse_head(reader)?;
        let more = reader.varint()?;
        let bits = reader.bytes(reader.rest().len())?;
        if bits.len() > MAX_BITMAP_BYTES {
            return Err(Truncated);
        }
        frame.received = Received::Bitmap { more, bits };
        Ok(frame)
    }

    fn parse_head(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self {
            link: LinkId(reader.u8()?),
            largest: reader.u32()?,
            delay_us: u32::try_from(reader.varint()?).unwrap_or(u32::MAX),
            ce_count: reader.u32()?,
            received: Received::Ranges { count: 0, bytes: &[] },
        })
    }

    fn emit_head(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        writer.u8(self.link.0)?;
        writer.u32(self.largest)?;
        writer.varint(u64::from(self.delay_us))?;
        writer.u32(self.ce_count)
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        match self.received {
            Received::Ranges { count, bytes } => {
                writer.u8(kind::REPORT)?;
                self.emit_head(writer)?;
                writer.u8(count)?;
                writer.bytes(bytes)
            }
            Received::Bitmap { more, bits } => {
                let mut value = [0; HEAD + MAX_BITMAP_BYTES];
                let mut inner = Writer::new(&mut value);
                self.emit_head(&mut inner)?;
                inner.varint(more)?;
                inner.bytes(bits)?;
                let len = inner.len();
                writer.u8(kind::REPORT_BITMAP)?;
                writer.u16(u16::try_from(len).map_err(|_| Truncated)?)?;
                writer.bytes(&value[..len])
            }
        }
    }
}

fn from_ranges(largest: u64, count: u8, bytes: &[u8]) -> Option<Ranges> {
    let mut ranges = Ranges::new();
    let mut reader = Reader::new(bytes);
    let mut last = largest;
    for index in 0..count {
        if index > 0 {
            last = last.checked_sub(reader.varint().ok()?.checked_add(1)?)?;
        }
        let first = last.checked_sub(reader.varint().ok()?)?;
        ranges.push(Range { first, last });
        last = first;
    }
    Some(ranges)
}

fn from_bitmap(largest: u64, more: u64, bits: &[u8]) -> Option<Ranges> {
    let mut ranges = Ranges::new();
    let mut lowest = Range { first: largest.checked_sub(more)?, last: largest };
    let top = lowest.first;
    for (index, byte) in (0..).zip(bits) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            let number = top.checked_sub(2 + 8 * index + bit)?;
            if number + 1 == lowest.first {
                lowest.first = number;
            } else {
                ranges.push(lowest);
                lowest = Range { first: number, last: number };
            }
        }
    }
    ranges.push(lowest);
    Some(ranges)
}

/// The bits of what lies below the highest of these ranges.
fn bitmap_of<'a>(
    ranges: &[Range],
    bits: &'a mut [u8; MAX_BITMAP_BYTES],
) -> Result<&'a [u8], Truncated> {
    let (top, below) = ranges.split_first().ok_or(Truncated)?;
    let mut len = 0;
    for number in below.iter().flat_map(|range| (range.first..=range.last).rev()) {
        let bit = top.first.checked_sub(number + 2).ok_or(Truncated)?;
        let byte = usize::try_from(bit / 8).map_err(|_| Truncated)?;
        *bits.get_mut(byte).ok_or(Truncated)? |= 1 << (bit % 8);
        len = byte + 1;
    }
    Ok(&bits[..len])
}

/// No report with so many ranges, or that reaches so far below its highest one, is longer than this many bytes.
#[must_use]
pub fn report_room(report: &Report) -> usize {
    match &report.ranges[..] {
        ranges if ranges.len() <= MAX_REPORT_RANGES => HEAD + ranges.len() * RANGE,
        ranges => HEAD + bitmap_len(ranges),
    }
}

/// Bytes of a bitmap that tells these ranges; 0 if they are told as they are.
#[must_use]
pub fn bitmap_len(ranges: &[Range]) -> usize {
    match ranges {
        [top, .., lowest] if ranges.len() > MAX_REPORT_RANGES => {
            usize::try_from((top.first - lowest.first) / 8 + 1).unwrap_or(usize::MAX)
        }
        _ => 0,
    }
}

/// Writes a report as the frame that it is read from.
///
/// # Errors
/// As [`emit`](super::emit).
pub fn emit_report(writer: &mut Writer<'_>, report: &Report) -> Result<(), Truncated> {
    let top = report.ranges.first().ok_or(Truncated)?;
    let frame = |received| ReportFrame {
        link: report.link,
        largest: low32(top.last),
        delay_us: report.delay_us,
        ce_count: report.ce_count,
        received,
    };
    if report.ranges.len() > MAX_REPORT_RANGES {
        let mut bits = [0; MAX_BITMAP_BYTES];
        let bits = bitmap_of(&report.ranges, &mut bits)?;
        return frame(Received::Bitmap { more: top.last - top.first, bits }).emit(writer);
    }
    let count = u8::try_from(report.ranges.len()).map_err(|_| Truncated)?;
    frame(Received::Ranges { count, bytes: &[] }).emit(writer)?;
    let mut above: Option<u64> = None;
    for range in &report.ranges {
        if let Some(first) = above.replace(range.first) {
            writer.varint(first.saturating_sub(range.last).saturating_sub(1))?;
        }
        writer.varint(range.last.saturating_sub(range.first))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Frame, Frames};
    use super::*;

    fn report(ranges: &[(u64, u64)]) -> Report {
        let ranges = ranges.iter().map(|&(first, last)| Range { first, last }).collect();
        Report { link: LinkId(2), delay_us: 25_000, ce_count: u32::MAX, ranges }
    }

    /// Numbers below `largest`, of which every one is told whose place from the top is in `came`.
    fn with_gaps(largest: u64, came: impl IntoIterator<Item = u64>) -> Report {
        let mut ranges: Vec<(u64, u64)> = vec![(largest, largest)];
        for below in came {
            match ranges.last_mut() {
                Some((first, _)) if *first == largest - below + 1 => *first -= 1,
                _ => ranges.push((largest - below, largest - below)),
            }
        }
        report(&ranges)
    }

    fn through_the_wire(report: &Report, next: u64) -> Option<Report> {
        let mut bytes = [0; 1024];
        let mut writer = Writer::new(&mut bytes);
        emit_report(&mut writer, report).unwrap();
        assert!(writer.len() <= report_room(report), "{} bytes", writer.len());
        let Some(Ok(Frame::Report(frame))) = Frames::new(&bytes).next() else {
            panic!("not a report")
        };
        frame.expand(next)
    }

    #[test]
    fn a_report_survives_the_wire_at_the_wrap_of_its_numbers() {
        for base in [0, 1 << 24, (1 << 32) - 7, u64::from(u32::MAX) * 5] {
            let report = report(&[(base + 9, base + 9), (base + 3, base + 6), (base, base + 1)]);
            assert_eq!(through_the_wire(&report, base + 10), Some(report.clone()));
        }
    }

    #[test]
    fn a_link_that_reorders_needs_a_bit_for_a_number() {
        let report = with_gaps((1 << 32) + 50, (2..2000).filter(|below| below % 3 != 0));
        assert_eq!(report.ranges.len(), 668);
        assert_eq!(bitmap_len(&report.ranges), 250);
        assert_eq!(through_the_wire(&report, 1 << 33), None, "of what was sent long ago");
        assert_eq!(through_the_wire(&report, (1 << 32) + 51), Some(report.clone()));
    }

    #[test]
    fn a_bitmap_that_reaches_further_than_allowed_is_neither_written_nor_read() {
        let report = with_gaps(1 << 20, (2..2 * MAX_BITMAP as u64).step_by(2));
        assert_eq!(emit_report(&mut Writer::new(&mut [0; 2048]), &report), Err(Truncated));
        let mut frame = vec![0x44, 2, 12, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0];
        frame.resize(3 + 512 + 12, 0xff);
        assert_eq!(Frames::new(&frame).next(), Some(Err(Truncated)));
    }

    #[test]
    fn a_report_of_what_was_never_sent_is_refused() {
        assert_eq!(through_the_wire(&report(&[(4, 9)]), 9), None);
        let below_zero = |received| ReportFrame {
            link: LinkId(0),
            largest: 3,
            delay_us: 0,
            ce_count: 0,
            received,
        };
        for received in [
            Received::Ranges { count: 2, bytes: &[1, 9, 0] },
            Received::Bitmap { more: 4, bits: &[] },
            Received::Bitmap { more: 0, bits: &[0b100] },
        ] {
            assert_eq!(below_zero(received).expand(10), None, "{received:?}");
        }
    }

    proptest! {
        #[test]
        fn no_report_changes_on_the_wire(
            largest in 5_000u64..1 << 50,
            came in prop::collection::vec(any::<bool>(), 0..MAX_BITMAP),
        ) {
            let came = came.iter().zip(1..).filter(|(came, _)| **came).map(|(_, below)| below);
            let report = with_gaps(largest, came);
            prop_assert_eq!(through_the_wire(&report, largest + 1), Some(report.clone()));
        }
    }
}
