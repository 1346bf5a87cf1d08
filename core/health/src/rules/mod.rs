//! Health rules as data: the meaning of readings of components.
//!
//! One set applies to the whole cluster. It is replicated and replaced as a whole, with the tables of XIDs
//! and SXids; the shipped set is in `default.toml`, written from named sources. A build's own file has no
//! effect before a leader has put it into the log: builds with different files replay the same log
//! identically.

mod codes;
mod condition;
mod dry_run;
mod error;
mod parse;
mod rails;
mod text;
mod thresholds;

use muster_model::health::{
    Action, Charge, ComponentKind, DeviceAction, Hold as Kept, Scope, Severity, Weight,
};
use muster_model::named_enum;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::checks;
use crate::component::RecoveryLimits;
use crate::guard_rails::RailsLimits;

pub use self::codes::{
    Blame, Codes, Distinct, Link5, Link5Then, LowestBits, RepeatPolicy, SxidPolicy, SxidReach,
    TaskAction, XidPolicy, XidSeverity,
};
pub use self::condition::{Condition, Hold, Operator};
pub use self::dry_run::{DryRun, WouldBlock, dry_run};
pub use self::error::RuleError;
pub use self::thresholds::{
    FLAPPING, Frequency, HISTORY, LEMON, REMEDIATIONS, XID_13, XID_31, XID_REPEAT,
};

/// Name of the table of codes.
const CODES: &str = "codes";
/// The format of rule files that this build reads.
pub const FORMAT: i64 = 1;
/// Maximum number of rules in one set.
pub const RULES_MAX: usize = 512;
/// Maximum number of conditions on one side of a rule.
pub const CONDITIONS_PER_SIDE_MAX: usize = 16;
/// Maximum number of readings or occurrences in one condition: they fit the bits of a machine word.
pub const COUNT_MAX: u32 = 64;
/// Longest span of a condition: 30 days, after which strikes are forgotten as well.
pub const SPAN_MS_MAX: u64 = 30 * muster_model::time::DAY_MS;

named_enum! {
    /// Effect of a rule's findings.
    Mode {
        /// They are counted and shown, and nothing else.
        Observe = "observe",
        /// They are acted upon.
        Enforce = "enforce",
    }
}

named_enum! {
    /// Origin of a rule's threshold.
    Origin {
        /// From the named source.
        Sourced = "sourced",
        /// Partly our own; `figure` says which part.
        Mixed = "mixed",
        /// Derived from the named source.
        Derived = "derived",
        /// Our own, untested.
        Proposed = "proposed",
    }
}

named_enum! {
    /// Condition for ending a block by this rule.
    Clears {
        /// A healthy reading.
        Reading = "reading",
        /// A reset.
        Reset = "reset",
        /// A passed active check.
        Check = "check",
        /// An operator.
        Manual = "manual",
    }
}

/// One side of a rule: its conditions and consequences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Any one of these is enough; never if empty.
    pub when: Vec<Condition>,
    /// Actions.
    pub actions: Vec<Action>,
    /// Scope taken out of placement.
    pub block: Scope,
}

impl Side {
    /// The first repair among its actions; a replacement precedes all others.
    #[must_use]
    pub fn device(&self) -> DeviceAction {
        let of = |action: &Action| match action {
            Action::Rma => Some(DeviceAction::Rma),
            Action::Inspect => Some(DeviceAction::Inspect),
            Action::Reboot => Some(DeviceAction::Reboot),
            Action::Reset => Some(DeviceAction::Reset),
            Action::ResetIdle => Some(DeviceAction::ResetIdle),
            Action::Check => Some(DeviceAction::Check),
            _ => None,
        };
        if self.actions.contains(&Action::Rma) {
            return DeviceAction::Rma;
        }
        let first = self.actions.iter().find_map(of);
        first.unwrap_or(DeviceAction::None)
    }

    /// Placement restriction while it holds.
    #[must_use]
    pub fn restriction(&self) -> Option<Kept> {
        let has = |action: Action| self.actions.contains(&action);
        if has(Action::NoNewTask) {
            Some(Kept::Everything)
        } else if has(Action::NoGang) || has(Action::NoPeerGang) {
            Some(Kept::Gangs)
        } else {
            None
        }
    }
}

/// A rule: the meaning of one signal of one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name, unique in its set.
    pub id: String,
    /// Kind of component that it judges.
    pub component: ComponentKind,
    /// Source of its readings.
    pub source: String,
    /// All of these must hold for it to be over; if empty, it is over once neither side holds.
    pub healthy: Vec<Condition>,
    /// Side of a component that works badly.
    pub degraded: Side,
    /// Side of a component that does not work.
    pub fatal: Side,
    /// Condition for ending a block.
    pub clears: Clears,
    /// Budget charged for attempts that end for it.
    pub charge: Charge,
    /// Weight of its evidence.
    pub weight: Weight,
    /// Whether it has consequences.
    pub mode: Mode,
    /// Origin of its threshold.
    pub origin: Origin,
    /// The source of its threshold, by name.
    pub figure: String,
}

/// Source of rules that the leader evaluates, from findings and ends of attempts.
const DERIVED: &str = "derived";

impl Rule {
    /// Whether workers evaluate it.
    #[must_use]
    pub fn is_read_by_workers(&self) -> bool {
        self.source != DERIVED
    }

