//! Whether UDP is answered again on a network that goes over TLS.
//!
//! The question is the one of `ropewalk doctor`: it touches no session and no link of the core, and a proxy answers it to
//! everybody who knows its public key. A few datagrams each time.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ropewalk_link_io::udp::Bound;
use ropewalk_proto::crypto::handshake::inquiry::Inquiry;
use ropewalk_proto::units::SessionIndex;
use ropewalk_settings::PublicKey;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Command;
use crate::App;

/// How long an answer may take, and how often is asked: a satellite's round trip is 0.6 s.
const PATIENCE: Duration = Duration::from_millis(800);
const TRIES: u32 = 3;

/// Bytes of a question: the size does not matter.
const LENGTH: usize = 64;

/// What is asked, and where.
#[derive(Debug)]
pub(super) struct Question {
    /// The app's number for the network.
    pub(super) network: u64,
    /// Our addresses on it, each with those of the proxy in its family.
    pub(super) ways: Vec<(IpAddr, Vec<SocketAddr>)>,
    /// The proxy's key.
    pub(super) proxy: PublicKey,
    /// The number of the first try; the others have those behind it. Nobody else is to know it.
    pub(super) index: u32,
}

/// Asks, and tells the loop of an answer.
pub(super) async fn ask(app: Arc<dyn App>, question: Question, commands: mpsc::Sender<Command>) {
    let Question { network, ways, proxy, index } = question;
    for (source, remotes) in ways {
        // Where no socket can be bound there is no UDP.
        let Ok(socket) = open(&*app, network, source) else { continue };
        for more in 0..TRIES {
            let index = SessionIndex::new(index.wrapping_add(more));
            let inquiry = Inquiry::new(&proxy, index, LENGTH);
            if is_answered(&socket, &remotes, &inquiry).await {
                // Full: it is asked again in a minute.
                let _ = commands.try_send(Command::UdpAnswers(network));
                return;
            }
        }
    }
}

fn open(app: &dyn App, network: u64, source: IpAddr) -> io::Result<UdpSocket> {
    let bound = Bound::prepared(source, &mut |socket| app.bind_socket(socket, network));
    UdpSocket::from_std(StdUdpSocket::from(bound.map_err(io::Error::other)?))
}

/// Asks at all these addresses, and waits for one answer.
async fn is_answered(socket: &UdpSocket, remotes: &[SocketAddr], inquiry: &Inquiry) -> bool {
    for remote in remotes {
        // What cannot be sent is not answered.
        let _ = socket.send_to(inquiry.datagram(), *remote).await;
    }
    let answer = async {
        let mut buffer = [0; 2048];
        loop {
            match socket.recv_from(&mut buffer).await {
                Ok((length, _)) if inquiry.is_answer(&buffer[..length]) => return true,
                // Somebody else's, or an answer to the try before.
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    };
    timeout(PATIENCE, answer).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ropewalk_proto::crypto::handshake::{Inspected, Responder};
    use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
    use tokio::runtime::Builder;

    use super::*;

    /// Binds nothing, and counts.
    #[derive(Default)]
    struct Quiet(AtomicUsize);

    impl App for Quiet {
        fn bind_socket(&self, _socket: BorrowedFd<'_>, network: u64) -> io::Result<()> {
            assert_eq!(network, 77);
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn on_event(&self, _event: &str) {}
    }

    #[test]
    fn an_answer_is_told_and_the_silence_of_another_proxy_is_not() {
        let secret = StaticSecret::from_bytes([1; 32]);
        let key = secret.public();
        let other = StaticSecret::from_bytes([2; 32]).public();
        let run = Builder::new_current_thread().enable_all().build().unwrap();
        run.block_on(async {
            let proxy = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let at = proxy.local_addr().unwrap();
            tokio::spawn(async move {
                let ciphers = CipherSet::offered(Capabilities { aes: true });
                let responder = Responder::new(secret, ciphers);
                let mut buffer = [0; 2048];
                loop {
                    let (length, from) = proxy.recv_from(&mut buffer).await.unwrap();
                    let asked = responder.inspect(&buffer[..length]);
                    if let Ok(Inspected::OtherVersion(other)) = asked {
                        let answer = responder.versions_answer(&other).unwrap();
                        proxy.send_to(&answer, from).await.unwrap();
                    }
                }
            });
            for (proxy, expected) in [(key, true), (other, false)] {
                let app = Arc::new(Quiet::default());
                let ways = vec![([127, 0, 0, 1].into(), vec![at])];
                let question = Question { network: 77, ways, proxy, index: u32::MAX };
                let (sender, mut told) = mpsc::channel(1);
                ask(app.clone(), question, sender).await;
                let told = told.try_recv().ok();
                assert_eq!(matches!(told, Some(Command::UdpAnswers(77))), expected, "{told:?}");
                assert_eq!(app.0.load(Ordering::Relaxed), 1, "one socket, bound by the app");
            }
        });
    }
}
