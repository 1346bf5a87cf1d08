//! Output of tasks: written by supervisors (`muster_supervisor::output::segments`), read for users, shipped, and
//! removed beyond limits.

mod line_reader;
mod reader;
mod records;
mod removals;
mod retention;
mod shipping;
mod timeline;

pub(crate) use line_reader::Line;
pub use muster_supervisor::output::segments::OutputStream;
pub(crate) use reader::{LogPiece, LogReader};
pub(crate) use removals::Removals;
pub use retention::LogRetention;
pub(crate) use retention::remove_old;
pub use shipping::LogShipping;
pub(crate) use shipping::Shipper;
pub(crate) use timeline::{StartPosition, Timeline};
