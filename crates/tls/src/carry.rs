//! A stream that carries datagrams, read and written.

use std::io;
use std::sync::{Mutex, PoisonError};

use ropewalk_link_io::clock::Clock;
use ropewalk_proto::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::frame::{NotOurs, Reader};
use crate::queue::Queue;

/// Bytes that are handed to TLS at a time: one record. Smaller ones cost more (22 bytes and a call each); larger ones
/// wait longer for their last byte before the first can be read, 33 ms at 2 Mbit/s.
const RECORD: usize = 8 * 1024;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// The other end closed it.
    #[error("the other end closed the connection")]
    Closed,
    /// Something else than datagrams came.
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    /// TCP or TLS failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Datagrams on their way into a stream.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    queue: Mutex<Queue>,
    news: Notify,
}

impl Outgoing {
    /// Takes a datagram. Returns whether it is one that the stream can carry.
    pub(crate) fn put(&self, now: Instant, datagram: &[u8]) -> bool {
        let taken = self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(now, datagram);
        self.news.notify_one();
        taken
    }

    fn take(&self, now: Instant, record: &mut Vec<u8>) -> bool {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).fill(now, record, RECORD)
    }

    /// Waits until something may leave, and writes it there.
    async fn fill(&self, clock: &Clock, record: &mut Vec<u8>) {
        loop {
            if self.take(clock.now(), record) {
                return;
            }
            self.news.notified().await;
        }
    }
}

/// Sends what comes into the queue until the stream fails, and says why. Each record is in the kernel's hands before
/// the next is made, so that no more than one waits in TLS.
pub(crate) async fn send<W: AsyncWrite + Unpin>(
    mut stream: W,
    outgoing: &Outgoing,
    clock: &Clock,
) -> End {
    let mut record = Vec::with_capacity(RECORD);
    loop {
        record.clear();
        outgoing.fill(clock, &mut record).await;
        if let Err(error) = stream.write_all(&record).await {
            return error.into();
        }
        if let Err(error) = stream.flush().await {
            return error.into();
        }
    }
}

/// The next datagram of a stream.
pub(crate) async fn receive<'a, R: AsyncRead + Unpin>(
    stream: &mut R,
    reader: &'a mut Reader,
) -> Result<&'a [u8], End> {
    while !reader.has_datagram()? {
        match stream.read(reader.space()).await? {
            0 => return Err(End::Closed),
            read => reader.filled(read),
        }
    }
    Ok(reader.take())
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::time::Duration;
    use tokio::io::duplex;
    use tokio::runtime::Builder;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn datagrams_come_out_of_a_narrow_stream_as_they_went_in() {
        run(async {
            let clock = Clock::start();
            let outgoing = Outgoing::default();
            // Less than one datagram fits at a time.
            let (near, mut far) = duplex(700);
            let receiving = async {
                let mut reader = Reader::new();
                for number in 0..20_u8 {
                    let datagram = receive(&mut far, &mut reader).await.unwrap();
                    assert_eq!(datagram, vec![number; 1000]);
                }
            };
            for number in 0..20_u8 {
                assert!(outgoing.put(clock.now(), &[number; 1000]));
            }
            tokio::select! {
                end = send(near, &outgoing, &clock) => panic!("{end}"),
                () = receiving => {}
            }
        });
    }

    #[test]
    fn the_end_of_a_stream_is_told_with_its_reason() {
        run(async {
            let mut reader = Reader::new();
            let error = receive(&mut &b"HTTP/1.1 400 Bad Request"[..], &mut reader).await;
            let told = error.unwrap_err().to_string();
            assert!(told.starts_with("what listens there is no Ropewalk proxy"), "{told}");
            let mut reader = Reader::new();
            let error = receive(&mut &b"\0\x09short"[..], &mut reader).await;
            assert!(matches!(error, Err(End::Closed)), "{error:?}");
            let (near, far) = duplex(100);
            drop(far);
            let (clock, outgoing) = (Clock::start(), Outgoing::default());
            outgoing.put(clock.now(), b"lost");
            let sending = send(near, &outgoing, &clock);
            let end = tokio::time::timeout(Duration::from_secs(10), sending).await.unwrap();
            assert!(matches!(end, End::Io(_)), "{end}");
        });
    }
}
