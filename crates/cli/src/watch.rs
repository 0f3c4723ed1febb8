//! The live view of a daemon: what is shown (`view`), what was so before (`history`), and how it is drawn (`screen`); and what it
//! remembers of hours and days (`past`).
//!
//! All of it is pure over status documents; asking, keys and the terminal are the command's.

mod history;
mod past;
mod screen;
mod view;

pub(crate) use history::History;
pub(crate) use past::{Range, Remembered, draw_past};
pub(crate) use screen::{Look, draw};
pub(crate) use view::View;
