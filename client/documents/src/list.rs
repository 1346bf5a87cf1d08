//! Lists of documents.

use serde::Serialize;

use crate::{
    AuditRecord, Change, Component, Gpu, Host, HostLocation, Job, JoinToken, Member, Pipeline,
    Queue, User,
};

/// A document that is also a row of a list.
pub trait Listed: Serialize + Clone {
    /// The list.
    type List: Serialize;

    /// The list of rows read at a revision.
    fn list(revision: u64, rows: Vec<Self>) -> Self::List;
}

lists! {
    /// Jobs.
    pub struct Jobs { jobs: Job }
    /// Pipelines.
    pub struct Pipelines { pipelines: Pipeline }
    /// Hosts.
    pub struct Hosts { hosts: Host }
    /// Locations of hosts in the cell tree.
    pub struct HostLocations { hosts: HostLocation }
    /// GPUs.
    pub struct Gpus { gpus: Gpu }
    /// Queues.
    pub struct Queues { queues: Queue }
    /// GPUs, adapters and hosts with a health record.
    pub struct Components { components: Component }
    /// Changes of a component's health phase, oldest first; none if it was always healthy.
    pub struct Changes { changes: Change }
    /// Replicas.
    pub struct Members { members: Member }
    /// Users.
    pub struct Users { users: User }
    /// Join tokens.
    pub struct JoinTokens { tokens: JoinToken }
    /// Records of the audit log; `revision` is 0.
    pub struct AuditRecords { records: AuditRecord }
}
