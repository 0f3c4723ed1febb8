//! Speed tests in the present session, by the owner's names of links.

use super::{Client, LinkKey};
use crate::time::Instant;
use crate::tunnel::{SpeedAnswer, SpeedError, SpeedPhase, Trips};

impl Client {
    /// Begins a phase of a speed test; see [`Tunnel::begin_speed_phase`](crate::tunnel::Tunnel::begin_speed_phase). Links that the
    /// session does not have are left out.
    ///
    /// # Errors
    /// [`SpeedError`]; nothing changes then.
    pub fn begin_speed_phase(
        &mut self,
        now: Instant,
        phase: &SpeedPhase<LinkKey>,
    ) -> Result<(), SpeedError> {
        let Self { session, links, .. } = self;
        let session = session.as_mut().ok_or(SpeedError::NoSession)?;
        let known = phase.links.iter().filter_map(|(key, most)| Some((links.id_of(*key)?, *most)));
        let SpeedPhase { bytes, load, until, .. } = *phase;
        let phase = SpeedPhase { links: known.collect(), bytes, load, until };
        session.tunnel.begin_speed_phase(now, phase)
    }

    /// Ends a speed test, if one goes on.
    pub fn end_speed_test(&mut self) {
        if let Some(session) = &mut self.session {
            session.tunnel.end_speed_test();
        }
    }

    /// What the proxy said to the present phase; `None`: nothing yet.
    #[must_use]
    pub fn speed_answer(&self) -> Option<SpeedAnswer> {
        self.session.as_ref()?.tunnel.speed_answer()
    }

    /// When it last said something to it.
    #[must_use]
    pub fn speed_answered_at(&self) -> Option<Instant> {
        self.session.as_ref()?.tunnel.speed_answered_at()
    }

    /// The round trips on a link in the present phase.
    #[must_use]
    pub fn speed_trips(&self, key: LinkKey) -> Option<&Trips> {
        self.session.as_ref()?.tunnel.speed_trips(self.links.id_of(key)?)
    }

    /// The round trips so far do not count.
    pub fn forget_speed_trips(&mut self) {
        if let Some(session) = &mut self.session {
            session.tunnel.forget_speed_trips();
        }
    }
}
