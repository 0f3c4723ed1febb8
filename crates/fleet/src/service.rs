//! The registry for a running proxy: a thread of its own, so that no packet waits for etcd, TLS or JSON.
//!
//! A proxy that starts while etcd does not answer serves the clients that it knew before ([`last_known`](crate::last_known)),
//! until etcd was read: what differs is done then.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ropewalk_settings::{InvitationToken, PublicKey};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior};

use crate::cache::Change;
use crate::changes::{ChangeError, Changes, Claimed, Removed};
use crate::keeping::Keeping;
use crate::last_known::{KeptFile, LastKnown, NotUsed, hours};
use crate::layout::{FleetValue, ProxyState};
use crate::mirror::{Mirror, now};
use crate::presence::{Own, Presence, RENEWAL};
use crate::store::{Access, Store};
use crate::words::{SessionWord, Words};
use crate::{FleetProxy, proxies};

/// Orders, and news, that may wait.
const QUEUE: usize = 1024;

/// Changes that are under way at a time.
const UNDER_WAY: usize = 64;

/// How long a session is kept whose client moves to another proxy: flows that began in it may end in it.
const KEPT: Duration = Duration::from_secs(10 * 60);

/// How often clients are told how busy proxies are, where nothing else changed: each client gets a datagram or two.
const LOADS: Duration = Duration::from_secs(60);

/// Pause after etcd has refused or not answered.
const PAUSE: Duration = Duration::from_secs(1);

/// etcd has so long to be read at the start, before what was known before is used: some thousand clients are read in less, and a
/// client goes on asking for a session for longer.
const START_PATIENCE: Duration = Duration::from_secs(3);

/// What begins it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the registry is.
    pub access: Access,
    /// What the fleet must have agreed on.
    pub terms: FleetValue,
    /// This proxy.
    pub own: Own,
    /// Most clients of the fleet.
    pub max_clients: usize,
    /// Where what is known is kept for the next start.
    pub kept_in: Arc<dyn KeptFile>,
}

/// What the proxy hears.
#[derive(Debug)]
pub enum News {
    /// Clients came and went, in this order.
    Changes(Vec<Change>),
    /// Another proxy has a newer session with this client than ours, which began then.
    Displaced(PublicKey, u64),
    /// The proxy is to take new sessions, or none.
    State(ProxyState),
    /// The proxies of the fleet, this one among them, are these from now on.
    Proxies(Arc<[FleetProxy]>),
    /// The clients that were known before the start are none: the fleet is another one by now.
    NotOurs,
}

enum Order {
    Claim(InvitationToken, PublicKey, oneshot::Sender<Result<Claimed, ChangeError>>),
    Invite(Invite, oneshot::Sender<Result<(Option<PublicKey>, usize), ChangeError>>),
    Remove(String, oneshot::Sender<Result<Removed, ChangeError>>),
    Enable(String, bool, oneshot::Sender<Result<(PublicKey, bool), ChangeError>>),
}

/// A wish for an invitation.
#[derive(Clone, Debug)]
pub struct Invite {
    /// For whom.
    pub name: String,
    /// He has a key already.
    pub again: bool,
    /// The token.
    pub token: InvitationToken,
    /// When it counts no more, in seconds since 1970.
    pub expires: u64,
}

/// The hold on the thread. When it is dropped the proxy leaves the fleet, and the thread ends.
#[derive(Debug)]
pub struct Service {
    orders: Option<mpsc::Sender<Order>>,
    words: Arc<Words>,
    mirror: Mirror,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread; `news` hears what happens.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(options: Options, news: mpsc::Sender<News>) -> io::Result<Self> {
        let (orders, taken) = mpsc::channel(QUEUE);
        let mirror = Mirror::default();
        let words = Arc::<Words>::default();
        let of_thread = (mirror.clone(), Arc::clone(&words));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("registry".into()).spawn(move || {
            let serving = Serving::new(options, of_thread, news);
            LocalSet::new().block_on(&runtime, serving.run(taken));
        })?;
        Ok(Self { orders: Some(orders), words, mirror, thread: Some(thread) })
    }

