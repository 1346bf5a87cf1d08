//! Chaos runs and trials.

mod chaos;
pub(crate) mod chaos_target;
pub(crate) mod trials;
