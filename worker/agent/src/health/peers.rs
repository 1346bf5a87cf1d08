//! Clocks of GPUs that work for the same job: one that runs slower than the others holds all of them up.
//!
//! Only GPUs of one host are compared. Members of a gang tell the same training step at the same time, however slow one of them is,
//! for all wait for it: what they say of their progress tells no straggler.

use muster_model::health::Component;
use muster_model::ids::{GpuUuid, JobId};

use crate::health::Sample;

/// The rule about clocks that are low.
const RULE: &str = "clock_low";
/// Its metric.
const OF_PEERS: &str = "clock_permille_of_peers";
/// What counts as working (our reference: more than 90 %).
const BUSY_PERMILLE: u16 = 900;
/// Others that must work for the same job: of two that differ, neither is the odd one.
const PEERS_MIN: usize = 2;
/// As fast as the others, or nobody can say.
const AS_FAST: i64 = 1_000;

/// What was read of a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocked {
    pub(super) gpu: GpuUuid,
    /// Whose task has it.
    pub(super) job: Option<JobId>,
    /// How busy it was; none if the driver does not say.
    pub(super) busy_permille: Option<u16>,
    /// What its cores run at, in MHz.
    pub(super) clock_mhz: u32,
    /// Whether it slows itself down, which is another rule's to judge.
    pub(super) is_slowed: bool,
}

impl Clocked {
    fn works(&self) -> bool {
        let is_busy = self.busy_permille.is_some_and(|it| it >= BUSY_PERMILLE);
        is_busy && self.job.is_some() && !self.is_slowed
    }
}

/// How fast each GPU runs by the median of the others that work for its job. One that cannot be compared is said to be as fast: a
/// reading that stopped coming would stay what it was.
pub(super) fn compare(gpus: &[Clocked]) -> Vec<Sample> {
    let told = |gpu: &Clocked| {
        let permille = permille_of_peers(gpu, gpus).unwrap_or(AS_FAST);
        Sample::new(RULE, Component::Gpu(gpu.gpu), &[(OF_PEERS, permille)])
    };
    gpus.iter().map(told).collect()
}

fn permille_of_peers(gpu: &Clocked, all: &[Clocked]) -> Option<i64> {
    let is_peer = |other: &&Clocked| other.gpu != gpu.gpu && other.job == gpu.job && other.works();
    let mut clocks: Vec<u32> = { all.iter() }
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

    fn working(gpu: u128, job: u64, clock_mhz: u32) -> Clocked {
        Clocked {
            gpu: GpuUuid(gpu),
            job: Some(JobId(job)),
            busy_permille: Some(980),
            clock_mhz,
            is_slowed: false,
        }
    }

    fn permille(gpus: &[Clocked]) -> Vec<i64> {
        let samples = compare(gpus);
        assert!(samples.iter().all(|it| it.rule == RULE));
        samples.iter().map(|it| it.metrics[0].1).collect()
    }

    #[test]
    fn the_one_that_is_slower_than_the_others_of_its_job_stands_out() {
        let mut gpus: Vec<Clocked> = (0..4).map(|gpu| working(gpu, 1, 1_980)).collect();
        gpus[2].clock_mhz = 1_386;
        assert_eq!(permille(&gpus), [1_000, 1_000, 700, 1_000]);
        // Another job's may be as slow as it likes.
        gpus.push(working(4, 2, 900));
        assert_eq!(permille(&gpus), [1_000, 1_000, 700, 1_000, 1_000]);
    }

    #[test]
    fn what_cannot_be_compared_is_as_fast() {
        let slow = working(0, 1, 1_000);
        let fast = [working(1, 1, 2_000), working(2, 1, 2_000)];
        let with = |slow: Clocked| permille(&[slow, fast[0], fast[1]])[0];
        assert_eq!(with(slow), 500);
        for idle in [Some(100), None] {
            let busy_permille = idle;
            assert_eq!(
                with(Clocked {
                    busy_permille,
                    ..slow
                }),
                1_000
            );
        }
        assert_eq!(with(Clocked { job: None, ..slow }), 1_000);
        let is_slowed = true;
        assert_eq!(with(Clocked { is_slowed, ..slow }), 1_000);
        assert_eq!(permille(&[slow, fast[0]]), [1_000, 1_000], "which of two?");
        let stopped = [slow, working(1, 1, 0), working(2, 1, 0)];
        assert_eq!(permille(&stopped)[0], 1_000);
    }
}
