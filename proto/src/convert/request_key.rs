//! Identity of a client's request, by which a repetition is recognized.

use muster_model::ids::RequestKey;
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::convert::{InvalidField, request_id};

/// Returns a request's id with a fingerprint of its contents: the 64-bit XXH3 hash of `name` and of the
/// request's encoding.
///
/// Every build computes the same fingerprint of a request: fields without a value take no bytes, fields are
/// encoded in the order of their numbers and maps in the order of their keys, and fields that this build does
/// not know were dropped when the request was read. `name` distinguishes requests with the same fields.
///
/// # Errors
/// [`InvalidField`] for an invalid request id.
pub(crate) fn request_key(
    name: &str,
    id: &str,
    request: &impl Message,
) -> Result<RequestKey, InvalidField> {
    let id = request_id("request_id", id)?;
    let mut bytes = Vec::with_capacity(name.len() + 1 + request.encoded_len());
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    request.encode_raw(&mut bytes);
    Ok(RequestKey {
        id,
        fingerprint: xxh3_64(&bytes),
    })
}
