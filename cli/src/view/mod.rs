//! Documents as text: tables, lines and pictures, one module for each kind of object.
//!
//! The documents themselves, which programs read, are those of `muster_documents`.

mod audit;
#[cfg(feature = "server")]
pub(crate) mod backup;
mod block;
pub(crate) mod event;
pub(crate) mod explanation;
mod gpu;
pub(crate) mod health;
mod host;
mod host_cells;
mod impact;
mod job;
pub(crate) mod job_detail;
mod join_token;
mod member;
mod phase;
pub(crate) mod pipeline;
pub(crate) mod queue;
pub(crate) mod queue_changes;
pub(crate) mod status;
pub(crate) mod topology_effect;
mod unit;
mod user;
#[cfg(feature = "server")]
mod what_if;

pub(crate) use impact::{BlockedSoFar, ImpactView};
#[cfg(feature = "server")]
pub(crate) use what_if::WhatIfView;
