//! Where the proxy is: the configured names and addresses, resolved outside the tunnel.
//!
//! Addresses are known at once. A name is looked up by the system's resolver before any route leads into
//! the tunnel, and tried again with growing pauses until it has an address. When no address answers for
//! a while, the daemon asks for another look: the proxy may have moved. By then packets may be routed
//! into a tunnel that is dead, the questions to the name servers among them; so for the time of the
//! look-up the user's own name servers are asked, and for these alone the host's own routes count ([`Bypass`],
//! which says how programs go on asking the client meanwhile, where they must).
//!
//! A look-up that fails changes nothing: the addresses of that name known before are still tried. Other names or addresses,
//! as a config that was read again has them, are looked at at once.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use ropewalk_daemon::patience::Backoff;
use ropewalk_proto::wire::hello::parameters::MAX_NAME_SERVERS;
use ropewalk_settings::{HostPort, unusable};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::MAX_PREFIXES;
use crate::daemon::Command;
use crate::network::Bypass;
use crate::routes::MAX_ROUTED;

/// How long one look-up may take. The system's resolver gives up after 10 s with its usual two tries of
/// two servers.
const LOOKUP_TIME: Duration = Duration::from_secs(15);

/// Pauses after failed look-ups: from, to.
const LOOKUP_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Addresses kept, over all names of the config: more than its proxies have.
pub(crate) const MAX_ADDRESSES: usize = 32;

/// Name servers that a look-up can need; the system's resolver asks at most three.
const MAX_SERVERS: usize = 8;

// Otherwise a look-up, or the tunnel's own name servers, could ask for more prefixes than there can be.
const _: () = assert!(MAX_PREFIXES + MAX_SERVERS + 2 * MAX_NAME_SERVERS <= MAX_ROUTED);

/// Files that name the name servers: the usual one, and the one that tells whom systemd-resolved asks.
pub(crate) const RESOLV_CONF: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// What may be behind a failure where no name server is known that could be let out.
const REFUSED: &str = "; the kill switch lets questions out to the name servers of /etc/resolv.conf only, and that names \
     none but this machine: where the resolver here asks public servers, give the proxy's address, or put those into exclude";

/// What came of a look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// All addresses of all endpoints that have some, in the order of the config.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The same for each endpoint.
    pub(crate) each: Vec<Vec<SocketAddr>>,
    /// What failed, for people.
    pub(crate) trouble: Option<String>,
}

/// The task.
pub(crate) struct Resolver {
    pub(crate) endpoints: watch::Receiver<Vec<HostPort>>,
    /// Wishes for another look.
    pub(crate) wishes: mpsc::Receiver<()>,
    pub(crate) bypass: mpsc::Sender<Bypass>,
    /// Whether a kill switch lets nothing else out.
    pub(crate) locked: bool,
    pub(crate) daemon: mpsc::Sender<Command>,
    pub(crate) rng: SmallRng,
}

