//! A config that was read again, for the running proxy: clients come and go, and sessions of those that stay are not
//! touched. What cannot be changed while the proxy runs is told, and stays.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::Ipv6Net;
use ropewalk_control::api::ReloadReport;
use ropewalk_daemon::history::reloaded_in_words;
use ropewalk_daemon::reload::{compare_control, compare_tunnel, files, list, or, texts};
use ropewalk_proto::time::{Duration, Instant};

use super::{Daemon, Host};
use crate::config::{Config, Forward, PeerConfig, RegistryConfig};
use crate::worker::Order;

impl<H: Host> Daemon<H> {
    /// Makes the running proxy what this config says, as far as that can be; `unix` is the wall clock, time since 1970.
    pub(super) fn take_over(
        &mut self,
        now: Instant,
        unix: Duration,
        config: Config,
    ) -> ReloadReport {
        let mut report = compare(&self.config, &config);
        let mut own = false;
        for peer in self.peers.iter() {
            let Some(scheduling) = peer.scheduling() else { continue };
            own = true;
            let key = format!("tunnel.scheduler towards {}", peer.name);
            report.compare(&key, [scheduling.in_words(), "as towards all".to_owned()], true);
        }
        if own || self.config.tunnel.scheduling != config.tunnel.scheduling {
            self.schedule_all(now, config.tunnel.scheduling);
        }
        self.config.public_addresses = config.public_addresses;
        if self.config.speed_tests != config.speed_tests {
            self.config.speed_tests = config.speed_tests;
            self.bound_speed_tests();
        }
        if self.config.peers != config.peers {
            self.config.peers = with_networks_of(&self.config.peers, config.peers);
            self.take_over_peers(now);
        }
        self.take_over_forwards(config.forwards);
        self.config.history = config.history;
        self.history.reloaded(now, unix, config.history, &reloaded_in_words(&report));
        report
    }

    /// Tells every worker how much clients may test from now on. Tests under way are judged by it when they are renewed.
    fn bound_speed_tests(&mut self) {
        let limits = self.config.speed_tests;
        self.worker.endpoint.set_speed_tests(limits);
        self.group.order_all(|| Order::SetSpeedTests(limits));
    }

    /// Makes the clients those of the file, with those that joined.
    fn take_over_peers(&mut self, now: Instant) {
        let (known, passed_over) = self.registry.peers(&self.config.peers);
        passed_over.iter().for_each(|why| tracing::warn!("{why}"));
        let keys: BTreeSet<_> = known.iter().map(|peer| peer.public_key).collect();
        let here: Vec<_> = self.peers.iter().map(|peer| peer.public_key).collect();
        for gone in here.into_iter().filter(|key| !keys.contains(key)) {
            // While it is still known, so that its routes go.
            self.end_peer(now, gone);
        }
        self.registry.admit(&self.config.peers);
        for freed in self.peers.take_over(now, &known, self.registry.leases()) {
            self.host.route(freed, None);
        }
        self.set_peers(now);
    }

    /// Makes the ports that lead to clients those of the file.
    fn take_over_forwards(&mut self, forwards: Vec<Forward>) {
        if self.config.forwards == forwards {
            // Their clients may be others.
            return self.follow_clients();
        }
        self.config.forwards = forwards;
        self.forwards.take_over(&self.config.forwards);
        self.forwards.follow(&self.peers);
        self.host.forward(self.forwards.forwards());
    }
}

/// These clients, with the networks that were behind them at the start: the firewall and the guard have no others.
fn with_networks_of(before: &[PeerConfig], mut after: Vec<PeerConfig>) -> Vec<PeerConfig> {
    let known: BTreeMap<&str, Ipv6Net> =
        before.iter().filter_map(|peer| Some((&*peer.name, peer.prefix_v6?))).collect();
    for peer in &mut after {
        peer.prefix_v6 = known.get(&*peer.name).copied();
    }
    after
}

