//! Short, complete lines for reviewers of a script.

use std::fmt::Write as _;

use muster_engine::state::{Attempt, Job, State, TaskRun, Unit};
use muster_model::command::{AllocationBasis, Block, BlockTarget, Exit, GpuHealth};
use muster_model::event::{AccessChange, EventKind, ReplicaChanged};
use muster_model::host::Host;
use muster_model::ids::{AttemptEpoch, GpuUuid, HostId, JobId, UnitIndex};
use muster_model::time::TimeMs;

use crate::apply_scripts::health::display_name;

/// Shows values with times relative to the start of the script.
pub(crate) struct Show {
    pub(crate) begin: TimeMs,
}

impl Show {
    fn time(&self, time: TimeMs) -> String {
        format!("+{}ms", time.since(self.begin))
    }

    pub(crate) fn event(&self, kind: &EventKind) -> String {
        use EventKind as E;
        match kind {
            E::LeadershipStarted { replica, epoch } => {
                format!("replica {replica} leads, epoch {epoch}")
            }
            E::JobSubmitted {
                job,
                name,
                user,
                queue,
            } => format!("job {job} submitted: {name} by {user} to {queue}"),
            E::JobCancelRequested {
                job,
                author,
                reason,
            } => format!("job {job} to be cancelled by {author}: {reason:?}"),
            E::JobFinished { job, phase, reason } => format!("job {job} {phase:?} {reason:?}"),
            E::JobPruned { job } => format!("job {job} forgotten"),
            E::ReplicaChanged(changed) => {
                let ReplicaChanged {
                    replica,
                    address,
                    membership: allocation_basis,
                } = changed;
                format!("replica {replica} at {address}: {allocation_basis:?}")
            }
            E::AccessChanged(change) => access_changed(change),
            E::HostRegistered { host, name, gpus } => {
                format!("host {host} registered: {name} with {gpus} GPUs")
            }
            E::HostHealthChanged {
                host,
                health,
                one_way,
                ..
            } => {
                let link = if *one_way { " (one way)" } else { "" };
                format!("host {host} {health:?}{link}")
            }
            E::GpuHealthChanged {
                gpu, host, health, ..
            } => format!("host {host} {} {}", short(*gpu), self::health(health)),
            E::Blocked { target, block } => format!("{} {}", target_of(target), self.block(block)),
            E::Unblocked { target, author } => {
                format!("{} unblocked by {author}", target_of(target))
            }
            E::HealthChanged {
                component,
                from,
                to,
                rule,
                evidence,
                ..
            } => format!(
                "{}: {from} -> {to} by {rule:?}: {evidence}",
                display_name(component)
            ),
            E::HealthNoted {
                note,
                subject,
                detail,
                ..
            } => format!("{note}: {subject}: {detail}"),
            E::QueuesConfigured { author, queues } => {
                format!("queues configured by {author}: {}", queues.join(", "))
            }
            E::UnitClaimed {
                job,
                unit,
                gpus,
                victims,
                expected_at,
            } => {
                let victims: Vec<String> = victims
                    .iter()
                    .map(|victim| victim.job.to_string())
                    .collect();
                format!(
                    "job {job} unit {unit} claims {gpus} GPUs, victims [{}], expected {:?}",
                    victims.join(", "),
                    expected_at.map(|at| self.time(at))
                )
            }
            E::UnitsMoved {
                job,
                unit,
                moved,
                cost_gpu_ms,
                gain_gpu_ms,
            } => {
                let moved: Vec<String> = moved.iter().map(|one| one.job.to_string()).collect();
                format!(
                    "job {job} unit {unit} has [{}] moved, cost {cost_gpu_ms}, gain {gain_gpu_ms}",
                    moved.join(", ")
                )
            }
            E::ClaimDropped { job, unit, reason } => {
                format!("job {job} unit {unit} gives up its claim: {reason}")
            }
            E::AllocationBasisChanged {
                job,
                unit,
                allocation_basis,
                ..
            } => format!("job {job} unit {unit} now holds by {allocation_basis:?}"),
            E::QueueSet { name } => format!("queue {name} set"),
            _ => self.attempt_event(kind),
        }
    }

