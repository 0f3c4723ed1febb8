//! Tells when a control group begins or ends: the kernel reports folders that are made and removed (`inotify(7)`).
//!
//! A thread of its own waits for that, and looks at the names alone: on a busy machine most are nobody's here, and the daemon's
//! tasks are not woken for them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

/// Bytes of events that are read at once: some dozens.
const BUFFER: usize = 4096;

/// Looks at folders until it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Arc<OwnedFd>,
    news: Arc<Notify>,
    /// Closed with this value, by which the thread ends.
    _alive: UnixStream,
}

impl Watch {
    /// Begins. `is_meant` says which names are news.
    ///
    /// # Errors
    /// When the kernel has no more room for it, or no thread can be had.
    pub(crate) fn start(is_meant: impl Fn(&str) -> bool + Send + 'static) -> io::Result<Self> {
        let inotify = Arc::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?);
        let news = Arc::<Notify>::default();
        let (alive, end) = UnixStream::pair()?;
        let (events, told) = (Arc::clone(&inotify), Arc::clone(&news));
        std::thread::Builder::new()
            .name("cgroups".to_owned())
            .spawn(move || listen(&events, &end, &told, is_meant))?;
        Ok(Self { inotify, news, _alive: alive })
    }

    /// Looks at this folder too. One that is looked at already stays so; one that goes is forgotten.
    pub(crate) fn look_at(&self, folder: &Path) {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        // It may have gone; and where there is no room for more, those that are looked at still tell.
        if let Err(error) = inotify::add_watch(&*self.inotify, folder, flags) {
            tracing::debug!(folder = %folder.display(), %error, "cannot look at a control group");
        }
    }

    /// Waits until a name came or went that is meant.
    pub(crate) async fn changed(&self) {
        self.news.notified().await;
    }
}

/// Runs until the other end is closed.
fn listen(events: &OwnedFd, end: &UnixStream, news: &Notify, is_meant: impl Fn(&str) -> bool) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    loop {
        let mut both = [PollFd::new(events, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !both[1].revents().is_empty() {
            return;
        }
        let mut reader = inotify::Reader::new(events, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    let name = event.file_name().and_then(|name| name.to_str().ok());
                    if lost || name.is_some_and(&is_meant) {
                        news.notify_one();
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_folder_that_is_meant_is_told_when_it_comes_and_when_it_goes_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::start(|name| name == "meant").unwrap();
        watch.look_at(folder.path());
        watch.look_at(&folder.path().join("missing"));
        let meant = folder.path().join("meant");
        std::fs::create_dir(folder.path().join("other")).unwrap();
        let told = tokio::time::timeout(Duration::from_millis(100), watch.changed()).await;
        assert!(told.is_err(), "another name was told");
        std::fs::create_dir(&meant).unwrap();
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap();
        std::fs::remove_dir(&meant).unwrap();
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn the_thread_ends_with_its_value() {
        let watch = Watch::start(|_| true).unwrap();
        let events = Arc::downgrade(&watch.inotify);
        drop(watch);
        let ended = async {
            while events.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap();
    }
}
