//! What tasks print: written by supervisors (`muster_supervisor::segments`), read for users, forgotten within bounds.

mod reader;
mod retention;

pub use muster_supervisor::segments::OutputStream;
pub(crate) use reader::{LogPiece, LogReader};
pub(crate) use retention::forget_old;