    fn member_event(&self, kind: &EventKind) -> Option<String> {
        use EventKind as E;
        let (job, unit, epoch, what) = match kind {
            E::MemberLeaving {
                job,
                unit,
                epoch,
                task,
                host,
                cause,
            } => {
                let what = format!("task {task} on host {host} leaves: {cause}");
                (job, unit, epoch, what)
            }
            E::MemberVacated {
                job,
                unit,
                epoch,
                task,
                member,
                host,
                reason,
                charged,
                not_before,
                detail,
            } => {
                let until = self.time(*not_before);
                let charged = if *charged { ", charged" } else { "" };
                let what = format!(
                    "place of task {task} ({member} on host {host}) vacant ({reason:?}{charged}), \
                     not before {until}: {detail}"
                );
                (job, unit, epoch, what)
            }
            E::MemberSwapped {
                job,
                unit,
                epoch,
                task,
                member,
                host,
                from,
                gpus,
                reason,
            } => {
                let what = format!(
                    "task {task} is {member} now, {gpus} GPUs on host {host} after host {from} ({reason:?})"
                );
                (job, unit, epoch, what)
            }
            _ => return None,
        };
        Some(format!("{} {what}", attempt(*job, *unit, *epoch)))
    }

    fn attempt_event(&self, kind: &EventKind) -> String {
        use EventKind as E;
        if let Some(text) = self.member_event(kind) {
            return text;
        }
        match kind {
            E::AttemptPlaced {
                job,
                unit,
                epoch,
                number,
                hosts,
                gpus,
                resumes_step,
            } => format!(
                "{} placed, number {number}, {gpus} GPUs on hosts {}{}",
                attempt(*job, *unit, *epoch),
                list(hosts),
                resumes_step.map_or_else(String::new, |step| format!(", from step {step}"))
            ),
            E::TaskStarted {
                job,
                unit,
                epoch,
                task,
                host,
            } => format!(
                "{} task {task} started on host {host}",
                attempt(*job, *unit, *epoch)
            ),
            E::TaskPrepared {
                job,
                unit,
                epoch,
                task,
                host,
            } => format!(
                "{} task {task} prepared on host {host}",
                attempt(*job, *unit, *epoch)
            ),
            E::GangReleased {
                job,
                unit,
                epoch,
                hosts,
                master_port,
            } => format!(
                "{} released on hosts {}, port {master_port}",
                attempt(*job, *unit, *epoch),
                list(hosts)
            ),
            E::AttemptRunning { job, unit, epoch } => {
                format!("{} running", attempt(*job, *unit, *epoch))
            }
            E::TaskExited {
                job,
                unit,
                epoch,
                task,
                exit,
                ..
            } => format!(
                "{} task {task} exited: {}",
                attempt(*job, *unit, *epoch),
                self::exit(exit)
            ),
            E::TaskLost {
                job,
                unit,
                epoch,
                task,
                detail,
                ..
            } => format!(
                "{} task {task} lost: {detail}",
                attempt(*job, *unit, *epoch)
            ),
            E::AttemptStopping {
                job,
                unit,
                epoch,
                cause,
            } => {
                let detail = match &*cause.detail {
                    "" => String::new(),
                    detail => format!(", {detail}"),
                };
                let attempt = attempt(*job, *unit, *epoch);
                format!("{attempt} stopping: {:?}{detail}", cause.reason)
            }
            E::AttemptEnded {
                job,
                unit,
                epoch,
                hosts,
                detail,
                attribution,
            } => {
                let attribution = attribution
                    .as_deref()
                    .map_or_else(String::new, |attribution| {
                        let measures: Vec<&str> =
                            attribution.measures.iter().map(|it| it.name()).collect();
                        let component = attribution.component.as_ref();
                        let component = component
                            .map_or_else(String::new, |it| format!(" {}", display_name(it)));
                        format!(
                            "\n    blamed on {}{component} by {}, {} charged: {}",
                            attribution.class,
                            attribution.step,
                            attribution.charge,
                            measures.join(" ")
                        )
                    });
                format!(
                    "{} ended, hosts {} free: {detail}{attribution}",
                    attempt(*job, *unit, *epoch),
                    list(hosts)
                )
            }
            E::UnitRequeued {
                job,
                unit,
                reason,
                not_before,
            } => format!(
                "job {job} unit {unit} waits again ({reason:?}) until {}",
                self.time(*not_before)
            ),
            E::UnitRetried {
                job,
                unit,
                epoch,
                retry,
                retries_max,
            } => format!(
                "{} is restarted in place, {retry} of {retries_max}",
                attempt(*job, *unit, *epoch)
            ),
            E::CheckpointCommitted {
                job,
                unit,
                epoch,
                step,
                path,
                ..
            } => format!(
                "{} checkpoint {step} at {path}",
                attempt(*job, *unit, *epoch)
            ),
            E::CheckpointDamaged {
                job,
                unit,
                epoch,
                step,
                reason,
            } => format!(
                "job {job} unit {unit} checkpoint {step} of epoch {epoch} is damaged: {reason}"
            ),
            E::JobSuspended {
                job,
                author,
                reason,
                mode,
            } => format!(
                "job {job} suspended by {author} ({}): {reason}",
                mode.name()
            ),
            E::JobResumed {
                job,
                author,
                reason,
            } => format!("job {job} resumed by {author}: {reason}"),
            E::CheckpointsForgotten {
                job,
                unit,
                steps,
                removed,
            } => format!("job {job} unit {unit} forgets checkpoints {steps:?}, removed: {removed}"),
            E::JobEligible { job } => format!("job {job} has no open dependency any more"),
            E::BlockPlanned {
                target,
                author,
                block,
            } => match block {
                Some(block) => format!("{} to be {}", target_of(target), self.block(block)),
                None => format!("{} planned block cancelled by {author}", target_of(target)),
            },
            other => format!("{other:?}"),
        }
    }

