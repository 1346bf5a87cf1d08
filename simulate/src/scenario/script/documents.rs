//! YAML documents within a script, and in files that it names.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::scenario::script::ScriptError;

/// Parses a document that begins after line `before` of the script.
pub(crate) fn read<T: DeserializeOwned + Default>(
    text: &str,
    before: u32,
) -> Result<Arc<T>, ScriptError> {
    if text.trim().is_empty() {
        return Ok(Arc::default());
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed = serde_saphyr::from_str_with_options(text, options);
    parsed.map(Arc::new).map_err(|error| {
        let place = error.location();
        let (line, column) = place.map_or((1, 1), |place| (place.line(), place.column()));
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let text = error.without_snippet().to_string();
        // Counted within the document; the position in the script precedes it.
        let within = format!(" at line {line}, column {column}");
        let message = text.strip_suffix(&within).unwrap_or(&text).to_owned();
        ScriptError::new(before.saturating_add(number(line)), number(column), message)
    })
}
