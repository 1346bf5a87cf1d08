//! A queue in a list and in detail.

use jiff::Timestamp;
use muster_documents::Queue;
use muster_model::quota::{Amounts, Guarantee, Limits, QueueOrder};

use crate::output::{Cell, Column, Row, Table, Tone, span};

impl Row for Queue {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("GPUS HELD"),
        Column::new("GUARANTEED"),
        Column::new("AT MOST"),
        Column::wide("OPPORTUNISTIC"),
        Column::wide("CLAIMED"),
        Column::wide("WEIGHT"),
        Column::wide("ORDER"),
        Column::new("LIVE JOBS"),
        Column::new("LIMIT"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let config = self.config.clone().unwrap_or_default();
        let at_most = config.limit.gpus.map(|gpus| gpus.to_string());
        let name = if self.retired {
            Cell::toned(format!("{} (retired)", self.name), Tone::Faint)
        } else {
            (*self.name).into()
        };
        vec![
            name,
            self.usage.held.gpus.to_string().into(),
            guaranteed(&config.guarantee).into(),
            at_most.unwrap_or_else(|| "-".to_owned()).into(),
            self.usage.opportunistic.gpus.to_string().into(),
            self.usage.claimed.gpus.to_string().into(),
            config.weight.to_string().into(),
            order(config.order).into(),
            self.live_jobs.to_string().into(),
            self.live_jobs_max.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

const USER_COLUMNS: &[Column] = &[
    Column::new("USER"),
    Column::new("GPUS HELD"),
    Column::new("OPPORTUNISTIC"),
    Column::new("CLAIMED"),
];

/// Complete text.
pub(crate) fn render(queue: &Queue) -> String {
    let mut table = Table::new(&[Column::new(""), Column::new("")], false);
    for (key, value) in facts(queue) {
        table.push(vec![Cell::toned(key, Tone::Faint), value.into()]);
    }
    let mut text = table.render(false);
    if queue.users.is_empty() {
        return text;
    }
    let mut users = Table::new(USER_COLUMNS, false);
    for user in &queue.users {
        users.push(vec![
            (*user.user).into(),
            user.usage.held.gpus.to_string().into(),
            user.usage.opportunistic.gpus.to_string().into(),
            user.usage.claimed.gpus.to_string().into(),
        ]);
    }
    text.push('\n');
    text.push_str(&users.render(true));
    text
}

fn facts(queue: &Queue) -> Vec<(&'static str, String)> {
    let config = queue.config.clone().unwrap_or_default();
    let jobs = format!("{} of at most {}", queue.live_jobs, queue.live_jobs_max);
    let state = if queue.retired {
        "retired: it takes no new jobs"
    } else {
        "open"
    };
    vec![
        ("Queue", queue.name.clone()),
        ("State", state.to_owned()),
        ("Live jobs", jobs),
        ("Held", listed(&queue.usage.held)),
        ("Opportunistic", listed(&queue.usage.opportunistic)),
        ("Claimed", listed(&queue.usage.claimed)),
        ("Guaranteed", guarantee_listed(&config.guarantee)),
        ("At most", limits_listed(&config.limit)),
        ("Each user", limits_listed(&config.user_limit)),
        ("Weight", config.weight.to_string()),
        ("Order", order(config.order).to_owned()),
        ("Borrows", yes_no(config.borrow)),
        ("Preempts by priority", yes_no(config.preempt_by_priority)),
        ("Backfills", yes_no(config.backfill)),
        ("Reserves after", span(config.reserve_after_ms)),
        ("Protects for", span(config.protected_ms)),
        ("Movable", yes_no(config.movable)),
    ]
}

fn yes_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

fn order(order: QueueOrder) -> &'static str {
    match order {
        QueueOrder::Priority => "priority",
        QueueOrder::Fifo => "fifo",
        QueueOrder::Fair => "fair",
    }
}

/// A guarantee in one short cell: GPUs, or cells by level.
pub(super) fn guaranteed(guarantee: &Guarantee) -> String {
    match guarantee {
        Guarantee::Amounts(amounts) if amounts.gpus == 0 => "-".to_owned(),
        Guarantee::Amounts(amounts) => amounts.gpus.to_string(),
        Guarantee::Cells(quotas) => {
            let quotas = quotas.iter().map(|quota| {
                let cells = quota.count as usize + quota.pinned.len();
                format!("{cells} {} x {}", quota.level, quota.gpus)
            });
            quotas.collect::<Vec<_>>().join(", ")
        }
    }
}

fn guarantee_listed(guarantee: &Guarantee) -> String {
    match guarantee {
        Guarantee::Amounts(amounts) => listed(amounts),
        Guarantee::Cells(quotas) => {
            let quotas = quotas.iter().map(|quota| {
                let pinned = quota.pinned.iter().map(|cell| cell.cell.as_str());
                let pinned: Vec<_> = pinned.collect();
                let mut text = format!(
                    "{} {} with {} {}",
                    quota.count, quota.level, quota.gpus, quota.gpu_model
                );
                if !pinned.is_empty() {
                    text.push_str(&format!(", and {}", pinned.join(", ")));
                }
                text
            });
            quotas.collect::<Vec<_>>().join("; ")
        }
    }
}

/// Amounts as text; zero amounts are omitted.
pub(super) fn listed(amounts: &Amounts) -> String {
    let limits = Limits {
        gpus: Some(amounts.gpus).filter(|it| *it > 0),
        gpus_by_model: amounts.gpus_by_model.clone(),
        cpus_milli: Some(amounts.cpus_milli).filter(|it| *it > 0),
        memory_mib: Some(amounts.memory_mib).filter(|it| *it > 0),
    };
    let text = limits_listed(&limits);
    if text == "no limit" {
        "nothing".to_owned()
    } else {
        text
    }
}

fn limits_listed(limits: &Limits) -> String {
    let mut texts = Vec::new();
    texts.extend(limits.gpus.map(|gpus| format!("{gpus} GPUs")));
    let models = limits.gpus_by_model.iter();
    texts.extend(models.map(|(model, gpus)| format!("{gpus} {model}")));
    texts.extend(limits.cpus_milli.map(|milli| {
        let cpus = crate::parse::CpuCount {
            milli: u32::try_from(milli).unwrap_or(u32::MAX),
        };
        format!("{cpus} CPUs")
    }));
    texts.extend(
        limits
            .memory_mib
            .map(|mib| crate::parse::HumanSize { mib }.to_string()),
    );
    if texts.is_empty() {
        return "no limit".to_owned();
    }
    texts.join(", ")
}
