//! Clients of files are brought into the registry.

use std::collections::BTreeSet;
use std::pin::pin;

use etcd_client::GetOptions;
use ropewalk_fleet::transfer::{FiledClient, Imported};
use tokio::sync::Notify;

use crate::bed::{Bed, client, proxy};

/// Clients that a fleet may have: more than come in here.
const MANY: usize = 10_000;

#[test]
fn clients_of_files_are_brought_in_once_and_whoever_stands_in_the_way_is_named() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        let filed = |number: u8| FiledClient {
            name: format!("client-{number}"),
            public_key: client(number.into()),
            address_v4: [10, 77, 1, number].into(),
            address_v6: None,
            since: 7,
            disabled: number == 9,
            formerly: None,
        };
        let all: Vec<_> = (1..=100).map(filed).collect();
        let imported = one.import(&all, MANY, |_| {}).await.unwrap();
        assert_eq!((imported.added, imported.known, imported.refused.len()), (100, 0, 0));
        let mut exported = one.export().await.unwrap().clients;
        exported.sort_by_key(|client| client.address_v4);
        assert_eq!(exported, all);
        // Again, with others that cannot be.
        let stranger = FiledClient { public_key: client(201), ..filed(1) };
        let neighbour = FiledClient { name: "other".to_owned(), ..stranger.clone() };
        let outside = FiledClient {
            name: "far".to_owned(),
            public_key: client(202),
            address_v4: [192, 0, 2, 1].into(),
            ..filed(1)
        };
        let renamed = FiledClient { name: "renamed".to_owned(), ..filed(2) };
        let more = [filed(1), filed(101), stranger, neighbour, outside, renamed];
        let imported = one.import(&more, MANY, |_| {}).await.unwrap();
        assert_eq!((imported.added, imported.known), (1, 1));
        for (why, part) in imported.refused.iter().zip([
            "client-1: another client of the fleet has this name",
            "other: its address 10.77.1.1 is that of `client-1`",
            "far: its address 192.0.2.1 is outside the pool",
            "renamed: its key is in already, as `client-2`",
        ]) {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(one.export().await.unwrap().clients.len(), 101);
        // Where nobody can come in nothing is written, which would end another import.
        let revision = one.store.head().await.unwrap().revision;
        let imported = one.import(&more[4..=4], MANY, |_| {}).await.unwrap();
        assert_eq!((imported.added, imported.known, imported.refused.len()), (0, 0, 1));
        assert_eq!(one.store.head().await.unwrap().revision, revision);
    });
}

/// Clients as files have them, from the one with this number on.
fn filed(first: u16, count: u16) -> Vec<FiledClient> {
    let one = |number: u16| FiledClient {
        name: format!("client-{number}"),
        public_key: client(number),
        address_v4: (0x0a4d_0002 + u32::from(number)).into(),
        address_v6: None,
        since: 7,
        disabled: false,
        formerly: None,
    };
    (first..first + count).map(one).collect()
}

