//! What the core counts, in the words of the status document.
//!
//! The directions are the caller's: up is what the core takes in on a client, and what it gives out on
//! a proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ropewalk_control::api::{
    AllowanceStatus, BackupDuty, DaemonStatus, DatagramTraffic, LimitTimes, LinkState, LinkStatus,
    LocalAckStatus, OffloadStatus, OutageCause, OutageStatus, OutagesStatus, PacketTraffic,
    PolicyStatus, QueueStatus, RedundancyStatus, RepairStatus, ResequencerStatus, Role,
    SessionStatus, ShareStatus, StallCounts, StallsStatus,
};
use ropewalk_proto::link::sensing::as_f64;
use ropewalk_proto::reseq;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{
    self, Duty, LinkStats, Outage, Outages, STALL_BOUNDS, Stalls, Traffic, TunnelStats,
};
use ropewalk_settings::{LinkTerms, Order, Scheduling, TunnelSettings, Usage};

use crate::{sandbox, scheduling_status};

/// The daemon itself.
#[must_use]
pub fn daemon(
    role: Role,
    uptime_s: f64,
    warnings: Vec<String>,
    offload: OffloadStatus,
) -> DaemonStatus {
    DaemonStatus {
        role,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_s,
        warnings,
        offload: Some(offload),
        kill_switch: None,
        sandbox: sandbox::status(),
        history: None,
    }
}

/// How this end sends, in the words of the config file. `own`: by settings of this tunnel's own.
#[must_use]
pub fn policy(config: &TunnelSettings, own: Option<&Scheduling>) -> PolicyStatus {
    let scheduling = own.unwrap_or(&config.scheduling);
    let sends_twice = config.order == Order::Flow && !scheduling.redundant.is_off();
    PolicyStatus {
        scheduler: scheduling.scheduler.to_string(),
        settings: scheduling.settings_in_words(),
        own: own.is_some(),
        controller: scheduling.controller(config.controller).to_string(),
        order: Some(scheduling.order(config.order).to_string()),
        redundant: sends_twice.then(|| scheduling.redundant.in_words()),
        when_closed: config.when_closed_in_words(),
    }
}

/// A session with this cipher: how old it and its keys are. Without a tunnel it had no rekey yet.
#[must_use]
pub fn session(
    cipher: &str,
    (age_s, key_age_s): (f64, f64),
    tunnel: Option<&TunnelStats>,
) -> SessionStatus {
    SessionStatus {
        cipher: cipher.to_owned(),
        age_s,
        key_age_s,
        rekeys: tunnel.map_or(0, |tunnel| tunnel.epoch.into()),
        leaves_checksums: tunnel.is_some_and(|tunnel| tunnel.leaves_checksums),
    }
}

/// What waits for a link.
#[must_use]
pub fn queue(tunnel: &TunnelStats) -> QueueStatus {
    QueueStatus { packets: tunnel.queued.0 as u64, bytes: tunnel.queued.1 as u64 }
}

/// What was sent again of what was lost.
#[must_use]
pub fn repairs(tunnel: &TunnelStats) -> Option<RepairStatus> {
    tunnel.repairs.map(|repairs| RepairStatus {
        sent_again: repairs.sent,
        sent_again_bytes: repairs.sent_bytes,
        given_up: repairs.given_up,
        kept: repairs.kept as u64,
        kept_bytes: repairs.kept_bytes as u64,
    })
}

/// What was sent over two links at once.
#[must_use]
pub fn redundancy(tunnel: &TunnelStats) -> Option<RedundancyStatus> {
    tunnel.redundancy.map(|copies| RedundancyStatus {
        packets: copies.packets,
        bytes: copies.bytes,
        over_budget: copies.over_budget,
        over_budget_bytes: copies.over_budget_bytes,
        no_room: copies.no_room,
    })
}

