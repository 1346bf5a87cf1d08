//! The health rules in force.

use std::sync::{Arc, LazyLock};

use muster_health::rules::{RuleError, RuleSet};
use muster_model::ids::Revision;

/// The rules shipped with this build.
static SHIPPED: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let shipped = RuleSet::shipped();
    Arc::new(shipped.expect("the shipped rules are parsed by the tests of this build"))
});

/// The health rules in force, as text and parsed.
///
/// A new cluster has none in its log; its first leader writes those of its build before anything is found:
/// the shipped rules of a build have no effect on their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// The revision that set them; 0 before they are set.
    pub revision: Revision,
    /// The rule file, including the meaning of codes; empty before it is set.
    pub text: Arc<str>,
    /// Version of the shipped rule file, which a newer one replaces; `None` if an operator wrote it.
    pub shipped: Option<u32>,
    /// The parsed rules. Derived.
    pub set: Arc<RuleSet>,
    /// Checksum by which workers identify the file; 0 before it is set. Derived.
    pub sum: u64,
}

impl HealthRules {
    /// Parses a complete rule file set by `revision`.
    ///
    /// # Errors
    /// The location of the mistake and a correct form.
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
            sum: RuleSet::fingerprint(text),
        })
    }

    /// Whether this version of the shipped file replaces them.
    #[must_use]
    pub fn is_replaced_by(&self, version: u32) -> bool {
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
