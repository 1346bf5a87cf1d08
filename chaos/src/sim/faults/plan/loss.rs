//! Fault plan: the loss of all replicas.

use std::ops::Range;

use rand::Rng as _;

use crate::sim::faults::fault::{Fault, NodeRef, ScheduledFault};
use crate::sim::faults::plan::Shape;
use crate::sim::random_streams::{StreamOwner, draws};

/// First number of the faults that lose all replicas: other faults have lower numbers.
const FIRST_LOSS: u32 = 900_000;
/// Minimum fault phase for the loss of all replicas, and time from the backup to the loss, in milliseconds.
const LOSS_FAULTS_MS_MIN: u64 = 20_000;
const LOST_AFTER_MS: Range<u64> = 500..12_000;
/// Time from the first loss to the loss of the next group, which may have led for a while, or not at all.
const LOST_AGAIN_AFTER_MS: Range<u64> = 3_000..15_000;
/// Time between the isolation of hosts and the loss.
const CUT_BEFORE_MS: Range<u64> = 0..600;
/// Additional users of such a world: jobs that are queued in the backup may have started since.
pub(super) const USERS_MORE: u32 = 3;

/// Number of losses of all replicas: one in a quarter of the worlds; in half of those the restored group is
/// lost as well, and the next one is restored from the same backup.
pub(in crate::sim) fn losses(seed: u64) -> u32 {
    let mut random = draws(seed, StreamOwner::Loss, 0, 0);
    let is_lost = random.random_bool(0.25);
    let again = random.random_bool(0.5);
    u32::from(is_lost) + u32::from(is_lost && again)
}

/// A backup, and the loss of all replicas a while later, just after some hosts were isolated: they learn of
/// the new group late, or never. Empty if there is no time for it.
pub(super) fn draw_loss(seed: u64, shape: &Shape, faults_s: u64) -> Vec<ScheduledFault> {
    let faults_ms = faults_s * 1_000;
    let losses = losses(seed);
    if losses == 0 || faults_ms < LOSS_FAULTS_MS_MIN {
        return Vec::new();
    }
    let mut random = draws(seed, StreamOwner::Loss, 0, 1);
    let backup_ms = random.random_range(faults_ms / 8..faults_ms / 2);
    let lost_ms = backup_ms + random.random_range(LOST_AFTER_MS).min(faults_ms / 3);
    let mut faults = vec![(backup_ms, Fault::BackUp), (lost_ms, Fault::LoseReplicas)];
    for host in 0..u32::try_from(shape.hosts.len()).unwrap_or(u32::MAX) {
        let before_ms = random.random_range(CUT_BEFORE_MS);
        if random.random_bool(0.5) {
            let cut = Fault::Isolate(NodeRef::Agent(host));
            faults.push((lost_ms.saturating_sub(before_ms), cut));
        }
    }
    for _ in 1..losses {
        let again_ms = lost_ms + random.random_range(LOST_AGAIN_AFTER_MS).min(faults_ms / 3);
        faults.push((again_ms, Fault::LoseReplicas));
    }
    let scheduled = |(number, (at_ms, fault))| ScheduledFault {
        number,
        at_ms,
        fault,
    };
    (FIRST_LOSS..).zip(faults).map(scheduled).collect()
}
