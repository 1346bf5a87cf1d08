//! From raw records to what they mean.

use muster_model::ids::GpuUuid;

use crate::kernel_log::bus::{BusId, BusMap};
use crate::kernel_log::host::{self, HostSign};
use crate::kernel_log::nvidia::{self, Line, Sxid, Xid};
use crate::kernel_log::record::{Cursor, Heard, Record, RecordError};

/// Records that may lie between the lines which together say that a GPU is gone.
const PARTS_APART_MAX: u64 = 16;
/// The facility of what user space writes.
const USER_FACILITY: u32 = 1;

/// Whose records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The kernel's alone: a container may write to the log, but not in the kernel's name.
    Kernel,
    /// What user space writes as well, so that faults can be played.
    Tests,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An error of a GPU.
    Xid {
        /// Where.
        bus: BusId,
        /// Which GPU was there; none if nobody knew before.
        gpu: Option<GpuUuid>,
        /// What.
        xid: Xid,
    },
    /// An error of a switch.
    Sxid {
        /// Where.
        bus: BusId,
        /// What.
        sxid: Sxid,
    },
    /// Something about the host.
    Host(HostSign),
}

/// What one record gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// What it says, if it says anything.
    pub event: Option<Event>,
    /// Records that were overwritten before they were read.
    pub lost: u64,
    /// The raw text, if it says anything.
    pub text: String,
}

/// Reads records in order.
#[derive(Clone, Debug)]
pub struct Scanner {
    trust: Trust,
    cursor: Cursor,
    buses: BusMap,
    /// The GPU that a first line named, and that line's sequence.
    named: Option<(BusId, u64)>,
    forged: u64,
}

impl Scanner {
    /// A scanner that goes on at a cursor, and knows where GPUs are.
    #[must_use]
    pub const fn new(trust: Trust, cursor: Cursor, buses: BusMap) -> Self {
        Self {
            trust,
            cursor,
            buses,
            named: None,
            forged: 0,
        }
    }

    /// Up to where it read.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Lines that would have counted, had the kernel written them.
    #[must_use]
    pub const fn forged(&self) -> u64 {
        self.forged
    }

    /// Reads one record of a boot.
    ///
    /// # Errors
    /// It is no record.
    pub fn read(&mut self, boot_id: &str, raw: &str) -> Result<Scanned, RecordError> {
        let record = Record::parse(raw)?;
        let lost = match self.cursor.accept(boot_id, record.sequence) {
            Heard::Known => return Ok(Scanned::default()),
            Heard::New => 0,
            Heard::AfterGap(lost) => lost,
        };
        let trusted = match self.trust {
            Trust::Kernel => record.is_kernels(),
            Trust::Tests => record.is_kernels() || record.facility == USER_FACILITY,
        };
        if !trusted {
            let would_count = nvidia::parse(&record.text).is_some();
            self.forged += u64::from(would_count);
            return Ok(Scanned {
                lost,
                ..Scanned::default()
            });
        }
        let event = self.event(&record);
        let text = event
            .as_ref()
            .map_or_else(String::new, |_| record.text.clone());
        Ok(Scanned { event, lost, text })
    }

    fn event(&mut self, record: &Record) -> Option<Event> {
        match nvidia::parse(&record.text) {
            Some(Line::Xid(bus, xid)) => Some(self.xid(bus, xid)),
            Some(Line::Sxid(bus, sxid)) => Some(Event::Sxid { bus, sxid }),
            Some(Line::Identity(bus, gpu)) => {
                self.buses.learn(bus, gpu);
                None
            }
            Some(Line::Names(bus)) => {
                self.named = Some((bus, record.sequence));
                None
            }
            Some(Line::FallenOff) => {
                let (bus, at) = self.named.take()?;
                let gone = Xid {
                    code: 79,
                    ..Xid::default()
                };
                // None if the first line is of an earlier boot.
                let apart = record.sequence.checked_sub(at)?;
                (apart <= PARTS_APART_MAX).then(|| self.xid(bus, gone))
            }
            None => host::parse(&record.text).map(Event::Host),
        }
    }

    fn xid(&self, bus: BusId, xid: Xid) -> Event {
        let gpu = self.buses.gpu(bus);
        Event::Xid { bus, gpu, xid }
    }
}
