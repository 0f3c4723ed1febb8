//! The numbers of each kind, and where they come from.
//!
//! "Recordings" are public ones in bins of one second; the figures are ours, drawn from them: median
//! (geometric mean of the seconds with at least 0.1 Mbit/s), spread (deviation of their logarithm),
//! coherence (from the autocorrelation after 1 to 10 s), interruptions (runs of seconds below
//! 0.1 Mbit/s). Where several recordings are named, the geometric mean of their medians and the arithmetic
//! mean of their spreads hold, unless another is said.
//!
//! | name | source |
//! | --- | --- |
//! | mahimahi | github.com/ravinet/mahimahi, `traces`, made by Saturator (Winstein et al., NSDI 2013) |
//! | NYC | github.com/Soheil-ab/Cellular-Traces-NYC (Abbasloo et al., "Classic Meets Modern", SIGCOMM 2020) |
//! | SBU | github.com/yguruprasad/Multipath-Wireless-Link-Traces (CNERT 2023): WLAN and cellular of one walk |
//! | LEO | github.com/Starlink-Project/Satellite-vs-Cellular (Hu et al., CoNEXT 2023): windows of 120 s of one drive, chosen for much variation |
//! | Osnabrück | github.com/sys-uos/Starlink-on-the-Road (TMA 2024) |
//! | 5G | github.com/uccmisl/5Gdataset (Raca et al., MMSys 2020) |
//! | Norway | Simula's HSDPA logs (Riiser et al., MMSys 2013) |

use std::time::Duration;

use super::Kind;
use super::fading::FadingModel;
use super::interruption::Interruption;
use super::interval::IntervalModel;

/// What a kind is like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Model {
    /// Median rate downstream at IP level while nothing interrupts, Mbit/s.
    pub median_mbit: f64,
    /// Never more than this downstream, Mbit/s.
    pub ceiling_mbit: f64,
    /// Rates upstream as a share of those downstream.
    pub uplink: f64,
    /// How the rate varies about its median.
    pub fading: FadingModel,
    /// What takes it from time to time.
    pub interruptions: &'static [Interruption],
    /// Whether satellites change.
    pub intervals: Option<IntervalModel>,
}

/// A handover between cells: nothing passes for 50 ms in the mean (3GPP TR 36.881 counts 49.5 ms for
/// LTE). Every 30 s is a choice: cells of 400 m at 50 km/h.
const HANDOVER: Interruption = Interruption { every_s: 30.0, for_s: 0.05, leaves: 0.0 };

/// Mahimahi's five LTE recordings that have both directions or one of each by the same carrier: the
/// medians upstream are 1.26, 0.75, 0.51 and 0.28 of those downstream; their geometric mean.
const LTE_UPLINK: f64 = 0.61;

