//! Record of one call in the audit log.

use std::net::SocketAddr;

use muster_model::spec::DEFAULT_QUEUE;
use muster_proto::convert::role_from_wire;
use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::block_target::Target;
use muster_proto::v1::change_replicas_request::Change;
use muster_proto::v1::write::Kind;
use muster_proto::v1::write_result::Kind as Outcome;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};

/// Bytes kept of one text chosen by the caller, so that a line stays short.
const TEXT_BYTES_MAX: usize = 256;

/// A call that asked for a change, and its answer. Contains no commands, environments or specifications of
/// tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// Number of the record on this replica, from 1.
    pub(crate) sequence: u64,
    /// Time of the answer in milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
    /// The replica that answered.
    pub(crate) replica: u64,
    /// The authenticated user; without authentication the name given in the call, which may be empty.
    pub(crate) user: String,
    /// The caller's address.
    pub(crate) from: String,
    /// Name of the method.
    pub(crate) method: String,
    /// Subject of the call: `job 7`, `host node01`, `queue research`.
    pub(crate) subject: String,
    /// Reason given by the caller.
    pub(crate) why: String,
    /// Whether the call was a dry run.
    pub(crate) dry_run: bool,
    /// Idempotency key; empty if there is none.
    pub(crate) request_id: String,
    /// Status code of the answer: `Ok`, an error code, or `Cancelled` if the caller left before the answer.
    pub(crate) code: String,
    /// Machine-readable reason of an error.
    pub(crate) reason: String,
    /// Revision at which the change took effect; 0 if it has none.
    pub(crate) revision: u64,
}

impl Record {
    /// Record of a write, as described by its request.
    pub(crate) fn of(method: &str, write: &Kind, from: Option<SocketAddr>) -> Self {
        let asked = Asked::of(write);
        Self {
            user: short(&asked.user),
            from: from.map_or_else(String::new, |from| from.to_string()),
            method: method.to_owned(),
            subject: short(&asked.subject),
            why: short(&asked.why),
            dry_run: asked.dry_run,
            request_id: short(&asked.request_id),
            ..Self::default()
        }
    }

    /// Adds the answer.
    pub(crate) fn answered(mut self, result: &Result<Outcome, Status>) -> Self {
        match result {
            Ok(outcome) => {
                self.code = format!("{:?}", Code::Ok);
                self.revision = revision(outcome);
                if let Some(job) = submitted(outcome) {
                    self.subject = format!("{job}, {}", self.subject);
                }
            }
            Err(status) => {
                self.code = format!("{:?}", status.code());
                self.reason = ErrorReport::of(status).reason;
            }
        }
        self
    }

    /// Adds the answer of a call that is no write: refused or allowed.
    pub(crate) fn answered_with(mut self, refusal: Option<&Status>) -> Self {
        self.code = format!("{:?}", refusal.map_or(Code::Ok, Status::code));
        self.reason = refusal.map_or_else(String::new, |status| ErrorReport::of(status).reason);
        self
    }

    /// Record of a call that is no write, as described by its request.
    pub(crate) fn told(
        method: &str,
        (user, subject): (&str, String),
        from: Option<SocketAddr>,
    ) -> Self {
        Self {
            user: short(user),
            from: from.map_or_else(String::new, |from| from.to_string()),
            method: method.to_owned(),
            subject: short(&subject),
            ..Self::default()
        }
    }
}

/// Fields of the record that come from the request.
#[derive(Default)]
struct Asked {
    user: String,
    subject: String,
    why: String,
    dry_run: bool,
    request_id: String,
}

impl Asked {
    fn of(write: &Kind) -> Self {
        match write {
            Kind::SubmitJob(asked) => Self::submit(asked),
            Kind::SubmitPipeline(asked) => Self::pipeline(asked),
            Kind::CancelJob(asked) => Self::job(
                asked.job_id,
                &asked.author,
                &asked.reason,
                &asked.request_id,
            ),
            Kind::SuspendJob(asked) => Self::job(
                asked.job_id,
                &asked.author,
                &asked.reason,
                &asked.request_id,
            ),
            Kind::ResumeJob(asked) => Self::job(
                asked.job_id,
                &asked.author,
                &asked.reason,
                &asked.request_id,
            ),
            Kind::Block(asked) => Self {
                why: asked.reason.clone(),
                dry_run: asked.dry_run,
                ..Self::by(
                    &asked.author,
                    &asked.request_id,
                    target(asked.target.as_ref()),
                )
            },
            Kind::Unblock(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                target(asked.target.as_ref()),
            ),
            Kind::SetQueue(asked) => {
                Self::by("", &asked.request_id, format!("queue {}", asked.name))
            }
            Kind::ConfigureQueues(asked) => Self {
                dry_run: asked.dry_run,
                ..Self::by(&asked.author, &asked.request_id, "queues".to_owned())
            },
            Kind::SetTopology(asked) => Self {
                dry_run: asked.dry_run,
                ..Self::by(&asked.author, &asked.request_id, "topology".to_owned())
            },
            Kind::SetHealthRules(asked) => Self {
                dry_run: asked.dry_run,
                ..Self::by(&asked.author, &asked.request_id, "health rules".to_owned())
            },
            Kind::ResetBreaker(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                format!("pool {}", asked.pool),
            ),
            Kind::AddUser(_)
            | Kind::RemoveUser(_)
            | Kind::RotateUserToken(_)
            | Kind::AddJoinToken(_)
            | Kind::RevokeJoinToken(_)
            | Kind::UseJoinToken(_) => Self::access(write),
            Kind::TransferLeader(asked) => Self::by("", "", replica(asked.to_replica_id)),
            Kind::ChangeReplicas(asked) => Self::by("", "", change(asked)),
            Kind::InjectFault(asked) => Self::by("", "", format!("host {}", asked.host)),
        }
    }

