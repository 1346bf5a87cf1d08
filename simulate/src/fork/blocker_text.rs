//! One-line reason why a job waits.

use muster_model::time::TimeMs;
use muster_planner::Blocker;

/// The planner's reason as text for users; times are given in seconds after `now`.
pub(super) fn describe(blocker: &Blocker, now: TimeMs) -> String {
    match blocker {
        Blocker::BackOff { until } => {
            format!(
                "its back-off ends in {} s",
                until.since(now).div_ceil(1_000)
            )
        }
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
        other => other.to_string(),
    }
}
