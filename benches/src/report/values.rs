//! The measured values: what they are called in tables, and with how many decimals.

use crate::results::{Spread, Traffic};

/// One value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// In files of results.
    pub name: &'static str,
    /// In tables, with its unit.
    pub heading: &'static str,
    /// Digits after the point.
    pub decimals: usize,
}

/// The share of the limit, by which modes are compared and curves drawn.
pub const LIMIT: Value = Value { name: "percent_of_limit", heading: "% of limit", decimals: 1 };
/// The share of the sum of the links' rates, by which peers are compared.
pub const SUM: Value = Value { name: "percent_of_sum", heading: "% of sum", decimals: 1 };
/// What the application got.
pub const GOODPUT: Value = Value { name: "goodput_mbit", heading: "Mbit/s", decimals: 2 };

/// The share of what the links carried one by one, by which peers' transfers are compared.
pub const SINGLES: Value =
    Value { name: "percent_of_singles", heading: "% of the single links", decimals: 1 };

/// All others, in the order of tables.
pub const MORE: [Value; 48] = [
    SINGLES,
    Value { name: "second_half_percent_of_limit", heading: "second half, % of limit", decimals: 1 },
    Value { name: "reached_after_s", heading: "90 % of limit after, s", decimals: 1 },
    Value { name: "link_wait_p50_ms", heading: "queue p50, ms", decimals: 1 },
    Value { name: "link_wait_p95_ms", heading: "queue p95, ms", decimals: 1 },
    Value { name: "link_dropped_percent", heading: "dropped on the link, %", decimals: 2 },
    Value { name: "others_share_percent", heading: "others' share, %", decimals: 1 },
    Value { name: "link_back_percent", heading: "used of the way back, %", decimals: 2 },
    Value { name: "completion_s", heading: "completed after, s", decimals: 1 },
    Value { name: "half_rate_after_s", heading: "half rate after return, s", decimals: 2 },
    Value { name: "outage_stall_ms", heading: "stall from the outage on, ms", decimals: 0 },
    Value { name: "fetch_p50_ms", heading: "fetch p50, ms", decimals: 0 },
    Value { name: "fetch_p95_ms", heading: "fetch p95, ms", decimals: 0 },
    Value { name: "fetch_p50_of_direct", heading: "p50, of direct", decimals: 2 },
    Value { name: "fetch_p95_of_direct", heading: "p95, of direct", decimals: 2 },
    Value { name: "call_down_added_p50_ms", heading: "added down p50, ms", decimals: 1 },
    Value { name: "call_down_added_p95_ms", heading: "added down p95, ms", decimals: 1 },
    Value { name: "call_up_added_p50_ms", heading: "added up p50, ms", decimals: 1 },
    Value { name: "call_up_added_p95_ms", heading: "added up p95, ms", decimals: 1 },
    Value { name: "call_lost_packets", heading: "packets lost", decimals: 0 },
    Value { name: "call_doubled_packets", heading: "packets doubled", decimals: 0 },
    Value { name: "stall_tcp_p50_ms", heading: "TCP still p50, ms", decimals: 0 },
    Value { name: "stall_tcp_p90_ms", heading: "TCP still p90, ms", decimals: 0 },
    Value { name: "stall_tcp_p99_ms", heading: "TCP still p99, ms", decimals: 0 },
    Value { name: "stall_tcp_max_ms", heading: "TCP still, longest, ms", decimals: 0 },
    Value { name: "stall_down_p50_ms", heading: "call down still p50, ms", decimals: 0 },
    Value { name: "stall_down_p90_ms", heading: "call down still p90, ms", decimals: 0 },
    Value { name: "stall_down_p99_ms", heading: "call down still p99, ms", decimals: 0 },
    Value { name: "stall_down_max_ms", heading: "call down still, longest, ms", decimals: 0 },
    Value { name: "stall_up_p50_ms", heading: "call up still p50, ms", decimals: 0 },
    Value { name: "stall_up_p90_ms", heading: "call up still p90, ms", decimals: 0 },
    Value { name: "stall_up_p99_ms", heading: "call up still p99, ms", decimals: 0 },
    Value { name: "stall_up_max_ms", heading: "call up still, longest, ms", decimals: 0 },
    Value { name: "in_order_percent", heading: "in order, %", decimals: 2 },
    Value { name: "coefficient_of_variation", heading: "variation of seconds", decimals: 3 },
    Value {
        name: "lowest_second_percent_of_mean",
        heading: "lowest second, % of mean",
        decimals: 1,
    },
    Value { name: "converged_after_s", heading: "converged after, s", decimals: 0 },
    Value { name: "longest_dip_s", heading: "longest dip, s", decimals: 0 },
    Value { name: "delay_p50_ms", heading: "delay p50, ms", decimals: 1 },
    Value { name: "delay_p95_ms", heading: "delay p95, ms", decimals: 1 },
    Value { name: "delay_p99_ms", heading: "delay p99, ms", decimals: 1 },
    Value { name: "ping_p50_ms", heading: "ping p50, ms", decimals: 1 },
    Value { name: "ping_p99_ms", heading: "ping p99, ms", decimals: 1 },
    Value { name: "ping_lost_percent", heading: "ping lost, %", decimals: 2 },
    Value { name: "wait_p99_ms", heading: "wait p99, ms", decimals: 1 },
    Value { name: "late_percent", heading: "late, %", decimals: 2 },
    Value { name: "lost_percent", heading: "lost, %", decimals: 2 },
    Value { name: "inner_mtu", heading: "inner MTU, bytes", decimals: 0 },
];

