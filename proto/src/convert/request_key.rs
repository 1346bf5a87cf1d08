//! Identity of a client's request, by which a repetition is recognized.

use muster_model::ids::RequestKey;
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::convert::request_id;
use crate::field::InvalidField;

/// Returns a request's id with a fingerprint of its contents: the 64-bit XXH3 hash of `name` and of the
/// request's encoding.
///
/// Every build computes the same fingerprint of a request: fields without a value take no bytes, fields are
/// encoded in the order of their numbers and maps in the order of their keys, and fields that this build does
/// not know were dropped when the request was read. `name` distinguishes requests with the same fields.
/// Callers clear flags of checks that change nothing (`validate_only`, `dry_run`) first: a check and the change
/// itself have the same fingerprint.
///
/// # Errors
/// [`InvalidField`] for an invalid request id.
pub fn request_key(
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use crate::v1;

    use super::*;

    fn fingerprint(name: &str, request: &impl Message) -> u64 {
        let key = request_key(name, "nightly", request).unwrap();
        key.fingerprint
    }

    fn submission() -> v1::SubmitJobRequest {
        v1::SubmitJobRequest {
            request_id: "nightly".to_owned(),
            spec: Some(v1::JobSpec {
                name: "train".to_owned(),
                user: "ada".to_owned(),
                groups: vec![v1::TaskGroup::default()],
                labels: [("team".to_owned(), "vision".to_owned())].into(),
                ..v1::JobSpec::default()
            }),
            validate_only: false,
        }
    }

    /// The same request as the client sent it and as a replica forwards it.
    #[test]
    fn a_repetition_has_the_same_fingerprint() {
        let request = submission();
        let forwarded = v1::SubmitJobRequest::decode(request.encode_to_vec().as_slice()).unwrap();
        assert_eq!(
            request_key("submit_job", "nightly", &request),
            request_key("submit_job", "nightly", &forwarded)
        );
    }

    #[test]
    fn a_change_anywhere_is_another_fingerprint() {
        let changes: [fn(&mut v1::JobSpec); 8] = [
            |_| {},
            |spec| spec.name.push('2'),
            |spec| spec.user.clear(),
            |spec| spec.groups.push(v1::TaskGroup::default()),
            |spec| spec.groups[0].command.push("echo".to_owned()),
            |spec| spec.groups[0].count = Some(2),
            |spec| drop(spec.labels.insert("team".to_owned(), "speech".to_owned())),
            |spec| {
                spec.lifecycle = Some(v1::Lifecycle {
                    member_swap: true,
                    ..v1::Lifecycle::default()
                });
            },
        ];
        let fingerprints = changes.map(|change| {
            let mut request = submission();
            change(request.spec.as_mut().unwrap());
            fingerprint("submit_job", &request)
        });
        assert_eq!(BTreeSet::from(fingerprints).len(), changes.len());
    }

    #[test]
    fn texts_that_move_to_another_field_change_the_fingerprint() {
        let of = |author: &str, reason: &str| {
            let request = v1::CancelJobRequest {
                author: author.to_owned(),
                reason: reason.to_owned(),
                ..v1::CancelJobRequest::default()
            };
            fingerprint("cancel_job", &request)
        };
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_ne!(of("ab", ""), of("", "ab"));
    }

    /// The log of a cluster contains such numbers: a change would refuse repetitions after an upgrade.
    #[test]
    fn fingerprints_are_frozen() {
        let request = v1::CancelJobRequest {
            request_id: "nightly".to_owned(),
            job_id: 7,
            author: "ada".to_owned(),
            reason: "typo".to_owned(),
        };
        assert_eq!(
            fingerprint("cancel_job", &request),
            6_564_985_799_338_839_955
        );
        // Another kind of request with the same fields.
        assert_ne!(
            fingerprint("suspend_job", &request),
            6_564_985_799_338_839_955
        );
    }
}
