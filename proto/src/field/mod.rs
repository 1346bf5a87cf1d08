//! Fields of messages: what a wrong one is refused with, and the values that are carried unchanged.
//!
//! Conversions of whole messages are built from these, here and in the crates that convert messages of their own.

pub mod packed;
mod twin;

use std::convert::Infallible;

use muster_model::rejection::Rejection;
use muster_model::spec::Violation;

#[doc(inline)]
pub use crate::twin_variants;
pub use twin::{MessageTwin, Twin};

/// A field of a message that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct InvalidField {
    /// Path of the field within the message: `target.gpu`, `tasks[3].phase`.
    pub field: String,
    /// The requirement.
    pub rule: String,
}

impl InvalidField {
    /// Builds the error from field and rule.
    pub fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            rule: rule.into(),
        }
    }

    /// Prefixes the field with `parent`, the name of the field's message within the enclosing message.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.field = match self.field.as_str() {
            "" => parent.to_owned(),
            field => format!("{parent}.{field}"),
        };
        self
    }

    /// Prefixes the field with a position in a list of the enclosing message.
    #[must_use]
    pub fn within_item(self, list: &str, position: usize) -> Self {
        self.within(&format!("{list}[{position}]"))
    }
}

impl From<Infallible> for InvalidField {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<InvalidField> for Violation {
    fn from(invalid: InvalidField) -> Self {
        Self {
            field: invalid.field,
            rule: invalid.rule,
        }
    }
}

impl From<InvalidField> for Rejection {
    fn from(invalid: InvalidField) -> Self {
        Self::InvalidRequest(invalid.into())
    }
}

/// Returns a message field that must be present.
///
/// # Errors
/// [`InvalidField`] if it is absent.
pub fn required<T>(field: &str, value: Option<T>) -> Result<T, InvalidField> {
    value.ok_or_else(|| InvalidField::new(field, "must be present"))
}

/// Checks that a text is not empty or blank.
///
/// # Errors
/// [`InvalidField`] if it is.
pub fn not_empty(field: &str, text: &str) -> Result<(), InvalidField> {
    if text.trim().is_empty() {
        return Err(InvalidField::new(field, "must not be empty"));
    }
    Ok(())
}

/// Converts an enumeration's number.
///
/// # Errors
/// [`InvalidField`] if it is 0 or unknown to this version.
pub fn enumeration<Wire, Core>(field: &str, number: i32) -> Result<Core, InvalidField>
where
    Wire: TryFrom<i32>,
    Core: TryFrom<Wire, Error = InvalidField>,
{
    let wire = Wire::try_from(number).map_err(|_| {
        InvalidField::new(
            field,
            format!("{number} is not a value that this version knows"),
        )
    })?;
    Core::try_from(wire).map_err(|invalid| invalid.within(field))
}

/// Converts a port number, if it is present.
///
/// # Errors
/// [`InvalidField`] if it is over 65535.
pub fn port(field: &str, number: Option<u32>) -> Result<Option<u16>, InvalidField> {
    number
        .map(|number| Twin::from_wire(field, number))
        .transpose()
}
