//! Two user-space WireGuards with one peer each, set up as their manuals say.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::process::Process;
use ropewalk_netlab::tool;

use super::contender::Kind;
use super::network::{Network, PROXY};

/// The inner addresses of both ends.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// What every WireGuard uses.
const MTU: u16 = 1420;
const PORT: u16 = 51_820;
/// How long a start may take.
const SOON: Duration = Duration::from_secs(10);

/// Both ends, up.
pub(super) struct Pair {
    pub(super) near: Process,
    pub(super) far: Process,
    /// The far end's inner address.
    pub(super) inner: Ipv4Addr,
}

impl Pair {
    pub(super) fn start(
        kind: Kind,
        program: &Path,
        network: &Network,
        folder: &Path,
    ) -> Result<Self> {
        let near_key = key(folder, "near")?;
        let far_key = key(folder, "far")?;
        // The sockets by which they are configured lie in one folder: names must differ.
        let (near_name, far_name) = ("rwbnear", "rwbfar");
        let far = daemon(kind, program, &network.proxy, folder, far_name)?;
        let near = daemon(kind, program, &network.client, folder, near_name)?;
        let file = |name: &str| folder.join(name).display().to_string();
        let port = PORT.to_string();
        let (near_file, far_file) = (file("near"), file("far"));
        tool::run(
            "wg",
            &[
                "set",
                far_name,
                "listen-port",
                &port,
                "private-key",
                &far_file,
                "peer",
                &near_key,
                "allowed-ips",
                &format!("{NEAR}/32"),
            ],
        )?;
        tool::run(
            "wg",
            &[
                "set",
                near_name,
                "private-key",
                &near_file,
                "peer",
                &far_key,
                "endpoint",
                &format!("{PROXY}:{PORT}"),
                "allowed-ips",
                "0.0.0.0/0",
            ],
        )?;
        let up = |host: &Namespace, name: &str, own: Ipv4Addr| {
            host.ip(&format!("addr add {own}/24 dev {name}\nlink set {name} mtu {MTU} up"))
        };
        up(&network.proxy, far_name, FAR)?;
        up(&network.client, near_name, NEAR)?;
        network.client.ip(&format!("route add 192.0.2.0/24 dev {near_name}"))?;
        Ok(Self { near, far, inner: FAR })
    }
}

/// Makes a private key in a file and returns the public one.
fn key(folder: &Path, name: &str) -> Result<String> {
    let private = tool::run("wg", &["genkey"])?;
    let path = folder.join(name);
    std::fs::write(&path, &private).with_context(|| format!("writing {}", path.display()))?;
    Ok(tool::feed("wg", &["pubkey"], &private)?.trim().to_owned())
}

/// Starts one end and waits until it can be configured.
fn daemon(
    kind: Kind,
    program: &Path,
    host: &Namespace,
    folder: &Path,
    name: &str,
) -> Result<Process> {
    let options: &[&str] = match kind {
        Kind::WireguardGo => &["--foreground", name],
        Kind::Boringtun => &["--foreground", "--disable-drop-privileges", name],
        Kind::Veth | Kind::Ropewalk => bail!("{kind:?} is no WireGuard"),
    };
    let mut process = Process::start(host, folder, name, program, options)?;
    process.wait_until("its control socket", SOON, || tool::run("wg", &["show", name]).is_ok())?;
    Ok(process)
}
