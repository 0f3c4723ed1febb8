//! Whether the proxy's name has an address.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::finding::Finding;
use super::quoting;
use ropewalk_settings::HostPort;

/// Longer than the system's resolver asks, with its usual two tries of two servers.
const PATIENCE: Duration = Duration::from_secs(12);

/// A configured address of the proxy, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// As the config has it.
    pub(super) endpoint: String,
    /// Whether it is a name.
    pub(super) is_name: bool,
    /// Its addresses, or why there are none.
    pub(super) addresses: Result<Vec<SocketAddr>, String>,
}

/// Looks all of them up, beside each other.
pub(super) fn look(endpoints: &[HostPort]) -> Vec<Named> {
    let asked: Vec<_> = endpoints.iter().map(|endpoint| (endpoint, ask(endpoint))).collect();
    asked
        .into_iter()
        .map(|(endpoint, answer)| Named {
            endpoint: endpoint.to_string(),
            is_name: endpoint.address().is_none(),
            addresses: answer
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs()))),
        })
        .collect()
}

/// On a thread of its own: a look-up cannot be interrupted.
fn ask(endpoint: &HostPort) -> mpsc::Receiver<Result<Vec<SocketAddr>, String>> {
    let (answer, answered) = mpsc::channel();
    if let Some(address) = endpoint.address() {
        // The other end is at hand.
        let _ = answer.send(Ok(vec![address]));
        return answered;
    }
    let (host, port) = (endpoint.host.clone(), endpoint.port);
    thread::spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs();
        let found = found.map(Iterator::collect).map_err(|error| error.to_string());
        // Nobody may wait any more.
        let _ = answer.send(found);
    });
    answered
}

pub(super) fn judge(named: &[Named], file: &Path) -> Vec<Finding> {
    let one = |named: &Named| {
        let Named { endpoint, is_name, addresses } = named;
        match addresses {
            Ok(found) if !found.is_empty() => {
                let shown: Vec<_> = found.iter().map(|found| found.ip().to_string()).collect();
                is_name.then(|| {
                    Finding::ok(
                        "name",
                        "proxy's name",
                        format!("{endpoint} is {}", shown.join(", ")),
                    )
                })
            }
            other => {
                let why = other.as_ref().err().map_or("no address", String::as_str);
                let host = endpoint.rsplit_once(':').map_or(endpoint.as_str(), |(host, _)| host);
                let found = format!("{endpoint} has no address: {why}");
                Some(
                    Finding::fail("name.unknown", "proxy's name", found, format!("getent ahosts {}", quoting::quoted(host)))
                        .or(format!("sudoedit {}", quoting::file(file)))
                        .advise("ask your name server; if the name stays unknown, put the proxy's ADDRESS in its place:"),
                )
            }
        }
    };
    named.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_an_address_is_told_and_an_address_needs_none() {
        let named =
            |is_name, addresses| Named { endpoint: "vps.example:51900".into(), is_name, addresses };
        let there: SocketAddr = "203.0.113.2:51900".parse().unwrap();
        let table = [
            (true, Ok(vec![there]), Some("name")),
            (false, Ok(vec![there]), None),
            (true, Ok(vec![]), Some("name.unknown")),
            (true, Err("not known".to_owned()), Some("name.unknown")),
        ];
        for (is_name, addresses, id) in table {
            let findings = judge(&[named(is_name, addresses.clone())], Path::new("/c.toml"));
            assert_eq!(findings.first().map(|one| one.id), id, "{addresses:?}");
        }
        let findings = judge(&[named(true, Err("x".to_owned()))], Path::new("/c.toml"));
        assert_eq!(findings[0].commands[1], "sudoedit /c.toml");
    }
}
