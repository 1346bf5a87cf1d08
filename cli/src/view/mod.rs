//! Views of the cluster's answers: one type per object, shared by tables and machine-readable output.
//!
//! The JSON form of every type here is an interface, documented in `docs/cli-json.md`.

mod audit;
#[cfg(feature = "server")]
mod backup;
mod blame;
mod block;
mod event;
mod explanation;
mod gpu;
mod health;
mod health_standing;
mod host;
mod host_cells;
mod impact;
mod job;
mod job_detail;
mod join_token;
mod ledger;
mod member;
mod pipeline;
mod queue;
mod queue_changes;
mod standing;
mod status;
mod topology_effect;
mod unit;
mod user;
#[cfg(feature = "server")]
mod what_if;
mod word;

pub(crate) use audit::AuditView;
#[cfg(feature = "server")]
pub(crate) use backup::BackupView;
pub(crate) use blame::BlameView;
pub(crate) use event::{EventView, HostNames};
pub(crate) use explanation::ExplanationView;
pub(crate) use gpu::GpuView;
pub(crate) use health::{ComponentView, RulesEffectView};
pub(crate) use host::HostView;
pub(crate) use host_cells::HostPlaceView;
pub(crate) use impact::{ImpactView, Taken};
pub(crate) use job::JobView;
pub(crate) use job_detail::JobDetailView;
pub(crate) use join_token::JoinTokenView;
pub(crate) use member::MemberView;
pub(crate) use pipeline::{PipelineDetailView, PipelineView};
pub(crate) use queue::QueueView;
pub(crate) use queue_changes::QueueChangesView;
pub(crate) use status::StatusView;
pub(crate) use topology_effect::TopologyEffectView;
pub(crate) use unit::{describe_exit, describe_stop};
pub(crate) use user::UserView;
#[cfg(feature = "server")]
pub(crate) use what_if::WhatIfView;
pub(crate) use word::{component as component_name, job_phase, phase_tone, word};