    fn block(&self, block: &Block) -> String {
        let mut text = format!("blocked by {}: {:?}", block.author, block.reason);
        if let Some(at) = block.expires_at {
            let _ = write!(text, " until {}", self.time(at));
        }
        if let Some(planned) = block.planned {
            let (at, notice_ms) = (self.time(planned.at), planned.notice_ms);
            let _ = write!(text, " planned at {at} with notice {notice_ms}");
        }
        if let Some(at) = block.drain_deadline {
            let _ = write!(text, " drained by {}", self.time(at));
        }
        text
    }

    pub(crate) fn state(&self, state: &State) -> String {
        let mut text = String::new();
        for job in state.jobs.values() {
            self.job(&mut text, job);
        }
        for host in state.hosts.values() {
            let _ = writeln!(text, "{}", self.host(host));
        }
        text
    }

    fn job(&self, text: &mut String, job: &Job) {
        let _ = writeln!(
            text,
            "job {} {} {:?}{}",
            job.id,
            job.spec.name,
            job.phase,
            counts(job)
        );
        for (index, unit) in &job.units {
            let _ = writeln!(text, "  unit {index} {}", self.unit(unit));
        }
    }

    fn unit(&self, unit: &Unit) -> String {
        let mut text = format!(
            "{:?} attempts={} failures={} {:?}",
            unit.phase, unit.attempts, unit.failures, unit.restart_reason
        );
        if unit.local_retries > 0 {
            let _ = write!(text, " local={}", unit.local_retries);
        }
        if !unit.removals.is_empty() {
            let steps: Vec<u64> = unit.removals.iter().map(|it| it.step).collect();
            let _ = write!(text, " removals={steps:?}");
        }
        if unit.without_progress > 0 {
            let _ = write!(text, " without_progress={}", unit.without_progress);
        }
        if unit.not_before > self.begin {
            let _ = write!(text, " not before {}", self.time(unit.not_before));
        }
        if let Some(attempt) = &unit.attempt {
            let _ = write!(text, " epoch={}", attempt.epoch);
            if let Some(stop) = &attempt.stop {
                let _ = write!(text, " grace={}ms", stop.grace_ms);
            }
            for run in &attempt.tasks {
                let _ = write!(text, " {}", task(run));
            }
            let _ = write!(text, "{}", self.members(attempt));
            if attempt.allocation_basis != AllocationBasis::Share {
                let _ = write!(text, " {:?}", attempt.allocation_basis);
            }
        }
        if let Some(claim) = &unit.claim {
            text.push_str(" claims");
            for task in claim.tasks.iter() {
                let _ = write!(text, " {}@{}", task.task, task.host);
            }
            if let Some(at) = claim.expected_at {
                let _ = write!(text, " expected {}", self.time(at));
            }
        }
        text
    }

