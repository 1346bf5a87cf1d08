//! Members of the group: leadership, changes and progress.

pub(super) mod followers;
pub(super) mod inquiry;
pub(super) mod leadership;
pub(super) mod member_change;
pub(super) mod membership;
pub(super) mod peer;
pub(super) mod transfer;
