//! Keeps the copy in memory true: one list, then a watch from its revision on.
//!
//! | what happens | what is done |
//! | --- | --- |
//! | the watch breaks, or etcd goes away | another member is asked, from the revision that was reached |
//! | that revision was compacted away | list again: what differs is told, and nothing else |
//! | etcd has a lower revision than we, or is another cluster | it was restored from a snapshot: list again |

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use etcd_client::WatchOptions;
use tokio::sync::mpsc;

use crate::cache::{Cache, Change};
use crate::differences::Differences;
use crate::last_known::LastKnown;
use crate::store::{Store, StoreError};

/// Pauses between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// A watch that says nothing for so long is asked whether it goes on.
const SILENCE: Duration = Duration::from_secs(5);

/// Changes that are told at once, so that no turn of a packet loop takes long.
const BATCH: usize = 256;

/// A list is divided into at most this many parts, of 4,000 clients with a million. Of each a proxy orders every worker two things, and a
/// worker that is busy for as long as the list takes has room for a thousand orders.
const PARTS: usize = 256;

/// How it is with etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// What was said last.
    pub why: String,
}

/// The copy, and how it is with etcd.
#[derive(Debug, Default)]
pub struct Mirrored {
    /// The copy.
    pub cache: Cache,
    /// etcd does not answer.
    pub away: Option<Away>,
    /// It has answered once.
    pub begun: bool,
    /// How often the whole was listed.
    pub lists: u64,
    /// How often etcd was another one than before, or restored from a snapshot: revisions of before say nothing then.
    pub restored: u64,
    /// It was never listed, and the copy is what was known at this time, in seconds since 1970, before the proxy's start.
    pub recalled: Option<u64>,
}

impl Mirrored {
    /// Until etcd was read the copy is what was known before the proxy's start. Returns whether etcd was not read yet.
    pub fn recall(&mut self, known: LastKnown) -> bool {
        let is_wanted = self.lists == 0;
        if is_wanted {
            self.recalled = Some(known.as_of);
            self.cache.recall(known);
        }
        is_wanted
    }
}

/// The copy, shared by those who read and write it.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    copy: Arc<Mutex<Mirrored>>,
    /// Held by who looks at all clients, a part after the other: meanwhile the copy changes, and no other one takes its place.
    whole: Arc<tokio::sync::Mutex<()>>,
}

