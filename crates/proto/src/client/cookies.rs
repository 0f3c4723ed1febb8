//! The cookies that a client has, one for each path: a proxy that has too many first messages gives them, and decrypts only
//! those with one (PROTOCOL §6.3).

use crate::crypto::cookie::{COOKIE_LIFETIME, Cookie};
use crate::crypto::limit::TokenBucket;
use crate::path::Path;
use crate::time::Instant;

/// Cookies obeyed a second and path, and at once. An observer can forge one, so that there is room for the true one beside
/// his, but no more is sent for them than this.
const OBEYED: (u32, u32) = (4, 4);

/// All of them. A cookie outlives the search in which it came: the next one may come soon.
#[derive(Debug, Default)]
pub(super) struct CookieJar(Vec<Held>);

#[derive(Debug)]
struct Held {
    path: Path,
    cookie: Cookie,
    since: Instant,
    obeyed: TokenBucket,
}

impl CookieJar {
    /// Takes the newest cookie of a path. `false`: too many came.
    pub(super) fn take(&mut self, now: Instant, path: Path, cookie: Cookie) -> bool {
        let known = self.0.iter_mut().find(|held| held.path == path);
        if let Some(held) = known {
            let obeyed = held.obeyed.take(now);
            if obeyed {
                (held.cookie, held.since) = (cookie, now);
            }
            return obeyed;
        }
        let mut obeyed = TokenBucket::new(now, OBEYED.0, OBEYED.1);
        obeyed.take(now);
        self.0.push(Held { path, cookie, since: now, obeyed });
        true
    }

    /// Forgets those of paths that are gone.
    pub(super) fn retain(&mut self, there: impl Fn(&Path) -> bool) {
        self.0.retain(|held| there(&held.path));
    }

    /// The cookie for what goes by this path, if it still counts.
    pub(super) fn get(&self, now: Instant, path: &Path) -> Option<&Cookie> {
        let held = self.0.iter().find(|held| held.path == *path)?;
        (now.since(held.since) < COOKIE_LIFETIME).then_some(&held.cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SocketId;

    fn path(socket: u16) -> Path {
        Path { socket: SocketId(socket), local: None, remote: ([192, 0, 2, 1], 9).into() }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn each_path_has_its_own_newest_cookie_for_two_minutes() {
        let mut jar = CookieJar::default();
        let [one, two, three] = [1, 2, 3].map(|byte| Cookie::from_bytes([byte; 16]));
        assert!(jar.take(at(0), path(1), one));
        assert!(jar.take(at(0), path(2), two));
        assert!(jar.take(at(10), path(1), three));
        for (ms, socket, expected) in [
            (10, 1, Some(&three)),
            (119_999, 2, Some(&two)),
            (120_000, 2, None),
            (120_000, 1, Some(&three)),
            (120_010, 1, None),
            (10, 3, None),
        ] {
            assert_eq!(jar.get(at(ms), &path(socket)), expected, "path {socket} at {ms} ms");
        }
        jar.retain(|held| *held != path(1));
        assert_eq!((jar.get(at(10), &path(1)), jar.0.len()), (None, 1));
    }

    #[test]
    fn a_stream_of_forged_cookies_is_obeyed_four_times_a_second() {
        let mut jar = CookieJar::default();
        let cookie = Cookie::from_bytes([1; 16]);
        let obeyed = (0..10_000).filter(|ms| jar.take(at(*ms), path(1), cookie)).count();
        assert!((40..=44).contains(&obeyed), "{obeyed}");
    }
}
