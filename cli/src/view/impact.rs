//! Impact of a block.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Table, counted, instant, until};
use crate::view::block::BlockView;

/// Impact of the block of one host or GPU.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ImpactView {
    pub(crate) target: String,
    revision: u64,
    dry_run: bool,
    begins_at: Option<String>,
    gpus: u32,
    gpus_free: u32,
    jobs_total: u32,
    jobs: Vec<ImpactedJobView>,
    pool: String,
    pool_hosts_left: u32,
    pool_gpus_left: u32,
    takes_last: bool,
    replaces: Option<BlockView>,
    #[serde(skip)]
    takes_work: bool,
    #[serde(skip)]
    is_host: bool,
    #[serde(skip)]
    begins_at_ms: Option<u64>,
}

/// An affected job.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ImpactedJobView {
    id: u64,
    name: String,
    user: String,
    queue: String,
    units: u32,
    gpus: u32,
}

impl ImpactView {
    /// The answer to a block or to a dry run, with the start of a scheduled block.
    pub(crate) fn new(
        (target, is_host): (&str, bool),
        (dry_run, begins_at_ms): (bool, Option<u64>),
        answer: v1::BlockResponse,
    ) -> Self {
        let impact = answer.impact.unwrap_or_default();
        let jobs = impact.jobs.into_iter().map(ImpactedJobView::from);
        Self {
            target: target.to_owned(),
            is_host,
            revision: answer.revision,
            dry_run,
            begins_at: begins_at_ms.map(instant),
            gpus: impact.gpus,
            gpus_free: impact.gpus_free,
            jobs_total: impact.jobs_total,
            jobs: jobs.collect(),
            pool: impact.pool,
            pool_hosts_left: impact.pool_hosts_left,
            pool_gpus_left: impact.pool_gpus_left,
            takes_last: impact.takes_last,
            replaces: impact.replaces.map(BlockView::from),
            takes_work: impact.takes_work,
            begins_at_ms,
        }
    }

    /// One line, and a table of the affected jobs.
    pub(crate) fn render(&self, drain: bool, now: Timestamp) -> String {
        let done = match (self.dry_run, drain) {
            (true, true) => "would be drained",
            (true, false) => "would be blocked",
            (false, true) if self.begins_at_ms.is_some() => "to be drained",
            (false, false) if self.begins_at_ms.is_some() => "to be blocked",
            (false, true) => "draining",
            (false, false) => "blocked",
        };
        let begins = self.begins_at_ms.zip(self.begins_at.as_ref());
        let when = begins.map(|(ms, at)| format!(" {} ({at})", until(now, ms)));
        let when = when.unwrap_or_default();
        let fate = if drain { "moved away" } else { "continuing" };
        let mut text = format!(
            "{} {done}{when}: {} out of placement ({} free), {} {fate}\n",
            self.target,
            counted(self.gpus, "GPU"),
            self.gpus_free,
            counted(self.jobs_total, "job")
        );
        text.extend(self.replaced(now));
        text.extend(self.warning());
        if self.jobs.is_empty() {
            return text;
        }
        let mut table = Table::new(ImpactedJobView::COLUMNS, false);
        for job in &self.jobs {
            table.push(job.cells(now));
        }
        for line in table.render(true).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }
}

impl ImpactView {
    /// Whether it is refused if it blocks the last one. Scheduled blocks and GPUs only cause a warning.
    const fn is_refusable(&self) -> bool {
        self.is_host && self.begins_at_ms.is_none()
    }

    /// The replaced block, with its expiry.
    fn replaced(&self, now: Timestamp) -> Option<String> {
        let block = self.replaces.as_ref()?;
        let replaces = if self.dry_run {
            "would replace"
        } else {
            "replaces"
        };
        let what = match self.begins_at_ms {
            Some(_) => block.text_of_plan(now),
            None => block.text(now),
        };
        Some(format!("  {replaces}: {what}\n"))
    }

