//! The registry on a real etcd, which each test starts in a network namespace and a folder of its own.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]
#![expect(clippy::print_stdout, reason = "what was measured, and why a test is skipped")]

mod bed;
mod import;
mod sessions;

use std::time::{Duration, Instant};

use bed::{Bed, client, invite, presence, proxy, token};
use etcd_client::{CompactionOptions, PutOptions};
use ropewalk_fleet::cache::Change;
use ropewalk_fleet::changes::{ChangeError, Changes, Claimed};
use ropewalk_fleet::layout::{ProxyState, hash};
use ropewalk_fleet::service::News;
use ropewalk_fleet::store::StoreError;

/// How often two proxies are shown one invitation.
const RACES: u16 = 1000;

#[test]
fn of_two_keys_that_show_one_invitation_at_two_proxies_at_once_exactly_one_is_bound() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let (one, other) = (proxy(&bed, "one"), proxy(&bed, "other"));
        one.agree().await.unwrap();
        let mut winners = [0; 2];
        for race in 0..RACES {
            invite(&one, &format!("client {race}"), race).await;
            let (a, b, token) = (client(2 * race), client(2 * race + 1), token(race));
            // Each asks first in turn.
            let (here, there) = if race % 2 == 0 { (&one, &other) } else { (&other, &one) };
            let (first, second) =
                tokio::join!(here.claim(&token, a, 2000), there.claim(&token, b, 2000));
            let bound = |claimed: &Claimed| matches!(claimed, Claimed::Bound { .. });
            let (first, second) = (first.unwrap(), second.unwrap());
            assert!(bound(&first) != bound(&second), "race {race}: {first:?} and {second:?}");
            let loser = if bound(&first) { &second } else { &first };
            assert_eq!(*loser, Claimed::Used(format!("client {race}")));
            winners[usize::from(bound(&second))] += 1;
        }
        println!("{RACES} races, won by who asked first and second: {winners:?}");
        let kept = bed.all(&one).await;
        assert_eq!(kept.clients.len(), usize::from(RACES));
        let addresses: std::collections::BTreeSet<_> =
            kept.clients.values().map(|client| client.address_v4).collect();
        assert_eq!(addresses.len(), usize::from(RACES), "no address twice");
    });
}

#[test]
fn many_claims_at_two_proxies_at_once_get_names_and_addresses_of_their_own() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let (one, other) = (proxy(&bed, "one"), proxy(&bed, "other"));
        one.agree().await.unwrap();
        for number in 0..40 {
            invite(&one, &format!("client {number}"), number).await;
        }
        let tasks = tokio::task::LocalSet::new();
        for number in 0..40_u16 {
            let at = if number % 2 == 0 { one.clone() } else { other.clone() };
            tasks.spawn_local(async move {
                let claimed = at.claim(&token(number), client(number), 1000).await.unwrap();
                assert!(matches!(claimed, Claimed::Bound { .. }), "{claimed:?}");
            });
        }
        tasks.await;
        let kept = bed.all(&one).await;
        let addresses: std::collections::BTreeSet<_> =
            kept.clients.values().map(|client| client.address_v4).collect();
        assert_eq!((kept.clients.len(), addresses.len()), (40, 40));
        // Both looked for the lowest free one.
        assert_eq!(addresses.last().unwrap().to_string(), "10.77.0.41");
    });
}

