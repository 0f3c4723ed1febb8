//! The helper that writes `/etc/resolv.conf` for a client without the right to.
//!
//! systemd starts one, as root, for each connection to [`SOCKET`], which only the client's user may open
//! (`ropewalk-resolv-conf.socket`). A request is a line, and so is its answer:
//!
//! | request | answer | what it does |
//! | --- | --- | --- |
//! | `set ADDRESS [ADDRESS [ADDRESS]]` | `ok` | these name servers stand there |
//! | `restore` | `nothing`, `restored` or `foreign` | what stood there before is back |
//! | | `error WHY` | what was asked for is not to be had |
//!
//! The end of the connection restores too, so that a client that crashes leaves nothing. Nothing but addresses comes from the
//! client: what stood there before is kept in a folder of root's, and which file is written is not to be chosen.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::resolv_conf::{Left, MAX_SERVERS, ResolvConf, ResolvConfError};
use super::{RESOLV_CONF, record_in};

/// Where it listens. Nobody but root makes files in that folder.
pub(super) const SOCKET: &str = "/run/ropewalk-resolv-conf.sock";

/// Where it keeps what stood in the file before (`StateDirectory=` of its unit).
pub const STATE_DIR: &str = "/var/lib/ropewalk-resolv-conf";

/// Bytes of the longest line: three IPv6 addresses, or why something failed.
const MAX_LINE: u64 = 1024;

/// An answer takes milliseconds; another helper that still restores, and a busy disk, are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a helper waits for one that still restores, and how often it looks.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Why the helper did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It cannot be reached, or broke off.
    #[error(
        "cannot reach the helper that writes {RESOLV_CONF} ({}): {source}; see `systemctl status \
         ropewalk-resolv-conf.socket`, or write dns = \"none\"",
        socket.display()
    )]
    Lost {
        /// Where it listens.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It says why not.
    #[error("{0}")]
    Refused(String),
}

/// The client's side.
#[derive(Debug)]
pub struct Helper {
    socket: PathBuf,
    connection: Option<BufReader<UnixStream>>,
}

impl Helper {
    /// Of the helper that listens here. Nothing is asked yet.
    #[must_use]
    pub const fn new(socket: PathBuf) -> Self {
        Self { socket, connection: None }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.exists()
    }

    /// Whether it has something to put back: of this client, or of one whose end it did not live to see.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.connection.is_some() || self.is_there() && record_in(Path::new(STATE_DIR)).exists()
    }

    /// Has these name servers stand in the file, for as long as this value lives.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub async fn set(&mut self, servers: &[IpAddr]) -> Result<(), HelperError> {
        let words: Vec<String> =
            servers.iter().take(MAX_SERVERS).map(|server| format!(" {server}")).collect();
        self.ask(&format!("set{}\n", words.concat())).await.map(drop)
    }

    /// Has what stood there before put back.
    ///
    /// # Errors
    /// As [`Helper::set`].
    pub async fn restore(&mut self) -> Result<Left, HelperError> {
        let answer = self.ask("restore\n").await?;
        self.connection = None;
        Ok(match answer.as_str() {
            "restored" => Left::Restored,
            "foreign" => Left::Foreign,
            _ => Left::Nothing,
        })
    }

    async fn ask(&mut self, request: &str) -> Result<String, HelperError> {
        let answered = match timeout(PATIENCE, self.exchange(request)).await {
            Ok(answered) => answered,
            Err(late) => Err(late.into()),
        };
        let answer = answered.map_err(|source| {
            self.connection = None;
            HelperError::Lost { socket: self.socket.clone(), source }
        })?;
        match answer.strip_prefix("error ") {
            Some(why) => Err(HelperError::Refused(why.to_owned())),
            None => Ok(answer),
        }
    }

    async fn exchange(&mut self, request: &str) -> io::Result<String> {
        // One that ended meanwhile (an upgrade) is asked again.
        if let Some(mut connection) = self.connection.take()
            && let Ok(answer) = asked(&mut connection, request).await
        {
            self.connection = Some(connection);
            return Ok(answer);
        }
        let mut connection = BufReader::new(UnixStream::connect(&self.socket).await?);
        let answer = asked(&mut connection, request).await?;
        self.connection = Some(connection);
        Ok(answer)
    }
}