    /// The copy in memory.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// A client shows a token.
    pub fn claim(
        &self,
        token: InvitationToken,
        client: PublicKey,
    ) -> impl Future<Output = Result<Claimed, ChangeError>> + 'static {
        self.ask(move |reply| Order::Claim(token, client, reply))
    }

    /// A client is to be invited.
    pub fn invite(
        &self,
        invite: Invite,
    ) -> impl Future<Output = Result<(Option<PublicKey>, usize), ChangeError>> + 'static {
        self.ask(move |reply| Order::Invite(invite, reply))
    }

    /// A client is to be taken out.
    pub fn remove(
        &self,
        name: String,
    ) -> impl Future<Output = Result<Removed, ChangeError>> + 'static {
        self.ask(move |reply| Order::Remove(name, reply))
    }

    /// A client is to get no session any more, or is let in again.
    pub fn enable(
        &self,
        name: String,
        enabled: bool,
    ) -> impl Future<Output = Result<(PublicKey, bool), ChangeError>> + 'static {
        self.ask(move |reply| Order::Enable(name, enabled, reply))
    }

    /// A session began then (in microseconds since 1970), or has ended.
    pub fn note_session(&self, client: PublicKey, since_us: Option<u64>) {
        self.words.note(client, since_us);
    }

    /// This client said that it moves to another proxy: its session here is displaced ten minutes later.
    pub fn keep_session(&self, client: PublicKey) {
        self.words.note_moving(client);
    }

    fn ask<T: 'static>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, ChangeError>>) -> Order,
    ) -> impl Future<Output = Result<T, ChangeError>> + 'static {
        let (reply, answer) = oneshot::channel();
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order(reply)));
        async move {
            match sent {
                Some(Ok(())) => answer.await.unwrap_or(Err(ChangeError::Busy)),
                _ => Err(ChangeError::Busy),
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // It leaves the fleet within a second.
            drop(thread.join());
        }
    }
}

/// What the thread holds.
struct Serving {
    changes: Changes,
    presence: Presence,
    max_clients: usize,
    /// What the proxy says of sessions.
    words: Arc<Words>,
    news: mpsc::Sender<News>,
    /// The proxies that were told last, and when.
    told: (Arc<[FleetProxy]>, Instant),
    state: ProxyState,
    /// The fleet is ours: before that its clients are not.
    agreed: bool,
    /// Why it is not, as was said last.
    refused: String,
    /// The clients that were known before the start were told.
    recalled: bool,
    keeping: Keeping,
    /// The proxies that are to drain, as they are to be kept.
    drains: Vec<String>,
    /// Clients that move, and until when their sessions are kept although another proxy has a newer one.
    kept: BTreeMap<PublicKey, Instant>,
    under_way: Arc<tokio::sync::Semaphore>,
}