impl Value {
    /// By its name; `None` where no table has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [LIMIT, SUM, GOODPUT].into_iter().chain(MORE).find(|value| value.name == name)
    }

    /// A figure of it.
    #[must_use]
    pub fn show(&self, figure: f64) -> String {
        number(figure, self.decimals)
    }

    /// The median, with the ends in brackets where there are several runs that differ.
    #[must_use]
    pub fn spread(&self, spread: Spread) -> String {
        let [low, middle, high] =
            [spread.lowest, spread.median, spread.highest].map(|figure| self.show(figure));
        if low == high { middle } else { format!("{middle} ({low} to {high})") }
    }
}

/// A figure, and never `-0.0`.
#[must_use]
pub fn number(figure: f64, decimals: usize) -> String {
    let text = format!("{figure:.decimals$}");
    let zero = text.trim_start_matches('-').chars().all(|digit| matches!(digit, '0' | '.'));
    if zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// How far apart the two modes may be in points of [`LIMIT`] before that is to be explained.
#[must_use]
pub const fn tolerance(traffic: Traffic) -> f64 {
    match traffic {
        Traffic::Udp => 5.0,
        _ => 10.0,
    }
}

/// For a heading.
#[must_use]
pub const fn title(traffic: Traffic) -> &'static str {
    match traffic {
        Traffic::Udp => "UDP",
        Traffic::TcpCubic => "TCP cubic",
        Traffic::TcpBbr => "TCP BBR",
        Traffic::TcpCubicUp => "TCP cubic, upload",
        Traffic::TcpBbrUp => "TCP BBR, upload",
        Traffic::Fetches => "Fetches",
        Traffic::Call => "Call",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_with_their_decimals_and_ends() {
        assert_eq!(LIMIT.show(98.25), "98.2");
        assert_eq!(number(-0.04, 1), "0.0");
        assert_eq!(number(-0.06, 1), "-0.1");
        let spread = |lowest, highest| Spread { median: 98.0, lowest, highest };
        assert_eq!(LIMIT.spread(spread(97.0, 99.5)), "98.0 (97.0 to 99.5)");
        assert_eq!(LIMIT.spread(spread(98.0, 98.01)), "98.0");
        assert_eq!(Value::named("p51"), None);
    }
}
