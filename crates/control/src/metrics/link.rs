//! What is told of each link.

use std::collections::BTreeSet;

use super::exposition::{Kind, Labels, Page, Value};
use super::{Family, MAX_LINKS, peer, sent};
use crate::api::{LinkState, LinkStatus, ModelLimit, Role, TunnelStatus};

/// The links of a tunnel by their names; of several that are called alike the later ones are numbered, with numbers
/// that make no name that is there already.
pub(super) fn links_of(
    role: Role,
    tunnel: &TunnelStatus,
) -> impl Iterator<Item = (Labels<'_>, &LinkStatus)> {
    let links = tunnel.links.iter().take(MAX_LINKS);
    let mut taken: BTreeSet<String> = links.clone().map(|link| link.name.clone()).collect();
    let mut met: BTreeSet<&str> = BTreeSet::new();
    links.map(move |link| {
        let name = if met.insert(&link.name) {
            link.name.clone()
        } else {
            let numbered = |number: usize| format!("{}#{number}", link.name);
            // One of more numbers than there are names is free.
            let free = (2..=2 * MAX_LINKS).map(numbered).find(|name| !taken.contains(name));
            free.unwrap_or_else(|| link.name.clone())
        };
        taken.insert(name.clone());
        (peer(role, tunnel).with("link", name), link)
    })
}

/// What has several lines for each link.
pub(super) fn several(page: &mut Page, links: &[(Labels<'_>, &LinkStatus)]) {
    let states = links.iter().flat_map(|(labels, link)| {
        STATES.iter().map(|state| {
            (labels.with("state", state.to_string()), Value::flag(*state == link.state))
        })
    });
    page.family("link_state", Kind::Gauge, "State of the link: 1 for the one it is in.", states);
    let limits = links.iter().filter_map(|(labels, link)| Some((labels, link.model.as_ref()?)));
    let limits = limits.flat_map(|(labels, model)| {
        ModelLimit::ALL
            .iter()
            .map(|limit| (labels.with("limit", limit.name()), Value::flag(*limit == model.limit)))
    });
    let help = "What holds this end back by its model of the link: 1 for the one that does.";
    page.family("link_model_limit", Kind::Gauge, help, limits);
}

/// What has one line for each link.
pub(super) const FAMILIES: &[Family<LinkStatus>] = &[
    Family::gauge("link_over_tls", "Whether its datagrams go over TLS.", |_, link| {
        Some(Value::flag(link.over_tls))
    }),
    Family::gauge("link_state_seconds", "How long it has been in its state.", |_, link| {
        Some(Value::Real(link.state_age_s))
    }),
    Family::counter(
        "link_sent_bytes_total",
        "Bytes of UDP payload sent on the link.",
        |role, link| Some(Value::Whole(sent(role, link.up, link.down).bytes)),
    ),
    Family::counter(
        "link_received_bytes_total",
        "Bytes of UDP payload received on the link.",
        |role, link| Some(Value::Whole(sent(role, link.down, link.up).bytes)),
    ),
    Family::counter("link_sent_datagrams_total", "Datagrams sent on the link.", |role, link| {
        Some(Value::Whole(sent(role, link.up, link.down).datagrams))
    }),
    Family::counter(
        "link_received_datagrams_total",
        "Datagrams received on the link.",
        |role, link| Some(Value::Whole(sent(role, link.down, link.up).datagrams)),
    ),
    Family::gauge("link_rtt_seconds", "Smoothed round-trip time.", |_, link| {
        Value::millis(link.srtt_ms)
    }),
    Family::gauge(
        "link_rtt_deviation_seconds",
        "Mean deviation of the round-trip time.",
        |_, link| Value::millis(link.rttvar_ms),
    ),
    Family::gauge(
        "link_delay_variation_seconds",
        "Mean deviation of the one-way delay towards this end.",
        |_, link| Value::millis(link.owd_variation_ms),
    ),
    Family::gauge(
        "link_loss_ratio",
        "Share of recent datagrams of this end that were lost, 0 to 1.",
        |_, link| link.loss_recent.map(Value::Real),
    ),
    Family::gauge(
        "link_loss_overall_ratio",
        "Share of all datagrams of this end that were lost, 0 to 1.",
        |_, link| link.loss_total.map(Value::Real),
    ),
    Family::gauge(
        "link_path_mtu_bytes",
        "Largest datagram known to pass, with IP and UDP headers.",
        |_, link| link.path_mtu.map(|mtu| Value::Whole(mtu.into())),
    ),
    Family::counter(
        "link_black_holes_total",
        "How often a size that had passed was found to pass no more.",
        |_, link| Some(Value::Whole(link.black_holes)),
    ),
    Family::gauge("link_window_datagrams", "Congestion window of this end.", |_, link| {
        link.cwnd.map(|window| Value::Whole(window.into()))
    }),
    Family::gauge(
        "link_in_flight_datagrams",
        "Datagrams of this end that are not confirmed yet.",
        |_, link| Some(Value::Whole(link.in_flight.into())),
    ),
    Family::gauge(
        "link_share_ratio",
        "Share of a round that the scheduler of this end gives it, 0 to 1.",
        |_, link| link.share.and_then(|share| share.share).map(Value::Real),
    ),
    Family::gauge(
        "link_capacity_bytes_per_second",
        "What it carries at most in the direction of this end's sending.",
        |_, link| {
            let sensed = link.sensed?;
            Value::bits(sensed.capacity_told_bps.or(sensed.capacity_bps))
        },
    ),
    Family::gauge(
        "link_available_bytes_per_second",
        "Of its capacity what others leave.",
        |_, link| Value::bits(link.sensed?.available_bps),
    ),
    Family::gauge(
        "link_model_rate_bytes_per_second",
        "Rate that the model of this end's sending found, at IP level.",
        |_, link| Value::bits(link.model.as_ref()?.rate_bps),
    ),
    Family::gauge(
        "link_model_min_rtt_seconds",
        "Round-trip time without a queue, by that model.",
        |_, link| Value::millis(link.model.as_ref()?.min_rtt_ms),
    ),
    Family::gauge("link_model_queue_seconds", "Queue on the way now, by that model.", |_, link| {
        Value::millis(Some(link.model.as_ref()?.queue_ms))
    }),
    Family::gauge(
        "link_model_usual_loss_ratio",
        "Share of losses that is the path's own, by that model, 0 to 1.",
        |_, link| Some(Value::Real(link.model.as_ref()?.usual_loss)),
    ),
    Family::gauge("link_allowance_bytes", "How much it may carry in a month.", |_, link| {
        link.allowance.as_ref().map(|allowance| Value::Whole(allowance.bytes))
    }),
    Family::gauge(
        "link_allowance_used_bytes",
        "How much of this month's allowance is used.",
        |_, link| link.allowance.as_ref().map(|allowance| Value::Whole(allowance.used)),
    ),
];

const STATES: [LinkState; 5] =
    [LinkState::Disabled, LinkState::Down, LinkState::Joining, LinkState::Up, LinkState::Suspect];
