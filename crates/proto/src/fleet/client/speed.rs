//! Speed tests with the proxy in use.

use super::FleetClient;
use crate::client::LinkKey;
use crate::time::Instant;
use crate::tunnel::{SpeedAnswer, SpeedError, SpeedPhase, Trips};

impl FleetClient {
    /// Begins a phase of a speed test; see [`Tunnel::begin_speed_phase`](crate::tunnel::Tunnel::begin_speed_phase).
    ///
    /// # Errors
    /// [`SpeedError`]; nothing changes then.
    pub fn begin_speed_phase(
        &mut self,
        now: Instant,
        phase: &SpeedPhase<LinkKey>,
    ) -> Result<(), SpeedError> {
        self.present.client.begin_speed_phase(now, phase)
    }

    /// Ends a speed test, also one with a proxy that was left since.
    pub fn end_speed_test(&mut self) {
        self.slots().for_each(|slot| slot.client.end_speed_test());
    }

    /// What the proxy said to the present phase; `None`: nothing yet.
    #[must_use]
    pub fn speed_answer(&self) -> Option<SpeedAnswer> {
        self.present.client.speed_answer()
    }

    /// When it last said something to it.
    #[must_use]
    pub fn speed_answered_at(&self) -> Option<Instant> {
        self.present.client.speed_answered_at()
    }

    /// The round trips on a link in the present phase.
    #[must_use]
    pub fn speed_trips(&self, key: LinkKey) -> Option<&Trips> {
        self.present.client.speed_trips(key)
    }

    /// The round trips so far do not count.
    pub fn forget_speed_trips(&mut self) {
        self.present.client.forget_speed_trips();
    }
}
