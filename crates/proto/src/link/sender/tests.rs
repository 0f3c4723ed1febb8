//! The sending side by tables and virtual time.

use super::*;
use crate::link::carried::{Carried, Packets, SizeEvidence};
use crate::link::received::{Range, Ranges};
use crate::link::rtt::MAX_REPORT_DELAY;
use crate::units::LinkId;

const MS: Duration = Duration::from_millis(1);
const NOTHING: Carried = Carried {
    packets: Packets { first: 0, span: 0, count: 0 },
    report: None,
    size: SizeEvidence::None,
};
const DATA: Sent = Sent {
    size: 1000,
    header: 0,
    places: 1,
    eliciting: true,
    window_limited: true,
    window_full: true,
    paced: false,
    carried: NOTHING,
};
const REPORT_ONLY: Sent = Sent {
    size: 60,
    header: 0,
    places: 0,
    eliciting: false,
    window_limited: false,
    window_full: false,
    paced: false,
    carried: NOTHING,
};

fn at(millis: u64) -> Instant {
    Instant::from_millis(1_000 + millis)
}

fn sender() -> LinkSender {
    LinkSender::new(ControllerKind::Ccid2, 0)
}

/// What a datagram with this packet carries.
fn packet(global: u64) -> Carried {
    Carried { packets: Packets::one(global), ..NOTHING }
}

fn send(sender: &mut LinkSender, now: Instant, count: u64) {
    for _ in 0..count {
        let carried = packet(sender.next_number());
        sender.on_sent(now, Sent { carried, ..DATA });
    }
}

fn report(ranges: &[(u64, u64)]) -> Report {
    let ranges: Ranges = ranges.iter().map(|&(first, last)| Range { first, last }).collect();
    Report { link: LinkId(0), delay_us: 0, ce_count: 0, ranges }
}

/// Applies a report and returns the outcome and, per number, its fate.
fn apply(sender: &mut LinkSender, now: Instant, report: &Report) -> (Outcome, Vec<(u64, Fate)>) {
    let mut fates = vec![];
    let outcome = sender
        .on_report(now, report, Via::Own, 0, |settled| {
            assert!(settled.sent.carried == packet(settled.number) || !settled.sent.in_window());
            fates.push((settled.number, settled.fate));
        })
        .unwrap();
    (outcome, fates)
}

#[test]
fn the_window_gives_room_and_reports_give_it_back() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    assert_eq!((sender.room(), sender.in_flight(), sender.next_number()), (0, 10, 10));
    let (outcome, fates) = apply(&mut sender, at(50), &report(&[(0, 3)]));
    assert_eq!(fates, [0, 1, 2, 3].map(|number| (number, Fate::Confirmed)));
    assert_eq!((outcome.confirmed, outcome.rtt), (4, Some(MS * 50)));
    assert_eq!((sender.window(), sender.in_flight(), sender.room()), (12, 6, 6));
}

#[test]
fn the_report_delay_is_not_in_the_sample() {
    let mut sender = sender();
    send(&mut sender, at(0), 2);
    let late = Report { delay_us: 20_000, ..report(&[(0, 0)]) };
    assert_eq!(apply(&mut sender, at(50), &late).0.rtt, Some(MS * 30));
    let absurd = Report { delay_us: 60_000, ..report(&[(0, 1)]) };
    assert_eq!(apply(&mut sender, at(51), &absurd).0.rtt, None);
}

#[test]
fn only_the_newest_and_newly_confirmed_gives_a_sample() {
    let mut sender = sender();
    send(&mut sender, at(0), 4);
    let copy = report(&[(1, 1)]);
    let outcome = sender.on_report(at(30), &copy, Via::Other, 0, |_| {}).unwrap();
    assert_eq!((outcome.confirmed, outcome.rtt), (1, None), "it came by another way");
    let (outcome, _) = apply(&mut sender, at(40), &report(&[(0, 1)]));
    assert_eq!((outcome.confirmed, outcome.rtt), (1, None), "1 was known");
    assert_eq!(apply(&mut sender, at(50), &report(&[(0, 2)])).0.rtt, Some(MS * 50));
}

#[test]
fn three_later_confirmations_prove_a_loss() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    assert_eq!(apply(&mut sender, at(50), &report(&[(2, 3), (0, 0)])).0.lost, 0);
    let (outcome, fates) = apply(&mut sender, at(51), &report(&[(2, 4), (0, 0)]));
    assert_eq!(fates, [(4, Fate::Confirmed), (1, Fate::Lost)]);
    assert_eq!(outcome.lost, 1);
    assert_eq!((sender.window(), sender.in_flight()), (5, 5));
    assert_eq!(sender.stats().lost, 1);
}

