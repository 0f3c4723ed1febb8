//! How a step and an event stand in the file: records of one size each, with a checksum of their own.
//!
//! A step is a sector of 512 bytes, which disks write as a whole, and an event is half of one: after a power cut a record is the old
//! one, the new one, or one whose checksum is wrong and that counts as none. Numbers are little-endian.
//!
//! ```text
//! step:  checksum 4 | first second 8 | cells 1 | cell ...
//! cell:  length of the name 1 | name | covered ms 4 | down 8 | up 8 | RTT us 4 | lost ppm 4
//! event: checksum 4 | number 8 | second 8 | kind 1 | length 1 | link | length 1 | text
//! ```
//!
//! A step has as many links as fit, those that carried most first: seven with names of 32 characters, thirteen with names of five.

use ropewalk_control::api::{EventKind, HistoryEvent};

use super::steps::{Cell, Moment};

/// Bytes of a step.
pub(super) const STEP_LEN: usize = 512;

/// Bytes of an event.
pub(super) const EVENT_LEN: usize = 256;

/// Bytes of the checksum that a record begins with (CRC-32).
const CHECKSUM_LEN: usize = 4;

/// Bytes of a step before its links: the checksum, its first second, and their number.
const HEAD_LEN: usize = CHECKSUM_LEN + 8 + 1;

/// Bytes of a link in a step, without its name.
const CELL_LEN: usize = 1 + 4 + 8 + 8 + 4 + 4;

/// Bytes of the longest name of a link (`[[link]]` allows no more).
const MAX_NAME: usize = 32;

/// Bytes of the longest text of an event: what is left of its record.
pub(super) const MAX_TEXT: usize = 180;

/// Stands for a value that is not known.
const UNKNOWN: u32 = u32::MAX;

/// A record whose checksum is wrong, or that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// What a record holds; `None`: it was never written.
type Held<T> = Result<Option<T>, Damaged>;

/// A step as a record.
pub(super) fn step(start: u64, moment: &Moment) -> [u8; STEP_LEN] {
    let cells = fitting(moment);
    let mut writer = Writer::new();
    writer.put(&start.to_le_bytes());
    writer.put(&[u8::try_from(cells.len()).unwrap_or(u8::MAX)]);
    for (name, cell) in cells {
        writer.text(name);
        writer.put(&cell.covered_ms.to_le_bytes());
        writer.put(&cell.down.to_le_bytes());
        writer.put(&cell.up.to_le_bytes());
        writer.put(&cell.rtt_us.unwrap_or(UNKNOWN).to_le_bytes());
        writer.put(&cell.lost_ppm.unwrap_or(UNKNOWN).to_le_bytes());
    }
    writer.finish()
}

/// Leaves out of a step what its record has no room for.
pub(super) fn trim(moment: &mut Moment) {
    let fitting = fitting(moment);
    if fitting.len() < moment.len() {
        let kept = fitting.into_iter().map(|(name, cell)| (name.clone(), *cell)).collect();
        *moment = kept;
    }
}

/// What a record has room for: all together, whose name is empty, and then the links that carried most.
fn fitting(moment: &Moment) -> Vec<(&String, &Cell)> {
    let mut cells: Vec<_> = moment.iter().filter(|(name, _)| name.len() <= MAX_NAME).collect();
    cells.sort_by_key(|(name, cell)| {
        (!name.is_empty(), std::cmp::Reverse(cell.down.saturating_add(cell.up)))
    });
    let mut len = HEAD_LEN;
    let fits = cells.iter().take_while(|(name, _)| {
        len += CELL_LEN + name.len();
        len <= STEP_LEN
    });
    let count = fits.count();
    cells.truncate(count);
    cells
}

/// The step of a record, with its first second.
pub(super) fn read_step(record: &[u8]) -> Held<(u64, Moment)> {
    let Some(mut reader) = Reader::open(record)? else { return Ok(None) };
    let (start, count) = (reader.u64()?, reader.u8()?);
    let mut moment = Moment::new();
    for _ in 0..count {
        let name = reader.text(MAX_NAME)?;
        let (covered_ms, down, up) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let known = |value| (value != UNKNOWN).then_some(value);
        let (rtt_us, lost_ppm) = (known(reader.u32()?), known(reader.u32()?));
        moment.insert(name, Cell { covered_ms, down, up, rtt_us, lost_ppm });
    }
    Ok(Some((start, moment)))
}

/// An event as a record; `number` is one more than that of the event before it.
pub(super) fn event(number: u64, event: &HistoryEvent) -> [u8; EVENT_LEN] {
    let HistoryEvent { at, kind, link, text } = event;
    let mut writer = Writer::new();
    writer.put(&number.to_le_bytes());
    writer.put(&at.to_le_bytes());
    writer.put(&[kind.number()]);
    writer.text(shortened(link.as_deref().unwrap_or_default(), MAX_NAME));
    writer.text(shortened(text, MAX_TEXT));
    writer.finish()
}

/// The event of a record, with its number. One of a kind that only a newer program knows is none.
pub(super) fn read_event(record: &[u8]) -> Held<(u64, HistoryEvent)> {
    let Some(mut reader) = Reader::open(record)? else { return Ok(None) };
    let (number, at, kind) = (reader.u64()?, reader.u64()?, reader.u8()?);
    let link = Some(reader.text(MAX_NAME)?).filter(|link| !link.is_empty());
    let text = reader.text(MAX_TEXT)?;
    let kind = EventKind::of_number(kind);
    Ok(kind.map(|kind| (number, HistoryEvent { at, kind, link, text })))
}

/// The beginning of a text that has at most so many bytes.
pub(super) fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Writes a record of `LEN` bytes. What is beyond that is left out: nobody gives it as much.
struct Writer<const LEN: usize> {
    bytes: [u8; LEN],
    len: usize,
}

