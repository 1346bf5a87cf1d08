//! The cluster: its status, its replicas, and changes of its membership.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::wire::FromWire as _;

/// Silence of a replica in milliseconds after which it does not count for the quorum: ten heartbeats by the default
/// timings.
pub const REPLICA_SILENT_MS: u64 = 1_000;

string_enum! {
    /// Role of a replica.
    pub enum ReplicaRole from v1::ReplicaRole {
        Leader "leader",
        Follower "follower",
        Learner "learner",
        Candidate "candidate",
    }
}

string_enum! {
    /// Membership of a replica.
    pub enum MemberRole {
        Leader "leader",
        Voter "voter",
        Learner "learner",
    }
}

/// The leader, the state of the replicas, and counts of all objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    pub cluster_id: String,
    pub version: String,
    /// The format of commands that may be in the log.
    pub command_level: u32,
    /// The newest format that the answering replica could write.
    pub command_format: u32,
    pub revision: u64,
    pub time: Instant,
    pub answered_by: u64,
    pub leader: Option<u64>,
    pub leader_address: String,
    /// Whether the leader was recently in contact with a majority of the voters; null if another replica answered.
    pub has_quorum: Option<bool>,
    pub term: u64,
    pub leadership_epoch: u64,
    pub leader_since: Option<Instant>,
    pub replicas: Vec<Replica>,
    pub jobs: JobCounts,
    pub hosts: HostCounts,
    pub gpus: GpuCounts,
}

documents! {
    /// A replica; the last three fields are null if another replica than the leader answered.
    pub struct Replica from v1::Replica {
        id: u64,
        role: ReplicaRole,
        address: String,
        matched_index: Option<u64>,
        lag_entries: Option<u64>,
        last_heartbeat_age_ms: Option<u64> = last_heartbeat_age_ms,
    }

    /// Number of jobs in each phase.
    pub struct JobCounts from v1::JobCounts {
        queued: u64,
        running: u64,
        cancelling: u64,
        succeeded: u64,
        failed: u64,
        cancelled: u64,
    }

    /// Number of hosts by health.
    pub struct HostCounts from v1::HostCounts {
        up: u32,
        suspect: u32,
        lost: u32,
        blocked: u32,
    }

    /// Number of GPUs by state.
    pub struct GpuCounts from v1::GpuCounts {
        total: u64,
        free: u64,
        held: u64,
        blocked: u64,
        faulted: u64,
        unreachable: u64,
    }
}

impl From<v1::GetStatusResponse> for Status {
    fn from(status: v1::GetStatusResponse) -> Self {
        Self {
            has_quorum: has_quorum(&status),
            cluster_id: status.cluster_id,
            version: status.version,
            command_level: status.command_level,
            command_format: status.command_format,
            revision: status.revision,
            time: Instant { ms: status.time_ms },
            answered_by: status.replica_id,
            leader: status.leader_id,
            leader_address: status.leader_address,
            term: status.term,
            leadership_epoch: status.leadership_epoch,
            leader_since: Option::from_wire(status.leader_since_ms),
            replicas: status.replicas.into_iter().map(Replica::from).collect(),
            jobs: JobCounts::from_wire(status.jobs),
            hosts: HostCounts::from_wire(status.hosts),
            gpus: GpuCounts::from_wire(status.gpus),
        }
    }
}

fn has_quorum(status: &v1::GetStatusResponse) -> Option<bool> {
    if status.leader_id != Some(status.replica_id) {
        return None;
    }
    let voters = status
        .replicas
        .iter()
        .filter(|replica| replica.role() != v1::ReplicaRole::Learner);
    let is_in_contact = |replica: &&v1::Replica| {
        replica
            .last_heartbeat_age_ms
            .is_some_and(|ms| ms <= REPLICA_SILENT_MS)
    };
    let (all, in_contact) = (voters.clone().count(), voters.filter(is_in_contact).count());
    Some(2 * in_contact > all)
}

/// A replica of the group. Positions are null if the leader did not answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    pub id: u64,
    pub address: String,
    pub role: MemberRole,
    pub matched_index: Option<u64>,
    pub lag_entries: Option<u64>,
    pub last_heartbeat_age_ms: Option<u64>,
    /// Null if the replica did not answer.
    pub version: Option<String>,
}

impl Member {
    /// A replica, and its version if it answered.
    #[must_use]
    pub fn new(replica: v1::Replica, version: Option<String>) -> Self {
        Self {
            id: replica.id,
            role: match replica.role() {
                v1::ReplicaRole::Leader => MemberRole::Leader,
                v1::ReplicaRole::Follower | v1::ReplicaRole::Candidate => MemberRole::Voter,
                v1::ReplicaRole::Learner => MemberRole::Learner,
                v1::ReplicaRole::Unspecified => MemberRole::Unknown,
            },
            address: replica.address,
            matched_index: replica.matched_index,
            lag_entries: replica.lag_entries,
            last_heartbeat_age_ms: replica.last_heartbeat_age_ms,
            version,
        }
    }
}

/// The answer to a change of the membership.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedReplica {
    pub replica: u64,
    /// False if there was nothing to do.
    pub changed: bool,
    pub warning: Option<String>,
}

/// The replica that was asked to lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeaderTransfer {
    pub to_replica: u64,
}

/// The replica that writes a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggeredSnapshot {
    pub replica: u64,
    pub revision: u64,
}
