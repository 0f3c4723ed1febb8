//! Other settings for the running client: of one link by hand, or the whole config read again.
//!
//! A config that is read again is what holds then: what was changed by hand is undone by it. What cannot be changed while
//! the client runs is told, and stays.

use ropewalk_control::api::{
    ApiError, ErrorCode, EventKind, LinkChange, LinkSettings, ReloadReport, Response,
};
use ropewalk_daemon::history::reloaded_in_words;
use ropewalk_daemon::proxies::choice_word;
use ropewalk_daemon::reload::{compare_control, compare_tunnel, files, list, or, texts, times};
use ropewalk_link_io::driver::Io;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{LinkPolicy, TlsUse};

use super::Daemon;
use crate::config::{
    Config, LinkConfig, LinksConfig, OtherProxy, ProxyConfig, ShareConfig, TunConfig,
};
use crate::links::{change, choice};
use crate::network::Lists;

impl Daemon {
    /// Changes one link.
    pub(super) fn change_link(
        &mut self,
        now: Instant,
        wanted: &LinkChange,
        io: &mut Io<'_>,
    ) -> Result<Response, ApiError> {
        let decisions: Vec<_> = self.links.iter().map(|link| &link.decision).collect();
        let links = change::changed(&self.config.links, &decisions, wanted)
            .map_err(|message| ApiError::new(ErrorCode::BadRequest, message))?;
        let values = &wanted.values;
        tracing::info!(link = wanted.name, ?values, "told of a link");
        self.set_links(now, links, io);
        let mut links = self.links.iter().map(|link| &link.decision);
        let settings = links
            .find(|decision| decision.name == wanted.name)
            .map(|decision| change::settings(&self.config.links, decision));
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        Ok(Response::Link(Box::new(LinkSettings { file, ..settings.unwrap_or_default() })))
    }

    /// Makes the running client what this config says, as far as that can be.
    pub(super) fn take_over(
        &mut self,
        now: Instant,
        mut config: Config,
        io: &mut Io<'_>,
    ) -> ReloadReport {
        let mut report = compare(&self.config, &config);
        if config.share.dhcp && !self.hands_out {
            report.changes.iter_mut().for_each(|one| one.applied &= one.key != DHCP);
        }
        keep(&self.config.links, &mut config.links);
        if self.config.tunnel.scheduling != config.tunnel.scheduling {
            self.set_scheduling(now, config.tunnel.scheduling);
        }
        if self.config.tun.mtu != config.tun.mtu {
            self.config.tun.mtu = config.tun.mtu;
            self.want_tun(None);
        }
        self.set_routes(Lists::of(&config.tun));
        self.set_share(config.share);
        if self.config.proxy.addresses != config.proxy.addresses {
            self.config.proxy.addresses.clone_from(&config.proxy.addresses);
            // The look-up ends with the daemon only.
            let _ = self.endpoints.send(self.config.proxy.all_addresses());
        }
        self.config.proxy.choose = config.proxy.choose;
        self.client.set_preference(now, self.config.proxy.choose.clone());
        if self.config.inbound != config.inbound {
            self.config.inbound = config.inbound;
            let inbound = Some(self.config.inbound.clone());
            self.wanted.send_modify(|wanted| wanted.inbound = inbound);
        }
        self.set_links(now, config.links, io);
        self.set_tls(now, config.proxy.tls, config.proxy.tls_port, io);
        self.config.history = config.history;
        let seen = self.seen(now);
        self.history.keep(config.history, seen);
        let text = reloaded_in_words(&report);
        self.history.note(now, EventKind::ConfigReloaded, None, &text);
        report
    }

    fn set_tls(&mut self, now: Instant, tls: TlsUse, tls_port: u16, io: &mut Io<'_>) {
        let proxy = &mut self.config.proxy;
        if (proxy.tls, proxy.tls_port) == (tls, tls_port) {
            return;
        }
        (proxy.tls, proxy.tls_port) = (tls, tls_port);
        let in_use = proxy.tls_port_in_use();
        self.wanted.send_modify(|wanted| wanted.tls_port = in_use);
        self.links.forget_fallbacks(now);
        self.relink(now, io);
    }

