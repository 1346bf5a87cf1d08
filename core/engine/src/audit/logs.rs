//! Logs in the state: answers and events; and the leadership.

use std::collections::BTreeMap;

use muster_model::ids::{JobId, Revision};
use muster_model::limits;
use muster_model::time::TimeMs;

use crate::audit::{Report, Rule};
use crate::state::{Answer, State};

pub(super) fn check(state: &State, report: &mut Report) {
    let leadership = &state.leadership;
    report.require(
        leadership.epoch.get() <= state.revision.get() && leadership.since <= state.time,
        Rule::Leadership,
        &format!("leadership {}", leadership.epoch),
        || format!("it lies after revision {}", state.revision),
    );
    check_replicas(state, report);
    check_recovery(state, report);
    check_requests(state, report);
    check_events(state, report);
}

fn check_replicas(state: &State, report: &mut Report) {
    let replicas = &state.replicas;
    let is_ordered = replicas.present.is_sorted_by(|one, next| one.id < next.id);
    let newest = replicas.present.last().map(|replica| replica.id);
    report.require(
        is_ordered && newest.is_none_or(|newest| newest <= replicas.highest),
        Rule::Replicas,
        &"the replicas",
        || format!("{replicas:?} is out of order, or above its highest id"),
    );
}

/// Checks that no job of the old group started anything while unknown tasks could have had a lease.
fn check_recovery(state: &State, report: &mut Report) {
    let Some(recovery) = state.recovery else {
        return;
    };
    report.require(
        recovery.origin < recovery.floor && recovery.floor <= state.revision,
        Rule::Leadership,
        &"the recovery",
        || {
            format!(
                "{recovery:?} is out of order at revision {}",
                state.revision
            )
        },
    );
    let began_at = recovery.hold.map(|hold| hold.began_at);
    let old = state
        .jobs
        .values()
        .filter(|job| job.id.get() <= recovery.floor.get());
    for job in old {
        let units = job.units.iter();
        let placed = units.filter_map(|(unit, known)| Some((unit, known.attempt.as_deref()?)));
        for (unit, attempt) in placed.filter(|(_, it)| it.epoch.get() > recovery.floor.get()) {
            let lease_ms = job.spec.partition_grace_ms;
            report.require(
                began_at.is_some_and(|began_at| attempt.placed_at >= began_at.after(lease_ms)),
                Rule::Leadership,
                &format!("job {} unit {unit}", job.id),
                || {
                    format!(
                        "attempt {} was placed within {lease_ms} ms of {began_at:?}",
                        attempt.epoch
                    )
                },
            );
        }
    }
}

fn check_requests(state: &State, report: &mut Report) {
    for (request, stored) in state.requests.iter() {
        let past = stored.revision <= state.revision && stored.at <= state.time;
        let own_job = match stored.answer {
            Answer::Job(job) => job.get() == stored.revision.get(),
            Answer::Pipeline(pipeline) => pipeline.get() < stored.revision.get(),
            _ => true,
        };
        report.require(
            past && own_job,
            Rule::Requests,
            &format!("request {request}"),
            || format!("{stored:?} cannot be its answer"),
        );
    }
}

fn check_events(state: &State, report: &mut Report) {
    let mut newest = TimeMs::default();
    let mut count = 0;
    for (revision, events) in state.events.iter() {
        let subject = format!("events of revision {revision}");
        let in_range = revision > state.events.floor() && revision <= state.revision;
        report.require(
            in_range && !events.is_empty(),
            Rule::Events,
            &subject,
            || "they should not be kept, or there are none".to_owned(),
        );
        for event in events.iter() {
            report.require(
                event.revision == revision && event.time >= newest,
                Rule::Events,
                &subject,
                || format!("{event:?} does not belong there"),
            );
            newest = event.time;
        }
        count += events.len();
    }
    report.require(newest <= state.time, Rule::Events, &"events", || {
        format!("the newest is from {newest}, in the future")
    });
    report.require(count == state.events.len(), Rule::Events, &"events", || {
        format!("{count} are kept, {} counted", state.events.len())
    });
    check_losses(state, report);
    let newest_revision = state.events.newest();
    let of_newest = state
        .events
        .iter()
        .last()
        .map_or(0, |(_, events)| events.len());
    report.require(
        count <= limits::EVENTS_KEPT_MAX.max(of_newest),
        Rule::Limits,
        &"events",
        || format!("{count} are kept up to {newest_revision:?}"),
    );
}

/// Checks that a job lost only its oldest events, and that the loss is recorded.
fn check_losses(state: &State, report: &mut Report) {
    let losses = state.events.losses();
    let marks: BTreeMap<Option<JobId>, Revision> = losses.marks.into_iter().collect();
    for (owner, mark) in &marks {
        let in_range = *mark > state.events.floor() && *mark <= state.revision;
        report.require(in_range, Rule::Events, &"events", || {
            format!("events of {owner:?} up to {mark} are recorded as dropped")
        });
    }
    for (revision, events) in state.events.iter() {
        for event in events.iter() {
            let owner = event.kind.job();
            let is_dropped = marks.get(&owner).is_some_and(|mark| revision <= *mark);
            report.require(!is_dropped, Rule::Events, &"events", || {
                format!("{event:?} is recorded as dropped")
            });
        }
    }
    report.require(
        marks.len() <= limits::EVENT_MARKS_MAX,
        Rule::Limits,
        &"events",
        || format!("losses are recorded for {} jobs", marks.len()),
    );
    let is_as_restored = state.events.is_as_restored();
    report.require(is_as_restored, Rule::Derived, &"events", || {
        "the counts by owner differ from the kept events".to_owned()
    });
}
