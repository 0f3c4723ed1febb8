//! The use of the handshake, checked exhaustively in small worlds.
//!
//! The transition function is the real code: real clients, a real proxy, real cryptography with seeded randomness. The
//! adversary is the network: it delivers in any order, loses, and repeats whatever it saw, from an address of its own or in
//! another's name. Every schedule of its choices up to a depth is run from the start; a state that was reached before is not
//! explored again. What counts refusals and limits rates is not part of a state.
//!
//! What must hold after every step (`world/rules.rs`):
//!
//! * authentication: the proxy has no session that a machine with that key did not take up; a stranger has none;
//! * replay: so a repeated first message makes no session, and displaces none; at most two are pending for a key;
//! * an invitation binds one key;
//! * displacement: a session is replaced only when a machine with the same key took up another;
//! * rekey: both ends are at most one epoch apart, no epoch comes twice;
//! * no packet is delivered twice or was not sent;
//!
//! and at the end of schedules, when the network behaves again: who may have a session has one that carries packets, one of
//! two machines with one key has, and whatever was said before, repeated, changes nothing but counters.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "a check says how much it looked at")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long the check takes is told"
)]

mod world;

use std::collections::BTreeSet;
use std::time::Instant as WallClock;

use world::{Choice, World};

/// Who is in a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// Has this one of the keys that the proxy knows.
    Known(u8),
    /// Has a key of its own that the proxy does not know, and the invitation.
    Guest,
    /// Has neither.
    Stranger,
}

/// A small world and how far it is explored.
struct Plan {
    name: &'static str,
    who: &'static [Who],
    /// Every datagram is the adversary's to choose, else only those of handshakes; the others go together.
    each: bool,
    /// Whether sessions are established, with keys that are about to be replaced, before the adversary begins.
    established: bool,
    depth: usize,
    /// Most that it loses, repeats, and lets time go on.
    budget: [u8; 3],
}

/// Runs all schedules of the plan.
fn explore(plan: &Plan) {
    let began = WallClock::now();
    let (mut states, mut steps, mut ends) = (BTreeSet::new(), 0_u64, 0_u64);
    let root = World::new(plan);
    let mut level = vec![(Vec::new(), root.choices())];
    let mut depth = 0;
    while depth < plan.depth && !level.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for (schedule, choices) in level {
            for choice in choices {
                let schedule: Vec<Choice> =
                    schedule.iter().copied().chain(std::iter::once(choice)).collect();
                let outcome = std::panic::catch_unwind(|| {
                    let mut world = World::new(plan);
                    schedule.iter().for_each(|choice| world.choose(*choice));
                    let found = (world.digest(), world.choices());
                    // Every eighth is brought to its end; which, follows from the state.
                    let ends = depth == plan.depth && found.0.is_multiple_of(8);
                    if ends {
                        world.finish();
                    }
                    (found, ends)
                });
                assert!(outcome.is_ok(), "{}: {schedule:?}", plan.name);
                let Ok(((digest, choices), ended)) = outcome else { continue };
                steps += 1;
                ends += u64::from(ended);
                if states.insert(digest) {
                    next.push((schedule, choices));
                }
            }
        }
        level = next;
    }
    let took = began.elapsed().as_secs_f64();
    let count = states.len();
    println!(
        "{}: {count} states, {steps} schedules, {ends} brought to an end, depth {depth}, {took:.1} s",
        plan.name
    );
    assert!(count > 50 && ends > 0, "{}: too little to mean anything", plan.name);
}

/// How many steps deeper than in every run: `ROPEWALK_MODEL_DEEPER`.
fn deeper() -> usize {
    std::env::var("ROPEWALK_MODEL_DEEPER").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn a_known_client_gets_one_session_whatever_is_lost_or_repeated_and_a_stranger_none() {
    explore(&Plan {
        name: "one client and a stranger",
        who: &[Who::Known(0), Who::Stranger],
        each: false,
        established: false,
        depth: 6 + deeper(),
        budget: [1, 2, 1],
    });
}

#[test]
fn of_two_machines_with_one_key_only_the_newer_displaces_the_other() {
    explore(&Plan {
        name: "two machines with one key",
        who: &[Who::Known(0), Who::Known(0)],
        each: false,
        established: false,
        depth: 6 + deeper(),
        budget: [1, 1, 1],
    });
}

#[test]
fn of_two_guests_with_one_invitation_one_comes_in() {
    explore(&Plan {
        name: "two guests with one invitation",
        who: &[Who::Guest, Who::Guest],
        each: false,
        established: false,
        depth: 6 + deeper(),
        budget: [1, 1, 1],
    });
}

#[test]
fn whatever_happens_to_a_rekey_both_ends_keep_one_key_and_nothing_comes_twice() {
    explore(&Plan {
        name: "a rekey",
        who: &[Who::Known(0)],
        each: true,
        established: true,
        depth: 6 + deeper(),
        budget: [2, 1, 4],
    });
}