    fn set_links(&mut self, now: Instant, links: LinksConfig, io: &mut Io<'_>) {
        if self.config.links == links {
            return;
        }
        self.wanted.send_modify(|wanted| wanted.choice = Some(choice(&links)));
        self.config.links = links;
        self.relink(now, io);
    }
}

/// What of a link cannot be changed while it runs stays as it was.
fn keep(before: &LinksConfig, after: &mut LinksConfig) {
    for link in &mut after.listed {
        let known = before.listed.iter().find(|known| known.interface == link.interface);
        let Some(known) = known else { continue };
        link.name.clone_from(&known.name);
        // Its count goes on.
        link.allowance = link.allowance.or(known.allowance);
    }
}

/// Key by key what differs.
fn compare(before: &Config, after: &Config) -> ReloadReport {
    let mut report = ReloadReport::default();
    // Named one by one, so that a key that is added is not forgotten here.
    let Config {
        private_key,
        proxy,
        tun,
        links,
        tunnel,
        control,
        counters_file,
        dns,
        kill_switch,
        share,
        inbound,
        state_dir,
        sandbox,
        history,
    } = before;
    report.compare_secret("private_key_file", private_key, &after.private_key);
    compare_links(&mut report, links, &after.links);
    report.compare("counters_file", files([counters_file, &after.counters_file]), false);
    report.compare("dns", texts([dns, &after.dns]), false);
    report.compare("kill_switch", texts([kill_switch, &after.kill_switch]), false);
    compare_share(&mut report, share, &after.share);
    report.compare("inbound", texts([inbound, &after.inbound]), true);
    report.compare("state_dir", files([state_dir, &after.state_dir]), false);
    report.compare("sandbox", texts([&sandbox.0, &after.sandbox.0]), false);

    let ProxyConfig {
        addresses,
        public_key,
        preshared_key,
        invitation,
        others,
        choose,
        tls,
        tls_port,
    } = proxy;
    report.compare("proxy.address", [list(addresses), list(&after.proxy.addresses)], true);
    report.compare("proxy.public_key", texts([public_key, &after.proxy.public_key]), false);
    let words = |others: &[OtherProxy]| {
        let keys = others.iter().map(|other| other.public_key.to_string());
        keys.collect::<Vec<_>>().join(", ")
    };
    report.compare("proxy.other", [words(others), words(&after.proxy.others)], false);
    report.compare("proxy.choose", [choose, &after.proxy.choose].map(choice_word), true);
    report.compare("proxy.tls", texts([tls, &after.proxy.tls]), true);
    report.compare("proxy.tls_port", texts([tls_port, &after.proxy.tls_port]), true);
    report.compare_secret("proxy.preshared_key_file", preshared_key, &after.proxy.preshared_key);
    report.compare_secret("proxy.invitation_file", invitation, &after.proxy.invitation);

    let TunConfig { name, mtu, routes, exclude } = tun;
    report.compare("tun.name", texts([name, &after.tun.name]), false);
    report.compare("tun.mtu", texts([mtu, &after.tun.mtu]), true);
    report.compare("tun.routes", [list(routes), list(&after.tun.routes)], true);
    report.compare("tun.exclude", [list(exclude), list(&after.tun.exclude)], true);

    for link in &after.links.listed {
        let known = links.listed.iter().find(|known| known.interface == link.interface);
        if let Some(known) = known {
            compare_link(&mut report, known, link);
        }
    }
    compare_tunnel(&mut report, tunnel, &after.tunnel);
    report.compare("history.days", texts([history, &after.history]), true);
    compare_control(&mut report, control, &after.control);
    report
}

/// Whether addresses are handed out.
const DHCP: &str = "share.dhcp";

