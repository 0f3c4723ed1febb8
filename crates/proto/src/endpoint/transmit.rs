//! The turn of each session to send, after the answers to first messages, and before the cookies.

use std::collections::VecDeque;

use super::Endpoint;
use super::sessions::Phase;
use crate::crypto::handshake::COOKIE_ANSWER_LEN;
use crate::ecn::Ecn;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::Instant;

/// Answers that wait for the next batch; more are not given. A batch of datagrams in makes at most as many
/// answers, and they are polled before the next one is read.
const MAX_REPLIES: usize = 256;

/// Answers to first messages, on their way to where the question came from.
#[derive(Default)]
pub(super) struct Replies {
    answers: VecDeque<(Path, Vec<u8>)>,
    cookies: VecDeque<(Path, [u8; COOKIE_ANSWER_LEN])>,
}

impl Replies {
    /// `false`: there are too many; the client asks again.
    pub(super) fn push(&mut self, path: Path, answer: Vec<u8>) -> bool {
        push(&mut self.answers, path, answer)
    }

    /// The same for a cookie.
    pub(super) fn push_cookie(&mut self, path: Path, answer: [u8; COOKIE_ANSWER_LEN]) -> bool {
        push(&mut self.cookies, path, answer)
    }
}

fn push<A>(queue: &mut VecDeque<(Path, A)>, path: Path, answer: A) -> bool {
    let fits = queue.len() < MAX_REPLIES;
    if fits {
        queue.push_back((path, answer));
    }
    fits
}

/// `false`: the batch is full.
fn send(queue: &mut VecDeque<(Path, impl AsRef<[u8]>)>, out: &mut impl TransmitSink) -> bool {
    while let Some((path, answer)) = queue.front() {
        let answer = answer.as_ref();
        let Some(place) = out.reserve(*path, Ecn::NotEct, answer.len()) else { return false };
        place.copy_from_slice(answer);
        out.commit(answer.len());
        queue.pop_front();
    }
    true
}

/// Notes whether the batch was full.
struct Watch<'a, S> {
    sink: &'a mut S,
    full: bool,
}

impl<S: TransmitSink> TransmitSink for Watch<'_, S> {
    fn reserve(&mut self, path: Path, ecn: Ecn, len: usize) -> Option<&mut [u8]> {
        let place = self.sink.reserve(path, ecn, len);
        self.full |= place.is_none();
        place
    }

    fn has_room(&mut self, paths: &[Path], len: usize) -> bool {
        let fits = self.sink.has_room(paths, len);
        self.full |= !fits;
        fits
    }

    fn commit(&mut self, len: usize) {
        self.sink.commit(len);
    }
}

impl Endpoint {
    /// Fills the batch with all that may be sent now; a session that fills it is last in the next turn.
    /// Call again after a flush until it leaves room.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        if !send(&mut self.replies.answers, out) {
            return;
        }
        while let Some((index, session)) = self.sessions.first_touched() {
            let mut watch = Watch { sink: out, full: false };
            session.tunnel.poll_transmit(now, &mut watch);
            if watch.full {
                return self.sessions.rotate();
            }
            match (session.tunnel.is_closed(), session.phase) {
                (true, Phase::Ending) => drop(self.sessions.remove(index)),
                (true, Phase::Pending | Phase::Confirmed) => self.on_end(now, index),
                (false, _) => self.sessions.settle(),
            }
        }
        // What strangers can cause comes last.
        if send(&mut self.replies.cookies, out) {
            self.admission.load().note_sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SocketId;

    #[test]
    fn answers_are_bounded() {
        let path = Path { socket: SocketId(0), local: None, remote: ([192, 0, 2, 1], 1).into() };
        let mut replies = Replies::default();
        let taken = (0..MAX_REPLIES + 9).filter(|_| replies.push(path, vec![0; 9])).count();
        assert_eq!(taken, MAX_REPLIES);
        let cookies = (0..MAX_REPLIES + 9).filter(|_| replies.push_cookie(path, [0; 40])).count();
        assert_eq!(cookies, MAX_REPLIES);
    }
}
