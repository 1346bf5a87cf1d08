//! Prometheus metrics of a replica: names with help texts, and the gauges that are read off the state when somebody asks.
//!
//! Never labelled by job: per-job series would grow without bound.

pub(crate) mod names;
mod sample;

use metrics::{gauge, histogram};

pub(crate) use sample::{Census, sample};

/// Says what each metric is, and begins those whose first value may be long in coming: a series that is not there yet looks like one
/// that nobody reads.
pub(crate) fn describe() {
    names::describe();
    gauge!(names::WATCHES).set(0.0);
    drop(histogram!(names::GANG_START_SECONDS));
    for conclusion in ["suspect", "lost"] {
        for cause in ["silence", "one_way"] {
            drop(histogram!(names::SILENCE_SECONDS, "conclusion" => conclusion, "cause" => cause));
        }
    }
}
