//! Filter of a job's events.

use std::collections::BTreeMap;

use muster_client::JobDetail;
use muster_proto::v1;
use serde_json::Value;

/// Filter criteria; an empty filter matches everything.
#[derive(Clone, Debug, Default)]
pub(super) struct EventFilter {
    /// Names of kinds; any if empty.
    kinds: Vec<String>,
    task: Option<Task>,
    attempt: Option<u32>,
    /// Numbers of attempts by their epochs, as far as known.
    numbers: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    index: u64,
    unit: u64,
}

/// Parses the name of a kind.
pub(super) fn event_kind(text: &str) -> Result<v1::EventKind, String> {
    let name = format!("{PREFIX}{}", text.to_uppercase());
    v1::EventKind::from_str_name(&name).ok_or_else(|| {
        format!("unknown kind of event `{text}`: use the names shown by `muster job events`")
    })
}

const PREFIX: &str = "EVENT_KIND_";

fn name_of(kind: v1::EventKind) -> String {
    let name = kind.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name).to_lowercase()
}

impl EventFilter {
    /// Events of these kinds.
    pub(super) fn of_kinds(kinds: &[v1::EventKind]) -> Self {
        Self {
            kinds: kinds.iter().map(|kind| name_of(*kind)).collect(),
            ..Self::default()
        }
    }

    /// Limits the filter to a task and to an attempt of a job, where given.
    pub(super) fn limited_to(
        mut self,
        job: &JobDetail,
        task: Option<u32>,
        attempt: Option<u32>,
    ) -> Self {
        let gang = job.job.spec.as_ref().is_some_and(|spec| spec.gang);
        self.task = task.map(|index| Task {
            index: index.into(),
            unit: if gang { 0 } else { index.into() },
        });
        self.attempt = attempt;
        for unit in &job.units {
            let past = unit.past.iter().map(|past| (past.epoch, past.number));
            let current = unit
                .attempt
                .iter()
                .map(|attempt| (attempt.epoch, attempt.number));
            let numbers = past
                .chain(current)
                .map(|(epoch, number)| (epoch, number.into()));
            self.numbers.extend(numbers);
        }
        self
    }

    /// Whether an event matches, by its kind and its facts. Must be called in the order of the events.
    pub(super) fn matches(&mut self, kind: &str, detail: &Value) -> bool {
        let fact = |name: &str| detail.get(name).and_then(Value::as_u64);
        let epoch = fact("epoch");
        if let (Some(epoch), Some(number)) = (epoch, fact("number")) {
            self.numbers.insert(epoch, number);
        }
        // A member that came later belongs to the same attempt, under its own epoch.
        let number = epoch.and_then(|epoch| self.numbers.get(&epoch)).copied();
        if let (Some(member), Some(number)) = (fact("member_epoch"), number) {
            self.numbers.insert(member, number);
        }
        let of_kind = self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind);
        let of_task = self.task.is_none_or(|task| match fact("task") {
            Some(index) => index == task.index,
            None => fact("unit") == Some(task.unit),
        });
        let of_attempt = self.attempt.is_none_or(|wanted| {
            let number = epoch.and_then(|epoch| self.numbers.get(&epoch));
            number == Some(&wanted.into())
        });
        of_kind && of_task && of_attempt
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use serde_json::json;

    use super::*;

    fn filter(gang: bool, task: Option<u32>, attempt: Option<u32>, kinds: &[&str]) -> EventFilter {
        let job = JobDetail {
            revision: muster_model::ids::Revision(9),
            job: v1::Job {
                spec: Some(v1::JobSpec {
                    gang,
                    ..v1::JobSpec::default()
                }),
                ..v1::Job::default()
            },
            units: Vec::new(),
            more_units: false,
        };
        let kinds: Vec<v1::EventKind> =
            kinds.iter().map(|kind| event_kind(kind).unwrap()).collect();
        EventFilter::of_kinds(&kinds).limited_to(&job, task, attempt)
    }

    /// Positions of the events that match, of two attempts of task 1 of an array and one of task 2.
    fn shown(mut filter: EventFilter) -> Vec<usize> {
        let events = [
            ("job_submitted", json!({})),
            (
                "attempt_placed",
                json!({"unit": 1, "epoch": 20, "number": 1}),
            ),
            ("task_started", json!({"unit": 1, "epoch": 20, "task": 1})),
            (
                "attempt_placed",
                json!({"unit": 2, "epoch": 21, "number": 1}),
            ),
            ("task_exited", json!({"unit": 1, "epoch": 20, "task": 1})),
            ("unit_requeued", json!({"unit": 1})),
            (
                "attempt_placed",
                json!({"unit": 1, "epoch": 30, "number": 2}),
            ),
            ("task_started", json!({"unit": 1, "epoch": 30, "task": 1})),
        ];
        let numbered = events.iter().enumerate();
        let matching = numbered.filter(|(_, (kind, detail))| filter.matches(kind, detail));
        matching.map(|(number, _)| number).collect()
    }

    #[test]
    fn events_are_filtered_by_kind_task_and_attempt() {
        assert_eq!(
            shown(EventFilter::default()),
            (0..8).collect::<Vec<usize>>()
        );
        let kinds = ["task_started", "TASK_EXITED"];
        assert_eq!(shown(filter(false, None, None, &kinds)), [2, 4, 7]);
        assert_eq!(shown(filter(false, Some(1), None, &[])), [1, 2, 4, 5, 6, 7]);
        assert_eq!(shown(filter(false, Some(1), Some(2), &[])), [6, 7]);
        assert_eq!(shown(filter(false, None, Some(1), &["task_started"])), [2]);
        assert_eq!(shown(filter(true, Some(2), None, &[])), [] as [usize; 0]);
        assert!(event_kind("task_vanished").is_err());
    }
}