#[test]
fn an_import_in_parts_is_done_again_without_a_change_and_goes_on_where_it_was_interrupted() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        let counts = |imported: &Imported| (imported.added, imported.known, imported.refused.len());
        // In parts, of which two have clients in common.
        for (first, count, expected) in
            [(0, 300, (300, 0, 0)), (300, 200, (200, 0, 0)), (450, 100, (50, 50, 0))]
        {
            let imported = one.import(&filed(first, count), MANY, |_| {}).await.unwrap();
            assert_eq!(counts(&imported), expected, "{first}");
        }
        let revision = one.store.head().await.unwrap().revision;
        let mut settled = Vec::new();
        let again = one.import(&filed(0, 550), MANY, |count| settled.push(count)).await.unwrap();
        assert_eq!(counts(&again), (0, 550, 0));
        assert_eq!(settled.last(), Some(&550));
        assert!(settled.is_sorted() && settled.len() > 5, "told as it goes on: {settled:?}");
        let after = one.store.head().await.unwrap().revision;
        assert_eq!(after, revision + 1, "nothing was written but `fleet`, as it was");

        // Somebody ends it in the middle.
        let (all, stop) = (filed(1000, 2000), Notify::new());
        let progress = |settled| {
            if settled >= 500 {
                stop.notify_one();
            }
        };
        tokio::select! {
            biased;
            () = stop.notified() => {}
            ended = one.import(&all, MANY, progress) => panic!("it was to be interrupted: {ended:?}"),
        }
        let between = bed.all(&one).await.clients.len() - 550;
        println!("{between} of 2000 clients were in when it was interrupted");
        assert!((500..2000).contains(&between));
        let imported = one.import(&all, MANY, |_| {}).await.unwrap();
        assert_eq!(imported.added + imported.known, 2000);
        // What was under way came in.
        assert!(imported.known >= between && imported.refused.is_empty(), "{imported:?}");
        let exported = one.export().await.unwrap().clients;
        assert_eq!(exported.len(), 2550);
        let addresses: BTreeSet<_> = exported.iter().map(|client| client.address_v4).collect();
        assert_eq!(addresses.len(), 2550);
    });
}

#[test]
fn an_import_is_refused_by_another_fleet_and_brings_in_whom_nothing_stands_in_the_way_of() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        one.import(&filed(0, 10), MANY, |_| {}).await.unwrap();
        // Each stands in the way of another one of a batch.
        let mut all = filed(100, 200);
        all[0].name = "client-0".to_owned();
        all[50].address_v4 = filed(5, 1)[0].address_v4;
        all[199].public_key = client(9);
        let mut etcd = one.store.client().await.unwrap();
        let damaged = one.store.layout().client(&all[120].public_key);
        etcd.put(damaged, "no json", None).await.unwrap();
        let imported = one.import(&all, MANY, |_| {}).await.unwrap();
        assert_eq!((imported.added, imported.known), (196, 0));
        assert_eq!(imported.refused.len(), 4);
        for (why, part) in imported.refused.iter().zip([
            "client-0: another client of the fleet has this name",
            "client-150: its address 10.77.0.7 is that of `client-5`",
            "client-220: the value at /ropewalk/test/clients/",
            "client-299: its key is in already, as `client-9`",
        ]) {
            assert!(why.contains(part), "{why}");
        }
        let exported = one.export().await.unwrap();
        assert_eq!((exported.clients.len(), exported.passed_over.len()), (206, 1));
        let told = &exported.passed_over[0];
        assert!(told.contains("/ropewalk/test/clients/") && told.contains("etcdctl del"), "{told}");
        let other = r#"{"version":1,"name":"other","pool_v4":"10.77.0.0/16"}"#;
        etcd.put(one.store.layout().fleet(), other, None).await.unwrap();
        let refused = one.import(&filed(1000, 1), MANY, |_| {}).await.unwrap_err().to_string();
        assert!(refused.contains("is of the fleet `other`"), "{refused}");
    });
}

