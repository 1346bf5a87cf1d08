//! Rules as data: which reading of which component means what.
//!
//! One set counts for the whole cluster. It is replicated whole and replaced whole, with the tables that say what XIDs and
//! SXids mean; what ships is in `default.toml`, written from named sources. A build's own file decides nothing before a leader
//! has put it into the log: builds with different ones read the same log in the same way.

mod codes;
mod condition;
mod dry_run;
mod error;
mod figures;
mod parse;
mod rails;
mod text;

use muster_model::health::{
    Action, Charge, ComponentKind, DeviceAction, Hold as Kept, Scope, Severity, Weight,
};
use muster_model::word_enum;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::checks;
use crate::component::Patience;
use crate::guard_rails::RailsLimits;

pub use self::codes::{
    Blame, Codes, Distinct, Link5, Link5Then, RepeatPolicy, SxidPolicy, SxidReach, TaskAction,
    XidPolicy, XidSeverity,
};
pub use self::condition::{Condition, Hold, Operator};
pub use self::dry_run::{DryRun, WouldBlock, dry_run};
pub use self::error::RuleError;
pub use self::figures::{
    FLAPPING, HISTORY, LEMON, Often, REMEDIATIONS, XID_13, XID_31, XID_REPEAT,
};

/// The table that says what codes mean.
const CODES: &str = "codes";
/// The format of rule files that this build reads.
pub const FORMAT: i64 = 1;
/// Rules in one set.
pub const RULES_MAX: usize = 512;
/// Conditions on one side of a rule.
pub const CONDITIONS_PER_SIDE_MAX: usize = 16;
/// Readings or occurrences that one condition may ask for: they fit the bits of a machine word.
pub const COUNT_MAX: u32 = 64;
/// Longest span of a condition: 30 days, after which strikes are forgotten as well.
pub const SPAN_MS_MAX: u64 = 30 * muster_model::time::DAY_MS;

word_enum! {
    /// What a rule's findings lead to.
    Mode {
        /// They are counted and shown, and nothing else.
        Observe = "observe",
        /// They are acted upon.
        Enforce = "enforce",
    }
}

word_enum! {
    /// Where a rule's figure is from.
    Origin {
        /// The named source has it.
        Sourced = "sourced",
        /// Part of it is ours; `figure` says which.
        Mixed = "mixed",
        /// It follows from the named source.
        Derived = "derived",
        /// Ours, untested.
        Proposed = "proposed",
    }
}

word_enum! {
    /// What ends a block by this rule.
    Clears {
        /// A healthy reading is enough.
        Reading = "reading",
        /// A reset.
        Reset = "reset",
        /// A passed active check.
        Check = "check",
        /// A person.
        Manual = "manual",
    }
}

/// One side of a rule: from when on it holds, and what follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Any one of these is enough; never if there is none.
    pub when: Vec<Condition>,
    /// What is done.
    pub actions: Vec<Action>,
    /// What is taken out of placement.
    pub block: Scope,
}

impl Side {
    /// The first repair among its actions; an exchange goes before all others.
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

    /// What is kept off as long as it holds.
    #[must_use]
    pub fn keeps_off(&self) -> Option<Kept> {
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

/// What one signal of one component means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name, unique in its set.
    pub id: String,
    /// What kind of thing it judges.
    pub component: ComponentKind,
    /// Where its readings come from.
    pub source: String,
    /// All of these must hold for it to be over; without any it is over once neither side holds.
    pub healthy: Vec<Condition>,
    /// It works badly.
    pub degraded: Side,
    /// It does not work.
    pub fatal: Side,
    /// What ends a block.
    pub clears: Clears,
    /// Who pays for attempts that end for it.
    pub charge: Charge,
    /// How sure it is.
    pub weight: Weight,
    /// Whether anything follows.
    pub mode: Mode,
    /// Where its figure is from.
    pub origin: Origin,
    /// The source of its figure, by name.
    pub figure: String,
}

impl Rule {
    /// What follows from a severity.
    #[must_use]
    pub const fn side(&self, severity: Severity) -> Option<&Side> {
        match severity {
            Severity::Degraded => Some(&self.degraded),
            Severity::Fatal => Some(&self.fatal),
            Severity::Healthy | Severity::Info | Severity::Warn => None,
        }
    }

