//! The registry for a running proxy: a thread of its own, so that no packet waits for etcd, TLS or JSON.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ropewalk_settings::{InvitationToken, PublicKey};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior};

use crate::cache::Change;
use crate::changes::{ChangeError, Changes, Claimed, Removed};
use crate::layout::{FleetValue, ProxyState};
use crate::mirror::{BATCH, Mirror};
use crate::presence::{Own, Presence, RENEWAL};
use crate::store::{Access, Store};
use crate::{FleetProxy, proxies};

/// Orders, and news, that may wait.
const QUEUE: usize = 1024;

/// Changes that are under way at a time.
const UNDER_WAY: usize = 64;

/// How long a proxy that drains keeps a session of which another proxy has a newer one: its flows may end there.
const PINNED: Duration = Duration::from_secs(10 * 60);

/// Pause after etcd has refused or not answered.
const PAUSE: Duration = Duration::from_secs(1);

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
}

enum Order {
    Claim(InvitationToken, PublicKey, oneshot::Sender<Result<Claimed, ChangeError>>),
    Invite(Invite, oneshot::Sender<Result<(Option<PublicKey>, usize), ChangeError>>),
    Remove(String, oneshot::Sender<Result<Removed, ChangeError>>),
    Session(PublicKey, Option<u64>),
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
    mirror: Mirror,
    proxies: watch::Receiver<Arc<[FleetProxy]>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread; `news` hears what happens.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(options: Options, news: mpsc::Sender<News>) -> std::io::Result<Self> {
        let (orders, taken) = mpsc::channel(QUEUE);
        let (publish, proxies) = watch::channel(Arc::from([]));
        let mirror = Mirror::default();
        let of_thread = mirror.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("registry".into()).spawn(move || {
            let serving = Serving::new(options, of_thread, news, publish);
            LocalSet::new().block_on(&runtime, serving.run(taken));
        })?;
        Ok(Self { orders: Some(orders), mirror, proxies, thread: Some(thread) })
    }

