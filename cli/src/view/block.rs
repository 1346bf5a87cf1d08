//! A block: why a component is out of placement.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{instant, until};

/// A block.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BlockView {
    reason: String,
    author: String,
    evidence: String,
    since: String,
    expires_at: Option<String>,
    drain_deadline: Option<String>,
    planned_at: Option<String>,
    notice_ms: Option<u64>,
    #[serde(skip)]
    expires_at_ms: Option<u64>,
    #[serde(skip)]
    planned_at_ms: Option<u64>,
}

impl From<v1::Block> for BlockView {
    fn from(block: v1::Block) -> Self {
        Self {
            reason: block.reason,
            author: block.author,
            evidence: block.evidence,
            since: instant(block.since_ms),
            expires_at: block.expires_at_ms.map(instant),
            drain_deadline: block.drain_deadline_ms.map(instant),
            planned_at: { block.planned }.map(|planned| instant(planned.at_ms)),
            notice_ms: block.planned.map(|planned| planned.notice_ms),
            expires_at_ms: block.expires_at_ms,
            planned_at_ms: block.planned.map(|planned| planned.at_ms),
        }
    }
}

impl BlockView {
    /// `fan broken (ada), ends in 2h`.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        let mut text = format!("{} ({})", self.reason, self.author);
        if let Some(ms) = self.expires_at_ms {
            text.push_str(&format!(", ends {}", until(now, ms)));
        }
        text
    }

    /// `to be blocked in 3d: firmware (ada), ends in 3d4h`.
    pub(crate) fn text_of_plan(&self, now: Timestamp) -> String {
        let at_ms = self.planned_at_ms.unwrap_or_default();
        format!("to be blocked {}: {}", until(now, at_ms), self.text(now))
    }
}
