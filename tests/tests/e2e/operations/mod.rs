//! Work of administrators and newcomers, metrics, traces.

mod day;
mod debugging;
mod newcomer;
mod observability;
mod tracing;
