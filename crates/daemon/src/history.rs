//! What a daemon carried over the last hour, day and month, and what happened: for graphs, and for "what was that yesterday at
//! nine?".
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`Recorder`] | the loop's side: it looks every 10 s, and never waits |
//! | `keeper` | the thread: it gathers, writes once a minute, answers |
//! | `gather` | from counters to steps of time, whatever the clock does |
//! | `steps` | how long the steps are, and how many are kept |
//! | `ring`, `record` | the file |
//! | `damper` | events that repeat |
//! | `day` | days of the calendar |
//! | `answer` | of what is kept, as few points as somebody looks at |
//!
//! # What is kept
//!
//! Of each link: bytes both ways with IP and UDP headers, round-trip time, losses; of all together the bytes of packets. A proxy keeps
//! all together only: what each of its clients did when is nobody's business for a month, and Prometheus has it for who wants it.
//! Events name links, proxies and config keys. Nothing says what packets were about or where they went.
//!
//! # Why a file of its own, and no library
//!
//! Three ways to keep it were weighed. Steps of fixed lengths for fixed times are a ring by nature (as in RRDtool): the place of a
//! step follows from its time.
//!
//! | | plain ring | redb 4.1 | SQLite (`rusqlite`, bundled) |
//! | --- | --- | --- | --- |
//! | size | 2.8 MB, always; its space is taken at the start | grows, and shrinks when it is compacted | bounded by `max_page_count`; rows that are too old must be deleted |
//! | written each minute | some ten records of 512 bytes, in five pages: 30 MB a day | the pages on the way to each changed row, and a sync for what is to last | the same pages into a log, and later into the file |
//! | power cut | a record is old, new, or a gap | whole, at the price of a sync | whole |
//! | damaged file | a gap for each damaged record | may panic, also where its own check finds nothing | told |
//! | clock that jumps | takes the places it writes to, no more | deleting by age deletes what it should not | the same |
//! | root in a folder of the daemon's user | opened as all files there ([`folder`](ropewalk_control::folder)) | the same | opens its log by name itself |
//! | in the program | some hundred lines here, and a checksum | a crate that needs Rust 1.90 (we promise 1.88) | a megabyte of C |
//!
//! All three need no system call that the [sandbox](crate::sandbox) does not have, and link statically. What decides is how each
//! fails: of this data a gap is no harm, and a month that is lost or a daemon that stops would be.

mod answer;
mod damper;
mod day;
mod gather;
mod keeper;
mod record;
mod recorder;
mod ring;
mod steps;

use std::path::PathBuf;

use ropewalk_control::api::ReloadReport;

pub use gather::{Counters, LinkSample, Sample};
pub use recorder::{Ending, Recorder};

/// What is read to know when a day begins: this machine's time zone.
#[must_use]
pub fn read() -> [PathBuf; 2] {
    ["/etc/localtime", "/usr/share/zoneinfo"].map(PathBuf::from)
}

/// What came of reading the config again, for an event.
#[must_use]
pub fn reloaded_in_words(report: &ReloadReport) -> String {
    let keys = |count: usize| if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
    let waiting = report.waiting().count();
    match (report.changes.len() - waiting, waiting) {
        (0, 0) => "nothing is changed".to_owned(),
        (changed, 0) => format!("{} changed", keys(changed)),
        (changed, waiting) => {
            format!("{} changed, {} at the next restart", keys(changed), keys(waiting))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_is_told_by_its_number_of_keys() {
        let mut report = ReloadReport::default();
        assert_eq!(reloaded_in_words(&report), "nothing is changed");
        let values = || ["a", "b"].map(str::to_owned);
        report.compare("links", values(), true);
        assert_eq!(reloaded_in_words(&report), "1 key changed");
        report.compare("dns", values(), false);
        report.compare("keepalive", values(), true);
        assert_eq!(reloaded_in_words(&report), "2 keys changed, 1 key at the next restart");
    }
}
