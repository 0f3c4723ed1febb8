//! Files that survive a crash, written on a thread of their own: a packet loop never waits for a disk.
//!
//! On a machine that writes much, one file takes seconds until it is on disk ([`file::replace`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;

use crate::file;

/// The thread: it replaces files one after the other, in the order in which it is told to. Dropped, it first finishes all that
/// it was told.
///
/// Who tells it bounds what waits: one write of each file at a time.
#[derive(Debug)]
pub struct Writer {
    /// `None` at the end.
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

struct Order {
    file: PathBuf,
    content: Content,
    written: oneshot::Sender<io::Result<()>>,
}

/// How the content of a file is made.
enum Content {
    /// As a whole.
    Whole(Box<dyn FnOnce() -> io::Result<Vec<u8>> + Send>),
    /// Piece by piece.
    Pieces(Box<WritePieces>),
}

type WritePieces = dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send;

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none.
    pub fn start() -> io::Result<Self> {
        Self::writing(file::replace)
    }

    /// The same with another way to replace a file.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn writing(
        mut replace: impl FnMut(&Path, &[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel::<Order>();
        let thread = Builder::new().name("writer".to_owned()).spawn(move || {
            for Order { file, content, written } in queue {
                let result = match content {
                    Content::Whole(content) => {
                        content().and_then(|content| replace(&file, &content))
                    }
                    Content::Pieces(content) => file::replace_with(&file, content),
                };
                // Who is gone does not ask.
                drop(written.send(result));
            }
        })?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Has `file` replaced by what `content` makes on that thread. Returns at once where it is told when the file is on disk, or
    /// why it is not: then the old one is there. Nothing is told if the thread is gone.
    pub fn replace(
        &self,
        file: &Path,
        content: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    ) -> oneshot::Receiver<io::Result<()>> {
        self.order(file, Content::Whole(Box::new(content)))
    }

    /// The same for a long file, whose content is never in memory as a whole.
    pub fn replace_with(
        &self,
        file: &Path,
        content: impl FnOnce(&mut dyn io::Write) -> io::Result<()> + Send + 'static,
    ) -> oneshot::Receiver<io::Result<()>> {
        self.order(file, Content::Pieces(Box::new(content)))
    }

    fn order(&self, file: &Path, content: Content) -> oneshot::Receiver<io::Result<()>> {
        let (written, told) = oneshot::channel();
        let order = Order { file: file.to_owned(), content, written };
        // One that is gone drops the order, and with it the place where it would tell.
        drop(self.orders.as_ref().map(|orders| orders.send(order)));
        told
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A panic there was printed.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn whoever_has_a_file_replaced_does_not_wait_for_the_disk() {
        let (finish, held) = mpsc::channel::<()>();
        let writer = Writer::writing(move |file, content| {
            held.recv_timeout(Duration::from_secs(60)).map_err(io::Error::other)?;
            file::replace(file, content)
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("peers.json");
        let begun = Instant::now();
        let told: Vec<_> = (0..3_u8).map(|n| writer.replace(&file, move || Ok(vec![n]))).collect();
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert!(!file.exists());
        for (n, mut told) in (0..).zip(told) {
            assert!(told.try_recv().is_err(), "write {n} is under way");
            finish.send(()).unwrap();
            told.blocking_recv().unwrap().unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), [n], "in the order in which it was told");
        }
    }

    #[test]
    fn what_was_told_is_on_disk_when_the_writer_is_dropped() {
        let writer = Writer::writing(|file, content| {
            std::thread::sleep(Duration::from_millis(200));
            file::replace(file, content)
        })
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        for file in &files {
            drop(writer.replace(file, || Ok(b"whole".to_vec())));
        }
        drop(writer);
        files.iter().for_each(|file| assert_eq!(std::fs::read(file).unwrap(), b"whole"));
    }

    #[test]
    fn what_cannot_be_made_or_written_is_told_and_the_next_is_written() {
        let writer = Writer::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let unmade = writer.replace(&file, || Err(io::ErrorKind::InvalidData.into()));
        assert_eq!(unmade.blocking_recv().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let unmade = writer.replace_with(&file, |_| Err(io::ErrorKind::InvalidData.into()));
        assert_eq!(unmade.blocking_recv().unwrap().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(!file.exists());
        let written = writer.replace_with(&file, |out| {
            out.write_all(b"one")?;
            out.write_all(b"!")
        });
        written.blocking_recv().unwrap().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"one!");
        writer.replace(&file, || Ok(b"one".to_vec())).blocking_recv().unwrap().unwrap();
        let below = writer.replace(&file.join("below"), || Ok(Vec::new()));
        assert!(below.blocking_recv().unwrap().is_err(), "its folder is a file");
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
    }
}
