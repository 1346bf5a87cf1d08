//! Unexplained ends and successful programs: the history with which the next end is compared.

use std::collections::BTreeSet;

use muster_model::evidence::Cause;
use muster_model::health::Component;
use muster_model::ids::{GpuUuid, HostId, JobId};
use muster_model::time::{DAY_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::attribution::{History, ImageSpread, UnexplainedFailure};
use crate::state::HealthState;

/// Ends kept, newest last; those of the last day count.
pub const ENDS_KEPT_MAX: usize = 4_096;
/// Programs whose successes are kept; while the list is full, no further one is added.
pub const PROGRAMS_KEPT_MAX: usize = 4_096;
/// GPUs kept per program: with two of them, one always differs from the failing one.
const GPUS_KEPT: usize = 2;

/// Identity of a program, for the comparison of two jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// User who owns the job.
    pub user: String,
    /// Container image; empty without a container.
    pub image: String,
}

/// An attempt that ended in failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedEnd {
    /// Time of the end.
    pub at: TimeMs,
    /// The job.
    pub job: JobId,
    /// The program.
    pub program: Program,
    /// Its hosts, without duplicates.
    pub hosts: Vec<HostId>,
    /// GPUs of the task that decided the end.
    pub gpus: Vec<GpuUuid>,
    /// Cause indicated by its output.
    pub cause: Option<Cause>,
}

impl FailedEnd {
    /// End of a job that names missing files on a host: not counted in any record.
    #[must_use]
    pub fn missing_file(at: TimeMs, job: JobId, user: &str, host: HostId) -> Self {
        Self {
            at,
            job,
            program: Program {
                user: user.to_owned(),
                image: String::new(),
            },
            hosts: vec![host],
            gpus: Vec::new(),
            cause: Some(Cause::Program),
        }
    }

    /// Whether it is such an end: other ends attributed to the program are certain, and not kept.
    fn is_missing_file(&self) -> bool {
        self.cause == Some(Cause::Program)
    }

    fn is_within_a_day(&self, now: TimeMs) -> bool {
        now.since(self.at) <= DAY_MS
    }
}

/// GPUs on which a program succeeded, with times, newest last.
pub type Successes = Vec<(GpuUuid, TimeMs)>;

impl HealthState {
    /// History before an end.
    #[must_use]
    pub fn history(&self, end: &FailedEnd) -> History {
        let mut history = History {
            runs_elsewhere: self.succeeded_elsewhere(&end.program, &end.gpus, end.at),
            users_missing: self.users_missing(end),
            ..History::default()
        };
        let mut jobs = BTreeSet::from([end.job]);
        let mut hosts: BTreeSet<HostId> = end.hosts.iter().copied().collect();
        for past in self.ends.iter().filter(|it| it.is_within_a_day(end.at)) {
            if !end.program.image.is_empty() && past.program.image == end.program.image {
                jobs.insert(past.job);
                hosts.extend(&past.hosts);
            }
            for gpu in past.gpus.iter().filter(|gpu| end.gpus.contains(gpu)) {
                history
                    .gpus
                    .entry(*gpu)
                    .or_default()
                    .push(UnexplainedFailure {
                        job: past.job,
                        user: past.program.user.clone(),
                        at: past.at,
                        cause: past.cause,
                        runs_elsewhere: self.succeeded_elsewhere(&past.program, &[*gpu], end.at),
                    });
            }
        }
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        history.image = ImageSpread {
            jobs: count(jobs.len()),
            hosts: count(hosts.len()),
        };
        history
    }

    /// Number of users who failed on a GPU within a day, including this end's.
    pub(super) fn users_on(&self, component: &Component, end: &FailedEnd) -> u32 {
        let Component::Gpu(gpu) = component else {
            return 1;
        };
        let past = self.ends.iter().filter(|it| it.is_within_a_day(end.at));
        let on_gpu = past.filter(|it| it.gpus.contains(gpu));
        let mut users: BTreeSet<&str> = on_gpu.map(|it| it.program.user.as_str()).collect();
        users.insert(&end.program.user);
        u32::try_from(users.len()).unwrap_or(u32::MAX)
    }

    /// Number of users, including this end's, whose jobs missed files on its host within a day. Jobs that
    /// missed them elsewhere too have withdrawn theirs.
    fn users_missing(&self, end: &FailedEnd) -> u32 {
        let past = self.ends.iter().filter(|it| it.is_within_a_day(end.at));
        let there = past.filter(|it| it.is_missing_file() && it.hosts == end.hosts);
        let mut users: BTreeSet<&str> = there.map(|it| it.program.user.as_str()).collect();
        users.insert(&end.program.user);
        u32::try_from(users.len()).unwrap_or(u32::MAX)
    }

    /// Hosts where a job failed alone, once for each failure that was counted there.
    pub(super) fn failed_alone_on(&self, job: JobId) -> Vec<HostId> {
        let counted = |end: &&FailedEnd| end.job == job && !end.is_missing_file();
        let of_job = self.ends.iter().filter(counted);
        let alone = of_job.filter_map(|end| match end.hosts[..] {
            [host] => Some(host),
            _ => None,
        });
        alone.collect()
    }

    /// Stores an end for comparison with later ones, and for withdrawal.
    pub fn keep_end(&mut self, end: &FailedEnd) {
        let is_alone = end.hosts.len() == 1;
        if end.gpus.is_empty() && end.program.image.is_empty() && !is_alone {
            return;
        }
        let is_over = |oldest: &FailedEnd| !oldest.is_within_a_day(end.at);
        while self.ends.len() >= ENDS_KEPT_MAX || self.ends.oldest().is_some_and(is_over) {
            self.ends.drop_oldest();
        }
        self.ends.push(end.clone());
    }

    /// Drops the ends of a job, so that they no longer count against any component.
    pub(super) fn drop_ends(&mut self, job: JobId) {
        self.ends.retain(|end| end.job != job);
    }

    /// A program succeeded on a GPU.
    pub fn record_success(&mut self, program: &Program, gpu: GpuUuid, now: TimeMs) {
        let is_known = self.ran_well.contains_key(program);
        if !is_known && self.ran_well.len() >= PROGRAMS_KEPT_MAX {
            let is_recent = |ran: &Successes| ran.iter().any(|(_, at)| now.since(*at) <= DAY_MS);
            let all = self.ran_well.iter();
            let old: Vec<Program> = all
                .filter(|(_, ran)| !is_recent(ran))
                .map(|(program, _)| program.clone())
                .collect();
            for program in old {
                self.ran_well.remove(&program);
            }
            if self.ran_well.len() >= PROGRAMS_KEPT_MAX {
                return;
            }
        }
        let ran = self.ran_well.entry(program.clone()).or_default();
        ran.retain(|(of, _)| *of != gpu);
        ran.push((gpu, now));
        if ran.len() > GPUS_KEPT {
            ran.remove(0);
        }
    }

    /// Whether a program succeeded within a day on a GPU other than these.
    fn succeeded_elsewhere(&self, program: &Program, gpus: &[GpuUuid], now: TimeMs) -> bool {
        let ran = self.ran_well.get(program);
        ran.is_some_and(|ran| {
            ran.iter()
                .any(|(gpu, at)| !gpus.contains(gpu) && now.since(*at) <= DAY_MS)
        })
    }
}
