//! Settings of the long-running roles, derived from one description: the struct that a role works with.
//!
//! Names, types, defaults and texts of all options come from that struct ([`options`]); files, environment
//! variables, flags and the documentation follow from them. A flag overrides a variable, a variable the
//! file, and the file the default ([`load`]).
#![forbid(unsafe_code)]

mod load;
mod logging;
mod option;
mod position;
mod print;
mod problem;
mod reload;
mod tracing;
mod value;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use load::{Loaded, load};
pub use logging::{LogFormat, LoggingSettings};
pub use option::{Kind, SettingsOption, options};
pub use print::{default_file, reference};
pub use problem::{Problem, Problems};
pub use reload::{Changes, changes};
pub use tracing::TracingSettings;
pub use value::{OptionValue, Origin};

/// Version of options that do not specify the version of their introduction.
pub const FIRST_VERSION: &str = "0.1.0";

/// The settings of a role.
///
/// Fields are options, fields that are structs are tables of options. A field may carry, as
/// `#[schemars(extend("x-..." = ...))]`: `x-since` (version), `x-reload` (true: it takes effect without a restart),
/// `x-flag`, `x-alias` and `x-variable` (names other than those derived from the key).
pub trait Settings: Serialize + DeserializeOwned + Default + JsonSchema {
    /// Name of the role, as in `muster scheduler`.
    const ROLE: &'static str;

    /// Returns the first rule that these settings violate.
    fn broken_rule(&self) -> Option<BrokenRule>;
}

/// Violated rule of an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting `{key}`: {rule}")]
pub struct BrokenRule {
    /// Key of the option, with dots: `raft.heartbeat_ms`. An entry of a list or a map is written
    /// `peers[2]`.
    pub key: String,
    /// The requirement.
    pub rule: String,
}
