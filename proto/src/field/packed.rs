//! UUIDs packed into 16 bytes each, most significant first.

use bytes::Bytes;
use muster_model::ids::{GpuUuid, RequestId};

use crate::field::InvalidField;

/// Bytes of one UUID.
const UUID_BYTES: usize = 16;

/// Packs a request id.
#[must_use]
pub fn pack_request(request: RequestId) -> Bytes {
    Bytes::copy_from_slice(&request.0.to_be_bytes())
}

/// Unpacks a request id.
///
/// # Errors
/// [`InvalidField`] for a wrong number of bytes.
pub fn unpack_request(field: &str, bytes: &[u8]) -> Result<RequestId, InvalidField> {
    unpack(field, bytes).map(RequestId)
}

/// Packs the UUID of a GPU.
#[must_use]
pub fn pack_gpu(gpu: GpuUuid) -> Bytes {
    Bytes::copy_from_slice(&gpu.0.to_be_bytes())
}

/// Unpacks the UUID of a GPU.
///
/// # Errors
/// [`InvalidField`] for a wrong number of bytes.
pub fn unpack_gpu(field: &str, bytes: &[u8]) -> Result<GpuUuid, InvalidField> {
    unpack(field, bytes).map(GpuUuid)
}

/// Packs the UUIDs of several GPUs, one after the other.
#[must_use]
pub fn pack_gpus(gpus: &[GpuUuid]) -> Bytes {
    let mut packed = Vec::with_capacity(gpus.len() * UUID_BYTES);
    for gpu in gpus {
        packed.extend_from_slice(&gpu.0.to_be_bytes());
    }
    packed.into()
}

/// Unpacks the UUIDs of several GPUs.
///
/// # Errors
/// [`InvalidField`] for a wrong number of bytes.
pub fn unpack_gpus(field: &str, bytes: &[u8]) -> Result<Vec<GpuUuid>, InvalidField> {
    if !bytes.len().is_multiple_of(UUID_BYTES) {
        let rule = format!("{} bytes are not whole UUIDs", bytes.len());
        return Err(InvalidField::new(field, rule));
    }
    bytes
        .chunks_exact(UUID_BYTES)
        .map(|chunk| unpack_gpu(field, chunk))
        .collect()
}

fn unpack(field: &str, bytes: &[u8]) -> Result<u128, InvalidField> {
    <[u8; UUID_BYTES]>::try_from(bytes)
        .map(u128::from_be_bytes)
        .map_err(|_| InvalidField::new(field, format!("{} bytes are not a UUID", bytes.len())))
}
