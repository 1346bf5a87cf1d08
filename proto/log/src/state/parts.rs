//! Assembly of a state from records, and records other than hosts and jobs.

use std::io;
use std::sync::Arc;

use muster_engine::state::{
    Answer, EventGaps, EventLog, HealthRules, Job, Leadership, Recovery, RecoveryHold, Reliability,
    Replicas, State, StateParts, StoredAnswer, Unit,
};
use muster_health::rules::RuleError;
use muster_health::state::Part;
use muster_model::event::{Event, EventKind};
use muster_model::ids::{
    HostId, JobId, LeadershipEpoch, PipelineId, ReplicaId, RequestId, Revision,
};
use muster_model::time::TimeMs;
use muster_proto::convert::ledger_from_wire;
use muster_proto::field::packed::{pack_request, unpack_request};
use muster_proto::field::{InvalidField, required};

use crate::error::Field;
use crate::state::host::{self, Models};
use crate::state::job::{self, OpenUnit};
use crate::state::queue;
use crate::v1::state_record::Kind;
use crate::{access, defaults, replicas, v1};

/// Collects records into the parts of a state.
pub(super) struct Builder {
    parts: StateParts,
    models: Models,
    compacted: Revision,
    losses: EventGaps,
    events: Vec<(Revision, Arc<[Event]>)>,
    /// Events of the current revision.
    open_events: Vec<Event>,
    open_job: Option<Job>,
    open_unit: Option<OpenUnit>,
}

impl Builder {
    pub(super) fn new(head: &v1::StateHead) -> Self {
        let parts = StateParts {
            revision: Revision(head.revision),
            time: TimeMs(head.time_ms),
            leadership: Leadership {
                replica: ReplicaId(head.leader_replica),
                epoch: LeadershipEpoch(head.leader_epoch),
                since: TimeMs(head.leader_since_ms),
            },
            history_half_life_ms: head.history_half_life_ms,
            defragment: head.defragment.map(Into::into),
            job_defaults: head.job_defaults.map(defaults::from_wire),
            reliability: Reliability {
                host_ms: head.host_ms,
                failures: head.failures,
            },
            ledger: ledger_from_wire(head.ledger),
            replicas: Arc::new(Replicas {
                present: replicas::from_wire(head.replicas.clone()),
                highest: ReplicaId(head.replica_id_highest),
            }),
            recovery: head.recovery.map(recovery_from_wire),
            ..StateParts::default()
        };
        Self {
            parts,
            models: Models::default(),
            compacted: Revision(head.events_compacted),
            losses: EventGaps {
                settled_up_to: Revision(head.events_settled),
                marks: head.event_marks.iter().map(mark_from_wire).collect(),
            },
            events: Vec::new(),
            open_events: Vec::new(),
            open_job: None,
            open_unit: None,
        }
    }

    /// Adds the next record; the caller handles the end.
    pub(super) fn add(&mut self, kind: Kind) -> Field<()> {
        match kind {
            Kind::Head(_) => return Err(InvalidField::new("head", "must come once, and first")),
            Kind::End(_) => return Err(InvalidField::new("end", "must come last")),
            Kind::Topology(wire) => self.parts.configured_topology = Arc::new(wire.into()),
            Kind::Queue(wire) => self.parts.queues.push(queue::from_wire(wire)?),
            Kind::Host(wire) => {
                let host = host::from_wire(wire, &mut self.models)?;
                self.parts.hosts.push(host);
            }
            Kind::Job(wire) => {
                self.close_job()?;
                self.open_job = Some(job::from_wire(wire)?);
            }
            Kind::Unit(wire) => {
                self.close_unit()?;
                self.open_unit = Some(OpenUnit::begin(wire)?);
            }
            Kind::Tasks(wire) => self
                .open_unit
                .as_mut()
                .ok_or_else(|| InvalidField::new("tasks", "must follow their unit"))?
                .add_tasks(wire)?,
            Kind::ClaimedTasks(wire) => self
                .open_unit
                .as_mut()
                .ok_or_else(|| InvalidField::new("claimed_tasks", "must follow their unit"))?
                .add_claimed_tasks(wire)?,
            Kind::Health(wire) => self.parts.health.restore(part_from_wire(&wire)?),
            Kind::HealthRules(wire) => {
                let rules = HealthRules::read(
                    Revision(wire.revision),
                    &wire.text.into(),
                    wire.shipped_version,
                );
                let problem =
                    |error: RuleError| InvalidField::new("health_rules", error.to_string());
                self.parts.health_rules = rules.map_err(problem)?;
            }
            Kind::User(wire) => self.parts.users.push(access::record_from_wire(wire)?),
            Kind::JoinToken(wire) => {
                let token = access::join_token_from_wire(wire)?;
                self.parts.join_tokens.push(token);
            }
            Kind::Answer(wire) => self.parts.requests.push(answer_from_wire(wire)?),
            Kind::Event(wire) => self.add_event(event_from_wire(wire)?),
        }
        Ok(())
    }

