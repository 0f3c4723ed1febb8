//! Which capabilities a daemon needs, and which of them are missing.
//!
//! They are read from `/proc/PID/status`.

/// A capability of the kernel (`capabilities(7)`), by its bit, and what it is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    bit: u32,
    /// As `capabilities(7)` has it.
    pub name: &'static str,
    /// What it is needed for, as the end of a sentence.
    pub reason: &'static str,
}

/// Bit 12 of `CapEff`.
const NET_ADMIN_CLIENT: Capability =
    Capability { bit: 12, name: "CAP_NET_ADMIN", reason: "to make the TUN, its routes and rules" };

/// Bit 12 of `CapEff`.
const NET_ADMIN_PROXY: Capability = Capability {
    bit: 12,
    name: "CAP_NET_ADMIN",
    reason: "to make the TUN, its routes and the nftables rules",
};

/// Bit 10 of `CapEff`.
const NET_BIND_SERVICE: Capability =
    Capability { bit: 10, name: "CAP_NET_BIND_SERVICE", reason: "to listen on a port below 1024" };

/// What the client needs. (A socket that is bound to no interface yet may be bound to one by everybody since Linux 5.7.)
pub const CLIENT: &[Capability] = &[NET_ADMIN_CLIENT];

/// What it takes to remove a proxy's changes.
pub const PURGE: &[Capability] = &[NET_ADMIN_PROXY];

/// What the proxy needs to listen on this port.
#[must_use]
pub fn proxy(port: u16) -> &'static [Capability] {
    if port < 1024 { &[NET_ADMIN_PROXY, NET_BIND_SERVICE] } else { &[NET_ADMIN_PROXY] }
}

/// The effective capabilities of a process: its id, or `self`. `None` where they cannot be read.
#[must_use]
pub fn effective_of(process: &str) -> Option<u64> {
    effective(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// What is missing of what is needed.
#[must_use]
pub fn missing(needed: &[Capability], effective: u64) -> Vec<&Capability> {
    needed.iter().filter(|capability| effective & (1 << capability.bit) == 0).collect()
}

/// The effective capabilities in a `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// What to tell the user; `None` where nothing is missing. Capabilities of the file (`setcap`) would not
/// do: `nft`, which the daemon starts, does not inherit them.
#[must_use]
pub fn complaint(command: &str, needed: &[Capability], effective: u64) -> Option<String> {
    let missing = missing(needed, effective);
    if missing.is_empty() {
        return None;
    }
    let lines: Vec<String> = missing
        .iter()
        .map(|capability| format!("\n  {} {}", capability.name, capability.reason))
        .collect();
    Some(format!(
        "`ropewalk {command}` lacks{}\nRun it with sudo, or as the systemd unit of configs/systemd",
        lines.concat(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_found() {
        let cases = [
            (
                "Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000001ffffffffff\n",
                Some(0x1ff_ffff_ffff),
            ),
            ("CapEff:\t0000000000003000\n", Some(0x3000)),
            ("CapEff:\tmany\n", None),
            ("", None),
        ];
        for (status, expected) in cases {
            assert_eq!(effective(status), expected, "{status:?}");
        }
    }

    #[test]
    fn each_missing_capability_is_named_with_reason_and_remedy() {
        assert_eq!(complaint("client", CLIENT, 0x1000), None);
        assert_eq!(
            complaint("client", CLIENT, 0x2000).unwrap(),
            "`ropewalk client` lacks\n  CAP_NET_ADMIN to make the TUN, its routes and rules\nRun it with \
             sudo, or as the systemd unit of configs/systemd"
        );
        let proxy_message = complaint("proxy", proxy(443), 0).unwrap();
        assert!(proxy_message.contains("CAP_NET_ADMIN"), "{proxy_message}");
        assert!(proxy_message.contains("CAP_NET_BIND_SERVICE"), "{proxy_message}");
        assert_eq!(complaint("proxy", proxy(51900), 0x1000), None);
    }
}
