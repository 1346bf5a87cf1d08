//! The health rules in force.

use std::sync::{Arc, LazyLock};

use crate::health::rules::{RuleError, RuleSet};
use crate::ids::Revision;

/// The rules that ship with Muster.
static SHIPPED: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let shipped = RuleSet::shipped();
    Arc::new(shipped.expect("the tests of this build parse the same text"))
});

/// The health rules in force: as they were given, and as they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// The revision that set them; 0 for those that ship with Muster.
    pub revision: Revision,
    /// The rule file; empty for those that ship with Muster.
    pub text: Arc<str>,
    /// What it says. Derived.
    pub set: Arc<RuleSet>,
}

impl HealthRules {
    /// Reads a rule file that `revision` sets; an empty one stands for the rules that ship with Muster.
    ///
    /// # Errors
    /// What is wrong with it, where, and what would be right.
    pub fn read(revision: Revision, text: &Arc<str>) -> Result<Self, RuleError> {
        let set = if text.is_empty() {
            Arc::clone(&SHIPPED)
        } else {
            Arc::new(RuleSet::parse(text)?)
        };
        Ok(Self {
            revision,
            text: Arc::clone(text),
            set,
        })
    }
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            revision: Revision::default(),
            text: Arc::from(""),
            set: Arc::clone(&SHIPPED),
        }
    }
}
