//! Writer of a state.

use std::io::{self, Write};

use muster_engine::state::{Job, State};
use muster_model::ids::Revision;
use muster_model::topology::Topology;
use muster_proto::convert::ledger_to_wire;
use prost::Message;

use crate::state::parts::{
    answer_to_wire, event_to_wire, mark_to_wire, part_to_wire, recovery_to_wire,
};
use crate::state::{MAGIC, RECORD_BYTES_MAX, STATE_FORMAT, TASKS_PER_RECORD_MAX, host, job, queue};
use crate::v1::state_record::Kind;
use crate::{access, claim, defaults, replicas, v1};

/// Writes a whole state; equal states give equal bytes.
///
/// # Errors
/// Errors of `sink`, and `InvalidData` if a record exceeded [`RECORD_BYTES_MAX`], which the limits on the
/// state's content exclude.
pub fn write_state(state: &State, sink: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer::begin(sink)?;
    let losses = state.events.losses();
    writer.record(Kind::Head(v1::StateHead {
        revision: state.revision.get(),
        time_ms: state.time.0,
        leader_replica: state.leadership.replica.get(),
        leader_epoch: state.leadership.epoch.get(),
        leader_since_ms: state.leadership.since.0,
        events_compacted: state.events.floor().get(),
        events_settled: losses.settled_up_to.get(),
        event_marks: losses.marks.into_iter().map(mark_to_wire).collect(),
        history_half_life_ms: state.history_half_life_ms,
        defragment: state.defragment.map(Into::into),
        job_defaults: state.job_defaults.map(defaults::to_wire),
        host_ms: state.reliability.host_ms,
        failures: state.reliability.failures,
        ledger: ledger_to_wire(&state.ledger),
        replicas: replicas::to_wire(&state.replicas.present),
        replica_id_highest: state.replicas.highest.get(),
        recovery: state.recovery.map(recovery_to_wire),
    }))?;
    if *state.configured_topology != Topology::default() {
        let topology = state.configured_topology.as_ref();
        writer.record(Kind::Topology(topology.into()))?;
    }
    for record in state.queues.values() {
        writer.record(Kind::Queue(queue::to_wire(record)))?;
    }
    for record in state.hosts.values() {
        writer.record(Kind::Host(host::to_wire(record)))?;
    }
    if state.health_rules.revision > Revision::default() {
        writer.record(Kind::HealthRules(v1::HealthRules {
            revision: state.health_rules.revision.get(),
            text: state.health_rules.text.to_string(),
            shipped_version: state.health_rules.shipped,
        }))?;
    }
    for (name, user) in &state.users {
        writer.record(Kind::User(access::record_to_wire(name, user)))?;
    }
    for (id, token) in &state.join_tokens {
        writer.record(Kind::JoinToken(access::join_token_to_wire(id, token)))?;
    }
    for part in state.health_to_keep() {
        writer.record(Kind::Health(part_to_wire(&part)?))?;
    }
    for record in state.jobs.values() {
        writer.job(record)?;
    }
    for (request, answer) in state.requests.iter() {
        writer.record(Kind::Answer(answer_to_wire(request, answer)))?;
    }
    for event in state.events.iter().flat_map(|(_, events)| events.iter()) {
        writer.record(Kind::Event(event_to_wire(event)))?;
    }
    writer.end()
}

struct Writer<'a> {
    sink: &'a mut dyn Write,
    records: u64,
    /// Reused for every record: length and body.
    scratch: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn begin(sink: &'a mut dyn Write) -> io::Result<Self> {
        sink.write_all(&MAGIC)?;
        sink.write_all(&STATE_FORMAT.to_le_bytes())?;
        Ok(Self {
            sink,
            records: 0,
            scratch: Vec::new(),
        })
    }

    fn record(&mut self, kind: Kind) -> io::Result<()> {
        let record = v1::StateRecord { kind: Some(kind) };
        let length = record.encoded_len();
        let framed = u32::try_from(length)
            .ok()
            .filter(|_| length <= RECORD_BYTES_MAX)
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a state record of {length} bytes is over {RECORD_BYTES_MAX} (RECORD_BYTES_MAX)"),
                )
            })?;
        self.scratch.clear();
        self.scratch.extend_from_slice(&framed.to_le_bytes());
        record.encode_raw(&mut self.scratch);
        self.sink.write_all(&self.scratch)?;
        self.records += 1;
        Ok(())
    }

    fn job(&mut self, job: &Job) -> io::Result<()> {
        self.record(Kind::Job(job::to_wire(job)))?;
        for (index, unit) in &job.units {
            let requeued = job.requeued.contains(index);
            self.record(Kind::Unit(job::unit_to_wire(*index, unit, requeued)))?;
            let claimed = unit.claim.as_ref().map_or(&[][..], |claim| &claim.tasks);
            for chunk in claimed.chunks(TASKS_PER_RECORD_MAX) {
                let tasks = claim::tasks_to_wire(chunk);
                self.record(Kind::ClaimedTasks(v1::ClaimedTasks { tasks }))?;
            }
            let tasks = unit
                .attempt
                .as_ref()
                .map_or(&[][..], |attempt| &attempt.tasks);
            for chunk in tasks.chunks(TASKS_PER_RECORD_MAX) {
                self.record(Kind::Tasks(job::tasks_to_wire(chunk)))?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        let records = self.records;
        self.record(Kind::End(v1::StateEnd { records }))
    }
}
