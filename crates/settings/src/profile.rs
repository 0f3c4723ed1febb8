//! Which system sends: the default one, or the one that the papers describe.

use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;
use crate::{ControllerKind, Order, SchedulerKind};

/// A scheduler, a controller and an order that belong together. Each may still be set by itself.
///
/// | profile | scheduler | controller | order |
/// | --- | --- | --- | --- |
/// | `default` | `arrival` | `model` | `flow` |
/// | `paper` | `free-window` | `ccid2` | `global` |
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
}

shown_as_written!(Profile);
