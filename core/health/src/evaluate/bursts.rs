//! XIDs of GPUs over hours: bursts, consequences, and repetitions across jobs and users. Replicated.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::health::DeviceAction;
use muster_model::ids::{GpuUuid, JobId};
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, TimeMs};
use serde::{Deserialize, Serialize};

use crate::rules::{
    Blame, Distinct, Frequency, RepeatPolicy, RuleSet, XID_13, XID_31, XID_REPEAT, XidPolicy,
    XidSeverity,
};

/// Maximum gap between XIDs of a GPU in one burst (NVSentinel: 3 minutes).
const BURST_MS: u64 = 3 * MINUTE_MS;
/// Time for which a sticky XID belongs to the burst in which it was first seen (NVSentinel: 3 hours).
const STICKY_MS: u64 = 3 * HOUR_MS;
/// Time after another XID of its GPU within which a consequence is folded into it: 60 s.
const CONSEQUENCE_MS: u64 = MINUTE_MS;
/// Occurrences remembered per GPU: the newest ones.
pub const OCCURRENCES_PER_GPU_MAX: u32 = 64;
/// Retention of occurrences: no rule or repeat policy looks further back.
pub const OCCURRENCE_KEPT_MS: u64 = 7 * DAY_MS;
/// Maximum number of GPUs with occurrences; beyond it, the one with the oldest last occurrence is dropped.
pub(super) const GPUS_MAX: usize = 16_384;
/// Maximum number of jobs whose XIDs are tracked across GPUs; beyond it, the oldest is dropped.
const JOBS_MAX: usize = 4_096;
/// The XID that never counts as a repeated fatal one.
const PAGE_FAULT: u32 = 31;
/// The XID that counts by the cluster that it names.
const EXCEPTION: u32 = 13;
/// The rule of all XIDs.
const XID: &str = "xid";

/// A reported XID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XidReport {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Number of the code.
    pub code: u32,
    /// The graphics and texture cluster that it names.
    pub cluster: Option<(u16, u16)>,
    /// The job whose task held the GPU.
    pub job: Option<JobId>,
    /// User who owns the job.
    pub user: Option<String>,
    /// Time of the XID.
    pub at: TimeMs,
    /// Whether the scheduler was stopping the task at the time.
    pub is_ours: bool,
}

/// The first XID of its code in a burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    /// Number of the code.
    pub code: u32,
    /// The cluster that it names.
    pub cluster: Option<(u16, u16)>,
    /// Job of the task.
    pub job: Option<JobId>,
    /// User who owns the job.
    pub user: Option<String>,
    /// Time of the first occurrence.
    pub at: TimeMs,
    /// Time of the last occurrence.
    pub last: TimeMs,
    /// Number of the GPU's burst.
    pub burst: u64,
    /// Whether it alone means that the GPU does not work.
    pub is_fatal: bool,
}

/// Escalation because of repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escalation {
    /// Name of the health rule.
    pub rule: &'static str,
    /// Action for the GPU.
    pub then: DeviceAction,
    /// Whether it is blocked; otherwise it is checked once nothing runs on it.
    pub blocks: bool,
    /// Description of the count.
    pub evidence: String,
}

/// Assessment of an XID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XidOutcome {
    /// Whether it is a consequence of another one, or of a stop by the scheduler: it is dropped.
    pub is_folded: bool,
    /// Whether it is the first of its code in a burst.
    pub is_new: bool,
    /// Whether its job had it on several GPUs: it is attributed to the job, and its GPUs are cleared.
    pub is_jobs_own: bool,
    /// The GPUs that are cleared.
    pub taken_back: Vec<GpuUuid>,
    /// Escalations because of repetition.
    pub escalations: Vec<Escalation>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct GpuXids {
    occurrences: Vec<Occurrence>,
    burst: u64,
    last: TimeMs,
    /// Time of the last code that is not a consequence.
    root_at: Option<TimeMs>,
}

/// GPUs on which a job had a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JobSpread {
    gpu: GpuUuid,
    at: TimeMs,
    is_wide: bool,
}

/// The XIDs of all GPUs of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xids {
    gpus: BTreeMap<GpuUuid, GpuXids>,
    jobs: BTreeMap<(JobId, u32), JobSpread>,
}