/// Key by key what differs.
fn compare(before: &Config, after: &Config) -> ReloadReport {
    let mut report = ReloadReport::default();
    // Named one by one, so that a key that is added is not forgotten here.
    let Config {
        private_key,
        listen,
        more_ports,
        tls,
        public_addresses,
        tun_name,
        pools,
        dns,
        ipv6,
        no_nat,
        allow,
        inbound,
        client_connections,
        client_connection_rate,
        uplinks,
        client_to_client,
        forwards,
        peers,
        max_peers,
        workers,
        speed_tests,
        tunnel,
        registry,
        state_dir,
        sandbox,
        history,
        control,
    } = before;
    report.compare_secret("private_key_file", private_key, &after.private_key);
    report.compare("listen", texts([listen, &after.listen]), false);
    report.compare("more_ports", [list(more_ports), list(&after.more_ports)], false);
    report.compare("tls", or([tls.as_ref(), after.tls.as_ref()], "off"), false);
    report.compare(
        "public_addresses",
        [list(public_addresses), list(&after.public_addresses)],
        true,
    );
    report.compare("tun.name", texts([tun_name, &after.tun_name]), false);
    report.compare("pool_v4", texts([&pools.v4(), &after.pools.v4()]), false);
    report.compare("pool_v6", or([pools.v6(), after.pools.v6()], "none"), false);
    report.compare("dns", [list(dns), list(&after.dns)], false);
    report.compare("ipv6", texts([ipv6, &after.ipv6]), false);
    report.compare("no_nat", [list(no_nat), list(&after.no_nat)], false);
    report.compare("allow", [list(allow), list(&after.allow)], false);
    report.compare("inbound", [list(inbound), list(&after.inbound)], false);
    let connections = texts([client_connections, &after.client_connections]);
    report.compare("client_connections", connections, false);
    let rate = texts([client_connection_rate, &after.client_connection_rate]);
    report.compare("client_connection_rate", rate, false);
    report.compare("uplinks", texts([uplinks, &after.uplinks]), false);
    report.compare("client_to_client", texts([client_to_client, &after.client_to_client]), false);
    report.compare("max_peers", texts([max_peers, &after.max_peers]), false);
    report.compare("workers", texts([workers, &after.workers]), false);
    report.compare("speed_test", texts([speed_tests, &after.speed_tests]), true);
    let shown = |config: &Option<RegistryConfig>| {
        config.as_ref().map_or("files".to_owned(), |config| format!("{config:?}"))
    };
    report.compare("registry", [shown(registry), shown(&after.registry)], false);
    report.compare("state_dir", files([state_dir, &after.state_dir]), false);
    report.compare("sandbox", texts([&sandbox.0, &after.sandbox.0]), false);
    compare_forwards(&mut report, forwards, &after.forwards);
    compare_peers(&mut report, peers, &after.peers);
    compare_tunnel(&mut report, tunnel, &after.tunnel);
    report.compare("history.days", texts([history, &after.history]), true);
    compare_control(&mut report, control, &after.control);
    report
}

fn compare_forwards(report: &mut ReloadReport, before: &[Forward], after: &[Forward]) {
    let at = |forwards: &[Forward], ports: &str| {
        let found = forwards.iter().find(|forward| forward.ports_in_words() == ports);
        found.map_or_else(|| "not forwarded".to_owned(), |forward| format!("to {forward}"))
    };
    let mut all: Vec<String> = before.iter().map(Forward::ports_in_words).collect();
    for new in after.iter().map(Forward::ports_in_words) {
        if !all.contains(&new) {
            all.push(new);
        }
    }
    for ports in all {
        report.compare(&format!("forward.{ports}"), [at(before, &ports), at(after, &ports)], true);
    }
}

