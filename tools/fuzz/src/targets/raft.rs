//! Records on a replica's disk, and messages between replicas.

use muster_engine::state::State;
use muster_raft_store::reread;

use crate::{SMALL, bounded, choice, framed, same_again};

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, SMALL, || match kind {
        0 => same_again(bytes, reread::peer_request::<State>),
        1 => same_again(&framed(bytes), reread::log_record::<State>),
        2 => same_again(&framed(bytes), reread::membership),
        3 => same_again(&framed(bytes), reread::vote),
        4 => same_again(bytes, reread::log_record::<State>),
        5 => same_again(bytes, reread::membership),
        _ => same_again(bytes, reread::vote),
    });
}