    /// What a severity takes out of placement, as long as the rule is enforced.
    #[must_use]
    pub fn block(&self, severity: Severity) -> Scope {
        match self.mode {
            Mode::Observe => Scope::None,
            Mode::Enforce => self.side(severity).map_or(Scope::None, |side| side.block),
        }
    }
}

/// The rule of site checks that have none of their own.
pub const SITE_CHECK: &str = "site_check";

/// All rules of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    /// The rules, by name.
    pub rules: Vec<Rule>,
    /// How long what failed must wait and prove itself.
    pub patience: Patience,
    /// How much harm they may do together.
    pub rails: RailsLimits,
    /// What XIDs and SXids mean.
    pub codes: Codes,
}

impl RuleSet {
    /// The rule file that ships with Muster.
    pub const SHIPPED_TEXT: &'static str = include_str!("default.toml");
    /// Which one that is: every change of the file raises it, so that clusters that follow it take it over. What an older build
    /// cannot read needs a new format of commands as well.
    pub const SHIPPED_VERSION: u32 = 1;

    /// The same file with other spans, in seconds: from a first block until a passed check readmits, and of a first probation.
    /// For clusters that do not live as long.
    #[must_use]
    pub fn shipped_text_with(first_wait_s: u64, first_probation_s: u64) -> String {
        let wait = format!("first_wait_s = {first_wait_s}");
        let probation = format!("first_probation_s = {first_probation_s}");
        let text = Self::SHIPPED_TEXT.replacen("first_wait_s = 900", &wait, 1);
        text.replacen("first_probation_s = 3600", &probation, 1)
    }

    /// By what two rule files are told apart: XXH3 of the text, and never 0, which stands for none.
    #[must_use]
    pub fn sum_of(text: &str) -> u64 {
        xxh3_64(text.as_bytes()).max(1)
    }

    /// The rules that ship with Muster.
    ///
    /// # Errors
    /// None in a build that passed its tests: they parse the same text.
    pub fn shipped() -> Result<Self, RuleError> {
        Self::parse(Self::SHIPPED_TEXT)
    }

    /// A rule file with the tables of codes that ship, if it has none itself: as it is put into the log.
    ///
    /// # Errors
    /// What is wrong with it, where, and what would be right.
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

    /// Reads a rule file that is whole.
    ///
    /// # Errors
    /// What is wrong, where, and what would be right; also if it does not say what codes mean.
    pub fn parse_whole(text: &str) -> Result<Self, RuleError> {
        let file = parse::file(text)?;
        let Some(codes) = file.codes else {
            let way_out = "add the table of `muster health rules`";
            let error = RuleError::at(0, "it is missing, and a cluster's rules are whole", way_out);
            return Err(error.of_rule(CODES));
        };
        Ok(Self::of(file.rules, (file.patience, file.rails), codes))
    }

    /// Reads a rule file; without tables of codes, those that ship count.
    ///
    /// # Errors
    /// What is wrong, where, and what would be right.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        Self::parse_whole(&Self::whole_text(text)?)
    }

    fn of(rules: Vec<Rule>, (patience, rails): (Patience, RailsLimits), codes: Codes) -> Self {
        let patience = match figures::repairs(&rules) {
            Some(often) => Patience {
                repairs_max: often.times,
                repairs_span_ms: often.span_ms,
                ..patience
            },
            None => patience,
        };
        Self {
            rules,
            patience,
            rails,
            codes,
        }
    }

    /// The rule of this name. A site's own check has one if the site wrote one, and else shares [`SITE_CHECK`].
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

    /// See `edited`.
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
