//! What an observer of the access networks sees of a download: no eight bytes in a row of its content,
//! and no inner address.
//!
//! The search itself is proven on the other side of the proxy, where the same download passes in the
//! clear.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::look::{access, inner_v4, inner_v6};
use super::{Finding, Proof, Trial};
use crate::address::{ROUTER_WAN, SERVER_V4, SERVER_V6, UPLINK};
use crate::capture::{Capture, Frame};
use crate::error::LabError;
use crate::http::{body, body_sha256};
use crate::stage::Stage;
use crate::topology::TopologyConfig;

/// A capture of the WANs.
pub(super) const CAPTURE: Proof = Proof {
    name: "capture",
    shows: "a capture of the WANs holds no 8 bytes of payload and no inner address",
    seconds: 25,
    run,
};

const SEED: u64 = 31;
/// Bytes of payload in a row that would be a leak.
const WINDOW: usize = 8;
/// Four given bytes occur in random ones by chance, about once in a thousand runs; a header in the clear
/// would show them in every datagram.
const BY_CHANCE: u64 = 1;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(8, 20), access(8, 40)]))?;
    let bytes = trial.either(2_000_000, 600_000);
    // The session's first datagrams are part of what is looked at: the addresses are not known yet.
    let search = Search::new(bytes)?;
    let watch = |namespace, interface| {
        let mut search = search.clone();
        Capture::start(namespace, interface, Seen::default(), move |seen, frame| {
            search.look(seen, frame);
        })
    };
    let wans = stage.topology.routers();
    let wans = [watch(wans[0].namespace(), ROUTER_WAN)?, watch(wans[1].namespace(), ROUTER_WAN)?];
    let clear = watch(stage.topology.server(), UPLINK)?;
    let status = stage.start([0, 1])?.0;
    let inner = (inner_v4(&status)?, inner_v6(&status).ok());
    for download in [stage.get(bytes, SEED)?, stage.get_v6(bytes, SEED)?] {
        if download.sha256 != body_sha256(bytes, SEED) {
            return Err(LabError::Unsupported(format!(
                "the download failed: {}",
                download.message
            )));
        }
    }
    drop(stage);
    let mut seen = Seen::default();
    for capture in &wans {
        capture.look(|part| seen.add(part));
    }
    let inside = |address: Ipv4Addr| seen.v4.iter().filter(|a| **a == address).count() as u64;
    let mut findings = vec![
        Finding::told("datagrams captured on both WANs", seen.datagrams as f64, ""),
        Finding::told("their bytes", seen.bytes as f64, ""),
        Finding::at_least(
            "8 bytes of payload behind the proxy (the search works)",
            clear.look(|seen| seen.payload as f64),
            bytes as f64,
            "times",
        ),
        Finding::at_most("8 bytes of payload on the WANs", seen.payload as f64, 0.0, "times"),
    ];
    let mut absent = |what: String, times: u64, most: u64| {
        findings.push(Finding::at_most(what, times as f64, most as f64, "times"));
    };
    absent(format!("inner address {}", inner.0), inside(inner.0), BY_CHANCE);
    absent(format!("destination {SERVER_V4}"), inside(SERVER_V4), BY_CHANCE);
    for address in inner.1.into_iter().chain([SERVER_V6]) {
        let times = seen.v6.iter().filter(|seen| **seen == address).count() as u64;
        absent(format!("address {address}"), times, 0);
    }
    Ok(findings)
}

/// What was found in UDP payloads (on the WANs), or in packets (where nothing is hidden).
#[derive(Clone, Debug, Default)]
struct Seen {
    datagrams: u64,
    bytes: u64,
    /// Windows that stand in the body.
    payload: u64,
    /// Windows that are an address of the pool's range, or the server's.
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.payload += other.payload;
        self.v4.extend(&other.v4);
        self.v6.extend(&other.v6);
    }
}

/// Bits of the filter in front of the set: most windows end here, which makes the search as fast as the
/// links.
const FILTER_BITS: u32 = 27;

#[derive(Clone)]
struct Search {
    windows: HashSet<u64>,
    filter: Vec<u64>,
}

impl Search {
    /// Knows every window of the body, at every offset.
    fn new(bytes: u64) -> Result<Self, LabError> {
        let mut content = Vec::new();
        body(bytes, SEED, |chunk| {
            content.extend_from_slice(chunk);
            Ok(())
        })
        .map_err(LabError::io("making a body"))?;
        let mut search = Self { windows: HashSet::new(), filter: vec![0; 1 << (FILTER_BITS - 6)] };
        for window in windows(&content) {
            let (word, bit) = place(window);
            search.filter[word] |= bit;
            search.windows.insert(window);
        }
        Ok(search)
    }

    fn look(&mut self, seen: &mut Seen, frame: &Frame<'_>) {
        // Behind the proxy it is TCP.
        let Some((_, _, _, content)) = frame.ip() else { return };
        let payload = frame.udp().map_or(content, |udp| udp.payload);
        seen.datagrams += 1;
        seen.bytes += payload.len() as u64;
        for window in windows(payload) {
            let (word, bit) = place(window);
            if self.filter[word] & bit != 0 && self.windows.contains(&window) {
                seen.payload += 1;
            }
        }
        for bytes in payload.windows(4) {
            // Pool or server: all addresses that are asked for later.
            if let [10, 77, ..] | [192, 0, 2, 2] = bytes {
                let [a, b, c, d] = [bytes[0], bytes[1], bytes[2], bytes[3]];
                seen.v4.push(Ipv4Addr::new(a, b, c, d));
            }
        }
        for bytes in payload.windows(16) {
            // Unique local, or documentation.
            let ((0xfc | 0xfd, _) | (0x20, 0x01)) = (bytes[0], bytes[1]) else { continue };
            // Only what could be asked for: random bytes begin so once in a hundred.
            let address = <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from);
            if let Ok(address) = address
                && (address == SERVER_V6 || bytes[8..15] == [0; 7])
            {
                seen.v6.push(address);
            }
        }
    }
}

fn windows(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.windows(WINDOW).filter_map(|window| window.try_into().map(u64::from_be_bytes).ok())
}

fn place(window: u64) -> (usize, u64) {
    // Fibonacci hashing: the upper bits of a product depend on all bits.
    let hash = window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FILTER_BITS);
    (usize::try_from(hash >> 6).unwrap_or_default(), 1 << (hash & 63))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn eight_bytes_of_the_body_are_found_at_any_offset_and_seven_are_not() {
        let mut search = Search::new(10_000).unwrap();
        let mut content = Vec::new();
        body(10_000, SEED, |chunk| {
            content.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        for (length, times) in [(8, 1), (7, 0), (20, 13)] {
            let mut frame = vec![2; 12];
            frame.extend([
                8, 0, 0x45, 0, 0, 70, 0, 0, 0x40, 0, 64, 17, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2,
            ]);
            frame.extend([1, 1, 2, 2, 0, 50, 0, 0, 0xaa, 0xbb, 0xcc]);
            frame.extend(&content[4321..4321 + length]);
            frame.resize(14 + 70, 0xee);
            let mut seen = Seen::default();
            search.look(&mut seen, &Frame { at: Instant::now(), outgoing: true, bytes: &frame });
            assert_eq!((seen.datagrams, seen.payload), (1, times), "{length} bytes");
        }
    }
}
