//! What a proxy says of its clients' sessions, on its way to the registry's thread.
//!
//! Of each client only what counts now is kept, so that no end of a session is lost however slow etcd is: it would look alive for as
//! long as its proxy runs. There are never more words than clients.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropewalk_settings::PublicKey;
use tokio::sync::Notify;

/// How it is with a client's session at this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionWord {
    /// It began then, in microseconds since 1970.
    Began(u64),
    /// There is none any more.
    Ended,
}

/// What is to be known of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// How it is with its session, if that has changed.
    pub(crate) session: Option<SessionWord>,
    /// It has said since that it moves to another proxy.
    pub(crate) moves: bool,
}

/// The words that wait for the thread.
#[derive(Debug, Default)]
pub(crate) struct Words {
    waiting: Mutex<BTreeMap<PublicKey, Word>>,
    news: Notify,
}

impl Words {
    /// A session with this client began then, or has ended.
    pub(crate) fn note(&self, client: PublicKey, since_us: Option<u64>) {
        let session = Some(since_us.map_or(SessionWord::Ended, SessionWord::Began));
        self.lock().insert(client, Word { session, moves: false });
        self.news.notify_one();
    }

    /// This client moves to another proxy, and keeps its session for a while.
    pub(crate) fn note_moving(&self, client: PublicKey) {
        self.lock().entry(client).or_default().moves = true;
        self.news.notify_one();
    }

    /// Waits until something was said since this was last waited for.
    pub(crate) async fn wait(&self) {
        self.news.notified().await;
    }

    /// All of them; none waits any more.
    pub(crate) fn take(&self) -> BTreeMap<PublicKey, Word> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Word>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    #[test]
    fn of_each_client_the_last_word_is_heard_however_many_came_before() {
        let words = Words::default();
        assert!(words.wait().now_or_never().is_none(), "nothing was said");
        for since in 0..10_000 {
            words.note(key(1), Some(since));
            words.note(key(2), Some(since));
        }
        words.note(key(1), None);
        assert!(words.wait().now_or_never().is_some());
        let word = |session| Word { session: Some(session), moves: false };
        let expected =
            [(key(1), word(SessionWord::Ended)), (key(2), word(SessionWord::Began(9999)))];
        assert_eq!(words.take(), BTreeMap::from(expected));
        assert!(words.take().is_empty());
    }

    #[test]
    fn that_a_client_moves_counts_for_the_session_in_which_it_said_so() {
        let words = Words::default();
        words.note_moving(key(1));
        assert_eq!(words.take()[&key(1)], Word { session: None, moves: true });
        words.note(key(1), Some(5));
        words.note_moving(key(1));
        let began = Some(SessionWord::Began(5));
        assert_eq!(words.take()[&key(1)], Word { session: began, moves: true });
        words.note_moving(key(1));
        words.note(key(1), None);
        let ended = Some(SessionWord::Ended);
        assert_eq!(words.take()[&key(1)], Word { session: ended, moves: false });
    }
}
