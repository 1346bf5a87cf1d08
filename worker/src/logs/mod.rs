//! What tasks print: written by supervisors, read for users, forgotten within bounds.

mod reader;
mod retention;
mod segments;

pub(crate) use reader::{LogPiece, LogReader};
pub(crate) use retention::forget_old;
pub use segments::OutputStream;
pub(crate) use segments::SegmentWriter;
