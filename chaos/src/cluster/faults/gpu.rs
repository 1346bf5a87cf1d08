//! Errors of simulated GPUs, injected through the API.

use muster_client::{Client, ClientError};
use muster_proto::v1;

/// An error of a GPU, as its driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuError {
    /// A double bit error of its memory (XID 48): the GPU is taken out of placement.
    DoubleBit,
    /// It has fallen off the bus (XID 79): its whole host is taken out of placement.
    OffTheBus,
}

impl GpuError {
    fn fault(self) -> v1::GpuFault {
        let (signal, detail) = match self {
            Self::DoubleBit => ("xid-48", "a double bit error (injected)"),
            Self::OffTheBus => ("xid-79", "GPU has fallen off the bus (injected)"),
        };
        v1::GpuFault {
            signal: signal.to_owned(),
            detail: detail.to_owned(),
        }
    }
}

/// Lets a simulated GPU report an error until it is repaired.
///
/// # Errors
/// If the cluster does not accept it.
pub async fn break_gpu(
    client: &Client,
    host: &str,
    gpu: &str,
    error: GpuError,
) -> Result<(), ClientError> {
    let fault = Some(error.fault());
    client.inject_gpu_fault(host, gpu, fault).await
}

/// Repairs a simulated GPU.
///
/// # Errors
/// If the cluster does not accept it.
pub async fn repair_gpu(client: &Client, host: &str, gpu: &str) -> Result<(), ClientError> {
    client.inject_gpu_fault(host, gpu, None).await
}
