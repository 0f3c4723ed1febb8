//! Keeps a log that a person reads short: a link that comes and goes every ten seconds would write 17,000 lines a day.
//!
//! Of each kind of line (the place in the code, and the link and peer that it tells of) the first [`BURST`] are written,
//! then one each [`REFILL`]; the next one says how many were left out. A day of the worst link is a page then, and what is
//! rare is never lost.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::args::LogFormat;

/// Lines of a kind at once: a bad start, or a bad quarter of an hour, is seen whole.
const BURST: u32 = 20;

/// Time after which one more is written.
const REFILL: Duration = Duration::from_secs(1800);

/// Kinds that are told apart; those beyond share what they have. A proxy with a thousand clients has some thousands.
const MOST_KINDS: usize = 8192;

/// Leaves out lines that repeat too often.
pub(super) struct Damper {
    kinds: Mutex<Kinds>,
    format: LogFormat,
}

impl Damper {
    /// One that tells in this format what it left out.
    pub(super) fn new(format: LogFormat) -> Self {
        Self { kinds: Mutex::default(), format }
    }

    fn tell(&self, left_out: u64) {
        let line = match self.format {
            LogFormat::Text => format!("      ({left_out} lines like the next one were left out)"),
            LogFormat::Json => format!("{{\"level\":\"INFO\",\"left_out\":{left_out}}}"),
        };
        // Nobody is left to tell if standard error is closed.
        drop(writeln!(io::stderr(), "{line}"));
    }
}

impl<S: Subscriber> Filter<S> for Damper {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let mut whom = Whom::default();
        event.record(&mut whom);
        let kind = (event.metadata().callsite(), whom.0);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = kinds.judge(Instant::now(), kind);
        drop(kinds);
        match verdict {
            Verdict::Write { left_out: 0 } => true,
            Verdict::Write { left_out } => {
                self.tell(left_out);
                true
            }
            Verdict::LeaveOut => false,
        }
    }
}

/// The link and the peer that a line tells of.
#[derive(Default)]
struct Whom(String);

impl Visit for Whom {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["peer", "link"].contains(&field.name()) {
            self.0.push_str(&format!("{value:?}\n"));
        }
    }
}

type Kind = (Identifier, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Write { left_out: u64 },
    LeaveOut,
}

/// How much of each kind was written.
#[derive(Default)]
struct Kinds {
    known: HashMap<Kind, Budget>,
    others: Option<Budget>,
}

impl Kinds {
    fn judge(&mut self, now: Instant, kind: Kind) -> Verdict {
        let has_room = self.known.len() < MOST_KINDS || self.known.contains_key(&kind);
        let budget = if has_room {
            self.known.entry(kind).or_insert_with(|| Budget::full(now))
        } else {
            self.others.get_or_insert_with(|| Budget::full(now))
        };
        budget.judge(now)
    }
}

/// What may still be written of a kind.
struct Budget {
    lines: u32,
    /// Since when the next line is being earned.
    since: Instant,
    left_out: u64,
}

impl Budget {
    fn full(now: Instant) -> Self {
        Self { lines: BURST, since: now, left_out: 0 }
    }

    fn judge(&mut self, now: Instant) -> Verdict {
        let earned = now.saturating_duration_since(self.since).as_secs() / REFILL.as_secs();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(earned).min(BURST);
        if self.lines == BURST {
            self.since = now;
        } else {
            self.since += REFILL.saturating_mul(earned);
        }
        if self.lines == 0 {
            self.left_out += 1;
            return Verdict::LeaveOut;
        }
        self.lines -= 1;
        Verdict::Write { left_out: std::mem::take(&mut self.left_out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    /// Lines that are written of one every so many seconds for a day.
    fn in_a_day(pause: u64) -> usize {
        let start = Instant::now();
        let mut budget = Budget::full(start);
        let times = (0..DAY).step_by(usize::try_from(pause).expect("seconds"));
        let written =
            |second| budget.judge(start + Duration::from_secs(second)) != Verdict::LeaveOut;
        times.map(written).filter(|written| *written).count()
    }

    #[test]
    fn a_day_of_the_worst_link_is_a_page_and_what_is_rare_is_whole() {
        // Each comes and goes, so there are two kinds of line.
        for (pause, at_most) in [(1, 68), (10, 68), (60, 68), (600, 68), (1800, 48), (3600, 24)] {
            let written = in_a_day(pause);
            assert!(written <= at_most, "every {pause} s: {written} lines");
        }
        assert_eq!(in_a_day(1800), 48, "a line in half an hour is never left out");
    }

    #[test]
    fn what_is_left_out_is_counted_once() {
        let start = Instant::now();
        let mut budget = Budget::full(start);
        for _ in 0..BURST {
            assert_eq!(budget.judge(start), Verdict::Write { left_out: 0 });
        }
        for _ in 0..5 {
            assert_eq!(budget.judge(start), Verdict::LeaveOut);
        }
        assert_eq!(budget.judge(start + REFILL), Verdict::Write { left_out: 5 });
        assert_eq!(budget.judge(start + REFILL), Verdict::LeaveOut);
        assert_eq!(budget.judge(start + 100 * REFILL), Verdict::Write { left_out: 1 });
    }

    #[test]
    fn links_and_peers_do_not_use_up_each_others_lines() {
        // With a subscriber of its own: what is written is counted.
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};

        use tracing_subscriber::Layer as _;
        use tracing_subscriber::layer::SubscriberExt as _;

        struct Counted(Arc<AtomicU32>);
        impl<S: Subscriber> tracing_subscriber::Layer<S> for Counted {
            fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let written = Arc::new(AtomicU32::new(0));
        let layer = Counted(Arc::clone(&written)).with_filter(Damper::new(LogFormat::Text));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..100 {
                for link in ["wlan0", "wwan0"] {
                    tracing::info!(link, "link is up");
                }
                tracing::info!(peer = "laptop", link = 1, "link up");
            }
        });
        assert_eq!(written.load(Ordering::SeqCst), 3 * BURST);
    }
}
