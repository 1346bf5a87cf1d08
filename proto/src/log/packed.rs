//! UUIDs as 16 bytes, most significant first; several of them one after the other.

use bytes::Bytes;
use muster_core::ids::{GpuUuid, RequestId};

use super::error::Field;
use crate::convert::InvalidField;

/// Bytes of one UUID.
const UUID_BYTES: usize = 16;

pub(super) fn pack_request(request: RequestId) -> Bytes {
    Bytes::copy_from_slice(&request.0.to_be_bytes())
}

pub(super) fn unpack_request(field: &str, bytes: &[u8]) -> Field<RequestId> {
    unpack(field, bytes).map(RequestId)
}

pub(super) fn pack_gpu(gpu: GpuUuid) -> Bytes {
    Bytes::copy_from_slice(&gpu.0.to_be_bytes())
}

pub(super) fn unpack_gpu(field: &str, bytes: &[u8]) -> Field<GpuUuid> {
    unpack(field, bytes).map(GpuUuid)
}

pub(super) fn pack_gpus(gpus: &[GpuUuid]) -> Bytes {
    let mut packed = Vec::with_capacity(gpus.len() * UUID_BYTES);
    for gpu in gpus {
        packed.extend_from_slice(&gpu.0.to_be_bytes());
    }
    packed.into()
}

pub(super) fn unpack_gpus(field: &str, bytes: &[u8]) -> Field<Vec<GpuUuid>> {
    if !bytes.len().is_multiple_of(UUID_BYTES) {
        let rule = format!("{} bytes are not whole UUIDs", bytes.len());
        return Err(InvalidField::new(field, rule));
    }
    bytes
        .chunks_exact(UUID_BYTES)
        .map(|chunk| unpack_gpu(field, chunk))
        .collect()
}

fn unpack(field: &str, bytes: &[u8]) -> Field<u128> {
    <[u8; UUID_BYTES]>::try_from(bytes)
        .map(u128::from_be_bytes)
        .map_err(|_| InvalidField::new(field, format!("{} bytes are not a UUID", bytes.len())))
}
