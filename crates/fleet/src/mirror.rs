//! Keeps the copy in memory true: one list, then a watch from its revision on.
//!
//! | what happens | what is done |
//! | --- | --- |
//! | the watch breaks, or etcd goes away | another member is asked, from the revision that was reached |
//! | that revision was compacted away | list again: what differs is told, and nothing else |
//! | etcd has a lower revision than we, or is another cluster | it was restored from a snapshot: list again |

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use etcd_client::WatchOptions;
use tokio::sync::mpsc;

use crate::cache::{Cache, Change};
use crate::store::{Store, StoreError};

/// Pauses between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// A watch that says nothing for so long is asked whether it goes on.
const SILENCE: Duration = Duration::from_secs(5);

/// Changes that are told at once, so that no turn of a packet loop takes long.
pub const BATCH: usize = 256;

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
}

/// The copy, shared by those who read and write it.
#[derive(Clone, Debug, Default)]
pub struct Mirror(Arc<Mutex<Mirrored>>);

impl Mirror {
    /// The copy. It is held for no longer than a look takes.
    pub fn lock(&self) -> MutexGuard<'_, Mirrored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
                    if !matches!(error, StoreError::Forbidden(_) | StoreError::Refused(_)) {
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
            let listed = store.list(store.layout().prefix()).await?;
            let differs = {
                let mut mirrored = self.lock();
                mirrored.lists += 1;
                mirrored.cache.replace(store.layout(), &listed)
            };
            tell(changes, differs).await?;
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
        let (now, of) = store.head().await?;
        Ok(of != cluster || now < revision)
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

async fn tell(to: &mpsc::Sender<Vec<Change>>, mut changes: Vec<Change>) -> Result<(), Ended> {
    while !changes.is_empty() {
        let rest = changes.split_off(changes.len().min(BATCH));
        to.send(changes).await.map_err(|_| Ended::Unheard)?;
        changes = rest;
    }
    Ok(())
}

/// The present, in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
