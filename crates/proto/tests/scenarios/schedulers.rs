//! The schedulers of the other papers in a tunnel, and changes of them while packets go.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stream::{Stream, run, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Duration;
use ropewalk_settings::{
    Bitrate, ControllerKind, Cost, Count, Importance, Keepalive, LinkTerms, NatalieSettings,
    Profile, SchedulerKind, Scheduling, Weights, WhenFull,
};

use crate::{lost, ms, s, settled};

fn natalie(weights: Weights, when_full: WhenFull) -> Scheduling {
    let natalie = NatalieSettings { count: Count::Packets, when_full, weights };
    Scheduling { natalie, ..SchedulerKind::Natalie.into() }
}

/// What is said of the links `wan0`, `wan1` and so on.
fn with(told: &[LinkTerms], scheduling: Scheduling) -> Scheduling {
    let named = told.iter().enumerate();
    let terms = named.map(|(place, told)| (format!("wan{place}"), told.clone())).collect();
    Scheduling { terms, ..scheduling }
}

fn weight(weight: f64) -> LinkTerms {
    LinkTerms { weight: Some(weight), ..LinkTerms::default() }
}

/// Shares in percent of the bytes that the links carried to the client while `act` ran.
fn shares(lab: &mut TunnelLab, act: impl FnOnce(&mut TunnelLab)) -> Vec<f64> {
    let carried = |lab: &TunnelLab| -> Vec<u64> {
        lab.links.iter().map(|link| link.down.counters().delivered_bytes).collect()
    };
    let before = carried(lab);
    act(lab);
    let bytes: Vec<_> =
        carried(lab).iter().zip(before).map(|(after, before)| after - before).collect();
    let sum: u64 = bytes.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "few bytes")]
    bytes.iter().map(|bytes| 100.0 * *bytes as f64 / sum as f64).collect()
}

/// A stream to the client at this rate from now on.
fn stream(lab: &TunnelLab, mbit: f64, length: Duration) -> Stream {
    Stream::at_rate(Towards::Client, mbit, 1200, lab.now, length)
}

#[test]
fn told_weights_are_the_links_shares_and_a_weight_of_zero_is_none() {
    for (weights, expected) in [([4.0, 1.0], [80.0, 20.0]), ([1.0, 0.0], [100.0, 0.0])] {
        let config = TunnelConfig {
            scheduling: with(&weights.map(weight), natalie(Weights::Told, WhenFull::Pass)),
            ..TunnelConfig::default()
        };
        let mut lab = settled(&config, Keepalive::Off, &[(20.0, 20), (20.0, 20)]);
        let shares = shares(&mut lab, |lab| {
            let mut streams = [stream(lab, 5.0, s(5))];
            run(lab, &mut streams, lab.now + s(6));
            assert_eq!(streams[0].missing(), 0);
        });
        println!("weights {weights:?}: {shares:.1?} %");
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 3.0, "{weights:?}: {shares:?}");
        }
        let shown = lab.proxy.stats().links;
        let shown: Vec<_> = shown.iter().map(|link| link.share.weight).collect();
        assert_eq!(shown, weights.map(Some));
        assert!(lab.proxy.flow_tables(1).is_none());
    }
}

#[test]
fn auto_weights_leave_to_others_what_others_send() {
    let told = LinkTerms { rate: Some(Bitrate::from_mbps(10)), ..LinkTerms::default() };
    let config = TunnelConfig {
        scheduling: with(&[told.clone(), told], natalie(Weights::Auto, WhenFull::Pass)),
        ..TunnelConfig::default()
    };
    let mut lab = settled(&config, Keepalive::Off, &[(20.0, 20), (20.0, 20)]);
    for (others, expected) in [(0, 50.0), (8, 16.7), (0, 50.0)] {
        let mut streams = [stream(&lab, 5.0, s(4))];
        let link = lab.proxy.stats().links[0].id;
        let half = ms(500);
        // A second for the filter.
        for _ in 0..2 {
            lab.proxy.on_others(link, others * 62_500, half);
            let until = lab.now + half;
            run(&mut lab, &mut streams, until);
        }
        let shares = shares(&mut lab, |lab| {
            for _ in 0..6 {
                lab.proxy.on_others(link, others * 62_500, half);
                let until = lab.now + half;
                run(lab, &mut streams, until);
            }
        });
        println!("others at {others} of 10 Mbit/s: {shares:.1?} %");
        assert!((shares[0] - expected).abs() < 5.0, "{others}: {shares:?}");
    }
}