impl<const LEN: usize> Writer<LEN> {
    const fn new() -> Self {
        Self { bytes: [0; LEN], len: CHECKSUM_LEN }
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// At most 255 bytes of it.
    fn text(&mut self, text: &str) {
        let text = shortened(text, usize::from(u8::MAX));
        self.put(&[u8::try_from(text.len()).unwrap_or(u8::MAX)]);
        self.put(text.as_bytes());
    }

    fn finish(mut self) -> [u8; LEN] {
        let checksum = crc32fast::hash(&self.bytes[CHECKSUM_LEN..]);
        self.bytes[..CHECKSUM_LEN].copy_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

/// Reads a record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// `None`: it was never written.
    fn open(record: &'a [u8]) -> Result<Option<Self>, Damaged> {
        if record.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let (checksum, rest) = record.split_first_chunk::<CHECKSUM_LEN>().ok_or(Damaged)?;
        let is_right = crc32fast::hash(rest) == u32::from_le_bytes(*checksum);
        if is_right { Ok(Some(Self(rest))) } else { Err(Damaged) }
    }

    fn take<const LEN: usize>(&mut self) -> Result<[u8; LEN], Damaged> {
        let (taken, rest) = self.0.split_first_chunk::<LEN>().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Damaged> {
        self.take().map(|[byte]: [u8; 1]| byte)
    }

    fn u32(&mut self) -> Result<u32, Damaged> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Damaged> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, most: usize) -> Result<String, Damaged> {
        let len = usize::from(self.u8()?);
        let (text, rest) = self.0.split_at_checked(len).ok_or(Damaged)?;
        self.0 = rest;
        match str::from_utf8(text) {
            Ok(text) if len <= most => Ok(text.to_owned()),
            _ => Err(Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(bytes: u64) -> Cell {
        Cell {
            covered_ms: 10_000,
            down: bytes,
            up: bytes / 10,
            rtt_us: Some(20_000),
            lost_ppm: None,
        }
    }

    fn happened(text: &str) -> HistoryEvent {
        HistoryEvent {
            at: 1_795_737_600,
            kind: EventKind::LinkDown,
            link: Some("wwan0".to_owned()),
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_what_was_never_written_is_none() {
        let cells = [("", cell(u64::MAX)), ("wlan", cell(5)), ("lté", Cell::default())];
        let moment: Moment = cells.map(|(name, cell)| (name.to_owned(), cell)).into();
        assert_eq!(read_step(&step(77, &moment)), Ok(Some((77, moment))));
        assert_eq!(read_step(&[0; STEP_LEN]), Ok(None));
        let nothing_said = HistoryEvent { link: None, ..happened("") };
        for one in [happened("nothing is confirmed any more"), nothing_said] {
            assert_eq!(read_event(&event(u64::MAX, &one)), Ok(Some((u64::MAX, one))));
        }
        assert_eq!(read_event(&[0; EVENT_LEN]), Ok(None));
    }

    #[test]
    fn of_more_links_than_fit_those_that_carried_most_are_kept() {
        for (width, least) in [(32, 7), (5, 13)] {
            let named = (0..64_u64).map(|n| (format!("{n:0>width$}"), cell(n)));
            let moment: Moment = named.chain([(String::new(), cell(0))]).collect();
            let (_, kept) = read_step(&step(0, &moment)).unwrap().unwrap();
            assert!(kept.contains_key(""), "all together");
            let links: Vec<_> = kept.values().map(|cell| cell.down).skip(1).collect();
            assert!(links.len() >= least, "{} names of {width} characters", links.len());
            let expected: Vec<_> = (64 - links.len() as u64..64).collect();
            assert_eq!(links, expected);
            let mut trimmed = moment;
            trim(&mut trimmed);
            assert_eq!(trimmed, kept);
        }
        // A name that no link can have.
        let moment: Moment = [("x".repeat(33), cell(1))].into();
        assert_eq!(read_step(&step(0, &moment)), Ok(Some((0, Moment::new()))));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let long = "ä".repeat(200);
        let (_, read) = read_event(&event(1, &happened(&long))).unwrap().unwrap();
        assert_eq!(read.text, "ä".repeat(90));
        assert_eq!([shortened("äb", 1), shortened("äb", 2), shortened("äb", 9)], ["", "ä", "äb"]);
    }

    #[test]
    fn a_record_with_any_bit_changed_is_damaged_and_no_bytes_panic() {
        let moment: Moment = [(String::new(), cell(7)), ("wlan".to_owned(), cell(8))].into();
        let whole = step(77, &moment);
        for at in 0..STEP_LEN {
            let mut changed = whole;
            changed[at] ^= 1;
            assert_eq!(read_step(&changed), Err(Damaged), "byte {at}");
        }
        let event = event(3, &happened("text"));
        for at in 0..EVENT_LEN {
            let mut changed = event;
            changed[at] ^= 0x80;
            assert_eq!(read_event(&changed), Err(Damaged), "byte {at}");
        }
        // Those whose checksum is right and whose content makes no sense.
        for filler in [0x7f, 0xff] {
            let mut record = [filler; STEP_LEN];
            for len in [STEP_LEN, EVENT_LEN] {
                let checksum = crc32fast::hash(&record[CHECKSUM_LEN..len]);
                record[..CHECKSUM_LEN].copy_from_slice(&checksum.to_le_bytes());
                let record = &record[..len];
                assert_eq!(read_step(record), Err(Damaged), "{filler} as a step");
                assert_eq!(read_event(record), Err(Damaged), "{filler} as an event");
            }
        }
        assert_eq!(read_step(&[1, 2, 3]), Err(Damaged));
    }
}
