//! Which system sends: the default one, or the one that the papers describe.

use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;
use crate::{Acknowledge, ControllerKind, Order, Redundant, SchedulerKind};

/// A scheduler, a controller, an order and whose acknowledgements TCP hears, which belong together. Each may still be set by itself.
///
/// | profile | scheduler | controller | order | acknowledge | sent over two links |
/// | --- | --- | --- | --- | --- | --- |
/// | `default` | `arrival` | `model` | `flow` | `local` | what is marked as real time |
/// | `paper` | `free-window` | `ccid2` | `global` | `end-to-end` | nothing |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// For every network: each packet goes where it arrives first, and what is lost is sent again.
    #[default]
    Default,
    /// The multilink proxy of Evensen et al., for comparison.
    Paper,
}

impl Profile {
    /// Which link takes the next packet.
    #[must_use]
    pub fn scheduler(self) -> SchedulerKind {
        match self {
            Self::Default => SchedulerKind::default(),
            Self::Paper => SchedulerKind::FreeWindow,
        }
    }

    /// How many datagrams may be in flight on a link.
    #[must_use]
    pub fn controller(self) -> ControllerKind {
        match self {
            Self::Default => ControllerKind::default(),
            Self::Paper => ControllerKind::Ccid2,
        }
    }

    /// Which order the receiver restores.
    #[must_use]
    pub fn order(self) -> Order {
        match self {
            Self::Default => Order::default(),
            Self::Paper => Order::Global,
        }
    }

    /// Which packets go over two links at once.
    #[must_use]
    pub fn redundant(self) -> Redundant {
        match self {
            Self::Default => Redundant::default(),
            Self::Paper => Redundant::off(),
        }
    }

    /// Who acknowledges what a sender of TCP has sent.
    #[must_use]
    pub fn acknowledge(self) -> Acknowledge {
        match self {
            Self::Default => Acknowledge::default(),
            Self::Paper => Acknowledge::EndToEnd,
        }
    }
}

shown_as_written!(Profile);
