//! Rules for new jobs only. The rules of `validate` hold for every job that a replica may find in its log;
//! these may become stricter from one build to the next.

use crate::limits::MEMORY_MIB_PER_TASK_MAX;
use crate::spec::{
    GANG_PARTITION_GRACE_MS, JobSpec, SINGLE_PARTITION_GRACE_MS, STOP_GRACE_MS, Violation,
};
use crate::timings::{LEASE_UNDISTURBED_MS, fence_after_ms, kill_ms};

/// Rules that a job violates at submission, in addition to [`crate::spec::validate`].
#[must_use]
pub fn check_submission(spec: &JobSpec) -> Vec<Violation> {
    let mut broken: Vec<Violation> = grace_within_lease(spec).into_iter().collect();
    let groups = spec.groups.iter().enumerate();
    broken.extend(groups.filter_map(|(position, group)| {
        let memory_mib = group.resources.memory_mib;
        (memory_mib > MEMORY_MIB_PER_TASK_MAX).then(|| Violation {
            field: format!("groups[{position}].resources.memory_mib"),
            rule: format!(
                "{memory_mib} is over the limit of {MEMORY_MIB_PER_TASK_MAX} (MEMORY_MIB_PER_TASK_MAX)"
            ),
        })
    }));
    broken
}

/// A long grace needs a long lease: a task that loses contact is asked to stop within it. Checked only if
/// both are set: a default yields to the other value (the task then gets a sixth of its lease), and so does a
/// grace of less than half of the lease.
fn grace_within_lease(spec: &JobSpec) -> Option<Violation> {
    let (grace_ms, lease_ms) = (spec.stop_grace_ms, spec.partition_grace_ms);
    let default_ms = if spec.gang {
        GANG_PARTITION_GRACE_MS
    } else {
        SINGLE_PARTITION_GRACE_MS
    };
    // `validate` reports a lease that is too short for any grace.
    let lease_end_ms = lease_ms.checked_sub(kill_ms(lease_ms))?;
    let is_chosen = grace_ms != STOP_GRACE_MS && lease_ms != default_ms;
    let is_long = lease_end_ms > 0 && grace_ms > fence_after_ms(lease_ms) / 2;
    let least_ms = grace_ms + kill_ms(u64::MAX) + LEASE_UNDISTURBED_MS;
    (is_chosen && is_long && lease_ms < least_ms).then(|| Violation {
        field: "partition_grace_ms".to_owned(),
        rule: format!(
            "{lease_ms} is too short for a stop_grace_ms of {grace_ms}: a task without contact would not get its grace \
             before its lease ends; give {least_ms} or more, or a shorter stop_grace_ms"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn broken(stop_grace_ms: u64, partition_grace_ms: u64) -> bool {
        let spec = JobSpec {
            stop_grace_ms,
            partition_grace_ms,
            ..testing::single("train", 1, 1)
        };
        !check_submission(&spec).is_empty()
    }

    #[test]
    fn no_task_asks_for_more_memory_than_any_host_has() {
        let mut spec = testing::single("train", 1, 1);
        spec.groups[0].resources.memory_mib = MEMORY_MIB_PER_TASK_MAX;
        assert!(check_submission(&spec).is_empty());
        spec.groups[0].resources.memory_mib += 1;
        let broken = check_submission(&spec);
        assert_eq!(broken[0].field, "groups[0].resources.memory_mib");
    }

    #[test]
    fn a_long_grace_needs_a_long_lease_where_both_are_chosen() {
        assert!(broken(60_000, 90_000));
        assert!(broken(60_000, 99_999));
        assert!(!broken(60_000, 100_000));
        // A default on either side.
        assert!(!broken(600_000, SINGLE_PARTITION_GRACE_MS));
        assert!(!broken(STOP_GRACE_MS, 10_000));
        // A short grace fits any lease.
        assert!(!broken(1_000, 5_000));
        assert!(!broken(0, 5_000));
    }
}
