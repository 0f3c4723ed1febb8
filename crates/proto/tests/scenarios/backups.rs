//! Links that are kept back, and links of which only so much may be used.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::{TunnelConfig, Wishes};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::Duty;
use ropewalk_settings::{Bitrate, Keepalive, SchedulerKind};

use super::{SEED, ms, s, sender};

/// Two links of 8 Mbit/s and 20 ms, with these wishes; three seconds after they were joined.
fn lab(config: &TunnelConfig, wishes: [Wishes; 2]) -> TunnelLab {
    let mut lab = tunnels(config, config, SEED);
    for (place, wishes) in wishes.into_iter().enumerate() {
        let conditions = conditions(8.0, 20, 100);
        let path = lab.add_link(conditions.clone(), conditions, SEED + place as u64);
        let mut link = link_config(&format!("wan{place}"), path, Keepalive::Off);
        link.wishes = wishes;
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + s(8));
    lab
}

const BACKUP: Wishes = Wishes { backup: true, most_up: None, most_down: None };

fn with_backup(config: &TunnelConfig) -> TunnelLab {
    lab(config, [Wishes::default(), BACKUP])
}

/// Bytes that the backup carried towards an end.
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

/// What a stream that the first link can carry costs on the backup, and whether anything is late for it.
#[test]
fn a_backup_rests_while_the_other_link_suffices_in_both_directions() {
    for towards in [Towards::Client, Towards::Proxy] {
        let mut lab = with_backup(&TunnelConfig::default());
        assert_eq!(duty(&lab, towards), Duty::Rests);
        let before = carried(&lab, 1, towards);
        let start = lab.now;
        let mut streams = [Stream::at_rate(towards, 5.0, 1200, start, s(60))];
        run(&mut lab, &mut streams, start + s(60));
        let cost = carried(&lab, 1, towards) - before;
        let goodput = streams[0].mbit_between(start, start + s(60));
        println!("{towards:?}: {goodput:.2} Mbit/s, {cost} bytes on the backup in a minute");
        assert!(goodput > 4.7, "{goodput}");
        // A question and its answer every five seconds, and no marks.
        assert!(cost < 4_000, "{cost}");
        assert_eq!(duty(&lab, towards), Duty::Rests);
    }
}

#[test]
fn a_backup_helps_a_full_link_and_rests_again_when_it_suffices() {
    for scheduler in SchedulerKind::ALL {
        for towards in [Towards::Client, Towards::Proxy] {
            let config = TunnelConfig { scheduling: scheduler.into(), ..TunnelConfig::default() };
            let mut lab = with_backup(&config);
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
            // The first link is used before the backup.
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
fn a_backup_takes_over_at_once_from_a_link_that_fails_and_gives_back_later() {
    for towards in [Towards::Client, Towards::Proxy] {
        let mut lab = with_backup(&TunnelConfig::default());
        let start = lab.now;
        let mut streams = [Stream::at_rate(towards, 5.0, 1200, start, s(40))];
        run(&mut lab, &mut streams, start + s(10));
        let cut = |lab: &mut TunnelLab, cut: Option<Cut>| {
            let link = &mut lab.links[0];
            for direction in [&mut link.down, &mut link.up] {
                let conditions = Conditions { cut, ..direction.conditions().clone() };
                direction.handle_change(lab.now, conditions);
            }
        };
        cut(&mut lab, Some(Cut::Everything));
        let failed = lab.now;
        let took = (1..40).map(|step| ms(50 * step)).find(|after| {
            run(&mut lab, &mut streams, failed + *after);
            carried(&lab, 1, towards) > 20_000
        });
        println!("{towards:?}: the backup carries after {took:?}");
        assert!(took.is_some_and(|took| took <= Duration::from_secs(1)), "{took:?}");
        run(&mut lab, &mut streams, start + s(20));
        let after = streams[0].mbit_between(start + s(13), start + s(20));
        assert!(after > 4.7, "{after}");
        assert_eq!(duty(&lab, towards), Duty::Carries);
        cut(&mut lab, None);
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
    let bounded = Wishes { backup: false, most_up: Some(up), most_down: Some(down) };
    for scheduler in SchedulerKind::ALL {
        let config = TunnelConfig { scheduling: scheduler.into(), ..TunnelConfig::default() };
        for (towards, most) in [(Towards::Proxy, 1.0), (Towards::Client, 2.0)] {
            let mut lab = lab(&config, [Wishes::default(), bounded]);
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
