//! The scheduler that the settings name.

use ropewalk_settings::{Count, SchedulerKind, Scheduling};

use super::safire::Routes;
use super::{AnyScheduler, FreeWindow, RoundRobin, Safire, Weighted};
use crate::time::Instant;

impl AnyScheduler {
    /// A fresh scheduler as these settings have it.
    #[must_use]
    pub fn new(now: Instant, settings: &Scheduling) -> Self {
        let weighted = |count, when_full| Self::Weighted(Box::new(Weighted::new(count, when_full)));
        match settings.scheduler {
            SchedulerKind::FreeWindow => Self::FreeWindow(FreeWindow),
            SchedulerKind::RoundRobin => Self::RoundRobin(RoundRobin::default()),
            SchedulerKind::Natalie => weighted(settings.natalie.count, settings.natalie.when_full),
            SchedulerKind::Batcp => weighted(Count::Packets, settings.batcp.when_full),
            SchedulerKind::Safire => {
                let prefixes = settings.safire.routes.keys().copied();
                Self::Safire(Box::new(Safire::new(now, Routes::new(prefixes))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PacketMeta, Pick, Scheduler, views};
    use super::*;

    #[test]
    fn no_scheduler_sends_where_there_is_no_room_or_no_link() {
        for kind in SchedulerKind::ALL {
            for rooms in [&[][..], &[0], &[0, 0, 0]] {
                let mut scheduler = AnyScheduler::new(Instant::ZERO, &kind.into());
                let pick = scheduler.pick(Instant::ZERO, &PacketMeta::of_len(1), &views(rooms));
                assert!(!matches!(pick, Pick::Send(_)), "{kind} with {rooms:?}: {pick:?}");
            }
        }
    }
}
