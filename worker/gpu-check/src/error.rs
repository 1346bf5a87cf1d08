//! Why a check did not come to its end.

use muster_model::ids::GpuUuid;

/// Why a check did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The driver's library is not there.
    #[error(
        "libcuda is not on this host: it has no NVIDIA driver, or LD_LIBRARY_PATH does not lead to it"
    )]
    NoDriver,
    /// The driver is there and does not work.
    #[error("the NVIDIA driver does not start: {0}")]
    Driver(String),
    /// The driver knows no GPU.
    #[error("the driver lists no GPU")]
    NoGpus,
    /// The driver does not know this GPU.
    #[error("the driver does not list {0}")]
    UnknownGpu(GpuUuid),
    /// The library of products is not there.
    #[error(
        "libcublas is not on this host: install it, or leave products out (`--parts memory,ways`)"
    )]
    NoProducts,
    /// Too little memory is free for a check: somebody uses the GPU.
    #[error("{free_mib} MiB of the GPU's memory are free, which is too little for a check")]
    Occupied {
        /// What is free, in MiB.
        free_mib: u64,
    },
    /// A call failed on a GPU.
    #[error("{call} failed: {why}")]
    Call {
        /// The driver's or cuBLAS's function.
        call: &'static str,
        /// What it said.
        why: String,
    },
}

impl CheckError {
    /// Whether it speaks against the GPU; else nothing is known of it.
    pub(crate) const fn is_the_gpus(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}
