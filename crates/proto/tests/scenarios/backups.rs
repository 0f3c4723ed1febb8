//! Links that are kept back, and links of which only so much may be used.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::Duty;
use ropewalk_settings::{
    Bitrate, Direction, Keepalive, LinkPolicy, LinkTerms, SchedulerKind, Scheduling, Usage,
};

use super::{SEED, ms, s, sender};

/// Links of 8 Mbit/s and 20 ms, with these policies; eight seconds after they were joined.
fn lab(ends: [&TunnelConfig; 2], policies: &[LinkPolicy]) -> TunnelLab {
    let mut lab = tunnels(ends[0], ends[1], SEED);
    for (place, policy) in policies.iter().enumerate() {
        let conditions = conditions(8.0, 20, 100);
        let path = lab.add_link(conditions.clone(), conditions, SEED + place as u64);
        let mut link = link_config(&format!("wan{place}"), path, Keepalive::Off);
        link.policy = policy.clone();
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + s(8));
    lab
}

fn used(usage: Usage) -> LinkPolicy {
    LinkPolicy { usage, ..LinkPolicy::default() }
}

/// The second of two links is kept back so.
fn kept_back(config: &TunnelConfig, usage: Usage) -> TunnelLab {
    lab([config, config], &[LinkPolicy::default(), used(usage)])
}

/// Has a link carry nothing more, or again.
fn cut(lab: &mut TunnelLab, link: usize, cut: Option<Cut>) {
    let link = &mut lab.links[link];
    for direction in [&mut link.down, &mut link.up] {
        let conditions = Conditions { cut, ..direction.conditions().clone() };
        direction.handle_change(lab.now, conditions);
    }
}

/// Bytes that a link carried towards an end.
fn carried(lab: &TunnelLab, link: usize, towards: Towards) -> u64 {
    let link = &lab.links[link];
    match towards {
        Towards::Client => link.down.counters().delivered_bytes,
        Towards::Proxy => link.up.counters().delivered_bytes,
    }
}

fn duty(lab: &TunnelLab, towards: Towards) -> Duty {
    sender(lab, towards).links[1].duty
}

/// What a stream that the first link can carry costs on the second, and whether anything is late for it.
#[test]
fn a_link_that_is_kept_back_rests_while_the_other_suffices_in_both_directions() {
    for usage in [Usage::WhenNeeded, Usage::Backup] {
        for scheduler in SchedulerKind::ALL {
            for towards in [Towards::Client, Towards::Proxy] {
                let config =
                    TunnelConfig { scheduling: scheduler.into(), ..TunnelConfig::default() };
                let mut lab = kept_back(&config, usage);
                assert_eq!(duty(&lab, towards), Duty::Rests);
                let before = carried(&lab, 1, towards);
                let start = lab.now;
                let mut streams = [Stream::at_rate(towards, 5.0, 1200, start, s(60))];
                run(&mut lab, &mut streams, start + s(60));
                let cost = carried(&lab, 1, towards) - before;
                let goodput = streams[0].mbit_between(start, start + s(60));
                println!(
                    "{usage} {scheduler} {towards:?}: {goodput:.2} Mbit/s, {cost} bytes there"
                );
                assert!(goodput > 4.7, "{goodput}");
                // A question and its answer every five seconds, and no marks.
                assert!(cost < 4_000, "{cost}");
                assert_eq!(duty(&lab, towards), Duty::Rests);
            }
        }
    }
}

