//! What is told of each tunnel.

use super::exposition::{Histogram, Kind, Labels, Page, Value};
use super::{Family, sent};
use crate::api::{TunnelState, TunnelStatus};

/// What has several lines for each tunnel.
pub(super) fn several(page: &mut Page, tunnels: &[(Labels<'_>, &TunnelStatus)]) {
    let states = tunnels.iter().flat_map(|(labels, tunnel)| {
        STATES.iter().map(|state| {
            (labels.with("state", state.to_string()), Value::flag(*state == tunnel.state))
        })
    });
    let help = "State of the tunnel: 1 for the one it is in.";
    page.family("tunnel_state", Kind::Gauge, help, states);

    let outages = tunnels.iter().flat_map(|(labels, tunnel)| {
        let outages = &tunnel.outages;
        let by = |cause: &str, count| (labels.with("cause", cause), Value::Whole(count));
        [
            by("silent", outages.silent),
            by("refused", outages.refused),
            by("removed", outages.removed),
            by("peer", outages.peer),
        ]
    });
    let help = "Times that a link of the tunnel carried nothing, by how this end knew.";
    page.family("link_outages_total", Kind::Counter, help, outages);

    let stalls = tunnels.iter().flat_map(|(labels, tunnel)| {
        tunnel.outages.stalls.iter().flat_map(move |stalls| {
            let bounds: Vec<_> = stalls.bounds_ms.iter().map(|bound| bound / 1e3).collect();
            let by_cause = [
                ("silent", &stalls.silent),
                ("refused", &stalls.refused),
                ("removed", &stalls.removed),
                ("peer", &stalls.peer),
            ];
            by_cause.map(|(cause, of)| {
                let (bounds, counts, sum) = (bounds.clone(), of.counts.as_slice(), of.sum_ms / 1e3);
                (labels.with("cause", cause), Histogram { bounds, counts, sum })
            })
        })
    });
    let help = "Time that packets moved off a link stood still, from sending the first until one of them was confirmed.";
    page.histogram("link_outage_stall_seconds", help, stalls);

    let drops = tunnels.iter().flat_map(|(labels, tunnel)| {
        tunnel
            .drops
            .iter()
            .map(|(reason, count)| (labels.with("reason", reason.clone()), Value::Whole(*count)))
    });
    page.family("tunnel_dropped_total", Kind::Counter, "Dropped in the tunnel at this end.", drops);

    let outcomes = tunnels.iter().flat_map(|(labels, tunnel)| {
        let reseq = &tunnel.resequencer;
        let by = |outcome: &str, count| (labels.with("outcome", outcome), Value::Whole(count));
        [
            by("in_order", reseq.in_order),
            by("as_they_came", reseq.as_they_came),
            by("late", reseq.late),
            by("duplicate", reseq.duplicate),
        ]
    });
    let help = "Packets received, by what putting them in order made of them.";
    page.family("resequencer_packets_total", Kind::Counter, help, outcomes);

    let passed = tunnels.iter().flat_map(|(labels, tunnel)| {
        let reseq = &tunnel.resequencer;
        [
            (labels.with("reason", "proof"), Value::Whole(reseq.skipped_by_proof)),
            (labels.with("reason", "deadline"), Value::Whole(reseq.skipped_by_deadline)),
        ]
    });
    let help = "Packets that are waited for no more: proven lost, or overdue.";
    page.family("resequencer_passed_over_total", Kind::Counter, help, passed);

    let copies =
        || tunnels.iter().filter_map(|(labels, tunnel)| Some((labels, tunnel.redundancy?)));
    let packets = copies().flat_map(|(labels, copies)| {
        let by = |outcome: &str, count| (labels.with("outcome", outcome), Value::Whole(count));
        [
            by("sent_twice", copies.packets),
            by("over_budget", copies.over_budget),
            by("no_room", copies.no_room),
        ]
    });
    let help = "Packets to be sent over two links at once, by what became of the copy.";
    page.family("redundant_packets_total", Kind::Counter, help, packets);
    let bytes = copies().flat_map(|(labels, copies)| {
        let by = |outcome: &str, count| (labels.with("outcome", outcome), Value::Whole(count));
        [by("sent_twice", copies.bytes), by("over_budget", copies.over_budget_bytes)]
    });
    let help = "What the copies cost, or would have cost, with all headers.";
    page.family("redundant_bytes_total", Kind::Counter, help, bytes);

    let waits = tunnels.iter().flat_map(|(labels, tunnel)| {
        let reseq = &tunnel.resequencer;
        let waits = [("0.5", reseq.wait_p50_ms), ("0.99", reseq.wait_p99_ms)];
        waits.into_iter().filter_map(|(quantile, wait)| {
            Some((labels.with("quantile", quantile), Value::millis(wait)?))
        })
    });
    let help = "Wait of packets that were held to put them in order.";
    page.family("resequencer_wait_seconds", Kind::Gauge, help, waits);
}

/// What has one line for each tunnel.
pub(super) const FAMILIES: &[Family<TunnelStatus>] = &[
    Family::gauge("tunnel_state_seconds", "How long it has been in its state.", |_, tunnel| {
        Some(Value::Real(tunnel.state_age_s))
    }),
    Family::counter("tunnel_sent_bytes_total", "Bytes of inner packets sent.", |role, tunnel| {
        Some(Value::Whole(sent(role, tunnel.up, tunnel.down).bytes))
    }),
    Family::counter(
        "tunnel_received_bytes_total",
        "Bytes of inner packets received.",
        |role, tunnel| Some(Value::Whole(sent(role, tunnel.down, tunnel.up).bytes)),
    ),
    Family::counter("tunnel_sent_packets_total", "Inner packets sent.", |role, tunnel| {
        Some(Value::Whole(sent(role, tunnel.up, tunnel.down).packets))
    }),
    Family::counter("tunnel_received_packets_total", "Inner packets received.", |role, tunnel| {
        Some(Value::Whole(sent(role, tunnel.down, tunnel.up).packets))
    }),
    Family::gauge(
        "tunnel_mtu_bytes",
        "Longest inner packet that fits through the links.",
        |_, tunnel| tunnel.inner_mtu.map(|mtu| Value::Whole(mtu.into())),
    ),
    Family::gauge("tunnel_session_seconds", "Age of the session.", |_, tunnel| {
        tunnel.session.as_ref().map(|session| Value::Real(session.age_s))
    }),
    Family::counter(
        "tunnel_rekeys_total",
        "Keys agreed after the first ones of the session.",
        |_, tunnel| tunnel.session.as_ref().map(|session| Value::Whole(session.rekeys)),
    ),
    Family::gauge("queue_packets", "Packets that wait for a link at this end.", |_, tunnel| {
        Some(Value::Whole(tunnel.queue.packets))
    }),
    Family::gauge("queue_bytes", "Bytes that wait for a link at this end.", |_, tunnel| {
        Some(Value::Whole(tunnel.queue.bytes))
    }),
    Family::counter(
        "late_answers_total",
        "Answers on a link that were overdue and came within 200 ms all the same.",
        |_, tunnel| Some(Value::Whole(tunnel.outages.brief)),
    ),
    Family::counter(
        "moved_packets_total",
        "Packets that were under way on a link that carried nothing any more, and went over others.",
        |_, tunnel| Some(Value::Whole(tunnel.outages.moved_packets)),
    ),
    Family::counter("repair_packets_total", "Packets sent again.", |_, tunnel| {
        tunnel.repairs.map(|repairs| Value::Whole(repairs.sent_again))
    }),
    Family::counter("repair_bytes_total", "Bytes of packets sent again.", |_, tunnel| {
        tunnel.repairs.map(|repairs| Value::Whole(repairs.sent_again_bytes))
    }),
    Family::counter(
        "repair_given_up_packets_total",
        "Packets that were lost and too old to be sent again.",
        |_, tunnel| tunnel.repairs.map(|repairs| Value::Whole(repairs.given_up)),
    ),
    Family::gauge("repair_kept_packets", "Packets kept until they are confirmed.", |_, tunnel| {
        tunnel.repairs.map(|repairs| Value::Whole(repairs.kept))
    }),
    Family::gauge("repair_kept_bytes", "Bytes of packets kept until confirmed.", |_, tunnel| {
        tunnel.repairs.map(|repairs| Value::Whole(repairs.kept_bytes))
    }),
    Family::gauge(
        "local_ack_connections",
        "Connections of TCP whose senders this end acknowledges.",
        |_, tunnel| Some(Value::Whole(tunnel.local_acks.connections)),
    ),
    Family::gauge(
        "local_ack_kept_bytes",
        "Bytes acknowledged here and kept until the receivers have them.",
        |_, tunnel| Some(Value::Whole(tunnel.local_acks.kept_bytes)),
    ),
    Family::counter(
        "local_ack_segments_total",
        "Segments of TCP acknowledged here before the receiver had them.",
        |_, tunnel| Some(Value::Whole(tunnel.local_acks.segments)),
    ),
    Family::counter(
        "local_ack_sent_again_total",
        "Segments of TCP sent again because the receiver missed them, or to ask whether it does.",
        |_, tunnel| Some(Value::Whole(tunnel.local_acks.sent_again)),
    ),
    Family::counter(
        "local_ack_lost_connections_total",
        "Connections reset because the receiver never had what was acknowledged.",
        |_, tunnel| Some(Value::Whole(tunnel.local_acks.lost)),
    ),
    Family::gauge("resequencer_held_packets", "Packets held to put them in order.", |_, tunnel| {
        Some(Value::Whole(tunnel.resequencer.held))
    }),
    Family::gauge("resequencer_held_bytes", "Bytes held to put them in order.", |_, tunnel| {
        Some(Value::Whole(tunnel.resequencer.held_bytes))
    }),
    Family::counter(
        "resequencer_released_total",
        "Packets released because the buffer was full.",
        |_, tunnel| Some(Value::Whole(tunnel.resequencer.released_by_full_buffer)),
    ),
];

const STATES: [TunnelState; 5] = [
    TunnelState::Idle,
    TunnelState::Connecting,
    TunnelState::Up,
    TunnelState::Stalled,
    TunnelState::Closed,
];
