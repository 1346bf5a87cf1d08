//! Pages of lists: how many rows, and where to go on.

use muster_proto::status;
use tonic::{Code, Status};

/// Rows of a page whose size was not given.
const ROWS_DEFAULT: u32 = 100;
/// Rows looked at for one page, so that a filter that matches little cannot hold a request for long.
pub(crate) const EXAMINED_ROWS_MAX: usize = 50_000;

/// The number of rows asked for, within the limit.
pub(crate) fn rows(given: u32, limit: u32) -> usize {
    let rows = if given == 0 { ROWS_DEFAULT } else { given };
    usize::try_from(rows.min(limit)).unwrap_or(usize::MAX)
}

/// Reads numbers out of a token; none from an empty one.
pub(crate) fn parse<const PARTS: usize>(
    field: &str,
    token: &str,
) -> Result<Option<[u64; PARTS]>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let mut numbers = [0; PARTS];
    let mut parts = token.split('.');
    for number in &mut numbers {
        let part = parts.next().and_then(|part| part.parse().ok());
        *number = part.ok_or_else(|| damaged(field, token))?;
    }
    match parts.next() {
        None => Ok(Some(numbers)),
        Some(_) => Err(damaged(field, token)),
    }
}

/// A page token that is not one of ours.
pub(crate) fn damaged(field: &str, token: &str) -> Status {
    let shown: String = token.chars().take(64).collect();
    status::error(
        Code::InvalidArgument,
        "INVALID_REQUEST",
        &format!("{field}: `{shown}` is not a token of an earlier answer"),
        &[("field", field.to_owned())],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_numbers_with_dots() {
        assert_eq!(parse::<2>("page_token", "").ok(), Some(None));
        assert_eq!(parse::<2>("page_token", "7.3").ok(), Some(Some([7, 3])));
        for token in ["7", "7.x", "7.3.1", "-1.2"] {
            assert!(parse::<2>("page_token", token).is_err(), "{token}");
        }
    }

    #[test]
    fn pages_have_a_default_and_a_limit() {
        assert_eq!(rows(0, 1_000), 100);
        assert_eq!(rows(7, 1_000), 7);
        assert_eq!(rows(u32::MAX, 1_000), 1_000);
    }
}