#[test]
fn a_link_used_when_needed_helps_a_full_one_and_rests_again_when_it_suffices() {
    for scheduler in SchedulerKind::ALL {
        for towards in [Towards::Client, Towards::Proxy] {
            let config = TunnelConfig { scheduling: scheduler.into(), ..TunnelConfig::default() };
            let mut lab = kept_back(&config, Usage::WhenNeeded);
            let start = lab.now;
            let rates = [(12.0, s(30)), (4.0, s(30))];
            let mut streams = [Stream::at_rate(towards, rates[0].0, 1200, start, rates[0].1), {
                let second = start + rates[0].1;
                Stream::at_rate(towards, rates[1].0, 1200, second, rates[1].1)
            }];
            run(&mut lab, &mut streams, start + ms(1500));
            assert_eq!(duty(&lab, towards), Duty::Helps, "{scheduler}");
            run(&mut lab, &mut streams, start + s(30));
            let goodput = streams[0].mbit_between(start + s(5), start + s(30));
            // The first link is used before the other.
            let shares = [0, 1].map(|link| carried(&lab, link, towards));
            println!("{scheduler} {towards:?}: {goodput:.2} Mbit/s, bytes {shares:?}");
            assert!(goodput > 11.0, "{scheduler}: {goodput}");
            assert!(shares[0] > shares[1] * 3 / 2, "{scheduler}: {shares:?}");
            run(&mut lab, &mut streams, start + s(45));
            assert_eq!(duty(&lab, towards), Duty::Rests, "{scheduler}");
            let before = carried(&lab, 1, towards);
            run(&mut lab, &mut streams, start + s(60));
            assert!(carried(&lab, 1, towards) - before < 2_000, "{scheduler}");
        }
    }
}

#[test]
fn a_backup_does_not_help_a_full_link() {
    for scheduler in SchedulerKind::ALL {
        for towards in [Towards::Client, Towards::Proxy] {
            let config = TunnelConfig { scheduling: scheduler.into(), ..TunnelConfig::default() };
            let mut lab = kept_back(&config, Usage::Backup);
            let (start, before) = (lab.now, carried(&lab, 1, towards));
            let mut streams = [Stream::at_rate(towards, 12.0, 1200, start, s(20))];
            run(&mut lab, &mut streams, start + s(20));
            let cost = carried(&lab, 1, towards) - before;
            let goodput = streams[0].mbit_between(start + s(5), start + s(20));
            println!("{scheduler} {towards:?}: {goodput:.2} Mbit/s, {cost} bytes on the backup");
            assert!(cost < 2_000, "{scheduler} {towards:?}: {cost}");
            assert!(goodput > 6.5, "{scheduler} {towards:?}: what the first link carries");
        }
    }
}

#[test]
fn a_backup_takes_over_only_when_the_link_used_when_needed_fails_too() {
    let policies = [Usage::Always, Usage::WhenNeeded, Usage::Backup].map(used);
    for towards in [Towards::Client, Towards::Proxy] {
        let config = TunnelConfig::default();
        let mut lab = lab([&config, &config], &policies);
        let start = lab.now;
        let mut streams = [Stream::at_rate(towards, 5.0, 1200, start, s(60))];
        let mut last = [0; 3];
        let mut carrying = |lab: &mut TunnelLab, until: u64| {
            run(lab, &mut streams, start + s(until));
            let now = [0, 1, 2].map(|link| carried(lab, link, towards));
            let grown = [0, 1, 2].map(|link| now[link] - last[link] > 100_000);
            last = now;
            grown
        };
        assert_eq!(carrying(&mut lab, 10), [true, false, false], "{towards:?}");
        cut(&mut lab, 0, Some(Cut::Everything));
        carrying(&mut lab, 13);
        assert_eq!(carrying(&mut lab, 20), [false, true, false], "{towards:?}");
        cut(&mut lab, 1, Some(Cut::Everything));
        carrying(&mut lab, 23);
        assert_eq!(carrying(&mut lab, 30), [false, false, true], "{towards:?}");
        cut(&mut lab, 0, None);
        carrying(&mut lab, 45);
        assert_eq!(carrying(&mut lab, 55), [true, false, false], "{towards:?}");
    }
}