fn compare_peers(report: &mut ReloadReport, before: &[PeerConfig], after: &[PeerConfig]) {
    let word = |there: bool| if there { "a client" } else { "no client" }.to_owned();
    let named = |peers: &'_ [PeerConfig], name: &str| peers.iter().any(|peer| *peer.name == *name);
    for gone in before.iter().filter(|peer| !named(after, &peer.name)) {
        report.compare(&format!("peer.{}", gone.name), [word(true), word(false)], true);
    }
    for new in after {
        let Some(known) = before.iter().find(|known| known.name == new.name) else {
            report.compare(&format!("peer.{}", new.name), [word(false), word(true)], true);
            let prefix = or([None, new.prefix_v6], "none");
            report.compare(&format!("peer.{}.prefix_v6", new.name), prefix, false);
            continue;
        };
        // `formerly` never stands in the file.
        let PeerConfig {
            name,
            public_key,
            preshared_key,
            address_v4,
            address_v6,
            prefix_v6,
            formerly: _,
            disabled,
        } = known;
        let prefix = or([*prefix_v6, new.prefix_v6], "none");
        report.compare(&format!("peer.{name}.prefix_v6"), prefix, false);
        let mut compare = |key: &str, values| {
            report.compare(&format!("peer.{name}.{key}"), values, true);
        };
        compare("public_key", texts([public_key, &new.public_key]));
        compare("disabled", texts([disabled, &new.disabled]));
        compare("address_v4", or([*address_v4, new.address_v4], "from the pool"));
        compare("address_v6", or([*address_v6, new.address_v6], "from the pool"));
        if preshared_key != &new.preshared_key {
            compare("preshared_key_file", ["(the one in use)", "(another one)"].map(str::to_owned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
    use std::path::Path;

    fn config(text: &str) -> Config {
        let key = "private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";
        let text = format!("{key}{text}");
        Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    const HTTPS: &str =
        "[[forward]]\nprotocol = \"tcp\"\nport = 8443\nto = \"lisa\"\nto_port = 443\n";

    const LISA: &str = "[[peer]]\nname = \"lisa\"\n\
        public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n";

    #[test]
    fn each_key_that_differs_is_told_with_whether_it_holds_now() {
        let table = [
            ("", "", ""),
            ("", LISA, "peer.lisa no client -> a client yes"),
            (LISA, "", "peer.lisa a client -> no client yes"),
            ("", "listen = \"[::]:443\"", "listen [::]:51900 -> [::]:443 no"),
            ("", "max_peers = 7", "max_peers 1024 -> 7 no"),
            ("", "workers = 3", "workers auto -> 3 no"),
            (
                "",
                "[speed_test]\nat_once = 1\ntime = \"1m\"",
                "speed_test 2 at a time; each client 10m and 5 GB in an hour -> 1 at a time; each client 1m and 5 GB \
                 in an hour yes",
            ),
            ("", "more_ports = [443, 53]", "more_ports [] -> [443, 53] no"),
            ("", "[tls]", "tls off -> [::]:443, certificate of its own making no"),
            ("", "pool_v4 = \"10.9.0.0/16\"", "pool_v4 10.77.0.0/16 -> 10.9.0.0/16 no"),
            ("", "uplinks = [\"eth0\"]", "uplinks auto -> eth0 no"),
            ("", "state_dir = \"/srv\"", "state_dir /var/lib/ropewalk -> /srv no"),
            (
                LISA,
                concat!(
                    "[[peer]]\nname = \"lisa\"\naddress_v4 = \"10.77.0.9\"\n",
                    "public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n"
                ),
                "peer.lisa.address_v4 from the pool -> 10.77.0.9 yes",
            ),
            (
                LISA,
                concat!(
                    "[[peer]]\nname = \"lisa\"\ndisabled = true\n",
                    "public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n"
                ),
                "peer.lisa.disabled false -> true yes",
            ),
            (
                LISA,
                concat!(
                    "[[peer]]\nname = \"lisa\"\nprefix_v6 = \"2001:db8:7::/56\"\n",
                    "public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n"
                ),
                "peer.lisa.prefix_v6 none -> 2001:db8:7::/56 no",
            ),
            ("", "public_addresses = [\"vps:443\"]", "public_addresses [] -> [vps:443] yes"),
            ("", "client_to_client = true", "client_to_client false -> true no"),
            ("", HTTPS, "forward.TCP 8443 not forwarded -> to lisa port 443 yes"),
            (HTTPS, "", "forward.TCP 8443 to lisa port 443 -> not forwarded yes"),
            (
                HTTPS,
                "[[forward]]\nprotocol = \"tcp\"\nport = 8443\nto = \"lisa\"\nfrom = \"192.0.2.0/24\"",
                "forward.TCP 8443 to lisa port 443 -> to lisa port 8443, from 192.0.2.0/24 yes",
            ),
            ("", "[tunnel]\nscheduler = \"safire\"", "tunnel.scheduler arrival -> safire"),
            ("", "[history]\ndays = 1", "history.days 30 days -> 1 day yes"),
        ];
        for (before, after, expected) in table {
            let report = compare(&config(before), &config(after));
            let told: Vec<_> = report
                .changes
                .iter()
                .map(|c| {
                    let applied = if c.applied { "yes" } else { "no" };
                    format!("{} {} -> {} {applied}", c.key, c.before, c.after)
                })
                .collect();
            let told = told.join(", ");
            assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{told}");
        }
    }
}
