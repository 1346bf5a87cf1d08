//! Messages with a type in the core: a valid message must be unchanged after conversion in both directions.

use muster_model::command::{
    AllocationBasis, Block, BlockTarget, Exit, GpuDescription, GpuHealth, HostRegistration,
    StopCause, StopReason,
};
use muster_model::desired::{
    CheckpointRef, DesiredState, GangHost, RankInfo, StopInstruction, TaskAssignment,
};
use muster_model::event::EventKind;
use muster_model::health::{Attribution, Component, Finding, Order};
use muster_model::heartbeat::{
    CheckpointReport, DamageReport, Heartbeat, TaskStatus, WorkDone, WorkerStatus, WorkerTaskPhase,
};
use muster_model::job::{Barrier, CancelRequest, Checkpoint, StopOrder, Suspension, UnitCounts};
use muster_model::quota::{
    Amounts, CellQuota, Defragment, Guarantee, Limits, QueueConfig, QueueTree,
};
use muster_model::spec::{
    CheckpointPolicy, Container, Dependency, Execution, ExitRule, JobSpec, Layout, Lifecycle,
    Mount, Pipeline, Resources, RetryPolicy, Scheduling, Secret, StopWarning, Within,
};
use muster_model::timings::Timings;
use muster_model::topology::{CellId, Topology};
use muster_proto::v1;
use prost::Message as _;

use crate::{SMALL, assert_same, bounded, choice, message, or_panic};

/// One check for each type; new ones are appended, since seeds refer to them by number.
macro_rules! twins {
    ($($wire:ident => $core:ty, $back:expr;)+) => {
        const TWINS: &[fn(&[u8])] = &[$(|bytes| {
            let Some(Ok(core)) = message::<v1::$wire>(bytes).map(<$core>::try_from) else {
                return;
            };
            let back: fn(&$core) -> v1::$wire = $back;
            let wire = back(&core);
            let read = v1::$wire::decode(wire.encode_to_vec().as_slice());
            let read = or_panic(read, "what was written is not a message");
            assert_same(&read, &wire);
            let again = or_panic(<$core>::try_from(read), "what was written is refused");
            assert_same(&again, &core);
            assert_same(&back(&again), &wire);
        }),+];
    };
}
twins! {
    Heartbeat => Heartbeat, |core| core.into();
    WorkerStatus => WorkerStatus, |core| core.into();
    TaskStatus => TaskStatus, |core| core.into();
    WorkerTaskPhase => WorkerTaskPhase, |core| core.into();
    DamageReport => DamageReport, |core| core.into();
    CheckpointReport => CheckpointReport, |core| core.into();
    AllocationBasis => AllocationBasis, |core| core.into();
    Container => Container, |core| core.into();
    Mount => Mount, |core| core.into();
    DesiredState => DesiredState, |core| core.into();
    TaskAssignment => TaskAssignment, |core| core.into();
    GangHost => GangHost, |core| core.into();
    RankInfo => RankInfo, |core| core.into();
    CheckpointRef => CheckpointRef, |core| core.into();
    StopInstruction => StopInstruction, |core| core.into();
    Event => EventKind, |core| core.into();
    Execution => Execution, |core| core.into();
    Secret => Secret, |core| core.into();
    Attribution => Attribution, |core| core.into();
    Component => Component, |core| core.into();
    Finding => Finding, |core| core.into();
    HealthOrder => Order, |core| core.into();
    HealthWorkDone => WorkDone, |core| core.into();
    CancelRequest => CancelRequest, |core| core.into();
    Suspension => Suspension, |core| core.into();
    UnitCounts => UnitCounts, |core| core.into();
    Barrier => Barrier, |core| (*core).into();
    StopOrder => StopOrder, |core| core.into();
    Checkpoint => Checkpoint, |core| core.into();
    Lifecycle => Lifecycle, |core| core.into();
    Dependency => Dependency, |core| (*core).into();
    ExitRule => ExitRule, |core| (*core).into();
    CheckpointPolicy => CheckpointPolicy, |core| (*core).into();
    StopWarning => StopWarning, |core| (*core).into();
    GpuHealth => GpuHealth, |core| core.into();
    BlockTarget => BlockTarget, |core| core.into();
    Block => Block, |core| core.into();
    Exit => Exit, |core| core.into();
    StopReason => StopReason, |core| core.into();
    StopReason => StopCause, |core| core.into();
    PipelineSpec => Pipeline, |core| core.into();
    QueueTree => QueueTree, |core| core.into();
    Defragment => Defragment, |core| (*core).into();
    QueueConfig => QueueConfig, |core| core.into();
    Guarantee => Guarantee, |core| core.into();
    Amounts => Amounts, |core| core.into();
    Limits => Limits, |core| core.into();
    CellQuota => CellQuota, |core| core.into();
    HostRegistration => HostRegistration, |core| core.into();
    GpuDescription => GpuDescription, |core| core.into();
    Timings => Timings, |core| (*core).into();
    Scheduling => Scheduling, |core| core.into();
    Layout => Layout, |core| core.into();
    Within => Within, |core| core.into();
    JobSpec => JobSpec, |core| core.into();
    Resources => Resources, |core| core.into();
    RetryPolicy => RetryPolicy, |core| (*core).into();
    Topology => Topology, |core| core.into();
    Cell => CellId, |core| core.into();
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, SMALL, || TWINS[kind % TWINS.len()](bytes));
}
