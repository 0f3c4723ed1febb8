use super::*;
use crate::time::Duration;

#[test]
fn a_paced_link_opens_for_as_many_as_would_have_gone_one_by_one() {
    let now = Instant::from_millis(1000);
    for (mbit, window, expected) in [(1, 64, 2), (10, 64, 12), (100, 64, 64), (1000, 9, 9)] {
        let rate = Bitrate::from_mbps(mbit);
        let mut outlook = Outlook { room: window, pace: Some(rate), pacer: Pacer::default() };
        let mut went = 0;
        while outlook.room > 0 {
            outlook.on_sent(now, 220, 1);
            went += 1;
        }
        // One by one, with 2 ms of the rate ahead.
        let mut pacer = Pacer::default();
        let mut alone = 0;
        while alone < window && pacer.is_open(now, rate) {
            pacer.on_sent(now, 220, rate);
            alone += 1;
        }
        assert_eq!((went, alone), (expected, expected), "{mbit} Mbit/s");
    }
    let mut open = Outlook { room: 3, pace: None, pacer: Pacer::default() };
    open.on_sent(now + Duration::from_secs(1), 220, 1);
    assert_eq!(open.room, 2);
}
