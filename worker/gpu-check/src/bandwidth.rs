//! Bandwidth of copies to and from the host, and between GPUs.
//!
//! Copied data is compared: a fast link with errors is worse than a slow one.

use muster_model::ids::GpuUuid;

use crate::driver::{Block, Gpu, words, words_mut};
use crate::error::CheckError;
use crate::limits::{BLOCK_WORDS, COPIES, WARM_UP_COPIES};
use crate::memory::Pattern;

/// Bytes of a word in the comparison of copies.
const WORD_BYTES: usize = size_of::<u64>();

/// Copies between a GPU and its host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostBandwidth {
    /// Bandwidth to the GPU, in 10^9 bytes per second.
    pub(crate) to_gb_per_s: f64,
    /// Bandwidth from the GPU, in 10^9 bytes per second.
    pub(crate) from_gb_per_s: f64,
    /// Words that arrived different.
    pub(crate) miscompares: u64,
}

/// Copies from another GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PeerBandwidth {
    pub(crate) peer: GpuUuid,
    /// In 10^9 bytes per second.
    pub(crate) gb_per_s: f64,
    /// Whether copies go directly and not through the host's memory.
    pub(crate) is_direct: bool,
    /// Words that arrived different.
    pub(crate) miscompares: u64,
}

/// Measures copies between a GPU and its host.
pub(crate) fn host(gpu: &Gpu) -> Result<HostBandwidth, CheckError> {
    let sent = different_words();
    let mut outside = gpu.host_block::<u64>(BLOCK_WORDS)?;
    words_mut(&mut outside)?.copy_from_slice(&sent);
    let mut inside = block(gpu)?;
    let to_gb_per_s = speed(gpu, || gpu.upload(&outside, &mut inside))?;
    words_mut(&mut outside)?.fill(0);
    let from_gb_per_s = speed(gpu, || gpu.download(&inside, &mut outside))?;
    Ok(HostBandwidth {
        to_gb_per_s,
        from_gb_per_s,
        miscompares: differing(&sent, words(&outside)?),
    })
}

/// Measures copies from another GPU.
pub(crate) fn peer(gpu: &Gpu, peer: &Gpu) -> Result<PeerBandwidth, CheckError> {
    let is_direct = gpu.reach(peer)?;
    let sent = different_words();
    let mut outside = peer.host_block::<u64>(BLOCK_WORDS)?;
    words_mut(&mut outside)?.copy_from_slice(&sent);
    let (mut theirs, mut ours) = (block(peer)?, block(gpu)?);
    peer.upload(&outside, &mut theirs)?;
    let gb_per_s = speed(gpu, || gpu.fetch(&theirs, &mut ours))?;
    let mut arrived = gpu.host_block::<u64>(BLOCK_WORDS)?;
    gpu.download(&ours, &mut arrived)?;
    Ok(PeerBandwidth {
        peer: peer.uuid(),
        gb_per_s,
        is_direct,
        miscompares: differing(&sent, words(&arrived)?),
    })
}

/// Repeats the copy of a block; returns its bandwidth in 10^9 bytes per second.
fn speed(gpu: &Gpu, mut copy: impl FnMut() -> Result<(), CheckError>) -> Result<f64, CheckError> {
    (0..WARM_UP_COPIES).try_for_each(|_| copy())?;
    let took_ms = gpu.timed(|| (0..COPIES).try_for_each(|_| copy()))?;
    let bytes = (COPIES * BLOCK_WORDS * WORD_BYTES) as f64;
    Ok(bytes / took_ms / 1e6)
}

fn block(gpu: &Gpu) -> Result<Block<u64>, CheckError> {
    let block = gpu.block(BLOCK_WORDS)?;
    let free_mib = gpu.free_bytes()? >> 20;
    block.ok_or(CheckError::Occupied { free_mib })
}

/// A block of distinct words.
fn different_words() -> Vec<u64> {
    let mut words = vec![0; BLOCK_WORDS];
    Pattern::Position.fill_from(0, &mut words);
    words
}

fn differing(sent: &[u64], arrived: &[u64]) -> u64 {
    let pairs = sent.iter().zip(arrived);
    pairs.filter(|(sent, arrived)| sent != arrived).count() as u64
}