#[test]
fn a_loss_confirmed_later_is_taken_back_and_raises_the_threshold() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    apply(&mut sender, at(50), &report(&[(1, 6)]));
    let (outcome, fates) = apply(&mut sender, at(51), &report(&[(0, 7)]));
    assert_eq!(fates, [(0, Fate::ConfirmedLate), (7, Fate::Confirmed)]);
    assert_eq!((outcome.confirmed, outcome.late), (2, 1));
    let stats = sender.stats();
    assert_eq!((stats.lost, stats.spurious, stats.confirmed), (0, 1, 8));
    assert_eq!(stats.loss_threshold, 8);
    assert!(stats.loss_ratio.abs() < f64::EPSILON);

    // Six later ones are no loss any more, eight are.
    send(&mut sender, at(60), 12);
    assert_eq!(apply(&mut sender, at(90), &report(&[(11, 16), (0, 9)])).0.lost, 0);
    assert_eq!(apply(&mut sender, at(90), &report(&[(11, 18), (0, 9)])).0.lost, 1);
}

#[test]
fn a_raised_threshold_waits_no_longer_than_a_round_trip() {
    let mut sender = sender();
    sender.threshold.on_spurious(at(0), 60, Duration::ZERO);
    send(&mut sender, at(0), 1);
    apply(&mut sender, at(100), &report(&[(0, 0)]));
    send(&mut sender, at(100), 4);
    assert_eq!(apply(&mut sender, at(200), &report(&[(2, 4), (0, 0)])).0.lost, 0);
    send(&mut sender, at(199), 1);
    assert_eq!(apply(&mut sender, at(299), &report(&[(2, 5), (0, 0)])).0.lost, 0);
    send(&mut sender, at(200), 1);
    assert_eq!(apply(&mut sender, at(300), &report(&[(2, 6), (0, 0)])).0.lost, 1);
}

#[test]
fn old_and_repeated_reports_are_harmless() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    let old = report(&[(0, 1)]);
    let new = Report { ce_count: 1, ..report(&[(4, 6), (0, 2)]) };
    apply(&mut sender, at(50), &new);
    let before = (sender.window(), sender.in_flight(), sender.stats().marks);
    for report in [&old, &new, &old] {
        let (outcome, fates) = apply(&mut sender, at(60), report);
        assert_eq!((outcome, fates), (Outcome::default(), vec![]));
    }
    assert_eq!((sender.window(), sender.in_flight(), sender.stats().marks), before);
}

#[test]
fn a_report_that_cannot_be_is_refused_whole() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    let table = [
        (vec![], ReportError::Empty),
        (vec![(3, 2)], ReportError::Disordered),
        (vec![(5, 6), (4, 4)], ReportError::Disordered),
        (vec![(0, 1), (4, 5)], ReportError::Disordered),
        (vec![(5, 6), (5, 6)], ReportError::Disordered),
        (vec![(0, 0), (0, 0)], ReportError::Disordered),
        (vec![(9, 10), (0, 1)], ReportError::NeverSent { number: 10, next: 10 }),
        (vec![(0, u64::MAX)], ReportError::NeverSent { number: u64::MAX, next: 10 }),
    ];
    for (ranges, error) in table {
        let result = sender.on_report(at(1), &report(&ranges), Via::Own, 0, |_| panic!("settled"));
        assert_eq!(result, Err(error), "{ranges:?}");
    }
    assert_eq!((sender.in_flight(), sender.stats().reports), (10, 0));
}

#[test]
fn marks_halve_once_and_are_counted_by_difference() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    let (outcome, _) = apply(&mut sender, at(50), &Report { ce_count: 2, ..report(&[(0, 1)]) });
    assert_eq!((outcome.marks, sender.window()), (2, 5));
    let (outcome, _) = apply(&mut sender, at(51), &Report { ce_count: 3, ..report(&[(0, 3)]) });
    assert_eq!((outcome.marks, sender.window()), (1, 5), "of the same window of data");
    sender.ce_count = u32::MAX;
    let (outcome, _) = apply(&mut sender, at(52), &Report { ce_count: 1, ..report(&[(0, 4)]) });
    assert_eq!(outcome.marks, 2, "the counter wraps");
}

