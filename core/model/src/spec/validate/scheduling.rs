//! Validation of scheduling settings. Whether levels, hosts and pinned cells exist depends on the state and
//! is checked elsewhere.

use crate::limits;
use crate::spec::validate::Findings;
use crate::spec::{JobSpec, TaskGroup, Within};

/// Texts that count towards the size of a specification.
pub(super) fn texts(spec: &JobSpec) -> impl Iterator<Item = &String> {
    let scheduling = &spec.scheduling;
    let layouts = spec.groups.iter().map(|group| &group.layout.within);
    scheduling
        .hosts
        .iter()
        .chain(&scheduling.hosts_excluded)
        .chain(&scheduling.pinned_cell)
        .chain(
            layouts
                .chain([&scheduling.within])
                .flatten()
                .map(|within| &within.level),
        )
}

pub(super) fn check(found: &mut Findings, spec: &JobSpec) {
    periods(found, spec);
    hosts(found, spec);
    let scheduling = &spec.scheduling;
    if let Some(within) = &scheduling.within {
        level(found, "scheduling.within.level", within);
        found.check(spec.gang, "scheduling.within", || {
            "is for gangs: tasks that are placed one by one share nothing".to_owned()
        });
    }
    if let Some(cell) = &scheduling.pinned_cell {
        found.name("scheduling.pinned_cell", cell);
        found.check(!scheduling.opportunistic, "scheduling.pinned_cell", || {
            "is not available to opportunistic jobs, which have no guaranteed cells".to_owned()
        });
    }
    found.check(
        !(scheduling.opportunistic && scheduling.lazy_preemption),
        "scheduling.lazy_preemption",
        || "has no effect on opportunistic jobs: they are preempted first anyway".to_owned(),
    );
    for (position, group) in spec.groups.iter().enumerate() {
        let at = format!("groups[{position}].layout");
        layout(found, &at, spec.gang, group);
    }
}

fn periods(found: &mut Findings, spec: &JobSpec) {
    let scheduling = &spec.scheduling;
    for (field, period_ms) in [
        ("scheduling.run_time_ms_max", scheduling.run_time_ms_max),
        ("scheduling.assembly_ms_max", scheduling.assembly_ms_max),
    ] {
        let Some(period_ms) = period_ms else { continue };
        found.at_most(field, period_ms, "PERIOD_MS_MAX", limits::PERIOD_MS_MAX);
        found.check(period_ms > 0, field, || {
            "must be at least 1, or absent for no limit".to_owned()
        });
    }
    found.check(
        spec.gang || scheduling.assembly_ms_max.is_none(),
        "scheduling.assembly_ms_max",
        || "is for gangs: independently placed tasks do not wait for each other".to_owned(),
    );
}

fn hosts(found: &mut Findings, spec: &JobSpec) {
    let scheduling = &spec.scheduling;
    for (field, names) in [
        ("scheduling.hosts", &scheduling.hosts),
        ("scheduling.hosts_excluded", &scheduling.hosts_excluded),
    ] {
        found.at_most(
            field,
            names.len(),
            "HOSTS_NAMED_PER_JOB_MAX",
            limits::HOSTS_NAMED_PER_JOB_MAX,
        );
        for name in names {
            found.name(field, name);
        }
    }
    let both = scheduling
        .hosts
        .iter()
        .find(|name| scheduling.hosts_excluded.contains(name));
    found.check(both.is_none(), "scheduling.hosts_excluded", || {
        format!(
            "`{}` is requested in scheduling.hosts",
            both.map_or("", |name| name)
        )
    });
}

fn layout(found: &mut Findings, at: &str, gang: bool, group: &TaskGroup) {
    let TaskGroup { count, layout, .. } = group;
    if let Some(least) = layout.count_min {
        let field = format!("{at}.count_min");
        found.check((1..=*count).contains(&least), &field, || {
            format!("{least} does not lie within 1 to the group's count of {count}")
        });
        found.check(gang, &field, || {
            "is for gangs: tasks that are placed one by one start as there is room".to_owned()
        });
    }
    if let Some(within) = &layout.within {
        level(found, &format!("{at}.within.level"), within);
    }
    if let Some(tasks) = layout.within_tasks {
        let field = format!("{at}.within_tasks");
        found.check(tasks > 0 && count.is_multiple_of(tasks), &field, || {
            format!("{tasks} does not divide the group's count of {count}")
        });
        found.check(layout.within.is_some(), &field, || {
            "has no effect without layout.within".to_owned()
        });
    }
    found.at_most(
        &format!("{at}.gpus"),
        layout.gpus.len(),
        "GPUS_NAMED_PER_GROUP_MAX",
        limits::GPUS_NAMED_PER_GROUP_MAX,
    );
}

fn level(found: &mut Findings, field: &str, within: &Within) {
    found.name(field, &within.level);
}
