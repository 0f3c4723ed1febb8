//! The live view of a daemon: what is shown (`view`), what was so before (`history`), and how it is drawn (`screen`).
//!
//! All of it is pure over status documents; asking, keys and the terminal are the command's.

mod history;
mod screen;
mod view;

pub(crate) use history::History;
pub(crate) use screen::{Look, draw};
pub(crate) use view::View;
