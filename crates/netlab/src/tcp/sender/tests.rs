use super::*;
use crate::tcp::clock;

const MSS: u64 = 1000;
const RTT: Duration = Duration::from_millis(100);

/// A sender with a full first window under way, sent at this moment.
fn first_flight() -> (Sender, Instant) {
    let now = Instant::from_millis(1000);
    let mut sender = Sender::new(MSS, 1 << 20);
    sender.shook_hands(now, RTT);
    sender.write(now, 1000 * MSS);
    assert_eq!(drain(&mut sender), (0..10).collect::<Vec<_>>());
    (sender, now)
}

/// The segments that are sent.
fn drain(sender: &mut Sender) -> Vec<u64> {
    std::iter::from_fn(|| sender.poll_transmit()).map(|bytes| bytes.start / MSS).collect()
}

/// An acknowledgement of the segments before `number`, with ranges of segments; the peer saw our clock
/// as it was at `echo`.
fn ack(number: u64, echo: Instant, sacks: &[(u64, u64)]) -> Ack {
    let sacks = sacks.iter().map(|(start, end)| start * MSS..end * MSS).collect();
    Ack { number: number * MSS, window: 1 << 20, echo: clock(echo), sacks, with_data: false }
}

#[test]
fn each_segment_that_comes_lets_two_go_in_slow_start() {
    let (mut sender, sent) = first_flight();
    sender.handle_ack(sent + RTT, &ack(2, sent, &[]));
    assert_eq!(drain(&mut sender), [10, 11, 12, 13]);
    assert_eq!(sender.cwnd(), 12);
}

#[test]
fn three_segments_beyond_a_hole_bring_its_repetition_and_a_smaller_window() {
    let (mut sender, sent) = first_flight();
    let now = sent + RTT;
    for end in [2, 3] {
        sender.handle_ack(now, &ack(0, sent, &[(1, end)]));
        assert!(!drain(&mut sender).contains(&0));
    }
    sender.handle_ack(now, &ack(0, sent, &[(1, 4)]));
    assert_eq!(drain(&mut sender)[0], 0);
    assert_eq!((sender.state, sender.ssthresh()), (State::Recovery, Some(7)));
    assert_eq!(sender.stats().recoveries, 1);
}

#[test]
fn what_is_overtaken_by_one_segment_is_waited_for_a_quarter_of_the_round_trip() {
    let (mut sender, sent) = first_flight();
    let now = sent + RTT;
    sender.handle_ack(now, &ack(0, sent, &[(1, 2)]));
    let due = sender.poll_timeout().unwrap();
    assert!((25..=32).contains(&due.since(now).as_millis()), "{due:?}");
    drain(&mut sender);
    sender.handle_timeout(due);
    assert_eq!(drain(&mut sender), [0]);
    assert_eq!(sender.state, State::Recovery);
}

#[test]
fn a_repetition_that_comes_twice_is_taken_back_and_widens_the_tolerance() {
    let (mut sender, sent) = first_flight();
    let now = sent + RTT;
    sender.handle_ack(now, &ack(0, sent, &[(1, 4)]));
    drain(&mut sender);
    let window = sender.prior_cwnd;
    // The first transmission fills the hole late: reordering. Then the repetition comes.
    sender.handle_ack(now + RTT / 20, &ack(4, sent, &[]));
    assert_eq!((sender.state, sender.cwnd() >= window), (State::Open, true));
    let mut again = sender.clone();
    again.handle_ack(now + RTT, &ack(4, now, &[(0, 1)]));
    assert_eq!(again.stats().needless, 1);
    assert!(again.tolerance() > sender.tolerance() || again.rack.duplicate_seen);
}

#[test]
fn a_timeout_sends_the_first_segment_and_waits_twice_as_long() {
    let (mut sender, sent) = first_flight();
    // The probe first, then the timeout.
    let probe = sender.poll_timeout().unwrap();
    assert!((2 * RTT..4 * RTT).contains(&probe.since(sent)));
    sender.handle_timeout(probe);
    assert_eq!(drain(&mut sender), [10]);
    let mut before = probe;
    let mut waits = Vec::new();
    for _ in 0..4 {
        let due = sender.poll_timeout().unwrap();
        waits.push(due.since(before));
        before = due;
        sender.handle_timeout(due);
        assert_eq!(drain(&mut sender), [0]);
    }
    assert_eq!((sender.stats().timeouts, sender.cwnd()), (4, 1));
    assert!(waits[1..].windows(2).all(|pair| pair[1] >= 2 * pair[0] - Duration::from_millis(4)));
}

#[test]
fn a_timeout_whose_first_transmissions_come_is_needless() {
    let (mut sender, sent) = first_flight();
    while sender.stats().timeouts == 0 {
        let due = sender.poll_timeout().unwrap();
        sender.handle_timeout(due);
    }
    drain(&mut sender);
    let now = sent + 6 * RTT;
    // The peer's echo is of the time before the repetition.
    sender.handle_ack(now, &ack(1, sent, &[]));
    assert_eq!((sender.state, sender.stats().undone), (State::Open, 1));
    assert!(sender.cwnd() >= INITIAL_WINDOW);
}

#[test]
fn nothing_is_sent_beyond_the_peers_window_or_what_there_is() {
    let now = Instant::from_millis(1000);
    let mut sender = Sender::new(MSS, 3 * MSS + 1);
    sender.shook_hands(now, RTT);
    sender.write(now, 100 * MSS);
    assert_eq!(drain(&mut sender), [0, 1, 2]);
    let mut short = Sender::new(MSS, 1 << 20);
    short.shook_hands(now, RTT);
    short.write(now, MSS + 1);
    let sent: Vec<_> = std::iter::from_fn(|| short.poll_transmit()).collect();
    assert_eq!(sent, [0..MSS, MSS..MSS + 1]);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let (mut sender, sent) = first_flight();
    sender.end = 11 * MSS;
    sender.handle_ack(sent + RTT, &ack(10, sent, &[]));
    assert_eq!(drain(&mut sender), [10]);
    sender.handle_ack(sent + 2 * RTT, &ack(11, sent + RTT, &[]));
    sender.write(sent + 2 * RTT, MSS);
    let window = sender.cwnd();
    sender.handle_ack(sent + 3 * RTT, &ack(12, sent + 2 * RTT, &[]));
    assert_eq!(sender.cwnd(), window);
}
