//! Tests of virtual clusters: what may be bound, what is chosen, what follows from changes.

mod checks;
mod safety;
mod serve;
mod setup;
mod victims;
