//! A block: why a component is out of placement.

use jiff::Timestamp;
use muster_documents::Block;

use crate::output::until;

/// `fan broken (ada), ends in 2h`.
pub(crate) fn text(block: &Block, now: Timestamp) -> String {
    let mut text = format!("{} ({})", block.reason, block.author);
    if let Some(at) = block.expires_at {
        text.push_str(&format!(", ends {}", until(now, at)));
    }
    text
}

/// `to be blocked in 3d: firmware (ada), ends in 3d4h`.
pub(crate) fn plan_text(block: &Block, now: Timestamp) -> String {
    let at = block
        .planned_at
        .map_or_else(String::new, |at| until(now, at));
    format!("to be blocked {at}: {}", text(block, now))
}
