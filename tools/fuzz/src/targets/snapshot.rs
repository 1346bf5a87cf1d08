//! Snapshot files: raw, with valid checksums around a header and packed data, and around a header and a
//! state.

use muster_engine::state::State;
use muster_raft_store::fuzz_decoders::snapshot_file;

use crate::{WITH_LZ4, bounded, choice, lz4, same_again, snapshot};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, WITH_LZ4, || {
        let split = choice(bytes).and_then(|(header, rest)| rest.split_at_checked(header));
        let file = match (kind, split) {
            (0, Some((header, packed))) => snapshot(header, packed),
            (1, Some((header, state))) => snapshot(header, &lz4(state)),
            _ => bytes.to_vec(),
        };
        same_again(&file, snapshot_file::<State>);
    });
}
