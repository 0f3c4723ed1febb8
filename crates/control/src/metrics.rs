//! The status document as Prometheus reads it (text exposition format 0.0.4).
//!
//! One table for each thing that is measured; a family's lines stand together, as the format wants them. Names and units
//! are Prometheus' own: base units (seconds, bytes), `_total` for what only grows. *Sent* and *received* are this
//! daemon's: on a client sent is upstream, on a proxy downstream. What is not known yet has no line.
//!
//! **How many series there can be**: labels are the names of peers (on a proxy only) and of links, and words of this
//! file. At most [`MAX_TUNNELS`] tunnels, [`MAX_LINKS`] links of each and [`MAX_ALL_LINKS`] links in all are told of; how
//! many are left out is told too.
//! Forwarded ports have their client's name and their own numbers; a config has at most 256 of them.
//! On a proxy a link is called as its client calls it, so a client can make a series of each name that it thinks of, but
//! no more than these at a time.

mod forwards;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use crate::api::{
    KnownProxy, LinkState, LinkStatus, ModelLimit, PoolStatus, ProxiesReport, ProxyStatus, Role,
    StatusReport, TunnelState, TunnelStatus,
};

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Most tunnels that are told of: as many clients as a proxy has room for where its config says nothing.
pub const MAX_TUNNELS: usize = 1024;

/// Most links of a tunnel that are told of: as many as a client may list.
pub const MAX_LINKS: usize = 64;

/// Most links of all tunnels together: eight for each tunnel, and an answer of at most about 30 MB.
pub const MAX_ALL_LINKS: usize = 8 * MAX_TUNNELS;

/// Most proxies that are told of: those of a fleet, and those of the config.
const MAX_PROXIES: usize = 128;

/// The state of a proxy that takes new sessions.
const SERVING: &str = "serving";

