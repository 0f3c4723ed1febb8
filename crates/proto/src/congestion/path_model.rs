//! What a controller that models its path believes of it, and what holds the sender back: for people who look.

use ropewalk_settings::Bitrate;

use crate::time::Duration;

/// A controller's view of a path, in the direction in which this end sends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathModel {
    /// The rate that it believes in, at IP level; `None` before the first measurement.
    pub rate: Option<Bitrate>,
    /// The shortest round trip of late, without a queue; `None` before the first measurement.
    pub min_rtt: Option<Duration>,
    /// How long a datagram waits on the path now.
    pub queue: Duration,
    /// By how much delays vary by themselves, without a queue (standard deviation).
    pub noise: Duration,
    /// The share of losses that is the path's own, 0 to 1: sending less would not lower it.
    pub usual_loss: f64,
    /// What holds the sender back.
    pub limit: PathLimit,
}

/// What holds a sender back that models its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathLimit {
    /// The rate is still looked for: the path is new, or was silent.
    Starting,
    /// Nothing: less is sent than the path could carry.
    Nothing,
    /// The rate of the path.
    Rate,
    /// Somebody else keeps the queue of the path full: it takes a part as CUBIC would (RFC 9438).
    Others,
    /// More is lost than usual: less is sent on trial, to see whether the losses cease.
    Trial,
    /// What exceeds this rate, at IP level, was lost: a policer, or a queue too short to be seen.
    Losses(Bitrate),
    /// A queue on the path, which is to drain.
    Queue,
    /// Nothing was confirmed in time.
    Silence,
}
