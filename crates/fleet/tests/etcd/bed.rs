//! An etcd of a test's own, and proxies that use it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_fleet::cache::Cache;
use ropewalk_fleet::changes::Changes;
use ropewalk_fleet::last_known::{Content, KeptFile};
use ropewalk_fleet::layout::{FleetValue, Unknown, VERSION};
use ropewalk_fleet::mirror::Mirror;
use ropewalk_fleet::presence::{Own, Presence};
use ropewalk_fleet::service::{News, Options, Service};
use ropewalk_fleet::store::{Access, Store, TlsFiles};
use ropewalk_settings::{InvitationToken, PublicKey};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

/// Longer than anything takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Where proxies that say nothing else find it.
const NEAR: &str = "127.0.0.1:2379";

/// Where services find it, so that they can be cut off.
const FAR: &str = "127.0.0.2:2379";

/// An etcd that is not started yet.
pub(crate) struct Bed {
    etcd: Etcd,
}

/// The etcd.
pub(crate) struct Etcd {
    folder: TempDir,
    arguments: Vec<String>,
    scheme: &'static str,
    child: Option<Child>,
}

/// What a proxy keeps for its next start, written at once.
#[derive(Debug)]
struct Kept(PathBuf);

impl KeptFile for Kept {
    fn read(&self) -> io::Result<Vec<u8>> {
        std::fs::read(&self.0)
    }

    fn replace(&self, content: Content) -> oneshot::Receiver<io::Result<()>> {
        let (written, told) = oneshot::channel();
        let result = File::create(&self.0).and_then(|mut file| content(&mut file));
        written.send(result).expect("who asked is told");
        told
    }
}

impl Bed {
    /// One with these arguments besides. `None`: the test is over.
    pub(crate) fn new(arguments: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root makes a network namespace");
            return None;
        }
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let folder = TempDir::new().unwrap();
        Some(Self { etcd: Etcd { folder, arguments, scheme: "http", child: None } })
    }

    /// One that wants certificates.
    pub(crate) fn with_tls() -> Option<Self> {
        let mut bed = Self::new(&[])?;
        let at = bed.etcd.folder.path().display().to_string();
        sh(&format!("cd {at}\n{CERTIFICATES}"));
        bed.etcd.scheme = "https";
        bed.etcd.arguments = vec![
            "--client-cert-auth".into(),
            format!("--trusted-ca-file={at}/ca.pem"),
            format!("--cert-file={at}/server.pem"),
            format!("--key-file={at}/server.key"),
        ];
        Some(bed)
    }

    /// Starts it, and runs the test, both in a network namespace of their own.
    pub(crate) fn run<F>(self, test: impl FnOnce(Etcd) -> F + Send + 'static)
    where
        F: Future<Output = ()>,
    {
        let Self { mut etcd } = self;
        let thread = std::thread::spawn(move || {
            #[expect(
                deprecated,
                reason = "the hazard of its `unsafe` successor is CLONE_FILES, not used here"
            )]
            rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).unwrap();
            sh("ip link set lo up");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                etcd.start().await;
                test(etcd).await;
            });
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Two authorities; a certificate of the server, one of a client, one of a client of the other authority, and one that holds for the second in
/// which it is made.
const CERTIFICATES: &str = r#"
new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
for ca in ca other-ca; do openssl req -x509 $new -keyout $ca.key -out $ca.pem -subj /CN=$ca -days 2; done
echo 'subjectAltName=IP:127.0.0.1,IP:127.0.0.2' > names
sign() {
    openssl req $new -keyout $1.key -out $1.csr -subj /CN=$1
    openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -CAcreateserial -days ${3:-2} -extfile names -out $1.pem
}
sign late-client ca 0; sign server ca; sign client ca; sign other-client other-ca
"#;

