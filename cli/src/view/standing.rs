//! Allocation basis of an attempt, and claims for waiting units.

use muster_proto::v1;
use serde::Serialize;

use crate::output::instant;

/// Allocation basis.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StandingView {
    kind: &'static str,
    cells: Vec<String>,
}

/// Resources reserved for a unit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClaimView {
    since: String,
    expected_at: Option<String>,
    standing: Option<StandingView>,
    victims: Vec<VictimView>,
    tasks: Vec<ClaimedTaskView>,
    #[serde(skip)]
    pub(crate) expected_at_ms: Option<u64>,
}

/// An attempt that was stopped for a claim.
#[derive(Clone, Debug, Serialize)]
struct VictimView {
    job: u64,
    unit: u32,
    epoch: u64,
}

/// Location of one task.
#[derive(Clone, Debug, Serialize)]
struct ClaimedTaskView {
    index: u32,
    host: String,
    gpus: Vec<String>,
}

impl From<&v1::Standing> for StandingView {
    fn from(standing: &v1::Standing) -> Self {
        use v1::standing::Kind;
        let (kind, cells) = match &standing.kind {
            Some(Kind::Cells(cells)) => (
                "cells",
                cells.cells.iter().map(|cell| cell.name.clone()).collect(),
            ),
            Some(Kind::Opportunistic(_)) => ("opportunistic", Vec::new()),
            // An older cluster does not report it.
            Some(Kind::Share(_)) | None => ("share", Vec::new()),
        };
        Self { kind, cells }
    }
}

impl StandingView {
    /// As text: `opportunistic`, `cells pod-1/rack-07, node07:4`.
    pub(crate) fn text(&self) -> String {
        if self.cells.is_empty() {
            return self.kind.to_owned();
        }
        format!("{} {}", self.kind, self.cells.join(", "))
    }

    /// Whether it is the default without any configuration.
    pub(crate) fn is_ordinary(&self) -> bool {
        self.kind == "share"
    }
}

impl From<v1::Claim> for ClaimView {
    fn from(claim: v1::Claim) -> Self {
        let tasks = claim.tasks.into_iter().map(|task| ClaimedTaskView {
            index: task.task,
            host: task.host,
            gpus: task.gpus,
        });
        let victims = claim.victims.into_iter().map(|victim| VictimView {
            job: victim.job_id,
            unit: victim.unit,
            epoch: victim.epoch,
        });
        Self {
            since: instant(claim.since_ms),
            expected_at: claim.expected_at_ms.map(instant),
            standing: claim.standing.as_ref().map(StandingView::from),
            victims: victims.collect(),
            tasks: tasks.collect(),
            expected_at_ms: claim.expected_at_ms,
        }
    }
}

impl ClaimView {
    /// As text: `2 tasks on node[01-02], once 3 stopped attempts have ended`.
    pub(crate) fn text(&self) -> String {
        let hosts: Vec<String> = self.tasks.iter().map(|task| task.host.clone()).collect();
        let hosts = crate::parse::compress(&hosts);
        let tasks = self.tasks.len();
        match self.victims.len() {
            0 => format!("{tasks} tasks on {hosts}, once the running tasks there have ended"),
            victims => {
                format!("{tasks} tasks on {hosts}, once {victims} stopped attempts have ended")
            }
        }
    }
}