/// Links that carried nothing for a while.
#[must_use]
pub fn outages(now: Instant, outages: &Outages) -> OutagesStatus {
    let [silent, refused, removed, peer] = outages.counts;
    let newest = outages.newest.iter().rev().map(|outage| self::outage(now, outage)).collect();
    let (brief, moved_packets) = (outages.brief, outages.moved);
    let stalls = Some(stalls(outages));
    OutagesStatus { silent, refused, removed, peer, brief, moved_packets, stalls, newest }
}

fn stalls(outages: &Outages) -> StallsStatus {
    let bounds_ms = STALL_BOUNDS.map(millis).to_vec();
    let counts = |of: Stalls| StallCounts { counts: of.counts.to_vec(), sum_ms: millis(of.sum) };
    let [silent, refused, removed, peer] = outages.stalls.map(counts);
    StallsStatus { bounds_ms, silent, refused, removed, peer }
}

fn outage(now: Instant, outage: &Outage) -> OutageStatus {
    OutageStatus {
        link: outage.name.to_string(),
        how: cause_of(outage.cause),
        ago_s: seconds(now, outage.at),
        moved_packets: outage.moved,
        stall_ms: outage.stall.map(millis),
        away_s: outage.returned.map(|returned| seconds(returned, outage.at)),
    }
}

/// What happened to the packets of one, for a line of the log that names the link.
#[must_use]
pub fn moved_in_words(outage: &Outage) -> String {
    let stall = millis(outage.stall.unwrap_or_default());
    let Outage { moved, cause, .. } = outage;
    let how = cause_of(*cause).in_words();
    format!(
        "{how}: {moved} packets went over other links, and nothing of them was confirmed for {stall:.0} ms"
    )
}

fn cause_of(cause: tunnel::OutageCause) -> OutageCause {
    match cause {
        tunnel::OutageCause::Silent => OutageCause::Silent,
        tunnel::OutageCause::Refused => OutageCause::Refused,
        tunnel::OutageCause::Removed => OutageCause::Removed,
        tunnel::OutageCause::Peer => OutageCause::Peer,
    }
}

/// What senders of TCP were told.
#[must_use]
pub fn local_acks(tunnel: &TunnelStats) -> LocalAckStatus {
    let acks = tunnel.local_acks;
    LocalAckStatus {
        connections: acks.connections as u64,
        segments: acks.segments,
        sent_again: acks.sent_again,
        lost: acks.lost,
        kept_bytes: acks.kept_bytes as u64,
    }
}

/// What waits for its order, and what became of it.
#[must_use]
pub fn resequencer(stats: &reseq::Stats) -> ResequencerStatus {
    // Nothing waited yet: there is no wait to tell of.
    let wait = |micros: u64| (stats.resequenced > 0).then(|| millis(Duration::from_micros(micros)));
    ResequencerStatus {
        held: stats.held as u64,
        held_bytes: stats.held_bytes as u64,
        in_order: stats.in_order + stats.resequenced,
        as_they_came: stats.as_they_came,
        late: stats.late,
        duplicate: stats.duplicates + stats.too_old,
        skipped_by_proof: stats.skipped_by_proof,
        skipped_by_deadline: stats.skipped_by_deadline,
        released_by_full_buffer: stats.skipped_by_full,
        wait_p50_ms: wait(stats.wait_p50_us),
        wait_p99_ms: wait(stats.wait_p99_us),
    }
}

/// Inner packets of one direction.
#[must_use]
pub fn packets(rate_bps: f64, total: Traffic) -> PacketTraffic {
    PacketTraffic { rate_bps, packets: total.datagrams, bytes: total.bytes }
}

/// Datagrams of one direction.
#[must_use]
pub fn datagrams(rate_bps: f64, total: Traffic) -> DatagramTraffic {
    DatagramTraffic { rate_bps, datagrams: total.datagrams, bytes: total.bytes }
}

