//! Effect of a change of the queue tree.

use muster_documents::{NamedJobs, QueueChange, QueueChanges, UserOverLimit};

use crate::output::{Cell, Column, Table, counted};
use crate::view::queue::{guaranteed, listed};

const COLUMNS: &[Column] = &[
    Column::new("NAME"),
    Column::new("CHANGE"),
    Column::new("LIVE JOBS"),
    Column::new("HELD"),
    Column::new("GUARANTEED"),
    Column::new("RECLAIMABLE"),
];

/// One line, and a table of the queues that change.
pub(crate) fn render(effect: &QueueChanges) -> String {
    let count = effect.changes.len();
    let mut text = match (effect.dry_run, count) {
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
    text.push_str(&render_changes(&effect.changes));
    text
}

/// Names of the queues that change, one per line.
pub(crate) fn names(effect: &QueueChanges) -> String {
    let names = effect.changes.iter();
    names.map(|change| format!("{}\n", change.name)).collect()
}

/// A table of queues that change, and a line for every notable effect.
pub(crate) fn render_changes(changes: &[QueueChange]) -> String {
    let mut table = Table::new(COLUMNS, false);
    for change in changes {
        table.push(cells(change));
    }
    let notes = changes.iter().flat_map(notes);
    let lines = table.render(true);
    let lines = lines.lines().map(ToOwned::to_owned).chain(notes);
    lines.map(|line| format!("  {line}\n")).collect()
}

/// Notable effects of the change of a queue.
fn notes(change: &QueueChange) -> Vec<String> {
    let name = &change.name;
    let mut notes = Vec::new();
    if let Some(lost) = &change.guarantee_lost {
        notes.push(format!("{name}: guarantee reduced by {}", listed(lost)));
    }
    if change.cells_lost > 0 {
        let cells = counted(change.cells_lost, "cell");
        notes.push(format!("{name}: guarantee reduced by {cells}"));
    }
    if let Some(over) = &change.over_limit {
        let over = listed(over);
        notes.push(format!(
            "{name}: holds {over} over its limit; nothing is stopped, and nothing new starts until it is below"
        ));
    }
    for UserOverLimit { user, over } in &change.users_over_limit {
        let over = listed(over);
        notes.push(format!("{name}: user {user} holds {over} over its limit"));
    }
    let kinds = [
        (&change.jobs_over_limit, "run beyond its limit, the newest"),
        (
            &change.jobs_too_large,
            "ask for more than its limit and could never start",
        ),
        (
            &change.downgraded,
            "lose their cells and continue as opportunistic work",
        ),
    ];
    let jobs = kinds.into_iter().filter(|(jobs, _)| jobs.total > 0);
    notes.extend(jobs.map(|(jobs, what)| {
        format!(
            "{name}: {} {what}: {}",
            counted(jobs.total, "job"),
            first_of(jobs)
        )
    }));
    notes
}

/// Ids of the first of counted jobs.
fn first_of(jobs: &NamedJobs) -> String {
    let ids: Vec<String> = jobs.first.iter().map(ToString::to_string).collect();
    let more = if jobs.total > jobs.first.len() as u64 {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", ids.join(", "))
}

fn cells(change: &QueueChange) -> Vec<Cell> {
    let none = || "-".to_owned();
    let guarantee = change.guarantee.as_ref();
    vec![
        (*change.name).into(),
        change.change.as_str().into(),
        change.live_jobs.to_string().into(),
        listed(&change.held).into(),
        guarantee.map_or_else(none, guaranteed).into(),
        change.reclaimable.as_ref().map_or_else(none, listed).into(),
    ]
}
