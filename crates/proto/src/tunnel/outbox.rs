//! What is to be said that belongs to no one link: to the peer, reports about links that do not answer; to the owner,
//! what happened.

use std::collections::VecDeque;

use crate::event::Event;
use crate::link::received::Report;

/// What is to be said.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    /// Reports to be repeated over another link; the newest of each link that is down.
    report_copies: Vec<Report>,
}

impl Outbox {
    /// The owner hears of this.
    pub(super) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// What happened, oldest first.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether something happened.
    pub(super) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The report is repeated over another link, in place of an older one about the same link.
    pub(super) fn copy_report(&mut self, report: &Report) {
        self.report_copies.retain(|copy| copy.link != report.link);
        self.report_copies.push(report.clone());
    }

    /// The next report to be repeated.
    pub(super) fn poll_report_copy(&mut self) -> Option<Report> {
        self.report_copies.pop()
    }

    /// It could not leave.
    pub(super) fn put_back(&mut self, report: Report) {
        self.report_copies.push(report);
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::link::received::Range;
    use crate::units::LinkId;

    #[test]
    fn of_each_link_only_the_newest_report_is_repeated() {
        let report = |link, last| Report {
            link: LinkId(link),
            delay_us: 0,
            ce_count: 0,
            ranges: [Range { first: 0, last }].into_iter().collect(),
        };
        let mut outbox = Outbox::default();
        outbox.copy_report(&report(1, 5));
        outbox.copy_report(&report(2, 5));
        outbox.copy_report(&report(1, 9));
        assert_eq!(outbox.poll_report_copy(), Some(report(1, 9)));
        outbox.put_back(report(1, 9));
        assert_eq!(outbox.poll_report_copy(), Some(report(1, 9)));
        assert_eq!(outbox.poll_report_copy(), Some(report(2, 5)));
        assert_eq!(outbox.poll_report_copy(), None);
    }
}