#[test]
fn batcp_prefers_what_is_cheap_as_far_as_it_is_told_that_cost_matters() {
    let of = |amount: f64, throughput: f64| LinkTerms {
        rate: Some(Bitrate::from_mbps(20)),
        cost: Some(Cost { amount, unit: "EUR".to_owned() }),
        importance: Some(Importance::new(throughput, 1.0 - throughput).expect("shares of one")),
        ..LinkTerms::default()
    };
    let table =
        [([of(0.0, 1.0), of(5.0, 1.0)], 45.0..=55.0), ([of(0.0, 0.9), of(5.0, 0.1)], 70.0..=100.0)];
    for (told, expected) in table {
        let config = TunnelConfig {
            scheduling: with(&told, SchedulerKind::Batcp.into()),
            ..TunnelConfig::default()
        };
        let mut lab = settled(&config, Keepalive::Off, &[(20.0, 20), (20.0, 20)]);
        let shares = shares(&mut lab, |lab| {
            let mut streams = [stream(lab, 5.0, s(5))];
            run(lab, &mut streams, lab.now + s(6));
            assert_eq!(streams[0].missing(), 0);
        });
        println!("costs 0 and 5: {shares:.1?} %");
        assert!(expected.contains(&shares[0]), "{shares:?}");
    }
}

#[test]
fn each_of_three_flows_has_a_link_of_its_own_and_moves_when_that_dies() {
    let config =
        TunnelConfig { scheduling: SchedulerKind::Safire.into(), ..TunnelConfig::default() };
    let mut lab = settled(&config, Keepalive::Off, &[(2.0, 20), (2.0, 20), (2.0, 20)]);
    let mut streams = [(); 3].map(|()| stream(&lab, 1.0, s(10)));
    let shares = shares(&mut lab, |lab| run(lab, &mut streams, lab.now + s(5)));
    println!("three equal flows: {shares:.1?} %");
    assert!(shares.iter().all(|share| (30.0..37.0).contains(share)), "{shares:?}");
    let tables = lab.proxy.flow_tables(2).expect("flows are routed");
    println!("{tables:?}");
    assert!(tables.paths.iter().all(|path| path.flows == 1 && path.rtt.is_some()), "{tables:?}");
    assert_eq!((tables.flows.len(), tables.counts.held, tables.counts.displaced), (2, 3, 0));
    assert!(tables.flows.iter().all(|(flow, tuple)| flow.counted && tuple.ports.is_some()));
    lab.proxy.set_scheduling(lab.now, config.scheduling.clone());
    let kept = lab.proxy.flow_tables(2).expect("still routed").counts;
    assert_eq!(kept, tables.counts, "the same settings again change nothing");
    assert!(lab.client.flow_tables(0).is_some_and(|tables| tables.flows.is_empty()));
    let cut = lab.now;
    let dead = ropewalk_netlab::netem::Conditions {
        cut: Some(ropewalk_netlab::netem::Cut::Everything),
        ..ropewalk_netlab::pair::conditions(2.0, 20, 100)
    };
    lab.links[1].down.handle_change(cut, dead.clone());
    lab.links[1].up.handle_change(cut, dead);
    run(&mut lab, &mut streams, cut + s(8));
    for stream in &streams {
        let stall = stream.longest_stall(cut, cut + s(4));
        println!("longest stall {stall:?}, lost {}", stream.missing());
        assert!(stall < ms(1600), "{stall:?}");
    }
}