/// The client's owner changes what is said of the second link while the proxy and the client send, over wires that lose some
/// of what they say.
#[test]
fn a_policy_that_is_changed_while_packets_go_holds_in_both_directions_at_once() {
    let config = TunnelConfig::default();
    let mut lab = lab([&config, &config], &[LinkPolicy::default(), LinkPolicy::default()]);
    for link in &mut lab.links {
        for direction in [&mut link.down, &mut link.up] {
            let mut conditions = direction.conditions().clone();
            conditions.loss = Loss::Bernoulli(0.05);
            direction.handle_change(lab.now, conditions);
        }
    }
    let start = lab.now;
    let ways = [Towards::Client, Towards::Proxy];
    let mut streams = ways.map(|towards| Stream::at_rate(towards, 12.0, 1200, start, s(60)));
    let bounds = |mbit| Some(Bitrate::from_mbps(mbit));
    let bounded = LinkPolicy { max_up: bounds(1), max_down: bounds(2), ..LinkPolicy::default() };
    let steps = [
        (used(Usage::Backup), [0.0, 0.0]),
        (LinkPolicy::default(), [6.0, 6.0]),
        (bounded, [2.0, 1.0]),
        (LinkPolicy { direction: Direction::Up, ..LinkPolicy::default() }, [0.0, 6.0]),
        (LinkPolicy { direction: Direction::Down, ..LinkPolicy::default() }, [6.0, 0.0]),
        (LinkPolicy::default(), [6.0, 6.0]),
    ];
    let id = lab.client.stats().links[1].id;
    for (step, (policy, expected)) in steps.into_iter().enumerate() {
        let begun = lab.now;
        lab.client.set_policy(id, policy.clone());
        run(&mut lab, &mut streams, begun + s(3));
        let before = ways.map(|towards| carried(&lab, 1, towards));
        run(&mut lab, &mut streams, begun + s(8));
        for (at, towards) in ways.into_iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "bytes of seconds")]
            let mbit = (carried(&lab, 1, towards) - before[at]) as f64 * 8.0 / 5.0 / 1e6;
            println!("step {step}, {towards:?}: {mbit:.2} Mbit/s, expected {}", expected[at]);
            match expected[at] {
                // Reports of what came the other way are left.
                0.0 => assert!(mbit < 0.3, "step {step} {towards:?}: {mbit}"),
                much if much > 3.0 => assert!(mbit > 3.0, "step {step} {towards:?}: {mbit}"),
                bound => {
                    let range = bound * 0.5..bound * 1.15;
                    assert!(range.contains(&mbit), "step {step} {towards:?}: {mbit}");
                }
            }
        }
        let proxy = lab.proxy.stats().links[1].policy.clone();
        let told = LinkPolicy { max_up: None, ..policy };
        assert_eq!(proxy, told, "step {step}: the proxy knows");
    }
}

#[test]
fn what_the_proxy_says_of_a_link_counts_where_it_is_stricter() {
    let client = TunnelConfig::default();
    let max = Some(Bitrate::from_mbps(1));
    let table = [
        (LinkTerms { max, ..LinkTerms::default() }, LinkPolicy::default(), 0.5..1.1),
        (
            LinkTerms { max, ..LinkTerms::default() },
            LinkPolicy { max_down: Some(Bitrate::from_mbps(3)), ..LinkPolicy::default() },
            0.5..1.1,
        ),
        (
            LinkTerms { max: Some(Bitrate::from_mbps(3)), ..LinkTerms::default() },
            LinkPolicy { max_down: max, ..LinkPolicy::default() },
            0.5..1.1,
        ),
        (
            LinkTerms { usage: Some(Usage::Backup), ..LinkTerms::default() },
            used(Usage::WhenNeeded),
            0.0..0.1,
        ),
        (
            LinkTerms { usage: Some(Usage::Always), ..LinkTerms::default() },
            used(Usage::Backup),
            0.0..0.1,
        ),
    ];
    for (own, policy, expected) in table {
        let terms = [("wan1".to_owned(), own.clone())].into();
        let scheduling = Scheduling { terms, ..Scheduling::default() };
        let proxy = TunnelConfig { scheduling, ..TunnelConfig::default() };
        let mut lab = lab([&client, &proxy], &[LinkPolicy::default(), policy.clone()]);
        let start = lab.now;
        let mut streams = [Stream::at_rate(Towards::Client, 12.0, 1200, start, s(10))];
        run(&mut lab, &mut streams, start + s(2));
        let before = carried(&lab, 1, Towards::Client);
        run(&mut lab, &mut streams, start + s(10));
        #[expect(clippy::cast_precision_loss, reason = "bytes of seconds")]
        let mbit = (carried(&lab, 1, Towards::Client) - before) as f64 * 8.0 / 8.0 / 1e6;
        println!("{own:?} beside {policy:?}: {mbit:.2} Mbit/s");
        assert!(expected.contains(&mbit), "{own:?} beside {policy:?}: {mbit}");
    }
}

