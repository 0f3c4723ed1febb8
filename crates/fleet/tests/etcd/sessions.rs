//! What a proxy says of its sessions: of many at once, and of one whose client moves.

use std::time::{Duration, Instant};

use ropewalk_fleet::cache::Cache;
use ropewalk_fleet::service::News;
use ropewalk_settings::PublicKey;

use crate::bed::{Bed, client, presence, proxy};

/// Sessions that begin at once: said one after the other they take longer than the lease of 10 s holds.
const MANY: u16 = 12_000;

/// How long all of them may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

fn displaced(news: &News) -> Option<(PublicKey, u64)> {
    match news {
        News::Displaced(client, since) => Some((*client, *since)),
        _ => None,
    }
}

#[test]
fn however_many_sessions_begin_at_once_all_come_into_the_registry_and_their_proxy_stays_there() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let near = proxy(&bed, "near");
        let (one, _news) = bed.serve("one");
        bed.wait_for(&one, |cache| cache.proxies.contains_key("one")).await;
        let key = near.store.layout().proxy("one");
        let before = near.store.get(&key).await.unwrap().unwrap();
        let begun = Instant::now();
        for number in 0..MANY {
            one.note_session(client(number), Some(1_000));
        }
        let said = || one.mirror().lock().cache.sessions.len();
        while said() < usize::from(MANY) {
            assert!(begun.elapsed() < PATIENCE, "{} of {MANY} sessions were said", said());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("{MANY} sessions were said in {:.1} s", begun.elapsed().as_secs_f64());
        let after = near.store.get(&key).await.unwrap().unwrap();
        assert_eq!(after.create_revision(), before.create_revision(), "it was never gone");
    });
}

#[test]
fn however_many_sessions_are_to_be_said_the_lease_can_be_renewed_again_and_again_meanwhile() {
    const SESSIONS: u16 = 2_000;
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let mut one = presence(&bed, "one");
        one.renew().await.unwrap();
        (0..SESSIONS).for_each(|number| one.note(client(number), Some(1_000)));
        let (mut stretches, mut longest) = (0, Duration::ZERO);
        while one.is_behind() {
            let begun = Instant::now();
            one.say().await.unwrap();
            longest = longest.max(begun.elapsed());
            stretches += 1;
            one.renew().await.unwrap();
        }
        println!("{SESSIONS} sessions in {stretches} stretches, the longest {longest:.1?}");
        assert!(longest < Duration::from_secs(5), "the lease holds for ten: {longest:?}");
        assert!(one.take_displaced().is_empty());
        let said = bed.all(&proxy(&bed, "near")).await;
        assert_eq!(said.sessions.len(), usize::from(SESSIONS));
        assert!(said.proxies.contains_key("one"));
    });
}

#[test]
fn a_session_that_is_kept_after_a_move_stays_when_its_proxy_says_all_of_them_again() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.run(async |bed| {
        let near = proxy(&bed, "near");
        let (one, mut at_one) = bed.serve("one");
        let (two, _at_two) = bed.serve("two");
        bed.wait_for(&one, |cache| cache.proxies.len() == 2).await;
        one.note_session(client(1), Some(1_000));
        one.note_session(client(2), Some(1_000));
        bed.wait_for(&two, |cache| cache.sessions.len() == 2).await;
        one.keep_session(client(1));
        two.note_session(client(1), Some(2_000));
        let has_moved = |cache: &Cache| {
            cache.sessions.get(&client(1)).is_some_and(|session| *session.proxy == *"two")
        };
        bed.wait_for(&one, has_moved).await;

        // Its lease is gone: it takes another one, and says of both again.
        let layout = near.store.layout();
        let lease = near.store.get(&layout.proxy("one")).await.unwrap().unwrap().lease();
        let mut etcd = near.store.client().await.unwrap();
        etcd.lease_revoke(lease).await.unwrap();
        let other = layout.session(&client(2));
        let begun = Instant::now();
        while near.store.get(&other).await.unwrap().is_none_or(|kv| kv.lease() == lease) {
            assert!(begun.elapsed() < Duration::from_secs(30), "it says of both again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bed.wait_for(&two, |cache| cache.sessions.len() == 2).await;
        two.note_session(client(2), Some(2_000));
        let first = bed.next(&mut at_one, |news| displaced(&news)).await;
        assert_eq!(first, (client(2), 1_000), "the other one is kept");
    });
}
