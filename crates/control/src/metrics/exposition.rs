//! How names, labels and values are written in the text format.

use std::fmt::{self, Write as _};

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A sample.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl Value {
    pub(super) fn flag(set: bool) -> Self {
        Self::Whole(set.into())
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Whole(u64::try_from(count).unwrap_or(u64::MAX))
    }

    pub(super) fn millis(millis: Option<f64>) -> Option<Self> {
        millis.map(|millis| Self::Real(millis / 1e3))
    }

    pub(super) fn bits(bits: Option<f64>) -> Option<Self> {
        bits.map(|bits| Self::Real(bits / 8.0))
    }

    /// The format has words of its own for these, but none of them says anything of a network.
    fn is_number(self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Real(real) => real.is_finite(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Real(real) => real.fmt(f),
        }
    }
}

/// Values by range.
pub(super) struct Histogram<'a> {
    /// Where the ranges end, rising; each holds its end.
    pub(super) bounds: Vec<f64>,
    /// How many values are in each range, and beyond the last.
    pub(super) counts: &'a [u64],
    pub(super) sum: f64,
}

/// Labels of a line, in the order in which they were given.
#[derive(Clone, Default)]
pub(super) struct Labels<'a>(Vec<(&'a str, String)>);

impl<'a> Labels<'a> {
    pub(super) fn with(&self, name: &'a str, value: impl Into<String>) -> Self {
        let mut labels = self.clone();
        labels.0.push((name, value.into()));
        labels
    }
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            write!(f, "{before}{name}=\"")?;
            for letter in value.chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// What is written so far.
#[derive(Default)]
pub(super) struct Page(pub(super) String);

impl Page {
    /// All lines of one name; none where nothing is known.
    pub(super) fn family<'a>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, Value)>,
    ) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let mut samples = samples.into_iter().filter(|(_, value)| value.is_number()).peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.line(format_args!("ropewalk_{name}{labels} {value}"));
        }
    }

    /// All lines of one distribution; none where nothing is known. Each bound has the number of all values within it, those of
    /// lower ranges too, as the format wants it.
    pub(super) fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, Histogram<'a>)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(name, "histogram", help);
        for (labels, Histogram { bounds, counts, sum }) in samples {
            let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            let mut within = 0_u64;
            for (bound, count) in bounds.zip(counts) {
                within += count;
                let labels = labels.with("le", bound);
                self.line(format_args!("ropewalk_{name}_bucket{labels} {within}"));
            }
            self.line(format_args!("ropewalk_{name}_sum{labels} {sum}"));
            self.line(format_args!("ropewalk_{name}_count{labels} {within}"));
        }
    }

    /// The only line of a gauge that the daemon has once.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: Value) {
        self.family(name, Kind::Gauge, help, [(Labels::default(), value)]);
    }

    /// The same of a counter.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: Value) {
        self.family(name, Kind::Counter, help, [(Labels::default(), value)]);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP ropewalk_{name} {help}"));
        self.line(format_args!("# TYPE ropewalk_{name} {kind}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes what it is given");
    }
}
