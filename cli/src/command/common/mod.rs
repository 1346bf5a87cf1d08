//! Parts shared by several commands.

pub(super) mod blocking;
pub(super) mod configuration;
pub(super) mod list_output;
pub(super) mod tickets;
