//! Thresholds of rules that the state itself evaluates, as no reading meets their conditions. Such a rule has
//! a fixed form from which the state reads its threshold; any other form is rejected rather than displayed
//! and ignored.

use muster_model::health::{Action, Scope, Severity};
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

use crate::component::REPAIRS_KEPT_MAX;
use crate::evaluate::{OCCURRENCE_KEPT_MS, OCCURRENCES_PER_GPU_MAX};
use crate::flap_history::SILENCES_KEPT_MAX;
use crate::lemons::LEMON_MILLI;
use crate::rules::{Condition, Hold, Operator, Rule, RuleSet, SPAN_MS_MAX, Side, condition};

/// Repeated fatal XIDs.
pub const XID_REPEAT: &str = "xid_repeat";
/// XID 31 on one GPU.
pub const XID_31: &str = "xid31_same_gpu";
/// XID 13 on one cluster of a GPU.
pub const XID_13: &str = "xid13_same_tpc";
/// Repairs of one component.
pub const REMEDIATIONS: &str = "remediations";
/// Failures of several jobs and users on one GPU.
pub const HISTORY: &str = "history";
/// A host that fails more often than others.
pub const LEMON: &str = "lemon";
/// A flapping host.
pub const FLAPPING: &str = "flapping";

/// Maximum number of jobs whose failures are compared on one GPU.
const JOBS_COMPARED_MAX: u32 = 64;

/// A frequency threshold: occurrences within a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// Number of occurrences.
    pub times: u32,
    /// Span in milliseconds.
    pub span_ms: u64,
}

impl Frequency {
    const fn new(times: u32, span_ms: u64) -> Self {
        Self { times, span_ms }
    }

    /// The span in readable form: `24 h`, `10 min`.
    #[must_use]
    pub fn span(self) -> String {
        let units = [(HOUR_MS, "h"), (MINUTE_MS, "min")];
        let fits = |(unit_ms, _): &&(u64, &str)| self.span_ms.is_multiple_of(*unit_ms);
        let (unit_ms, word) = units.iter().find(fits).unwrap_or(&(SECOND_MS, "s"));
        format!("{} {word}", self.span_ms / unit_ms)
    }
}

/// Form of the threshold of a rule.
struct Form {
    rule: &'static str,
    metric: &'static str,
    severity: Severity,
    figure: Threshold,
}

enum Threshold {
    /// Occurrences in a span: the default, and the most that the state remembers.
    Often { usual: Frequency, most: Frequency },
    /// One value.
    Value,
}

const FORMS: [Form; 7] = [
    bursts(XID_REPEAT, 5),
    bursts(XID_31, 2),
    bursts(XID_13, 2),
    often(
        REMEDIATIONS,
        "repairs",
        Frequency::new(5, 7 * DAY_MS),
        REPAIRS,
    ),
    often(HISTORY, "failures", Frequency::new(2, DAY_MS), FAILURES),
    Form {
        rule: LEMON,
        metric: "score_milli",
        severity: Severity::Fatal,
        figure: Threshold::Value,
    },
    Form {
        severity: Severity::Degraded,
        ..often(
            FLAPPING,
            "silences",
            Frequency::new(3, 10 * MINUTE_MS),
            SILENCES,
        )
    },
];

const REPAIRS: Frequency = Frequency {
    times: REPAIRS_KEPT_MAX,
    span_ms: SPAN_MS_MAX,
};
/// Ends are compared with those of a day.
const FAILURES: Frequency = Frequency {
    times: JOBS_COMPARED_MAX,
    span_ms: DAY_MS,
};
const SILENCES: Frequency = Frequency {
    times: SILENCES_KEPT_MAX,
    span_ms: SPAN_MS_MAX,
};
const BURSTS: Frequency = Frequency {
    times: OCCURRENCES_PER_GPU_MAX,
    span_ms: OCCURRENCE_KEPT_MS,
};

const fn bursts(rule: &'static str, times: u32) -> Form {
    often(rule, "bursts", Frequency::new(times, DAY_MS), BURSTS)
}

const fn often(
    rule: &'static str,
    metric: &'static str,
    usual: Frequency,
    most: Frequency,
) -> Form {
    Form {
        rule,
        metric,
        severity: Severity::Fatal,
        figure: Threshold::Often { usual, most },
    }
}

