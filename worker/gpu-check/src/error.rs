//! Errors that abort a check.

use muster_model::ids::GpuUuid;

/// Errors that abort a check.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The driver's library is missing.
    #[error("libcuda is not on this host: install the NVIDIA driver or set LD_LIBRARY_PATH")]
    NoDriver,
    /// The driver is installed but does not work.
    #[error("the NVIDIA driver does not start: {0}")]
    Driver(String),
    /// The driver lists no GPU.
    #[error("the driver lists no GPU")]
    NoGpus,
    /// The driver does not list this GPU.
    #[error("the driver does not list {0}")]
    UnknownGpu(GpuUuid),
    /// The cuBLAS library is missing.
    #[error("libcublas is not on this host: install it, or skip products (`--parts memory,ways`)")]
    NoProducts,
    /// Too little memory is free for a check: the GPU is in use.
    #[error("{free_mib} MiB of the GPU's memory are free, too little for a check")]
    Occupied {
        /// Free memory in MiB.
        free_mib: u64,
    },
    /// A call failed on a GPU.
    #[error("{call} failed: {why}")]
    Call {
        /// The driver's or cuBLAS's function.
        call: &'static str,
        /// Its error.
        why: String,
    },
}

impl CheckError {
    /// Whether it is a fault of the GPU; otherwise the GPU's state is unknown.
    pub(crate) const fn is_gpu_fault(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}