fn compare_share(report: &mut ReloadReport, before: &ShareConfig, after: &ShareConfig) {
    let ShareConfig { interfaces, address, dhcp, range, lease, limits } = before;
    report.compare("share.interfaces", [list(interfaces), list(&after.interfaces)], true);
    report.compare("share.address", or([*address, after.address], "its own"), true);
    report.compare(DHCP, texts([dhcp, &after.dhcp]), true);
    report.compare("share.range", or([*range, after.range], "of its network"), true);
    report.compare("share.lease", times([*lease, after.lease]), true);
    // Names and hardware addresses of devices are nobody's business who reads the log.
    if *limits != after.limits {
        let told = [limits, &after.limits].map(|limits| format!("{} limits", limits.len()));
        let [told, others] = told;
        report.compare("share.limit", [told, format!("{others}, others")], true);
    }
}

fn compare_links(report: &mut ReloadReport, before: &LinksConfig, after: &LinksConfig) {
    let LinksConfig { select, include, exclude, keepalive, listed } = before;
    report.compare("links", texts([select, &after.select]), true);
    report.compare("include_interfaces", [list(include), list(&after.include)], true);
    report.compare("exclude_interfaces", [list(exclude), list(&after.exclude)], true);
    report.compare("keepalive", texts([keepalive, &after.keepalive]), true);
    let is_in = |links: &[LinkConfig], one: &LinkConfig| {
        links.iter().any(|other| other.interface == one.interface)
    };
    let word = |there: bool| if there { "a section" } else { "no section" }.to_owned();
    for gone in listed.iter().filter(|link| !is_in(&after.listed, link)) {
        report.compare(&format!("link.{}", gone.interface), [word(true), word(false)], true);
    }
    for new in after.listed.iter().filter(|link| !is_in(listed, link)) {
        report.compare(&format!("link.{}", new.interface), [word(false), word(true)], true);
    }
}