/// What a daemon knows of a link besides the core.
#[derive(Clone, Debug)]
pub struct LinkFacts {
    /// Its name.
    pub name: String,
    /// The client's interface.
    pub interface: Option<String>,
    /// Its state, which may have reasons outside the core.
    pub state: LinkState,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// Where its network wants a sign-in.
    pub sign_in: Option<String>,
    /// Seconds in this state.
    pub state_age_s: f64,
    /// This end of its path.
    pub local: Option<SocketAddr>,
    /// The other end, where the core knows it by another address.
    pub remote: Option<SocketAddr>,
    /// Whether its datagrams go over TLS.
    pub over_tls: bool,
    /// Client to proxy.
    pub up: DatagramTraffic,
    /// Proxy to client.
    pub down: DatagramTraffic,
    /// What is said of it.
    pub told: Option<LinkTerms>,
    /// How much it may carry in a month.
    pub allowance: Option<AllowanceStatus>,
    /// What kept it from carrying more of what this end sends.
    pub limits: Option<LimitTimes>,
    /// What the scheduler makes of it.
    pub share: Option<ShareStatus>,
}

/// What kept a link from carrying more until `now`.
#[must_use]
pub fn limits(now: Instant, link: &LinkStats) -> LimitTimes {
    let [demand, window, pace, cap, turn, off] = link.limits.at(now).map(|time| time.as_secs_f64());
    LimitTimes {
        no_demand_s: demand,
        window_s: window,
        pace_s: pace,
        cap_s: cap,
        turn_s: turn,
        off_s: off,
    }
}

/// A link: those facts, and what the core measures once it has the link.
#[must_use]
pub fn link(facts: LinkFacts, core: Option<&LinkStats>) -> LinkStatus {
    let sender = core.map(|core| &core.sender);
    // Nothing sent is confirmed or lost yet: there is no share to tell of.
    let resolved = sender.map_or(0, |sender| sender.confirmed + sender.lost);
    let proven = sender.filter(|_| resolved > 0);
    LinkStatus {
        id: core.map(|core| core.id.0),
        name: facts.name,
        interface: facts.interface,
        state: facts.state,
        reason: facts.reason,
        sign_in: facts.sign_in,
        state_age_s: facts.state_age_s,
        local: facts.local,
        remote: facts.remote.or_else(|| core.map(|core| core.path.remote)),
        over_tls: facts.over_tls,
        srtt_ms: sender.and_then(|sender| sender.srtt).map(millis),
        min_rtt_ms: sender.and_then(|sender| sender.min_rtt).map(millis),
        rttvar_ms: sender.and_then(|sender| sender.rttvar).map(millis),
        owd_variation_ms: core.and_then(|core| core.delay_variation).map(millis),
        loss_recent: proven.map(|sender| sender.loss_ratio),
        loss_total: proven.map(|sender| share(sender.lost, resolved)),
        path_mtu: core.map(|core| core.path_mtu),
        black_holes: core.map_or(0, |core| core.black_holes),
        cwnd: sender.map(|sender| sender.window),
        in_flight: sender.map_or(0, |sender| sender.in_flight),
        keepalive_searching: core.is_some_and(|core| core.keepalive_searching),
        keepalive_s: core.and_then(|core| core.keepalive).map(|every| every.as_secs_f64()),
        up: facts.up,
        down: facts.down,
        backup: core.filter(|core| core.usage != Usage::Always).map(|core| match core.duty {
            Duty::Rests => BackupDuty::Rests,
            Duty::Helps => BackupDuty::Helps,
            Duty::Carries => BackupDuty::Carries,
        }),
        max_up_bps: core.and_then(|core| core.max_up).map(as_f64),
        max_down_bps: core.and_then(|core| core.max_down).map(as_f64),
        allowance: facts.allowance,
        limits: facts.limits,
        waited_for_s: core.map_or(0.0, |core| core.waited_for.as_secs_f64()),
        told: facts.told,
        share: facts.share,
        sensed: core.map(|core| scheduling_status::sensed(&core.sensed)),
        model: core.and_then(|core| core.model.as_ref()).map(scheduling_status::model),
    }
}

