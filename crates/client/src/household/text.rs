//! The config of a `dnsmasq` (`dnsmasq(8)`), made of nothing but numbers, addresses and the name of an interface.

use std::fmt::Write as _;
use std::path::Path;

use super::lan::Lan;

/// The names of the devices end so (RFC 8375): what a device calls itself is found under it.
pub const DOMAIN: &str = "home.arpa";

/// Most addresses that are lent at a time: a household has some dozens, and a table of them is sent to the client.
pub const MAX_LEASES: usize = 1024;

/// Answers that are kept.
const CACHE: usize = 1000;

/// Seconds between two router advertisements that nobody asked for, and for which one holds: whoever loses the tunnel's IPv6
/// is to be back at IPv4 within minutes.
const ADVERTISED: (u32, u32) = (60, 300);

/// Seconds for which devices keep an address that they made of an advertised prefix.
const PREFIX_LIFETIME: u32 = 1800;

/// As whom it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// It keeps the user that started it, which is not root.
    AsStarted,
    /// As this user and this group, once it has its ports; it keeps the rights that it needs, and no other of root's.
    Become {
        /// The user.
        user: String,
        /// The group.
        group: String,
    },
    /// As the root of a user namespace in which there is nobody else.
    Root,
}

/// The config for one interface; `leases` is the file of what is lent.
///
/// * It is bound to the addresses of the interface, and looks by which interface a question came (`bind-dynamic`); the loopback
///   interface, which it would add by itself, is left out.
/// * It reads no other file that says where names are looked up or what they mean.
/// * It gives everybody an address who asks for the one that he had (`dhcp-authoritative`), also after this machine was
///   switched off.
/// * A device that calls itself `wpad` is not found under that name: browsers take their web proxy from whoever has it
///   (CERT VU#598349).
/// * It logs no names and no hardware addresses of devices.
#[must_use]
pub fn config(lan: &Lan, leases: &Path, identity: &Identity) -> String {
    let Lan { interface, own, range: (first, last), lease_s, servers, prefix } = lan;
    let mask = own.netmask();
    let leases = leases.display();
    let mut text = format!(
        "# Written by the Ropewalk client when it starts dnsmasq for {interface}.
keep-in-foreground
log-facility=-
quiet-dhcp
quiet-dhcp6
quiet-ra
pid-file=
bind-dynamic
interface={interface}
except-interface=lo
no-resolv
no-hosts
domain-needed
bogus-priv
domain={DOMAIN}
local=/{DOMAIN}/
cache-size={CACHE}
dhcp-authoritative
dhcp-name-match=set:unnamed,wpad
dhcp-ignore-names=tag:unnamed
dhcp-lease-max={MAX_LEASES}
dhcp-leasefile={leases}
dhcp-range={first},{last},{mask},{lease_s}
"
    );
    for server in servers {
        add(&mut text, &format!("server={server}"));
    }
    if let Some(prefix) = prefix {
        let (every, holds) = ADVERTISED;
        let (network, bits) = (prefix.network(), prefix.prefix_len());
        add(&mut text, "enable-ra");
        add(&mut text, &format!("dhcp-range={network},ra-only,{bits},{PREFIX_LIFETIME}"));
        add(&mut text, &format!("ra-param={interface},{every},{holds}"));
    }
    match identity {
        Identity::AsStarted => {}
        Identity::Become { user, group } => {
            add(&mut text, &format!("user={user}"));
            add(&mut text, &format!("group={group}"));
        }
        // Nothing: it stays who it is.
        Identity::Root => {
            add(&mut text, "user=");
            add(&mut text, "group=");
        }
    }
    text
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::household::lan::testing::lan;

    fn lines(lan: &Lan, identity: &Identity) -> Vec<String> {
        let text = config(lan, Path::new("/run/ropewalk/client/lan-7/lan0.leases"), identity);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn one_interface_is_served_and_nothing_of_the_machine_is_read() {
        let served = Lan {
            servers: ["10.77.0.1", "fd77::1"].map(|server| server.parse().unwrap()).into(),
            ..lan()
        };
        let lines = lines(&served, &Identity::AsStarted);
        for expected in [
            "bind-dynamic",
            "interface=lan0",
            "except-interface=lo",
            "no-resolv",
            "no-hosts",
            "dhcp-range=192.168.77.10,192.168.77.20,255.255.255.0,3600",
            "dhcp-leasefile=/run/ropewalk/client/lan-7/lan0.leases",
            "dhcp-lease-max=1024",
            "server=10.77.0.1",
            "server=fd77::1",
            "local=/home.arpa/",
            "dhcp-name-match=set:unnamed,wpad",
            "dhcp-ignore-names=tag:unnamed",
            "quiet-dhcp",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} in {lines:#?}");
        }
        for absent in ["user", "group", "enable-ra", "conf-", "dhcp-script", "addn-hosts"] {
            assert!(!lines.iter().any(|line| line.starts_with(absent)), "{absent} in {lines:#?}");
        }
    }

    #[test]
    fn a_prefix_that_is_routed_here_is_advertised_for_a_short_time() {
        let prefix = Some("2001:db8:1::/64".parse().unwrap());
        let lines = lines(&Lan { prefix, ..lan() }, &Identity::AsStarted);
        let ends = &lines[lines.len() - 3..];
        assert_eq!(
            ends,
            ["enable-ra", "dhcp-range=2001:db8:1::,ra-only,64,1800", "ra-param=lan0,60,300"]
        );
    }

    #[test]
    fn it_gives_up_roots_rights_where_it_has_them() {
        let user = || "nobody".to_owned();
        let identity = Identity::Become { user: user(), group: "nogroup".to_owned() };
        let ends = |identity: &Identity| lines(&lan(), identity).split_off(20);
        assert!(ends(&identity).ends_with(&["user=nobody".into(), "group=nogroup".into()]));
        assert!(ends(&Identity::Root).ends_with(&["user=".into(), "group=".into()]));
    }
}
