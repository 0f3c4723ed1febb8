//! What people are shown of the model.

use ropewalk_settings::Bitrate;

use super::{Model, Phase};
use crate::congestion::{PathLimit, PathModel};
use crate::number::count;
use crate::time::Duration;

impl Model {
    /// What is believed now.
    pub(super) fn view(&self) -> PathModel {
        PathModel {
            rate: (self.rate > 0.0).then(|| bitrate(self.rate)),
            min_rtt: self.delays.floor().map(duration),
            queue: duration(self.delays.queue()),
            noise: duration(self.delays.noise()),
            usual_loss: self.losses.usual(),
            limit: self.binds(),
        }
    }

    /// What holds the sender back: the first that is so.
    fn binds(&self) -> PathLimit {
        // Once all is confirmed nothing waits, whatever the last measurement said.
        let idle = !self.rates.held_back || self.in_flight <= 0.0;
        match (self.phase, &self.rival) {
            _ if self.timed_out => PathLimit::Silence,
            (Phase::Startup, _) => PathLimit::Starting,
            _ if idle => PathLimit::Nothing,
            (_, Some(_)) => PathLimit::Others,
            (Phase::Drain | Phase::Refresh { .. }, None) => PathLimit::Queue,
            (Phase::Cruise, None) if self.losses.on_trial() => PathLimit::Trial,
            // Below what the rate alone would allow only the bound after losses brings the pace.
            (Phase::Cruise, None) if self.pace < self.gain * self.rate => {
                PathLimit::Losses(bitrate(self.losses.last_cap()))
            }
            (Phase::Cruise, None) => PathLimit::Rate,
        }
    }
}

/// Of bytes a second.
fn bitrate(bytes: f64) -> Bitrate {
    Bitrate::from_bps(count(bytes * 8.0))
}

/// Of seconds.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::rival::Rival;
    use super::super::round::Tally;
    use super::*;

    /// Bytes a second of a megabit.
    const MBIT: f64 = 1e6 / 8.0;

    /// A path of 10 Mbit/s that is full.
    fn full() -> Model {
        let mut model = Model::from_number(0);
        (model.phase, model.rates.held_back, model.in_flight) = (Phase::Cruise, true, 50_000.0);
        (model.rate, model.gain, model.pace) = (10.0 * MBIT, 1.1, 11.0 * MBIT);
        model
    }

    #[test]
    fn each_state_of_the_model_is_told_by_what_holds_the_sender_back() {
        let on_trial = |model: &mut Model| {
            model.losses.begin_trial(1.0, 0.02, Tally { lost: 9.0, confirmed: 91.0 }, 8.0 * MBIT);
        };
        let bounded = |model: &mut Model| {
            on_trial(model);
            // The trial ended: what came through is the bound.
            for round in 0..2 {
                let mut after = super::super::Round::default();
                after.before = Tally { lost: 0.0, confirmed: 200.0 };
                model.losses.on_round(5.0 + f64::from(round), &after);
            }
            model.pace = 0.98 * 8.0 * MBIT;
        };
        let rival = |model: &mut Model| model.rival = Some(Rival::new(1.0, 40.0, 0));
        type Case<'a> = (&'a str, &'a dyn Fn(&mut Model), PathLimit);
        let table: [Case<'_>; 13] = [
            ("full", &|_| {}, PathLimit::Rate),
            ("fresh", &|model| *model = Model::from_number(7), PathLimit::Starting),
            ("starting with a lot", &|model| model.phase = Phase::Startup, PathLimit::Starting),
            ("little to send", &|model| model.rates.held_back = false, PathLimit::Nothing),
            ("all is confirmed", &|model| model.in_flight = 0.0, PathLimit::Nothing),
            ("draining", &|model| model.phase = Phase::Drain, PathLimit::Queue),
            ("refreshing", &|model| model.phase = Phase::Refresh { deep: false }, PathLimit::Queue),
            ("a rival", &rival, PathLimit::Others),
            (
                "a rival that is asked for",
                &|model| {
                    rival(model);
                    model.phase = Phase::Refresh { deep: false };
                },
                PathLimit::Others,
            ),
            ("losses on trial", &on_trial, PathLimit::Trial),
            ("losses that ceased", &bounded, PathLimit::Losses(Bitrate::from_mbps(8))),
            (
                "silent",
                &|model| {
                    bounded(model);
                    model.timed_out = true;
                },
                PathLimit::Silence,
            ),
            ("slower than the gain", &|model| model.gain = 0.75, PathLimit::Rate),
        ];
        for (name, change, expected) in table {
            let mut model = full();
            change(&mut model);
            assert_eq!(model.view().limit, expected, "{name}");
        }
    }

    #[test]
    fn figures_are_there_once_they_are_measured() {
        let fresh = Model::from_number(0).view();
        assert_eq!((fresh.rate, fresh.min_rtt, fresh.queue), (None, None, Duration::ZERO));
        assert_eq!(full().view().rate, Some(Bitrate::from_mbps(10)));
    }
}
