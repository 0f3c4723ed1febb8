//! The emulated Internet for a person, and a quick proof that it works here.

use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, SERVER_V4, client_interface, public_v4};
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::http::{HttpServer, body_sha256};
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::process::bound_to_parent;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;

use crate::args::TopologyArgs;

/// Queue of the access links: what their rate carries in this time.
const QUEUE: Duration = Duration::from_millis(100);

pub(crate) fn topology(options: &TopologyArgs) -> Result<()> {
    let wans = options.wans.iter().map(|(mbps, rtt_ms)| WanConfig {
        udp_timeout: options.udp_timeout.map(Into::into),
        ..access(*mbps, *rtt_ms).into()
    });
    let topology = Topology::build(&TopologyConfig::new(wans.collect()))?;
    for namespace in topology.namespaces() {
        println!("{}", namespace.name());
    }
    println!("up (process {}); proxy {PROXY_V4}, server {SERVER_V4}", std::process::id());
    if options.no_shell {
        // Until a signal, whose handler takes everything down.
        loop {
            thread::park();
        }
    }
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    println!("a shell in {}; leaving it takes everything down", topology.client().name());
    let mut shell: Command = bound_to_parent(shell);
    shell.env("PS1", "client# ");
    topology.client().spawn(shell)?.wait().context("waiting for the shell")?;
    Ok(())
}

pub(crate) fn selftest() -> Result<()> {
    const BYTES: u64 = 300_000;
    let wans = vec![access(8, 10).into(), access(2, 100).into()];
    let topology = Topology::build(&TopologyConfig::new(wans))?;
    let listener = topology.server().run(|| TcpListener::bind((SERVER_V4, 80)))??;
    let server = HttpServer::serve(listener, "cubic")?;
    for wan in [0, 1] {
        let curl = Curl { interface: Some(client_interface(wan)), ..Curl::default() };
        let download = curl.download(topology.client(), &server.url(BYTES, 1), |_| {})?;
        ensure!(download.sha256 == body_sha256(BYTES, 1), "the download was {download:?}");
        println!("wan{wan}: {BYTES} bytes at {:.2} Mbit/s", download.mbit);
    }
    let pinged = Ping::new(PROXY_V6.into(), 3).run(topology.client())?;
    ensure!(pinged.lost == 0, "IPv6 echoes: {pinged:?}");
    println!("IPv6: {:.1} ms", pinged.rtt.p50_ms);

    let near = topology.client().run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let far = topology.proxy().run(|| UdpSocket::bind((PROXY_V4, 0)))??;
    near.send_to(b"who am I", far.local_addr()?)?;
    far.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (_, from) = far.recv_from(&mut [0; 16]).context("a packet through the router")?;
    ensure!(from.ip() == public_v4(0, 0), "not masqueraded: {from}");
    println!("NAT: the client is seen as {from}");
    Ok(())
}

fn access(mbps: u64, rtt_ms: u64) -> Access {
    Access::symmetric(Bitrate::from_mbps(mbps), Duration::from_millis(rtt_ms), QUEUE)
}
