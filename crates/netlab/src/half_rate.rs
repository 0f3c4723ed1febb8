//! How soon a link that returned carries half of its rate again.

use std::time::Duration;

use ropewalk_settings::Bitrate;

/// Half the rate must have been carried for so long.
const STRETCH: Duration = Duration::from_millis(200);

/// From a link's return to the end of the first stretch of 200 ms in which it carried half of `rate` and more.
/// `carried` are bytes at IP level by time since the return, ascending.
#[must_use]
pub fn half_rate_after(carried: &[(Duration, u64)], rate: Bitrate) -> Option<Duration> {
    let half = |length: Duration| rate.as_bps() as f64 / 2.0 * length.as_secs_f64();
    carried.iter().map(|(at, _)| *at).find(|end| {
        let Some(from) = end.checked_sub(STRETCH) else { return false };
        // A stretch begins with the last sample that leaves it long enough.
        let before = carried.partition_point(|(at, _)| *at <= from);
        let last = carried.partition_point(|(at, _)| *at <= *end);
        let (Some(first), Some(last)) = (before.checked_sub(1), last.checked_sub(1)) else {
            return false;
        };
        let (first, last) = (carried[first], carried[last]);
        8.0 * (last.1 - first.1) as f64 >= half(last.0 - first.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_back_when_a_fifth_of_a_second_has_half_its_rate() {
        let ms = Duration::from_millis;
        // 8 Mbit/s are 1,000 bytes a millisecond; samples are 50 ms apart.
        let carried = |bytes: &[u64]| -> Vec<(Duration, u64)> {
            let mut sum = 0;
            let add = |bytes: &u64| {
                sum += bytes;
                sum
            };
            (0..).map(|n| ms(50 * n)).zip(bytes.iter().map(add)).collect()
        };
        let after = |bytes: &[u64]| half_rate_after(&carried(bytes), Bitrate::from_mbps(8));
        assert_eq!(after(&[0, 30_000, 30_000, 30_000, 30_000]), Some(ms(200)));
        assert_eq!(after(&[0, 0, 0, 50_000, 49_000, 1_000, 0, 0]), Some(ms(250)), "half is enough");
        assert_eq!(after(&[0, 0, 0, 49_000, 49_000, 1_000, 0, 0, 0]), None);
        assert_eq!(after(&[0, 90_000]), None, "too short");
        assert_eq!(after(&[]), None);
    }
}
