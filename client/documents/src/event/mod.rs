//! Events: the facts of each kind, and their text.

mod cluster;
mod job;
mod text;

use std::collections::BTreeMap;

use muster_proto::v1;
use muster_proto::v1::event::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cluster::{
    AccessChanged, BlockPlan, BlockPlanned, Blocked, GpuHealthChanged, HealthChanged, HealthNoted,
    HostCellsDoubted, HostHealthChanged, HostRegistered, JobDefaultsSet, LeadershipStarted,
    LevelsChanged, Membership, QueueSet, QueuesConfigured, ReplicaChanged, TopologySet, Unblocked,
};
pub use job::{
    AllocationBasisChanged, AttemptEnded, AttemptPlaced, AttemptRunning, AttemptStopping,
    CheckpointCommitted, CheckpointDamaged, CheckpointsForgotten, ClaimDropped, GangReleased,
    JobCancelRequested, JobEligible, JobFinished, JobPruned, JobResumed, JobSubmitted,
    JobSuspended, MemberLeaving, MemberSwapped, MemberVacated, SuspendMode, TaskExited, TaskLost,
    TaskPrepared, TaskStarted, UnitClaimed, UnitRequeued, UnitRetried, UnitsMoved,
};

use crate::instant::Instant;

/// Host names by id: events contain ids.
pub type HostNames = BTreeMap<u32, String>;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// All events of one revision happened together.
    pub revision: u64,
    pub time: Instant,
    pub job: Option<u64>,
    /// For display.
    pub text: String,
    #[serde(flatten)]
    pub fact: Fact,
}

impl Event {
    /// An event of a revision; `None` for a kind that this version does not know.
    #[must_use]
    pub fn new(revision: u64, time_ms: u64, event: v1::Event, hosts: &HostNames) -> Option<Self> {
        let mut kind = event.kind?;
        name_hosts(&mut kind, hosts);
        let job = job_of(&kind);
        let fact = Fact::from(kind);
        Some(Self {
            revision,
            time: Instant { ms: time_ms },
            job,
            text: fact.text(hosts),
            fact,
        })
    }
}

/// Name of a host where known.
pub(crate) fn host_name(id: u32, hosts: &HostNames) -> String {
    hosts.get(&id).cloned().unwrap_or_else(|| format!("#{id}"))
}

/// Adds the names of hosts that texts need and events contain as ids.
fn name_hosts(kind: &mut Kind, hosts: &HostNames) {
    use v1::stop_reason::Kind::{DrainHostId, HostFaultId};
    match kind {
        Kind::AttemptStopping(v1::AttemptStopping { reason, .. })
        | Kind::MemberLeaving(v1::MemberLeaving { reason, .. }) => {
            if let Some(reason) = reason
                && let Some(DrainHostId(id) | HostFaultId(id)) = reason.kind
            {
                reason.host = host_name(id, hosts);
            }
        }
        Kind::AttemptEnded(v1::AttemptEnded {
            attribution: Some(attribution),
            ..
        }) => {
            let component = attribution.component.as_ref();
            attribution.host = match component.and_then(|component| component.kind.as_ref()) {
                Some(v1::component::Kind::HostId(id)) => host_name(*id, hosts),
                Some(v1::component::Kind::Nic(nic)) => host_name(nic.host_id, hosts),
                _ => String::new(),
            };
        }
        _ => {}
    }
}

/// The kinds of events, each named as its message, with its name in documents.
macro_rules! facts {
    (
        of jobs { $($of_job:ident $of_job_text:tt,)* }
        of the cluster { $($other:ident $other_text:tt,)* }
    ) => {
        /// What happened: the kind, and the facts of the kind.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", content = "detail")]
        pub enum Fact {
            $(
                #[serde(rename = $of_job_text)]
                $of_job($of_job),
            )*
            $(
                #[serde(rename = $other_text)]
                $other($other),
            )*
        }

        impl Fact {
            /// The kind, as in documents.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$of_job(_) => $of_job_text,)*
                    $(Self::$other(_) => $other_text,)*
                }
            }
        }

        impl From<Kind> for Fact {
            fn from(kind: Kind) -> Self {
                match kind {
                    $(Kind::$of_job(event) => Self::$of_job(event.into()),)*
                    $(Kind::$other(event) => Self::$other(event.into()),)*
                }
            }
        }

        /// The job of an event.
        fn job_of(kind: &Kind) -> Option<u64> {
            match kind {
                $(Kind::$of_job(event) => Some(event.job_id),)*
                $(Kind::$other(_) => None,)*
            }
        }
    };
}

