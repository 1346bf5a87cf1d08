//! Versioned encoding: frames, and conversions between openraft's types and our protobuf messages.
//!
//! openraft calls its own serialized forms unstable, so none of them reaches disk or wire.

pub(crate) mod convert;
pub(crate) mod frame;
pub(crate) mod record;
