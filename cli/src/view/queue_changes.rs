//! Effect of a change of the queue tree.

use jiff::Timestamp;
use muster_model::quota::{Amounts, Guarantee};
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Table, counted};
use crate::view::queue::{amounts, guaranteed, listed};
use crate::view::word::word;

/// Effect of applying a queue tree, or of a dry run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueChangesView {
    revision: u64,
    dry_run: bool,
    changes: Vec<QueueChangeView>,
}

/// Change of one queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueChangeView {
    name: String,
    change: String,
    live_jobs: u64,
    held: Amounts,
    guarantee: Option<Guarantee>,
    reclaimable: Option<Amounts>,
    guarantee_before: Option<Guarantee>,
    guarantee_lost: Option<Amounts>,
    cells_lost: u64,
    over_limit: Option<Amounts>,
    users_over_limit: Vec<UserOverLimitView>,
    jobs_over_limit: NamedJobsView,
    jobs_too_large: NamedJobsView,
    downgraded: NamedJobsView,
}

/// Usage of a user over its limit.
#[derive(Clone, Debug, Serialize)]
struct UserOverLimitView {
    user: String,
    over: Amounts,
}

/// Counted jobs, with the first of them by id.
#[derive(Clone, Debug, Default, Serialize)]
struct NamedJobsView {
    total: u64,
    first: Vec<u64>,
}

impl QueueChangesView {
    /// The cluster's answer.
    pub(crate) fn new(dry_run: bool, answer: v1::ConfigureQueuesResponse) -> Self {
        Self {
            revision: answer.revision,
            dry_run,
            changes: answer
                .changes
                .into_iter()
                .map(QueueChangeView::from)
                .collect(),
        }
    }

    /// One line, and a table of the queues that change.
    pub(crate) fn render(&self) -> String {
        let count = self.changes.len();
        let mut text = match (self.dry_run, count) {
            (true, 0) => "no queue would change (dry run)\n".to_owned(),
            (false, 0) => "no queue changed\n".to_owned(),
            (true, count) => format!(
                "{} would change (dry run, nothing was changed)\n",
                counted(count as u64, "queue")
            ),
            (false, count) => format!("{} changed\n", counted(count as u64, "queue")),
        };
        if count == 0 {
            return text;
        }
        text.push_str(&render_changes(&self.changes));
        text
    }

    /// Names of the queues that change, one per line.
    pub(crate) fn names(&self) -> String {
        let names = self.changes.iter();
        names.map(|change| format!("{}\n", change.name)).collect()
    }
}

/// A table of queues that change, and a line for every notable effect.
pub(crate) fn render_changes(changes: &[QueueChangeView]) -> String {
    let mut table = Table::new(QueueChangeView::COLUMNS, false);
    for change in changes {
        table.push(change.cells(Timestamp::UNIX_EPOCH));
    }
    let notes = changes.iter().flat_map(QueueChangeView::notes);
    let lines = table.render(true);
    let lines = lines.lines().map(ToOwned::to_owned).chain(notes);
    lines.map(|line| format!("  {line}\n")).collect()
}

impl QueueChangeView {
    fn notes(&self) -> Vec<String> {
        let name = &self.name;
        let mut notes = Vec::new();
        if let Some(lost) = &self.guarantee_lost {
            notes.push(format!("{name}: guarantee reduced by {}", listed(lost)));
        }
        if self.cells_lost > 0 {
            let cells = counted(self.cells_lost, "cell");
            notes.push(format!("{name}: guarantee reduced by {cells}"));
        }
        if let Some(over) = &self.over_limit {
            let over = listed(over);
            notes.push(format!(
                "{name}: holds {over} over its limit; nothing is stopped, and nothing new starts until it is below"
            ));
        }
        for UserOverLimitView { user, over } in &self.users_over_limit {
            let over = listed(over);
            notes.push(format!("{name}: user {user} holds {over} over its limit"));
        }
        let kinds = [
            (&self.jobs_over_limit, "run beyond its limit, the newest"),
            (
                &self.jobs_too_large,
                "ask for more than its limit and could never start",
            ),
            (
                &self.downgraded,
                "lose their cells and continue as opportunistic work",
            ),
        ];
        let jobs = kinds.iter().filter(|(jobs, _)| jobs.total > 0);
        notes.extend(jobs.map(|(jobs, what)| {
            format!(
                "{name}: {} {what}: {}",
                counted(jobs.total, "job"),
                jobs.names()
            )
        }));
        notes
    }
}

impl NamedJobsView {
    fn names(&self) -> String {
        let ids: Vec<String> = self.first.iter().map(ToString::to_string).collect();
        let more = if self.total > self.first.len() as u64 {
            ", ..."
        } else {
            ""
        };
        format!("{}{more}", ids.join(", "))
    }
}

impl From<v1::NamedJobs> for NamedJobsView {
    fn from(jobs: v1::NamedJobs) -> Self {
        Self {
            total: jobs.total,
            first: jobs.job_ids,
        }
    }
}

impl From<v1::QueueChange> for QueueChangeView {
    fn from(change: v1::QueueChange) -> Self {
        let guarantee = |wire: Option<v1::Guarantee>| Guarantee::try_from(wire?).ok();
        let named = |jobs: Option<v1::NamedJobs>| jobs.map(Into::into).unwrap_or_default();
        let users = change.users_over_limit.into_iter();
        let users = users.map(|user| UserOverLimitView {
            over: amounts(user.over),
            user: user.user,
        });
        Self {
            guarantee_before: guarantee(change.guarantee_before),
            guarantee_lost: change.guarantee_lost.map(Amounts::from),
            cells_lost: change.cells_lost,
            over_limit: change.over_limit.map(Amounts::from),
            users_over_limit: users.collect(),
            jobs_over_limit: named(change.jobs_over_limit),
            jobs_too_large: named(change.jobs_too_large),
            downgraded: named(change.downgraded),
            change: word(
                v1::queue_change::Kind::try_from(change.kind)
                    .unwrap_or_default()
                    .as_str_name(),
                "KIND_",
            ),
            name: change.name,
            live_jobs: change.live_jobs,
            held: amounts(change.usage),
            guarantee: guarantee(change.guarantee),
            reclaimable: change.reclaimable.map(Amounts::from),
        }
    }
}

impl Row for QueueChangeView {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("CHANGE"),
        Column::new("LIVE JOBS"),
        Column::new("HELD"),
        Column::new("GUARANTEED"),
        Column::new("RECLAIMABLE"),
    ];
    const KEY: &'static str = "changes";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let none = || "-".to_owned();
        vec![
            (*self.name).into(),
            (*self.change).into(),
            self.live_jobs.to_string().into(),
            listed(&self.held).into(),
            self.guarantee.as_ref().map_or_else(none, guaranteed).into(),
            self.reclaimable.as_ref().map_or_else(none, listed).into(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