/// Counters by name, without those that are zero.
#[must_use]
pub fn drops<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    let counted = counters.into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Seconds from `since` to `now`.
#[must_use]
pub fn seconds(now: Instant, since: Instant) -> f64 {
    now.since(since).as_secs_f64()
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::units::LinkId;
    use ropewalk_settings::shortened;

    use super::*;

    #[test]
    fn a_wait_is_told_of_only_once_something_waited() {
        let mut stats = reseq::Stats { in_order: 5, wait_p99_us: 1_500, ..Default::default() };
        let before = resequencer(&stats);
        assert_eq!((before.in_order, before.wait_p99_ms), (5, None));
        stats.resequenced = 2;
        let after = resequencer(&stats);
        assert_eq!((after.in_order, after.wait_p99_ms), (7, Some(1.5)));
    }

    #[test]
    fn an_outage_is_told_with_its_age_and_the_newest_comes_first() {
        let at = Instant::from_millis;
        let first = Outage {
            link: LinkId(1),
            name: shortened("wlan"),
            at: at(1000),
            cause: tunnel::OutageCause::Silent,
            moved: 45,
            since: at(940),
            stall: Some(Duration::from_millis(62)),
            returned: Some(at(2200)),
            stage: tunnel::OutageStage::Reported,
        };
        let second = Outage {
            at: at(5000),
            cause: tunnel::OutageCause::Removed,
            stall: None,
            returned: None,
            ..first
        };
        let mut all = Outages { counts: [1, 0, 1, 0], moved: 90, ..Outages::default() };
        all.newest.extend([first, second]);
        let shown = outages(at(6000), &all);
        assert_eq!(
            (shown.silent, shown.removed, shown.count(), shown.moved_packets),
            (1, 1, 2, 90)
        );
        let told: Vec<_> =
            shown.newest.iter().map(|one| (one.how, one.ago_s, one.stall_ms, one.away_s)).collect();
        let expected = [
            (OutageCause::Removed, 1.0, None, None),
            (OutageCause::Silent, 5.0, Some(62.0), Some(1.2)),
        ];
        assert_eq!(told, expected);
        let line = "fell silent: 45 packets went over other links, and nothing of them was confirmed for 62 ms";
        assert_eq!(moved_in_words(&first), line);
    }

    #[test]
    fn stalls_are_told_by_how_this_end_knew_of_the_outage() {
        let mut all = Outages::default();
        let three =
            Stalls { counts: [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1], sum: Duration::from_millis(4_100) };
        all.stalls[tunnel::OutageCause::Removed as usize] = three;
        let shown = outages(Instant::ZERO, &all).stalls.expect("told");
        let bounds = [20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0, 500.0, 1000.0, 3000.0];
        assert_eq!(shown.bounds_ms, bounds);
        let removed = StallCounts { counts: three.counts.to_vec(), sum_ms: 4_100.0 };
        assert_eq!(shown.removed, removed);
        let none = StallCounts { counts: vec![0; 11], sum_ms: 0.0 };
        assert_eq!([shown.silent, shown.refused, shown.peer], [none.clone(), none.clone(), none]);
    }

    #[test]
    fn a_link_that_the_core_does_not_have_shows_what_the_daemon_knows() {
        let facts = LinkFacts {
            name: "lte".to_owned(),
            interface: Some("wwan0".to_owned()),
            state: LinkState::Down,
            reason: Some("no address".to_owned()),
            sign_in: None,
            state_age_s: 2.0,
            local: None,
            remote: None,
            over_tls: false,
            up: datagrams(8.0, Traffic { datagrams: 3, bytes: 300 }),
            down: DatagramTraffic::default(),
            told: None,
            allowance: None,
            limits: None,
            share: None,
        };
        let shown = link(facts, None);
        assert_eq!((shown.id, shown.remote, shown.loss_total), (None, None, None));
        assert_eq!((shown.name.as_str(), shown.reason.as_deref()), ("lte", Some("no address")));
        assert_eq!((shown.up.datagrams, shown.up.bytes, shown.in_flight), (3, 300, 0));
    }

    #[test]
    fn only_counters_that_count_are_named() {
        let counters = [("tun_refused", 0), ("send_error", 2)];
        assert_eq!(drops(counters), BTreeMap::from([("send_error".to_owned(), 2)]));
    }
}
