//! Rekeys under load lose nothing.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::{forger, link_config};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::tunnel::{LinkState, TunnelStats};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{Frame, emit};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, Sealed, TAG_LEN};
use ropewalk_settings::Keepalive;

use super::{lost, ms, s, settled};

#[test]
fn a_rekey_every_second_on_lossy_links_loses_no_packet() {
    let config = TunnelConfig { rekey_after: s(1), ..TunnelConfig::default() };
    let mut lab = settled(&config, Keepalive::default(), &[(20.0, 10), (20.0, 300)]);
    for link in &mut lab.links {
        for direction in [&mut link.down, &mut link.up] {
            let conditions =
                Conditions { loss: Loss::Bernoulli(0.02), ..direction.conditions().clone() };
            direction.handle_change(lab.now, conditions);
        }
    }
    let start = lab.now;
    let mut streams = [
        Stream::at_rate(Towards::Client, 2.0, 1200, start, s(60)),
        Stream::at_rate(Towards::Proxy, 2.0, 1200, start, s(60)),
    ];
    run(&mut lab, &mut streams, start + s(63));
    let (client, proxy) = (lab.client.stats(), lab.proxy.stats());
    let [down, up] = &streams;
    let downs: u64 = lab.links.iter().map(|link| lost(link.down.counters())).sum();
    let ups: u64 = lab.links.iter().map(|link| lost(link.up.counters())).sum();
    println!(
        "{} rekeys; down: {} packets missing, {downs} datagrams lost; up: {}, {ups}",
        client.epoch,
        down.missing(),
        up.missing()
    );
    // Sixty seconds, less what lost messages delay.
    assert!(client.epoch >= 40, "only {} rekeys", client.epoch);
    assert_eq!(client.epoch, proxy.epoch);
    for (name, end) in [("client", &client), ("proxy", &proxy)] {
        let drops: Vec<_> = end.drops.iter().collect();
        println!("{name}: {drops:?}");
        for reason in [
            DropReason::KeyPhaseUnknown,
            DropReason::NotAuthentic,
            DropReason::Replayed,
            DropReason::OlderThanWindow,
            DropReason::KeyWornOut,
        ] {
            assert_eq!(end.drops.get(reason), 0, "{name}: {reason:?}");
        }
    }
    // A window that 2 % of loss keeps small lets some packets wait too long, rekey or not.
    let waited = |end: &TunnelStats| end.drops.get(DropReason::QueueTimeout);
    assert!(down.missing() <= downs + waited(&proxy) && up.missing() <= ups + waited(&client));
    assert!(downs > 0 && ups > 0, "2 % loss is not nothing");
}

#[test]
fn a_link_taken_out_during_a_rekey_leaves_an_id_that_both_ends_know_of() {
    let config = TunnelConfig { rekey_after: s(5), ..TunnelConfig::default() };
    let mut lab = settled(&config, Keepalive::default(), &[(20.0, 400), (20.0, 400)]);
    let start = lab.now;
    let mut streams = [Stream::at_rate(Towards::Proxy, 0.1, 1200, start, s(1))];
    run(&mut lab, &mut streams, start + s(2));
    while lab.proxy.stats().epoch == 0 {
        let now = lab.now;
        lab.run_until(now + ms(10));
    }
    assert_eq!(lab.client.stats().epoch, 0, "the answer is under way");
    lab.with_client(|client, now, tun| client.remove_link(now, LinkId(1), tun));
    // The first keys die.
    lab.run_until(start + s(30));
    assert_eq!((lab.client.stats().epoch, lab.proxy.stats().epoch), (1, 1));
    let path = Path { socket: SocketId(1), ..lab.client.stats().links[0].path };
    let added = lab.with_client(|client, now, _| {
        client.add_link(now, &link_config("wan1", path, Keepalive::default()))
    });
    lab.run_until(start + s(33));
    println!("{added:?}");
    let states = |end: &TunnelStats| end.links.iter().map(|l| l.state).collect::<Vec<_>>();
    assert_eq!(states(&lab.proxy.stats()), [LinkState::Up; 2]);
    assert_eq!(states(&lab.client.stats()), [LinkState::Up; 2]);
    assert_eq!(lab.proxy.stats().drops.get(DropReason::LinkIdUsed), 0);
}

#[test]
fn forged_rekeys_of_the_client_cost_the_proxy_little() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(20.0, 10)]);
    // A client that uses its own keys as it should not: every message would be a handshake.
    let mut keys = forger(Towards::Proxy);
    let from = lab.proxy.stats().links[0].path;
    for number in 1000..1200_u64 {
        let mut message = [0; 100];
        message[3] = 1;
        message[4..12].copy_from_slice(&number.to_be_bytes());
        let mut datagram = [0; 200];
        let (clear, rest) = datagram.split_first_chunk_mut::<CLEAR_LEN>().expect("200 bytes");
        let mut writer = Writer::new(rest);
        let sealed = Sealed { send_time: 0, global: 0, previous_on_link: 0, previous_of_flow: 0 };
        sealed.emit(&mut writer).expect("room");
        emit(&mut writer, &Frame::RekeyFirst(&message)).expect("room");
        let len = writer.len() + TAG_LEN;
        let low = u32::try_from(number).expect("small");
        let receiver = SessionIndex::new(9);
        *clear = Clear { kind: Kind::Frames, phase: 0, link: LinkId(0), receiver, number: low }
            .to_bytes();
        keys.seal(LinkId(0), number, clear, &mut rest[..len]).expect("a fresh key");
        lab.inject(Towards::Proxy, from, &datagram[..CLEAR_LEN + len]);
        let now = lab.now;
        lab.run_until(now + ms(10));
    }
    let drops = lab.proxy.stats().drops;
    println!("{:?}", drops.iter().collect::<Vec<_>>());
    let tried = drops.get(DropReason::RekeyNotAuthentic);
    assert!((4..=7).contains(&tried), "{tried} in two seconds");
    let refused: u64 = drops.iter().map(|(_, count)| count).sum::<u64>() - tried;
    assert_eq!(refused, 200 - tried);
}
