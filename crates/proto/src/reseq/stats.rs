//! What the resequencer counts.

/// Counters since the start; sizes at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets delivered straight through.
    pub in_order: u64,
    /// Packets that waited and were delivered.
    pub resequenced: u64,
    /// Packets delivered as they came, since nothing is put in order.
    pub as_they_came: u64,
    /// Packets that came after their number was skipped: delivered at once, out of order.
    pub late: u64,
    /// Of these, packets whose number was skipped because it seemed proven lost. Zero as long as links
    /// keep the order that was measured and none that may still carry a packet is taken for dead.
    pub late_after_proof: u64,
    /// Packets dropped because their number was delivered or waits already.
    pub duplicates: u64,
    /// Packets dropped because they came so late that nobody remembers whether they did before.
    pub too_old: u64,
    /// Numbers skipped because they were proven lost.
    pub skipped_by_proof: u64,
    /// Numbers skipped because the wait was over.
    pub skipped_by_deadline: u64,
    /// Numbers skipped because there was no room to wait, a jump was too far, or the sender chose another order.
    pub skipped_by_full: u64,
    /// Deadlines that passed.
    pub expiries: u64,
    /// Packets that wait now.
    pub held: usize,
    /// Their bytes.
    pub held_bytes: usize,
    /// The most packets that ever waited at once.
    pub held_peak: usize,
    /// Median wait of the packets that waited, µs (in-order packets, which wait for nothing, are not
    /// counted).
    pub wait_p50_us: u64,
    /// 99th percentile of the same, µs.
    pub wait_p99_us: u64,
}
