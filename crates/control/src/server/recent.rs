//! What tunnels and links carried in the last ten minutes, for graphs that do not begin when somebody looks.
//!
//! A rate is what the counters gained between two looks, so that nothing between them is missed. All series end with the
//! latest look; one that is shorter is of a link or client that came later.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::api::{StatusReport, TunnelState};

/// Between two looks: a step that is seen in a graph of ten minutes, and a daemon at rest is hardly woken for it.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// Steps that are kept: ten minutes.
const STEPS: usize = 120;

/// Tunnels of which there are series: all of a client, and on a proxy more than anybody looks at one by one.
const MOST_TUNNELS: usize = 64;

/// Links of each, as many as a client may have.
const MOST_LINKS: usize = 64;

const _: () = assert!(
    MOST_TUNNELS * (1 + MOST_LINKS) * 2 * STEPS * size_of::<f32>() <= 4 << 20,
    "the series take 4 MiB at most"
);

/// The last ten minutes.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Recent {
    /// Seconds of each value.
    step_s: u64,
    /// By the name of the peer.
    tunnels: BTreeMap<String, Tunnel>,
}

/// What one tunnel carried of packets, and each of its links of datagrams.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Tunnel {
    #[serde(flatten)]
    all: Series,
    /// In the order of the status, where names may stand several times.
    links: Vec<Link>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct Link {
    name: String,
    #[serde(flatten)]
    series: Series,
}

/// Rates both ways, bits per second, the latest last.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Series {
    down: Vec<f32>,
    up: Vec<f32>,
    /// The bytes down and up when last looked at.
    #[serde(skip)]
    bytes: Option<[u64; 2]>,
}

impl Recent {
    /// Notes what was carried since the look before, `passed` ago.
    pub(super) fn note(&mut self, report: &StatusReport, passed: Duration) {
        self.step_s = STEP.as_secs();
        let mut before = std::mem::take(&mut self.tunnels);
        let is_up = |state| matches!(state, TunnelState::Up | TunnelState::Stalled);
        let all = report.tunnels.len();
        let shown = report.tunnels.iter().filter(|one| all <= MOST_TUNNELS || is_up(one.state));
        for tunnel in shown.take(MOST_TUNNELS) {
            let Tunnel { mut all, links } = before.remove(&tunnel.peer).unwrap_or_default();
            all.note([tunnel.down.bytes, tunnel.up.bytes], passed);
            let mut links: Vec<Option<Link>> = links.into_iter().map(Some).collect();
            let of_links = tunnel.links.iter().take(MOST_LINKS).map(|link| {
                let is_it = |known: &&mut Option<Link>| {
                    known.as_ref().is_some_and(|known| known.name == link.name)
                };
                let known = links.iter_mut().find(is_it).and_then(Option::take);
                let mut series = known.map(|known| known.series).unwrap_or_default();
                series.note([link.down.bytes, link.up.bytes], passed);
                Link { name: link.name.clone(), series }
            });
            let links = of_links.collect();
            self.tunnels.insert(tunnel.peer.clone(), Tunnel { all, links });
        }
    }
}

impl Series {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a graph shows three digits, and the steps are few"
    )]
    fn note(&mut self, bytes: [u64; 2], passed: Duration) {
        let Some(before) = self.bytes.replace(bytes) else { return };
        // A look that was late stands for the steps that it missed.
        let steps = (passed.as_secs_f64() / STEP.as_secs_f64()).round().clamp(1.0, STEPS as f64);
        for (values, (now, before)) in
            [&mut self.down, &mut self.up].into_iter().zip(bytes.into_iter().zip(before))
        {
            // Counters that begin again have gained nothing that is known.
            let gained = now.saturating_sub(before) as f64 * 8.0;
            let rate = gained / passed.as_secs_f64().max(0.001);
            values.extend(std::iter::repeat_n(rate as f32, steps as usize));
            values.drain(..values.len().saturating_sub(STEPS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> StatusReport {
        serde_json::from_str(include_str!("../../tests/status/client.json")).unwrap()
    }

    fn link<'a>(recent: &'a Recent, peer: &str, place: usize) -> &'a Series {
        &recent.tunnels[peer].links[place].series
    }

    #[test]
    fn a_rate_is_what_was_carried_between_two_looks() {
        let (mut recent, mut report) = (Recent::default(), report());
        let peer = report.tunnels[0].peer.clone();
        recent.note(&report, STEP);
        assert_eq!(link(&recent, &peer, 0).down, [] as [f32; 0], "nothing is known yet");
        report.tunnels[0].down.bytes += 1_000_000;
        report.tunnels[0].links[0].down.bytes += 500_000;
        recent.note(&report, STEP);
        assert_eq!(recent.tunnels[&peer].all.down, [1_600_000.0]);
        assert_eq!(recent.tunnels[&peer].all.up, [0.0]);
        assert_eq!(link(&recent, &peer, 0).down, [800_000.0]);
        // Two steps late, and counters that began again.
        report.tunnels[0].down.bytes = 0;
        recent.note(&report, STEP * 2);
        assert_eq!(recent.tunnels[&peer].all.down, [1_600_000.0, 0.0, 0.0]);
        let shown = serde_json::to_value(&recent).unwrap();
        assert_eq!(shown["step_s"], 5);
        assert_eq!(shown["tunnels"][&peer]["down"][0], 1_600_000.0);
        assert_eq!(shown["tunnels"][&peer]["links"][0]["name"], report.tunnels[0].links[0].name);
    }

    #[test]
    fn links_of_one_name_have_a_series_each_and_one_that_is_gone_has_none() {
        let (mut recent, mut report) = (Recent::default(), report());
        let peer = report.tunnels[0].peer.clone();
        let twin = report.tunnels[0].links[0].clone();
        report.tunnels[0].links = vec![twin.clone(), twin];
        recent.note(&report, STEP);
        report.tunnels[0].links[1].up.bytes += 5;
        recent.note(&report, STEP);
        assert_eq!([0, 1].map(|place| link(&recent, &peer, place).up[0]), [0.0, 8.0]);
        report.tunnels[0].links.truncate(1);
        recent.note(&report, STEP);
        assert_eq!(recent.tunnels[&peer].links.len(), 1);
        report.tunnels.clear();
        recent.note(&report, STEP);
        assert_eq!(recent.tunnels.len(), 0);
    }

    #[test]
    fn it_is_bounded_in_time_tunnels_and_links() {
        let (mut recent, mut report) = (Recent::default(), report());
        let link = report.tunnels[0].links[0].clone();
        report.tunnels[0].links = vec![link; 2 * MOST_LINKS];
        let tunnel = report.tunnels[0].clone();
        report.tunnels = (0..200)
            .map(|n| {
                let state = if n % 2 == 0 { TunnelState::Idle } else { TunnelState::Up };
                crate::api::TunnelStatus { peer: format!("peer{n}"), state, ..tunnel.clone() }
            })
            .collect();
        for _ in 0..STEPS + 10 {
            recent.note(&report, STEP);
        }
        recent.note(&report, Duration::from_secs(1_000_000));
        assert_eq!(recent.tunnels.len(), MOST_TUNNELS);
        assert!(recent.tunnels.contains_key("peer1") && !recent.tunnels.contains_key("peer0"));
        for tunnel in recent.tunnels.values() {
            assert_eq!((tunnel.links.len(), tunnel.all.up.len()), (MOST_LINKS, STEPS));
        }
    }
}