    /// Warning that the pool has nothing left, with advice.
    fn warning(&self) -> Option<String> {
        if !self.takes_last {
            return None;
        }
        let what = if self.is_host { "host" } else { "GPU" };
        let mut text = format!(
            "  warning: this is the last {what} of pool {} that accepts work",
            self.pool
        );
        if self.dry_run && self.is_refusable() {
            text.push_str("; refused without --force");
        }
        text.push('\n');
        Some(text)
    }
}

/// Resources blocked by the earlier targets of a request. In a dry run, the cluster evaluates each target
/// alone.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Hosts and GPUs by pool.
    pools: BTreeMap<String, (u32, u32)>,
}

impl Taken {
    /// Evaluates the next target together with those before it; `is_forced`: the last host of a pool may be
    /// blocked.
    pub(crate) fn judge(&mut self, impact: &mut ImpactView, is_forced: bool) {
        let (hosts, gpus) = self.pools.entry(impact.pool.clone()).or_default();
        impact.pool_hosts_left = impact.pool_hosts_left.saturating_sub(*hosts);
        impact.pool_gpus_left = impact.pool_gpus_left.saturating_sub(*gpus);
        if !impact.takes_work {
            return;
        }
        impact.takes_last = if impact.is_host {
            impact.pool_hosts_left == 0
        } else {
            impact.gpus > 0 && impact.pool_gpus_left == 0
        };
        if impact.takes_last && impact.is_refusable() && !is_forced {
            return;
        }
        *hosts += u32::from(impact.is_host);
        *gpus += impact.gpus;
    }
}

impl From<v1::ImpactedJob> for ImpactedJobView {
    fn from(job: v1::ImpactedJob) -> Self {
        Self {
            id: job.job_id,
            name: job.name,
            user: job.user,
            queue: job.queue,
            units: job.units,
            gpus: job.gpus,
        }
    }
}

impl Row for ImpactedJobView {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("NAME"),
        Column::new("USER"),
        Column::new("QUEUE"),
        Column::new("UNITS"),
        Column::new("GPUS"),
    ];
    const KEY: &'static str = "jobs";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            (*self.name).into(),
            (*self.user).into(),
            (*self.queue).into(),
            self.units.to_string().into(),
            self.gpus.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dry run of one of three hosts with two GPUs, all of which accept work.
    fn impact(target: &str, replaces: Option<v1::Block>) -> ImpactView {
        let impact = v1::Impact {
            gpus: 2,
            gpus_free: 2,
            pool: "H100".to_owned(),
            pool_hosts_left: 2,
            pool_gpus_left: 4,
            takes_work: true,
            replaces,
            ..v1::Impact::default()
        };
        let answer = v1::BlockResponse {
            revision: 7,
            impact: Some(impact),
        };
        ImpactView::new((target, true), (true, None), answer)
    }

    fn judged(is_forced: bool) -> Vec<(u32, u32, bool)> {
        let mut taken = Taken::default();
        let judge = |target: &str| {
            let mut impact = impact(target, None);
            taken.judge(&mut impact, is_forced);
            (
                impact.pool_hosts_left,
                impact.pool_gpus_left,
                impact.takes_last,
            )
        };
        ["node01", "node02", "node03"].map(judge).into()
    }

    #[test]
    fn hosts_of_a_pool_are_judged_together() {
        let expected = vec![(2, 4, false), (1, 2, false), (0, 0, true)];
        assert_eq!(judged(false), expected);
        assert_eq!(judged(true), expected);
    }

    #[test]
    fn the_block_that_is_replaced_is_shown_with_its_end() {
        let now = Timestamp::UNIX_EPOCH;
        let before = v1::Block {
            reason: "fan broken".to_owned(),
            author: "ada".to_owned(),
            expires_at_ms: Some(7_200_000),
            ..v1::Block::default()
        };
        let shown = impact("node01", Some(before)).render(false, now);
        assert!(
            shown.contains("\n  would replace: fan broken (ada), ends in 2h\n"),
            "{shown}"
        );
        let shown = impact("node01", None).render(false, now);
        assert!(!shown.contains("replace"), "{shown}");
    }
}