impl Resolver {
    /// Runs until the daemon is gone.
    pub(crate) async fn run(mut self) {
        let mut pauses = Backoff::new(LOOKUP_PAUSE);
        let mut known = Known::default();
        let mut endpoints = self.endpoints.borrow_and_update().clone();
        loop {
            let resolved = known.with(self.look_up(&endpoints).await);
            let failed = resolved.trouble.is_some();
            if self.daemon.send(Command::Resolved(resolved)).await.is_err() {
                return;
            }
            let has_names = endpoints.iter().any(|endpoint| endpoint.address().is_none());
            let pause = if failed {
                pauses.next(&mut self.rng)
            } else {
                pauses.reset();
                Duration::MAX
            };
            tokio::select! {
                changed = self.endpoints.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    endpoints = self.endpoints.borrow_and_update().clone();
                    known = Known::default();
                }
                wish = self.wishes.recv(), if has_names => if wish.is_none() { return },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Looks up every endpoint.
    async fn look_up(&self, endpoints: &[HostPort]) -> Vec<Answer> {
        let named = endpoints.iter().filter(|endpoint| endpoint.address().is_none());
        let names: Vec<String> = named
            .map(|endpoint| endpoint.host.trim_end_matches('.').to_ascii_lowercase())
            .collect();
        let can_ask = names.is_empty() || self.set_bypass(true, &names).await;
        let refused = self.locked && !can_ask;
        let mut answers = Vec::new();
        for endpoint in endpoints {
            let answer = look_up(endpoint).await;
            answers.push(answer.map_err(|why| if refused { why + REFUSED } else { why }));
        }
        if !names.is_empty() {
            self.set_bypass(false, &[]).await;
        }
        answers
    }

    /// Waits until these names are looked up outside the tunnel, or none any more. Returns whether there is a name server to ask.
    async fn set_bypass(&self, on: bool, names: &[String]) -> bool {
        let (done, is_done) = oneshot::channel();
        // Both fail only while the daemon ends.
        match self.bypass.send(Bypass { on, names: names.to_vec(), done }).await {
            Ok(()) => is_done.await.unwrap_or(true),
            Err(_) => true,
        }
    }
}

/// The usable addresses of one endpoint, or what failed, for people.
type Answer = Result<Vec<SocketAddr>, String>;

/// The last addresses of each endpoint, in the order of the config.
#[derive(Debug, Default)]
struct Known(Vec<Vec<SocketAddr>>);

impl Known {
    /// What is known with these answers, one for each endpoint.
    fn with(&mut self, answers: Vec<Answer>) -> Resolved {
        self.0.resize(answers.len(), Vec::new());
        let mut troubles = Vec::new();
        for (known, answer) in self.0.iter_mut().zip(answers) {
            match answer {
                Ok(found) => *known = found,
                Err(trouble) => troubles.push(trouble),
            }
        }
        let trouble = (!troubles.is_empty()).then(|| troubles.join("; "));
        let addresses = usable(self.0.iter().flatten().copied());
        Resolved { addresses, each: self.0.clone(), trouble }
    }
}

async fn look_up(endpoint: &HostPort) -> Answer {
    if let Some(address) = endpoint.address() {
        return Ok(vec![address]);
    }
    let HostPort { host, port } = endpoint;
    let lookup = tokio::net::lookup_host((host.as_str(), *port));
    match tokio::time::timeout(LOOKUP_TIME, lookup).await {
        Ok(Ok(found)) => {
            let found: Vec<_> = usable(found);
            if found.is_empty() { Err(format!("{host} has no usable address")) } else { Ok(found) }
        }
        Ok(Err(error)) => Err(format!("cannot resolve {host}: {error}")),
        Err(_) => Err(format!("cannot resolve {host}: no answer from the name servers")),
    }
}

/// What can be sent to from any link, each once.
fn usable(found: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut usable = Vec::new();
    for address in found {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let is_usable = unusable(address.ip()).is_none();
        if is_usable && !usable.contains(&address) && usable.len() < MAX_ADDRESSES {
            usable.push(address);
        }
    }
    usable
}

/// The name servers of these files that are not this machine itself.
pub(crate) fn name_servers(files: &[impl AsRef<Path>]) -> Vec<IpAddr> {
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let mut servers = Vec::new();
    for text in texts {
        for server in servers_in(&text).filter(|server| !server.is_loopback()) {
            if !servers.contains(&server) && servers.len() < MAX_SERVERS {
                servers.push(server);
            }
        }
    }
    servers
}

/// The name servers that a text of `resolv.conf(5)` names.
pub(crate) fn servers_in(text: &str) -> impl Iterator<Item = IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_mean_another_machine_on_each_link_are_left_out() {
        let table = [
            ("203.0.113.5:1", Some("203.0.113.5:1")),
            ("[2001:db8::5]:1", Some("[2001:db8::5]:1")),
            ("[fd00::5]:1", Some("[fd00::5]:1")),
            ("[::ffff:203.0.113.5]:1", Some("203.0.113.5:1")),
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("[fe80::5]:1", None),
            ("169.254.1.1:1", None),
            ("0.0.0.0:1", None),
            ("[::]:1", None),
            ("224.0.0.1:1", None),
            ("[ff02::1]:1", None),
            ("255.255.255.255:1", None),
        ];
        for (found, expected) in table {
            let expected: Vec<SocketAddr> =
                expected.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(usable([found.parse().unwrap()]), expected, "{found}");
        }
    }

    #[test]
    fn a_name_that_cannot_be_resolved_for_a_while_keeps_its_addresses() {
        let answer = |text: &str| -> Answer {
            let words = text.split_whitespace();
            words.map(|word| word.parse().map_err(|_| text.to_owned())).collect()
        };
        let mut known = Known::default();
        // The answers for two names; the addresses then known; the trouble.
        let table = [
            (["10.0.0.1:1", "no b"], "10.0.0.1:1", Some("no b")),
            (["10.0.0.1:1", "10.0.0.2:2"], "10.0.0.1:1 10.0.0.2:2", None),
            (["no a", "10.0.0.3:3"], "10.0.0.1:1 10.0.0.3:3", Some("no a")),
            (["no a", "no b"], "10.0.0.1:1 10.0.0.3:3", Some("no a; no b")),
            (["10.0.0.4:4", "no b"], "10.0.0.4:4 10.0.0.3:3", Some("no b")),
        ];
        for (answers, addresses, trouble) in table {
            let resolved = known.with(answers.map(answer).into());
            assert_eq!(resolved.addresses, answer(addresses).unwrap(), "{answers:?}");
            assert_eq!(resolved.trouble.as_deref(), trouble, "{answers:?}");
        }
    }

    #[test]
    fn each_address_is_kept_once_in_order_and_their_number_is_bounded() {
        let address = |port: u16| SocketAddr::from(([203, 0, 113, 5], port));
        let found = (1..100).chain(1..100).map(address);
        let kept = usable(found);
        assert_eq!(kept, (1..=32).map(address).collect::<Vec<_>>());
    }

    #[test]
    fn name_servers_are_read_from_every_file_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "# nameserver 1.2.3.4\nsearch x\nnameserver 127.0.0.53\n").unwrap();
        std::fs::write(&two, "nameserver 192.0.2.53\nnameserver\t2001:db8::53 \nnameserver ?\n")
            .unwrap();
        let servers = name_servers(&[one, folder.path().join("none"), two]);
        let expected: [IpAddr; 2] = ["192.0.2.53", "2001:db8::53"].map(|ip| ip.parse().unwrap());
        assert_eq!(servers, expected);
    }
}
