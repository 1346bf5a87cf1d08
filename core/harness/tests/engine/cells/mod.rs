//! Tests of virtual clusters: permitted bindings, choice of cells, effects of changes.

mod checks;
mod safety;
mod serve;
mod setup;
mod victims;