    /// The copy in memory.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// The proxies of the fleet, this one included, as they change.
    #[must_use]
    pub fn proxies(&self) -> watch::Receiver<Arc<[FleetProxy]>> {
        self.proxies.clone()
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

    /// A session began then (in microseconds since 1970), or has ended.
    pub fn note_session(&self, client: PublicKey, since_us: Option<u64>) {
        let order = Order::Session(client, since_us);
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        if !matches!(sent, Some(Ok(()))) {
            tracing::warn!(%client, "the registry does not hear of a session: it is too slow");
        }
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
    news: mpsc::Sender<News>,
    publish: watch::Sender<Arc<[FleetProxy]>>,
    state: ProxyState,
    /// The fleet is ours: before that its clients are not.
    agreed: bool,
    /// Why it is not, as was said last.
    refused: String,
    /// Sessions that are kept until then although another proxy has a newer one.
    pinned: Vec<(Instant, PublicKey)>,
    under_way: Arc<tokio::sync::Semaphore>,
}

impl Serving {
    fn new(
        options: Options,
        mirror: Mirror,
        news: mpsc::Sender<News>,
        publish: watch::Sender<Arc<[FleetProxy]>>,
    ) -> Self {
        let Options { access, terms, own, max_clients } = options;
        let store = Store::new(access);
        let proxy = own.id.clone();
        let presence = Presence::new(own, store.clone(), mirror.clone());
        Self {
            changes: Changes { store, mirror, terms, proxy },
            presence,
            max_clients,
            news,
            publish,
            state: ProxyState::Serving,
            agreed: false,
            refused: String::new(),
            pinned: Vec::new(),
            under_way: Arc::new(tokio::sync::Semaphore::new(UNDER_WAY)),
        }
    }

    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let (seen, mut changes) = mpsc::channel(16);
        let keeper =
            spawn_local(self.changes.mirror.clone().keep(self.changes.store.clone(), seen));
        let mut renewal = tokio::time::interval(RENEWAL);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut not_before = Instant::now();
        loop {
            let behind = self.agreed && self.presence.is_behind();
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.take(order),
                    None => break,
                },
                Some(seen) = changes.recv() => if self.see(seen).await.is_err() { break },
                _ = renewal.tick() => {
                    if !self.agreed && self.agree().await.is_err() { break }
                    if self.agreed && let Err(error) = self.presence.renew().await {
                        tracing::debug!("{error}");
                        not_before = Instant::now() + PAUSE;
                    }
                    if self.let_go().await.is_err() { break }
                }
                () = tokio::time::sleep_until(not_before), if behind => {
                    match self.presence.say().await {
                        Ok(displaced) => {
                            for (client, since) in displaced {
                                if self.tell(News::Displaced(client, since)).await.is_err() { return }
                            }
                            not_before = Instant::now();
                        }
                        Err(error) => {
                            tracing::warn!("the registry does not hear of this proxy: {error}");
                            not_before = Instant::now() + PAUSE;
                        }
                    }
                    // Without a lease nothing can be said before the next renewal.
                    if self.presence.is_behind() { not_before = not_before.max(Instant::now() + PAUSE / 4); }
                }
            }
        }
        keeper.abort();
        self.presence.leave().await;
    }

    /// Looks whether the fleet is ours; if it is, its clients are told.
    async fn agree(&mut self) -> Result<(), Unheard> {
        match self.changes.agree().await {
            Ok(()) => {
                self.agreed = true;
                let known: Vec<_> = {
                    let mirrored = self.changes.mirror.lock();
                    let clients = mirrored.cache.clients.iter();
                    clients.map(|(key, client)| Change::Came(*key, client.clone())).collect()
                };
                for batch in known.chunks(BATCH) {
                    self.tell(News::Changes(batch.to_vec())).await?;
                }
            }
            Err(error @ ChangeError::Fleet(_)) => {
                let why = error.to_string();
                if why != self.refused {
                    tracing::error!(
                        "this proxy is not one of the fleet, and lets nobody in: {why}"
                    );
                    self.refused = why;
                }
            }
            // The mirror tells of it.
            Err(_) => {}
        }
        Ok(())
    }

    fn take(&mut self, order: Order) {
        let order = match order {
            Order::Session(client, since) => return self.presence.note(client, since),
            order => order,
        };
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
                Order::Session(..) => {}
            }
        });
    }

    async fn see(&mut self, changes: Vec<Change>) -> Result<(), Unheard> {
        let mut clients = Vec::new();
        for change in changes {
            match change {
                Change::Session(client) => self.see_session(client).await?,
                Change::Proxies => self.see_proxies().await?,
                change => clients.push(change),
            }
        }
        if clients.is_empty() || !self.agreed {
            Ok(())
        } else {
            self.tell(News::Changes(clients)).await
        }
    }

    async fn see_session(&mut self, client: PublicKey) -> Result<(), Unheard> {
        if self.state == ProxyState::Draining {
            self.pinned.retain(|(_, pinned)| *pinned != client);
            self.pinned.push((Instant::now() + PINNED, client));
            return Ok(());
        }
        match self.presence.displaced(&client) {
            Some(since) => self.tell(News::Displaced(client, since)).await,
            None => Ok(()),
        }
    }

    async fn see_proxies(&mut self) -> Result<(), Unheard> {
        let list = proxies(&self.changes.mirror.lock().cache);
        self.publish.send_replace(list);
        let state = self.presence.state();
        if std::mem::replace(&mut self.state, state) != state {
            self.tell(News::State(state)).await?;
        }
        Ok(())
    }

    /// Sessions that were kept long enough, or need not be kept any more, go.
    async fn let_go(&mut self) -> Result<(), Unheard> {
        let (now, draining) = (Instant::now(), self.state == ProxyState::Draining);
        let is_over = |(until, _): &(Instant, PublicKey)| !draining || *until <= now;
        let (over, kept) = std::mem::take(&mut self.pinned).into_iter().partition(is_over);
        self.pinned = kept;
        let over: Vec<(Instant, PublicKey)> = over;
        for (_, client) in over {
            if let Some(since) = self.presence.displaced(&client) {
                self.tell(News::Displaced(client, since)).await?;
            }
        }
        Ok(())
    }

    async fn tell(&self, news: News) -> Result<(), Unheard> {
        self.news.send(news).await.map_err(|_| Unheard)
    }
}

/// The proxy listens no more.
struct Unheard;