impl Form {
    fn of(rule: &str) -> Option<&'static Self> {
        FORMS.iter().find(|form| form.rule == rule)
    }

    /// The side that the state evaluates, and the other one.
    const fn sides<'a>(&self, rule: &'a Rule) -> (&'a Side, &'a Side) {
        match self.severity {
            Severity::Degraded => (&rule.degraded, &rule.fatal),
            _ => (&rule.fatal, &rule.degraded),
        }
    }

    const fn names(&self) -> (&'static str, &'static str) {
        match self.severity {
            Severity::Degraded => ("degraded", "fatal"),
            _ => ("fatal", "degraded"),
        }
    }

    /// Threshold of a condition; `None` if it is not in this form.
    fn read(&self, condition: &Condition) -> Option<Frequency> {
        let is_mine = condition.metric == self.metric && condition.model.is_none();
        let least = match condition.operator {
            Operator::AtLeast => condition.value,
            Operator::Above => condition.value.checked_add(1)?,
            _ => return None,
        };
        let value = u32::try_from(least).ok().filter(|_| is_mine)?;
        match (&self.figure, condition.hold) {
            (Threshold::Value, Hold::Once) => Some(Frequency {
                times: value,
                span_ms: 0,
            }),
            // Without a span, the default applies.
            (Threshold::Often { usual, most }, Hold::Once) => Some(Frequency {
                times: value,
                ..*usual
            })
            .filter(|it| (1..=most.times).contains(&it.times)),
            (Threshold::Often { most, .. }, Hold::Within { times, span_ms }) => {
                let fits = value == 1 && times <= most.times && span_ms <= most.span_ms;
                fits.then_some(Frequency { times, span_ms })
            }
            _ => None,
        }
    }

    fn remedy(&self) -> String {
        let metric = self.metric;
        match &self.figure {
            Threshold::Value => format!("write `{metric} >= NUMBER`, and nothing else"),
            Threshold::Often { usual, most } => {
                let (times, span) = (usual.times, condition::Span(usual.span_ms));
                let (most, longest) = (most.times, condition::Span(most.span_ms));
                format!(
                    "write `{metric} >= 1, {times} in {span}`, with 1 to {most} times in at most {longest}"
                )
            }
        }
    }
}

/// Checks a rule that the state evaluates; the error is the field, the problem and the remedy.
pub(super) fn check(rule: &Rule) -> Result<(), (&'static str, String, String)> {
    let Some(form) = Form::of(&rule.id) else {
        return Ok(());
    };
    let (side, other) = form.sides(rule);
    let (name, other_name) = form.names();
    let [condition] = &side.when[..] else {
        let problem = "the state itself counts for this rule, by one condition".to_owned();
        return Err((name, problem, form.remedy()));
    };
    if form.read(condition).is_none() {
        let problem = format!("the state itself counts for this rule, and not `{condition}`");
        return Err((name, problem, form.remedy()));
    }
    if !rule.healthy.is_empty() {
        let problem = "the state itself knows when this rule is over".to_owned();
        return Err(("healthy", problem, "remove it".to_owned()));
    }
    let is_one = |it: &Condition| it.hold == Hold::Once && it.value == 1 && form.read(it).is_some();
    let only_counts = other.actions.iter().all(|action| *action == Action::Count);
    if other.block == Scope::None && only_counts && other.when.iter().all(is_one) {
        return Ok(());
    }
    let problem = format!("only `{name}` has an effect in this rule");
    Err((
        other_name,
        problem,
        format!("remove it, and let `{name}` say when"),
    ))
}

/// Threshold of a rule that the state evaluates; `None` if it sets none.
fn figure(rule: &Rule) -> Option<Frequency> {
    let form = Form::of(&rule.id)?;
    let (side, _) = form.sides(rule);
    side.when.iter().find_map(|it| form.read(it))
}

/// Number of repairs of one component, and the span, after which an operator must look: from the rule, if it
/// is enforced.
pub(super) fn repairs(rules: &[Rule]) -> Option<Frequency> {
    let rule = rules.iter().find(|rule| rule.id == REMEDIATIONS)?;
    figure(rule).filter(|_| rule.mode == super::Mode::Enforce)
}

impl RuleSet {
    /// Threshold of a rule that the state evaluates; `None` if there is no such rule.
    #[must_use]
    pub fn often(&self, id: &str) -> Option<Frequency> {
        figure(self.rule(id)?)
    }

    /// The same, with the default if there is no such rule.
    #[must_use]
    pub(crate) fn often_or_usual(&self, id: &str) -> Frequency {
        let usual = || match Form::of(id).map(|form| &form.figure) {
            Some(Threshold::Often { usual, .. }) => *usual,
            Some(Threshold::Value) | None => Frequency {
                times: u32::MAX,
                span_ms: 0,
            },
        };
        self.often(id).unwrap_or_else(usual)
    }

    /// The score from which on a host is a lemon, in thousandths.
    #[must_use]
    pub fn lemon_milli(&self) -> u32 {
        self.often(LEMON).map_or(LEMON_MILLI, |it| it.times)
    }
}
