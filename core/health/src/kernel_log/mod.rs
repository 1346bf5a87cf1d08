//! Kernel log parsing for GPUs, switches, adapters and the host.
//!
//! The main source of XIDs: NVML's events lose some. Only records of the kernel itself count (facility 0,
//! which user space cannot write), and only lines that *begin* like a driver's: a process may be named like
//! an error, and its name is in the middle of lines.

mod bus;
mod host;
mod nvidia;
mod record;
mod scanner;

pub use self::bus::{BusId, BusMap};
pub use self::host::HostFinding;
pub use self::nvidia::{Process, Recovery, SmLocation, Sxid, Xid};
pub use self::record::{Cursor, Record, RecordError, SequenceCheck};
pub use self::scanner::{Event, Scanned, Scanner, TrustedWriters};

#[cfg(test)]
mod tests;