async fn asked(connection: &mut BufReader<UnixStream>, request: &str) -> io::Result<String> {
    connection.get_mut().write_all(request.as_bytes()).await?;
    line(connection).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// One line without its end; `None`: there are no more.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut text = String::new();
    from.take(MAX_LINE).read_line(&mut text).await?;
    match text.strip_suffix('\n') {
        Some(line) => Ok(Some(line.to_owned())),
        None if text.is_empty() => Ok(None),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Set(Vec<IpAddr>),
    Restore,
}

impl Request {
    fn read(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "restore" => Some(Self::Restore),
            Some(("set", servers)) => {
                let servers: Result<Vec<IpAddr>, _> = servers.split(' ').map(str::parse).collect();
                let servers = servers.ok().filter(|servers| servers.len() <= MAX_SERVERS)?;
                Some(Self::Set(servers))
            }
            _ => None,
        }
    }
}

/// The helper's side: serves one client until it ends or `stop` says so, and then puts back what stood in the file before.
///
/// # Errors
/// Another helper does not end; the client says what is no request; the file is not to be had.
pub async fn serve(client: UnixStream, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let state = Path::new(STATE_DIR);
    let conf = ResolvConf::new(RESOLV_CONF.into(), record_in(state));
    serve_with(client, stop, conf, state).await
}

async fn serve_with(
    client: UnixStream,
    stop: impl Future<Output = ()>,
    mut conf: ResolvConf,
    state: &Path,
) -> anyhow::Result<()> {
    let mut client = BufReader::new(client);
    let _only_one = match Only::wait(state).await {
        Ok(only) => only,
        Err(error) => {
            // Nobody may listen any more.
            let _ = client.get_mut().write_all(format!("error {error}\n").as_bytes()).await;
            return Err(error.into());
        }
    };
    let served = tokio::select! {
        served = answer_all(&mut client, &mut conf) => served,
        () = stop => Ok(()),
    };
    conf.restore()?;
    Ok(served?)
}

