//! Remedies for a waiting job, as text.

use jiff::Timestamp;
use muster_documents::explanation::{LimitKind, LimitReached, Remedy};

use crate::output::{counted, span, until};

/// A remedy as an instruction; `None` if this version does not know it.
// Long, with one arm for each kind, so that the compiler finds a missing one.
pub(super) fn remedy(remedy: &Remedy, now: Timestamp) -> Option<String> {
    Some(match remedy {
        Remedy::Wait { until: at } => format!("wait; due {}", until(now, *at)),
        Remedy::PlaceAhead { job } => {
            format!("job {job} goes first: it has to be placed, changed or cancelled")
        }
        Remedy::Unblock { targets } => format!("unblock {}", targets.join(", ")),
        Remedy::FreeGpus { gpus, host } => format!(
            "{} more free on one host; {host} is nearest",
            counted(*gpus, "GPU")
        ),
        Remedy::FreeRoom { tasks, each } => format!(
            "room for {} more, each with {each}",
            counted(*tasks, "task")
        ),
        Remedy::Grow { need } => format!("add {need} to the cluster, or ask for less"),
        Remedy::RaiseLimit(reached) => raise(reached),
        Remedy::Borrow { queue } => {
            format!("let queue {queue} borrow idle resources (`borrow: true`)")
        }
        Remedy::FewerTasks { group, tasks } => format!(
            "ask for {} of group {group}: that many fit now",
            counted(*tasks, "task")
        ),
        Remedy::Within {
            group,
            level,
            required,
        } => {
            let verb = if *required { "require" } else { "only prefer" };
            let group = group.as_ref();
            let group = group.map_or_else(String::new, |group| format!(" for group {group}"));
            format!("{verb} `within: {level}`{group}")
        }
        Remedy::AnyPlace => "do not restrict hosts and GPUs".to_owned(),
        Remedy::IncludeHosts { hosts } => format!("do not exclude {}", hosts.join(", ")),
        Remedy::AcceptModels { models } => {
            format!("accept GPUs of model {} too", models.join(", "))
        }
        Remedy::TasksPerHost {
            group,
            tasks: Some(tasks),
        } => format!(
            "let {} of group {group} share a host",
            counted(*tasks, "task")
        ),
        Remedy::TasksPerHost { group, tasks: None } => {
            format!("let all tasks of group {group} share a host")
        }
        Remedy::ShareHosts => "let other jobs share its hosts (no `exclusive`)".to_owned(),
        Remedy::Less {
            cpus_milli,
            memory_mib,
        } => {
            let cpus = cpus_milli.map(|milli| format!("{milli} thousandths of CPUs"));
            let memory = memory_mib.map(|mib| format!("{mib} MiB"));
            let most: Vec<String> = cpus.into_iter().chain(memory).collect();
            format!("ask for at most {} for each task", most.join(" and "))
        }
        Remedy::RunTime { run_time_ms_max } => format!(
            "give it a `run_time` of at most {}: then it ends before the reserved start",
            span(*run_time_ms_max)
        ),
        Remedy::Opportunistic => "submit it as `opportunistic`".to_owned(),
        Remedy::Unknown => return None,
    })
}

fn raise(reached: &LimitReached) -> String {
    let field = match reached.of {
        LimitKind::User => "user_limit",
        LimitKind::Guarantee => "guarantee",
        LimitKind::Queue | LimitKind::Unknown => "limit",
    };
    let otherwise = if reached.requested > reached.limit {
        "ask for less"
    } else {
        "wait for other jobs of it to end"
    };
    format!(
        "raise {field} {} of queue {} by {} to {}, or {otherwise}",
        reached.resource,
        reached.queue,
        reached.would_be.saturating_sub(reached.limit),
        reached.would_be
    )
}
