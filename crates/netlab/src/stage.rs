//! A network with everything on it: the emulated Internet, a real HTTP server beyond the proxy, and the
//! daemons of the real program. What demo, proofs and scenarios of the kernel stand on.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::address::{SERVER_V4, SERVER_V6, client_interface, gateway_v4};
use crate::deployment::{CLIENT_TUN, Deployment};
use crate::download::{Curl, Download};
use crate::emulator::Bound;
use crate::error::LabError;
use crate::http::HttpServer;
use crate::limit::UDP_HEADERS;
use crate::namespace::Namespace;
use crate::scenario::file::{CALL_LEN, CALL_MBIT};
use crate::status::Status;
use crate::stream::FIRST_FLOW;
use crate::tally::UdpReceived;
use crate::topology::{Ipv6, Topology, TopologyConfig};
use crate::traffic::{UdpReceiver, UdpSender};

/// The congestion control of every TCP connection that is measured: the one most hosts use.
pub const CONGESTION: &str = "cubic";

/// The client's routing table of what goes into the tunnel (docs/operations/client-system.md).
const TUNNEL_TABLE: u32 = 7700;
/// An inner MTU that stayed for this long is taken as found: several round trips of any link here.
const SETTLED: Duration = Duration::from_millis(1500);
const SETTLED_WITHIN: Duration = Duration::from_secs(15);

/// Who is told what goes on.
pub trait Progress {
    /// A step was taken.
    fn say(&self, what: &str);

    /// A transfer has come so far.
    fn show(&self, what: &str, elapsed: Duration, bytes: u64) {
        let _ = (what, elapsed, bytes);
    }

    /// A transfer is over.
    fn finish(&self, what: &str) {
        self.say(what);
    }
}

/// Everything that runs. Dropped, it is gone.
#[derive(Debug)]
pub struct Stage {
    // Daemons end before their network does.
    pub(crate) deployment: Deployment,
    pub(crate) server: HttpServer,
    pub(crate) server_v6: Option<HttpServer>,
    pub(crate) topology: Topology,
}

impl Stage {
    /// Builds the network with its server; the daemons are configured and not started.
    ///
    /// # Errors
    /// When the network cannot be built, or `program` makes no keys.
    pub fn build(program: &Path, config: &TopologyConfig) -> Result<Self, LabError> {
        let topology = Topology::build(config)?;
        let server = serve(&topology, SERVER_V4.into())?;
        let server_v6 = match config.ipv6 {
            Ipv6::Off => None,
            Ipv6::Routed | Ipv6::Masqueraded => Some(serve(&topology, SERVER_V6.into())?),
        };
        let deployment = Deployment::prepare(&topology, program)?;
        Ok(Self { deployment, server, server_v6, topology })
    }

    /// Starts the proxy, then the client with these WANs, and waits until all of them are up.
    ///
    /// # Errors
    /// When a daemon ends or the links do not come up in time; with the end of its log.
    pub fn start(&mut self, wans: impl IntoIterator<Item = u8>) -> Result<Status, LabError> {
        self.deployment.start_proxy(&self.topology)?;
        self.connect(wans)
    }

    /// Starts the client (again) with these WANs only, and waits until all of them are up.
    ///
    /// # Errors
    /// As [`Stage::start`].
    pub fn connect(&mut self, wans: impl IntoIterator<Item = u8>) -> Result<Status, LabError> {
        let wans: Vec<u8> = wans.into_iter().collect();
        self.deployment.stop_client(0)?;
        self.deployment.set_links(0, wans.iter().copied());
        self.deployment.start_client(&self.topology, 0)?;
        self.deployment.wait_up(0, wans.len()).map(Status)
    }

    /// The longest inner packet in bytes, once the search for each path's MTU has come to rest.
    ///
    /// # Errors
    /// When the client does not answer, or still knows none or another one after 15 s.
    pub fn settled_mtu(&self) -> Result<u16, LabError> {
        let started = Instant::now();
        let mut before = None;
        while started.elapsed() < SETTLED_WITHIN {
            let now = self.client_status()?.inner_mtu();
            match now {
                Some(mtu) if now == before => return Ok(mtu),
                _ => before = now,
            }
            thread::sleep(SETTLED);
        }
        Err(LabError::TooLate {
            what: "a steady inner MTU".into(),
            seconds: SETTLED_WITHIN.as_secs_f64(),
            detail: format!("; the last one was {before:?}"),
        })
    }

    /// The daemons.
    pub fn deployment(&mut self) -> &mut Deployment {
        &mut self.deployment
    }

    /// The daemons and the network, to change one while something runs in the other.
    pub fn split(&mut self) -> (&mut Deployment, &Topology) {
        (&mut self.deployment, &self.topology)
    }