#[test]
fn an_invitation_is_told_to_be_used_expired_or_withdrawn_and_rotation_keeps_the_address() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        invite(&one, "laptop", 1).await;
        let bound = |formerly| Claimed::Bound {
            name: "laptop".into(),
            formerly,
            address_v4: [10, 77, 0, 2].into(),
            address_v6: None,
            disabled: false,
        };
        let claim = |number, key| {
            let one = one.clone();
            async move { one.claim(&token(number), client(key), 2).await.unwrap() }
        };
        assert_eq!(claim(9, 1).await, Claimed::Unknown);
        assert_eq!(claim(1, 1).await, bound(None));
        assert_eq!(claim(1, 1).await, bound(None), "the answer may have been lost");
        assert_eq!(claim(1, 2).await, Claimed::Used("laptop".into()));
        let address = bed.all(&one).await.clients.get(&client(1)).unwrap().address_v4;

        let again = one.invite("laptop", true, (&token(2), u64::MAX), 2).await.unwrap();
        assert_eq!(again, (Some(client(1)), 0));
        assert_eq!(bed.all(&one).await.invitations.len(), 1, "the one that nobody used");
        assert_eq!(claim(2, 3).await, bound(Some(client(1))));
        let kept = bed.all(&one).await;
        assert_eq!((kept.clients.len(), kept.invitations.len()), (1, 0));
        assert_eq!(kept.clients.get(&client(3)).unwrap().address_v4, address);

        one.invite("phone", false, (&token(3), 5), 9).await.unwrap();
        assert_eq!(claim(3, 4).await, Claimed::Over("phone".into()));
        let taken = one.invite("laptop", false, (&token(4), u64::MAX), 9).await.unwrap_err();
        assert!(taken.to_string().contains("has joined already"), "{taken}");
        invite(&one, "tablet", 5).await;
        assert_eq!(one.remove("tablet").await.unwrap().invitations, 1);
        assert_eq!(claim(5, 4).await, Claimed::Over("tablet".into()));
        assert_eq!(one.remove("laptop").await.unwrap().public_key, Some(client(3)));
        let kept = bed.all(&one).await;
        assert!(kept.clients.is_empty() && kept.invitations.is_empty());
        assert!(matches!(one.remove("laptop").await, Err(ChangeError::NoClient(_))));
        // Its name and its address are free.
        one.mirror.lock().cache = kept;
        invite(&one, "laptop", 6).await;
        assert_eq!(claim(6, 5).await, bound(None));
        let kept = bed.all(&one).await;
        assert_eq!(kept.clients.get(&client(5)).unwrap().address_v4, address);
    });
}

#[test]
fn a_client_is_disabled_and_enabled_at_all_proxies_and_stays_so_with_another_key() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        invite(&one, "laptop", 1).await;
        one.claim(&token(1), client(1), 9).await.unwrap();
        let (service, mut news) = bed.serve("two");
        bed.next(&mut news, changes).await;
        assert_eq!(one.enable("laptop", true).await.unwrap(), (client(1), false));
        assert_eq!(service.enable("laptop".into(), false).await.unwrap(), (client(1), true));
        let is_disabled = |change: &Change| match change {
            Change::Came(_, client) => Some(client.disabled),
            _ => None,
        };
        let told = bed.next(&mut news, changes).await;
        assert_eq!(told.iter().map(is_disabled).collect::<Vec<_>>(), [Some(true)]);
        one.invite("laptop", true, (&token(2), u64::MAX), 9).await.unwrap();
        let bound = one.claim(&token(2), client(2), 9).await.unwrap();
        assert!(matches!(bound, Claimed::Bound { disabled: true, .. }), "{bound:?}");
        assert_eq!(one.enable("laptop", true).await.unwrap(), (client(2), true));
        assert!(!bed.all(&one).await.clients.get(&client(2)).unwrap().disabled);
        let nobody = one.enable("phone", false).await.unwrap_err().to_string();
        assert!(nobody.contains("no client `phone` has joined"), "{nobody}");
    });
}

#[test]
fn while_etcd_is_away_changes_are_refused_and_what_is_known_stays_until_it_is_caught_up() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |mut bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        invite(&one, "laptop", 1).await;
        invite(&one, "phone", 2).await;
        one.claim(&token(1), client(1), 9).await.unwrap();
        let (service, mut news) = bed.serve("two");
        bed.wait_for(&service, |cache| cache.clients.len() == 1).await;
        assert!(matches!(news.recv().await, Some(News::Changes(_))));

        bed.kill();
        bed.wait_until("it is known to be away", || service.mirror().lock().away.is_some()).await;
        assert_eq!(service.mirror().lock().cache.clients.len(), 1, "what is known stays");
        let refused = service.claim(token(2), client(2)).await.unwrap_err();
        let sentence = refused.to_string();
        assert!(sentence.contains("does not answer") && sentence.contains("nothing was changed"));
        assert!(sentence.contains("etcdctl endpoint health"), "{sentence}");
        let since = service.mirror().lock().away.clone().unwrap().since;
        assert!(ropewalk_fleet::mirror::now().abs_diff(since) < 60);

        let lists = service.mirror().lock().lists;
        bed.start().await;
        let bound = service.claim(token(2), client(2));
        let bound = tokio::time::timeout(Duration::from_secs(20), bound).await.unwrap();
        assert!(matches!(bound, Ok(Claimed::Bound { .. })), "{bound:?}");
        bed.wait_for(&service, |cache| cache.clients.len() == 2).await;
        let mirrored = service.mirror().lock();
        assert!(mirrored.away.is_none());
        assert_eq!(mirrored.lists, lists, "caught up by revision, without another list");
    });
}

