//! JSON for programs: keys in the order of `docs/cli-json.md`.

use serde::Serialize;

use crate::failure::Failure;

/// An indented document with a final newline.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::internal(&error))?;
    Ok(text + "\n")
}

/// A document on one line, with a final newline.
pub(crate) fn to_json_line<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::internal(&error))?;
    Ok(text + "\n")
}
