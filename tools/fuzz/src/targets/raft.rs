//! Records on a replica's disk, and messages between replicas.

use muster_engine::state::State;
use muster_raft_store::fuzz_decoders;

use crate::{SMALL, bounded, choice, framed, same_again};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, SMALL, || match kind {
        0 => same_again(bytes, fuzz_decoders::peer_request::<State>),
        1 => same_again(&framed(bytes), fuzz_decoders::log_record::<State>),
        2 => same_again(&framed(bytes), fuzz_decoders::membership),
        3 => same_again(&framed(bytes), fuzz_decoders::vote),
        4 => same_again(bytes, fuzz_decoders::log_record::<State>),
        5 => same_again(bytes, fuzz_decoders::membership),
        _ => same_again(bytes, fuzz_decoders::vote),
    });
}
