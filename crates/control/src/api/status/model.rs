//! What this end's congestion controller believes of a link, where it models it.

use ropewalk_settings::figures::rate;
use serde::{Deserialize, Serialize};

use crate::words::{millis, percent};

/// A model of a link, in the direction in which this end sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The rate that it found, at IP level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// The shortest round trip of late: without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ms: Option<f64>,
    /// How long a datagram waits on the way now.
    pub queue_ms: f64,
    /// Share of losses that is the path's own, 0 to 1: sending less would not lower it.
    pub usual_loss: f64,
    /// What holds this end back, for programs.
    pub limit: ModelLimit,
    /// With [`ModelLimit::Losses`]: what exceeds this, at IP level, was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_bps: Option<f64>,
    /// What holds this end back, for people.
    pub why: String,
}

impl ModelStatus {
    /// What was found, for people.
    #[must_use]
    pub fn figures(&self) -> String {
        let found = self
            .rate_bps
            .map_or_else(|| "no rate found yet".to_owned(), |bps| format!("found {}", rate(bps)));
        let trip = self.min_rtt_ms.map(|ms| format!(", {} without a queue", millis(ms)));
        format!(
            "{found}{}, queue {}, usual loss {}",
            trip.unwrap_or_default(),
            millis(self.queue_ms),
            percent(self.usual_loss)
        )
    }
}

/// What holds an end back that models a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelLimit {
    /// It still looks for the rate.
    Starting,
    /// Nothing: less is sent than the link could carry.
    Nothing,
    /// The rate of the link.
    Rate,
    /// Others keep the queue of the link full.
    Others,
    /// More is lost than usual: less is sent on trial.
    Trial,
    /// Losses beyond a rate.
    Losses,
    /// A queue, which is to drain.
    Queue,
    /// Nothing was confirmed in time.
    Silence,
}

impl ModelLimit {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Starting,
        Self::Nothing,
        Self::Rate,
        Self::Others,
        Self::Trial,
        Self::Losses,
        Self::Queue,
        Self::Silence,
    ];

    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Nothing => "nothing",
            Self::Rate => "rate",
            Self::Others => "others",
            Self::Trial => "trial",
            Self::Losses => "losses",
            Self::Queue => "queue",
            Self::Silence => "silence",
        }
    }

    /// For people; losses came beyond `most_bps`.
    #[must_use]
    pub fn in_words(self, most_bps: Option<f64>) -> String {
        match (self, most_bps) {
            (Self::Starting, _) => "starting: still looking for the rate".to_owned(),
            (Self::Nothing, _) => "nothing: less is sent than it could carry".to_owned(),
            (Self::Rate, _) => "its rate".to_owned(),
            (Self::Others, _) => "others use the same link: it keeps a fair part".to_owned(),
            (Self::Trial, _) => "losses: less is sent to see whether they cease".to_owned(),
            (Self::Losses, Some(most)) => {
                format!("losses: something on the way drops what exceeds {}", rate(most))
            }
            (Self::Losses, None) => {
                "losses: something on the way drops what exceeds a rate".to_owned()
            }
            (Self::Queue, _) => "draining a queue".to_owned(),
            (Self::Silence, _) => "silence: what was sent is not confirmed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_one_name_and_a_sentence_of_its_own() {
        let mut sentences = std::collections::BTreeSet::new();
        for limit in ModelLimit::ALL {
            let json = serde_json::to_value(limit).expect("JSON");
            assert_eq!(json, limit.name());
            assert!(sentences.insert(limit.in_words(Some(8e6))), "{limit:?}");
        }
        assert!(sentences.iter().any(|text| text.ends_with("exceeds 8 Mbit/s")));
    }

    #[test]
    fn figures_that_are_not_known_are_not_told() {
        let mut model = ModelStatus {
            rate_bps: None,
            min_rtt_ms: None,
            queue_ms: 0.0,
            usual_loss: 0.0,
            limit: ModelLimit::Starting,
            most_bps: None,
            why: ModelLimit::Starting.in_words(None),
        };
        assert_eq!(model.figures(), "no rate found yet, queue 0.0 ms, usual loss 0 %");
        (model.rate_bps, model.min_rtt_ms) = (Some(48.2e6), Some(21.0));
        (model.queue_ms, model.usual_loss) = (3.1, 0.004);
        assert_eq!(
            model.figures(),
            "found 48.2 Mbit/s, 21 ms without a queue, queue 3.1 ms, usual loss 0.4 %"
        );
    }
}
