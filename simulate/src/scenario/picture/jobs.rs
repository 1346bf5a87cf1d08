//! Jobs in a picture.

use std::collections::BTreeMap;

use muster_engine::state::{Attempt, Claim, Job, Purpose, State, Unit};
use muster_model::command::{AllocationBasis, StopReason, TaskPlacement};
use muster_model::ids::{GpuUuid, HostId, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::time::TimeMs;
use serde::Serialize;
use serde_json::Value;

use crate::scenario::picture::blocker;
use crate::scenario::picture::lines::Line;
use crate::scenario::picture::names::{cell_name, gpu_ranges, host_name, unit_name};

/// Section of jobs among a picture's lines.
const SECTION: u8 = 3;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobPicture {
    /// Job name.
    pub name: String,
    /// Queue of the job.
    pub queue: String,
    /// Phase of the job.
    pub phase: String,
    /// Reason of its failure.
    pub reason: Option<String>,
    /// Number of its units: 1 for a gang.
    pub units_total: u64,
    /// Its waiting units and the blocker.
    pub waiting: Option<WaitPicture>,
    /// Units with a history.
    pub units: Vec<UnitPicture>,
    #[serde(skip)]
    order: u64,
}

/// Waiting units of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitPicture {
    /// Number of waiting units.
    pub units: u64,
    /// The typed reason, with names for ids and spans for times.
    pub blocker: Value,
    /// The reason as text.
    pub text: String,
}

/// A unit: a gang, or one task of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnitPicture {
    /// Index of the unit.
    pub unit: u32,
    /// Phase of the unit.
    pub phase: String,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Number of tasks that have resources.
    pub tasks: u64,
    /// Number of tasks that it requested.
    pub tasks_total: u64,
    /// Placement of the unit.
    pub places: Vec<PlacePicture>,
    /// `share`, `opportunistic`, or the names of its cells.
    pub allocation_basis: Option<Value>,
    /// Reason for stopping its attempt.
    pub stop: Option<String>,
    /// Reason for its restart.
    pub restart: Option<String>,
    /// Resources reserved for it.
    pub claim: Option<ClaimPicture>,
}

/// GPUs of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacePicture {
    /// Host name.
    pub host: String,
    /// Indexes of the GPUs, ascending; empty for tasks without GPUs.
    pub gpus: Vec<u32>,
}

/// Resources reserved for a waiting unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimPicture {
    /// Reserved hosts and GPUs.
    pub places: Vec<PlacePicture>,
    /// Units that were stopped for it.
    pub victims: Vec<String>,
    /// Units that are moved for it.
    pub moved: Vec<String>,
    /// The unit for which this one is moved there.
    pub moved_for: Option<String>,
    /// `share`, `opportunistic`, or the names of its cells.
    pub allocation_basis: Value,
    /// Expected time at which all is free: `in 10m`.
    pub expected: Option<String>,
}

pub(super) fn picture(state: &State, job: &Job, now: TimeMs) -> JobPicture {
    let units = job.units.iter();
    let reason = Some(job.finish_reason.clone()).filter(|reason| !reason.is_empty());
    JobPicture {
        name: job.spec.name.clone(),
        queue: job.spec.queue.clone(),
        phase: job.phase.to_string(),
        reason,
        units_total: job.spec.units(),
        waiting: waiting(state, job, now),
        units: units
            .map(|(index, unit)| unit_picture(state, job, *index, unit, now))
            .collect(),
        order: job.id.get(),
    }
}

fn waiting(state: &State, job: &Job, now: TimeMs) -> Option<WaitPicture> {
    if job.counts.waiting == 0 {
        return None;
    }
    let found = muster_planner::blocker(state, job.id, now);
    let blocker = found.map_or(Value::Null, |found| blocker::data(state, &found, now));
    let text = if blocker.is_null() {
        "no blocker".to_owned()
    } else {
        blocker::text(&blocker)
    };
    Some(WaitPicture {
        units: job.counts.waiting,
        blocker,
        text,
    })
}

