//! Recorded capacity: mahimahi packet-delivery traces.
//!
//! One line of the file is one opportunity to deliver 1500 bytes, as whole milliseconds since the
//! start; several lines with the same number are several opportunities in that millisecond. When
//! the trace ends it starts again, its last line being also the length of one round
//! (mahimahi, `link_queue.cc`). Files may be compressed with gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

/// What one opportunity carries, in bytes at IP level: mahimahi's packet size (1504) without the
/// four bytes that the TUN device puts in front.
pub const OPPORTUNITY_BYTES: u64 = 1500;

/// The same in 10^6 bits.
pub(crate) const OPPORTUNITY_MBIT: f64 = 0.012;

/// A trace longer than this is refused: ten times the longest known (Verizon LTE, 1.8 million).
const MAX_OPPORTUNITIES: usize = 20_000_000;

/// When packets could be delivered, over one round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Milliseconds since the start of the round, never decreasing.
    at_ms: Vec<u32>,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or decompressed.
    #[error("cannot read the trace {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A stream cannot be read or decompressed.
    #[error("line {line}: cannot read the trace")]
    Stream {
        /// Counted from 1.
        line: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line is not a whole number of milliseconds.
    #[error("line {line}: `{text}` is not a whole number of milliseconds")]
    NotANumber {
        /// Counted from 1.
        line: usize,
        /// The line, cut to 40 characters.
        text: String,
    },
    /// Time runs backwards.
    #[error("line {line}: {at_ms} ms comes after {before_ms} ms")]
    Backwards {
        /// Counted from 1.
        line: usize,
        /// The time on this line.
        at_ms: u32,
        /// The time on the line before.
        before_ms: u32,
    },
    /// No line, or only lines of millisecond 0: one round would take no time.
    #[error("the trace must last at least one millisecond")]
    Empty,
    /// More lines than a trace may have.
    #[error("line {line}: a trace has at most {MAX_OPPORTUNITIES} lines")]
    TooLong {
        /// Counted from 1.
        line: usize,
    },
    /// One of the others, in a file.
    #[error("{path}: {source}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// The error in it.
        source: Box<TraceError>,
    },
}

impl Trace {
    /// Reads a file, plain or gzip (told apart by their content).
    ///
    /// # Errors
    /// If the file cannot be read, or a line is wrong; the error names the file and the line.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let read = |source| TraceError::Read { path: path.to_path_buf(), source };
        let mut file = File::open(path).map_err(read)?;
        let mut magic = Vec::with_capacity(2);
        Read::by_ref(&mut file).take(2).read_to_end(&mut magic).map_err(read)?;
        file.seek(SeekFrom::Start(0)).map_err(read)?;
        let plain = BufReader::new(file);
        // RFC 1952 §2.3.1: a gzip member begins with these two bytes; no line of digits does.
        if magic == [0x1f, 0x8b] {
            Self::parse(BufReader::new(MultiGzDecoder::new(plain)))
        } else {
            Self::parse(plain)
        }
        .map_err(|source| TraceError::InFile { path: path.to_path_buf(), source: Box::new(source) })
    }

    /// Reads an uncompressed trace.
    ///
    /// # Errors
    /// At the first line that is wrong.
    pub fn parse(text: impl BufRead) -> Result<Self, TraceError> {
        let mut at_ms = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            let content = content.map_err(|source| TraceError::Stream { line, source })?;
            let at: u32 = content.trim().parse().map_err(|_| TraceError::NotANumber {
                line,
                text: content.chars().take(40).collect(),
            })?;
            check_next(line, at_ms.last().copied(), at)?;
            at_ms.push(at);
        }
        Self::of_checked(at_ms)
    }

    /// One with an opportunity at each of these milliseconds.
    ///
    /// # Errors
    /// As [`Self::parse`]; lines are counted as if these were written.
    pub fn new(at_ms: Vec<u32>) -> Result<Self, TraceError> {
        let mut before = None;
        for (index, &at) in at_ms.iter().enumerate() {
            check_next(index + 1, before, at)?;
            before = Some(at);
        }
        Self::of_checked(at_ms)
    }

    fn of_checked(at_ms: Vec<u32>) -> Result<Self, TraceError> {
        if at_ms.last().is_none_or(|&last| last == 0) {
            return Err(TraceError::Empty);
        }
        Ok(Self { at_ms })
    }

    /// Writes what [`Self::parse`] reads.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        self.at_ms.iter().try_for_each(|at| writeln!(to, "{at}"))
    }

    /// Capacity in each whole second of one round, Mbit/s. An opportunity counts for the second that
    /// ends with it.
    #[must_use]
    pub fn per_second(&self) -> Vec<f64> {
        let mut seconds = vec![0_u32; self.period().as_secs() as usize];
        for &at in &self.at_ms {
            if let Some(count) = seconds.get_mut((at.saturating_sub(1) / 1000) as usize) {
                *count += 1;
            }
        }
        seconds.into_iter().map(|count| f64::from(count) * OPPORTUNITY_MBIT).collect()
    }

    /// How long one round lasts.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.at_ms.last().copied().unwrap_or(1).into())
    }

    /// Capacity over one round, per second.
    #[must_use]
    pub fn mean_rate(&self) -> Bitrate {
        Bitrate::from_bytes_in(self.at_ms.len() as u64 * OPPORTUNITY_BYTES, self.period())
    }

    /// Opportunities after `from` and until `to`, for a trace that began at `origin`.
    pub(crate) fn count_between(&self, origin: Instant, from: Instant, to: Instant) -> u64 {
        self.first_after(origin, to).saturating_sub(self.first_after(origin, from))
    }

    /// When opportunity `number` comes, counted from 0 over all rounds, for a trace that began at
    /// `origin`.
    pub(crate) fn opportunity(&self, origin: Instant, number: u64) -> Instant {
        let len = self.at_ms.len() as u64;
        let round = u32::try_from(number / len).unwrap_or(u32::MAX);
        let within = self.at_ms[(number % len) as usize];
        origin + self.period().saturating_mul(round) + Duration::from_millis(within.into())
    }

    /// The number of the first opportunity that comes later than `now`. A packet does not use the
    /// opportunity of the very moment it arrives in, as in mahimahi.
    pub(crate) fn first_after(&self, origin: Instant, now: Instant) -> u64 {
        if now < origin {
            return 0;
        }
        let (since, period) = (now.since(origin).as_nanos(), self.period().as_nanos());
        let (round, within) = (since / period, since % period);
        let passed = self.at_ms.partition_point(|&at| u128::from(at) * 1_000_000 <= within) as u64;
        // The last line of a round falls on the moment in which the next round begins.
        let before =
            u64::try_from(round).unwrap_or(u64::MAX).saturating_mul(self.at_ms.len() as u64);
        before.saturating_add(passed)
    }
}

