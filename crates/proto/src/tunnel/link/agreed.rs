//! What was agreed on a link: what a person says of it, what its owner wishes, and what follows for the packets that this
//! end sends.

use ropewalk_settings::{Bitrate, Terms};

use crate::config::Wishes;

/// What a link does for the packets that this end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duty {
    /// It carries them, as the scheduler says.
    #[default]
    Carries,
    /// A backup that takes what finds no room on the others.
    Helps,
    /// A backup that is not needed.
    Rests,
}

/// What holds for one link.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tunnel) struct Agreed {
    /// What a person says of it.
    pub(in crate::tunnel) terms: Terms,
    /// What its owner wishes of it.
    wishes: Wishes,
    /// Most that this end sends on it, at IP level.
    most: Option<Bitrate>,
    duty: Duty,
    /// Whether bytes cost money on it.
    pub(super) metered: bool,
}

impl Agreed {
    /// What its owner wishes of it, and the most that this end shall send.
    pub(in crate::tunnel) fn wish(&mut self, wishes: Wishes, most: Option<Bitrate>) {
        (self.wishes, self.most) = (wishes, most);
        // Nothing goes on a backup before somebody looked whether it is needed.
        self.duty = if wishes.backup { Duty::Rests } else { Duty::Carries };
    }

    /// What its owner wishes of it.
    pub(in crate::tunnel) const fn wishes(&self) -> Wishes {
        self.wishes
    }

    /// Whether its owner keeps it back.
    pub(in crate::tunnel) const fn is_backup(&self) -> bool {
        self.wishes.backup
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
        match (rate, self.most) {
            (Some(rate), Some(most)) => Some(rate.min(most)),
            (rate, most) => rate.or(most),
        }
    }

    /// Whether this pace is the bound that its owner set.
    pub(super) fn is_cap(&self, pace: Option<Bitrate>) -> bool {
        self.most.is_some() && self.most == pace
    }
}
