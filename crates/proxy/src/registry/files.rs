//! The registry of one proxy alone: two files, of who may come in ([`PeersFile`]), and of whose addresses are whose ([`Leases`]).
//!
//! A [`Writer`] replaces the files, and tells the loop by a command:
//!
//! ```text
//!   a wish ──> draft ──> Writer ──> News::Written ──> the draft holds ──> what follows, and the answer
//!                 (no answer yet, nothing has changed)
//! ```
//!
//! The registry is changed by one wish at a time; some that come meanwhile wait in their order. Each is judged by the book as
//! it is then, so of two clients that show one token the first is bound.
//!
//! Leases hold at once. Their file follows: while it is being written a newer content waits, and only the newest.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use ropewalk_control::api::{ApiError, ErrorCode, OpenInvitation, Request, Response};
use ropewalk_control::server;
use ropewalk_daemon::writer::Writer;
use ropewalk_proto::endpoint::Claim;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_settings::{InvitationToken, PublicKey};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::config::{Config, PeerConfig};
use crate::daemon::Command;
use crate::inviting;
use crate::leases::{LeaseTable, Leases};
use crate::registry::peers_file::{Draft, Member, PeersFile, TokenCheck};
use crate::registry::{News, Outcome, Registry};

/// Wishes that may wait; whoever comes then has to ask again.
const MAX_WAITING: usize = 64;

/// Which file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Book {
    /// That of the clients and invitations.
    Registry,
    /// That of their addresses.
    Leases,
}

/// What somebody wants of the registry.
#[derive(Debug)]
enum Wish {
    /// The owner, at the control socket.
    Asked(server::Command),
    /// A client that shows a token.
    TokenCheck(PublicKey, InvitationToken),
}

/// A change that is being written.
#[derive(Debug)]
struct Change {
    draft: Draft,
    then: Then,
}

/// What it will mean.
#[derive(Debug)]
enum Then {
    /// Who asked is answered so.
    Answered(server::Command, Response),
    /// This client is in.
    Bound(Member),
}

/// Who keeps the files.
#[derive(Debug)]
pub struct Files {
    registry: PeersFile,
    change: Option<Change>,
    waiting: VecDeque<Wish>,
    leases: Leases,
    /// Their file is being written.
    leases_are_written: bool,
    /// They have changed since.
    leases_are_newer: bool,
    writer: Writer,
    /// The coordinator's queue.
    commands: mpsc::Sender<Command>,
}

impl Files {
    /// The keeper of these books, whose files `writer` writes; `commands` is the queue of the loop, in whose
    /// [`LocalSet`](tokio::task::LocalSet) all calls are to be.
    #[must_use]
    pub fn new(
        registry: PeersFile,
        leases: Leases,
        writer: Writer,
        commands: mpsc::Sender<Command>,
    ) -> Self {
        Self {
            registry,
            change: None,
            waiting: VecDeque::new(),
            leases,
            leases_are_written: false,
            leases_are_newer: false,
            writer,
            commands,
        }
    }

    fn write_leases(&mut self) {
        self.leases_are_newer = self.leases_are_written;
        if !std::mem::replace(&mut self.leases_are_written, true) {
            self.write(Book::Leases, self.leases.file(), self.leases.content());
        }
    }

    /// The file of the leases is on disk, or cannot be written.
    fn leases_written(&mut self, written: io::Result<()>) {
        if let Err(source) = written {
            let error = self.leases.not_written(source);
            tracing::error!("addresses may be others after a restart: {error}");
        }
        self.leases_are_written = false;
        if self.leases_are_newer {
            self.write_leases();
        }
    }

