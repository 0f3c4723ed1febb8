//! What is opened for each worker before it starts: its socket at each port, its queue of the TUN.
//!
//! Where the system cannot share a port or a TUN among several, there is one worker, and that is said once.

use std::time::Duration;

use ropewalk_link_io::tun::{TunError, TunOptions, TunQueue};
use ropewalk_link_io::udp::{Bound, OpenError, ProxySocket, open_group};

use crate::config::Config;
use crate::network::TUN_MTU;
use crate::port;

/// How often, and after which pauses, a port that is in use is asked for again: a proxy that was killed in the moment in
/// which it started a program (`nft`) holds it for some milliseconds more.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// How the sockets of so many workers at one port are opened.
type OpenGroup = fn(&ProxySocket, u16) -> Result<Vec<Bound>, OpenError>;

/// The resources of all workers.
#[derive(Debug)]
pub struct WorkerResources {
    workers: u16,
    /// By port, then by worker.
    ports: Vec<(u16, Vec<Bound>)>,
}

impl WorkerResources {
    /// Opens the sockets of all workers.
    ///
    /// # Errors
    /// A port is taken or forbidden; what to do.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        Self::open_by(config, config.workers.count(), open_group)
    }

    fn open_by(config: &Config, workers: u16, open: OpenGroup) -> anyhow::Result<Self> {
        let all = std::iter::once(config.listen.port()).chain(config.more_ports.iter().copied());
        let opened = all.map(|port| Ok((port, open_port(config, port, workers, open)?)));
        match opened.collect::<anyhow::Result<_>>() {
            Ok(ports) => Ok(Self { workers, ports }),
            Err(error) if workers > 1 && lacks_steering(&error) => {
                tracing::warn!("one worker, not {workers}: {error}");
                Self::open_by(config, 1, open)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the TUN with a queue for each worker.
    ///
    /// # Errors
    /// The TUN is taken, or there is none; what to do. Or a port was taken meanwhile.
    pub fn open_tun(&mut self, config: &Config) -> anyhow::Result<Vec<TunQueue>> {
        let options = TunOptions {
            name: config.tun_name.as_str().to_owned(),
            mtu: TUN_MTU,
            offload: config.tunnel.offload.tun,
        };
        match TunQueue::open(&options, self.workers) {
            Err(error @ TunError::OneQueue { .. }) => {
                tracing::warn!("one worker, not {}: {error}", self.workers);
                self.ports.clear();
                *self = Self::open_by(config, 1, open_group)?;
                Ok(TunQueue::open(&options, 1)?)
            }
            opened => Ok(opened?),
        }
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// The ports, in the order of the sockets.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().map(|(port, _)| *port)
    }

    /// The sockets of each worker, in the order of the ports.
    #[must_use]
    pub fn into_sockets(self) -> Vec<Vec<Bound>> {
        let mut by_worker: Vec<Vec<_>> = (0..self.workers).map(|_| Vec::new()).collect();
        for (_, group) in self.ports {
            by_worker.iter_mut().zip(group).for_each(|(sockets, socket)| sockets.push(socket));
        }
        by_worker
    }
}

fn lacks_steering(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::NoSteering { .. }))
}

fn open_port(
    config: &Config,
    port: u16,
    workers: u16,
    open: OpenGroup,
) -> anyhow::Result<Vec<Bound>> {
    let address = config.listen.ip();
    // The unspecified IPv6 address means both families, whatever the host's settings are.
    let every = address.is_unspecified() && address.is_ipv6();
    let options = ProxySocket { address: (!every).then_some(address), port };
    let mut opened = open(&options, workers);
    for _ in 1..TRIES {
        if !matches!(opened, Err(OpenError::InUse { .. })) {
            break;
        }
        std::thread::sleep(PAUSE);
        opened = open(&options, workers);
    }
    opened.map_err(|error| {
        let holder = match error {
            OpenError::InUse { .. } => port::holder(port),
            _ => None,
        };
        match holder {
            Some(holder) => anyhow::Error::new(error).context(format!("{holder} holds the port")),
            None => error.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
    use std::io;
    use std::net::UdpSocket;
    use std::path::Path;

    /// A config with a free port of the loopback interface.
    fn config() -> Config {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n\
             listen = \"127.0.0.1:{free}\"\nworkers = 3\n"
        );
        Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    #[test]
    fn each_worker_has_a_socket_at_each_port() {
        let resources = WorkerResources::open(&config()).unwrap();
        assert_eq!((resources.workers(), resources.ports().count()), (3, 1));
        let sockets = resources.into_sockets();
        assert_eq!(sockets.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(sockets.iter().all(|own| own[0].address() == sockets[0][0].address()));
    }

    #[test]
    fn a_kernel_that_does_not_steer_gives_one_worker() {
        let refusing: OpenGroup = |options, workers| match workers {
            1 => open_group(options, 1),
            _ => Err(OpenError::NoSteering { source: io::ErrorKind::PermissionDenied.into() }),
        };
        let resources = WorkerResources::open_by(&config(), 3, refusing).unwrap();
        assert_eq!(resources.workers(), 1);
        assert_eq!(resources.into_sockets()[0].len(), 1);
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_with_any_number_of_workers() {
        let config = config();
        let _holder = UdpSocket::bind(config.listen).unwrap();
        let error = format!("{:#}", WorkerResources::open(&config).unwrap_err());
        let holds = format!("(process {}) holds the port", std::process::id());
        assert!(error.contains(&holds) && error.contains("in use"), "{error}");
    }
}
