//! Comparison of clocks between GPUs of the same job: one slow GPU delays all others.
//!
//! Only GPUs of one host are compared. Members of a gang report the same training step at the same time
//! even if one of them is slow, since all wait for it: their progress cannot identify a straggler.

use muster_model::health::Component;
use muster_model::ids::{GpuUuid, JobId};

use crate::health::Sample;

/// The rule about low clocks.
const RULE: &str = "clock_low";
/// Its metric.
const OF_PEERS: &str = "clock_permille_of_peers";
/// Utilization from which on a GPU counts as busy (our reference: more than 90 %).
const BUSY_PERMILLE: u16 = 900;
/// Minimum number of busy peers of the same job: of two that differ, neither is the outlier.
const PEERS_MIN: usize = 2;
/// Value for a GPU as fast as its peers, or without comparison.
const AS_FAST: i64 = 1_000;

/// Readings of a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) gpu: GpuUuid,
    /// The job that holds it.
    pub(super) job: Option<JobId>,
    /// Utilization; none if the driver does not report it.
    pub(super) busy_permille: Option<u16>,
    /// Clock of its cores, in MHz.
    pub(super) clock_mhz: u32,
    /// Whether it throttles itself, which another rule covers.
    pub(super) is_slowed: bool,
}

impl ClockReading {
    fn works(&self) -> bool {
        let is_busy = self.busy_permille.is_some_and(|it| it >= BUSY_PERMILLE);
        is_busy && self.job.is_some() && !self.is_slowed
    }
}

/// Clock of each GPU relative to the median of its job's other busy GPUs. A GPU without comparison gets the
/// neutral value: without a reading the last one would stay in force.
pub(super) fn compare(gpus: &[ClockReading]) -> Vec<Sample> {
    let sample_of = |gpu: &ClockReading| {
        let permille = permille_of_peers(gpu, gpus).unwrap_or(AS_FAST);
        Sample::new(RULE, Component::Gpu(gpu.gpu), &[(OF_PEERS, permille)])
    };
    gpus.iter().map(sample_of).collect()
}

fn permille_of_peers(gpu: &ClockReading, all: &[ClockReading]) -> Option<i64> {
    let is_peer =
        |other: &&ClockReading| other.gpu != gpu.gpu && other.job == gpu.job && other.works();
    let mut clocks: Vec<u32> = all
        .iter()
        .filter(is_peer)
        .map(|other| other.clock_mhz)
        .collect();
    if !gpu.works() || clocks.len() < PEERS_MIN {
        return None;
    }
    clocks.sort_unstable();
    let median = i64::from(clocks[clocks.len() / 2]);
    (i64::from(gpu.clock_mhz) * AS_FAST).checked_div(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working(gpu: u128, job: u64, clock_mhz: u32) -> ClockReading {
        ClockReading {
            gpu: GpuUuid(gpu),
            job: Some(JobId(job)),
            busy_permille: Some(980),
            clock_mhz,
            is_slowed: false,
        }
    }

    fn permille(gpus: &[ClockReading]) -> Vec<i64> {
        let samples = compare(gpus);
        assert!(samples.iter().all(|it| it.rule == RULE));
        samples.iter().map(|it| it.metrics[0].1).collect()
    }

    #[test]
    fn a_gpu_is_compared_with_the_others_of_its_job() {
        let mut gpus: Vec<ClockReading> = (0..4).map(|gpu| working(gpu, 1, 1_980)).collect();
        gpus[2].clock_mhz = 1_386;
        assert_eq!(permille(&gpus), [1_000, 1_000, 700, 1_000]);
        // GPUs of other jobs do not count.
        gpus.push(working(4, 2, 900));
        assert_eq!(permille(&gpus), [1_000, 1_000, 700, 1_000, 1_000]);
    }

    #[test]
    fn a_gpu_that_cannot_be_compared_counts_as_fast() {
        let slow = working(0, 1, 1_000);
        let fast = [working(1, 1, 2_000), working(2, 1, 2_000)];
        let with = |slow: ClockReading| permille(&[slow, fast[0], fast[1]])[0];
        assert_eq!(with(slow), 500);
        for idle in [Some(100), None] {
            let busy_permille = idle;
            assert_eq!(
                with(ClockReading {
                    busy_permille,
                    ..slow
                }),
                1_000
            );
        }
        assert_eq!(with(ClockReading { job: None, ..slow }), 1_000);
        let is_slowed = true;
        assert_eq!(with(ClockReading { is_slowed, ..slow }), 1_000);
        assert_eq!(permille(&[slow, fast[0]]), [1_000, 1_000], "which of two?");
        let stopped = [slow, working(1, 1, 0), working(2, 1, 0)];
        assert_eq!(permille(&stopped)[0], 1_000);
    }
}
