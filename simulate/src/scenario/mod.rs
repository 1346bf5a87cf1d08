//! Scenarios: small text scripts that drive the real scheduling engine and print its visible state.
//!
//! A script declares hosts, cells, queues and virtual clusters, then runs steps: jobs arrive and end,
//! hardware fails, time passes, the configuration changes, the leader crashes. Every step goes through the
//! engine's own `plan` and `apply`, and every command is followed by an `audit`. `docs/scenarios.md`
//! documents the language.
//!
//! Start reading at [`Script::parse`] and [`run`].
#![forbid(unsafe_code)]

mod cuts;
mod engine;
mod picture;
mod run;
mod script;

pub use engine::{Failure, FailureAt};
pub use picture::{
    CellsPicture, ClaimPicture, GpuPicture, HostPicture, JobPicture, Picture, PlacePicture,
    QueuePicture, UnitPicture, WaitPicture,
};
pub use run::{Outcome, StepReport, run};
pub use script::{Files, NoFiles, Script, ScriptError};
