//! A connection of the client: TCP by one network, TLS over it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::carry::{End, receive};
use crate::frame::{self, Reader, is_length};
use crate::tcp::tune;
use crate::trust::connector;

/// How long TCP and TLS may take together: three round trips of the longest path, with a lost segment in each.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a link's connections are made.
#[derive(Clone, Debug)]
pub struct Dial {
    /// The network that everything leaves and comes by.
    pub binding: Binding,
    /// Our addresses on it, one of each family that it has.
    pub sources: Vec<IpAddr>,
    /// The proxy's TCP port.
    pub port: u16,
    /// The names by which the config knows addresses of proxies: they are told in the handshake (SNI), as a browser
    /// does.
    pub names: Vec<(IpAddr, String)>,
}

/// How a socket is bound to its network before it is used.
#[derive(Clone)]
pub enum Binding {
    /// To an interface.
    Interface {
        /// Its name (`SO_BINDTODEVICE`).
        name: String,
        /// Firewall mark for the rules that choose a routing table, where it may be set.
        mark: Option<u32>,
    },
    /// As somebody else does it, where a program may not do so itself.
    Prepared(Prepare),
}

/// Binds a socket to its network.
pub type Prepare = Arc<dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync>;

impl Binding {
    fn bind(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Interface { name, mark } => {
                socket.bind_device(Some(name.as_bytes()))?;
                mark.map_or(Ok(()), |mark| socket.set_mark(mark))
            }
            // What is said there says nothing of the proxy, whatever its kind is.
            Self::Prepared(prepare) => prepare(socket.as_fd()).map_err(|error| {
                io::Error::other(format!("the socket was not bound to its network: {error}"))
            }),
        }
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface { name, mark } => {
                f.debug_struct("Interface").field("name", name).field("mark", mark).finish()
            }
            Self::Prepared(_) => f.debug_tuple("Prepared").finish_non_exhaustive(),
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// We have no address of the family there.
    #[error("this network has no address of the family of {0}")]
    NoSource(IpAddr),
    /// Nothing listens there.
    #[error(
        "TCP {0} refuses: the proxy takes no links over TLS there (`[tls]` in its proxy.toml), or a firewall forbids it"
    )]
    Refused(SocketAddr),
    /// Nothing came back in time.
    #[error("TCP {0} does not answer")]
    Silent(SocketAddr),
    /// This machine cannot reach it.
    #[error("TCP {address} cannot be reached: {source}")]
    Io {
        /// The proxy's.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// TCP works and TLS does not.
    #[error("TCP {address} answers, and not with TLS: {source}")]
    Tls {
        /// The proxy's.
        address: SocketAddr,
        /// What the library said.
        source: io::Error,
    },
    /// TLS works, and what is behind it is no proxy.
    #[error("TCP {address} answers: {why}")]
    NotOurs {
        /// The proxy's.
        address: SocketAddr,
        /// What came.
        why: String,
    },
    /// The connection was there, and is over.
    #[error("the connection to TCP {address} ended: {why}")]
    Ended {
        /// The proxy's.
        address: SocketAddr,
        /// What the system or the library said.
        why: String,
    },
}

impl Dial {
    /// Connects to this address of a proxy, at the port for TLS.
    pub(crate) async fn connect(
        &self,
        connector: &TlsConnector,
        proxy: IpAddr,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let address = SocketAddr::new(proxy, self.port);
        let connecting = async {
            let failed = |source| failed(address, source);
            let socket = self.socket(proxy)?;
            let stream = socket.connect(address).await.map_err(failed)?;
            let name = self.server_name(proxy);
            let done = connector.connect(name, stream).await;
            done.map_err(|source| DialError::Tls { address, source })
        };
        timeout(PATIENCE, connecting).await.unwrap_or(Err(DialError::Silent(address)))
    }