#[test]
fn a_timeout_gives_everything_up_and_backs_off() {
    let mut sender = sender();
    send(&mut sender, at(0), 8);
    assert_eq!(sender.poll_timeout(), Some(at(1000)));
    assert!(!sender.handle_timeout(at(999), |_| panic!("too early")));
    let mut fates = vec![];
    assert!(sender.handle_timeout(at(1000), |settled| fates.push((settled.number, settled.fate))));
    assert_eq!(fates, (0..8).map(|number| (number, Fate::TimedOut)).collect::<Vec<_>>());
    assert_eq!((sender.window(), sender.in_flight(), sender.poll_timeout()), (1, 0, None));
    send(&mut sender, at(1000), 1);
    assert_eq!(sender.poll_timeout(), Some(at(3000)), "the second waits twice as long");
    assert_eq!(sender.unanswered_since(), Some(at(0)));

    // The link only slept: what was given up arrives, and nothing of it makes the window grow.
    let (outcome, fates) = apply(&mut sender, at(1100), &report(&[(0, 7)]));
    assert_eq!((outcome.late, fates[7]), (8, (7, Fate::ConfirmedLate)));
    assert_eq!((sender.window(), sender.in_flight()), (1, 1));
    assert_eq!((sender.stats().lost, sender.stats().loss_threshold), (0, 3));
    assert_eq!(sender.unanswered_since(), Some(at(1000)));
    let rto = MS * 1100 + MS * 550 * 4 + MAX_REPORT_DELAY;
    assert_eq!(sender.poll_timeout(), Some(at(1100) + rto), "the back-off is over");
}

#[test]
fn the_timeout_restarts_with_every_confirmation_and_ends_with_the_last() {
    let mut sender = sender();
    send(&mut sender, at(0), 4);
    apply(&mut sender, at(100), &report(&[(0, 1)]));
    assert_eq!(sender.poll_timeout(), Some(at(100) + MS * 325));
    apply(&mut sender, at(110), &report(&[(0, 1)]));
    assert_eq!(sender.poll_timeout(), Some(at(100) + MS * 325), "nothing new");
    apply(&mut sender, at(120), &report(&[(0, 3)]));
    assert_eq!(sender.poll_timeout(), None);
}

#[test]
fn reports_alone_are_outside_the_window_and_never_time_out() {
    let mut sender = sender();
    for _ in 0..50 {
        sender.on_sent(at(0), REPORT_ONLY);
    }
    assert_eq!((sender.in_flight(), sender.room(), sender.poll_timeout()), (0, 10, None));
    assert_eq!(sender.unanswered_since(), None, "nothing asked for an answer");
    let carried = packet(sender.next_number());
    sender.on_sent(at(1), Sent { carried, ..DATA });
    assert_eq!(sender.unanswered_since(), Some(at(1)));
    let (outcome, fates) = apply(&mut sender, at(50), &report(&[(40, 50), (0, 9)]));
    assert_eq!(outcome.lost, 0, "no congestion");
    assert_eq!(fates.iter().filter(|(_, fate)| *fate == Fate::Lost).count(), 30);
    assert_eq!(sender.window(), 10);
    assert_eq!(sender.unanswered_since(), None);
}

/// A sender whose window has opened to 60 and more, and the time.
fn opened() -> (LinkSender, Instant) {
    let (mut sender, mut now) = (sender(), at(0));
    while sender.window() < 60 {
        let (first, room) = (sender.next_number(), u64::from(sender.room()));
        send(&mut sender, now, room);
        now += MS * 100;
        apply(&mut sender, now, &report(&[(first, first + room - 1)]));
    }
    (sender, now)
}

#[test]
fn an_idle_window_decays_at_the_next_datagram() {
    let (mut sender, now) = opened();
    let (window, rto) = (sender.window(), sender.rtt().rto());
    send(&mut sender, now - MS * 100 + rto * 2, 1);
    assert_eq!(sender.window(), window / 4);
    assert_eq!(sender.stats().threshold, None);
}

#[test]
fn an_outage_is_no_idleness() {
    let (mut sender, mut now) = opened();
    let (room, rto) = (sender.room(), sender.rtt().rto());
    send(&mut sender, now, room.into());
    now += rto;
    assert!(sender.handle_timeout(now, |_| {}));
    assert_eq!((sender.window(), sender.in_flight()), (1, 0));
    now += rto * 20;
    sender.on_return(now);
    assert_eq!(sender.window(), room / 2);
    send(&mut sender, now + MS, 1);
    assert_eq!(sender.window(), room / 2, "it was used until it was cut");
}

