//! Members of the group: leadership, changes and progress.

pub(super) mod follower_metrics;
pub(super) mod leadership;
pub(super) mod member_change;
pub(super) mod membership;
pub(super) mod peer;
pub(super) mod removal_detection;
pub(super) mod transfer;
