//! Options of a check.

use clap::{Args, ValueEnum};
use muster_model::ids::GpuUuid;

use crate::limits::SIZE_MAX;

/// Options of a check.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The GPUs to check, by UUID (GPU-...); all if none is named
    #[arg(value_name = "UUID")]
    pub gpus: Vec<GpuUuid>,
    /// Idle GPUs to and from which copies are measured too (UUID,UUID,...)
    #[arg(long, value_name = "UUIDS", value_parser = peers, default_value = "")]
    pub peers: Peers,
    /// Parts of the check
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    pub parts: Vec<Part>,
    /// Per cent of the free memory that is tested
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=98))]
    pub memory_percent: u8,
    /// Seconds of matrix products, in each of two precisions
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub seconds: u32,
    /// Rows and columns of the matrices
    #[arg(long, value_name = "ROWS", default_value_t = 8_192, value_parser = size)]
    pub size: usize,
    /// Expected TFLOP/s in half precision of such a GPU; the achieved share is reported as
    /// `baseline_permille`
    #[arg(long, value_name = "TFLOPS")]
    pub expected_tflops: Option<u32>,
}

/// A list of GPUs, which may be empty.
pub type Peers = std::sync::Arc<[GpuUuid]>;

/// A part of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Patterns written to the memory and read back
    Memory,
    /// Products of matrices
    Products,
    /// Copies to and from the host and other GPUs
    Ways,
}

impl Part {
    const ALL: [Self; 3] = [Self::Memory, Self::Products, Self::Ways];
}

impl Options {
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

/// Parses UUIDs separated by commas; an empty text, which a worker passes for a GPU without peers, gives
/// none.
fn peers(text: &str) -> Result<Peers, String> {
    let uuids = text.split(',').filter(|uuid| !uuid.is_empty());
    let parse = |uuid: &str| uuid.parse::<GpuUuid>().map_err(|error| error.to_string());
    uuids.map(parse).collect()
}

fn size(text: &str) -> Result<usize, String> {
    // Complete tiles of every kernel that may be chosen.
    let is_size = |size: &usize| (8..=SIZE_MAX).contains(size) && size.is_multiple_of(8);
    let size = text.parse().ok().filter(is_size);
    size.ok_or_else(|| format!("a multiple of 8, at most {SIZE_MAX} (SIZE_MAX)"))
}
