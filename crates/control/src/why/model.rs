//! A link whose controller models it: the model knows what held it back.

use super::Factor;
use crate::api::{ModelLimit, ModelStatus};

/// What the model held the link back for. `held` says for how long packets waited, and what is carried.
pub(super) fn verdict(model: &ModelStatus, held: &str) -> (Factor, String) {
    let factor = match model.limit {
        ModelLimit::Starting => Factor::Starting,
        ModelLimit::Nothing | ModelLimit::Rate => Factor::Rate,
        ModelLimit::Others => Factor::Others,
        ModelLimit::Trial | ModelLimit::Losses => Factor::Loss,
        ModelLimit::Queue => Factor::Queue,
        ModelLimit::Silence => Factor::Silence,
    };
    let why = match model.limit {
        // Packets waited until a moment ago.
        ModelLimit::Nothing => ModelLimit::Rate.in_words(None),
        _ => model.why.clone(),
    };
    (factor, format!("{why}; {held}"))
}