    fn access(write: &Kind) -> Self {
        match write {
            Kind::AddUser(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                format!("user {}, role {}", asked.name, role(asked.role())),
            ),
            Kind::RemoveUser(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                format!("user {}", asked.name),
            ),
            Kind::RotateUserToken(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                format!("token of user {}", asked.name),
            ),
            Kind::AddJoinToken(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                format!("join token {}, {} uses", asked.id, asked.uses_max),
            ),
            Kind::RevokeJoinToken(asked) => Self::by(
                &asked.author,
                &asked.request_id,
                format!("join token {}", asked.id),
            ),
            Kind::UseJoinToken(asked) => Self::by(
                &format!("join token {}", asked.id),
                &asked.request_id,
                format!("host {}", asked.host),
            ),
            _ => Self::default(),
        }
    }

    fn by(user: &str, request_id: &str, subject: String) -> Self {
        Self {
            user: user.to_owned(),
            subject,
            request_id: request_id.to_owned(),
            ..Self::default()
        }
    }

    fn job(job: u64, user: &str, why: &str, request_id: &str) -> Self {
        Self {
            why: why.to_owned(),
            ..Self::by(user, request_id, format!("job {job}"))
        }
    }

    fn submit(asked: &v1::SubmitJobRequest) -> Self {
        let (user, subject) = asked.spec.as_ref().map_or_else(Default::default, |spec| {
            let queue = spec.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
            let subject = format!("name {}, queue {queue}", spec.name);
            (spec.user.clone(), subject)
        });
        Self {
            dry_run: asked.validate_only,
            ..Self::by(&user, &asked.request_id, subject)
        }
    }

    fn pipeline(asked: &v1::SubmitPipelineRequest) -> Self {
        let pipeline = asked.spec.as_ref();
        let jobs = pipeline.map_or(&[][..], |pipeline| &pipeline.jobs);
        let first = jobs.first().and_then(|job| job.spec.as_ref());
        let user = first.map_or("", |spec| &spec.user);
        let name = pipeline.map_or("", |pipeline| &pipeline.name);
        let subject = format!("pipeline {name} of {} jobs", jobs.len());
        Self {
            dry_run: asked.validate_only,
            ..Self::by(user, &asked.request_id, subject)
        }
    }
}

fn role(role: v1::UserRole) -> String {
    role_from_wire(role).map_or_else(String::new, |role| role.to_string())
}

fn target(target: Option<&v1::BlockTarget>) -> String {
    match target.and_then(|target| target.target.as_ref()) {
        Some(Target::Host(host)) => format!("host {host}"),
        Some(Target::Gpu(gpu)) => format!("gpu {gpu}"),
        None => String::new(),
    }
}

fn replica(id: u64) -> String {
    match id {
        0 => String::new(),
        id => format!("replica {id}"),
    }
}

fn change(asked: &v1::ChangeReplicasRequest) -> String {
    let forced = if asked.force { ", forced" } else { "" };
    let what = match &asked.change {
        None => String::new(),
        Some(Change::Add(add)) => format!("add replica {} at {}", add.replica_id, add.address),
        Some(Change::PromoteReplicaId(id)) => format!("promote replica {id}"),
        Some(Change::RemoveReplicaId(id)) => format!("remove replica {id}"),
        Some(Change::Replace(replace)) => format!(
            "replace replica {} by {}",
            replace.old_replica_id, replace.new_replica_id
        ),
    };
    format!("{what}{forced}")
}

fn submitted(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::SubmitJob(answer) if answer.job_id > 0 => Some(format!("job {}", answer.job_id)),
        Outcome::SubmitPipeline(answer) if answer.pipeline_id > 0 => {
            Some(format!("pipeline {}", answer.pipeline_id))
        }
        _ => None,
    }
}

fn revision(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::SubmitJob(answer) => answer.revision,
        Outcome::SubmitPipeline(answer) => answer.revision,
        Outcome::CancelJob(answer) => answer.revision,
        Outcome::SuspendJob(answer) => answer.revision,
        Outcome::ResumeJob(answer) => answer.revision,
        Outcome::Block(answer) => answer.revision,
        Outcome::Unblock(answer) => answer.revision,
        Outcome::SetQueue(answer) => answer.revision,
        Outcome::ConfigureQueues(answer) => answer.revision,
        Outcome::SetTopology(answer) => answer.revision,
        Outcome::SetHealthRules(answer) => answer.revision,
        Outcome::ResetBreaker(answer) => answer.revision,
        Outcome::AddUser(answer) => answer.revision,
        Outcome::RemoveUser(answer) => answer.revision,
        Outcome::RotateUserToken(answer) => answer.revision,
        Outcome::AddJoinToken(answer) => answer.revision,
        Outcome::RevokeJoinToken(answer) => answer.revision,
        Outcome::UseJoinToken(answer) => answer.revision,
        Outcome::TransferLeader(_)
        | Outcome::ChangeReplicas(_)
        | Outcome::InjectFault(_)
        | Outcome::Error(_) => 0,
    }
}

/// Truncates a text to the limit.
fn short(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

impl From<Record> for v1::AuditRecord {
    fn from(record: Record) -> Self {
        Self {
            sequence: record.sequence,
            time_ms: record.time_ms,
            replica_id: record.replica,
            user: record.user,
            from: record.from,
            method: record.method,
            subject: record.subject,
            why: record.why,
            dry_run: record.dry_run,
            request_id: record.request_id,
            code: record.code,
            reason: record.reason,
            revision: record.revision,
        }
    }
}