#[test]
fn a_link_of_known_rate_is_filled_and_nothing_is_lost_on_it() {
    let rate = |mbit| LinkTerms {
        weight: Some(mbit as f64),
        rate: Some(Bitrate::from_mbps(mbit)),
        ..LinkTerms::default()
    };
    let config = TunnelConfig {
        scheduling: with(&[rate(8), rate(2)], natalie(Weights::Told, WhenFull::Wait)),
        controller: ControllerKind::Fixed(64),
        ..TunnelConfig::default()
    };
    let mut lab = settled(&config, Keepalive::Off, &[(8.0, 10), (2.0, 100)]);
    let begin = lab.now;
    let mut streams = [Stream::at_rate(Towards::Client, 11.0, 1440, begin, s(10))];
    run(&mut lab, &mut streams, begin + s(12));
    let mbit = streams[0].mbit_between(begin + s(1), begin + s(10));
    let lost: u64 = lab.links.iter().map(|link| lost(link.down.counters())).sum();
    println!("{mbit:.2} Mbit/s of packets over 8 + 2 Mbit/s, {lost} datagrams lost on the links");
    assert!(mbit > 0.97 * 10.0 * 1440.0 / 1500.0, "{mbit}");
    assert_eq!(lost, 0);
}

#[test]
fn a_change_of_the_profile_beside_a_download_stalls_no_stream_for_long() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(20.0, 20), (20.0, 40)]);
    let begin = lab.now;
    let mut streams = [stream(&lab, 10.0, s(10)), stream(&lab, 0.1, s(10))];
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut downloads = [TcpFlow::new(Towards::Client, Load::For(s(10)), mtu, begin)];
    for change in 1..20 {
        run_all(&mut lab, &mut streams, &mut downloads, begin + ms(500) * change);
        let mut scheduling = Scheduling::default();
        scheduling.set_profile(if change % 2 == 1 { Profile::Paper } else { Profile::Default });
        lab.proxy.set_scheduling(lab.now, scheduling);
        let modelled = lab.proxy.stats().links.iter().all(|link| link.model.is_some());
        assert_eq!(modelled, change % 2 == 0, "each link has the profile's controller");
        assert_eq!(
            lab.proxy.stats().repairs.is_some(),
            change % 2 == 0,
            "and it repairs or does not"
        );
    }
    run_all(&mut lab, &mut streams, &mut downloads, begin + s(12));
    for stream in &streams {
        let stall = stream.longest_stall(begin, begin + s(10));
        println!("{} missing, longest gap {stall:?}", stream.missing());
        assert!(stall < ms(250), "{stall:?}");
    }
}

#[test]
fn a_change_of_the_profile_beside_nothing_else_loses_no_packet() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(20.0, 20), (20.0, 40)]);
    let begin = lab.now;
    let mut streams = [stream(&lab, 10.0, s(10)), stream(&lab, 0.1, s(10))];
    for change in 1..20 {
        run(&mut lab, &mut streams, begin + ms(500) * change);
        let mut scheduling = Scheduling::default();
        scheduling.set_profile(if change % 2 == 1 { Profile::Paper } else { Profile::Default });
        lab.proxy.set_scheduling(lab.now, scheduling);
    }
    run(&mut lab, &mut streams, begin + s(12));
    for stream in &streams {
        let stall = stream.longest_stall(begin, begin + s(10));
        println!("longest gap {stall:?}");
        assert_eq!(stream.missing(), 0);
        assert!(stall < ms(120), "{stall:?}");
    }
    // The config's own are back with settings that name no profile.
    lab.proxy.set_scheduling(lab.now, Scheduling::default());
    assert!(lab.proxy.stats().repairs.is_some());
}

#[test]
fn a_change_of_scheduler_or_weights_loses_nothing_and_stalls_nothing() {
    let config = TunnelConfig::default();
    let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20), (10.0, 30)]);
    let begin = lab.now;
    let mut streams = [stream(&lab, 8.0, s(12))];
    let (mut changes, mut told) = (0, [LinkTerms::default(), LinkTerms::default()]);
    while lab.now < begin + s(11) {
        for scheduler in SchedulerKind::ALL {
            let now = lab.now;
            lab.proxy.set_scheduling(now, with(&told, scheduler.into()));
            run(&mut lab, &mut streams, now + ms(100));
            told = [weight(f64::from(changes % 7)), weight(1.0)];
            lab.proxy.set_scheduling(lab.now, with(&told, scheduler.into()));
            run(&mut lab, &mut streams, now + ms(200));
            changes += 2;
        }
    }
    run(&mut lab, &mut streams, begin + s(14));
    let stall = streams[0].longest_stall(begin, begin + s(12));
    println!("{changes} changes: longest stall {stall:?}");
    assert_eq!(streams[0].missing(), 0);
    assert!(stall < ms(50), "{stall:?}");
}