facts! {
    of jobs {
        JobSubmitted "job_submitted",
        JobCancelRequested "job_cancel_requested",
        JobSuspended "job_suspended",
        JobResumed "job_resumed",
        JobFinished "job_finished",
        JobEligible "job_eligible",
        JobPruned "job_pruned",
        AttemptPlaced "attempt_placed",
        GangReleased "gang_released",
        AttemptRunning "attempt_running",
        AttemptStopping "attempt_stopping",
        AttemptEnded "attempt_ended",
        CheckpointCommitted "checkpoint_committed",
        CheckpointDamaged "checkpoint_damaged",
        CheckpointsForgotten "checkpoints_forgotten",
        UnitRequeued "unit_requeued",
        UnitRetried "unit_retried",
        MemberLeaving "member_leaving",
        MemberVacated "member_vacated",
        MemberSwapped "member_swapped",
        UnitClaimed "unit_claimed",
        UnitsMoved "units_moved",
        ClaimDropped "claim_dropped",
        AllocationBasisChanged "allocation_basis_changed",
        TaskPrepared "task_prepared",
        TaskStarted "task_started",
        TaskExited "task_exited",
        TaskLost "task_lost",
    }
    of the cluster {
        LeadershipStarted "leadership_started",
        ReplicaChanged "replica_changed",
        HostRegistered "host_registered",
        HostHealthChanged "host_health_changed",
        GpuHealthChanged "gpu_health_changed",
        HealthChanged "health_changed",
        HealthNoted "health_noted",
        Blocked "blocked",
        Unblocked "unblocked",
        BlockPlanned "block_planned",
        JobDefaultsSet "job_defaults_set",
        QueueSet "queue_set",
        QueuesConfigured "queues_configured",
        TopologySet "topology_set",
        LevelsChanged "levels_changed",
        HostCellsDoubted "host_cells_doubted",
        AccessChanged "access_changed",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn event(kind: Kind) -> Event {
        let hosts = BTreeMap::from([(7, "node07".to_owned())]);
        Event::new(3, 1_000, v1::Event { kind: Some(kind) }, &hosts).unwrap()
    }

    #[test]
    fn an_event_document_has_kind_text_and_details_and_is_read_back() {
        let event = event(Kind::TaskStarted(v1::TaskStarted {
            job_id: 2,
            unit: 1,
            epoch: 20,
            task: 4,
            host_id: 7,
        }));
        let document = serde_json::to_value(&event).unwrap();
        let expected = serde_json::json!({
            "revision": 3, "time": "1970-01-01T00:00:01.000Z", "kind": "task_started", "job": 2,
            "text": "task 4 on node07", "detail": {"unit": 1, "epoch": 20, "task": 4, "host_id": 7},
        });
        assert_eq!(document, expected);
        assert_eq!(serde_json::from_value::<Event>(document).unwrap(), event);
    }

    #[test]
    fn texts_name_the_hosts_of_reasons() {
        let reason = v1::StopReason {
            kind: Some(v1::stop_reason::Kind::DrainHostId(7)),
            ..v1::StopReason::default()
        };
        let stopping = event(Kind::AttemptStopping(v1::AttemptStopping {
            reason: Some(reason),
            ..v1::AttemptStopping::default()
        }));
        assert_eq!(stopping.text, "unit 0: host node07 is drained");
    }

    #[test]
    fn a_cancelled_plan_has_no_further_facts() {
        let cancelled = event(Kind::BlockPlanned(v1::BlockPlanned {
            author: "ada".to_owned(),
            ..v1::BlockPlanned::default()
        }));
        let document = serde_json::to_value(&cancelled).unwrap();
        let expected =
            serde_json::json!({"target": "something", "author": "ada", "planned_at": null});
        assert_eq!(document["detail"], expected);
    }
}
