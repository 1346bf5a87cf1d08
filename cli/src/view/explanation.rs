//! Why a job waits.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;
use serde_json::{Value, json};

use super::word::{block_target, job_phase, word};
use crate::output::{Cell, Column, Table, Tone, counted, instant, paint, until};

const CLASS_COLUMNS: &[Column] = &[
    Column::new("GPU MODEL"),
    Column::new("ACCEPTABLE"),
    Column::new("HOSTS"),
    Column::new("OUT"),
    Column::new("WITH ROOM"),
    Column::new("GPUS"),
    Column::new("FREE"),
    Column::new("HELD"),
    Column::new("OUT"),
];

/// Why a job waits, counted over the hosts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExplanationView {
    revision: u64,
    phase: String,
    summary: String,
    blocker: Option<Value>,
    remedy: Option<Value>,
    unit: u32,
    units_waiting: u64,
    jobs_ahead: u64,
    host_classes: Vec<ClassView>,
    #[serde(skip)]
    blocker_wire: Option<v1::Blocker>,
}

/// Hosts of one GPU model.
#[derive(Clone, Debug, Serialize)]
struct ClassView {
    gpu_model: String,
    acceptable: bool,
    hosts: u32,
    hosts_not_accepting: u32,
    hosts_with_room: u32,
    gpus: u32,
    gpus_free: u32,
    gpus_held: u32,
    gpus_out: u32,
}

impl From<v1::ExplainJobResponse> for ExplanationView {
    fn from(answer: v1::ExplainJobResponse) -> Self {
        Self {
            revision: answer.revision,
            phase: job_phase(answer.phase()),
            summary: answer.summary,
            blocker: answer.blocker.as_ref().and_then(blocker_json),
            remedy: answer.remedy.as_ref().and_then(remedy_json),
            unit: answer.unit,
            units_waiting: answer.units_waiting,
            jobs_ahead: answer.jobs_ahead,
            host_classes: answer.classes.into_iter().map(ClassView::from).collect(),
            blocker_wire: answer.blocker,
        }
    }
}

impl From<v1::HostClass> for ClassView {
    fn from(class: v1::HostClass) -> Self {
        Self {
            gpu_model: class.gpu_model,
            acceptable: class.acceptable,
            hosts: class.hosts,
            hosts_not_accepting: class.hosts_not_accepting,
            hosts_with_room: class.hosts_with_room,
            gpus: class.gpus,
            gpus_free: class.gpus_free,
            gpus_held: class.gpus_held,
            gpus_out: class.gpus_out,
        }
    }
}

impl ExplanationView {
    /// One line that says it all, for progress notes.
    pub(crate) fn summary(&self) -> &str {
        &self.summary
    }

    /// For people.
    pub(crate) fn render(&self, now: Timestamp) -> String {
        let mut text = format!("{}\n", self.summary);
        if let Some(blocker) = self
            .blocker_wire
            .as_ref()
            .and_then(|blocker| advice(blocker, now))
        {
            text.push_str(&format!("{}\n", paint(&blocker, Tone::Waiting)));
        }
        if self.units_waiting > 0 {
            let units = counted(self.units_waiting, "waiting unit");
            let ahead = counted(self.jobs_ahead, "job");
            text.push_str(&format!("{units}, behind {ahead} of its queue\n"));
        }
        if self.host_classes.is_empty() {
            return text;
        }
        let mut table = Table::new(CLASS_COLUMNS, false);
        for class in &self.host_classes {
            table.push(class.cells());
        }
        text.push('\n');
        text.push_str(&table.render(true));
        text
    }
}

impl ClassView {
    fn cells(&self) -> Vec<Cell> {
        let model = if self.gpu_model.is_empty() {
            "(no GPU)"
        } else {
            &self.gpu_model
        };
        let counts = [
            self.hosts,
            self.hosts_not_accepting,
            self.hosts_with_room,
            self.gpus,
            self.gpus_free,
            self.gpus_held,
            self.gpus_out,
        ];
        let head = [
            model.into(),
            if self.acceptable { "yes" } else { "no" }.into(),
        ];
        let counts = counts.iter().map(|count| Cell::from(count.to_string()));
        head.into_iter().chain(counts).collect()
    }
}

