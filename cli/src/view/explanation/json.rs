//! Explanations for programs: a kind, and its figures.

use muster_proto::v1;
use serde_json::{Value, json};

use crate::output::instant;
use crate::view::word::{block_target, word};

/// The reason why a unit waits.
// Long, with one arm for each kind, so that the compiler finds a missing one.
pub(super) fn blocker(blocker: &v1::Blocker) -> Option<Value> {
    use v1::blocker::Kind;
    Some(match blocker.kind.as_ref()? {
        Kind::BackOff(wait) => json!({"kind": "back_off", "until": instant(wait.until_ms)}),
        Kind::Cancelling(_) => json!({"kind": "cancelling"}),
        Kind::Suspended(it) => {
            json!({"kind": "suspended", "author": it.author, "reason": it.reason})
        }
        Kind::Dependencies(waiting) => dependencies(waiting),
        Kind::Vacancy(it) => vacancy(it),
        Kind::TasksAtOnce(limit) => json!({"kind": "tasks_at_once", "max": limit.max}),
        Kind::NoSuchHost(missing) => json!({"kind": "no_such_host", "need": missing.need}),
        Kind::ExceedsCluster(size) => json!({
            "kind": "exceeds_cluster", "need_gpus": size.need_gpus, "have_gpus": size.have_gpus,
        }),
        Kind::Resources(short) => json!({
            "kind": "resources", "need_gpus": short.need_gpus, "free_gpus": short.free_gpus,
            "fits_tasks": short.fits_tasks, "need_tasks": short.need_tasks,
        }),
        Kind::Room(short) => json!({
            "kind": "room", "lacks_cpus": short.lacks_cpus, "lacks_memory": short.lacks_memory,
            "need_cpus_milli": short.need_cpus_milli,
            "free_cpus_milli_max": short.free_cpus_milli_max,
            "need_memory_mib": short.need_memory_mib,
            "free_memory_mib_max": short.free_memory_mib_max,
            "fits_tasks": short.fits_tasks, "need_tasks": short.need_tasks,
        }),
        Kind::Topology(short) => json!({
            "kind": "topology", "level": short.level, "group": short.group,
            "need_gpus": short.need_gpus, "best": short.best,
            "best_free_gpus": short.best_free_gpus, "free_gpus": short.free_gpus,
            "fits_tasks": short.fits_tasks, "need_tasks": short.need_tasks,
        }),
        Kind::TasksPerHost(short) => json!({
            "kind": "tasks_per_host", "group": short.group, "limit": short.limit,
            "fits_tasks": short.fits_tasks, "need_tasks": short.need_tasks,
        }),
        Kind::OwnHosts(short) => json!({
            "kind": "own_hosts", "jobs": short.job_ids,
            "fits_tasks": short.fits_tasks, "need_tasks": short.need_tasks,
        }),
        Kind::Named(places) => named(places),
        Kind::Excluded(excluded) => json!({"kind": "excluded", "hosts": excluded.hosts}),
        Kind::Model(short) => json!({
            "kind": "model", "asked": short.asked, "others": short.others,
            "need_gpus": short.need_gpus, "free_gpus": short.free_gpus,
        }),
        Kind::Cells(short) => cells(short),
        Kind::ReservedByOthers(reserved) => json!({
            "kind": "reserved_by_others", "jobs": reserved.job_ids,
            "until": reserved.until_ms.map(instant),
        }),
        Kind::SearchBound(short) => json!({
            "kind": "search_bound", "need_gpus": short.need_gpus, "free_gpus": short.free_gpus,
        }),
        Kind::Behind(ahead) => json!({"kind": "behind", "job": ahead.ahead_job_id}),
        Kind::Limit(reached) => limit("limit", reached),
        Kind::Moving(moving) => json!({
            "kind": "moving", "moves": moving.moves, "cost_gpu_ms": moving.cost_gpu_ms,
            "gain_gpu_ms": moving.gain_gpu_ms, "expected_at": moving.expected_at_ms.map(instant),
        }),
        Kind::Reserved(reserved) => json!({
            "kind": "reserved", "victims": reserved.victims,
            "expected_at": reserved.expected_at_ms.map(instant),
        }),
    })
}

fn vacancy(vacancy: &v1::blocker::Vacancy) -> Value {
    json!({
        "kind": "vacancy", "task": vacancy.task, "since": instant(vacancy.since_ms),
        "not_before": instant(vacancy.not_before_ms), "until": instant(vacancy.until_ms),
        "detail": vacancy.detail,
    })
}

