//! Blocker in one line: the type of the reason and its figures.

use std::collections::BTreeMap;

use muster_engine::state::State;
use muster_model::ids::JobId;
use muster_model::time::TimeMs;
use muster_planner::Blocker;
use serde_json::{Map, Value};

use crate::scenario::picture::names::{duration_text, job_name};

/// Fields that hold a job's id.
const JOBS: [&str; 2] = ["ahead", "job"];
/// Fields that hold several job ids.
const JOB_LISTS: [&str; 1] = ["jobs"];
/// Fields that hold a time.
const INSTANTS: [&str; 2] = ["until", "expected_at"];

/// A reason as data, with names for ids and spans for times.
pub(super) fn data(state: &State, blocker: &Blocker, now: TimeMs) -> Value {
    let mut value = serde_json::to_value(blocker).unwrap_or(Value::Null);
    name_ids(state, &mut value, now);
    value
}

/// A reason as text: `Resources need_gpus=8 free_gpus=4`.
pub(super) fn text(data: &Value) -> String {
    match data {
        Value::Object(fields) => {
            let mut parts = Vec::new();
            for (name, value) in fields {
                match value {
                    Value::Object(inner) => parts.push(format!("{name} {}", pairs(inner))),
                    other => parts.push(format!("{name} {}", plain(other))),
                }
            }
            parts.join("; ")
        }
        other => plain(other),
    }
}

fn pairs(fields: &Map<String, Value>) -> String {
    // Sorted here, because the order of a JSON map depends on a feature that other crates may enable.
    let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
    let texts = sorted
        .into_iter()
        .map(|(name, value)| format!("{name}={}", plain(value)));
    texts.collect::<Vec<_>>().join(" ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains(' ') => format!("\"{text}\""),
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Array(items) => {
            let texts: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", texts.join(", "))
        }
        Value::Object(fields) => format!("({})", text(&Value::Object(fields.clone()))),
        other => other.to_string(),
    }
}

fn name_ids(state: &State, value: &mut Value, now: TimeMs) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64() {
                    Some(id) if JOBS.contains(&name.as_str()) => {
                        *value = Value::String(job_name(state, JobId(id)));
                    }
                    Some(at) if INSTANTS.contains(&name.as_str()) => {
                        *value = Value::String(instant_text(TimeMs(at), now));
                    }
                    _ if JOB_LISTS.contains(&name.as_str()) => name_jobs(state, value),
                    _ => name_ids(state, value, now),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                name_ids(state, item, now);
            }
        }
        _ => {}
    }
}

fn name_jobs(state: &State, value: &mut Value) {
    for item in value.as_array_mut().into_iter().flatten() {
        if let Some(id) = item.as_u64() {
            *item = Value::String(job_name(state, JobId(id)));
        }
    }
}

/// `in 10m`, or `now` if due.
pub(crate) fn instant_text(at: TimeMs, now: TimeMs) -> String {
    if at <= now {
        return "now".to_owned();
    }
    format!("in {}", duration_text(at.since(now)))
}