fn compare_link(report: &mut ReloadReport, before: &LinkConfig, after: &LinkConfig) {
    let LinkConfig { interface, name, keepalive, gateways, metered, enabled, policy, allowance } =
        before;
    let LinkPolicy {
        usage,
        direction,
        max_up,
        max_down,
        rate_up,
        rate_down,
        weight,
        cost,
        importance,
    } = policy;
    let new = &after.policy;
    let mut compare = |key: &str, values, applies| {
        report.compare(&format!("link.{interface}.{key}"), values, applies);
    };
    compare("name", texts([name, &after.name]), false);
    compare("keepalive", texts([keepalive, &after.keepalive]), true);
    compare("gateway", [list(gateways), list(&after.gateways)], true);
    compare("metered", texts([metered, &after.metered]), true);
    compare("enabled", texts([enabled, &after.enabled]), true);
    compare("use", texts([usage, &new.usage]), true);
    compare("direction", texts([direction, &new.direction]), true);
    compare("max_up", or([*max_up, new.max_up], "off"), true);
    compare("max_down", or([*max_down, new.max_down], "off"), true);
    compare("rate_up", or([*rate_up, new.rate_up], "off"), true);
    compare("rate_down", or([*rate_down, new.rate_down], "off"), true);
    compare("weight", or([*weight, new.weight], "off"), true);
    compare("cost", or([cost.as_ref(), new.cost.as_ref()], "off"), true);
    compare("importance", or([*importance, new.importance], "off"), true);
    // Taken away it would be forgotten that it is used up.
    compare("allowance", or([*allowance, after.allowance], "off"), after.allowance.is_some());
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
    use std::path::Path;

    const KEYS: &str = "private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";
    const PROXY: &str = "[proxy]\naddress = \"203.0.113.1\"\n\
        public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n";

    fn config(top: &str, rest: &str) -> Config {
        let text = format!("{KEYS}{top}\n{PROXY}{rest}");
        Config::parse(&Source::from_text(Path::new("client.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    /// Top-level keys and the rest, before and after; what is told.
    #[test]
    fn each_key_that_differs_is_told_with_whether_it_holds_now() {
        let table = [
            (("", ""), ("", ""), ""),
            (("", ""), ("keepalive = \"20s\"", ""), "keepalive 15s -> 20s yes"),
            (
                ("", "[[link]]\ninterface = \"wlan0\""),
                ("", "[[link]]\ninterface = \"wlan0\"\nmax_up = \"5 Mbit/s\"\nuse = \"backup\""),
                "link.wlan0.use always -> backup yes, link.wlan0.max_up off -> 5 Mbit/s yes",
            ),
            (
                ("links = \"auto\"", "[[link]]\ninterface = \"wlan0\""),
                ("", ""),
                "link.wlan0 a section -> no section yes",
            ),
            (
                ("share = \"ap0\"", ""),
                (
                    "",
                    "[share]\ninterfaces = \"ap0\"\naddress = \"192.168.77.1/24\"\ndhcp = true\nlease = \"1h\"\n\
                     limit = [{ device = \"tv\", up = \"1 Mbit/s\" }]",
                ),
                "share.address its own -> 192.168.77.1/24 yes, share.dhcp false -> true yes, share.lease 12h -> 1h yes, \
                 share.limit 0 limits -> 1 limits, others yes",
            ),
            (
                ("", ""),
                ("inbound = [\"443/tcp\", \"5000-5010/udp\"]", ""),
                "inbound proxy -> 443/tcp, 5000-5010/udp yes",
            ),
            (("", "[tun]\nname = \"a\""), ("", "[tun]\nname = \"b\""), "tun.name a -> b no"),
            (
                ("", ""),
                ("", "tls = \"never\"\ntls_port = 8443"),
                "proxy.tls auto -> never yes, proxy.tls_port 443 -> 8443 yes",
            ),
            (
                ("", "[tunnel]\necn = true\n"),
                ("", "[tunnel]\necn = false\nscheduler = \"natalie\""),
                "tunnel.scheduler arrival -> natalie (weights auto, count packets, a full link \
                 passes its turn) yes, tunnel.ecn true -> false no",
            ),
            (
                ("", "[tun]\nexclude = \"10.1.0.0/16\""),
                ("", "[tun]\nroutes = [\"user:backup\", \"domain:example.org\"]"),
                "tun.routes [0.0.0.0/0, ::/0] -> [user:backup, domain:example.org] yes, tun.exclude [10.1.0.0/16] -> [] yes",
            ),
            (
                ("", ""),
                ("", "[control]\nsocket = \"/run/other.sock\""),
                "control.socket /run/ropewalk/client/client.sock -> /run/other.sock no",
            ),
            (
                ("dns = \"9.9.9.9\"", "[tun]\nmtu = 1400"),
                ("", ""),
                "dns 9.9.9.9 -> proxy no, tun.mtu at most 1400 -> auto yes",
            ),
            (
                ("", "[[link]]\ninterface = \"lte\""),
                (
                    "links = \"auto\"",
                    "[[link]]\ninterface = \"lte\"\nallowance = { bytes = \"10 GB\", stop = true }",
                ),
                "links listed -> auto yes, link.lte.allowance off -> 10 GB a month from day 1, then not used yes",
            ),
            (
                ("", ""),
                ("", "[history]\ndays = 0\n[control]\nweb = \"127.0.0.1:9586\""),
                "history.days 30 days -> off yes, control.web none -> 127.0.0.1:9586 no",
            ),
            (
                ("", ""),
                (
                    "",
                    "[tunnel]\nrekey_after = \"10m\"\ncipher = \"aes-256-gcm\"\ntun_offload = \"off\"\n\
                     [tunnel.resequencer]\nbuffer = \"1MiB\"",
                ),
                "tunnel.rekey_after 2m -> 10m no, tunnel.cipher auto -> aes-256-gcm no, tunnel.resequencer at most 500ms, \
                 buffer 16 MiB, release drain -> at most 500ms, buffer 1 MiB, release drain no, tunnel.tun_offload auto -> \
                 off no",
            ),
        ];
        for ((top, rest), (new_top, new_rest), expected) in table {
            let report = compare(&config(top, rest), &config(new_top, new_rest));
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

    #[test]
    fn a_secret_is_told_of_only_as_another_one() {
        let mut other = config("", "");
        other.private_key = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=".parse().unwrap();
        let report = compare(&config("", ""), &other);
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains("private_key_file") && text.contains("(another one)"), "{text}");
        assert!(!text.contains("AgIC") && !text.contains("AQEB"), "{text}");
    }
}
