//! A connection of the client: TCP by one interface, TLS over it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// The interface that everything leaves and comes by (`SO_BINDTODEVICE`).
    pub interface: String,
    /// Our addresses on it, one of each family that it has.
    pub sources: Vec<IpAddr>,
    /// Firewall mark for the rules that choose a routing table, where it may be set.
    pub mark: Option<u32>,
    /// The proxy's TCP port.
    pub port: u16,
    /// The names by which the config knows addresses of proxies: they are told in the handshake (SNI), as a browser
    /// does.
    pub names: Vec<(IpAddr, String)>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// Our interface has no address of the family.
    #[error("the interface has no address of the family of {0}")]
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

    /// A socket that leaves by the interface and no other.
    fn socket(&self, proxy: IpAddr) -> Result<TcpSocket, DialError> {
        let address = SocketAddr::new(proxy, self.port);
        let same = |source: &&IpAddr| source.is_ipv4() == proxy.is_ipv4();
        let source = self.sources.iter().find(same).ok_or(DialError::NoSource(proxy))?;
        let open = || -> io::Result<TcpSocket> {
            let kind = Type::STREAM.nonblocking().cloexec();
            let raw = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
            raw.bind_device(Some(self.interface.as_bytes()))?;
            if let Some(mark) = self.mark {
                raw.set_mark(mark)?;
            }
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
            interface: "lo".to_owned(),
            sources: vec!["127.0.0.1".parse().unwrap()],
            mark: None,
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
    fn a_family_that_the_interface_does_not_have_is_told() {
        let proxy: IpAddr = "2001:db8::1".parse().unwrap();
        let error = dial(&[]).socket(proxy).unwrap_err().to_string();
        assert_eq!(error, "the interface has no address of the family of 2001:db8::1");
    }
}
