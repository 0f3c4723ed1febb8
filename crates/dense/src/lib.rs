//! Maps of many entries in little memory. The entries stand side by side, and a table of their places finds each in some ten bytes.
//!
//! A hash map holds its entries in the table itself, of which an eighth to more than a half is empty, and a tree is a third empty. With a
//! million entries of 100 bytes each, that is 100 to 130 MB beside the entries; here it is 5 to 12 MB.
//!
//! | type | what it is |
//! | --- | --- |
//! | [`DenseMap`] | entries, found by their keys |
//! | [`Rows`] | entries alone: a list that does not move them as it grows |
//! | [`Index`] | the table alone: places by a key that stands with the entries, wherever these are |
//!
//! Memory that is not used any more is given back as far as no entry has to move for it; [`DenseMap::compact`] moves them.

mod index;
mod map;
mod rows;

pub use index::Index;
pub use map::DenseMap;
pub use rows::Rows;

/// Places that are kept whether or not they are used: they take next to nothing.
const LEAST: usize = 64;
