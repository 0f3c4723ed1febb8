//! A list on its way to the client: told in parts that each fit a datagram, each part again until it is confirmed.

use std::ops::Range;
use std::sync::Arc;

use super::FleetList;
use super::progress::Progress;
use crate::units::LinkId;
use crate::wire::cursor::Writer;
use crate::wire::frame::{FLEET_HEAD, FleetFrame, emit_proxy};

/// Parts under way at one time: a list of any length is no burst.
const MAX_UNDER_WAY: usize = 2;

/// What the peer is to know of the fleet. Who was never told of one says nothing.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    list: Arc<FleetList>,
    /// Which list of this session it is.
    number: u32,
    parts: Vec<Part>,
}

/// Some proxies of the list.
#[derive(Debug)]
struct Part {
    range: Range<usize>,
    progress: Progress,
}

impl Telling {
    /// The peer is to know this list. `room`: bytes for a frame.
    pub(crate) fn set(&mut self, list: Arc<FleetList>, room: usize) {
        if self.number == 0 && list.is_empty() || self.number > 0 && self.list == list {
            return;
        }
        self.parts = ranges(&list, room)
            .into_iter()
            .map(|range| Part { range, progress: Progress::Due })
            .collect();
        self.list = list;
        self.number += 1;
    }

    /// The next part to be told. What was told on a link of which `is_there` says no is told again.
    pub(crate) fn next(&mut self, is_there: impl Fn(LinkId) -> bool) -> Option<usize> {
        self.parts.iter_mut().for_each(|part| part.progress.forget(&is_there));
        let under_way = |part: &&Part| matches!(part.progress, Progress::UnderWay(..));
        if self.parts.iter().filter(under_way).count() >= MAX_UNDER_WAY {
            return None;
        }
        self.parts.iter().position(|part| part.progress == Progress::Due)
    }

    /// Whether a part waits to be told.
    pub(crate) fn is_due(&self) -> bool {
        self.parts.iter().any(|part| part.progress == Progress::Due)
    }

    /// The proxies of a part, as the frame has them, in `buffer`.
    pub(crate) fn frame<'a>(&self, part: usize, buffer: &'a mut [u8]) -> Option<FleetFrame<'a>> {
        let range = self.parts.get(part)?.range.clone();
        let mut writer = Writer::new(buffer);
        for proxy in self.list.as_slice().get(range.clone())? {
            emit_proxy(&mut writer, proxy).ok()?;
        }
        let len = writer.len();
        let total = u8::try_from(self.list.len()).ok()?;
        let first = u8::try_from(range.start).ok()?;
        Some(FleetFrame::new(self.number, total, first, &buffer[..len]))
    }

    /// The part left in the datagram with this number.
    pub(crate) fn on_told(&mut self, part: usize, link: LinkId, number: u64) {
        if let Some(part) = self.parts.get_mut(part) {
            part.progress = Progress::UnderWay(link, number);
        }
    }

    /// The fate of a datagram is known: what was lost is told again.
    pub(crate) fn on_fate(&mut self, link: LinkId, number: u64, arrived: bool) {
        self.parts.iter_mut().for_each(|part| part.progress.on_fate(link, number, arrived));
    }
}

/// The list in parts whose frames have at most `room` bytes; an empty list is one part.
fn ranges(list: &FleetList, room: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut first, mut len) = (0, FLEET_HEAD);
    for (at, proxy) in list.iter().enumerate() {
        let mut buffer = [0; 512];
        let mut writer = Writer::new(&mut buffer);
        // The longest proxy has 255 bytes.
        let more = emit_proxy(&mut writer, proxy).map_or(usize::MAX / 2, |()| writer.len());
        if len + more > room && at > first {
            ranges.push(first..at);
            (first, len) = (at, FLEET_HEAD);
        }
        len += more;
    }
    ranges.push(first..list.len());
    ranges
}

#[cfg(test)]
mod tests {
    use super::super::tests::proxy;
    use super::super::{Gathering, MAX_PROXIES};
    use super::*;

    const ROOM: usize = 900;

    fn list(count: u8) -> Arc<FleetList> {
        let proxies = (1..=count).map(|n| proxy(&format!("proxy-{n}"), n)).collect();
        Arc::new(FleetList::new(proxies).unwrap())
    }

    #[test]
    fn the_longest_list_goes_in_parts_a_few_at_a_time_and_lost_ones_go_again() {
        let mut telling = Telling::default();
        telling.set(list(64), ROOM);
        let mut gathering = Gathering::default();
        let (mut got, mut number, mut lost) = (None, 0, 0);
        while telling.is_due() {
            let mut told = Vec::new();
            while let Some(part) = telling.next(|_| true) {
                let mut buffer = [0; ROOM];
                let frame = telling.frame(part, &mut buffer).unwrap();
                let arrives = number % 3 > 0;
                if arrives {
                    got = gathering.take(&frame).unwrap().or(got);
                } else {
                    lost += 1;
                }
                telling.on_told(part, LinkId(1), number);
                told.push((number, arrives));
                number += 1;
            }
            assert!(!told.is_empty() && told.len() <= MAX_UNDER_WAY);
            told.iter().for_each(|(number, arrives)| telling.on_fate(LinkId(1), *number, *arrives));
        }
        assert!(lost > 2, "{lost}");
        assert_eq!(got.unwrap().len(), MAX_PROXIES);
        assert_eq!(telling.next(|_| true), None);
    }

    #[test]
    fn what_was_under_way_on_a_link_that_is_gone_goes_again() {
        let mut telling = Telling::default();
        telling.set(list(1), ROOM);
        telling.on_told(0, LinkId(1), 7);
        assert_eq!(telling.next(|_| true), None);
        telling.on_fate(LinkId(2), 7, true);
        assert_eq!(telling.next(|link| link != LinkId(1)), Some(0), "another link's datagram");
    }

    #[test]
    fn only_another_list_is_told_and_an_empty_one_only_to_those_who_heard_of_others() {
        let mut telling = Telling::default();
        telling.set(list(0), ROOM);
        assert!(!telling.is_due());
        telling.set(list(2), ROOM);
        telling.on_told(0, LinkId(0), 1);
        telling.on_fate(LinkId(0), 1, true);
        telling.set(list(2), ROOM);
        assert!(!telling.is_due(), "the same");
        telling.set(list(0), ROOM);
        let mut buffer = [0; ROOM];
        let frame = telling.frame(0, &mut buffer).unwrap();
        assert_eq!((frame.number, frame.total), (2, 0));
    }
}