/// A service called `two` knew two clients, and has ended; it cannot reach etcd any more.
async fn cut_off_with_two_clients(bed: &bed::Etcd) -> Changes {
    let one = proxy(bed, "one");
    one.agree().await.unwrap();
    for number in 1..=2 {
        invite(&one, &format!("client {number}"), number).await;
        one.claim(&token(number), client(number), 9).await.unwrap();
    }
    let (service, mut news) = bed.serve("two");
    bed.wait_for(&service, |cache| cache.clients.len() == 2).await;
    bed.next(&mut news, changes).await;
    drop(service);
    bed.cut(true);
    one
}

fn changes(news: News) -> Option<Vec<Change>> {
    match news {
        News::Changes(changes) => Some(changes),
        _ => None,
    }
}

#[test]
fn a_proxy_that_starts_while_etcd_is_away_serves_whom_it_knew_and_is_corrected_when_it_is_back() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = cut_off_with_two_clients(&bed).await;
        one.remove("client 1").await.unwrap();
        let begun = Instant::now();
        let (service, mut news) = bed.serve("two");
        let come = bed.next(&mut news, changes).await;
        println!("served {:.1} s after the start", begun.elapsed().as_secs_f64());
        assert!(come.iter().all(|change| matches!(change, Change::Came(..))), "{come:?}");
        assert_eq!(come.len(), 2, "who was removed meanwhile, too");
        {
            let mirrored = service.mirror().lock();
            assert!(mirrored.recalled.is_some() && mirrored.lists == 0);
        }
        let refused = service.claim(token(3), client(3)).await.unwrap_err().to_string();
        assert!(refused.contains("does not answer"), "{refused}");

        bed.cut(false);
        assert_eq!(bed.next(&mut news, changes).await, [Change::Gone(client(1))]);
        assert!(service.mirror().lock().recalled.is_none());
        invite(&one, "client 3", 3).await;
        let bound = service.claim(token(3), client(3)).await.unwrap();
        assert!(matches!(bound, Claimed::Bound { .. }), "{bound:?}");
    });
}

#[test]
fn a_proxy_lets_nobody_in_any_more_when_the_fleet_that_it_knew_turns_out_to_be_another_one() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = cut_off_with_two_clients(&bed).await;
        let (_service, mut news) = bed.serve("two");
        assert_eq!(bed.next(&mut news, changes).await.len(), 2);
        let mut etcd = one.store.client().await.unwrap();
        let other = r#"{"version":1,"name":"other","pool_v4":"10.77.0.0/16"}"#;
        etcd.put(one.store.layout().fleet(), other, None).await.unwrap();
        bed.cut(false);
        let is_told = |news| matches!(news, News::NotOurs).then_some(());
        bed.next(&mut news, is_told).await;
    });
}

