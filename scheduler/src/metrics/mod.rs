//! Prometheus metrics of a replica: names with help texts, and gauges read from the state at each scrape.
//!
//! Never labelled by job: per-job series would grow without bound.

pub(crate) mod names;
mod object_series;
mod queues;
mod sample;
mod waits;

use metrics::{counter, gauge, histogram};
use muster_model::health::{Charge, Class, ComponentKind, Step};

pub(crate) use self::object_series::lists;
pub(crate) use sample::{StateCounts, sample};
pub(crate) use waits::outermost_queue;

/// Registers the help texts, and initializes metrics whose first value may be long in coming: a missing
/// series looks like one that is not served.
pub(crate) fn describe() {
    names::describe();
    gauge!(names::WATCHES).set(0.0);
    drop(histogram!(names::GANG_START_SECONDS));
    drop(histogram!(names::BACKUP_SECONDS));
    for severity in ["degraded", "fatal"] {
        drop(histogram!(names::DETECTION_SECONDS, "severity" => severity));
    }
    for kind in [ComponentKind::Gpu, ComponentKind::Host] {
        for source in ["auto", "admin"] {
            let labels = [("kind", kind.name()), ("source", source)];
            counter!(names::UNBLOCKS_TOTAL, &labels).increment(0);
        }
    }
    init_attribution_counters();
    counter!(names::AUDIT_FAILURES_TOTAL).absolute(0);
    gauge!(names::BACKUP_INTERVAL_SECONDS).set(0.0);
    gauge!(names::BACKUP_LAST_TIMESTAMP_SECONDS).set(0.0);
    for outcome in ["done", "failed"] {
        counter!(names::BACKUPS_TOTAL, "outcome" => outcome).absolute(0);
    }
    for conclusion in ["suspect", "lost"] {
        for cause in ["silence", "one_way"] {
            drop(histogram!(names::SILENCE_SECONDS, "conclusion" => conclusion, "cause" => cause));
        }
    }
}

/// Initializes the counters used by alerts: a lost rack ends many attempts at once, perhaps the first ever.
fn init_attribution_counters() {
    let charge = Charge::Infra.name();
    for class in Class::ALL {
        if matches!(class, Class::Scheduler | Class::Site) {
            // These are never charged.
            continue;
        }
        for step in Step::ALL {
            let labels = [
                ("class", class.name()),
                ("charge", charge),
                ("step", step.name()),
            ];
            counter!(names::ATTEMPTS_ATTRIBUTED_TOTAL, &labels).increment(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn attempts_ended_by_infrastructure_have_a_series_before_the_first() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, describe);
        let page = recorder.handle().render();
        for (class, step) in [("host", "host_gone"), ("gpu", "hard_evidence")] {
            let line = format!(
                "{}{{class=\"{class}\",charge=\"infra\",step=\"{step}\"}} 0",
                names::ATTEMPTS_ATTRIBUTED_TOTAL
            );
            assert!(page.lines().any(|it| it == line), "{line}: {page}");
        }
    }
}