#[test]
fn an_import_of_more_clients_than_the_fleet_takes_is_refused_before_anything_is_written() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let one = proxy(&bed, "one");
        let counts = |imported: &Imported| (imported.added, imported.known, imported.refused.len());
        let told = one.import(&filed(0, 300), 299, |_| {}).await.unwrap_err().to_string();
        for part in ["has 0 clients", "300 more", "`max_peers`", "allows 299"] {
            assert!(told.contains(part), "{told}");
        }
        let fleet = one.store.get(&one.store.layout().fleet()).await.unwrap();
        assert!(fleet.is_none(), "not even the fleet was begun");
        let imported = one.import(&filed(0, 300), 300, |_| {}).await.unwrap();
        assert_eq!(counts(&imported), (300, 0, 0));

        // Those that are in count once, whatever the list: 50 of these are new.
        let mut more = filed(250, 100);
        let revision = one.store.head().await.unwrap().revision;
        let told = one.import(&more, 349, |_| {}).await.unwrap_err().to_string();
        assert!(told.contains("has 300 clients, and 50 more") && told.contains("350"), "{told}");
        assert_eq!(one.store.head().await.unwrap().revision, revision, "nothing was written");
        assert_eq!(bed.all(&one).await.clients.len(), 300);
        // One that would be refused needs no room.
        more[99].name = "client-0".to_owned();
        let imported = one.import(&more, 349, |_| {}).await.unwrap();
        assert_eq!(counts(&imported), (49, 50, 1));
        // Who did so before there was a bound may do it again.
        let imported = one.import(&filed(0, 300), 10, |_| {}).await.unwrap();
        assert_eq!(counts(&imported), (0, 300, 0));

        let other = r#"{"version":1,"name":"other","pool_v4":"10.77.0.0/16"}"#;
        let mut etcd = one.store.client().await.unwrap();
        etcd.put(one.store.layout().fleet(), other, None).await.unwrap();
        let told = one.import(&filed(1000, 1), 10, |_| {}).await.unwrap_err().to_string();
        assert!(told.contains("is of the fleet `other`"), "{told}");
    });
}

#[test]
fn of_two_imports_at_once_that_fit_alone_and_not_together_one_comes_in_and_the_other_is_told() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let (one, other) = (proxy(&bed, "one"), proxy(&bed, "other"));
        for round in 0..20_u16 {
            // Each fits into one transaction.
            let (these, those) = (filed(100 * round, 30), filed(100 * round + 50, 30));
            let most = 30 * (usize::from(round) + 1);
            let (first, second) =
                tokio::join!(one.import(&these, most, |_| {}), other.import(&those, most, |_| {}));
            let there = bed.all(&one).await.clients.len();
            assert_eq!(there, most, "round {round}: {first:?} and {second:?}");
            let (come, refused) = match (first, second) {
                (Ok(come), Err(refused)) | (Err(refused), Ok(come)) => (come, refused.to_string()),
                both => panic!("round {round}: {both:?}"),
            };
            // Those whose answer was lost count as known.
            assert_eq!(come.added + come.known, 30, "{come:?}");
            assert!(refused.contains("`max_peers`"), "{refused}");
        }
    });
}

#[test]
fn an_import_during_which_another_one_begins_ends_and_goes_on_from_there_when_it_is_done_again() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let (one, other) = (proxy(&bed, "one"), proxy(&bed, "other"));
        let (all, few, begun) = (filed(0, 6000), filed(7000, 10), Notify::new());
        let mut importing = pin!(one.import(&all, MANY, |_| begun.notify_one()));
        tokio::select! {
            over = &mut importing => panic!("it was over before the other one began: {over:?}"),
            () = begun.notified() => {}
        }
        // It stands still, but for the transactions that are under way, until the other one is over.
        let beside = other.import(&few, MANY, |_| {}).await.unwrap();
        assert_eq!(beside.added + beside.known, 10, "the one that began later: {beside:?}");
        let told = importing.await.unwrap_err().to_string();
        assert!(told.contains("another import") && told.contains("Run it again"), "{told}");
        let between = bed.all(&one).await.clients.len() - 10;
        println!("{between} of 6000 clients were in when the other one began");
        assert!((1..6000).contains(&between));
        let again = one.import(&all, MANY, |_| {}).await.unwrap();
        assert_eq!(again.added + again.known, 6000, "{again:?}");
        // Whoever comes in now and whose answer is lost counts as known, too: a busy etcd may take longer to answer than it is waited for.
        assert!(again.known >= between, "{between} were in, and {} are known", again.known);
        let mut etcd = one.store.client().await.unwrap();
        let keys = GetOptions::new().with_prefix().with_keys_only();
        let there = etcd.get(one.store.layout().clients(), Some(keys)).await.unwrap();
        assert_eq!(there.kvs().len(), 6010);
        assert!(there.kvs().iter().all(|kv| kv.version() == 1), "none was written twice");
    });
}
