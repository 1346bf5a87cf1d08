//! What the kernel's log says of GPUs, switches, adapters and the host.
//!
//! The main source for XIDs: NVML's events lose some. Only what the kernel itself wrote counts (facility 0, which user space
//! cannot write), and only lines that *begin* as a driver's lines do: a process may be named like an error, and its name
//! stands in the middle of lines.

mod bus;
mod host;
mod nvidia;
mod record;
mod scanner;

pub use self::bus::{BusId, BusMap};
pub use self::host::HostSign;
pub use self::nvidia::{Place, Process, Recovery, Sxid, Xid};
pub use self::record::{Cursor, Heard, Record, RecordError};
pub use self::scanner::{Event, Scanned, Scanner, Trust};

#[cfg(test)]
mod tests;