    /// The side of a severity.
    #[must_use]
    pub const fn side(&self, severity: Severity) -> Option<&Side> {
        match severity {
            Severity::Degraded => Some(&self.degraded),
            Severity::Fatal => Some(&self.fatal),
            Severity::Healthy | Severity::Info | Severity::Warn => None,
        }
    }

    /// Scope that a severity takes out of placement, while the rule is enforced.
    #[must_use]
    pub fn block(&self, severity: Severity) -> Scope {
        match self.mode {
            Mode::Observe => Scope::None,
            Mode::Enforce => self.side(severity).map_or(Scope::None, |side| side.block),
        }
    }
}

/// The rule of site checks without a rule of their own.
pub const SITE_CHECK: &str = "site_check";

/// All rules of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    /// The rules, by name.
    pub rules: Vec<Rule>,
    /// Waits, probation and repair limits.
    pub recovery_limits: RecoveryLimits,
    /// Limits of the guard rails.
    pub rails: RailsLimits,
    /// Tables of codes.
    pub codes: Codes,
}

impl RuleSet {
    /// The rule file shipped with Muster.
    pub const SHIPPED_TEXT: &'static str = include_str!("default.toml");
    /// Version of the shipped file: every change of the file increases it, so that clusters with shipped
    /// rules adopt it. A change that an older build cannot read also needs a new command format.
    pub const SHIPPED_VERSION: u32 = 1;

    /// The shipped file with other spans, in seconds: the wait from a first block until a passed check
    /// readmits, and the first probation. For short-lived clusters.
    #[must_use]
    pub fn shipped_text_with(first_wait_s: u64, first_probation_s: u64) -> String {
        let wait = format!("first_wait_s = {first_wait_s}");
        let probation = format!("first_probation_s = {first_probation_s}");
        let text = Self::SHIPPED_TEXT.replacen("first_wait_s = 900", &wait, 1);
        text.replacen("first_probation_s = 3600", &probation, 1)
    }

    /// Fingerprint of a rule file: XXH3 of the text, but never 0, which means none.
    #[must_use]
    pub fn fingerprint(text: &str) -> u64 {
        xxh3_64(text.as_bytes()).max(1)
    }

    /// The rules shipped with Muster.
    ///
    /// # Errors
    /// None in a build that passed its tests: they parse the same text.
    pub fn shipped() -> Result<Self, RuleError> {
        Self::parse(Self::SHIPPED_TEXT)
    }

    /// Completes a rule file with the shipped tables of codes if it has none itself: the form that is put
    /// into the log.
    ///
    /// # Errors
    /// The problem, its position and a remedy.
    pub fn whole_text(text: &str) -> Result<String, RuleError> {
        let mut whole = text.to_owned();
        if parse::file(text)?.codes.is_none() {
            let head = format!("[{CODES}]\n");
            let at = Self::SHIPPED_TEXT.find(&head);
            let codes = at.map_or("", |at| &Self::SHIPPED_TEXT[at..]);
            whole.push_str("\n\n");
            whole.push_str(codes);
        }
        Ok(whole)
    }

    /// Parses a complete rule file.
    ///
    /// # Errors
    /// The problem, its position and a remedy; also if the tables of codes are missing.
    pub fn parse_whole(text: &str) -> Result<Self, RuleError> {
        let file = parse::file(text)?;
        let Some(codes) = file.codes else {
            let remedy = "add the table of `muster health rules`";
            let error = RuleError::at(0, "it is missing, and a cluster's rules are whole", remedy);
            return Err(error.of_rule(CODES));
        };
        Ok(Self::of(
            file.rules,
            file.recovery_limits,
            file.rails,
            codes,
        ))
    }

    /// Parses a rule file; without tables of codes, the shipped ones apply.
    ///
    /// # Errors
    /// The problem, its position and a remedy.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        Self::parse_whole(&Self::whole_text(text)?)
    }

    fn of(
        rules: Vec<Rule>,
        recovery_limits: RecoveryLimits,
        rails: RailsLimits,
        codes: Codes,
    ) -> Self {
        let recovery_limits = match thresholds::repairs(&rules) {
            Some(often) => RecoveryLimits {
                repairs_max: often.times,
                repairs_span_ms: often.span_ms,
                ..recovery_limits
            },
            None => recovery_limits,
        };
        Self {
            rules,
            recovery_limits,
            rails,
            codes,
        }
    }

    /// The rule of this name. A site's own check has a rule if the site wrote one, and otherwise uses
    /// [`SITE_CHECK`].
    #[must_use]
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        let of = |id: &str| {
            let at = self.rules.binary_search_by(|rule| rule.id.as_str().cmp(id));
            self.rules.get(at.ok()?)
        };
        let shared = || of(SITE_CHECK).filter(|_| id.starts_with(checks::RULE_PREFIX));
        of(id).or_else(shared)
    }
}

#[cfg(test)]
impl RuleSet {
    /// The shipped rules with one text of a table replaced.
    pub(crate) fn edited(table: &str, from: &str, to: &str) -> Self {
        Self::parse(&Self::edited_text(table, from, to)).expect("the edited rules parse")
    }

    /// Text of the rules returned by `edited`.
    pub(crate) fn edited_text(table: &str, from: &str, to: &str) -> String {
        let head = format!("[{table}]\n");
        let (before, after) = Self::SHIPPED_TEXT.split_once(&head).expect("it ships");
        let changed = after.replacen(from, to, 1);
        assert_ne!(changed, after, "{from}");
        format!("{before}{head}{changed}")
    }
}

#[cfg(test)]
mod tests;