async fn answer_all(client: &mut BufReader<UnixStream>, conf: &mut ResolvConf) -> io::Result<()> {
    while let Some(line) = line(client).await? {
        let request = Request::read(&line).ok_or(io::ErrorKind::InvalidData)?;
        let done = match request {
            Request::Set(servers) => conf.set(&servers).map(|()| "ok"),
            Request::Restore => conf.restore().map(|left| match left {
                Left::Nothing => "nothing",
                Left::Restored => "restored",
                Left::Foreign => "foreign",
            }),
        };
        let answer = done.map(str::to_owned).unwrap_or_else(|error| refusal(&error));
        client.get_mut().write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

/// In one line that the client reads.
fn refusal(error: &ResolvConfError) -> String {
    let text = error.to_string().replace(char::is_control, " ");
    let mut end = text.len().min(MAX_LINE as usize - 8);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("error {}", &text[..end])
}

/// One writes the file at a time.
#[derive(Debug)]
pub(super) struct Only {
    _locked: std::fs::File,
}

impl Only {
    async fn wait(state: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            match Self::take(state) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
        Err(io::Error::other(format!(
            "another client has set the name servers in {RESOLV_CONF}: all but one on a machine need dns = \"none\""
        )))
    }

    /// Not while another has it (`WouldBlock`).
    pub(super) fn take(state: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(state)?;
        let locked = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state.join("lock"))?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { _locked: locked })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const BEFORE: &str = "nameserver 192.168.1.1\n";

    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            std::fs::write(host.file(), BEFORE).unwrap();
            host
        }
        fn file(&self) -> PathBuf {
            self.0.path().join("resolv.conf")
        }
        fn text(&self) -> String {
            std::fs::read_to_string(self.file()).unwrap()
        }
        fn conf(&self) -> ResolvConf {
            ResolvConf::new(self.file(), record_in(&self.0.path().join("state")))
        }
        /// A helper at work, and the client's end of its connection.
        fn start(&self, stop: impl Future<Output = ()> + Send + 'static) -> (Helper, Running) {
            let (one, two) = UnixStream::pair().unwrap();
            let (conf, state) = (self.conf(), self.0.path().join("state"));
            let running = tokio::spawn(async move { serve_with(two, stop, conf, &state).await });
            let connection = Some(BufReader::new(one));
            (Helper { socket: self.0.path().join("none"), connection }, running)
        }
    }

    type Running = tokio::task::JoinHandle<anyhow::Result<()>>;

    #[tokio::test]
    async fn the_servers_stand_while_the_client_lives_and_the_file_is_as_before_however_it_ends() {
        let host = Host::new();
        let servers =
            ["9.9.9.9", "2620:fe::fe", "1.1.1.1", "8.8.8.8"].map(|ip| ip.parse().unwrap());
        for end in ["restore", "gone", "stopped"] {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let (mut helper, running) = host.start(async move { drop(stopped.await) });
            helper.set(&servers).await.unwrap();
            helper.set(&servers[..1]).await.unwrap();
            assert!(host.text().contains("nameserver 9.9.9.9\n"));
            match end {
                "restore" => assert_eq!(helper.restore().await.unwrap(), Left::Restored),
                "gone" => drop(helper),
                _ => stop.send(()).unwrap(),
            }
            running.await.unwrap().unwrap();
            assert_eq!(host.text(), BEFORE, "{end}");
        }
    }

    #[tokio::test]
    async fn what_is_no_request_ends_the_helper_and_changes_nothing() {
        for request in [
            "set\n",
            "set \n",
            "set 9.9.9.9 evil\n",
            "set 1.1.1.1 2.2.2.2 3.3.3.3 4.4.4.4\n",
            "set 9.9.9.9\u{b}nameserver 6.6.6.6\n",
            "restore /etc/shadow\n",
            "\n",
            "get\n",
            &"set 9.9.9.9 ".repeat(200),
        ] {
            assert_eq!(Request::read(request.trim_end_matches('\n')), None, "{request:?}");
            let host = Host::new();
            let (mut helper, running) = host.start(pending());
            let connection = helper.connection.as_mut().unwrap().get_mut();
            connection.write_all(request.as_bytes()).await.unwrap();
            assert!(running.await.unwrap().is_err(), "{request:?}");
            assert_eq!(host.text(), BEFORE, "{request:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_told_and_a_helper_that_is_not_there_too() {
        let host = Host::new();
        std::fs::write(host.file(), vec![b'#'; 70_000]).unwrap();
        let (mut helper, _running) = host.start(pending());
        let servers = ["9.9.9.9".parse().unwrap()];
        let error = helper.set(&servers).await.unwrap_err().to_string();
        assert!(error.contains("is no file of name servers"), "{error}");
        let mut helper = Helper::new(host.0.path().join("none"));
        let error = helper.set(&servers).await.unwrap_err().to_string();
        assert!(error.contains("ropewalk-resolv-conf.socket"), "{error}");
    }

    #[tokio::test]
    async fn one_helper_writes_at_a_time() {
        let host = Host::new();
        let servers = ["9.9.9.9".parse().unwrap()];
        let (mut first, running) = host.start(pending());
        first.set(&servers).await.unwrap();
        let (mut second, other) = host.start(pending());
        let waiting = tokio::spawn(async move { second.set(&servers).await.map(|()| second) });
        tokio::time::sleep(PAUSE * 3).await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap().unwrap();
        running.await.unwrap().unwrap();
        assert!(host.text().contains("9.9.9.9"));
        drop(second);
        other.await.unwrap().unwrap();
        assert_eq!(host.text(), BEFORE);
    }
}