#[test]
fn a_compaction_beneath_the_watch_is_caught_up_by_another_list() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        for number in 1..=3 {
            invite(&one, &format!("client {number}"), number).await;
        }
        one.claim(&token(1), client(1), 9).await.unwrap();
        one.claim(&token(2), client(2), 9).await.unwrap();
        let (service, mut news) = bed.serve("two");
        bed.wait_for(&service, |cache| cache.clients.len() == 2).await;
        while let Ok(Some(News::Changes(_))) =
            tokio::time::timeout(Duration::from_millis(300), news.recv()).await
        {}
        // The proxy is stopped in its tracks while the others go on and etcd forgets.
        bed.cut(true);
        bed.wait_until("it is known to be away", || service.mirror().lock().away.is_some()).await;
        one.remove("client 1").await.unwrap();
        one.claim(&token(3), client(3), 9).await.unwrap();
        let revision = one.store.head().await.unwrap().revision;
        let mut etcd = one.store.client().await.unwrap();
        let physical = CompactionOptions::new().with_physical();
        etcd.compact(revision, Some(physical)).await.unwrap();
        bed.cut(false);
        bed.wait_for(&service, |cache| cache.clients.contains_key(&client(3))).await;
        let mirrored = service.mirror().lock();
        let mut keys: Vec<_> = mirrored.cache.clients.keys().copied().collect();
        keys.sort();
        assert_eq!(keys, [client(2), client(3)]);
        assert_eq!(mirrored.lists, 2);
    });
}

#[test]
fn the_newest_session_wins_and_the_older_proxy_is_told() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let (one, mut at_one) = bed.serve("one");
        let (two, mut at_two) = bed.serve("two");
        bed.wait_for(&one, |cache| cache.proxies.len() == 2).await;
        let said_by = |id: &'static str| {
            move |cache: &ropewalk_fleet::cache::Cache| {
                cache.sessions.get(&client(1)).is_some_and(|session| *session.proxy == *id)
            }
        };
        one.note_session(client(1), Some(1_000));
        bed.wait_for(&two, said_by("one")).await;
        two.note_session(client(1), Some(2_000));
        bed.wait_for(&one, said_by("two")).await;
        let displaced = bed.next(&mut at_one, |news| match news {
            News::Displaced(key, since) => Some((key, since)),
            _ => None,
        });
        assert_eq!(displaced.await, (client(1), 1_000));
        // A proxy that was cut off says of an older session when it is back.
        one.note_session(client(1), Some(1_500));
        let displaced = bed.next(&mut at_one, |news| match news {
            News::Displaced(key, since) => Some((key, since)),
            _ => None,
        });
        assert_eq!(displaced.await, (client(1), 1_500));
        two.note_session(client(1), None);
        bed.wait_for(&one, |cache| cache.sessions.is_empty()).await;
        while let Ok(heard) = at_two.try_recv() {
            assert!(matches!(heard, News::Proxies(_)), "the newer one heard {heard:?}");
        }
        drop(two);
        bed.wait_for(&one, |cache| cache.proxies.len() == 1).await;
    });
}

#[test]
fn an_end_of_a_session_is_heard_of_however_much_was_said_while_etcd_did_not_answer() {
    const WORDS: u64 = 5000;
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let (one, _news) = bed.serve("one");
        one.note_session(client(1), Some(1));
        bed.wait_for(&one, |cache| cache.sessions.contains_key(&client(1))).await;
        bed.cut(true);
        for since in 1..=WORDS {
            one.note_session(client(2), Some(since));
        }
        one.note_session(client(1), None);
        bed.cut(false);
        bed.wait_for(&one, |cache| {
            let other = cache.sessions.get(&client(2)).map(|session| session.since_us);
            other == Some(WORDS) && !cache.sessions.contains_key(&client(1))
        })
        .await;
    });
}

