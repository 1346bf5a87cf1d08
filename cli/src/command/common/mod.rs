//! Parts shared by several commands.

pub(super) mod blocking;
pub(super) mod configuration;
pub(super) mod listing;
pub(super) mod tickets;
