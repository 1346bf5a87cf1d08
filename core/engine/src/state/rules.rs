//! The health rules in force.

use std::sync::{Arc, LazyLock};

use muster_health::rules::{RuleError, RuleSet};
use muster_model::ids::Revision;

/// The rules of this build.
static SHIPPED: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let shipped = RuleSet::shipped();
    Arc::new(shipped.expect("the tests of this build parse the same text"))
});

/// The health rules in force: as they were given, and as they are read.
///
/// A cluster begins with none in its log, and its first leader puts those of its build there before anything is found: what a
/// build ships with decides nothing by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// The revision that set them; 0 before any were set.
    pub revision: Revision,
    /// The rule file, with what codes mean; empty before any were set.
    pub text: Arc<str>,
    /// Which of the files that ship with Muster this is, and a newer one takes its place; none if somebody wrote it.
    pub shipped: Option<u32>,
    /// What it says. Derived.
    pub set: Arc<RuleSet>,
    /// By what a worker knows the file when it has it; 0 before any were set. Derived.
    pub sum: u64,
}

impl HealthRules {
    /// Reads a whole rule file that `revision` sets.
    ///
    /// # Errors
    /// What is wrong with it, where, and what would be right.
    pub fn read(
        revision: Revision,
        text: &Arc<str>,
        shipped: Option<u32>,
    ) -> Result<Self, RuleError> {
        let set = if **text == *RuleSet::SHIPPED_TEXT {
            Arc::clone(&SHIPPED)
        } else {
            Arc::new(RuleSet::parse_whole(text)?)
        };
        Ok(Self {
            revision,
            text: Arc::clone(text),
            shipped,
            set,
            sum: RuleSet::sum_of(text),
        })
    }

    /// Whether this version of the file that ships is to take their place.
    #[must_use]
    pub fn give_way_to(&self, version: u32) -> bool {
        self.shipped.is_some_and(|own| own < version)
    }
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            revision: Revision::default(),
            text: Arc::from(""),
            shipped: Some(0),
            set: Arc::clone(&SHIPPED),
            sum: 0,
        }
    }
}
