//! Paths that carry less than they say, and say nothing.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::Keepalive;

use super::{SEED, ms, s, sender, settled};

fn narrow(lab: &mut TunnelLab, link: usize, mtu: u32) {
    let link = &mut lab.links[link];
    for direction in [&mut link.down, &mut link.up] {
        let conditions = Conditions { mtu, ..direction.conditions().clone() };
        direction.handle_change(lab.now, conditions);
    }
}

/// The path MTUs of what goes this way, as its sender shows them.
fn path_mtus(lab: &TunnelLab, towards: Towards) -> Vec<u16> {
    sender(lab, towards).links.iter().map(|link| link.path_mtu).collect()
}

#[test]
fn a_black_hole_is_found_before_packets_fall_into_it() {
    let config = TunnelConfig::default();
    let mut lab = ropewalk_netlab::pair::tunnels(&config, &config, SEED);
    for (place, mtu) in [1400, 1500].into_iter().enumerate() {
        let conditions = Conditions { mtu, ..ropewalk_netlab::pair::conditions(5.0, 20, 100) };
        let path = lab.add_link(conditions.clone(), conditions, SEED);
        let link = ropewalk_netlab::pair::link_config(&format!("wan{place}"), path, Keepalive::Off);
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    let start = lab.now;
    lab.run_until(start + s(5));
    println!(
        "path MTUs {:?}, inner MTU {:?}",
        path_mtus(&lab, Towards::Client),
        lab.proxy.stats().inner_mtu
    );
    assert_eq!(path_mtus(&lab, Towards::Client), [1400, 1500]);
    assert_eq!(lab.proxy.stats().inner_mtu, Some(1340));
    let mut streams = [Stream::at_rate(Towards::Client, 8.0, 1340, start + s(5), s(10))];
    run(&mut lab, &mut streams, start + s(16));
    assert!(streams[0].mbit_between(start + s(5), start + s(15)) > 7.7);
}

#[test]
fn a_path_lowered_in_mid_flow_is_found_and_the_flow_goes_on() {
    for towards in [Towards::Client, Towards::Proxy] {
        let mut lab =
            settled(&TunnelConfig::default(), Keepalive::default(), &[(10.0, 20), (10.0, 60)]);
        let start = lab.now;
        let mut streams = [Stream::at_rate(towards, 8.0, 1440, start, s(30))];
        run(&mut lab, &mut streams, start + s(5));
        narrow(&mut lab, 0, 1300);
        let mut followed = None;
        while lab.now < start + s(31) {
            let now = lab.now;
            run(&mut lab, &mut streams, now + ms(10));
            let sender =
                if towards == Towards::Client { lab.proxy.stats() } else { lab.client.stats() };
            let mtu = usize::from(sender.inner_mtu.unwrap_or(1440));
            if mtu != streams[0].len {
                // As the TUN's MTU follows, so does the application.
                streams[0].len = mtu;
                followed = Some(lab.now.since(start + s(5)));
                println!(
                    "{towards:?}: inner MTU {mtu} {:?} after the change",
                    lab.now.since(start + s(5))
                );
            }
        }
        let stall = streams[0].longest_stall(start, start + s(30));
        let later = streams[0].mbit_between(start + s(20), start + s(30));
        println!(
            "{towards:?}: stall {stall:?}, {} missing, then {later:.2} Mbit/s, paths {:?}",
            streams[0].missing(),
            path_mtus(&lab, towards)
        );
        assert!(followed.is_some_and(|after| after < s(5)), "{followed:?}");
        assert_eq!(streams[0].len, 1240);
        assert_eq!(path_mtus(&lab, towards), [1300, 1500]);
        let back = if towards == Towards::Client { Towards::Proxy } else { Towards::Client };
        assert_eq!(path_mtus(&lab, back), [1300, 1500], "the direction without a load is told");
        assert!(stall < s(1));
        assert!(later > 6.5, "the rate of shorter packets: {later}");
    }
}