/// Whether `at` may stand on `line`, after `before`.
fn check_next(line: usize, before: Option<u32>, at: u32) -> Result<(), TraceError> {
    if let Some(before_ms) = before.filter(|&before| at < before) {
        return Err(TraceError::Backwards { line, at_ms: at, before_ms });
    }
    if line > MAX_OPPORTUNITIES {
        return Err(TraceError::TooLong { line });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn trace(lines: &str) -> Trace {
        Trace::parse(lines.as_bytes()).unwrap()
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let table = [
            ("1\n2\nx\n", "line 3: `x` is not a whole number of milliseconds"),
            ("1\n\n2\n", "line 2: `` is not a whole number of milliseconds"),
            ("5\n4\n", "line 2: 4 ms comes after 5 ms"),
            ("-1\n", "line 1: `-1` is not a whole number of milliseconds"),
            ("1.5\n", "line 1: `1.5` is not a whole number of milliseconds"),
            ("4294967296\n", "line 1: `4294967296` is not a whole number of milliseconds"),
            ("", "the trace must last at least one millisecond"),
            ("0\n0\n", "the trace must last at least one millisecond"),
        ];
        for (text, expected) in table {
            assert_eq!(Trace::parse(text.as_bytes()).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_trace_repeats_after_its_last_line() {
        let trace = trace("2\n2\n7\n10\n");
        let at: Vec<u64> =
            (0..8).map(|n| trace.opportunity(Instant::ZERO, n).as_micros() / 1_000).collect();
        assert_eq!(at, [2, 2, 7, 10, 12, 12, 17, 20]);
        assert_eq!(trace.mean_rate(), Bitrate::from_bps(4 * 1500 * 8 * 100));
    }

    #[test]
    fn the_opportunity_of_the_very_moment_is_already_gone() {
        let trace = trace("0\n2\n7\n10\n");
        let origin = Instant::from_millis(100);
        let table = [(0, 0), (100, 1), (101, 1), (102, 2), (109, 3), (110, 5), (112, 6)];
        for (now, expected) in table {
            assert_eq!(trace.first_after(origin, Instant::from_millis(now)), expected, "{now} ms");
        }
    }

    #[test]
    fn a_compressed_file_reads_like_a_plain_one() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, packed) = (dir.path().join("t.mm"), dir.path().join("t.mm.gz"));
        std::fs::write(&plain, "1\n4\n").unwrap();
        let mut encoder = GzEncoder::new(File::create(&packed).unwrap(), Compression::fast());
        encoder.write_all(b"1\n4\n").unwrap();
        encoder.finish().unwrap();
        assert_eq!(Trace::open(&plain).unwrap(), Trace::open(&packed).unwrap());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let trace = Trace::new(vec![0, 4, 4, 9]).unwrap();
        let mut text = Vec::new();
        trace.write(&mut text).unwrap();
        assert_eq!(text, b"0\n4\n4\n9\n");
        assert_eq!(Trace::parse(text.as_slice()).unwrap(), trace);
        let error = Trace::new(vec![3, 2]).unwrap_err().to_string();
        assert_eq!(error, "line 2: 2 ms comes after 3 ms");
    }

    #[test]
    fn an_opportunity_counts_for_the_second_that_ends_with_it() {
        let trace = Trace::new(vec![0, 1000, 1000, 1001, 2500]).unwrap();
        assert_eq!(trace.per_second(), [3.0 * 0.012, 0.012]);
        let at = |ms: u64| Instant::from_millis(100 + ms);
        for (from, to, count) in [(0, 1000, 2), (1000, 2500, 3), (2500, 3500, 2)] {
            assert_eq!(trace.count_between(at(0), at(from), at(to)), count, "{from} to {to}");
        }
    }

    #[test]
    fn an_error_in_a_file_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("broken.mm");
        std::fs::write(&path, "1\nzwei\n").unwrap();
        let text = Trace::open(&path).unwrap_err().to_string();
        assert!(text.ends_with("broken.mm: line 2: `zwei` is not a whole number of milliseconds"));
        assert!(
            Trace::open(&dir.path().join("absent")).unwrap_err().to_string().contains("absent")
        );
    }
}
