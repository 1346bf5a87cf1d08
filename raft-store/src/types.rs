//! The openraft types of a replica, generic over the application and the runtime.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use openraft::RaftTypeConfig;
use openraft::impls::{
    BoxedErrorSource, EntryPayload, InlineBatch, OneshotResponder, leader_id_adv,
};

use crate::apply::batch::Batch;
use crate::apply::state_machine::StateMachine;
use crate::sim::Runtime;

/// Type configuration of a replica of `M` that runs on `R`.
pub(crate) struct Types<M, R>(PhantomData<fn() -> (M, R)>);

/// Address of a member and its admitted incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// `host:port`.
    pub address: String,
    /// Incarnation of its data directory; 0 matches any.
    pub incarnation: u64,
}

/// Answer of applying one entry: one outcome per command, none for Raft's own entries.
pub(crate) struct Outcomes<M: StateMachine>(pub(crate) Vec<M::Outcome>);

impl<M: StateMachine> fmt::Debug for Outcomes<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(&self.0).finish()
    }
}

pub(crate) type LeaderId = leader_id_adv::LeaderId<u64, u64>;
pub(crate) type LogId = openraft::LogId<LeaderId>;
pub(crate) type Vote = openraft::Vote<LeaderId>;
pub(crate) type Membership = openraft::Membership<u64, Node>;
pub(crate) type StoredMembership = openraft::StoredMembership<LeaderId, u64, Node>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<LeaderId, u64, Node>;
pub(crate) type Payload<M> = EntryPayload<Batch<M>, u64, Node>;
pub(crate) type Entry<M> = openraft::Entry<LeaderId, Payload<M>>;

impl<M: StateMachine, R: Runtime> RaftTypeConfig for Types<M, R> {
    type D = Batch<M>;
    type R = Outcomes<M>;
    type NodeId = u64;
    type Node = Node;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload<M>;
    type Entry = Entry<M>;
    type AsyncRuntime = R;
    type Responder<T>
        = OneshotResponder<Self, T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

// A derive would require the traits of `M` and `R`; the configuration itself is only a name.
impl<M, R> fmt::Debug for Types<M, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Types")
    }
}

impl<M, R> Clone for Types<M, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, R> Copy for Types<M, R> {}

impl<M, R> Default for Types<M, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M, R> PartialEq for Types<M, R> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl<M, R> Eq for Types<M, R> {}

impl<M, R> PartialOrd for Types<M, R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M, R> Ord for Types<M, R> {
    fn cmp(&self, _other: &Self) -> Ordering {
        Ordering::Equal
    }
}
