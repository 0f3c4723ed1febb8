//! What the adversary may do, and does.

use ropewalk_proto::client::{Client, ClientState};
use ropewalk_proto::time::{Duration, Instant};

use super::{Datagram, Machine, To, World};

/// Where the adversary sends from in its own name.
const ELSEWHERE: ([u8; 4], u16) = ([100, 99, 0, 1], 666);

/// The adversary's choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// A machine is switched on.
    Start(usize),
    /// One of the datagrams under way arrives.
    Deliver(usize),
    /// The oldest is lost.
    Lose,
    /// All that is not of handshakes arrives, or is lost.
    Carry,
    LoseAll,
    /// One that was seen comes again: from the adversary's address, or in its sender's name.
    Replay {
        seen: usize,
        own_name: bool,
    },
    /// Time goes on to the next timer.
    Tick,
    /// A machine with a session sends a packet.
    Packet(usize),
}

impl World {
    /// What the adversary may do next.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let off = self.machines.iter().position(|machine| machine.client.is_none());
        choices.extend(off.map(Choice::Start));
        let chosen = self.chosen();
        choices.extend((0..chosen.len().min(2)).map(Choice::Deliver));
        if chosen.len() < self.under_way.len() {
            choices.push(Choice::Carry);
        }
        let [lose, repeat, tick] = self.left;
        if lose > 0 && !chosen.is_empty() {
            choices.push(Choice::Lose);
        }
        if lose > 0 && chosen.len() < self.under_way.len() {
            choices.push(Choice::LoseAll);
        }
        if repeat > 0 {
            for seen in 0..self.seen.len().min(6) {
                choices.extend([false, true].map(|own_name| Choice::Replay { seen, own_name }));
            }
        }
        if tick > 0 {
            choices.push(Choice::Tick);
        }
        let connected = |machine: &Machine| {
            matches!(
                machine.client.as_ref().map(Client::state),
                Some(ClientState::Connected { .. })
            )
        };
        if self.packets < 2 {
            choices.extend(self.machines.iter().position(connected).map(Choice::Packet));
        }
        choices
    }

    /// Places of the datagrams under way that are the adversary's to choose.
    fn chosen(&self) -> Vec<usize> {
        let mine = |at: &usize| self.each || self.under_way[*at].is_handshake();
        (0..self.under_way.len()).filter(mine).collect()
    }

    pub(crate) fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::Start(at) => self.start(at),
            Choice::Deliver(at) => {
                let place = self.chosen()[at];
                let datagram = self.under_way.remove(place);
                self.arrive(&datagram);
            }
            Choice::Lose => {
                self.left[0] -= 1;
                let place = self.chosen()[0];
                self.under_way.remove(place);
            }
            Choice::Carry => self.take_others().iter().for_each(|datagram| self.arrive(datagram)),
            Choice::LoseAll => {
                self.left[0] -= 1;
                self.take_others();
            }
            Choice::Replay { seen, own_name } => {
                self.left[1] -= 1;
                let mut datagram = self.seen[seen].clone();
                if own_name && datagram.to == To::Proxy {
                    datagram.path.remote = ELSEWHERE.into();
                }
                self.arrive(&datagram);
            }
            Choice::Tick => {
                self.left[2] -= 1;
                self.tick(Instant::ZERO + Duration::from_secs(1 << 30));
            }
            Choice::Packet(at) => self.send(at),
        }
        self.flush();
        self.check();
    }

    fn take_others(&mut self) -> Vec<Datagram> {
        let (mine, others) =
            std::mem::take(&mut self.under_way).into_iter().partition(Datagram::is_handshake);
        self.under_way = mine;
        others
    }
}