    /// Returns the state of all records.
    pub(super) fn finish(mut self) -> Field<State> {
        self.close_job()?;
        self.close_revision();
        self.parts.events = EventLog::restore(self.compacted, self.losses, self.events);
        Ok(State::restore(self.parts))
    }

    fn close_unit(&mut self) -> Field<()> {
        let Some(open) = self.open_unit.take() else {
            return Ok(());
        };
        let job = self
            .open_job
            .as_mut()
            .ok_or_else(|| InvalidField::new("unit", "must follow its job"))?;
        let (index, unit, requeued): (_, Unit, _) = open.close();
        job.units.insert(index, Arc::new(unit));
        if requeued {
            job.requeued.insert(index);
        }
        Ok(())
    }

    fn close_job(&mut self) -> Field<()> {
        self.close_unit()?;
        self.parts.jobs.extend(self.open_job.take());
        Ok(())
    }

    fn add_event(&mut self, event: Event) {
        if self
            .open_events
            .first()
            .is_some_and(|first| first.revision != event.revision)
        {
            self.close_revision();
        }
        self.open_events.push(event);
    }

    fn close_revision(&mut self) {
        let events = std::mem::take(&mut self.open_events);
        if let Some(first) = events.first() {
            self.events.push((first.revision, events.into()));
        }
    }
}

pub(super) fn answer_to_wire(request: RequestId, stored: &StoredAnswer) -> v1::StoredAnswer {
    use v1::stored_answer::{Answer as Wire, Plain};
    let answer = match stored.answer {
        Answer::Done => Wire::Done(Plain {}),
        Answer::Began => Wire::Began(Plain {}),
        Answer::Job(job) => Wire::Job(job.get()),
        Answer::Host(host) => Wire::Host(host.get()),
        Answer::Count(count) => Wire::Count(count),
        Answer::Pipeline(pipeline) => Wire::Pipeline(pipeline.get()),
    };
    v1::StoredAnswer {
        request: pack_request(request),
        revision: stored.revision.get(),
        at_ms: stored.at.0,
        fingerprint: stored.fingerprint,
        answer: Some(answer),
    }
}

fn answer_from_wire(wire: v1::StoredAnswer) -> Field<(RequestId, StoredAnswer)> {
    use v1::stored_answer::Answer as Wire;
    let answer = match required("answer.answer", wire.answer)? {
        Wire::Done(_) => Answer::Done,
        Wire::Began(_) => Answer::Began,
        Wire::Job(job) => Answer::Job(JobId(job)),
        Wire::Host(host) => Answer::Host(HostId(host)),
        Wire::Count(count) => Answer::Count(count),
        Wire::Pipeline(pipeline) => Answer::Pipeline(PipelineId(pipeline)),
    };
    let stored = StoredAnswer {
        revision: Revision(wire.revision),
        at: TimeMs(wire.at_ms),
        fingerprint: wire.fingerprint,
        answer,
    };
    Ok((unpack_request("answer.request", &wire.request)?, stored))
}

pub(super) fn recovery_to_wire(recovery: Recovery) -> v1::Recovery {
    v1::Recovery {
        origin_revision: recovery.origin.get(),
        floor_revision: recovery.floor.get(),
        hold: recovery.hold.map(|hold| v1::Hold {
            began_at_ms: hold.began_at.0,
            over_at_ms: hold.over_at.0,
        }),
    }
}

fn recovery_from_wire(wire: v1::Recovery) -> Recovery {
    Recovery {
        origin: Revision(wire.origin_revision),
        floor: Revision(wire.floor_revision),
        hold: wire.hold.map(|hold| RecoveryHold {
            began_at: TimeMs(hold.began_at_ms),
            over_at: TimeMs(hold.over_at_ms),
        }),
    }
}

pub(super) fn mark_to_wire((job, mark): (Option<JobId>, Revision)) -> v1::EventMark {
    v1::EventMark {
        job_id: job.map(JobId::get),
        compacted: mark.get(),
    }
}

fn mark_from_wire(wire: &v1::EventMark) -> (Option<JobId>, Revision) {
    (wire.job_id.map(JobId), Revision(wire.compacted))
}

pub(super) fn event_to_wire(event: &Event) -> v1::Event {
    v1::Event {
        revision: event.revision.get(),
        time_ms: event.time.0,
        event: Some((&event.kind).into()),
    }
}

fn event_from_wire(wire: v1::Event) -> Field<Event> {
    let kind = EventKind::try_from(required("event.event", wire.event)?)
        .map_err(|invalid| invalid.within("event"))?;
    Ok(Event {
        revision: Revision(wire.revision),
        time: TimeMs(wire.time_ms),
        kind,
    })
}

/// A part of the health state.
pub(super) fn part_to_wire(part: &Part) -> io::Result<v1::HealthPart> {
    let mut cbor = Vec::new();
    ciborium::into_writer(part, &mut cbor).map_err(io::Error::other)?;
    Ok(v1::HealthPart { cbor: cbor.into() })
}

fn part_from_wire(wire: &v1::HealthPart) -> Field<Part> {
    ciborium::from_reader(&*wire.cbor)
        .map_err(|error| InvalidField::new("health", error.to_string()))
}