fn dependencies(waiting: &v1::blocker::Dependencies) -> Value {
    let open = waiting.open.iter();
    let open: Vec<Value> = open
        .map(|other| {
            let when = match other.when() {
                v1::Condition::Unspecified => "",
                v1::Condition::Succeeded => "after_ok",
                v1::Condition::Ended => "after_any",
                v1::Condition::Failed => "after_failed",
            };
            json!({"job": other.job_id, "when": when})
        })
        .collect();
    json!({"kind": "dependencies", "open": open, "total": waiting.total})
}

fn named(named: &v1::blocker::Named) -> Value {
    let places = named.places.iter();
    let places: Vec<Value> = places
        .map(|place| json!({"name": place.name, "why": place.why}))
        .collect();
    json!({"kind": "named", "places": places})
}

fn cells(short: &v1::blocker::Cells) -> Value {
    let kinds = short.kinds.iter();
    let kinds: Vec<Value> = kinds
        .map(|kind| {
            json!({
                "kind": kind.kind, "guaranteed": kind.guaranteed, "bound": kind.bound,
            })
        })
        .collect();
    json!({
        "kind": "cells", "queue": short.queue, "need_gpus": short.need_gpus,
        "left_gpus": short.left_gpus, "kinds": kinds,
        "outside_free_gpus": short.outside_free_gpus,
    })
}

/// A remedy.
pub(super) fn remedy(remedy: &v1::Remedy) -> Option<Value> {
    use v1::remedy::Kind;
    Some(match remedy.kind.as_ref()? {
        Kind::WaitUntilMs(until) => json!({"kind": "wait", "until": instant(*until)}),
        Kind::PlaceAheadJobId(job) => json!({"kind": "place_ahead", "job": job}),
        Kind::Unblock(blocked) => {
            let targets = blocked.targets.iter();
            let targets: Vec<String> = targets.map(|it| block_target(Some(it))).collect();
            json!({"kind": "unblock", "targets": targets})
        }
        Kind::FreeGpus(lacking) => {
            json!({"kind": "free_gpus", "gpus": lacking.gpus, "host": lacking.host})
        }
        Kind::FreeRoom(lacking) => {
            json!({"kind": "free_room", "tasks": lacking.tasks, "each": lacking.each})
        }
        Kind::Grow(need) => json!({"kind": "grow", "need": need}),
        Kind::RaiseLimit(reached) => limit("raise_limit", reached),
        Kind::BorrowQueue(queue) => json!({"kind": "borrow", "queue": queue}),
        Kind::Change(asked) => change(asked)?,
    })
}

fn change(change: &v1::JobChange) -> Option<Value> {
    use v1::job_change::Kind;
    Some(match change.kind.as_ref()? {
        Kind::FewerTasks(fewer) => {
            json!({"kind": "fewer_tasks", "group": fewer.group, "tasks": fewer.tasks})
        }
        Kind::Within(within) => json!({
            "kind": "within", "group": within.group, "level": within.level,
            "required": within.required,
        }),
        Kind::AnyPlace(_) => json!({"kind": "any_place"}),
        Kind::IncludeHosts(hosts) => json!({"kind": "include_hosts", "hosts": hosts.names}),
        Kind::AcceptModels(models) => json!({"kind": "accept_models", "models": models.names}),
        Kind::TasksPerHost(most) => {
            json!({"kind": "tasks_per_host", "group": most.group, "tasks": most.tasks})
        }
        Kind::ShareHosts(_) => json!({"kind": "share_hosts"}),
        Kind::Less(less) => json!({
            "kind": "less", "cpus_milli": less.cpus_milli, "memory_mib": less.memory_mib,
        }),
        Kind::RunTimeMsMax(run_time_ms_max) => {
            json!({"kind": "run_time", "run_time_ms_max": run_time_ms_max})
        }
        Kind::Opportunistic(_) => json!({"kind": "opportunistic"}),
    })
}

fn limit(kind: &str, limit: &v1::LimitReached) -> Value {
    json!({
        "kind": kind, "queue": limit.queue, "user": limit.user,
        "of": word(limit.kind().as_str_name(), "KIND_"), "resource": limit.resource,
        "used": limit.used, "asked": limit.asked,
        "would_be": limit.would_be, "limit": limit.limit,
    })
}
