//! What flow routing shows of itself when somebody asks: its path table and its flow table (Mark and Zhang 2007 §II-A).

use arrayvec::ArrayString;

use super::Tunnel;
use crate::link::sensing::as_f64;
use crate::packet::FiveTuple;
use crate::sched::AnyScheduler;
use crate::sched::safire::{CAPACITY, Flow};
use crate::time::Duration;
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;

/// How full the flow table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowCounts {
    /// Active flows in the table.
    pub held: usize,
    /// How many it holds at most.
    pub capacity: usize,
    /// Flows that gave way to others while active, since the scheduler was chosen.
    pub displaced: u64,
}

/// A row of the path table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathRow {
    /// The link.
    pub id: LinkId,
    /// Its name.
    pub name: ArrayString<MAX_NAME>,
    /// Active flows that count on it: the paper's N.
    pub flows: u32,
    /// What it carries at most, bit/s: as told, else as measured.
    pub capacity: Option<f64>,
    /// Its smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Share of recent datagrams lost.
    pub loss: f64,
    /// What one TCP flow can reach on it, bit/s.
    pub alpha: Option<f64>,
}

/// Both tables.
#[derive(Clone, Debug)]
pub struct FlowTables {
    /// The path table, by link id.
    pub paths: Vec<PathRow>,
    /// The most active flows of the flow table.
    pub flows: Vec<(Flow, FiveTuple)>,
    /// How many there are in all.
    pub counts: FlowCounts,
}

impl Tunnel {
    /// The tables of flow routing with at most so many flows, the most active first; `None`: another scheduler
    /// decides. It takes about a millisecond of a full table.
    #[must_use]
    pub fn flow_tables(&self, most: usize) -> Option<FlowTables> {
        let AnyScheduler::Safire(safire) = &self.egress.scheduler else { return None };
        let table = safire.flows();
        let path = |link: &super::Link| {
            let (capacity, rtt) = (link.sensing.capacity(), link.sender.rtt().srtt());
            let loss = link.sender.loss_ratio();
            PathRow {
                id: link.id,
                name: link.name,
                flows: table.on(link.id),
                capacity: capacity.map(as_f64),
                rtt,
                loss,
                alpha: safire.alpha(capacity, rtt, loss),
            }
        };
        Some(FlowTables {
            paths: self.links.iter().map(path).collect(),
            flows: table.most_active(most),
            counts: self.flow_counts()?,
        })
    }

    /// How full the flow table is; `None`: there is none.
    pub(super) fn flow_counts(&self) -> Option<FlowCounts> {
        let AnyScheduler::Safire(safire) = &self.egress.scheduler else { return None };
        let table = safire.flows();
        Some(FlowCounts { held: table.held(), capacity: CAPACITY, displaced: table.displaced })
    }
}