impl Xids {
    /// Records an XID. Times never go back.
    pub fn record(&mut self, rules: &RuleSet, seen: &XidReport) -> XidOutcome {
        let Some(policy) = rules.codes.xid(seen.code) else {
            return XidOutcome::default();
        };
        self.make_room(seen.gpu);
        let gpu = self.gpus.entry(seen.gpu).or_default();
        if policy.consequence && (seen.is_ours || gpu.follows(seen.at)) {
            return XidOutcome {
                is_folded: true,
                ..XidOutcome::default()
            };
        }
        if !gpu.add(policy, seen) {
            return XidOutcome::default();
        }
        let mut outcome = XidOutcome {
            is_new: true,
            ..XidOutcome::default()
        };
        if may_be_jobs_own(policy) && self.is_on_several_gpus(seen) {
            outcome.taken_back = self.take_back(seen);
            outcome.is_jobs_own = true;
            return outcome;
        }
        if let Some(gpu) = self.gpus.get(&seen.gpu) {
            outcome
                .escalations
                .extend(gpu.repeated(rules, policy, seen));
            let often = gpu.often_fatal(rules, policy, seen.at);
            outcome.escalations.extend(often);
        }
        outcome
    }

    /// Drops everything about a GPU: it was unblocked by an admin, or is gone.
    pub fn forget(&mut self, gpu: GpuUuid) {
        self.gpus.remove(&gpu);
    }

    /// Remembered occurrences of a GPU, oldest first.
    #[must_use]
    pub fn of(&self, gpu: GpuUuid) -> &[Occurrence] {
        self.gpus.get(&gpu).map_or(&[], |gpu| &gpu.occurrences)
    }

    /// Whether the job of an XID has had it on another GPU within a day.
    fn is_on_several_gpus(&mut self, seen: &XidReport) -> bool {
        let Some(job) = seen.job else {
            return false;
        };
        self.jobs
            .retain(|_, spread| seen.at.since(spread.at) <= DAY_MS);
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(&(job, seen.code)) {
            let oldest = self.jobs.iter().min_by_key(|(_, spread)| spread.at);
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.jobs.remove(&key);
            }
        }
        let spread = self.jobs.entry((job, seen.code)).or_insert(JobSpread {
            gpu: seen.gpu,
            at: seen.at,
            is_wide: false,
        });
        spread.is_wide |= spread.gpu != seen.gpu;
        spread.at = seen.at;
        spread.is_wide
    }

    /// Drops a job's occurrences of a code on all GPUs; returns the affected GPUs.
    fn take_back(&mut self, seen: &XidReport) -> Vec<GpuUuid> {
        let is_its = |it: &Occurrence| it.code == seen.code && it.job == seen.job;
        let mut had_some = Vec::new();
        for (uuid, gpu) in &mut self.gpus {
            let before = gpu.occurrences.len();
            gpu.occurrences.retain(|it| !is_its(it));
            had_some.extend((gpu.occurrences.len() < before).then_some(*uuid));
        }
        had_some
    }

    fn make_room(&mut self, gpu: GpuUuid) {
        if self.gpus.len() < GPUS_MAX || self.gpus.contains_key(&gpu) {
            return;
        }
        let oldest = self.gpus.iter().min_by_key(|(_, gpu)| gpu.last);
        if let Some(gpu) = oldest.map(|(gpu, _)| *gpu) {
            self.gpus.remove(&gpu);
        }
    }
}

/// Whether an XID is attributed to the job if the job has it on several GPUs.
fn may_be_jobs_own(policy: &XidPolicy) -> bool {
    let is_open = matches!(policy.blame, Blame::User | Blame::Ambiguous);
    is_open && policy.severity != XidSeverity::Fatal
}

impl GpuXids {
    /// Whether another XID came shortly before.
    fn follows(&self, at: TimeMs) -> bool {
        self.root_at
            .is_some_and(|root| at.since(root) <= CONSEQUENCE_MS)
    }