/// The document in Prometheus' text format.
#[must_use]
pub fn text(report: &StatusReport) -> String {
    let role = report.daemon.role;
    let tunnels = shown(report);
    let links: Vec<(Labels<'_>, &LinkStatus)> =
        tunnels.iter().flat_map(|tunnel| links_of(role, tunnel)).take(MAX_ALL_LINKS).collect();
    let tunnels: Vec<(Labels<'_>, &TunnelStatus)> =
        tunnels.into_iter().map(|tunnel| (peer(role, tunnel), tunnel)).collect();

    let mut page = Page::default();
    daemon(&mut page, report, tunnels.len(), links.len());
    for family in TUNNEL {
        let values = tunnels
            .iter()
            .filter_map(|(labels, tunnel)| Some((labels.clone(), (family.value)(role, tunnel)?)));
        page.family(family.name, family.kind, family.help, values);
    }
    several(&mut page, &tunnels);
    for family in LINK {
        let values = links
            .iter()
            .filter_map(|(labels, link)| Some((labels.clone(), (family.value)(role, link)?)));
        page.family(family.name, family.kind, family.help, values);
    }
    let states = links.iter().flat_map(|(labels, link)| {
        LINK_STATES.iter().map(|state| {
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
    if let Some(status) = &report.proxy {
        proxy(&mut page, status);
    }
    if let Some(known) = &report.proxies {
        proxies(&mut page, known);
    }
    page.0
}

/// Those that are told of: who is connected comes first.
fn shown(report: &StatusReport) -> Vec<&TunnelStatus> {
    let (there, away): (Vec<_>, Vec<_>) =
        report.tunnels.iter().partition(|tunnel| tunnel.session.is_some());
    there.into_iter().chain(away).take(MAX_TUNNELS).collect()
}

/// The links of a tunnel by their names; of several that are called alike the later ones are numbered, with numbers
/// that make no name that is there already.
fn links_of(role: Role, tunnel: &TunnelStatus) -> impl Iterator<Item = (Labels<'_>, &LinkStatus)> {
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

/// Whose tunnel: a client has only one.
fn peer(role: Role, tunnel: &TunnelStatus) -> Labels<'_> {
    match role {
        Role::Client => Labels::default(),
        Role::Proxy => Labels::default().with("peer", tunnel.peer.clone()),
    }
}

/// What the daemon tells of itself.
fn daemon(page: &mut Page, report: &StatusReport, tunnels: usize, links: usize) {
    let daemon = &report.daemon;
    let build = Labels::default()
        .with("role", daemon.role.to_string())
        .with("version", daemon.program_version.clone());
    page.family("build_info", Kind::Gauge, "The daemon that answers.", [(build, Value::Whole(1))]);
    let mut gauge = |name, help, value| {
        page.family(name, Kind::Gauge, help, [(Labels::default(), value)]);
    };
    gauge("uptime_seconds", "Since the start of the daemon.", Value::Real(daemon.uptime_s));
    let warnings = daemon.warnings.len();
    gauge("warnings", "Warnings that `ropewalk status` shows at present.", Value::count(warnings));
    let all = report.tunnels.len();
    gauge("tunnels", "Tunnels: one of a client, one for each peer of a proxy.", Value::count(all));
    let left_out = Value::count(all.saturating_sub(tunnels));
    gauge("tunnels_left_out", "Tunnels beyond those that are told of here.", left_out);
    let all: usize = report.tunnels.iter().map(|tunnel| tunnel.links.len()).sum();
    let left_out = Value::count(all.saturating_sub(links));
    gauge("links_left_out", "Links beyond those that are told of here.", left_out);
    let drops = report.drops.iter().map(|(reason, count)| {
        (Labels::default().with("reason", reason.clone()), Value::Whole(*count))
    });
    let help = "Dropped before it could be ascribed to a tunnel.";
    page.family("dropped_total", Kind::Counter, help, drops);
}

/// What has several lines for each tunnel.
fn several(page: &mut Page, tunnels: &[(Labels<'_>, &TunnelStatus)]) {
    let states = tunnels.iter().flat_map(|(labels, tunnel)| {
        TUNNEL_STATES.iter().map(|state| {
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

/// What only a proxy has.
fn proxy(page: &mut Page, status: &ProxyStatus) {
    let counted = &status.handshakes;
    let by =
        |outcome: &str, count| (Labels::default().with("outcome", outcome), Value::Whole(count));
    let outcomes = [
        by("completed", counted.completed),
        by("unauthentic", counted.unauthentic),
        by("unknown_key", counted.unknown_key),
        by("replayed", counted.replayed),
        by("other_version", counted.other_version),
        by("rate_limited", counted.rate_limited),
        by("no_cookie", counted.no_cookie),
        by("wrong_cookie", counted.wrong_cookie),
        by("address_limited", counted.address_limited),
    ];
    let help = "First messages received, by what became of them.";
    page.family("handshakes_total", Kind::Counter, help, outcomes);
    let with_cookie = [(Labels::default(), Value::Whole(counted.with_cookie))];
    let help = "First messages received with a right cookie, while there were too many.";
    page.family("handshakes_with_cookie_total", Kind::Counter, help, with_cookie);

    let of_pools = |value: fn(&PoolStatus) -> Value| {
        let pools = status.pools.iter();
        pools.map(move |pool| {
            (Labels::default().with("prefix", pool.prefix.to_string()), value(pool))
        })
    };
    let leased = of_pools(|pool| Value::Whole(pool.leased));
    page.family("pool_leased_addresses", Kind::Gauge, "Inner addresses given to clients.", leased);
    #[expect(clippy::cast_precision_loss, reason = "an IPv6 prefix has more addresses than bits")]
    let sizes = of_pools(|pool| Value::Real(pool.size as f64));
    page.family("pool_addresses", Kind::Gauge, "Inner addresses that can be given.", sizes);

    if let Some(registry) = &status.registry {
        let gauge = |value| [(Labels::default(), Value::Whole(value))];
        let answers = u64::from(registry.begun && registry.away_s.is_none());
        let help = "Whether the registry of the fleet answers.";
        page.family("registry_up", Kind::Gauge, help, gauge(answers));
        let help = "Seconds for which the registry of the fleet has not answered.";
        page.family(
            "registry_away_seconds",
            Kind::Gauge,
            help,
            gauge(registry.away_s.unwrap_or(0)),
        );
        let help = "Age in seconds of the copy from which clients are served until the registry of the fleet was read.";
        page.family(
            "registry_copy_age_seconds",
            Kind::Gauge,
            help,
            gauge(registry.copy_age_s.unwrap_or(0)),
        );
        let help = "Clients of the fleet.";
        page.family("fleet_clients", Kind::Gauge, help, gauge(registry.clients));
        let help = "Proxies of the fleet that run.";
        page.family("fleet_proxies", Kind::Gauge, help, gauge(registry.proxies));
        let help = "Sessions with all proxies of the fleet.";
        page.family("fleet_sessions", Kind::Gauge, help, gauge(registry.sessions));
        let help = "Whether this proxy takes no new sessions.";
        page.family("draining", Kind::Gauge, help, gauge(u64::from(registry.draining)));
    }
    if let Some(table) = status.conntrack {
        let gauge = |value| [(Labels::default(), Value::Whole(value))];
        let help = "Entries of the kernel's table of connections in use.";
        page.family("conntrack_entries", Kind::Gauge, help, gauge(table.count));
        let help = "Entries that the kernel's table of connections holds at most.";
        page.family("conntrack_limit", Kind::Gauge, help, gauge(table.limit));
    }
    if let Some(turned_away) = status.turned_away {
        let counter = |value| [(Labels::default(), Value::Whole(value))];
        let help = "Packets of clients to what is closed to them.";
        page.family("refused_packets_total", Kind::Counter, help, counter(turned_away.refused));
        let help = "Connections dropped because one client had, began or was sent too many.";
        let bounded = counter(turned_away.bounded);
        page.family("bounded_connections_total", Kind::Counter, help, bounded);
    }
    forwards::families(page, &status.forwards);
}

/// The proxies that a client knows, by their ids, else by where they are reached; of several that are called alike the first.
fn proxies(page: &mut Page, report: &ProxiesReport) {
    let mut known: Vec<(Labels<'_>, &KnownProxy)> = Vec::new();
    let mut met = BTreeSet::new();
    for proxy in report.proxies.iter().take(MAX_PROXIES) {
        let address = || proxy.addresses.first().map(ToString::to_string);
        let name = proxy.id.clone().or_else(address);
        let name = name.unwrap_or_else(|| proxy.public_key.to_string());
        if met.insert(name.clone()) {
            let region = proxy.region.clone().unwrap_or_default();
            known.push((Labels::default().with("proxy", name).with("region", region), proxy));
        }
    }
    let mut gauge = |name, help, value: fn(&KnownProxy) -> Option<Value>| {
        let values =
            known.iter().filter_map(|(labels, proxy)| Some((labels.clone(), value(proxy)?)));
        page.family(name, Kind::Gauge, help, values);
    };
    let help = "Whether the proxy is the one in use.";
    gauge("proxy_in_use", help, |proxy| Some(Value::flag(proxy.in_use)));
    let help = "Whether the proxy takes new sessions.";
    gauge("proxy_serving", help, |proxy| Some(Value::flag(proxy.state == SERVING)));
    let help = "Round trip to the proxy; none where it did not answer lately.";
    gauge("proxy_rtt_seconds", help, |proxy| Value::millis(proxy.rtt_ms));
    let help = "How much of what it can carry the proxy carries.";
    gauge("proxy_load_ratio", help, |proxy| {
        Some(Value::Real(f64::from(proxy.load_percent) / 100.0))
    });
    let moves = [(Labels::default(), Value::Whole(report.moves))];
    let help = "How often another proxy was chosen.";
    page.family("proxy_moves_total", Kind::Counter, help, moves);
}

/// One name, of each tunnel or of each link.
struct Family<T> {
    /// Without the prefix of all.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(Role, &T) -> Option<Value>,
}

impl<T> Family<T> {
    const fn gauge(
        name: &'static str,
        help: &'static str,
        value: fn(Role, &T) -> Option<Value>,
    ) -> Self {
        Self { name, kind: Kind::Gauge, help, value }
    }

    const fn counter(
        name: &'static str,
        help: &'static str,
        value: fn(Role, &T) -> Option<Value>,
    ) -> Self {
        Self { name, kind: Kind::Counter, help, value }
    }
}

const TUNNEL: &[Family<TunnelStatus>] = &[
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
        "Segments of TCP sent again because the receiver missed them.",
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

const LINK: &[Family<LinkStatus>] = &[
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

const TUNNEL_STATES: [TunnelState; 5] = [
    TunnelState::Idle,
    TunnelState::Connecting,
    TunnelState::Up,
    TunnelState::Stalled,
    TunnelState::Closed,
];

const LINK_STATES: [LinkState; 5] =
    [LinkState::Disabled, LinkState::Down, LinkState::Joining, LinkState::Up, LinkState::Suspect];

/// Of what a client sends and a proxy sends that of this end.
fn sent<T>(role: Role, by_client: T, by_proxy: T) -> T {
    match role {
        Role::Client => by_client,
        Role::Proxy => by_proxy,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A sample.
#[derive(Clone, Copy)]
enum Value {
    Whole(u64),
    Real(f64),
}

impl Value {
    fn flag(set: bool) -> Self {
        Self::Whole(set.into())
    }

    fn count(count: usize) -> Self {
        Self::Whole(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn millis(millis: Option<f64>) -> Option<Self> {
        millis.map(|millis| Self::Real(millis / 1e3))
    }

    fn bits(bits: Option<f64>) -> Option<Self> {
        bits.map(|bits| Self::Real(bits / 8.0))
    }

    /// The format has words of its own for these, but none of them says anything of a network.
    fn is_number(self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Real(real) => real.is_finite(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(f),
            Self::Real(real) => real.fmt(f),
        }
    }
}

/// Labels of a line, in the order in which they were given.
#[derive(Clone, Default)]
struct Labels<'a>(Vec<(&'a str, String)>);

impl<'a> Labels<'a> {
    fn with(&self, name: &'a str, value: impl Into<String>) -> Self {
        let mut labels = self.clone();
        labels.0.push((name, value.into()));
        labels
    }
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            write!(f, "{before}{name}=\"")?;
            for letter in value.chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// What is written so far.
#[derive(Default)]
struct Page(String);

impl Page {
    /// All lines of one name; none where nothing is known.
    fn family<'a>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, Value)>,
    ) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let mut samples = samples.into_iter().filter(|(_, value)| value.is_number()).peekable();
        if samples.peek().is_none() {
            return;
        }
        self.line(format_args!("# HELP ropewalk_{name} {help}"));
        self.line(format_args!("# TYPE ropewalk_{name} {kind}"));
        for (labels, value) in samples {
            self.line(format_args!("ropewalk_{name}{labels} {value}"));
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes what it is given");
    }
}
