//! When what is known is written into the proxy's file: rarely, so that no disk is worn out by clients that come and go.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use crate::last_known::{Content, KeptFile};

/// From one writing to the next.
const PAUSE: Duration = Duration::from_secs(60);

/// From a change to its writing: changes come together, as in an import.
const SETTLED: Duration = Duration::from_secs(5);

/// Without a change it is written so often, so that its age says for how long etcd did not answer, to a few hours.
const REFRESH: Duration = Duration::from_secs(6 * 60 * 60);

/// The file, and how far what is in it is behind.
#[derive(Debug)]
pub(crate) struct Keeping {
    file: Arc<dyn KeptFile>,
    /// Since when something is known that does not stand in it.
    changed: Option<Instant>,
    /// When it was last begun to be written.
    written: Option<Instant>,
    under_way: Option<oneshot::Receiver<io::Result<()>>>,
    /// The last one failed.
    failed: bool,
}

impl Keeping {
    /// Of a proxy that begins.
    pub(crate) fn new(now: Instant, file: Arc<dyn KeptFile>) -> Self {
        Self { file, changed: Some(now), written: None, under_way: None, failed: false }
    }

    /// The file.
    pub(crate) fn file(&self) -> Arc<dyn KeptFile> {
        Arc::clone(&self.file)
    }

    /// Something changed that is to stand in it.
    pub(crate) fn note_change(&mut self, now: Instant) {
        self.changed.get_or_insert(now);
    }

    /// Whether it is time to write.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let since = |at: Instant, time: Duration| now >= at + time;
        let rested = self.written.is_none_or(|at| since(at, PAUSE));
        let settled = self.changed.is_some_and(|at| since(at, SETTLED));
        let refreshed = self.written.is_some_and(|at| since(at, REFRESH));
        self.under_way.is_none() && rested && (settled || refreshed)
    }

    /// Whether a proxy that ends writes it once more.
    pub(crate) fn is_worth_it(&self, now: Instant) -> bool {
        self.changed.is_some() || self.written.is_none_or(|at| now >= at + PAUSE)
    }

    /// Has it written. Returns at once.
    pub(crate) fn write(&mut self, now: Instant, content: Content) {
        (self.changed, self.written) = (None, Some(now));
        self.under_way = Some(self.file.replace(content));
    }

    /// Looks what became of the last writing.
    pub(crate) fn settle(&mut self, now: Instant) {
        let Some(under_way) = &mut self.under_way else { return };
        let written = match under_way.try_recv() {
            Ok(written) => written,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Closed) => Err(io::Error::other("the thread that writes has failed")),
        };
        self.under_way = None;
        match written {
            Ok(()) if std::mem::take(&mut self.failed) => {
                tracing::info!("the copy of the fleet's registry is on this proxy's disk again");
            }
            Ok(()) => {}
            Err(error) => {
                self.note_change(now);
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(
                        "cannot keep a copy of the fleet's registry on this proxy's disk: {error}. It serves on; started \
                         while etcd is away it would know older clients, or none"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A disk that answers when the test says so.
    #[derive(Debug, Default)]
    struct Slow(Mutex<Option<oneshot::Sender<io::Result<()>>>>);

    impl KeptFile for Slow {
        fn read(&self) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn replace(&self, _: Content) -> oneshot::Receiver<io::Result<()>> {
            let (written, told) = oneshot::channel();
            *self.0.lock().unwrap() = Some(written);
            told
        }
    }

    impl Slow {
        fn answer(&self, written: io::Result<()>) {
            self.0.lock().unwrap().take().unwrap().send(written).unwrap();
        }
    }

    fn nothing() -> Content {
        Box::new(|_| Ok(()))
    }

    #[test]
    fn a_change_is_written_after_five_seconds_and_the_next_not_within_a_minute() {
        let (begin, disk) = (Instant::now(), Arc::new(Slow::default()));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut keeping = Keeping::new(begin, Arc::clone(&disk) as Arc<dyn KeptFile>);
        assert!(!keeping.is_due(at(4)) && keeping.is_due(at(5)));
        keeping.write(at(5), nothing());
        keeping.note_change(at(6));
        assert!(!keeping.is_due(at(70)), "one at a time");
        disk.answer(Ok(()));
        keeping.settle(at(7));
        assert!(!keeping.is_due(at(64)) && keeping.is_due(at(65)));
        keeping.write(at(65), nothing());
        disk.answer(Ok(()));
        keeping.settle(at(65));
        let refresh = 65 + REFRESH.as_secs();
        assert!(!keeping.is_due(at(refresh - 1)), "nothing has changed");
        assert!(keeping.is_due(at(refresh)), "so that its age says what it should");
    }

    #[test]
    fn what_could_not_be_written_is_tried_again_after_a_minute() {
        let (begin, disk) = (Instant::now(), Arc::new(Slow::default()));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut keeping = Keeping::new(begin, Arc::clone(&disk) as Arc<dyn KeptFile>);
        keeping.write(at(5), nothing());
        keeping.settle(at(6));
        assert!(!keeping.is_due(at(100)), "it is under way still");
        disk.answer(Err(io::ErrorKind::StorageFull.into()));
        keeping.settle(at(9));
        assert!(!keeping.is_due(at(64)) && keeping.is_due(at(65)));
        keeping.write(at(65), nothing());
        drop(disk.0.lock().unwrap().take());
        keeping.settle(at(66));
        assert!(keeping.is_due(at(125)), "the thread has failed");
    }

    #[test]
    fn a_proxy_that_ends_writes_what_is_new_and_what_is_more_than_a_minute_old() {
        let (begin, disk) = (Instant::now(), Arc::new(Slow::default()));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut keeping = Keeping::new(begin, Arc::clone(&disk) as Arc<dyn KeptFile>);
        assert!(keeping.is_worth_it(at(1)));
        keeping.write(at(5), nothing());
        assert!(!keeping.is_worth_it(at(64)) && keeping.is_worth_it(at(65)));
        keeping.note_change(at(6));
        assert!(keeping.is_worth_it(at(7)));
    }
}
