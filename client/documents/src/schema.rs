//! JSON Schema of the documents.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::{
    AuditRecords, Backup, BlockImpact, CancelledPipeline, Certificate, ChangedJob, ChangedName,
    ChangedReplica, Changes, CheckpointAdvice, Components, DebugBundle, Event, Explanation, Gpus,
    HostLocations, Hosts, JobDetail, Jobs, JoinTokens, LeaderTransfer, LogFilters, LogLine,
    Members, NewJoinToken, PipelineDetail, Pipelines, Queue, QueueChanges, Queues,
    RecoveredReplica, RestoredReplica, RevokedJoinToken, RulesEffect, Status, SubmittedJob,
    SubmittedPipeline, TopologyEffect, TriggeredSnapshot, UnblockedTarget, UserToken, Users,
};

/// The schema of a document, registered with its parts in a generator.
type Subschema = fn(&mut SchemaGenerator) -> Schema;

macro_rules! commands {
    ($($command:literal: $document:ty,)*) => {
        &[$(($command, SchemaGenerator::subschema_for::<$document>),)*]
    };
}

/// The document of each command with `-o json`; a line of it if it prints a document for each.
const COMMANDS: &[(&str, Subschema)] = commands! {
    "job submit": SubmittedJob,
    "job list": Jobs,
    "job wait": Jobs,
    "job get": JobDetail,
    "job explain": Explanation,
    "job cancel": Vec<ChangedJob>,
    "job suspend": Vec<ChangedJob>,
    "job resume": Vec<ChangedJob>,
    "job logs": LogLine,
    "job events": Event,
    "pipeline submit": SubmittedPipeline,
    "pipeline list": Pipelines,
    "pipeline get": PipelineDetail,
    "pipeline wait": PipelineDetail,
    "pipeline cancel": Vec<CancelledPipeline>,
    "user add": UserToken,
    "user rotate": UserToken,
    "user list": Users,
    "user remove": ChangedName,
    "worker token create": NewJoinToken,
    "worker token list": JoinTokens,
    "worker token revoke": RevokedJoinToken,
    "cert ca": Certificate,
    "cert replica": Certificate,
    "cert worker": Certificate,
    "cert client": Certificate,
    "host list": Hosts,
    "host cells": HostLocations,
    "host block": Vec<BlockImpact>,
    "host drain": Vec<BlockImpact>,
    "host unblock": Vec<UnblockedTarget>,
    "gpu list": Gpus,
    "gpu block": Vec<BlockImpact>,
    "gpu unblock": Vec<UnblockedTarget>,
    "queue list": Queues,
    "queue get": Queue,
    "queue apply": QueueChanges,
    "queue set": ChangedName,
    "topology apply": TopologyEffect,
    "health list": Components,
    "health history": Changes,
    "health apply": RulesEffect,
    "cluster status": Status,
    "cluster members": Members,
    "cluster add": ChangedReplica,
    "cluster promote": ChangedReplica,
    "cluster remove": ChangedReplica,
    "cluster replace": ChangedReplica,
    "cluster transfer-leader": LeaderTransfer,
    "cluster snapshot": TriggeredSnapshot,
    "cluster recover": RecoveredReplica,
    "snapshot save": Backup,
    "snapshot inspect": Backup,
    "snapshot restore": RestoredReplica,
    "audit log": AuditRecords,
    "debug log-level": LogFilters,
    "debug bundle": DebugBundle,
    "task checkpoint commit": CheckpointAdvice,
    "task env": BTreeMap<String, String>,
};

/// The schema of all documents: `commands` has that of each command's document, `$defs` the parts.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    let commands = COMMANDS.iter().map(|(command, subschema)| {
        let schema = subschema(&mut generator);
        ((*command).to_owned(), Value::from(schema))
    });
    let commands: Map<String, Value> = commands.collect();
    let definitions = generator.take_definitions(true);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of the muster commands with -o json",
        "commands": commands,
        "$defs": definitions,
    })
}