fn unit_picture(
    state: &State,
    job: &Job,
    index: UnitIndex,
    unit: &Unit,
    now: TimeMs,
) -> UnitPicture {
    let attempt = unit.attempt.as_deref();
    let restart = format!("{:?}", unit.restart_reason).to_lowercase();
    UnitPicture {
        unit: index.get(),
        phase: format!("{:?}", unit.phase).to_lowercase(),
        attempts: unit.attempts,
        tasks: attempt.map_or(0, |attempt| attempt.tasks.len() as u64),
        tasks_total: u64::from(job.tasks_of(index).end - job.tasks_of(index).start),
        places: attempt.map_or_else(Vec::new, |attempt| places_of(state, attempt)),
        allocation_basis: attempt.map(|attempt| allocation_basis(state, &attempt.allocation_basis)),
        stop: attempt.and_then(|attempt| Some(stop_text(state, &attempt.stop.as_ref()?.reason))),
        restart: (restart != "first").then_some(restart),
        claim: (unit.claim.as_deref()).map(|claim| claim_picture(state, claim, now)),
    }
}

fn claim_picture(state: &State, claim: &Claim, now: TimeMs) -> ClaimPicture {
    let victims = claim.victims.iter();
    let (moved, moved_for) = match &claim.purpose {
        Purpose::Ordinary => (Vec::new(), None),
        Purpose::Gathered { moved, .. } => {
            let names = moved.iter().map(|one| unit_name(state, one.job, one.unit));
            (names.collect(), None)
        }
        Purpose::Destination { job, unit } => (Vec::new(), Some(unit_name(state, *job, *unit))),
    };
    ClaimPicture {
        places: places(state, claim.tasks.iter().map(of_placement)),
        victims: victims
            .map(|victim| unit_name(state, victim.job, victim.unit))
            .collect(),
        moved,
        moved_for,
        allocation_basis: allocation_basis(state, &claim.allocation_basis),
        expected: claim.expected_at.map(|at| blocker::instant_text(at, now)),
    }
}

fn stop_text(state: &State, reason: &StopReason) -> String {
    match reason {
        StopReason::GpuFault { gpu } => match state.gpu(*gpu) {
            Some((host, gpu)) => format!("gpu {}:{} is unfit", host.name, gpu.index),
            None => reason.to_string(),
        },
        StopReason::HostFault { host } => format!("host {} cannot work", host_name(state, *host)),
        StopReason::Drain { host } => format!("host {} is drained", host_name(state, *host)),
        other => other.to_string(),
    }
}

fn allocation_basis(state: &State, allocation_basis: &AllocationBasis) -> Value {
    match allocation_basis {
        AllocationBasis::Share => Value::String("share".to_owned()),
        AllocationBasis::Opportunistic => Value::String("opportunistic".to_owned()),
        AllocationBasis::Cells(cells) => cells.iter().map(|cell| cell_name(state, cell)).collect(),
    }
}

fn of_placement(task: &TaskPlacement) -> (HostId, &[GpuUuid]) {
    (task.host, &task.gpus)
}

fn places_of(state: &State, attempt: &Attempt) -> Vec<PlacePicture> {
    places(
        state,
        attempt.tasks.iter().map(|run| (run.host, &*run.gpus)),
    )
}

fn places<'a>(
    state: &State,
    tasks: impl Iterator<Item = (HostId, &'a [GpuUuid])>,
) -> Vec<PlacePicture> {
    let mut by_host: BTreeMap<HostId, Vec<u32>> = BTreeMap::new();
    for (host, gpus) in tasks {
        let indexes = gpus.iter().filter_map(|gpu| state.gpu(*gpu));
        let indexes = indexes.map(|(_, gpu)| gpu.index);
        by_host.entry(host).or_default().extend(indexes);
    }
    by_host
        .into_iter()
        .map(|(host, mut gpus)| {
            gpus.sort_unstable();
            PlacePicture {
                host: host_name(state, host),
                gpus,
            }
        })
        .collect()
}

impl JobPicture {
    pub(super) fn lines(&self) -> Vec<Line> {
        if self.units_total == 1 {
            return vec![self.line_of_one()];
        }
        let mut lines = Vec::new();
        if let Some(waiting) = &self.waiting {
            let text = format!(
                "{}: {} of {} wait: {}",
                self.name, waiting.units, self.units_total, waiting.text
            );
            let line = Line::numbered(SECTION, self.order, &self.name, text);
            lines.push(line.or_else(format!("{}: none waits", self.name)));
        } else if let Some(text) = self.end() {
            lines.push(Line::numbered(SECTION, self.order, &self.name, text));
        }
        for unit in &self.units {
            if unit.phase == "waiting" && unit.claim.is_none() {
                continue;
            }
            let name = format!("{}/{}", self.name, unit.unit);
            let key = format!("{}/{:07}", self.name, unit.unit);
            let text = format!("{name}: {}", unit.text());
            let line = Line::numbered(SECTION, self.order, &key, text);
            lines.push(line.or_else(format!("{name}: waits again")));
        }
        lines
    }

