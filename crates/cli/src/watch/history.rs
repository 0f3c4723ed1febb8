//! The rates of the last minutes, for the graphs.

use std::collections::{BTreeMap, VecDeque};

use super::view::View;

/// Samples kept: more than the columns of any terminal that people sit at.
const MOST: usize = 512;

/// Bits per second up and down, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Series {
    up: VecDeque<f64>,
    down: VecDeque<f64>,
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Up,
    Down,
}

impl Series {
    fn note(&mut self, up: f64, down: f64) {
        for (values, value) in [(&mut self.up, up), (&mut self.down, down)] {
            if values.len() == MOST {
                values.pop_front();
            }
            values.push_back(value);
        }
    }

    fn of(&self, way: Way) -> &VecDeque<f64> {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }
}

/// The graphs of everything shown.
#[derive(Debug, Default)]
pub(crate) struct History {
    total: Series,
    rows: BTreeMap<String, Series>,
}

impl History {
    /// A view was taken. What is not in it any more is forgotten.
    pub(crate) fn note(&mut self, view: &View) {
        self.total.note(view.up_bps, view.down_bps);
        self.rows.retain(|name, _| view.rows.iter().any(|row| row.name == *name));
        for row in &view.rows {
            self.rows.entry(row.name.clone()).or_default().note(row.up_bps, row.down_bps);
        }
    }

    /// The graph of a row, or (`None`) of all together: so many values, newest last, bits per second.
    pub(crate) fn graph(&self, row: Option<&str>, way: Way, width: usize) -> Vec<u64> {
        let series = row.map_or(Some(&self.total), |name| self.rows.get(name));
        let Some(values) = series.map(|series| series.of(way)) else { return vec![0; width] };
        let known = values.iter().skip(values.len().saturating_sub(width));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates, and no rate is below zero"
        )]
        let known = known.map(|value| *value as u64);
        let missing = width.saturating_sub(values.len());
        std::iter::repeat_n(0, missing).chain(known).collect()
    }

    /// The largest value of that width over all rows: graphs that have one scale can be compared.
    pub(crate) fn most(&self, way: Way, width: usize) -> u64 {
        let names = self.rows.keys();
        let most = names.filter_map(|name| self.graph(Some(name), way, width).into_iter().max());
        most.max().unwrap_or(0)
    }
}
