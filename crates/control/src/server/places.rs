//! Who has a place among the connections that are served, so that nobody can keep the others out.
//!
//! A connection is *idle* until the whole head of its request was read, and *asking* from then on. A newcomer for whom there
//! is no place gets that of the oldest idle connection among those he would share with; where all of these are asking, he
//! is sent away. Who holds his connections open without a word so only stands in his own way.
//!
//! Root and the daemon's own user have places of their own: no other user can take them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Who holds a connection, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Root or the daemon's own user.
    Keeper,
    /// Another user.
    User(u32),
    /// Somebody of this machine: TCP does not say who.
    Somebody,
}

/// How many connections are served at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Those of root and the daemon's own user together.
    pub(super) keepers: usize,
    /// Those of one other user.
    pub(super) each: usize,
    /// Those of all others together.
    pub(super) others: usize,
}

/// The connections that are served.
#[derive(Clone, Debug)]
pub(super) struct Places {
    limits: Limits,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By age.
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    holder: Holder,
    asking: Arc<AtomicBool>,
    /// Dropped, it ends the connection.
    _keep: oneshot::Sender<()>,
}

/// The place of one connection; dropped, it is free.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    table: Arc<Mutex<Table>>,
    asking: Asking,
    /// Resolves when the place is another's.
    pub(super) lost: oneshot::Receiver<()>,
}

/// What says that the head of the request was read.
#[derive(Clone, Debug)]
pub(super) struct Asking(Arc<AtomicBool>);

impl Asking {
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, table: Arc::default() }
    }

    /// A place for a connection; `None`: all are taken by connections that ask.
    pub(super) fn take(&self, holder: Holder) -> Option<Place> {
        let mut table = lock(&self.table);
        let Limits { keepers, each, others } = self.limits;
        let is_keeper = holder == Holder::Keeper;
        if let Holder::User(_) = holder {
            table.make_room(each, |other| other == holder)?;
        }
        let most = if is_keeper { keepers } else { others };
        table.make_room(most, |other| (other == Holder::Keeper) == is_keeper)?;

        let number = table.next;
        table.next += 1;
        let asking = Arc::new(AtomicBool::new(false));
        let (keep, lost) = oneshot::channel();
        let taken = Taken { holder, asking: Arc::clone(&asking), _keep: keep };
        table.taken.insert(number, taken);
        Some(Place { number, table: Arc::clone(&self.table), asking: Asking(asking), lost })
    }
}

impl Table {
    /// Sees to it that fewer than `most` of these hold a place. `None`: they all ask.
    fn make_room(&mut self, most: usize, of: impl Fn(Holder) -> bool) -> Option<()> {
        let mut theirs = self.taken.iter().filter(|(_, taken)| of(taken.holder));
        if theirs.clone().count() < most {
            return Some(());
        }
        let oldest = theirs.find(|(_, taken)| !taken.asking.load(Ordering::Relaxed));
        let number = *oldest?.0;
        self.taken.remove(&number);
        Some(())
    }
}

impl Place {
    pub(super) fn asking(&self) -> Asking {
        self.asking.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.table).taken.remove(&self.number);
    }
}

/// What is under the lock is right at any moment, so a panic while it was held changes nothing.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { keepers: 2, each: 2, others: 3 };

    fn is_lost(place: &mut Place) -> bool {
        place.lost.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_idle_connection_of_a_user_makes_room_for_his_next() {
        let places = Places::new(LIMITS);
        let mut first = places.take(Holder::User(7)).unwrap();
        let mut second = places.take(Holder::User(7)).unwrap();
        let mut another = places.take(Holder::User(8)).unwrap();
        first.asking().begin();
        let mut third = places.take(Holder::User(7)).unwrap();
        assert!(is_lost(&mut second));
        assert!(!is_lost(&mut first) && !is_lost(&mut another) && !is_lost(&mut third));
        third.asking().begin();
        assert!(places.take(Holder::User(7)).is_none(), "both ask");
        drop(first);
        assert!(places.take(Holder::User(7)).is_some());
    }

    #[test]
    fn users_share_places_and_the_keepers_have_their_own() {
        let places = Places::new(LIMITS);
        let mut others: Vec<_> =
            (1..=3).map(|user| places.take(Holder::User(user)).unwrap()).collect();
        let mut keepers: Vec<_> = (0..2).map(|_| places.take(Holder::Keeper).unwrap()).collect();
        let _fourth = places.take(Holder::User(4)).unwrap();
        assert!(is_lost(&mut others[0]) && !is_lost(&mut others[1]));
        assert!(!keepers.iter_mut().any(is_lost), "no other user takes their places");
        let _third = places.take(Holder::Keeper).unwrap();
        assert!(is_lost(&mut keepers[0]) && !is_lost(&mut others[1]));
    }

    #[test]
    fn those_of_whom_nothing_is_known_share_all_places_of_the_others() {
        let places = Places::new(LIMITS);
        let mut held: Vec<_> = (0..3).map(|_| places.take(Holder::Somebody).unwrap()).collect();
        held[0].asking().begin();
        let _fourth = places.take(Holder::Somebody).unwrap();
        assert!(!is_lost(&mut held[0]) && is_lost(&mut held[1]) && !is_lost(&mut held[2]));
    }
}