impl Serving {
    fn new(
        options: Options,
        (mirror, words): (Mirror, Arc<Words>),
        news: mpsc::Sender<News>,
    ) -> Self {
        let Options { access, terms, own, max_clients, kept_in } = options;
        let store = Store::new(access);
        let proxy = own.id.clone();
        let presence = Presence::new(own, store.clone(), mirror.clone());
        Self {
            changes: Changes { store, mirror, terms, proxy },
            presence,
            max_clients,
            words,
            news,
            told: (Arc::from([]), Instant::now()),
            state: ProxyState::Serving,
            agreed: false,
            refused: String::new(),
            recalled: false,
            keeping: Keeping::new(Instant::now(), kept_in),
            drains: Vec::new(),
            kept: BTreeMap::new(),
            under_way: Arc::new(tokio::sync::Semaphore::new(UNDER_WAY)),
        }
    }

    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let (seen, mut changes) = mpsc::channel(16);
        let keeper =
            spawn_local(self.changes.mirror.clone().keep(self.changes.store.clone(), seen));
        let (told, mut agreements) = mpsc::channel(1);
        let agreeing = spawn_local(agree(self.changes.clone(), told));
        let (told, mut recalled) = mpsc::channel(1);
        let recalling = spawn_local(recall(self.changes.clone(), self.keeping.file(), told));
        let mut renewal = tokio::time::interval(RENEWAL);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut not_before = Instant::now();
        let words = Arc::clone(&self.words);
        loop {
            let behind = self.agreed && self.presence.is_behind();
            tokio::select! {
                // However much there is to say, the lease is renewed when that is due, and all others are heard before the next stretch.
                biased;
                _ = renewal.tick() => {
                    self.keep().await;
                    if self.agreed && let Err(error) = self.presence.renew().await {
                        tracing::debug!("{error}");
                        not_before = Instant::now() + PAUSE;
                    }
                    if self.let_go().await.is_err() || self.tell_proxies().await.is_err() { break }
                }
                order = orders.recv() => match order {
                    Some(order) => self.take(order),
                    None => break,
                },
                () = words.wait() => self.take_words(),
                Some(seen) = changes.recv() => if self.see(seen).await.is_err() { break },
                Some(agreement) = agreements.recv() => {
                    if self.note_agreement(agreement).await.is_err() { break }
                    renewal.reset_immediately();
                }
                Some(known) = recalled.recv() => if self.recall(known).await.is_err() { break },
                () = tokio::time::sleep_until(not_before), if behind => {
                    let pause = match self.presence.say().await {
                        Ok(()) if self.presence.has_more() => Duration::ZERO,
                        // Without a lease nothing can be said before the next renewal.
                        Ok(()) if self.presence.is_behind() => PAUSE / 4,
                        Ok(()) => Duration::ZERO,
                        Err(error) => {
                            tracing::warn!("the registry does not hear of this proxy: {error}");
                            PAUSE
                        }
                    };
                    not_before = Instant::now() + pause;
                    if self.tell_displaced().await.is_err() { break }
                }
            }
        }
        for task in [keeper, agreeing, recalling] {
            task.abort();
        }
        self.presence.leave().await;
        if self.keeping.is_worth_it(Instant::now()) {
            self.write().await;
        }
    }

    /// Whether the fleet is ours; if it is, its clients are told.
    async fn note_agreement(&mut self, agreement: Result<(), ChangeError>) -> Result<(), Unheard> {
        match agreement {
            Ok(()) => {
                self.agreed = true;
                if self.recalled {
                    // They were told, and what differs is told as it is seen.
                    return Ok(());
                }
                self.tell_all().await?;
            }
            Err(error @ ChangeError::Fleet(_)) => {
                let why = error.to_string();
                if why != self.refused {
                    tracing::error!(
                        "this proxy is not one of the fleet, and lets nobody in: {why}"
                    );
                    self.refused = why;
                }
                if std::mem::take(&mut self.recalled) {
                    self.tell(News::NotOurs).await?;
                }
            }
            // The mirror tells of it.
            Err(_) => {}
        }
        Ok(())
    }

    /// etcd was not read in time: the clients that were known before are told, unless it was read meanwhile.
    async fn recall(&mut self, known: LastKnown) -> Result<(), Unheard> {
        let age = Duration::from_secs(now().saturating_sub(known.as_of));
        let clients = {
            let mut mirrored = self.changes.mirror.lock();
            if !self.refused.is_empty() || !mirrored.recall(known) {
                return Ok(());
            }
            mirrored.cache.clients.len()
        };
        tracing::warn!(
            clients,
            "the fleet's registry was not read yet: until it is, clients are served from the copy on this proxy's disk, \
             which is {} old",
            hours(&age)
        );
        self.recalled = true;
        self.tell_all().await?;
        self.see_proxies().await
    }

    /// Tells of all clients that there are, a part after the other: what changes meanwhile is told as it is seen.
    async fn tell_all(&self) -> Result<(), Unheard> {
        self.changes.mirror.tell_all(async |part| self.tell(News::Changes(part)).await).await
    }

    /// Has what is known written for the next start, if it is time.
    async fn keep(&mut self) {
        let now = Instant::now();
        self.keeping.settle(now);
        if self.keeping.is_due(now) {
            self.write().await;
        }
    }

    async fn write(&mut self) {
        if !self.agreed {
            return;
        }
        let Some(known) = self.changes.mirror.last_known().await else { return };
        let Whose { prefix, terms } = Whose::of(&self.changes);
        let content = move |out: &mut dyn io::Write| known.write(out, &prefix, &terms);
        self.keeping.write(Instant::now(), Box::new(content));
    }

    /// Hears what was said of sessions since the last time.
    fn take_words(&mut self) {
        for (client, word) in self.words.take() {
            if let Some(session) = word.session {
                self.kept.remove(&client);
                let since = match session {
                    SessionWord::Began(since) => Some(since),
                    SessionWord::Ended => None,
                };
                self.presence.note(client, since);
            }
            if word.moves {
                self.kept.insert(client, Instant::now() + KEPT);
                // If the newer session was heard of first, this one counts as displaced, though its endpoint keeps it.
                self.presence.restore(&client);
            }
        }
    }

    /// Tells of sessions that were found to be older than another proxy's, but for those that are kept.
    async fn tell_displaced(&mut self) -> Result<(), Unheard> {
        // Who moves is known before it is told.
        self.take_words();
        for (client, since) in self.presence.take_displaced() {
            match self.kept.contains_key(&client) {
                true => self.presence.restore(&client),
                false => self.tell(News::Displaced(client, since)).await?,
            }
        }
        Ok(())
    }

    fn take(&self, order: Order) {
        let Ok(place) = Arc::clone(&self.under_way).try_acquire_owned() else { return };
        let (changes, max) = (self.changes.clone(), self.max_clients);
        // Whoever asked may be gone.
        spawn_local(async move {
            let _place = place;
            match order {
                Order::Claim(token, client, reply) => {
                    drop(reply.send(changes.claim(&token, client, max).await));
                }
                Order::Invite(Invite { name, again, token, expires }, reply) => {
                    drop(reply.send(changes.invite(&name, again, (&token, expires), max).await));
                }
                Order::Remove(name, reply) => drop(reply.send(changes.remove(&name).await)),
                Order::Enable(name, enabled, reply) => {
                    drop(reply.send(changes.enable(&name, enabled).await));
                }
            }
        });
    }

    async fn see(&mut self, changes: Vec<Change>) -> Result<(), Unheard> {
        // Who moves is known before it is asked whose session is newer.
        self.take_words();
        let mut clients = Vec::new();
        for change in changes {
            match change {
                Change::Session(client) => self.see_session(client).await?,
                Change::Proxies => self.see_proxies().await?,
                change => clients.push(change),
            }
        }
        if clients.is_empty() {
            return Ok(());
        }
        self.keeping.note_change(Instant::now());
        match self.agreed || self.recalled {
            true => self.tell(News::Changes(clients)).await,
            false => Ok(()),
        }
    }

    async fn see_session(&mut self, client: PublicKey) -> Result<(), Unheard> {
        if self.kept.contains_key(&client) {
            return Ok(());
        }
        match self.presence.displaced(&client) {
            Some(since) => self.tell(News::Displaced(client, since)).await,
            None => Ok(()),
        }
    }

    async fn see_proxies(&mut self) -> Result<(), Unheard> {
        self.tell_proxies().await?;
        let drains: Vec<_> = self.changes.mirror.lock().cache.drains.keys().cloned().collect();
        if self.drains != drains {
            self.drains = drains;
            self.keeping.note_change(Instant::now());
        }
        let state = self.presence.state();
        if std::mem::replace(&mut self.state, state) != state {
            self.tell(News::State(state)).await?;
        }
        Ok(())
    }

    /// Tells of the proxies what is new: at once who is there and serves, now and then how busy each is. A list without this proxy is
    /// not whole: it joins, or was cut off.
    async fn tell_proxies(&mut self) -> Result<(), Unheard> {
        let list = proxies(&self.changes.mirror.lock().cache);
        let (told, at) = &self.told;
        let is_there = list.iter().any(|proxy| proxy.id == self.changes.proxy);
        let is_due = differs(told, &list) || *told != list && at.elapsed() >= LOADS;
        if !self.agreed || !is_there || !is_due {
            return Ok(());
        }
        self.told = (Arc::clone(&list), Instant::now());
        self.tell(News::Proxies(list)).await
    }

    /// Sessions that were kept long enough go.
    async fn let_go(&mut self) -> Result<(), Unheard> {
        let now = Instant::now();
        let is_over = |(_, until): &(&PublicKey, &Instant)| **until <= now;
        let over: Vec<_> = self.kept.iter().filter(is_over).map(|(client, _)| *client).collect();
        for client in over {
            self.kept.remove(&client);
            self.see_session(client).await?;
        }
        Ok(())
    }

    async fn tell(&self, news: News) -> Result<(), Unheard> {
        self.news.send(news).await.map_err(|_| Unheard)
    }
}