impl Etcd {
    /// Starts it, and waits until it answers.
    pub(crate) async fn start(&mut self) {
        let urls = format!("{0}://{NEAR},{0}://{FAR}", self.scheme);
        let log = File::options().create(true).append(true).open(self.path().join("log")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--listen-peer-urls=http://127.0.0.1:2380"])
            .arg(format!("--data-dir={}", self.path().join("data").display()))
            .arg(format!("--listen-client-urls={urls}"))
            .arg(format!("--advertise-client-urls={urls}"))
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("etcd-server is installed: scripts/setup"));
        let store = match self.scheme {
            "http" => Store::new(self.access(NEAR)),
            _ => self.proxy_by_tls("test", "ca.pem", "client").store,
        };
        let begun = Instant::now();
        while let Err(error) = store.head().await {
            assert!(begun.elapsed() < SOON, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills it; what it has written stays.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Services reach it no more, or again.
    pub(crate) fn cut(&self, cut: bool) {
        let script = match cut {
            true => {
                "nft 'add table ip cut; add chain ip cut in { type filter hook input priority 0; }; \
                 add rule ip cut in ip daddr 127.0.0.2 drop; add rule ip cut in ip saddr 127.0.0.2 drop'"
            }
            false => "nft delete table ip cut",
        };
        sh(script);
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn access(&self, at: &str) -> Access {
        let endpoints = vec![format!("{}://{at}", self.scheme)];
        Access { endpoints, prefix: "/ropewalk/test".into(), tls: None }
    }

    /// A proxy that shows this certificate and trusts this authority.
    pub(crate) fn proxy_by_tls(&self, id: &str, ca: &str, certificate: &str) -> Changes {
        let mut access = self.access(NEAR);
        access.tls = Some(TlsFiles {
            ca: self.path().join(ca),
            certificate: self.path().join(format!("{certificate}.pem")),
            key: self.path().join(format!("{certificate}.key")),
        });
        changes(access, id)
    }

    /// A running proxy with this id.
    pub(crate) fn serve(&self, id: &str) -> (Service, mpsc::Receiver<News>) {
        let (news, heard) = mpsc::channel(64);
        let options = Options {
            access: self.access(FAR),
            terms: terms(),
            own: own(id),
            max_clients: 1000,
            kept_in: Arc::new(Kept(self.path().join(format!("{id}.json")))),
        };
        (Service::start(options, news).unwrap(), heard)
    }

    /// Waits until the copy of a service is so.
    pub(crate) async fn wait_for(&self, service: &Service, is_so: impl Fn(&Cache) -> bool) {
        self.wait_until("the copy is as it should", || is_so(&service.mirror().lock().cache)).await;
    }

    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < SOON, "not within a minute: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The next news of this kind.
    pub(crate) async fn next<T>(
        &self,
        news: &mut mpsc::Receiver<News>,
        wanted: impl Fn(News) -> Option<T>,
    ) -> T {
        let found = async {
            loop {
                if let Some(found) = wanted(news.recv().await.expect("the service runs")) {
                    return found;
                }
            }
        };
        tokio::time::timeout(SOON, found).await.expect("within a minute")
    }

    /// All that the registry has now.
    pub(crate) async fn all(&self, proxy: &Changes) -> Cache {
        Cache::read(&proxy.store, &proxy.mirror).await.unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the proxy with this id says of itself.
fn own(id: &str) -> Own {
    let mut key = [7; 32];
    key[..id.len()].copy_from_slice(id.as_bytes());
    Own {
        id: id.into(),
        region: "test".into(),
        capacity: 100,
        public_key: PublicKey::from_bytes(key),
        addresses: vec!["192.0.2.1:51900".parse().unwrap()],
        program: "0".into(),
    }
}

/// What the proxy with this id says of itself and its sessions, and nothing else of it.
pub(crate) fn presence(etcd: &Etcd, id: &str) -> Presence {
    let Changes { store, mirror, .. } = proxy(etcd, id);
    Presence::new(own(id), store, mirror)
}

fn terms() -> FleetValue {
    FleetValue {
        version: VERSION,
        name: "test".into(),
        pool_v4: "10.77.0.0/16".parse().unwrap(),
        pool_v6: None,
        unknown: Unknown::new(),
    }
}

fn changes(access: Access, proxy: &str) -> Changes {
    let store = Store::new(access);
    Changes { store, mirror: Mirror::default(), terms: terms(), proxy: proxy.into() }
}

/// A proxy with this id that keeps no copy.
pub(crate) fn proxy(etcd: &Etcd, id: &str) -> Changes {
    changes(etcd.access(NEAR), id)
}

pub(crate) fn token(number: u16) -> InvitationToken {
    let mut bytes = [9; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    InvitationToken::from_bytes(bytes)
}

pub(crate) fn client(number: u16) -> PublicKey {
    let mut bytes = [1; 32];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    PublicKey::from_bytes(bytes)
}

/// Invites a client for good.
pub(crate) async fn invite(proxy: &Changes, name: &str, number: u16) {
    proxy.invite(name, false, (&token(number), u64::MAX), 2000).await.unwrap();
}
