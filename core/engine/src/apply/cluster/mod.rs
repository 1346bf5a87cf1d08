//! The cluster as a whole: leadership, replicas, pruning.

pub(super) mod leadership;
pub(super) mod prune;
pub(super) mod replicas;
