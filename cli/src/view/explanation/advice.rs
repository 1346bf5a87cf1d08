//! Remedies for a waiting job, as text.

use jiff::Timestamp;
use muster_proto::v1;

use crate::output::{counted, span, until};
use crate::view::word::block_target;

/// A remedy as an instruction.
pub(super) fn remedy(remedy: &v1::Remedy, now: Timestamp) -> Option<String> {
    use v1::remedy::Kind;
    Some(match remedy.kind.as_ref()? {
        Kind::WaitUntilMs(at) => format!("wait; due {}", until(now, *at)),
        Kind::PlaceAheadJobId(job) => {
            format!("job {job} goes first: it has to be placed, changed or cancelled")
        }
        Kind::Unblock(blocked) => {
            let targets = blocked.targets.iter();
            let targets: Vec<String> = targets.map(|it| block_target(Some(it))).collect();
            format!("unblock {}", targets.join(", "))
        }
        Kind::FreeGpus(lacking) => format!(
            "{} more free on one host; {} is nearest",
            counted(lacking.gpus, "GPU"),
            lacking.host
        ),
        Kind::FreeRoom(lacking) => format!(
            "room for {} more, each with {}",
            counted(lacking.tasks, "task"),
            lacking.each
        ),
        Kind::Grow(need) => format!("add {need} to the cluster, or ask for less"),
        Kind::RaiseLimit(reached) => raise(reached),
        Kind::BorrowQueue(queue) => {
            format!("let queue {queue} borrow idle resources (`borrow: true`)")
        }
        Kind::Change(asked) => change(asked)?,
    })
}

fn raise(reached: &v1::LimitReached) -> String {
    let field = match reached.kind() {
        v1::limit_reached::Kind::User => "user_limit",
        v1::limit_reached::Kind::Guarantee => "guarantee",
        _ => "limit",
    };
    let otherwise = if reached.asked > reached.limit {
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

fn change(change: &v1::JobChange) -> Option<String> {
    use v1::job_change::Kind;
    Some(match change.kind.as_ref()? {
        Kind::FewerTasks(fewer) => format!(
            "ask for {} of group {}: that many fit now",
            counted(fewer.tasks, "task"),
            fewer.group
        ),
        Kind::Within(within) => {
            let verb = if within.required {
                "require"
            } else {
                "only prefer"
            };
            let group = within.group.as_ref();
            let group = group.map_or_else(String::new, |group| format!(" for group {group}"));
            format!("{verb} `within: {}`{group}", within.level)
        }
        Kind::AnyPlace(_) => "do not restrict hosts and GPUs".to_owned(),
        Kind::IncludeHosts(hosts) => format!("do not exclude {}", hosts.names.join(", ")),
        Kind::AcceptModels(models) => {
            format!("accept GPUs of model {} too", models.names.join(", "))
        }
        Kind::TasksPerHost(most) => match most.tasks {
            Some(tasks) => format!(
                "let {} of group {} share a host",
                counted(tasks, "task"),
                most.group
            ),
            None => format!("let all tasks of group {} share a host", most.group),
        },
        Kind::ShareHosts(_) => "let other jobs share its hosts (no `exclusive`)".to_owned(),
        Kind::Less(less) => {
            let cpus = less
                .cpus_milli
                .map(|milli| format!("{milli} thousandths of CPUs"));
            let memory = less.memory_mib.map(|mib| format!("{mib} MiB"));
            let most: Vec<String> = cpus.into_iter().chain(memory).collect();
            format!("ask for at most {} for each task", most.join(" and "))
        }
        Kind::RunTimeMsMax(run_time_ms_max) => format!(
            "give it a `run_time` of at most {}: then it ends before the reserved start",
            span(*run_time_ms_max)
        ),
        Kind::Opportunistic(_) => "submit it as `opportunistic`".to_owned(),
    })
}
