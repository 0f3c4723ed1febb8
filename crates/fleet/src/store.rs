//! The way to etcd: one member at a time, another one when that does not answer, and every error as a sentence that says
//! what to do.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Error, GetOptions, GetResponse, Identity, KeyValue,
    TlsOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use tokio::sync::Mutex;

use crate::layout::Layout;

/// How long one member has to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// How often a member that closes a connection is asked again at once. One that does not trust our certificate says so only after the
/// handshake (RFC 8446 §4.4.2.4), and that word is sometimes lost with the connection.
const UNEXPLAINED: u32 = 8;

/// After so long without a word a connection is asked whether it lives, and has as long to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The oldest version of etcd that does what is needed: watches in fragments that are asked whether they go on.
const OLDEST: (u32, u32) = (3, 4);

/// Bytes of the longest answer that is taken: a page of values as long as ours may be.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Where the registry is, and how this program shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The members of etcd, as URLs.
    pub endpoints: Vec<String>,
    /// What all keys begin with, without a slash at the end.
    pub prefix: String,
    /// How to talk TLS; `None`: without.
    pub tls: Option<TlsFiles>,
}

/// The files of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Whom to trust.
    pub ca: PathBuf,
    /// This program's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why the registry does not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No member answers.
    #[error(
        "the fleet's registry (etcd at {endpoints}) does not answer: {what}. Known clients come and go meanwhile. Look with \
         `etcdctl endpoint health`"
    )]
    Away {
        /// The members that were asked.
        endpoints: String,
        /// What the last of them said, or did not.
        what: String,
    },
    /// TLS failed.
    #[error(
        "the fleet's registry (etcd at {endpoints}) and this host do not trust each other: {what}. Look whether \
         tls_ca_file, tls_certificate_file and tls_key_file of [registry] are those that etcd's --trusted-ca-file and --cert-file belong to, and \
         whether they have expired"
    )]
    Tls {
        /// The members that were asked.
        endpoints: String,
        /// What was wrong.
        what: String,
    },
    /// A file of TLS cannot be read.
    #[error("cannot read {}: {what}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        what: String,
    },
    /// etcd has no room.
    #[error(
        "etcd's database is full and takes no more: compact it (`etcdctl compact REVISION`), then `etcdctl defrag` at each \
         member, then `etcdctl alarm disarm`; or give it more with --quota-backend-bytes"
    )]
    Full,
    /// etcd does not let this program do it.
    #[error(
        "etcd refuses: {0}. Give the user of this certificate the right to read and write below the prefix (`etcdctl role \
         grant-permission ROLE --prefix=true readwrite PREFIX/`)"
    )]
    Forbidden(String),
    /// Something below the prefix is too long to be ours.
    #[error(
        "a value below {0} is longer than an answer may be: it is not one of Ropewalk's. Find it with `etcdctl get --prefix \
         --keys-only {0}`, and delete it or use another prefix"
    )]
    TooLong(String),
    /// etcd does not want the question.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// etcd is older than what is needed of it.
    #[error(
        "etcd is version {version}, and version {}.{} or newer is needed: upgrade its members, one after the other",
        OLDEST.0,
        OLDEST.1
    )]
    TooOld {
        /// Its version, as it says itself.
        version: String,
    },
}

impl StoreError {
    /// Whether the connection was closed without a reason.
    fn is_closed(&self) -> bool {
        const CLOSED: [&str; 3] = ["connection closed", "broken pipe", "connection reset"];
        let lower = |what: &str| what.to_lowercase();
        matches!(self, Self::Away { what, .. } if CLOSED.iter().any(|word| lower(what).contains(word)))
    }

    /// Whether another member may know better.
    fn is_of_member(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Tls { .. })
    }
}

/// The moment at which something was so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The revision.
    pub revision: i64,
    /// The cluster that said so.
    pub cluster: u64,
}

/// The way to etcd. Copies share it.
#[derive(Clone)]
pub struct Store {
    access: Arc<Access>,
    layout: Arc<Layout>,
    present: Arc<Mutex<Present>>,
}

/// The member that is asked now.
#[derive(Default)]
struct Present {
    /// How many were turned away from: it is the one of that number, counted round and round.
    member: usize,
    client: Option<Client>,
}