    /// Adds an XID; returns whether it is the first of its code in a burst.
    fn add(&mut self, policy: &XidPolicy, seen: &XidReport) -> bool {
        let XidReport { code, at, .. } = *seen;
        self.occurrences
            .retain(|it| at.since(it.last) <= OCCURRENCE_KEPT_MS);
        if at.since(self.last) > BURST_MS || self.burst == 0 {
            self.burst += 1;
        }
        self.last = at;
        if !policy.consequence {
            self.root_at = Some(at);
            // A consequence may be reported before its cause.
            self.occurrences
                .retain(|it| !(is_consequence(it.code) && at.since(it.at) <= CONSEQUENCE_MS));
        }
        let burst = self.burst;
        // The same code elsewhere on the GPU, or of another job, is another occurrence.
        let is_same = |it: &&mut Occurrence| {
            it.code == code
                && it.cluster == seen.cluster
                && it.job == seen.job
                && (it.burst == burst || policy.sticky && at.since(it.at) <= STICKY_MS)
        };
        if let Some(known) = self.occurrences.iter_mut().rev().find(is_same) {
            known.last = at;
            return false;
        }
        if self.occurrences.len() >= OCCURRENCES_PER_GPU_MAX as usize {
            self.occurrences.remove(0);
        }
        self.occurrences.push(Occurrence {
            code,
            cluster: seen.cluster,
            job: seen.job,
            user: seen.user.clone(),
            at,
            last: at,
            burst,
            is_fatal: policy.severity == XidSeverity::Fatal,
        });
        true
    }

    /// Escalation if the XID came often enough: for its own rule, or else for its policy.
    fn repeated(
        &self,
        rules: &RuleSet,
        policy: &XidPolicy,
        seen: &XidReport,
    ) -> Option<Escalation> {
        let repeat = policy.repeat?;
        let id = match (policy.code, seen.cluster) {
            (PAGE_FAULT, _) => XID_31,
            (EXCEPTION, Some(_)) => XID_13,
            _ => XID,
        };
        let own = rules.rule(id).filter(|_| id != XID);
        let then = own.map_or(repeat.then, |rule| rule.fatal.device());
        let often = rules.often(id).unwrap_or(Frequency {
            times: repeat.count,
            span_ms: repeat.span_ms,
        });
        let counts = |it: &&Occurrence| {
            it.code == policy.code
                && it.cluster == seen.cluster
                && seen.at.since(it.at) <= often.span_ms
        };
        let found: Vec<&Occurrence> = self.occurrences.iter().filter(counts).collect();
        let jobs: BTreeSet<JobId> = found.iter().filter_map(|it| it.job).collect();
        let users: BTreeSet<&str> = found.iter().filter_map(|it| it.user.as_deref()).collect();
        if found.len() < often.times as usize {
            return None;
        }
        let blocks = is_of_enough(repeat, jobs.len(), users.len());
        // One user's jobs alone do not block a GPU; it is checked when idle.
        if !blocks && then != DeviceAction::Check {
            return None;
        }
        Some(Escalation {
            rule: id,
            then,
            blocks,
            evidence: format!(
                "{}{} bursts of {} jobs of {} users within {}",
                repeated_words(policy.code),
                found.len(),
                jobs.len(),
                users.len(),
                often.span()
            ),
        })
    }

    /// Whether fatal XIDs of any code came as often as their rule requires.
    fn often_fatal(&self, rules: &RuleSet, policy: &XidPolicy, at: TimeMs) -> Option<Escalation> {
        let often = rules.often(XID_REPEAT)?;
        let then = rules.rule(XID_REPEAT)?.fatal.device();
        let counts = |it: &&Occurrence| {
            it.is_fatal && it.code != PAGE_FAULT && at.since(it.at) <= often.span_ms
        };
        let found = self.occurrences.iter().filter(counts);
        let bursts: BTreeSet<u64> = found.map(|it| it.burst).collect();
        let is_fatal = policy.severity == XidSeverity::Fatal;
        (is_fatal && bursts.len() >= often.times as usize).then(|| Escalation {
            rule: XID_REPEAT,
            then,
            blocks: true,
            evidence: format!(
                "{} bursts of fatal XIDs within {}",
                bursts.len(),
                often.span()
            ),
        })
    }
}

/// Prefix of the evidence of a repetition.
#[must_use]
pub fn repeated_words(code: u32) -> String {
    format!("XID {code} in ")
}

/// Whether repetitions involve as many jobs and users as a policy requires.
fn is_of_enough(repeat: RepeatPolicy, jobs: usize, users: usize) -> bool {
    match repeat.distinct {
        Distinct::Any => true,
        Distinct::Jobs => jobs >= 2,
        Distinct::Users => jobs >= 2 && users >= 2,
    }
}

/// Whether a code is folded, for occurrences whose policy is not available.
const fn is_consequence(code: u32) -> bool {
    matches!(code, 45 | 154 | 159 | 171 | 172)
}