/// What would help.
fn advice(blocker: &v1::Blocker, now: Timestamp) -> Option<String> {
    use v1::blocker::Kind;
    Some(match blocker.kind.as_ref()? {
        Kind::BackOff(wait) => format!("it is tried again {}", until(now, wait.until_ms)),
        Kind::Cancelling(_) => return None,
        Kind::NoSuchHost(missing) => {
            format!(
                "no host could ever run it: {} is asked for; ask for less, or add hosts",
                missing.need
            )
        }
        Kind::ExceedsCluster(size) => format!(
            "ask for {} GPUs at most, or add hosts: it asks for {}",
            size.have_gpus, size.need_gpus
        ),
        Kind::Resources(short) => format!(
            "{} of its {} tasks would fit now; {} GPUs are free, it needs {}",
            short.fits_tasks, short.need_tasks, short.free_gpus, short.need_gpus
        ),
        Kind::Behind(ahead) => format!("job {} comes first", ahead.ahead_job_id),
        Kind::Limit(limit) => format!(
            "{} {} of {} are allowed, with it there would be {}",
            limit.limit, limit.resource, limit.queue, limit.would_be
        ),
        Kind::Moving(moving) => {
            let at = moving.expected_at_ms?;
            format!(
                "the units that make room should have moved {}",
                until(now, at)
            )
        }
        Kind::Reserved(reserved) => {
            let at = reserved.expected_at_ms?;
            format!("the resources should be free {}", until(now, at))
        }
    })
}

fn blocker_json(blocker: &v1::Blocker) -> Option<Value> {
    use v1::blocker::Kind;
    Some(match blocker.kind.as_ref()? {
        Kind::BackOff(wait) => json!({"kind": "back_off", "until": instant(wait.until_ms)}),
        Kind::Cancelling(_) => json!({"kind": "cancelling"}),
        Kind::NoSuchHost(missing) => json!({"kind": "no_such_host", "need": missing.need}),
        Kind::ExceedsCluster(size) => json!({
            "kind": "exceeds_cluster", "need_gpus": size.need_gpus, "have_gpus": size.have_gpus,
        }),
        Kind::Resources(short) => json!({
            "kind": "resources", "need_gpus": short.need_gpus, "free_gpus": short.free_gpus,
            "fits_tasks": short.fits_tasks, "need_tasks": short.need_tasks,
        }),
        Kind::Behind(ahead) => json!({"kind": "behind", "job": ahead.ahead_job_id}),
        Kind::Limit(limit) => limit_json("limit", limit),
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

fn remedy_json(remedy: &v1::Remedy) -> Option<Value> {
    use v1::remedy::Kind;
    Some(match remedy.kind.as_ref()? {
        Kind::WaitUntilMs(until) => json!({"kind": "wait", "until": instant(*until)}),
        Kind::PlaceAheadJobId(job) => json!({"kind": "place_ahead", "job": job}),
        Kind::Unblock(blocked) => {
            let targets: Vec<String> = blocked
                .targets
                .iter()
                .map(|it| block_target(Some(it)))
                .collect();
            json!({"kind": "unblock", "targets": targets})
        }
        Kind::FreeGpus(lacking) => {
            json!({"kind": "free_gpus", "gpus": lacking.gpus, "host": lacking.host})
        }
        Kind::FreeRoom(lacking) => {
            json!({"kind": "free_room", "tasks": lacking.tasks, "each": lacking.each})
        }
        Kind::Grow(need) => json!({"kind": "grow", "need": need}),
        Kind::RaiseLimit(limit) => limit_json("raise_limit", limit),
    })
}

fn limit_json(kind: &str, limit: &v1::LimitReached) -> Value {
    json!({
        "kind": kind, "queue": limit.queue, "user": limit.user,
        "of": word(limit.kind().as_str_name(), "KIND_"), "resource": limit.resource,
        "would_be": limit.would_be, "limit": limit.limit,
    })
}