#[test]
fn a_quarter_of_the_number_space_unconfirmed_stops_the_sender() {
    let mut sender = sender();
    for _ in 0..MAX_UNCONFIRMED - 1 {
        sender.on_sent(at(0), REPORT_ONLY);
    }
    assert!(!sender.must_stop());
    sender.on_sent(at(0), REPORT_ONLY);
    assert!(sender.must_stop());
    apply(&mut sender, at(1), &report(&[(MAX_UNCONFIRMED - 1, MAX_UNCONFIRMED - 1)]));
    assert!(!sender.must_stop());
}

#[test]
fn a_new_path_starts_from_scratch_but_numbers_go_on() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    apply(&mut sender, at(50), &report(&[(0, 7)]));
    let mut fates = vec![];
    sender.on_new_path(at(60), |settled| fates.push((settled.number, settled.fate)));
    assert_eq!(fates, [(8, Fate::TimedOut), (9, Fate::TimedOut)]);
    assert_eq!((sender.window(), sender.room(), sender.next_number()), (10, 10, 10));
    assert_eq!((sender.rtt().srtt(), sender.poll_timeout()), (None, None));
    assert_eq!(sender.unanswered_since(), Some(at(0)), "the link is no less suspect");
    // What comes of the old path's now: it is confirmed, and says nothing of the new one.
    let marked = Report { ce_count: 1, ..report(&[(9, 9), (0, 7)]) };
    let (outcome, fates) = apply(&mut sender, at(70), &marked);
    assert_eq!((outcome.marks, outcome.rtt, fates), (1, None, vec![(9, Fate::ConfirmedLate)]));
    assert_eq!((sender.window(), sender.rtt().srtt()), (10, None));
    send(&mut sender, at(70), 10);
    let (outcome, _) = apply(&mut sender, at(120), &report(&[(9, 19), (0, 7)]));
    assert_eq!((outcome.lost, outcome.rtt, sender.window()), (0, Some(MS * 50), 15));
}

#[test]
fn old_losses_do_not_close_the_window_of_a_new_path() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    sender.on_new_path(at(60), |_| {});
    send(&mut sender, at(60), 10);
    let (outcome, _) = apply(&mut sender, at(160), &report(&[(10, 19)]));
    assert_eq!((outcome.lost, sender.window(), sender.stats().lost), (0, 15, 10));
    assert!(!sender.handle_timeout(at(5_000), |_| panic!("nothing is open")));
}

#[test]
fn one_congestion_at_the_edge_of_a_window_halves_once() {
    let mut sender = sender();
    send(&mut sender, at(0), 10);
    apply(&mut sender, at(50), &Report { ce_count: 1, ..report(&[(0, 4)]) });
    assert_eq!(sender.window(), 5);
    // Number 10 is the first after the reaction; the marks of this report are on those before it.
    send(&mut sender, at(51), 1);
    apply(&mut sender, at(100), &Report { ce_count: 3, ..report(&[(0, 10)]) });
    assert_eq!(sender.window(), 6);
    send(&mut sender, at(101), 1);
    apply(&mut sender, at(150), &Report { ce_count: 4, ..report(&[(0, 11)]) });
    assert_eq!(sender.window(), 3, "this one is news");
}

#[test]
fn a_link_that_is_doubted_is_suspect_until_something_that_was_sent_since_is_confirmed() {
    let mut sender = sender();
    send(&mut sender, at(0), 4);
    apply(&mut sender, at(40), &report(&[(0, 1)]));
    assert!(!sender.is_suspect(at(41)));
    assert!(sender.doubt(), "news");
    assert!(!sender.doubt(), "no news");
    assert!(sender.is_suspect(at(41)));
    apply(&mut sender, at(45), &report(&[(0, 3)]));
    assert!(sender.is_suspect(at(45)), "sent before it went");
    send(&mut sender, at(50), 1);
    apply(&mut sender, at(90), &report(&[(0, 4)]));
    assert!(!sender.is_suspect(at(90)));
    assert!(sender.doubt(), "it may go again");
}

#[test]
fn an_answer_is_overdue_from_the_very_moment_at_which_it_is_looked_for() {
    let mut sender = sender();
    send(&mut sender, at(0), 1);
    apply(&mut sender, at(40), &report(&[(0, 0)]));
    send(&mut sender, at(100), 1);
    let due = at(100) + sender.rtt().patience().unwrap();
    assert!(!sender.is_suspect(due - MS) && sender.is_suspect(due));
}
