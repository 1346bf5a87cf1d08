//! Reader of a state.

use std::io::{self, Read};

use muster_engine::state::State;
use prost::Message;

use crate::error::check_version;
use crate::state::parts::Builder;
use crate::state::{MAGIC, OLDEST_STATE_FORMAT, RECORD_BYTES_MAX, STATE_FORMAT};
use crate::v1::state_record::Kind;
use crate::{LogError, v1};

/// Reads a state and rebuilds its indexes. Bytes after the end record are left in `source`.
///
/// # Errors
/// [`LogError::NewerVersion`] or [`LogError::OlderVersion`] if this build does not read its format,
/// [`LogError::Malformed`] if it is truncated or damaged, [`LogError::Read`] if the source fails.
pub fn read_state(source: &mut dyn Read) -> Result<State, LogError> {
    let mut reader = Reader::begin(source)?;
    let Kind::Head(head) = reader.record()? else {
        return Err(LogError::state("the head is missing"));
    };
    let mut builder = Builder::new(&head);
    loop {
        match reader.record()? {
            Kind::End(end) if end.records == reader.records - 1 => break,
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
            return Err(LogError::state(
                "it does not begin with the state's magic number",
            ));
        }
        let mut version = [0; 4];
        fill(source, &mut version)?;
        let version = u32::from_le_bytes(version);
        check_version("state", version, OLDEST_STATE_FORMAT..=STATE_FORMAT)?;
        Ok(Self {
            source,
            records: 0,
            scratch: Vec::new(),
        })
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
        // Grown as bytes arrive: a length field alone must not allocate memory.
        self.scratch.clear();
        let mut record = Read::take(&mut *self.source, length as u64);
        if record.read_to_end(&mut self.scratch).map_err(failed)? < length {
            return Err(cut_off());
        }
        self.records += 1;
        v1::StateRecord::decode(self.scratch.as_slice())
            .map_err(LogError::state)?
            .kind
            .ok_or_else(|| LogError::state("a record is of a kind that this build does not know"))
    }
}

fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> Result<(), LogError> {
    source.read_exact(buffer).map_err(failed)
}

fn failed(error: io::Error) -> LogError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_off(),
        _ => LogError::Read(error),
    }
}

fn cut_off() -> LogError {
    LogError::state("it is cut off")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn header() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(STATE_FORMAT.to_le_bytes());
        bytes
    }

    fn add(bytes: &mut Vec<u8>, kind: Kind) {
        let record = v1::StateRecord { kind: Some(kind) }.encode_to_vec();
        bytes.extend(u32::try_from(record.len()).unwrap().to_le_bytes());
        bytes.extend(record);
    }

    #[test]
    fn an_end_marker_with_the_maximum_count_is_refused() {
        let mut bytes = header();
        add(&mut bytes, Kind::Head(v1::StateHead::default()));
        add(&mut bytes, Kind::End(v1::StateEnd { records: u64::MAX }));
        let error = read_state(&mut bytes.as_slice()).unwrap_err();
        assert!(matches!(error, LogError::Malformed { .. }), "{error}");
    }

    #[test]
    fn a_length_field_alone_allocates_no_memory() {
        let mut bytes = header();
        bytes.extend(u32::try_from(RECORD_BYTES_MAX).unwrap().to_le_bytes());
        bytes.extend([0; 100]);
        let mut source = bytes.as_slice();
        let mut reader = Reader::begin(&mut source).unwrap();
        let error = reader.record().unwrap_err();
        assert!(error.to_string().contains("cut off"), "{error}");
        assert!(reader.scratch.capacity() < RECORD_BYTES_MAX / 100);
    }
}