    /// Shows the member changes of an attempt.
    fn members(&self, attempt: &Attempt) -> String {
        let mut text = String::new();
        for (task, joined) in attempt.membership.iter().flat_map(|it| &it.joined) {
            let _ = write!(text, " {task}=epoch {} {:?}", joined.epoch, joined.reason);
        }
        if let Some(leaving) = attempt.leaving() {
            let (task, order) = (leaving.task, &leaving.order);
            let _ = write!(text, " {task} leaves, grace={}ms", order.grace_ms);
        }
        if let Some(vacancy) = attempt.vacancy() {
            let (task, reason) = (vacancy.run.task, vacancy.reason);
            let until = self.time(vacancy.not_before);
            let _ = write!(text, " {task} vacant ({reason:?}), not before {until}");
        }
        text
    }

    fn host(&self, host: &Host) -> String {
        let mut text = format!("host {} {} {:?}", host.id, host.name, host.health);
        if let Some(block) = &host.block {
            let _ = write!(text, " {}", self.block(block));
        }
        if let Some(block) = &host.planned {
            let _ = write!(text, " to be {}", self.block(block));
        }
        if host.no_gangs {
            text.push_str(" no gangs");
        }
        for gpu in &host.gpus {
            let holder = gpu.holder.map_or_else(
                || "free".to_owned(),
                |holder| format!("{}.{}", holder.job, holder.task),
            );
            let _ = write!(text, " {}={holder}", gpu.index);
            if let Some(claimant) = gpu.claim {
                let _ = write!(text, "<{}", claimant.job);
            }
            if gpu.health != GpuHealth::Healthy {
                let _ = write!(text, "({})", health(&gpu.health));
            }
            if gpu.block.is_some() {
                text.push_str("(blocked)");
            }
        }
        let _ = write!(text, " cpus={}", host.cpus_milli_used);
        text
    }
}

fn counts(job: &Job) -> String {
    let counts = &job.counts;
    let all = [
        ("waiting", counts.waiting),
        ("placed", counts.placed),
        ("running", counts.running),
        ("stopping", counts.stopping),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
    ];
    all.iter()
        .filter(|(_, count)| *count > 0)
        .fold(String::new(), |mut text, (name, count)| {
            let _ = write!(text, " {name}={count}");
            text
        })
}

fn task(run: &TaskRun) -> String {
    let exit = run
        .exit
        .as_ref()
        .map_or_else(String::new, |exit| format!("({})", self::exit(exit)));
    format!("{}@{}:{:?}{exit}", run.task, run.host, run.phase)
}

fn attempt(job: JobId, unit: UnitIndex, epoch: AttemptEpoch) -> String {
    format!("job {job} unit {unit} epoch {epoch}")
}

fn list(hosts: &[HostId]) -> String {
    let texts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    texts.join(",")
}

fn short(gpu: GpuUuid) -> String {
    format!("gpu {}/{}", gpu.0 / 1_000, gpu.0 % 1_000)
}

fn health(health: &GpuHealth) -> String {
    match health {
        GpuHealth::Healthy => "healthy".to_owned(),
        GpuHealth::Faulted { signal, .. } => format!("faulted {signal}"),
    }
}

fn target_of(target: &BlockTarget) -> String {
    match target {
        BlockTarget::Host(name) => name.clone(),
        BlockTarget::Gpu(gpu) => short(*gpu),
    }
}

fn exit(exit: &Exit) -> String {
    let mut parts = Vec::new();
    parts.extend(exit.code.map(|code| format!("code {code}")));
    parts.extend(exit.signal.map(|signal| format!("signal {signal}")));
    parts.extend(exit.out_of_memory.then(|| "out of memory".to_owned()));
    parts.extend(exit.lease_expired.then(|| "lease expired".to_owned()));
    parts.extend(exit.start_error.clone());
    parts.join(", ")
}

fn access_changed(change: &AccessChange) -> String {
    use AccessChange as C;
    match change {
        C::UserAdded {
            name,
            role,
            queues,
            author,
        } => format!(
            "user {name} added by {author}: {role} [{}]",
            queues.join(",")
        ),
        C::UserRemoved { name, author } => format!("user {name} removed by {author}"),
        C::UserTokenRotated { name, author } => format!("token of {name} rotated by {author}"),
        C::JoinTokenAdded {
            id,
            uses_max,
            host_pattern,
            author,
            ..
        } => {
            let pattern = host_pattern.as_deref().unwrap_or("*");
            format!("join token {id} added by {author}: {uses_max} for {pattern}")
        }
        C::JoinTokenRevoked { id, author } => format!("join token {id} revoked by {author}"),
        C::WorkerJoined {
            host,
            token,
            uses_left,
        } => format!("worker {host} joined by {token}, {uses_left} left"),
    }
}