#[test]
fn a_link_that_is_kept_back_takes_over_at_once_from_one_that_fails_and_gives_back_later() {
    let ways = [Towards::Client, Towards::Proxy];
    let usages = [Usage::WhenNeeded, Usage::Backup];
    for (towards, usage) in ways.into_iter().flat_map(|way| usages.map(|usage| (way, usage))) {
        let mut lab = kept_back(&TunnelConfig::default(), usage);
        let start = lab.now;
        let mut streams = [Stream::at_rate(towards, 5.0, 1200, start, s(40))];
        run(&mut lab, &mut streams, start + s(10));
        cut(&mut lab, 0, Some(Cut::Everything));
        let failed = lab.now;
        let took = (1..40).map(|step| ms(50 * step)).find(|after| {
            run(&mut lab, &mut streams, failed + *after);
            carried(&lab, 1, towards) > 20_000
        });
        println!("{usage} {towards:?}: it carries after {took:?}");
        assert!(took.is_some_and(|took| took <= Duration::from_secs(1)), "{took:?}");
        run(&mut lab, &mut streams, start + s(20));
        let after = streams[0].mbit_between(start + s(13), start + s(20));
        assert!(after > 4.7, "{after}");
        assert_eq!(duty(&lab, towards), Duty::Carries);
        cut(&mut lab, 0, None);
        run(&mut lab, &mut streams, start + s(35));
        assert_eq!(duty(&lab, towards), Duty::Rests);
        let before = carried(&lab, 1, towards);
        run(&mut lab, &mut streams, start + s(40));
        assert!(carried(&lab, 1, towards) - before < 2_000);
    }
}

#[test]
fn a_bound_holds_in_each_direction_with_every_scheduler() {
    let (up, down) = (Bitrate::from_mbps(1), Bitrate::from_mbps(2));
    let bounded = LinkPolicy { max_up: Some(up), max_down: Some(down), ..LinkPolicy::default() };
    for scheduler in SchedulerKind::ALL {
        let config = TunnelConfig { scheduling: scheduler.into(), ..TunnelConfig::default() };
        for (towards, most) in [(Towards::Proxy, 1.0), (Towards::Client, 2.0)] {
            let mut lab = lab([&config, &config], &[LinkPolicy::default(), bounded.clone()]);
            let start = lab.now;
            let mut streams = [Stream::at_rate(towards, 20.0, 1200, start, s(20))];
            run(&mut lab, &mut streams, start + s(5));
            let before = carried(&lab, 1, towards);
            run(&mut lab, &mut streams, start + s(20));
            #[expect(clippy::cast_precision_loss, reason = "bytes of seconds")]
            let mbit = (carried(&lab, 1, towards) - before) as f64 * 8.0 / 15.0 / 1e6;
            println!("{scheduler} {towards:?}: {mbit:.2} of {most} Mbit/s");
            // The lab counts below the IP header too; reports come on top.
            assert!(mbit / most < 1.08, "{scheduler} {towards:?}: {mbit}");
            // The stream is one flow, which flow routing leaves on the other link.
            let striped = scheduler != SchedulerKind::Safire;
            assert!(!striped || mbit / most > 0.5, "{scheduler} {towards:?}: {mbit}");
        }
    }
}
