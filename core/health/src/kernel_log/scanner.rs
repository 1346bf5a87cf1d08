//! Interpretation of raw kernel log records.

use muster_model::ids::GpuUuid;

use crate::kernel_log::bus::{BusId, BusMap};
use crate::kernel_log::host::{self, HostFinding};
use crate::kernel_log::nvidia::{self, Line, Sxid, Xid};
use crate::kernel_log::record::{Cursor, Record, RecordError, SequenceCheck};

/// Maximum number of records between the lines that together report a GPU as gone.
const PARTS_APART_MAX: u64 = 16;
/// The facility of records written by user space.
const USER_FACILITY: u32 = 1;

/// Trusted writers of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedWriters {
    /// The kernel only: a container may write to the log, but not with the kernel's facility.
    Kernel,
    /// User space too, so that faults can be simulated.
    Tests,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An error of a GPU.
    Xid {
        /// Address of the GPU.
        bus: BusId,
        /// The GPU at the address; `None` if unknown.
        gpu: Option<GpuUuid>,
        /// The error.
        xid: Xid,
    },
    /// An error of a switch.
    Sxid {
        /// Address of the switch.
        bus: BusId,
        /// The error.
        sxid: Sxid,
    },
    /// Something about the host.
    Host(HostFinding),
}

/// Result of reading one record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Its content, if relevant.
    pub event: Option<Event>,
    /// Number of records that were overwritten before they were read.
    pub lost: u64,
    /// The raw text, if relevant.
    pub text: String,
}

/// Reads records in order.
#[derive(Clone, Debug)]
pub struct Scanner {
    trust: TrustedWriters,
    cursor: Cursor,
    buses: BusMap,
    /// The GPU named by a first line, and that line's sequence.
    named: Option<(BusId, u64)>,
    forged: u64,
}

impl Scanner {
    /// A scanner that continues at a cursor with known addresses.
    #[must_use]
    pub const fn new(trust: TrustedWriters, cursor: Cursor, buses: BusMap) -> Self {
        Self {
            trust,
            cursor,
            buses,
            named: None,
            forged: 0,
        }
    }

    /// Its read position.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Number of relevant lines that the kernel did not write.
    #[must_use]
    pub const fn forged(&self) -> u64 {
        self.forged
    }

    /// Reads one record of a boot.
    ///
    /// # Errors
    /// It is not a record.
    pub fn read(&mut self, boot_id: &str, raw: &str) -> Result<Scanned, RecordError> {
        let record = Record::parse(raw)?;
        let lost = match self.cursor.accept(boot_id, record.sequence) {
            SequenceCheck::Known => return Ok(Scanned::default()),
            SequenceCheck::New => 0,
            SequenceCheck::AfterGap(lost) => lost,
        };
        let trusted = match self.trust {
            TrustedWriters::Kernel => record.is_kernels(),
            TrustedWriters::Tests => record.is_kernels() || record.facility == USER_FACILITY,
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
                // `None` if the first line is from an earlier boot.
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