impl Mirror {
    /// The copy. It is held for no longer than a look takes.
    pub fn lock(&self) -> MutexGuard<'_, Mirrored> {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of all clients that there are, each as one that comes, a part after the other. The copy is held for a part at a time, so that
    /// nobody waits for all; what changes meanwhile is to be told besides.
    ///
    /// # Errors
    /// What `tell` says: then the others are not told.
    pub async fn tell_all<E>(
        &self,
        mut tell: impl AsyncFnMut(Vec<Change>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _whole = self.whole.lock().await;
        let most = part_size(self.lock().cache.clients.len());
        let mut from = Some(0);
        while let Some(place) = from {
            let (part, next) = self.lock().cache.came(place, most);
            if !part.is_empty() {
                tell(part).await?;
            }
            from = next;
        }
        Ok(())
    }

    /// What etcd has told, for the proxy's next start: as of now, or of the time since when it does not answer. `None`: it has
    /// told nothing.
    pub async fn last_known(&self) -> Option<LastKnown> {
        let mut known = {
            let mirrored = self.lock();
            if mirrored.lists == 0 {
                return None;
            }
            let as_of = mirrored.away.as_ref().map_or_else(now, |away| away.since);
            let drains = mirrored.cache.drains.keys().cloned().collect();
            LastKnown { as_of, drains, clients: Vec::with_capacity(mirrored.cache.clients.len()) }
        };
        let told = self.tell_all(async |part| {
            let clients = part.into_iter().filter_map(|change| match change {
                Change::Came(key, client) => Some((key, client)),
                Change::Gone(_) | Change::Session(_) | Change::Proxies => None,
            });
            known.clients.extend(clients);
            Ok::<(), Infallible>(())
        });
        let Ok(()) = told.await;
        Some(known)
    }

    /// Gives the memory back of what is gone, unless somebody looks at all clients: then that is done after a later change.
    fn compact(&self) {
        if let Ok(_whole) = self.whole.try_lock() {
            self.lock().cache.compact();
        }
    }

    /// Another copy, which was read afresh, takes the place of this one. Returns what differs.
    async fn take_over(&self, fresh: Cache) -> Differences {
        let _whole = self.whole.lock().await;
        let mut mirrored = self.lock();
        let (cluster, revision) = (mirrored.cache.cluster, mirrored.cache.revision);
        let is_other = fresh.cluster != cluster || fresh.revision < revision;
        mirrored.restored += u64::from(mirrored.lists > 0 && is_other);
        mirrored.lists += 1;
        mirrored.recalled = None;
        mirrored.cache.replace(fresh)
    }

    /// Keeps it true for good; tells what changes there.
    pub async fn keep(self, store: Store, changes: mpsc::Sender<Vec<Change>>) {
        let mut pause = PAUSES.0;
        loop {
            match self.follow(&store, &changes).await {
                // The revision was compacted away.
                Ok(()) => pause = PAUSES.0,
                Err(Ended::Unheard) => return,
                Err(Ended::Failed(error)) => {
                    if self.note_away(&error) {
                        pause = PAUSES.0;
                        tracing::warn!("{error}");
                    }
                    let is_said = matches!(
                        error,
                        StoreError::Forbidden(_)
                            | StoreError::Refused(_)
                            | StoreError::TooOld { .. }
                    );
                    if !is_said {
                        store.turn_away().await;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Lists where that is needed, and watches. Returns when the whole is to be listed again.
    async fn follow(
        &self,
        store: &Store,
        changes: &mpsc::Sender<Vec<Change>>,
    ) -> Result<(), Ended> {
        if self.needs_list(store).await? {
            store.check_version().await?;
            let fresh = Cache::read(store, self).await?;
            let mut differences = self.take_over(fresh).await;
            loop {
                let Some(part) = differences.part(&self.lock().cache) else { break };
                send(changes, part).await?;
            }
        }
        self.note_back();
        self.watch(store, changes).await
    }

    /// Whether what is known is no base for a watch.
    async fn needs_list(&self, store: &Store) -> Result<bool, StoreError> {
        let known = {
            let mirrored = self.lock();
            mirrored.begun.then_some((mirrored.cache.revision, mirrored.cache.cluster))
        };
        let Some((revision, cluster)) = known else { return Ok(true) };
        let head = store.head().await?;
        Ok(head.cluster != cluster || head.revision < revision)
    }

    async fn watch(&self, store: &Store, changes: &mpsc::Sender<Vec<Change>>) -> Result<(), Ended> {
        let from = self.lock().cache.revision + 1;
        let options = WatchOptions::new().with_prefix().with_start_revision(from).with_fragment();
        let mut client = store.client().await?;
        let prefix = store.layout().prefix();
        let told = |error| Ended::Failed(store.told(&error));
        let begun = tokio::time::timeout(SILENCE, client.watch(prefix, Some(options))).await;
        let mut watch = match begun {
            Ok(watch) => watch.map_err(told)?,
            Err(_) => return Err(store.away("no watch within 5 s").into()),
        };
        let mut asked = false;
        loop {
            let answer = match tokio::time::timeout(SILENCE, watch.message()).await {
                Ok(answer) => answer.map_err(told)?,
                Err(_) if !asked => {
                    asked = true;
                    watch.request_progress().await.map_err(told)?;
                    continue;
                }
                Err(_) => return Err(store.away("the watch says nothing").into()),
            };
            asked = false;
            let Some(answer) = answer else {
                return Err(store.away("the watch has ended").into());
            };
            if answer.compact_revision() > 0 {
                tracing::info!(
                    "etcd was compacted beyond what was seen: the registry is listed again"
                );
                self.lock().begun = false;
                return Ok(());
            }
            if answer.canceled() {
                return Err(store.away(answer.cancel_reason()).into());
            }
            let seen = {
                let mut mirrored = self.lock();
                let kvs = answer.events().iter().filter_map(|event| event.kv());
                // Each event once: a part of a revision may come again after a break.
                kvs.filter_map(|kv| match kv.version() {
                    0 => mirrored.cache.delete(store.layout(), kv),
                    _ => mirrored.cache.put(store.layout(), kv),
                })
                .collect()
            };
            self.compact();
            tell(changes, seen).await?;
        }
    }

    /// Returns whether that is news.
    fn note_away(&self, error: &StoreError) -> bool {
        let mut mirrored = self.lock();
        let is_news = mirrored.away.is_none();
        let since = mirrored.away.as_ref().map_or_else(now, |away| away.since);
        mirrored.away = Some(Away { since, why: error.to_string() });
        is_news
    }

    fn note_back(&self) {
        let mut mirrored = self.lock();
        mirrored.begun = true;
        if mirrored.away.take().is_some() {
            tracing::info!("the fleet's registry answers again");
        }
    }
}

/// Why it is followed no more.
enum Ended {
    /// Nobody wants to know.
    Unheard,
    Failed(StoreError),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

async fn tell(to: &mpsc::Sender<Vec<Change>>, changes: Vec<Change>) -> Result<(), Ended> {
    for part in parts(changes) {
        send(to, part).await?;
    }
    Ok(())
}

async fn send(to: &mpsc::Sender<Vec<Change>>, part: Vec<Change>) -> Result<(), Ended> {
    if part.is_empty() {
        return Ok(());
    }
    to.send(part).await.map_err(|_| Ended::Unheard)
}

/// How many of so many changes are told at once.
pub(crate) fn part_size(changes: usize) -> usize {
    BATCH.max(changes.div_ceil(PARTS))
}

/// Changes in parts that can be told at once.
fn parts(changes: Vec<Change>) -> impl Iterator<Item = Vec<Change>> {
    let most = part_size(changes.len());
    let mut changes = changes.into_iter();
    std::iter::from_fn(move || {
        let part: Vec<_> = changes.by_ref().take(most).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// The present, in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use futures_util::FutureExt as _;
    use ropewalk_settings::PublicKey;

    use super::*;
    use crate::cache::Client;

    fn key(number: u16) -> PublicKey {
        let mut key = [1; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        PublicKey::from_bytes(key)
    }

    fn cache_of(numbers: Range<u16>) -> Cache {
        let mut cache = Cache::default();
        for number in numbers {
            let [high, low] = number.to_be_bytes();
            let address_v4 = [10, 77, high, low].into();
            let name = number.to_string().into();
            let client = Client { name, address_v4, address_v6: None, disabled: false };
            cache.note_bound(key(number), client, None);
        }
        cache
    }

    #[test]
    fn who_is_told_of_all_clients_in_parts_hears_of_each_though_another_list_has_come() {
        let mirror = Mirror::default();
        assert!(mirror.take_over(cache_of(0..600)).now_or_never().is_some());
        let (mut met, mut parts) = (BTreeSet::new(), 0);
        let told = mirror.tell_all(async |part: Vec<Change>| {
            // In that one each stands at another place.
            assert!(mirror.take_over(cache_of(1..600)).now_or_never().is_none());
            parts += 1;
            for change in part {
                let Change::Came(key, _) = change else { panic!("{change:?}") };
                met.insert(key);
            }
            Ok::<(), ()>(())
        });
        assert_eq!(told.now_or_never(), Some(Ok(())));
        assert_eq!((met.len(), parts), (600, 3));
        assert!(mirror.take_over(cache_of(1..600)).now_or_never().is_some());
        let known = mirror.last_known().now_or_never().unwrap().unwrap();
        assert_eq!((known.clients.len(), mirror.lock().lists), (599, 2));
    }

    #[test]
    fn memory_of_clients_that_are_gone_is_given_back_when_nobody_looks_at_all() {
        let mirror = Mirror::default();
        assert!(mirror.take_over(cache_of(0..4000)).now_or_never().is_some());
        let stay: BTreeSet<_> = (99..4000).step_by(100).map(key).collect();
        let mut met = BTreeSet::new();
        let told = mirror.tell_all(async |part: Vec<Change>| {
            // The others go while all are told of.
            for number in 0..4000 {
                if !stay.contains(&key(number)) {
                    mirror.lock().cache.clients.remove(&key(number));
                }
            }
            mirror.compact();
            for change in part {
                let Change::Came(key, _) = change else { panic!("{change:?}") };
                met.insert(key);
            }
            Ok::<(), ()>(())
        });
        assert_eq!(told.now_or_never(), Some(Ok(())));
        assert!(met.is_superset(&stay), "whoever stays is met");
        assert!(mirror.lock().cache.clients.capacity() >= 4000);
        mirror.compact();
        let mirrored = mirror.lock();
        assert!(mirrored.cache.clients.capacity() < 500);
        assert!(mirrored.cache.clients.keys().all(|key| stay.contains(key)));
        assert_eq!(mirrored.cache.clients.len(), stay.len());
    }

    #[test]
    fn changes_come_in_small_parts_and_a_long_list_in_few() {
        for (changes, most, parts_of_it) in
            [(0, 0, 0), (1, 1, 1), (600, 256, 3), (256_000, 1000, 256)]
        {
            let told: Vec<_> =
                parts(vec![Change::Proxies; changes]).map(|part| part.len()).collect();
            assert_eq!(told.iter().sum::<usize>(), changes);
            assert_eq!(told.len(), parts_of_it, "{changes}");
            assert!(told.iter().all(|part| *part <= most), "{told:?}");
        }
    }
}