    /// The file of the registry is on disk, or cannot be written: the change holds, or never was. Returns what follows;
    /// after that, [`take_up`](Self::take_up).
    fn written(&mut self, written: io::Result<()>) -> Option<Outcome> {
        let Change { draft, then } = self.change.take()?;
        let settled = self.registry.settle(draft, written);
        match (then, settled) {
            (Then::Answered(asked, Response::Removed(removed)), Ok(())) => {
                Some(Outcome::Removed(asked, removed))
            }
            (Then::Answered(asked, Response::Enabled(enabled)), Ok(())) => {
                Some(Outcome::Enabled(asked, enabled))
            }
            (Then::Answered(asked, response), Ok(())) => {
                if let Response::Invited(invited) = &response {
                    let again = invited.replaces.is_some();
                    tracing::info!(peer = invited.name, again, "invited");
                }
                asked.answer(Ok(response));
                None
            }
            (Then::Answered(asked, _), Err(error)) => {
                asked.answer(Err(inviting::refused(&error)));
                None
            }
            (Then::Bound(member), Ok(())) => Some(Outcome::Bound(member, None)),
            (Then::Bound(member), Err(error)) => {
                tracing::error!("a client with an invitation cannot be let in: {error}");
                Some(Outcome::Settled(member.public_key, Claim::Unknown))
            }
        }
    }

    /// Takes up what waits, until something is being written. Returns a client about which that decides at once; there may
    /// be more.
    fn take_up(&mut self, config: &Config) -> Option<(PublicKey, Claim)> {
        while self.change.is_none() {
            match self.waiting.pop_front()? {
                Wish::Asked(asked) => self.begin(config, asked),
                Wish::TokenCheck(client, token) => match self.judge(config, client, &token) {
                    Claim::Later => {}
                    decided => return Some((client, decided)),
                },
            }
        }
        None
    }

    fn begin(&mut self, config: &Config, asked: server::Command) {
        let drafted = match &asked.request {
            Request::Invite(wish) => inviting::invite(config, &self.registry, wish)
                .map(|(invited, draft)| (Some(draft), Response::Invited(Box::new(invited)))),
            Request::RemovePeer { name } => inviting::remove(config, &self.registry, name)
                .map(|(removed, draft)| (Some(draft), Response::Removed(Box::new(removed)))),
            Request::EnablePeer { name, enabled } => {
                inviting::enable(config, &self.registry, name, *enabled)
                    .map(|(enabled, draft)| (draft, Response::Enabled(Box::new(enabled))))
            }
            // Nothing else is asked of the book.
            _ => Err(ApiError::new(ErrorCode::BadRequest, "this is not the book's to answer")),
        };
        match drafted {
            Ok((Some(draft), response)) => self.change(draft, Then::Answered(asked, response)),
            // It is so already.
            Ok((None, response)) => asked.answer(Ok(response)),
            Err(error) => asked.answer(Err(error)),
        }
    }

    /// What the book says of a token; if its client is to be bound, that begins.
    fn judge(&mut self, config: &Config, key: PublicKey, token: &InvitationToken) -> Claim {
        if self.registry.members().iter().any(|member| member.public_key == key) {
            // It was let in while this message was on its way from its home, which knows it by now.
            return Claim::Unknown;
        }
        let bounds = (config.peers.len(), config.max_peers, inviting::now());
        match self.registry.show(token, key, bounds) {
            (TokenCheck::Bound(member), Some(draft)) => {
                self.change(draft, Then::Bound(member));
                Claim::Later
            }
            (TokenCheck::Unknown | TokenCheck::Bound(_), _) => {
                tracing::debug!(%key, "an invitation that was never given: silence");
                Claim::Unknown
            }
            (TokenCheck::Used { name }, _) => {
                tracing::warn!(peer = name, %key, "refused: the invitation was used before, with another key");
                Claim::Refused(Refusal::InvitationUsed)
            }
            (TokenCheck::Over { name }, _) => {
                tracing::warn!(peer = name, %key, "refused: the invitation has expired or was taken back");
                Claim::Refused(Refusal::InvitationExpired)
            }
            (TokenCheck::Full { name }, _) => {
                tracing::warn!(
                    peer = name,
                    "refused: there are as many clients as `max_peers` allows"
                );
                Claim::Refused(Refusal::Full)
            }
        }
    }

