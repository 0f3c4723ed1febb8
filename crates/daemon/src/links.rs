//! What a client changes when it opens or closes a link, and the sockets that stay open for a while.

use std::net::IpAddr;

use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::udp::Sockets;
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::fleet::FleetClient;
use ropewalk_proto::path::SocketId;
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::TlsUse;

/// What is under way on a link that is taken out on purpose arrives within this.
const LINGER: Duration = Duration::from_secs(1);

/// What is changed with the links.
pub struct LinkResources<'a, S> {
    /// Opened and closed here.
    pub sockets: &'a mut Sockets,
    /// Gets the links.
    pub client: &'a mut FleetClient,
    /// Takes the packets that waited for a link that goes.
    pub sink: &'a mut S,
    /// Sockets of links that were taken out.
    pub lingering: &'a mut Lingering,
    /// When and how links go over TLS.
    pub tls: TlsTerms<'a>,
}

impl<S: PacketSink> LinkResources<'_, S> {
    /// Takes a link out of the core, and closes its sockets: at once or, `on_purpose`, when what is under way has come.
    pub fn take_out(
        &mut self,
        now: Instant,
        key: LinkKey,
        sockets: impl IntoIterator<Item = SocketId>,
        on_purpose: bool,
    ) {
        // Taking a link out never fails.
        let _ = self.client.set_link(now, key, None, self.sink);
        for socket in sockets {
            if on_purpose {
                self.lingering.keep(now, socket);
            } else {
                self.sockets.close(socket);
            }
        }
    }
}

/// What is to be known of TLS, beside the link.
#[derive(Clone, Copy, Debug)]
pub struct TlsTerms<'a> {
    /// When links go over it.
    pub setting: TlsUse,
    /// The proxies' TCP port.
    pub port: u16,
    /// The names by which the config knows addresses of proxies.
    pub names: &'a [(IpAddr, String)],
    /// For the age of what waits.
    pub clock: Clock,
}

/// Sockets of links that were taken out, and until when they stay open for what is under way.
#[derive(Debug, Default)]
pub struct Lingering(Vec<(Instant, SocketId)>);

impl Lingering {
    fn keep(&mut self, now: Instant, socket: SocketId) {
        self.0.push((now + LINGER, socket));
    }

    /// Closes those whose time is over.
    pub fn close_due(&mut self, now: Instant, sockets: &mut Sockets) {
        self.0.retain(|(until, socket)| {
            if *until <= now {
                sockets.close(*socket);
            }
            *until > now
        });
    }

    /// When the next one is to be closed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|(until, _)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::task::{Context, Poll};

    use ropewalk_link_io::udp::Carrier;

    use super::*;

    /// Carries nothing.
    #[derive(Debug)]
    struct Nothing;

    impl Carrier for Nothing {
        fn send(&mut self, _now: Instant, _remote: SocketAddr, _datagram: &[u8]) -> bool {
            false
        }

        fn try_recv(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
            None
        }

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn trouble(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_socket_that_lingers_is_closed_once_its_time_is_over() {
        let mut sockets = Sockets::new(Clock::start());
        let [first, second] = [0, 1].map(|_| sockets.open_carried(Box::new(Nothing)).unwrap());
        let mut lingering = Lingering::default();
        assert_eq!(lingering.poll_timeout(), None);
        let (begin, later) = (Instant::from_millis(500), Instant::from_millis(700));
        lingering.keep(later, second);
        lingering.keep(begin, first);
        let is_open = |sockets: &Sockets| [first, second].map(|id| sockets.counters(id).is_some());
        for (due, expected) in [(begin + LINGER, [false, true]), (later + LINGER, [false, false])] {
            assert_eq!(lingering.poll_timeout(), Some(due));
            let before = is_open(&sockets);
            lingering.close_due(due - Duration::from_millis(1), &mut sockets);
            assert_eq!(is_open(&sockets), before, "not yet");
            lingering.close_due(due, &mut sockets);
            assert_eq!(is_open(&sockets), expected);
        }
        assert_eq!(lingering.poll_timeout(), None);
    }
}
