//! Events of a host in four weeks, weighted by age.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use muster_model::time::{DAY_MS, MINUTE_MS, TimeMs};
use serde::{Deserialize, Serialize};

/// A week: the half-life of events counted against a host.
const WEEK_MS: u64 = 7 * DAY_MS;
/// Weeks that count (Meta: 28 days).
const WEEKS: usize = 4;
/// Failures within this span are one: the same span groups rack and fabric incidents.
const TOGETHER_MS: u64 = MINUTE_MS;
/// Maximum number of distinct XIDs.
const CODES_MAX: usize = 32;

/// Events of one week.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Week {
    began: TimeMs,
    starts: u32,
    failures: u32,
    single: u32,
    shared_milli: u32,
    blocks: u32,
    codes: BTreeMap<u32, u32>,
}

/// Record of a host. Replicated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Weeks, newest last.
    weeks: VecDeque<Week>,
    /// Time of the last counted failure, and of the last one of the infrastructure.
    #[serde(default)]
    failed_at: Option<TimeMs>,
    #[serde(default)]
    infra_failed_at: Option<TimeMs>,
}

/// Summary of a record at one time. Values in thousandths are aged: halved each week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of tasks that started.
    pub starts: u32,
    /// Of those that ran on it alone, the failures not certainly attributed to the program.
    pub failures: u32,
    /// Certain infrastructure failures of tasks that ran on it alone.
    pub single_milli: u32,
    /// Its shares of failures of gangs.
    pub shared_milli: u32,
    /// Number of blocks and repairs.
    pub blocks_milli: u32,
    /// Number of distinct XIDs that are not attributed to programs.
    pub codes: u32,
    /// Number of users who exclude it.
    pub excludes: u32,
}

impl HostRecord {
    /// A task started.
    pub fn start(&mut self, now: TimeMs) {
        self.week(now).starts += 1;
    }

    /// A task that ran on it alone failed, and the failure is not attributed to the program. Simultaneous
    /// failures count once: a lost host takes everything with it that ran there.
    pub fn fail(&mut self, now: TimeMs, is_infra: bool) {
        let is_apart = |last: Option<TimeMs>| last.is_none_or(|at| now.since(at) > TOGETHER_MS);
        let counts = is_apart(self.failed_at);
        let counts_as_infra = is_infra && is_apart(self.infra_failed_at);
        let week = self.week(now);
        week.failures += u32::from(counts);
        week.single += u32::from(counts_as_infra);
        if counts {
            self.failed_at = Some(now);
        }
        if counts_as_infra {
            self.infra_failed_at = Some(now);
        }
    }

    /// Withdraws a failure that was the program's after all.
    pub fn take_back(&mut self, now: TimeMs) {
        let week = self.week(now);
        week.failures = week.failures.saturating_sub(1);
    }

    /// A gang that it was part of failed.
    pub fn share(&mut self, now: TimeMs, milli: u32) {
        let week = self.week(now);
        week.shared_milli = week.shared_milli.saturating_add(milli);
    }

    /// It was blocked or repaired.
    pub fn block(&mut self, now: TimeMs) {
        self.week(now).blocks += 1;
    }

    /// It was blocked together with many others.
    pub fn excuse_block(&mut self, now: TimeMs) {
        let week = self.week(now);
        week.blocks = week.blocks.saturating_sub(1);
    }

    /// A GPU of it raised an XID that is not attributed to the program.
    pub fn code(&mut self, now: TimeMs, code: u32) {
        let week = self.week(now);
        if week.codes.len() < CODES_MAX || week.codes.contains_key(&code) {
            *week.codes.entry(code).or_default() += 1;
        }
    }

    /// Summarizes what still counts.
    #[must_use]
    pub fn counts(&self, now: TimeMs, excludes: u32) -> Counts {
        let mut counts = Counts {
            excludes,
            ..Counts::default()
        };
        let mut codes: BTreeSet<u32> = BTreeSet::new();
        for week in &self.weeks {
            let age = now.since(week.began) / WEEK_MS;
            if age >= WEEKS as u64 {
                continue;
            }
            let aged = |milli: u32| milli >> age;
            counts.starts += week.starts;
            counts.failures += week.failures;
            counts.single_milli += aged(week.single.saturating_mul(1_000));
            counts.shared_milli += aged(week.shared_milli);
            counts.blocks_milli += aged(week.blocks.saturating_mul(1_000));
            codes.extend(week.codes.keys());
        }
        counts.codes = u32::try_from(codes.len()).unwrap_or(u32::MAX);
        counts
    }

    fn week(&mut self, now: TimeMs) -> &mut Week {
        let is_over = |week: &Week| now.since(week.began) >= WEEK_MS;
        if self.weeks.back().is_none_or(is_over) {
            if self.weeks.len() >= WEEKS {
                self.weeks.pop_front();
            }
            self.weeks.push_back(Week {
                began: now,
                ..Week::default()
            });
        }
        let at = self.weeks.len() - 1;
        &mut self.weeks[at]
    }
}