    fn change(&mut self, draft: Draft, then: Then) {
        self.write(Book::Registry, self.registry.file(), draft.content());
        self.change = Some(Change { draft, then });
    }

    fn write(
        &self,
        book: Book,
        file: &Path,
        content: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    ) {
        let written = self.writer.replace(file, content);
        let commands = self.commands.clone();
        spawn_local(async move {
            let gone = |_| Err(io::Error::other("the thread that writes files has failed"));
            let written = written.await.unwrap_or_else(gone);
            // A loop that has ended wants to know nothing.
            drop(commands.send(Command::Registry(News::Written(book, written))).await);
        });
    }
}

impl Registry for Files {
    fn peers(&self, of_file: &[PeerConfig]) -> (Vec<PeerConfig>, Vec<String>) {
        self.registry.peers(of_file)
    }

    fn invitations(&self) -> Vec<OpenInvitation> {
        inviting::invitations(&self.registry)
    }

    fn leases(&self) -> &LeaseTable {
        self.leases.table()
    }

    fn name_of(&self, of_file: &[PeerConfig], key: &PublicKey) -> Option<String> {
        if let Some(peer) = of_file.iter().find(|peer| peer.public_key == *key) {
            return Some(peer.name.to_string());
        }
        let member = self.registry.members().iter().find(|member| member.public_key == *key)?;
        // Of two with one name that of the config file counts.
        let is_passed_over = of_file.iter().any(|peer| *peer.name == *member.name);
        (!is_passed_over).then(|| member.name.clone())
    }

    fn admit(&mut self, of_file: &[PeerConfig]) {
        let (known, _) = self.peers(of_file);
        if self.leases.admit(&known) {
            self.write_leases();
        }
    }

    fn forget(&mut self, key: &PublicKey) {
        if self.leases.forget(key) {
            self.write_leases();
        }
    }

    fn ask(&mut self, config: &Config, asked: server::Command) {
        if self.change.is_none() {
            self.begin(config, asked);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(Wish::Asked(asked));
        } else {
            let message = "the proxy waits for its disk; try again";
            asked.answer(Err(ApiError::new(ErrorCode::Busy, message)));
        }
    }

    fn show(&mut self, config: &Config, client: PublicKey, token: &InvitationToken) -> Claim {
        let waits = |wish: &Wish| matches!(wish, Wish::TokenCheck(other, _) if *other == client);
        let is_bound = self.change.as_ref().is_some_and(|change| change.binds(&client));
        if is_bound || self.waiting.iter().any(waits) {
            return Claim::Later;
        }
        if self.change.is_none() {
            return self.judge(config, client, token);
        }
        if self.waiting.len() >= MAX_WAITING {
            tracing::warn!("a client with an invitation has to ask again: the disk is slow");
            return Claim::Unknown;
        }
        self.waiting.push_back(Wish::TokenCheck(client, token.clone()));
        Claim::Later
    }

    fn hear(&mut self, config: &Config, news: News) -> Vec<Outcome> {
        // It asks nobody else for anything.
        let News::Written(book, written) = news else { return Vec::new() };
        if book == Book::Leases {
            self.leases_written(written);
            return Vec::new();
        }
        let mut outcomes: Vec<_> = self.written(written).into_iter().collect();
        while let Some((client, claim)) = self.take_up(config) {
            outcomes.push(Outcome::Settled(client, claim));
        }
        outcomes
    }
}

impl Drop for Files {
    /// What waits of the leases is given to the writer, which finishes what it was given.
    fn drop(&mut self) {
        if self.leases_are_newer {
            drop(self.writer.replace(self.leases.file(), self.leases.content()));
        }
    }
}

impl Change {
    /// Whether it binds this key.
    fn binds(&self, client: &PublicKey) -> bool {
        matches!(&self.then, Then::Bound(member) if member.public_key == *client)
    }
}
