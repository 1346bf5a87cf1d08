//! Why a job waits, in a line.

use muster_core::plan::Blocker;
use muster_core::time::TimeMs;

/// The planner's reason for people; instants are told as seconds after `now`.
pub(super) fn describe(blocker: &Blocker, now: TimeMs) -> String {
    match blocker {
        Blocker::BackOff { until } => {
            format!(
                "its back-off ends in {} s",
                until.since(now).div_ceil(1_000)
            )
        }
        Blocker::Cancelling => "it is being cancelled".to_owned(),
        Blocker::NoSuchHost { need } => format!("no host could ever hold {need}"),
        Blocker::ExceedsCluster {
            need_gpus,
            have_gpus,
        } => format!("it needs {need_gpus} GPUs and the cluster has {have_gpus} that it may use"),
        Blocker::Resources {
            need_gpus,
            free_gpus,
            fits_tasks,
            need_tasks,
        } => format!(
            "{fits_tasks} of its {need_tasks} tasks find room; it needs {need_gpus} GPUs, {free_gpus} are free"
        ),
        Blocker::Limit(limit) => limit.to_string(),
        Blocker::Reserved {
            victims: 0,
            expected_at,
        } => match expected_at {
            Some(at) => format!(
                "room is reserved for it, expected in {} s",
                at.since(now).div_ceil(1_000)
            ),
            None => "room is reserved for it".to_owned(),
        },
        Blocker::Reserved { victims, .. } => format!("{victims} attempts are stopped for it"),
        Blocker::Moving { moves, .. } => {
            format!("{moves} units are moved to make room for it")
        }
        Blocker::Behind { ahead } => format!("job {ahead} is ahead of it in its queue"),
    }
}
