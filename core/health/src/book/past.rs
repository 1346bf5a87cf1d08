//! Ends that nobody could explain, and where programs ran well: what the next end is compared with.

use std::collections::BTreeSet;

use muster_model::evidence::Cause;
use muster_model::health::Component;
use muster_model::ids::{GpuUuid, HostId, JobId};
use muster_model::time::{DAY_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::attribution::{Ambiguous, History, Spread};
use crate::book::Book;

/// Ends that are kept, newest last; those of the last day count.
pub const ENDS_KEPT_MAX: usize = 4_096;
/// Programs of which is kept where they ran well; while it is full, no further one is.
pub const PROGRAMS_KEPT_MAX: usize = 4_096;
/// GPUs that are kept of a program: with two of them, whichever fails, there is another one.
const GPUS_KEPT: usize = 2;

/// What ran, so far as two jobs can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Whose.
    pub user: String,
    /// In which image; empty without a container.
    pub image: String,
}

/// The end of an attempt that did not end well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadEnd {
    /// When.
    pub at: TimeMs,
    /// Whose.
    pub job: JobId,
    /// What ran.
    pub program: Program,
    /// Its hosts, each once.
    pub hosts: Vec<HostId>,
    /// GPUs of the task that decided the end.
    pub gpus: Vec<GpuUuid>,
    /// What its last words were about.
    pub cause: Option<Cause>,
}

impl BadEnd {
    /// The end of a job that names what is not there on a host: counted on no record.
    #[must_use]
    pub fn of_a_name(at: TimeMs, (job, user): (JobId, &str), host: HostId) -> Self {
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

    /// Whether it is such an end: whatever else its program is to blame for is certain, and not kept.
    fn is_of_a_name(&self) -> bool {
        self.cause == Some(Cause::Program)
    }

    fn is_within_a_day(&self, now: TimeMs) -> bool {
        now.since(self.at) <= DAY_MS
    }
}

/// Where a program ran well, and when, newest last.
pub type RanWell = Vec<(GpuUuid, TimeMs)>;

impl Book {
    /// What went before an end, so far as others went through it.
    #[must_use]
    pub fn history(&self, end: &BadEnd) -> History {
        let mut history = History {
            runs_elsewhere: self.runs_off(&end.program, &end.gpus, end.at),
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
                history.gpus.entry(*gpu).or_default().push(Ambiguous {
                    job: past.job,
                    user: past.program.user.clone(),
                    at: past.at,
                    cause: past.cause,
                    runs_elsewhere: self.runs_off(&past.program, &[*gpu], end.at),
                });
            }
        }
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        history.image = Spread {
            jobs: count(jobs.len()),
            hosts: count(hosts.len()),
        };
        history
    }

    /// Users who failed on a GPU within a day, the one of this end included.
    pub(super) fn users_on(&self, component: &Component, end: &BadEnd) -> u32 {
        let Component::Gpu(gpu) = component else {
            return 1;
        };
        let past = self.ends.iter().filter(|it| it.is_within_a_day(end.at));
        let on_gpu = past.filter(|it| it.gpus.contains(gpu));
        let mut users: BTreeSet<&str> = on_gpu.map(|it| it.program.user.as_str()).collect();
        users.insert(&end.program.user);
        u32::try_from(users.len()).unwrap_or(u32::MAX)
    }

    /// Users, that of this end included, whose jobs missed something on its host within a day. Those that missed it elsewhere
    /// too have taken theirs back.
    fn users_missing(&self, end: &BadEnd) -> u32 {
        let past = self.ends.iter().filter(|it| it.is_within_a_day(end.at));
        let there = past.filter(|it| it.is_of_a_name() && it.hosts == end.hosts);
        let mut users: BTreeSet<&str> = there.map(|it| it.program.user.as_str()).collect();
        users.insert(&end.program.user);
        u32::try_from(users.len()).unwrap_or(u32::MAX)
    }

    /// Where a job failed alone, once for each time: what was counted there.
    pub(super) fn failed_alone_on(&self, job: JobId) -> Vec<HostId> {
        let counted = |end: &&BadEnd| end.job == job && !end.is_of_a_name();
        let of_job = self.ends.iter().filter(counted);
        let alone = of_job.filter_map(|end| match end.hosts[..] {
            [host] => Some(host),
            _ => None,
        });
        alone.collect()
    }

    /// Keeps an end to compare later ones with, and to take back.
    pub fn keep_end(&mut self, end: &BadEnd) {
        let is_alone = end.hosts.len() == 1;
        if end.gpus.is_empty() && end.program.image.is_empty() && !is_alone {
            return;
        }
        let is_over = |oldest: &BadEnd| !oldest.is_within_a_day(end.at);
        while self.ends.len() >= ENDS_KEPT_MAX || self.ends.oldest().is_some_and(is_over) {
            self.ends.drop_oldest();
        }
        self.ends.push(end.clone());
    }

    /// A job's ends speak against nobody any more.
    pub(super) fn drop_ends(&mut self, job: JobId) {
        self.ends.retain(|end| end.job != job);
    }

    /// A program ran well on a GPU.
    pub fn ran_well(&mut self, program: &Program, gpu: GpuUuid, now: TimeMs) {
        let is_known = self.ran_well.contains_key(program);
        if !is_known && self.ran_well.len() >= PROGRAMS_KEPT_MAX {
            let is_recent = |ran: &RanWell| ran.iter().any(|(_, at)| now.since(*at) <= DAY_MS);
            let old = self.ran_well.iter().filter(|(_, ran)| !is_recent(ran));
            let old: Vec<Program> = old.map(|(program, _)| program.clone()).collect();
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

    /// Whether a program ran well within a day on a GPU that is none of these.
    fn runs_off(&self, program: &Program, gpus: &[GpuUuid], now: TimeMs) -> bool {
        let ran = self.ran_well.get(program);
        ran.is_some_and(|ran| {
            ran.iter()
                .any(|(gpu, at)| !gpus.contains(gpu) && now.since(*at) <= DAY_MS)
        })
    }
}