/// Looks again and again whether the fleet is ours, until it is.
async fn agree(changes: Changes, told: mpsc::Sender<Result<(), ChangeError>>) {
    loop {
        let agreement = changes.agree().await;
        let is_over = agreement.is_ok();
        if told.send(agreement).await.is_err() || is_over {
            return;
        }
        tokio::time::sleep(RENEWAL).await;
    }
}

/// Reads what was known before the start, if etcd was not read in time.
async fn recall(changes: Changes, file: Arc<dyn KeptFile>, told: mpsc::Sender<LastKnown>) {
    tokio::time::sleep(START_PATIENCE).await;
    if changes.mirror.lock().lists > 0 {
        return;
    }
    let Whose { prefix, terms } = Whose::of(&changes);
    let read =
        tokio::task::spawn_blocking(move || LastKnown::read(&*file, (&prefix, &terms), now()));
    match read.await {
        // The receiver may have stopped; then nobody needs it.
        Ok(Ok(known)) => drop(told.send(known).await),
        Ok(Err(NotUsed::Missing)) => tracing::info!(
            "this proxy's disk has no copy of the fleet's registry yet: clients are known when etcd was read"
        ),
        Ok(Err(why)) => tracing::warn!(
            "the copy of the fleet's registry on this proxy's disk is not used: {why}. Clients are known when etcd was \
             read"
        ),
        Err(error) => {
            tracing::error!("the copy of the fleet's registry cannot be read: {error}");
        }
    }
}

/// Whose registry the file is.
struct Whose {
    prefix: String,
    terms: FleetValue,
}

impl Whose {
    fn of(changes: &Changes) -> Self {
        let prefix = changes.store.layout().prefix().to_owned();
        Self { prefix, terms: changes.terms.clone() }
    }
}

/// Whether two lists differ in more than how busy each proxy is.
fn differs(before: &[FleetProxy], now: &[FleetProxy]) -> bool {
    let without_load = |proxy: &FleetProxy| FleetProxy { load: 0, ..proxy.clone() };
    !before.iter().map(without_load).eq(now.iter().map(without_load))
}

/// The proxy listens no more.
struct Unheard;