    /// The network.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The network, to make its routers misbehave.
    pub fn topology_mut(&mut self) -> &mut Topology {
        &mut self.topology
    }

    /// Starts the proxy (again).
    ///
    /// # Errors
    /// When it ends early or does not answer in time; with the end of its log.
    pub fn start_proxy(&mut self) -> Result<(), LabError> {
        self.deployment.start_proxy(&self.topology)
    }

    /// What the client says.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn client_status(&self) -> Result<Status, LabError> {
        self.deployment.client_status(0).map(Status)
    }

    /// What the proxy says.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn proxy_status(&self) -> Result<Status, LabError> {
        self.deployment.proxy_status().map(Status)
    }

    /// The URL of a body on the server.
    #[must_use]
    pub fn url(&self, bytes: u64, seed: u64) -> String {
        self.server.url(bytes, seed)
    }

    /// The same, sent by a socket with this congestion control.
    #[must_use]
    pub fn url_using(&self, congestion: &str, bytes: u64, seed: u64) -> String {
        format!("{}/{congestion}", self.url(bytes, seed))
    }

    /// The same over IPv6; `None` where the network has none.
    #[must_use]
    pub fn url_v6(&self, bytes: u64, seed: u64) -> Option<String> {
        self.server_v6.as_ref().map(|server| server.url(bytes, seed))
    }

    /// Downloads a body to the client, as its routes say.
    ///
    /// # Errors
    /// When curl cannot be started.
    pub fn download(
        &self,
        bytes: u64,
        seed: u64,
        limit: Duration,
        what: &str,
        progress: &dyn Progress,
    ) -> Result<Download, LabError> {
        self.fetch(&self.url(bytes, seed), limit, what, progress)
    }

    /// Downloads `url` to the client, as its routes say.
    ///
    /// # Errors
    /// When curl cannot be started.
    pub fn fetch(
        &self,
        url: &str,
        limit: Duration,
        what: &str,
        progress: &dyn Progress,
    ) -> Result<Download, LabError> {
        let curl = Curl { interface: None, limit: Some(limit) };
        let started = Instant::now();
        let show = |bytes| progress.show(what, started.elapsed(), bytes);
        let download = curl.download(self.topology.client(), url, show)?;
        progress.finish(&format!("{what}: {:.2} Mbit/s", download.mbit));
        Ok(download)
    }

    /// What the server's sockets use, read back through the tunnel.
    ///
    /// # Errors
    /// When the server cannot be reached, or does not use [`CONGESTION`].
    pub fn check_congestion(&self) -> Result<(), LabError> {
        let url = self.url(0, 0);
        let head = ["--silent", "--max-time", "10", "--head", "--request", "GET", &url];
        let head = self.topology.client().tool("curl", &head)?;
        let used = head.lines().find_map(|line| line.strip_prefix("X-Tcp-Congestion: "));
        match used.map(str::trim) {
            Some(CONGESTION) => Ok(()),
            other => Err(LabError::Unsupported(format!(
                "the server's sockets use {other:?} and not {CONGESTION}"
            ))),
        }
    }

    /// Makes the client's TCP connections to the server use this congestion control, by a route of their own into
    /// the tunnel or, where they are `bare`, over the first WAN. The default of a namespace cannot be set to one that
    /// the machine does not allow to everybody, and allowing it there would change the machine.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn route_uploads_through(&self, congestion: &str, bare: bool) -> Result<(), LabError> {
        let way = match bare {
            true => format!("via {} dev {}", gateway_v4(0, 0), client_interface(0)),
            false => format!("dev {CLIENT_TUN} table {TUNNEL_TABLE}"),
        };
        let client = self.topology.client();
        client.ip(&format!("route replace {SERVER_V4}/32 {way} congctl {congestion}"))
    }

    /// What the client's TCP connections to the server use, as its kernel says; empty while there are none.
    ///
    /// # Errors
    /// When `ss` cannot be started.
    pub fn uploads_use(&self) -> Result<String, LabError> {
        let server = SERVER_V4.to_string();
        let sockets = self.topology.client().tool("ss", &["-Htin", "dst", &server])?;
        let known = ["cubic", "bbr", "reno"];
        let words = sockets.split_whitespace().filter(|word| known.contains(word));
        let used: BTreeSet<&str> = words.collect();
        Ok(used.into_iter().collect::<Vec<_>>().join(" "))
    }

    /// A UDP stream of full packets to the client, which asks the server for it.
    ///
    /// # Errors
    /// When a socket fails.
    pub fn stream_down(
        &self,
        bits_per_second: u64,
        inner_mtu: u16,
        duration: Duration,
    ) -> Result<UdpReceived, LabError> {
        let (near, far, at) = self.stream_sockets(0)?;
        let size = usize::from(inner_mtu.saturating_sub(UDP_HEADERS));
        let sender = UdpSender { to: None, bits_per_second, size, duration };
        stream((&sender, &far), (&receiver(Some(at), duration), &near))
    }

    /// A UDP stream of full packets from the client to the server.
    ///
    /// # Errors
    /// When a socket fails.
    pub fn stream_up(
        &self,
        bits_per_second: u64,
        inner_mtu: u16,
        duration: Duration,
    ) -> Result<UdpReceived, LabError> {
        let (near, far, at) = self.stream_sockets(0)?;
        let size = usize::from(inner_mtu.saturating_sub(UDP_HEADERS));
        let sender = UdpSender { to: Some(at), bits_per_second, size, duration };
        stream((&sender, &near), (&receiver(None, duration), &far))
    }

    /// A call between client and server, as the routes say or out of one of the client's interfaces; what came down,
    /// and up.
    ///
    /// # Errors
    /// When a socket fails.
    pub fn call(
        &self,
        interface: Option<&str>,
        duration: Duration,
    ) -> Result<[UdpReceived; 2], LabError> {
        let down = self.stream_sockets(FIRST_FLOW)?;
        let up = self.stream_sockets(FIRST_FLOW + 1)?;
        if let Some(interface) = interface {
            for near in [&down.0, &up.0] {
                let bound = SockRef::from(near).bind_device(Some(interface.as_bytes()));
                bound.map_err(LabError::io("binding a call to an interface"))?;
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "80 kbit/s")]
        let whole = (CALL_MBIT * 1e6) as u64;
        let size = CALL_LEN - usize::from(UDP_HEADERS);
        // Of payload, so that packets keep their distance.
        let bits_per_second = whole * size as u64 / CALL_LEN as u64;
        let sender = |to| UdpSender { to, bits_per_second, size, duration };
        thread::scope(|scope| {
            let (near, far, at) = &up;
            let up = scope
                .spawn(|| stream((&sender(Some(*at)), near), (&receiver(None, duration), far)));
            let (near, far, at) = &down;
            let down = stream((&sender(None), far), (&receiver(Some(*at), duration), near))?;
            let up = up.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok([down, up])
        })
    }

    /// A socket at the client, one at the server at this port (0: any), and where that one is.
    fn stream_sockets(&self, port: u16) -> Result<(UdpSocket, UdpSocket, SocketAddr), LabError> {
        let bind = |namespace: &Namespace, to: SocketAddr| {
            namespace.run(|| UdpSocket::bind(to))?.map_err(LabError::io("a socket for a stream"))
        };
        let near = bind(self.topology.client(), ([0; 4], 0).into())?;
        let far = bind(self.topology.server(), (SERVER_V4, port).into())?;
        let at = far.local_addr().map_err(LabError::io("a socket for a stream"))?;
        Ok((near, far, at))
    }

    /// Why nothing may be concluded from what was measured so far; `None` if it is sound.
    ///
    /// # Errors
    /// When the emulator is gone.
    pub fn void_because(&self, bound: &Bound) -> Result<Option<String>, LabError> {
        let Some(emulator) = self.topology.emulator() else { return Ok(None) };
        Ok(emulator.report()?.void_because(bound))
    }
}

fn receiver(hello_to: Option<SocketAddr>, duration: Duration) -> UdpReceiver {
    let limit = duration * 2 + Duration::from_secs(5);
    // Links may carry nothing for a while: silence alone is the end only where it is longer than the stream.
    UdpReceiver { hello_to, quiet: duration, limit }
}

fn stream(
    (sender, from): (&UdpSender, &UdpSocket),
    (receiver, to): (&UdpReceiver, &UdpSocket),
) -> Result<UdpReceived, LabError> {
    thread::scope(|scope| {
        let sending = scope.spawn(|| sender.run(from));
        let received = receiver.run(to);
        match sending.join() {
            Ok(sent) => sent.and(received),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn serve(topology: &Topology, address: IpAddr) -> Result<HttpServer, LabError> {
    let listener = topology.server().run(|| TcpListener::bind((address, 80)))?;
    HttpServer::serve(listener.map_err(LabError::io("the HTTP server's socket"))?, CONGESTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_silence_within_a_streams_time_is_its_end() {
        for seconds in [1, 30, 60] {
            let duration = Duration::from_secs(seconds);
            let receiver = receiver(None, duration);
            assert!(receiver.quiet >= duration && receiver.limit > duration + receiver.quiet);
        }
    }
}