    /// A socket that leaves by the network and no other.
    fn socket(&self, proxy: IpAddr) -> Result<TcpSocket, DialError> {
        let address = SocketAddr::new(proxy, self.port);
        let same = |source: &&IpAddr| source.is_ipv4() == proxy.is_ipv4();
        let source = self.sources.iter().find(same).ok_or(DialError::NoSource(proxy))?;
        let open = || -> io::Result<TcpSocket> {
            let kind = Type::STREAM.nonblocking().cloexec();
            let raw = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
            self.binding.bind(&raw)?;
            raw.bind(&SocketAddr::new(*source, 0).into())?;
            tune(&SockRef::from(&raw));
            Ok(TcpSocket::from_std_stream(raw.into()))
        };
        open().map_err(|source| failed(address, source))
    }

    fn server_name(&self, proxy: IpAddr) -> ServerName<'static> {
        let name = self.names.iter().find(|(address, _)| *address == proxy);
        let name = name.and_then(|(_, name)| ServerName::try_from(name.clone()).ok());
        name.unwrap_or_else(|| ServerName::from(proxy))
    }
}

fn failed(address: SocketAddr, source: io::Error) -> DialError {
    match source.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => DialError::Refused(address),
        ErrorKind::TimedOut => DialError::Silent(address),
        _ => DialError::Io { address, source },
    }
}

/// Sends one datagram over a connection of its own, and waits for one that comes back and that `is_answer` takes, for
/// so long at most. Returns whether one came. For those who ask whether it would work.
///
/// # Errors
/// [`DialError`].
pub async fn exchange(
    dial: &Dial,
    proxy: IpAddr,
    datagram: &[u8],
    patience: Duration,
    is_answer: impl Fn(&[u8]) -> bool,
) -> Result<bool, DialError> {
    use tokio::io::AsyncWriteExt as _;

    let address = SocketAddr::new(proxy, dial.port);
    let unusable = |error| DialError::Tls { address, source: io::Error::other(error) };
    let mut stream = dial.connect(&connector().map_err(unusable)?, proxy).await?;
    if !is_length(datagram.len()) {
        return Ok(false);
    }
    let mut framed = Vec::new();
    frame::write(datagram, &mut framed);
    let answered = async {
        stream.write_all(&framed).await?;
        stream.flush().await?;
        let mut reader = Reader::new();
        while !is_answer(receive(&mut stream, &mut reader).await?) {}
        Ok::<(), End>(())
    };
    match timeout(patience, answered).await {
        Ok(Ok(())) => Ok(true),
        Err(_) => Ok(false),
        Ok(Err(End::Io(source))) => Err(DialError::Tls { address, source }),
        Ok(Err(end @ (End::Closed | End::NotOurs(_)))) => {
            Err(DialError::NotOurs { address, why: end.to_string() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dial(names: &[(&str, &str)]) -> Dial {
        Dial {
            binding: Binding::Interface { name: "lo".to_owned(), mark: None },
            sources: vec!["127.0.0.1".parse().unwrap()],
            port: 443,
            names: names
                .iter()
                .map(|(address, name)| (address.parse().unwrap(), (*name).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn a_name_of_the_config_is_told_and_an_address_is_not() {
        let dial = dial(&[("192.0.2.1", "vps.example.org"), ("192.0.2.2", "no name!")]);
        for (proxy, expected) in [
            ("192.0.2.1", "vps.example.org"),
            ("192.0.2.2", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            let name = dial.server_name(proxy.parse().unwrap());
            assert_eq!(name.to_str(), expected);
            assert_eq!(matches!(name, ServerName::DnsName(_)), expected.ends_with(".org"));
        }
    }

    #[test]
    fn a_family_that_the_network_does_not_have_is_told() {
        let proxy: IpAddr = "2001:db8::1".parse().unwrap();
        let error = dial(&[]).socket(proxy).unwrap_err().to_string();
        assert_eq!(error, "this network has no address of the family of 2001:db8::1");
    }
}
