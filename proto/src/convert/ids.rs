//! Identities in text form.

use muster_model::ids::{GpuUuid, RequestId};
use muster_model::limits::NAME_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_128;

use crate::clip::clip;
use crate::field::InvalidField;

/// Bytes of a rejected text repeated in the error.
const SHOWN_BYTES_MAX: usize = 64;

/// Parses a GPU's UUID.
///
/// # Errors
/// [`InvalidField`] if it is not `GPU-` and a UUID.
pub fn gpu_uuid(field: &str, text: &str) -> Result<GpuUuid, InvalidField> {
    text.parse().map_err(|_| {
        InvalidField::new(
            field,
            format!(
                "`{}` is not a GPU's UUID (GPU-8-4-4-4-12 hexadecimal digits)",
                clip(text, SHOWN_BYTES_MAX)
            ),
        )
    })
}

/// Parses a request id: a UUID is used as it is, any other text is replaced by its 128-bit XXH3 hash.
///
/// # Errors
/// [`InvalidField`] if it is empty or longer than `NAME_BYTES_MAX`.
pub fn request_id(field: &str, text: &str) -> Result<RequestId, InvalidField> {
    if text.is_empty() {
        let rule = "must not be empty: it makes a repeated request take effect once";
        return Err(InvalidField::new(field, rule));
    }
    if text.len() > NAME_BYTES_MAX {
        let rule = format!(
            "{} bytes are over the limit of {NAME_BYTES_MAX} (NAME_BYTES_MAX)",
            text.len()
        );
        return Err(InvalidField::new(field, rule));
    }
    Ok(text
        .parse()
        .unwrap_or_else(|_| RequestId(xxh3_128(text.as_bytes()))))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_own_request_id() {
        let id = request_id("request_id", "01234567-89AB-cdef-0011-223344556677").unwrap();
        assert_eq!(id.0, 0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    }

    #[test]
    fn any_other_text_is_hashed_to_a_stable_request_id() {
        let id = request_id("request_id", "nightly-2026-11-21").unwrap();
        assert_eq!(id, request_id("request_id", "nightly-2026-11-21").unwrap());
        assert_ne!(id, request_id("request_id", "nightly-2026-11-22").unwrap());
        assert_eq!(id.to_string(), "77e2f609-840e-89f5-9ade-7c2bd8363b05");
    }

    #[test]
    fn empty_and_overlong_request_ids_are_refused_by_name() {
        for text in [String::new(), "x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(
                request_id("request_id", &text).unwrap_err().field,
                "request_id"
            );
        }
    }

    #[test]
    fn an_invalid_gpu_is_quoted_up_to_a_limit() {
        let error = gpu_uuid("gpu", &"é".repeat(1_000)).unwrap_err();
        assert!(error.rule.len() < 200, "{error}");
    }
}