#[test]
fn the_session_that_etcd_saw_begin_later_wins_though_the_other_proxys_clock_is_an_hour_ahead() {
    const AN_HOUR_AHEAD: u64 = 3_600_000_000;
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let near = proxy(&bed, "near");
        let (one, mut at_one) = bed.serve("one");
        bed.wait_for(&one, |cache| cache.proxies.contains_key("one")).await;
        one.note_session(client(1), Some(AN_HOUR_AHEAD));
        bed.wait_for(&one, |cache| cache.sessions.len() == 1).await;
        // It is cut off for longer than its lease holds, and the client moves meanwhile.
        bed.cut(true);
        let begun = Instant::now();
        while !bed.all(&near).await.sessions.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(40), "its lease is over");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut two = presence(&bed, "two");
        two.renew().await.unwrap();
        two.note(client(1), Some(1_000));
        two.say().await.unwrap();
        assert!(two.take_displaced().is_empty());
        bed.cut(false);
        let displaced = bed.next(&mut at_one, |news| match news {
            News::Displaced(key, since) => Some((key, since)),
            _ => None,
        });
        let mut displaced = std::pin::pin!(displaced);
        let told = loop {
            tokio::select! {
                told = &mut displaced => break told,
                () = tokio::time::sleep(Duration::from_secs(1)) => two.renew().await.unwrap(),
            }
        };
        assert_eq!(told, (client(1), AN_HOUR_AHEAD));
        let sessions = bed.all(&near).await.sessions;
        assert_eq!(*sessions.get(&client(1)).unwrap().proxy, *"two");
        // Who comes back to it has a newer session there, although its own proxy's clock says otherwise.
        one.note_session(client(1), Some(2_000));
        bed.wait_for(&one, |cache| {
            cache.sessions.get(&client(1)).is_some_and(|session| *session.proxy == *"one")
        })
        .await;
    });
}

#[test]
fn a_session_that_began_while_its_proxy_was_cut_off_is_judged_by_the_clocks() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let mut one = presence(&bed, "one");
        let mut two = presence(&bed, "two");
        two.renew().await.unwrap();
        two.note(client(1), Some(2_000));
        two.note(client(2), Some(2_000));
        two.say().await.unwrap();
        // These began before and after it, and etcd hears of both only now.
        one.renew().await.unwrap();
        one.note(client(1), Some(1_000));
        one.note(client(2), Some(3_000));
        one.say().await.unwrap();
        assert_eq!(one.take_displaced(), [(client(1), 1_000)]);
        let sessions = bed.all(&proxy(&bed, "near")).await.sessions;
        let at = |number| &*sessions.get(&client(number)).unwrap().proxy;
        assert_eq!((at(1), at(2)), ("two", "one"));
    });
}

