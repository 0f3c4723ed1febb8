//! The coordinator's hold on the other workers: orders to them, and what all of them report.
//!
//! An order never waits: a worker has room for more of them than people can give, and one that lets it run full
//! hangs, which ends the proxy. An answer that takes all workers comes back as a command, so that the loop goes on
//! meanwhile.

use std::sync::Arc;

use ropewalk_control::server;
use ropewalk_proto::endpoint::Share;
use ropewalk_proto::tunnel::Flows;
use ropewalk_settings::PublicKey;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::daemon::Command;
use crate::handover::{Homes, PLACES};
use crate::peers::Moved;
use crate::worker::Order;

/// Orders of the coordinator that may wait for a worker: a thousand requests at the control socket.
const ORDERS: usize = 1024;

/// The other workers.
#[derive(Debug)]
pub struct WorkerGroup {
    share: Share,
    /// Those with the numbers from 1.
    others: Vec<mpsc::Sender<Order>>,
    /// The coordinator's own queue.
    commands: mpsc::Sender<Command>,
    /// How many have said that all is said.
    ended: usize,
    hangs: Option<u16>,
    homes: Homes,
}

/// The queue of one worker's orders, where each of so many workers may have something for it.
#[must_use]
pub fn orders(workers: u16) -> (mpsc::Sender<Order>, mpsc::Receiver<Order>) {
    mpsc::channel(ORDERS + room_for_others(workers))
}

/// Room in a worker's queue for what the others pass to it.
#[must_use]
pub fn room_for_others(workers: u16) -> usize {
    usize::from(workers.saturating_sub(1)) * PLACES
}

impl WorkerGroup {
    /// The workers whose orders are taken there, with the numbers from 1; `commands` is the coordinator's queue.
    /// There are at most as many as [`Share::MAX_PARTS`] allows, and those beyond are left out.
    #[must_use]
    pub fn new(mut others: Vec<mpsc::Sender<Order>>, commands: mpsc::Sender<Command>) -> Self {
        others.truncate(usize::from(Share::MAX_PARTS) - 1);
        let parts = u16::try_from(others.len() + 1).unwrap_or(1);
        let share = Share::new(0, parts).unwrap_or(Share::WHOLE);
        Self { share, others, commands, ended: 0, hangs: None, homes: Homes::default() }
    }

    /// Whether the coordinator is the only worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// The worker that serves a client.
    #[must_use]
    pub fn home(&self, client: &PublicKey) -> u16 {
        self.share.home(client)
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.share.parts()
    }

    /// Orders another worker; the coordinator does its own part itself.
    pub fn order(&mut self, worker: u16, order: Order) {
        let other = usize::from(worker).checked_sub(1).and_then(|at| self.others.get(at));
        // One that is gone has ended the proxy already.
        if let Some(Err(TrySendError::Full(_))) = other.map(|other| other.try_send(order)) {
            self.hangs = Some(worker);
        }
    }

    /// Orders all others.
    pub fn order_all(&mut self, order: impl Fn() -> Order) {
        (1..self.workers()).for_each(|worker| self.order(worker, order()));
    }

    /// A worker whose queue is full.
    #[must_use]
    pub fn hangs(&self) -> Option<u16> {
        self.hangs
    }

    /// Tells the others which worker serves each address, as some are another client's now, and returns it for the coordinator.
    pub fn publish_homes(&mut self, moved: Vec<Moved>) -> Option<Arc<Homes>> {
        if moved.is_empty() || self.is_empty() {
            return None;
        }
        for (net, owner) in moved {
            let home = owner.map(|owner| self.home(&owner));
            self.homes.set(net, home);
        }
        let homes = Arc::new(self.homes.clone());
        self.order_all(|| Order::Homes(Arc::clone(&homes)));
        Some(homes)
    }

    /// Asks the others how things are, for an answer at the control socket; their reports come as a command.
    pub fn gather(&mut self, asked: server::Command) {
        let mut answers = Vec::with_capacity(self.others.len());
        for worker in 1..self.workers() {
            let (reply, answer) = oneshot::channel();
            self.order(worker, Order::Report(reply));
            answers.push(answer);
        }
        let commands = self.commands.clone();
        spawn_local(async move {
            let mut reports = Vec::with_capacity(answers.len());
            for answer in answers {
                // A worker that is gone has ended the proxy: nobody waits for the answer any more.
                let Ok(report) = answer.await else { return };
                reports.push(report);
            }
            drop(commands.send(Command::Gathered(asked, reports)).await);
        });
    }

    /// Asks another worker for the flows that are sent to a client; they come as a command.
    pub fn ask_flows(&mut self, client: PublicKey, limit: usize, asked: server::Command) {
        let (reply, answer) = oneshot::channel();
        self.order(self.home(&client), Order::Flows(client, limit, reply));
        let commands = self.commands.clone();
        spawn_local(async move {
            let Ok(flows) = answer.await else { return };
            drop(commands.send(Command::FlowsShown(asked, flows.map(Box::new))).await);
        });
    }

    /// Another worker has said goodbye to its clients.
    pub fn note_end(&mut self) {
        self.ended += 1;
    }

    /// Whether all others have.
    #[must_use]
    pub fn have_ended(&self) -> bool {
        self.ended >= self.others.len()
    }
}

/// The flows, as they come back.
pub type Shown = Option<Box<Flows>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_takes_no_orders_is_found_out() {
        let (other, mut queue) = orders(2);
        let mut group = WorkerGroup::new(vec![other], mpsc::channel(1).0);
        assert_eq!(group.workers(), 2);
        for _ in 0..ORDERS + room_for_others(2) {
            group.order(1, Order::Close);
            assert_eq!(group.hangs(), None);
        }
        group.order(1, Order::Close);
        assert_eq!(group.hangs(), Some(1));
        assert!(matches!(queue.try_recv(), Ok(Order::Close)));
    }

    #[test]
    fn all_have_ended_when_each_said_so() {
        let others = (0..2).map(|_| orders(3).0).collect();
        let mut group = WorkerGroup::new(others, mpsc::channel(1).0);
        assert!(!group.is_empty() && !group.have_ended());
        group.note_end();
        assert!(!group.have_ended());
        group.note_end();
        assert!(group.have_ended());
        assert!(WorkerGroup::new(Vec::new(), mpsc::channel(1).0).have_ended());
    }
}
