//! What was agreed on a link: what its owner says of it, what this end says beside, and what follows for the packets that
//! this end sends.

use ropewalk_settings::{Bitrate, LinkPolicy, Terms, Usage};

/// What a link does for the packets that this end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duty {
    /// It carries them, as the scheduler says.
    #[default]
    Carries,
    /// A link that is kept back, and takes what finds no room on the others.
    Helps,
    /// A link that is kept back, and is not needed.
    Rests,
}

/// What holds for one link.
#[derive(Clone, Debug, Default)]
pub(in crate::tunnel) struct Agreed {
    /// What its owner says of it: at the proxy as the client told.
    pub(in crate::tunnel) policy: LinkPolicy,
    /// What follows for this end, with what it says itself.
    pub(in crate::tunnel) terms: Terms,
    duty: Duty,
    /// Whether bytes cost money on it.
    pub(super) metered: bool,
}

impl Agreed {
    /// Its owner says this of it. What follows is not known yet.
    pub(super) fn with(policy: LinkPolicy, metered: bool) -> Self {
        Self { policy, metered, ..Self::default() }
    }

    /// When it carries packets.
    pub(in crate::tunnel) const fn usage(&self) -> Usage {
        self.terms.usage
    }

    /// Whether it is kept back.
    pub(in crate::tunnel) fn is_kept_back(&self) -> bool {
        self.terms.usage != Usage::Always
    }

    /// What it does for the packets that this end sends.
    #[inline]
    pub(in crate::tunnel) const fn duty(&self) -> Duty {
        self.duty
    }

    /// It rests, or not any more. Returns whether there was something to rest from.
    pub(super) fn set_duty(&mut self, duty: Duty) -> bool {
        let rests = duty == Duty::Rests && self.duty != Duty::Rests;
        self.duty = duty;
        rests
    }

    /// What the link carries, if that is told, and no more than this end may send.
    pub(in crate::tunnel) fn told_rate(&self) -> Option<Bitrate> {
        self.capped(self.terms.rate)
    }

    /// This rate, or the most that this end may send if that is less.
    #[inline]
    pub(super) fn capped(&self, rate: Option<Bitrate>) -> Option<Bitrate> {
        match (rate, self.terms.max) {
            (Some(rate), Some(max)) => Some(rate.min(max)),
            (rate, max) => rate.or(max),
        }
    }

    /// Whether this pace is the bound that was set.
    pub(super) fn is_cap(&self, pace: Option<Bitrate>) -> bool {
        self.terms.max.is_some() && self.terms.max == pace
    }
}