impl Kind {
    /// Its numbers.
    #[must_use]
    pub const fn model(self) -> Model {
        match self {
            // NYC home1 and timessq: medians 7.4 and 4.9, spreads 0.26 and 0.64 (geometric mean 0.41; the
            // other would exceed both in the fastest seconds), largest second 14.9.
            // After 2 s their autocorrelation is 0.26 and 0.73: 1.5 and 6 s. No outage in 240 s.
            Self::LteStill => Model {
                median_mbit: 6.0,
                ceiling_mbit: 15.0,
                uplink: LTE_UPLINK,
                fading: FadingModel { spread: 0.41, coherence_s: 3.0 },
                interruptions: &[],
                intervals: None,
            },
            // Mahimahi ATT-LTE-driving, ATT-LTE-driving-2016, TMobile-LTE-driving, NYC taxi1: medians 3.3,
            // 3.2, 12.8 and 16.7, spreads 0.74, 0.93, 0.54 and 0.52, largest second 31.4; after 2 s three
            // have an autocorrelation of 0.43 to 0.51. No outage of a second in 500 s.
            Self::LteDriving => Model {
                median_mbit: 6.9,
                ceiling_mbit: 31.0,
                uplink: LTE_UPLINK,
                fading: FadingModel { spread: 0.68, coherence_s: 3.0 },
                interruptions: &[HANDOVER],
                intervals: None,
            },
            // The nine cellular recordings of LEO (1,080 s). Those that stay above 20 Mbit/s for 95 % of
            // the time have medians of 109 to 214 and spreads of 0.07 to 0.85; largest second 322; their
            // autocorrelation after 5 s is 0.26 to 0.71. Below 20 Mbit/s: 188 s in 73 runs; nothing:
            // 6 times a second. A second of 5G (driving) has 262 at most and 6 outages in 120 s of an
            // application's download. Uplink: a choice (time division gives it few slots).
            Self::FiveG => Model {
                median_mbit: 140.0,
                ceiling_mbit: 320.0,
                uplink: 0.1,
                fading: FadingModel { spread: 0.5, coherence_s: 5.0 },
                interruptions: &[
                    HANDOVER,
                    Interruption { every_s: 12.2, for_s: 2.6, leaves: 0.07 },
                    Interruption { every_s: 180.0, for_s: 1.0, leaves: 0.0 },
                ],
                intervals: None,
            },
            // SBU WLAN of walks 7_2, 8_5, 11_2, 12_2, 13_1 (500 s): medians 14 to 49, mean 21; spreads 0.38
            // to 1.47, mean 0.95; largest second 92; autocorrelation after 5 s 0.26 to 0.45. Out of range
            // 112 s in 10 runs. Uplink: a choice (both ends use the same channel).
            Self::WlanWalking => Model {
                median_mbit: 21.0,
                ceiling_mbit: 92.0,
                uplink: 1.0,
                fading: FadingModel { spread: 0.95, coherence_s: 5.0 },
                interruptions: &[Interruption { every_s: 38.8, for_s: 11.2, leaves: 0.0 }],
                intervals: None,
            },
            // LEO's three and Osnabrück's: medians 58, 172, 177 and 256, mean 146; spreads 0.56 to 1.09;
            // largest second 435; Osnabrück's autocorrelation after 2 s is 0.48, LEO's below. Upstream
            // 16.2 in Osnabrück. Obstructed: not once in 120 s in Osnabrück, 15 times 2.2 s in 120 s in
            // LEO's most broken one; every 30 s lies between. Spread of intervals and within them: a
            // choice that gives the spread in all. Intervals with another satellite, gaps and delays: a
            // choice, which keeps the round trip of 26 ms below the 55 that one in a hundred exceeds
            // (starlink.com, network update of June 2025).
            Self::Starlink => Model {
                median_mbit: 146.0,
                ceiling_mbit: 435.0,
                uplink: 0.063,
                fading: FadingModel { spread: 0.5, coherence_s: 1.5 },
                interruptions: &[Interruption { every_s: 30.0, for_s: 2.2, leaves: 0.0 }],
                intervals: Some(IntervalModel {
                    length: Duration::from_secs(15),
                    spread: 0.4,
                    extra_delay: Duration::from_millis(10),
                    handovers: 0.8,
                    longest_gap: Duration::from_millis(300),
                }),
            },
            // Norway bus1 and train1, mahimahi TMobile-UMTS: medians 2.6, 1.0 and 1.0, spreads 0.61, 0.50
            // and 1.07, largest second 7.0; autocorrelation after 5 s 0.73, 0.51 and 0.13. Outages 25 s in
            // 6 runs of 440 s, all in the last. Upstream 0.79 to 1.04 in the last.
            Self::Hspa => Model {
                median_mbit: 1.4,
                ceiling_mbit: 7.0,
                uplink: 0.76,
                fading: FadingModel { spread: 0.73, coherence_s: 8.0 },
                interruptions: &[Interruption { every_s: 69.0, for_s: 4.2, leaves: 0.0 }],
                intervals: None,
            },
            // No recording: what BATCP's authors say of theirs (Symmetry 2017, 9, 167, section 4.1): uploads of 5 and
            // 10 MB at 39.0 to 44.4 kB/s, "unstable", "high burst packet transferring". The median is such that one
            // TCP upload through the tunnel has that; spread, coherence and the pauses are a choice that gives runs the
            // same distance from each other. Rates upstream and downstream are the same: the paper has uploads only.
            Self::HspaModem => Model {
                median_mbit: 0.4,
                ceiling_mbit: 2.0,
                uplink: 1.0,
                fading: FadingModel { spread: 0.5, coherence_s: 2.0 },
                interruptions: &[Interruption { every_s: 20.0, for_s: 0.5, leaves: 0.0 }],
                intervals: None,
            },
        }
    }
}
