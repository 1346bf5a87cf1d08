//! Impact of a block.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_documents::{BlockImpact, BlockedJob};
use muster_proto::v1;

use crate::output::{Cell, Column, Table, counted, until};
use crate::view::block;

const JOB_COLUMNS: &[Column] = &[
    Column::new("ID"),
    Column::new("NAME"),
    Column::new("USER"),
    Column::new("QUEUE"),
    Column::new("UNITS"),
    Column::new("GPUS"),
];

/// Impact of the block of one target, and what the document does not say about it.
#[derive(Clone, Debug)]
pub(crate) struct ImpactView {
    /// The document.
    pub(crate) impact: BlockImpact,
    is_host: bool,
    /// Whether the target accepts work now.
    takes_work: bool,
}

impl ImpactView {
    /// The answer to a block or to a dry run, with the start of a scheduled block.
    pub(crate) fn new(
        target: &str,
        is_host: bool,
        dry_run: bool,
        begins_at_ms: Option<u64>,
        answer: v1::BlockResponse,
    ) -> Self {
        let takes_work = answer.impact.as_ref().is_some_and(|it| it.takes_work);
        Self {
            impact: BlockImpact::new(target.to_owned(), dry_run, begins_at_ms, answer),
            is_host,
            takes_work,
        }
    }

    /// One line, and a table of the affected jobs.
    pub(crate) fn render(&self, drain: bool, now: Timestamp) -> String {
        let impact = &self.impact;
        let done = match (impact.dry_run, drain) {
            (true, true) => "would be drained",
            (true, false) => "would be blocked",
            (false, true) if impact.begins_at.is_some() => "to be drained",
            (false, false) if impact.begins_at.is_some() => "to be blocked",
            (false, true) => "draining",
            (false, false) => "blocked",
        };
        let when = impact.begins_at;
        let when = when.map_or_else(String::new, |at| format!(" {} ({at})", until(now, at)));
        let fate = if drain { "moved away" } else { "continuing" };
        let mut text = format!(
            "{} {done}{when}: {} out of placement ({} free), {} {fate}\n",
            impact.target,
            counted(impact.gpus, "GPU"),
            impact.gpus_free,
            counted(impact.jobs_total, "job")
        );
        text.extend(self.replaced(now));
        text.extend(self.warning());
        if impact.jobs.is_empty() {
            return text;
        }
        let mut table = Table::new(JOB_COLUMNS, false);
        for job in &impact.jobs {
            table.push(job_cells(job));
        }
        for line in table.render(true).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }

    /// Whether it is refused if it blocks the last one. Scheduled blocks and GPUs only cause a warning.
    const fn is_refusable(&self) -> bool {
        self.is_host && self.impact.begins_at.is_none()
    }

    /// The replaced block, with its expiry.
    fn replaced(&self, now: Timestamp) -> Option<String> {
        let replaced = self.impact.replaces.as_ref()?;
        let replaces = if self.impact.dry_run {
            "would replace"
        } else {
            "replaces"
        };
        let what = match self.impact.begins_at {
            Some(_) => block::plan_text(replaced, now),
            None => block::text(replaced, now),
        };
        Some(format!("  {replaces}: {what}\n"))
    }

    /// Warning that the pool has nothing left, with advice.
    fn warning(&self) -> Option<String> {
        if !self.impact.takes_last {
            return None;
        }
        let what = if self.is_host { "host" } else { "GPU" };
        let mut text = format!(
            "  warning: this is the last {what} of pool {} that accepts work",
            self.impact.pool
        );
        if self.impact.dry_run && self.is_refusable() {
            text.push_str("; refused without --force");
        }
        text.push('\n');
        Some(text)
    }
}

/// Resources blocked by the earlier targets of a request. In a dry run, the cluster evaluates each target
/// alone.
#[derive(Debug, Default)]
pub(crate) struct BlockedSoFar {
    /// Hosts and GPUs by pool.
    pools: BTreeMap<String, (u32, u32)>,
}

impl BlockedSoFar {
    /// Evaluates the next target together with those before it; `is_forced`: the last host of a pool may be
    /// blocked.
    pub(crate) fn evaluate(&mut self, view: &mut ImpactView, is_forced: bool) {
        let is_refusable = view.is_refusable();
        let (is_host, takes_work) = (view.is_host, view.takes_work);
        let impact = &mut view.impact;
        let (hosts, gpus) = self.pools.entry(impact.pool.clone()).or_default();
        impact.pool_hosts_left = impact.pool_hosts_left.saturating_sub(*hosts);
        impact.pool_gpus_left = impact.pool_gpus_left.saturating_sub(*gpus);
        if !takes_work {
            return;
        }
        impact.takes_last = if is_host {
            impact.pool_hosts_left == 0
        } else {
            impact.gpus > 0 && impact.pool_gpus_left == 0
        };
        if impact.takes_last && is_refusable && !is_forced {
            return;
        }
        *hosts += u32::from(is_host);
        *gpus += impact.gpus;
    }
}

fn job_cells(job: &BlockedJob) -> Vec<Cell> {
    vec![
        job.id.to_string().into(),
        (*job.name).into(),
        (*job.user).into(),
        (*job.queue).into(),
        job.units.to_string().into(),
        job.gpus.to_string().into(),
    ]
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
        ImpactView::new(target, true, true, None, answer)
    }

    fn judged(is_forced: bool) -> Vec<(u32, u32, bool)> {
        let mut taken = BlockedSoFar::default();
        let judge = |target: &str| {
            let mut view = impact(target, None);
            taken.evaluate(&mut view, is_forced);
            let impact = view.impact;
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
