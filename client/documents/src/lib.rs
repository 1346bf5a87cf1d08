//! The JSON documents of a cluster's objects, as `docs/cli-json.md` describes them: one type for each, with its
//! conversion from the messages of the wire.
//!
//! The command line draws its tables from them. Their JSON form is an interface: `docs/cli-json-schema.json` is its
//! schema, from [`schema()`].
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "the names of fields are the interface; comments say what a name does not"
)]

#[macro_use]
mod macros;

mod attempt;
mod attribution;
mod audit;
mod backup;
mod block;
mod cluster;
mod debug;
pub mod event;
pub mod explanation;
mod gpu;
mod health;
mod host;
mod instant;
mod job;
mod list;
mod name;
mod pipeline;
mod queue;
mod schema;
mod user;
mod wire;

pub use attempt::{
    AllocationBasis, Attempt, AttemptName, Barrier, BasisKind, Checkpoint, Claim, ClaimedTask,
    Exit, Memory, PastAttempt, RestartReason, SignalSender, Task, TaskPhase, Unit, UnitPhase,
    Vacancy,
};
pub use attribution::Attribution;
pub use audit::AuditRecord;
pub use backup::{Backup, RecoveredReplica, RestoredReplica, SavedJobs, SavedMember};
pub use block::{Block, BlockImpact, BlockedJob, UnblockedTarget};
pub use cluster::{
    ChangedReplica, GpuCounts, HostCounts, JobCounts, LeaderTransfer, Member, MemberRole,
    REPLICA_SILENT_MS, Replica, ReplicaRole, Status, TriggeredSnapshot,
};
pub use debug::{CheckpointAdvice, DebugBundle, LogFilter, LogFilters, MissingPart};
pub use event::{Event, HostNames};
pub use explanation::Explanation;
pub use gpu::{Gpu, GpuFault, GpuHolder, GpuState};
pub use health::{Change, Component, HealthState, Restriction, RuleBlock, RulesEffect};
pub use host::{
    CellGroup, CellSource, Host, HostCells, HostGpuCounts, HostHealth, HostLocation, HostState,
    SilenceCause,
};
pub use instant::Instant;
pub use job::{
    ChangedJob, Job, JobDetail, JobPhase, Ledger, LogLine, Loss, PipelineName, SubmittedJob,
    UnitCounts, UserRequest,
};
pub use list::{
    AuditRecords, Changes, Components, Gpus, HostLocations, Hosts, Jobs, JoinTokens, Listed,
    Members, Pipelines, Queues, Users,
};
pub use name::component_name;
pub use pipeline::{
    CancelledPipeline, Condition, Pipeline, PipelineCounts, PipelineDependency, PipelineDetail,
    PipelineJob, SubmittedPipeline,
};
pub use queue::{
    NamedJobs, Queue, QueueChange, QueueChangeKind, QueueChanges, TopologyEffect, Usage,
    UserOverLimit, UserUsage,
};
pub use schema::schema;
pub use user::{
    Certificate, CertificateFiles, ChangedName, JoinToken, NewJoinToken, RevokedJoinToken, User,
    UserRole, UserToken,
};
