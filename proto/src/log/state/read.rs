//! Reading a state.

use std::io::{self, Read};

use muster_core::state::State;
use prost::Message;

use super::parts::Builder;
use super::{MAGIC, RECORD_BYTES_MAX, STATE_FORMAT};
use crate::log::LogError;
use crate::log::v1;
use crate::log::v1::state_record::Kind;

/// Reads a state and derives its look-ups again. Bytes after the end record are left in `source`.
///
/// # Errors
/// [`LogError::NewerVersion`] if a newer build wrote it, [`LogError::Malformed`] if it is cut off or
/// damaged, [`LogError::Read`] if the source fails.
pub fn read_state(source: &mut dyn Read) -> Result<State, LogError> {
    let mut reader = Reader::begin(source)?;
    let Kind::Head(head) = reader.record()? else {
        return Err(LogError::state("the head is missing"));
    };
    let mut builder = Builder::new(&head);
    loop {
        match reader.record()? {
            Kind::End(end) if end.records + 1 == reader.records => break,
            Kind::End(end) => {
                let detail = format!(
                    "{} records were written and {} read",
                    end.records,
                    reader.records - 1
                );
                return Err(LogError::state(detail));
            }
            kind => builder.add(kind).map_err(LogError::state)?,
        }
    }
    builder.finish().map_err(LogError::state)
}

struct Reader<'a> {
    source: &'a mut dyn Read,
    records: u64,
    scratch: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn begin(source: &'a mut dyn Read) -> Result<Self, LogError> {
        let mut magic = [0; MAGIC.len()];
        fill(source, &mut magic)?;
        if magic != MAGIC {
            return Err(LogError::state("it does not begin as a state does"));
        }
        let mut version = [0; 4];
        fill(source, &mut version)?;
        match u32::from_le_bytes(version) {
            0 => Err(LogError::state("format version 0 does not exist")),
            found if found > STATE_FORMAT => Err(LogError::NewerVersion {
                what: "state",
                found,
                supported: STATE_FORMAT,
            }),
            _ => Ok(Self {
                source,
                records: 0,
                scratch: Vec::new(),
            }),
        }
    }

    fn record(&mut self) -> Result<Kind, LogError> {
        let mut length = [0; 4];
        fill(self.source, &mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(LogError::state(format!(
                "a record of {length} bytes is over {RECORD_BYTES_MAX} (RECORD_BYTES_MAX)"
            )));
        }
        self.scratch.resize(length, 0);
        fill(self.source, &mut self.scratch)?;
        self.records += 1;
        v1::StateRecord::decode(self.scratch.as_slice())
            .map_err(LogError::state)?
            .kind
            .ok_or_else(|| LogError::state("a record is of a kind that this build does not know"))
    }
}

fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> Result<(), LogError> {
    source
        .read_exact(buffer)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => LogError::state("it is cut off"),
            _ => LogError::Read(error),
        })
}