impl Present {
    fn turn_away(&mut self) {
        self.member = self.member.wrapping_add(1);
        self.client = None;
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Store {
    /// The way to there. Nothing is asked yet.
    #[must_use]
    pub fn new(access: Access) -> Self {
        let layout = Arc::new(Layout::new(&access.prefix));
        Self { access: Arc::new(access), layout, present: Arc::default() }
    }

    /// Where things stand.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The members, in words.
    #[must_use]
    pub fn endpoints(&self) -> String {
        self.access.endpoints.join(", ")
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &[String] {
        &self.access.endpoints
    }

    /// The connection to the member that is asked now.
    ///
    /// # Errors
    /// The files of TLS cannot be read, or make no sense.
    pub async fn client(&self) -> Result<Client, StoreError> {
        Ok(self.present().await?.1)
    }

    /// The same, and which member it is.
    async fn present(&self) -> Result<(usize, Client), StoreError> {
        let mut present = self.present.lock().await;
        let member = present.member;
        if let Some(client) = &present.client {
            return Ok((member, client.clone()));
        }
        let client = self.connect(member).await?;
        present.client = Some(client.clone());
        Ok((member, client))
    }

    /// A connection to one member.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub async fn connect(&self, member: usize) -> Result<Client, StoreError> {
        let endpoint = &self.access.endpoints[member % self.access.endpoints.len()];
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ANSWER)
            .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(files) = &self.access.tls {
            options = options.with_tls(tls(files)?);
        }
        Client::connect([endpoint], Some(options)).await.map_err(|error| self.told(&error))
    }

    /// The present member does not answer: the next one is asked from now on.
    pub async fn turn_away(&self) {
        self.present.lock().await.turn_away();
    }

    /// This one does not answer: the next one is asked from now on. Of many questions that are put to it at a time one turns away, or
    /// they would come round to it again.
    async fn turn_away_from(&self, member: usize) {
        let mut present = self.present.lock().await;
        if present.member == member {
            present.turn_away();
        }
    }

    /// Asks one member after the other until one answers.
    ///
    /// # Errors
    /// None does, or what one says.
    pub(crate) async fn ask<T, F>(&self, question: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut last = None;
        let mut tries = self.access.endpoints.len().max(2);
        let mut unexplained = 0;
        while tries > 0 {
            tries -= 1;
            let (member, client) = self.present().await?;
            let answer = tokio::time::timeout(ANSWER, question(client)).await;
            let error = match answer {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => self.told(&error),
                Err(_) => self.away("no answer within 2 s"),
            };
            if !error.is_of_member() {
                return Err(error);
            }
            if self.access.tls.is_some() && error.is_closed() && unexplained < UNEXPLAINED {
                unexplained += 1;
                tries += 1;
                self.present.lock().await.client = None;
                continue;
            }
            // That there is no trust says more than that nobody answers.
            if !matches!(last, Some(StoreError::Tls { .. })) {
                last = Some(error);
            }
            self.turn_away_from(member).await;
        }
        Err(last.unwrap_or_else(|| self.away("no endpoints")))
    }

    /// What stands at a key, with its revision.
    ///
    /// # Errors
    /// As all questions.
    pub async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let answer = self.ask(|client| {
            let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES);
            async move { kv.get(key, None).await }
        });
        Ok(answer.await?.take_kvs().into_iter().next())
    }

    /// The present revision, and the cluster.
    ///
    /// # Errors
    /// As all questions.
    pub async fn head(&self) -> Result<Head, StoreError> {
        let key = self.layout.fleet();
        let answer = self.ask(|client| {
            let (mut kv, key) = (client.kv_client(), key.clone());
            async move { kv.get(key, Some(GetOptions::new().with_count_only())).await }
        });
        let answer = answer.await?;
        self.head_of(&answer)
    }

    pub(crate) fn head_of(&self, answer: &GetResponse) -> Result<Head, StoreError> {
        let head = answer
            .header()
            .map(|header| Head { revision: header.revision(), cluster: header.cluster_id() });
        head.ok_or_else(|| self.away("an answer without a header"))
    }

    /// Changes keys if all conditions hold. Returns whether they did. When the answer is lost on its way the question is put
    /// again: the conditions are to be such that it then changes nothing.
    ///
    /// # Errors
    /// As all questions.
    pub async fn change(&self, change: &Txn) -> Result<bool, StoreError> {
        Ok(self.change_at(change).await?.is_some())
    }

    /// The same. Returns the revision of the change, if it was made.
    ///
    /// # Errors
    /// As all questions.
    pub async fn change_at(&self, change: &Txn) -> Result<Option<i64>, StoreError> {
        let answer = self.transact(change).await?;
        match answer.header() {
            Some(header) => Ok(answer.succeeded().then(|| header.revision())),
            None => Err(self.away("an answer without a header")),
        }
    }

    /// Changes keys if all conditions hold. If they do not: what stands at the keys that the change asks for then.
    ///
    /// # Errors
    /// As all questions; or a value is too long.
    pub async fn change_or_get(&self, change: &Txn) -> Result<Option<Vec<KeyValue>>, StoreError> {
        let answer = self.transact(change).await?;
        Ok((!answer.succeeded()).then(|| found(&answer)))
    }

    /// What stands at these keys at one moment; of one at which nothing does there is nothing. At most as many as etcd does with one
    /// transaction (`--max-txn-ops`, 128).
    ///
    /// # Errors
    /// As all questions; or a value is too long.
    pub async fn get_all(
        &self,
        keys: impl IntoIterator<Item = String>,
    ) -> Result<Vec<KeyValue>, StoreError> {
        let gets: Vec<_> = keys.into_iter().map(|key| TxnOp::get(key, None)).collect();
        Ok(found(&self.transact(&Txn::new().and_then(gets)).await?))
    }

    async fn transact(&self, change: &Txn) -> Result<TxnResponse, StoreError> {
        let answer = self.ask(|client| {
            let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES);
            let change = change.clone();
            async move { kv.txn(change).await }
        });
        answer.await
    }

    /// Looks whether the member that is asked now is new enough.
    ///
    /// # Errors
    /// It is not, or none answers. One that refuses to say is asked for other things, and tells what is wrong then.
    pub async fn check_version(&self) -> Result<(), StoreError> {
        let answer = self.ask(|mut client| async move { client.status().await });
        match answer.await {
            Ok(status) => too_old(status.version()).map_or(Ok(()), Err),
            Err(error) if error.is_of_member() => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// No member answers, for this reason.
    #[must_use]
    pub fn away(&self, what: &str) -> StoreError {
        StoreError::Away { endpoints: self.endpoints(), what: what.to_owned() }
    }

    /// What an error means.
    #[must_use]
    pub fn told(&self, error: &Error) -> StoreError {
        let what = chain(error);
        let is_tls = ["certificate", "tls", "alert", "unknownissuer", "handshake"];
        let lower = what.to_lowercase();
        if is_tls.iter().any(|word| lower.contains(word)) {
            return StoreError::Tls { endpoints: self.endpoints(), what };
        }
        let Error::GRpcStatus(status) = error else { return self.away(&what) };
        let said = status.message().to_owned();
        // The numbers are gRPC's (its "Status codes and their use").
        match i32::from(status.code()) {
            8 if said.contains("database space exceeded") => StoreError::Full,
            7 | 16 => StoreError::Forbidden(said),
            11 if said.contains("message length") => {
                StoreError::TooLong(self.layout.prefix().into())
            }
            3 if said.contains("permission denied") || said.contains("auth") => {
                StoreError::Forbidden(said)
            }
            3 | 5 | 6 | 9 | 11 | 12 => StoreError::Refused(said),
            _ => self.away(&what),
        }
    }
}

/// Why this version of etcd, as it says itself, cannot be used. One that is not understood is none that is too old.
#[must_use]
pub fn too_old(version: &str) -> Option<StoreError> {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let known = (numbers.next()?, numbers.next()?);
    (known < OLDEST).then(|| StoreError::TooOld { version: version.to_owned() })
}

/// What a transaction found at the keys that it asked for.
fn found(answer: &TxnResponse) -> Vec<KeyValue> {
    let answers = answer.op_responses().into_iter();
    let gets = answers.filter_map(|answer| match answer {
        TxnOpResponse::Get(got) => Some(got),
        _ => None,
    });
    gets.flat_map(|mut got| got.take_kvs()).collect()
}

/// An error with all its causes.
fn chain(error: &Error) -> String {
    let mut text = match error {
        Error::GRpcStatus(status) => status.message().to_owned(),
        error => error.to_string(),
    };
    let mut cause = match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(error) => error.source(),
        error => error.source(),
    };
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

fn tls(files: &TlsFiles) -> Result<TlsOptions, StoreError> {
    let read = |file: &PathBuf| {
        std::fs::read(file)
            .map_err(|error| StoreError::File { file: file.clone(), what: error.to_string() })
    };
    Ok(TlsOptions::new()
        .ca_certificate(Certificate::from_pem(read(&files.ca)?))
        .identity(Identity::from_pem(read(&files.certificate)?, read(&files.key)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_many_questions_that_a_member_does_not_answer_one_turns_away_from_it() {
        let endpoints = ["http://192.0.2.1:2379", "http://192.0.2.2:2379"];
        let access = Access {
            endpoints: endpoints.map(str::to_owned).to_vec(),
            prefix: "/ropewalk/test".to_owned(),
            tls: None,
        };
        let store = Store::new(access);
        for _ in 0..16 {
            store.turn_away_from(0).await;
        }
        assert_eq!(store.present.lock().await.member, 1);
        store.turn_away_from(1).await;
        assert_eq!(store.present.lock().await.member, 2, "the first one again");
    }

    #[test]
    fn an_etcd_that_is_too_old_is_told_with_what_to_do() {
        for version in ["3.3.27", "2.3.8", "0.4.9", "3.3.0-rc.1"] {
            let told = too_old(version).unwrap().to_string();
            let expected = format!("etcd is version {version}, and version 3.4 or newer is needed");
            assert!(told.contains(&expected) && told.contains("upgrade"), "{told}");
        }
        for version in ["3.4.0", "3.4.23", "3.10.1", "4.0.0", "3.5.0-alpha.0", "", "unknown", "3"] {
            assert_eq!(too_old(version), None, "{version}");
        }
    }
}
