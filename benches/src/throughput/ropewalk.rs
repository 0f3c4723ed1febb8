//! The two daemons of the real program, between client and proxy.

use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ropewalk_netlab::deployment::PROXY_PORT;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::process::Process;
use ropewalk_netlab::status::Status;
use ropewalk_netlab::tool;
use toml::{Table, Value};

use super::contender::Contender;
use super::crowd::{Crowd, Keys};
use super::load::Values;
use super::network::{Network, PROXY, interface};
use super::usage::{Usage, resident};

/// How long a daemon may take for what it does at once.
const SOON: Duration = Duration::from_secs(20);
/// An inner MTU that stayed for this long is taken as found.
const SETTLED: Duration = Duration::from_millis(700);

/// Both ends, with all links up.
pub(super) struct Deployment {
    pub(super) near: Process,
    pub(super) far: Process,
    /// The proxy's inner address.
    pub(super) inner: Ipv4Addr,
    /// The others that the proxy has.
    pub(super) crowd: Option<Crowd>,
    /// What they cost it.
    pub(super) notes: Values,
}

impl Deployment {
    /// Starts both and waits until the links are up and the MTU has come to rest.
    pub(super) fn start(
        contender: &Contender,
        program: &Path,
        network: &Network,
        folder: &Path,
    ) -> Result<Self> {
        let at = |name: &str| folder.join(name).display().to_string();
        let keygen = |name: &str| -> Result<String> {
            let key = tool::run(&program.display().to_string(), &["keygen", &at(name)])?;
            Ok(key.trim().to_owned())
        };
        let (proxy_key, client_key) = (keygen("proxy.key")?, keygen("client.key")?);
        let mut proxy: Table = toml::from_str(&format!(
            "private_key_file = '{}'\nstate_dir = '{}'\npeer = [{{ name = 'client', public_key = '{client_key}' }}]\n\
             [control]\nsocket = '{}'\n",
            at("proxy.key"),
            at("state"),
            at("proxy.sock")
        ))?;
        let links: Vec<String> = (0..contender.links)
            .map(|link| format!("[[link]]\ninterface = '{}'\n", interface(link)))
            .collect();
        let mut client: Table = toml::from_str(&format!(
            "private_key_file = '{}'\nstate_dir = '{}'\ncounters_file = '{}'\ndns = 'none'\n\
             [proxy]\naddress = '{PROXY}:{PROXY_PORT}'\npublic_key = '{proxy_key}'\n\
             [control]\nsocket = '{}'\n{}",
            at("client.key"),
            at("client.state"),
            at("counters.json"),
            at("client.sock"),
            links.concat()
        ))?;
        let others = Keys::new(contender.sessions - 1);
        if let Some(Value::Array(peers)) = proxy.get_mut("peer") {
            peers.extend(others.peers().into_iter().map(Value::Table));
        }
        proxy.insert("max_peers".into(), Value::Integer(contender.sessions.max(1024).into()));
        merge(&mut proxy, &contender.both);
        merge(&mut proxy, &contender.proxy);
        merge(&mut client, &contender.both);
        merge(&mut client, &contender.client);

        let start = |host: &Namespace, role: &str, config: &Table| -> Result<Process> {
            let file = folder.join(format!("{role}.toml"));
            std::fs::write(&file, config.to_string())
                .with_context(|| format!("writing {}", file.display()))?;
            let words = [role, "--config", &file.display().to_string()];
            Ok(Process::start(host, folder, role, program, &words)?)
        };
        let status = |role: &str| -> Option<Status> {
            let socket = at(&format!("{role}.sock"));
            let words = ["status", "--json", "--socket", &socket];
            let text = tool::run(&program.display().to_string(), &words).ok()?;
            Some(Status(serde_json::from_str(&text).ok()?))
        };
        let mut far = start(&network.proxy, "proxy", &proxy)?;
        far.wait_until("an answer to `status`", SOON, || status("proxy").is_some())?;
        let mut near = start(&network.client, "client", &client)?;
        near.wait_until("all links up", SOON, || {
            let status = status("client").unwrap_or_default();
            (0..contender.links).all(|link| status.is_up(&interface(link)))
        })?;
        settle(|| status("client").and_then(|status| status.inner_mtu()))?;
        // The first of the pool, as configured.
        let pool = proxy.get("pool_v4").and_then(Value::as_str).unwrap_or("10.77.0.0/16");
        let first = pool.split('/').next().and_then(|address| address.parse::<Ipv4Addr>().ok());
        let first = first.context("pool_v4 is no IPv4 network")?;
        let (crowd, notes) = match contender.sessions {
            1 => (None, Values::new()),
            _ => crowd(network, others, &proxy_key, &far)
                .map(|(crowd, notes)| (Some(crowd), notes))?,
        };
        Ok(Self { near, far, inner: Ipv4Addr::from_bits(first.to_bits() | 1), crowd, notes })
    }
}

/// Connects the others, and notes what the proxy needs for it.
fn crowd(network: &Network, keys: Keys, proxy: &str, far: &Process) -> Result<(Crowd, Values)> {
    /// Until their paths are searched and what that took is given back.
    const REST: Duration = Duration::from_secs(4);
    let number = f64::from(keys.len());
    let (before, held) = (Usage::of(far.id())?, resident(far.id())?);
    let crowd = Crowd::connect(&network.client, keys, proxy)?;
    let used = Usage::of(far.id())?.since(before);
    thread::sleep(REST);
    #[expect(clippy::cast_precision_loss, reason = "the memory of a machine")]
    let kept = resident(far.id())?.saturating_sub(held) as f64;
    let notes = Values::from([
        ("sessions.us_to_begin".to_owned(), used.cpu.as_secs_f64() * 1e6 / number),
        ("sessions.kib".to_owned(), kept / 1024.0 / number),
    ]);
    Ok((crowd, notes))
}

/// Waits for a figure that stays.
fn settle(mut figure: impl FnMut() -> Option<u16>) -> Result<()> {
    let started = Instant::now();
    let mut before = None;
    loop {
        let now = figure();
        if now.is_some() && now == before {
            return Ok(());
        }
        ensure!(started.elapsed() < SOON, "the inner MTU did not come to rest: {now:?}");
        before = now;
        thread::sleep(SETTLED);
    }
}

/// Puts the keys of `more` over those of `table`, tables within into each other.
fn merge(table: &mut Table, more: &Table) {
    for (key, value) in more {
        match (table.get_mut(key), value) {
            (Some(Value::Table(there)), Value::Table(value)) => merge(there, value),
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_laid_over_each_other_by_key() {
        let mut table: Table = toml::from_str("a = 1\n[tun]\nname = 'x'\nmtu = 1").unwrap();
        let more: Table = toml::from_str("b = 2\n[tun]\nmtu = 2\n[tunnel]\necn = true").unwrap();
        merge(&mut table, &more);
        let expected: Table =
            toml::from_str("a = 1\nb = 2\n[tun]\nname = 'x'\nmtu = 2\n[tunnel]\necn = true")
                .unwrap();
        assert_eq!(table, expected);
    }
}
