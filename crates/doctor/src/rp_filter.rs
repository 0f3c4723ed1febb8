//! Whether reverse path filtering drops what should come in (docs/operations/client-system.md, rp_filter).
//!
//! Strict filtering (1) drops a packet whose answer would leave by another interface; of the settings `all` and that of the
//! interface the larger counts. A client's rules answer that question for its links, but where the main table has a special
//! route to the proxy or two links have one address: there they need a mark, which needs `nft`. A proxy that is reached by
//! an interface without its default route is on its own.

use std::net::Ipv4Addr;

use ropewalk_link_io::sysctl;

use super::finding::Finding;

/// An interface with an IPv4 address.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// The value that counts.
    pub(super) filter: u64,
    /// Whether marks take part in the decision (`src_valid_mark`, of `all` or the interface).
    pub(super) by_mark: bool,
    /// Why the answer to what comes in here would leave elsewhere without a mark, if it would.
    pub(super) elsewhere: Option<String>,
}

/// The settings of an interface: the filter that counts, and whether marks do.
pub(super) fn settings(interface: &str) -> (u64, bool) {
    let read = |of: &str, key: &str| {
        sysctl::read_number(&format!("net/ipv4/conf/{of}/{key}")).ok().flatten().unwrap_or(0)
    };
    let larger = |key: &str| read("all", key).max(read(interface, key));
    (larger("rp_filter"), larger("src_valid_mark") != 0)
}

/// The interface of the most exact route of the main table (`/proc/net/route`) to an address, and whether it is a default
/// route.
pub(super) fn route_to(table: &str, address: Ipv4Addr) -> Option<(String, bool)> {
    let number = |word: &str| u32::from_str_radix(word, 16).ok().map(u32::from_be);
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, mask) = (words.first()?, number(words.get(7)?)?);
        let metric: u32 = words.get(6)?.parse().ok()?;
        let up = u32::from_str_radix(words.get(3)?, 16).ok()? & 1 != 0;
        let destination = number(words.get(1)?)?;
        (up && u32::from(address) & mask == destination)
            .then(|| (mask, std::cmp::Reverse(metric), (*name).to_owned()))
    });
    let (mask, _, name) = routes.max()?;
    Some((name, mask == 0))
}

/// What a client needs: `marks` says whether it can set them (nft works), `runs` whether it does already.
pub(super) fn judge_client(interfaces: &[Interface], marks: bool, runs: bool) -> Vec<Finding> {
    let harmed = interfaces.iter().filter_map(|one| {
        let why = one.elsewhere.as_ref()?;
        let works = marks && (!runs || one.by_mark);
        (one.filter == 1 && !works).then(|| {
            let because = match (marks, runs) {
                (false, _) => "nft is not there to mark them",
                (true, _) => "src_valid_mark is 0, which the client sets to 1",
            };
            fault(
                &one.name,
                format!("strict filtering drops the proxy's answers: {why}, and {because}"),
            )
        })
    });
    told(harmed.collect(), interfaces, "the client's rules keep what comes in by its links")
}

/// What a proxy needs.
pub(super) fn judge_proxy(interfaces: &[Interface]) -> Vec<Finding> {
    let harmed = interfaces.iter().filter_map(|one| {
        let why = one.elsewhere.as_ref()?;
        (one.filter == 1).then(|| {
            fault(&one.name, format!("strict filtering drops clients that come in here: {why}"))
        })
    });
    told(harmed.collect(), interfaces, "what comes in is answered by the same interface")
}

fn fault(interface: &str, found: String) -> Finding {
    let command =
        format!("sudo sysctl -w net.ipv4.conf.{}.rp_filter=2", interface.replace('.', "/"));
    Finding::fail("rp-filter.strict", interface, found, command)
        .advise("loose filtering keeps them (for good: a file in /etc/sysctl.d):")
        .automatic()
}

fn told(mut findings: Vec<Finding>, interfaces: &[Interface], fine: &str) -> Vec<Finding> {
    if findings.is_empty() && !interfaces.is_empty() {
        let strict: Vec<_> =
            interfaces.iter().filter(|one| one.filter == 1).map(|one| one.name.as_str()).collect();
        let found = match strict.as_slice() {
            [] => "no interface filters strictly".to_owned(),
            names => format!("strict on {}; {fine}", names.join(", ")),
        };
        findings.push(Finding::ok("rp-filter", "rp_filter", found));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(filter: u64, by_mark: bool, elsewhere: bool) -> Interface {
        let elsewhere = elsewhere.then(|| "a route leads elsewhere".to_owned());
        Interface { name: "wan1".into(), filter, by_mark, elsewhere }
    }

    #[test]
    fn strict_filtering_is_a_fault_only_where_it_drops_answers() {
        // filter, marks count, answers leave elsewhere, nft works, the client runs; harmed
        let table = [
            (0, false, true, false, false, false),
            (1, false, false, false, true, false),
            (1, false, true, true, false, false),
            (1, true, true, true, true, false),
            (1, false, true, true, true, true),
            (1, false, true, false, false, true),
            (2, false, true, false, true, false),
        ];
        for (filter, by_mark, elsewhere, marks, runs, harmed) in table {
            let findings = judge_client(&[interface(filter, by_mark, elsewhere)], marks, runs);
            assert_eq!(
                findings[0].id == "rp-filter.strict",
                harmed,
                "{filter} {by_mark} {elsewhere} {marks} {runs}"
            );
        }
        for (filter, elsewhere, harmed) in [(1, true, true), (1, false, false), (2, true, false)] {
            let findings = judge_proxy(&[interface(filter, false, elsewhere)]);
            assert_eq!(findings[0].id == "rp-filter.strict", harmed, "{filter} {elsewhere}");
        }
        let command = &judge_proxy(&[interface(1, false, true)])[0].commands[0];
        assert_eq!(command, "sudo sysctl -w net.ipv4.conf.wan1.rp_filter=2");
    }

    #[test]
    fn the_most_exact_route_counts_and_of_equal_ones_the_smaller_metric() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            wan1\t00000000\t010BA8C0\t0003\t0\t0\t101\t00000000\t0\t0\t0\n\
            wan0\t00000000\t010AA8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            wan1\t027100CB\t010BA8C0\t0007\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
            wan2\t037100CB\t010BA8C0\t0006\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
            damaged\n";
        let to = |address: &str| route_to(table, address.parse().unwrap());
        assert_eq!(to("203.0.113.2"), Some(("wan1".into(), false)));
        assert_eq!(to("203.0.113.3"), Some(("wan0".into(), true)), "a route that is down");
        assert_eq!(to("9.9.9.9"), Some(("wan0".into(), true)));
        assert_eq!(route_to("", Ipv4Addr::LOCALHOST), None);
    }
}
