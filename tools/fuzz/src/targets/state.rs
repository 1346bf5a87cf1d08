//! States in snapshots and backups: decoding, encoding and decoding again must give the same state.

use crate::{SMALL, bounded, same_again};
use muster_log::{LogError, read_state, write_state};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    bounded(data, SMALL, || {
        same_again(data, |mut bytes| {
            let state = read_state(&mut bytes)?;
            let mut written = Vec::new();
            write_state(&state, &mut written).map_err(LogError::Read)?;
            Ok::<_, LogError>(written)
        });
    });
}
