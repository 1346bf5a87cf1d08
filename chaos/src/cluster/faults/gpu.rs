//! Errors of simulated GPUs, injected through the API.

use muster_client::{Client, ClientError};
use muster_proto::v1;

/// A double bit error of its memory: the GPU is taken out of placement.
pub const DOUBLE_BIT_XID: u32 = 48;
/// A GPU has fallen off the bus: its whole host is taken out of placement.
pub const OFF_THE_BUS_XID: u32 = 79;

/// Lets a simulated GPU report an XID error until it is repaired; without an error, it is repaired.
///
/// # Errors
/// If the cluster does not accept it.
pub async fn set_gpu_error(
    client: &Client,
    host: &str,
    gpu: &str,
    xid: Option<u32>,
) -> Result<(), ClientError> {
    let fault = xid.map(|xid| v1::GpuFault {
        signal: format!("xid-{xid}"),
        detail: "injected by a test".to_owned(),
    });
    client.inject_gpu_fault(host, gpu, fault).await
}
