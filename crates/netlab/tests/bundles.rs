//! Small packets that share datagrams do not change what a download gets.

#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

use std::time::Duration;

use ropewalk_netlab::compare::{CELLS, Cell};
use ropewalk_proto::config::TunnelConfig;

/// By how many percent of the sum of the rates bundles may slow a download in the mean.
const POINTS: f64 = 2.0;

/// Round-trip times of the slower link in percent of the cell's. How fast one download gets depends on the first windows
/// that its acknowledgements fill, which the least change of time decides: one run is no figure.
const RTTS: [u32; 7] = [82, 88, 94, 100, 106, 112, 118];

/// The mean in percent of the sum, with bundles and without.
fn means(cell: &Cell) -> [f64; 2] {
    let runs = RTTS.map(|percent| {
        let mut links = cell.links.to_vec();
        links[1].rtt_ms = links[1].rtt_ms * percent / 100;
        [true, false].map(|bundle| {
            let cell = Cell { links: links.clone().leak(), ..*cell };
            let set = |config: TunnelConfig| TunnelConfig { bundle, ..config };
            cell.simulate_with(Duration::from_secs(30), 0, set).percent_of_sum
        })
    });
    println!("{}, with and without: {runs:.1?}", cell.name);
    [0, 1].map(|which| runs.iter().map(|run| run[which]).sum::<f64>() / RTTS.len() as f64)
}

#[test]
fn acknowledgements_that_share_datagrams_do_not_slow_a_download_over_unequal_links() {
    // Several of them in a row on one link would change which windows grow.
    for name in ["C 5/10 + 5/100", "D 8/10 + 2/100", "D, upload"] {
        let cell = CELLS.iter().find(|cell| cell.name == name).expect("a cell of this name");
        let [with, without] = means(cell);
        println!("{name}: {with:.1} % with bundles, {without:.1} % without");
        assert!((with - without).abs() <= POINTS, "{name}: {with:.1} %, {without:.1} %");
    }
}
