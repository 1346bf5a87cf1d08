//! Checkers for L1 and L2: time until a new leader is elected and until lost tasks run elsewhere.
//!
//! A single fault may be slow because the machine was, so medians of several are checked. This finds kinds
//! of faults that are slow in more than half of the cases; the report shows the maxima. An event that did
//! not happen before the next fault counts as having happened then, which is over the limit.

use std::time::Duration;

use muster_raft_store::Timings;

use crate::cluster::Fault;
use crate::run::checkers::{Invariant, Violation};
use crate::run::options::{RAFT, TIMINGS, TRY_DEADLINE};
use crate::run::report::{Distribution, FaultMeasurements};
use crate::workload::jobs::PARTITION_GRACE_MS;

/// Minimum repetitions of a fault, and minimum durations per median, for a median to be checked.
const FAULTS_MIN: usize = 5;
/// Allowance for planning, starting and reporting a displaced task once its lease has expired (L2); half of
/// them find free resources at once.
const PLACED_ANEW: Duration = Duration::from_millis(3_500);
/// Allowance for recording a silence in the log.
const NOTED: Duration = Duration::from_millis(500);
/// Limit for a GPU fault (P4) until its gang is placed again.
const GANG_BACK: Duration = Duration::from_secs(5);

/// A median and its upper limit.
struct MedianLimit {
    fault: Fault,
    what: &'static str,
    measured: Distribution,
    longest: Duration,
}

impl MedianLimit {
    fn is_kept(&self) -> bool {
        u128::from(self.measured.p50_ms) <= self.longest.as_millis()
    }
}

pub(in crate::run) fn judge(figures: &[FaultMeasurements]) -> Vec<Violation> {
    let broken = figures.iter().flat_map(bounds).filter(|it| !it.is_kept());
    let found = broken.map(|it| Violation {
        invariant: Invariant::Promptness,
        text: format!(
            "{}: {} took {} ms, the median of {}; the limit is {} ms",
            it.fault.name(),
            it.what,
            it.measured.p50_ms,
            it.measured.count,
            it.longest.as_millis()
        ),
    });
    found.collect()
}

/// Number of medians checked.
pub(in crate::run) fn judged(figures: &[FaultMeasurements]) -> usize {
    figures.iter().flat_map(bounds).count()
}

fn bounds(figures: &FaultMeasurements) -> Vec<MedianLimit> {
    let fault = figures.fault;
    if figures.made < FAULTS_MIN {
        return Vec::new();
    }
    let led = election_limit(fault);
    let displaced = if fault == Fault::GpuFaulted {
        GANG_BACK
    } else {
        Duration::from_millis(TIMINGS.lost_ms.max(PARTITION_GRACE_MS)) + PLACED_ANEW
    };
    let all = [
        (
            "the longest time without an acknowledged write",
            figures.unwritable,
            led,
        ),
        ("the next placement", figures.placed_at_least, led),
        (
            "detecting the lost host",
            figures.lost,
            Some(Duration::from_millis(TIMINGS.lost_ms) + NOTED),
        ),
        (
            "restarting displaced tasks",
            figures.back_at_least,
            Some(displaced),
        ),
    ];
    let bounds = all.into_iter().filter_map(|(what, measured, longest)| {
        let measured = measured.filter(|it| it.count >= FAULTS_MIN)?;
        Some(MedianLimit {
            fault,
            what,
            measured,
            longest: longest?,
        })
    });
    bounds.collect()
}

/// Maximum time until a killed or silenced leader is replaced and users know (L1), where a majority is left
/// to elect one; `None` for all other faults.
fn election_limit(fault: Fault) -> Option<Duration> {
    let elected = Timings::from(RAFT).replaced_within();
    match fault {
        Fault::LeaderKilled | Fault::LeaderAndHostKilled | Fault::SyncFailed => Some(elected),
        // Its callers wait for the duration of one try before they try another replica.
        Fault::LeaderFrozen | Fault::LeaderCut(_) | Fault::LeaderIsolated => {
            Some(elected + TRY_DEADLINE)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(fault: Fault, durations_ms: [u64; 5]) -> FaultMeasurements {
        FaultMeasurements {
            made: durations_ms.len(),
            unwritable: Distribution::of(durations_ms.to_vec()),
            ..FaultMeasurements::none_of(fault)
        }
    }

    #[test]
    fn frequent_delays_are_found_and_a_single_one_is_not() {
        let often = figures(Fault::LeaderKilled, [400, 500, 1_600, 1_700, 1_800]);
        assert_eq!(judge(&[often]).len(), 1);
        let once = figures(Fault::LeaderKilled, [400, 500, 500, 600, 9_000]);
        assert_eq!((judge(&[once]), judged(&[once])), (Vec::new(), 1));
        // A paused leader delays its callers by one try.
        let paused = figures(Fault::LeaderFrozen, [400, 500, 1_600, 1_700, 1_800]);
        assert_eq!(judge(&[paused]), []);
        let stuck = figures(Fault::LeaderFrozen, [3_100, 3_100, 3_200, 3_300, 3_300]);
        assert_eq!(judge(&[stuck]).len(), 1);
        // There is no majority for the duration of the fault.
        let wiped = figures(Fault::DataWiped, [4_000, 4_100, 4_200, 4_300, 4_400]);
        assert_eq!(judged(&[wiped]), 0);
    }

    #[test]
    fn a_lost_host_and_what_it_ran_are_replaced_soon() {
        let spread = |ms| Distribution::of(vec![ms; FAULTS_MIN]);
        let host = |lost, back| FaultMeasurements {
            made: FAULTS_MIN,
            lost: spread(lost),
            back_at_least: spread(back),
            ..FaultMeasurements::none_of(Fault::HostKilled)
        };
        assert_eq!(judge(&[host(4_900, 7_000)]), []);
        assert_eq!(judge(&[host(6_000, 7_000)]).len(), 1);
        assert_eq!(judge(&[host(4_900, 11_000)]).len(), 1);
        let gpu = FaultMeasurements {
            made: FAULTS_MIN,
            back_at_least: spread(6_000),
            ..FaultMeasurements::none_of(Fault::GpuFaulted)
        };
        assert_eq!(judge(&[gpu]).len(), 1);
        // Few faults may displace many units, and many faults few.
        let few = [
            FaultMeasurements {
                made: FAULTS_MIN - 1,
                ..gpu
            },
            FaultMeasurements {
                back_at_least: Distribution::of(vec![60_000; FAULTS_MIN - 1]),
                ..gpu
            },
        ];
        assert_eq!(judged(&few), 0);
    }
}