    /// The line of a job with a single unit.
    fn line_of_one(&self) -> Line {
        let unit = self.units.first();
        let text = match (&self.waiting, unit) {
            (Some(waiting), unit) => {
                let again = unit.and_then(|unit| unit.restart.as_ref());
                let again = again.map_or_else(String::new, |why| format!(" again ({why})"));
                let claim = unit.and_then(|unit| unit.claim.as_ref());
                let claim = claim.map_or_else(String::new, |claim| format!(", {}", claim.text()));
                format!("{}: waits{again}{claim}: {}", self.name, waiting.text)
            }
            (None, Some(unit)) if !unit.places.is_empty() => {
                format!("{}: {}", self.name, unit.text())
            }
            _ => self
                .end()
                .unwrap_or_else(|| format!("{}: {}", self.name, self.phase)),
        };
        Line::numbered(SECTION, self.order, &self.name, text)
    }

    fn end(&self) -> Option<String> {
        if !matches!(self.phase.as_str(), "succeeded" | "failed" | "cancelled") {
            return None;
        }
        let reason = self.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        Some(format!("{}: {}{reason}", self.name, self.phase))
    }
}

impl UnitPicture {
    /// `running on n1[0-3], opportunistic, attempt 2`.
    fn text(&self) -> String {
        let mut text = self.phase.clone();
        if let Some(stop) = &self.stop {
            text.push_str(&format!(" ({stop})"));
        }
        if !self.places.is_empty() {
            text.push_str(&format!(" on {}", places_text(&self.places)));
            if self.tasks < self.tasks_total {
                text.push_str(&format!(", {} of {} tasks", self.tasks, self.tasks_total));
            }
        }
        if let Some(allocation_basis) = self.allocation_basis.as_ref().and_then(basis_text) {
            text.push_str(&format!(", {allocation_basis}"));
        }
        if self.attempts > 1 && !self.places.is_empty() {
            text.push_str(&format!(", attempt {}", self.attempts));
        }
        if let Some(claim) = &self.claim {
            text.push_str(&format!(", {}", claim.text()));
        }
        text
    }
}

impl ClaimPicture {
    fn text(&self) -> String {
        let mut text = format!("claims {}", places_text(&self.places));
        if !self.victims.is_empty() {
            text.push_str(&format!(" from {}", self.victims.join(" and ")));
        }
        if !self.moved.is_empty() {
            text.push_str(&format!(" by moving {}", self.moved.join(" and ")));
        }
        if let Some(other) = &self.moved_for {
            text.push_str(&format!(" to make room for {other}"));
        }
        if let Some(allocation_basis) = basis_text(&self.allocation_basis) {
            text.push_str(&format!(" {allocation_basis}"));
        }
        if let Some(expected) = &self.expected {
            text.push_str(&format!(", expected {expected}"));
        }
        text
    }
}

fn places_text(places: &[PlacePicture]) -> String {
    let texts = places.iter().map(|place| {
        if place.gpus.is_empty() {
            place.host.clone()
        } else {
            format!("{}[{}]", place.host, gpu_ranges(&place.gpus))
        }
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// Text of an allocation basis; `None` for an ordinary share.
fn basis_text(allocation_basis: &Value) -> Option<String> {
    match allocation_basis {
        Value::String(word) if word == "share" => None,
        Value::String(word) => Some(word.clone()),
        Value::Array(cells) => {
            let cells = cells.iter().filter_map(Value::as_str);
            Some(format!("in cells {}", cells.collect::<Vec<_>>().join(" ")))
        }
        _ => None,
    }
}

/// A phase in the syntax of scripts.
pub(crate) fn phase_text(phase: UnitPhase) -> String {
    format!("{phase:?}").to_lowercase()
}