#[test]
fn a_proxy_that_is_cut_off_is_gone_with_its_lease_and_is_back_after_it_and_a_drain_is_heard_of() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        let (service, mut news) = bed.serve("one");
        bed.wait_for(&service, |cache| cache.proxies.contains_key("one")).await;
        let state = |news| match news {
            News::State(state) => Some(state),
            _ => None,
        };
        // Clients are told before the proxy takes no more sessions.
        let told = |news| match news {
            News::Proxies(list) => list.iter().map(|proxy| (proxy.id.clone(), proxy.state)).next(),
            _ => None,
        };
        let serves = Some(("one".to_owned(), ProxyState::Serving));
        assert_eq!(Some(bed.next(&mut news, told).await), serves);
        one.drain("one", true).await.unwrap();
        let drains = Some(("one".to_owned(), ProxyState::Draining));
        assert_eq!(Some(bed.next(&mut news, told).await), drains);
        assert_eq!(bed.next(&mut news, state).await, ProxyState::Draining);
        one.drain("one", true).await.unwrap();
        one.drain("one", false).await.unwrap();
        assert_eq!(bed.next(&mut news, state).await, ProxyState::Serving);
        let nobody = one.drain("two", true).await.unwrap_err().to_string();
        assert!(nobody.contains("no proxy `two` runs"), "{nobody}");

        service.note_session(client(1), Some(1_000));
        bed.wait_for(&service, |cache| cache.sessions.len() == 1).await;
        bed.cut(true);
        let begun = Instant::now();
        while !bed.all(&one).await.proxies.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(40), "its lease is over");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("gone {:.1} s after the cut", begun.elapsed().as_secs_f64());
        assert!(bed.all(&one).await.sessions.is_empty());
        bed.cut(false);
        loop {
            let kept = bed.all(&one).await;
            if (kept.sessions.len(), kept.proxies.len()) == (1, 1) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(80), "it says it again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn what_is_not_ours_is_passed_over_and_a_foreign_or_newer_fleet_is_refused_with_what_to_do() {
    let Some(bed) = Bed::new(&["--max-request-bytes=4194304"]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        invite(&one, "laptop", 1).await;
        one.claim(&token(1), client(1), 9).await.unwrap();
        let mut etcd = one.store.client().await.unwrap();
        let layout = one.store.layout();
        let put = |key: String, value: Vec<u8>| {
            let mut etcd = etcd.clone();
            async move { etcd.put(key, value, None::<PutOptions>).await.unwrap() }
        };
        put(layout.client(&client(2)), b"{\"colour\":\"blue\"}".to_vec()).await;
        put(layout.client(&client(3)), vec![b'x'; 2 << 20]).await;
        put(format!("{}unknown/thing", layout.prefix()), b"1".to_vec()).await;
        put(layout.name("phone"), b"not json".to_vec()).await;
        let (service, _news) = bed.serve("two");
        bed.wait_for(&service, |cache| cache.clients.len() == 1).await;
        assert_eq!(service.mirror().lock().cache.foreign.len(), 3);
        let damaged = one.invite("phone", false, (&token(2), u64::MAX), 9).await.unwrap_err();
        assert!(damaged.to_string().contains("etcdctl del"), "{damaged}");

        let fleet = |text: &str| put(layout.fleet(), text.as_bytes().to_vec());
        let table = [
            (r#"{"version":1,"name":"other","pool_v4":"10.77.0.0/16"}"#, "is of the fleet `other`"),
            (r#"{"version":1,"name":"test","pool_v4":"10.9.0.0/16"}"#, "need the same"),
            (r#"{"version":9,"name":"test","pool_v4":"10.77.0.0/16"}"#, "install a newer ropewalk"),
            ("# a playbook", "Another program uses this prefix"),
        ];
        for (value, expected) in table {
            fleet(value).await;
            let (stranger, mut heard) = bed.serve("three");
            bed.wait_for(&stranger, |cache| cache.clients.len() == 1).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            let told = heard.try_recv();
            assert!(told.is_err(), "clients of a fleet that is not ours: {told:?}");
            let error = one.agree().await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let refused = one.remove("laptop").await.unwrap_err().to_string();
            assert!(refused.contains(expected), "nothing is written: {refused}");
        }
        drop(etcd.delete(layout.fleet(), None).await.unwrap());
        let none = one.remove("laptop").await.unwrap_err().to_string();
        assert!(none.contains("no proxy has begun the fleet"), "{none}");
        let kept = layout.invitation(&hash(&token(1)));
        assert!(one.store.get(&kept).await.unwrap().is_some());
    });
}

#[test]
fn a_full_etcd_is_told_with_the_way_out() {
    let Some(bed) = Bed::new(&["--quota-backend-bytes=1000000"]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.agree().await.unwrap();
        let mut etcd = one.store.client().await.unwrap();
        for number in 0..100 {
            let key = format!("/other/{number}");
            if etcd.put(key, vec![b'x'; 32 << 10], None).await.is_err() {
                break;
            }
        }
        let full = one.invite("laptop", false, (&token(1), u64::MAX), 9).await.unwrap_err();
        assert_eq!(full, ChangeError::Store(StoreError::Full));
        assert!(full.to_string().contains("etcdctl alarm disarm"), "{full}");
        assert!(bed.all(&one).await.fleet.is_some(), "what is there is read");
    });
}

#[test]
fn a_certificate_that_etcd_or_this_host_does_not_trust_is_told_with_where_to_look() {
    let Some(bed) = Bed::with_tls() else { return };
    bed.run(async |bed| {
        for (case, ca, certificate) in [
            ("ours", "other-ca.pem", "client"),
            ("etcd's", "ca.pem", "other-client"),
            ("one that has expired", "ca.pem", "late-client"),
        ] {
            let wrong = bed.proxy_by_tls("one", ca, certificate);
            let error = wrong.agree().await.unwrap_err();
            println!("{case}: {error}");
            assert!(
                matches!(&error, ChangeError::Store(StoreError::Tls { .. })),
                "{case}: {error:?}"
            );
            assert!(error.to_string().contains("--trusted-ca-file"), "{case}: {error}");
        }
        bed.proxy_by_tls("one", "ca.pem", "client").agree().await.unwrap();
        let missing = bed.proxy_by_tls("one", "ca.pem", "nobody").agree().await.unwrap_err();
        assert!(missing.to_string().contains("cannot read"), "{missing}");
    });
}
