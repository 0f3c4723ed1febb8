//! `ropewalk notify`: what a desktop is told of the client's links, from the user's own session.
//!
//! The client is asked again and again, as `ropewalk watch` does. What follows from the documents is decided without a clock, a
//! socket or a bus:
//!
//! ```text
//! status --> Watcher: which conditions hold (conditions), what became of the links (links)
//!                |
//!                v
//!            Outbox: one notification for each topic, the newest; so many in a minute
//!                |
//!                v
//!             Desk: org.freedesktop.Notifications
//! ```

mod conditions;
mod desk;
mod links;
mod note;
mod outbox;
#[cfg(test)]
mod tests;
mod watcher;

pub(crate) use desk::{Desk, Unshown};
pub(crate) use note::{Act, Note, Topic, Urgency};
pub(crate) use watcher::Watcher;
